# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark scripts run, at tiny sizes, and what they share counts right."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.utils import Bunch

import skdistill
from skdistill.metrics import crps

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
# report.py measures nothing, see test_measured.py.
SCRIPTS = sorted({path.name for path in FOLDER.glob("[!_]*.py")} - {"report.py", "run.py"})


@pytest.fixture
def run(run_script):
    """Run a script of the folder within this process."""
    return lambda script, *arguments: run_script(FOLDER / script, *arguments)


@pytest.fixture
def common(monkeypatch):
    """The module that the scripts share."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("_common")


@pytest.fixture(scope="module")
def first_images(data_dir):
    """Function that returns the first images of a set, as load_images does all; it reads once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        load_images = importlib.import_module("_datasets").load_images

    @cache
    def load(name):
        found = load_images(name)
        parts = found.is_train, ~found.is_train
        few = np.sort(np.concatenate([np.flatnonzero(part)[:400] for part in parts]))
        return Bunch(**{key: found[key][few] for key in ("data", "target", "is_train")})

    return load


@pytest.fixture
def few_images(common, first_images, monkeypatch):
    """Scripts have some images only."""
    monkeypatch.setattr(importlib.import_module("_datasets"), "load_images", first_images)


@pytest.fixture
def in_this_process(common, monkeypatch):
    """Scripts call what they would call in new processes, which would import torch first."""
    monkeypatch.setattr(common, "in_new_process", lambda function, *args: function(*args))


@pytest.fixture
def growing_peaks(common, monkeypatch):
    """In one process the peak of memory does not grow any more."""
    peaks = itertools.accumulate([3, 1, 3, 2, 3, 5])  # before and after each step
    monkeypatch.setattr(common, "peak_mib", peaks.__next__)


@pytest.fixture
def one_graph(monkeypatch):
    """Scripts write the graph of their first model for each; one takes seconds to make."""
    export, graphs = skdistill.export_onnx, []

    def export_once(model, path, **settings):
        if not graphs:
            export(model, path, **settings)
            graphs.append(path.read_bytes())
        path.write_bytes(graphs[0])

    monkeypatch.setattr(skdistill, "export_onnx", export_once)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_is_measured(run, script, capsys):
    with pytest.raises(SystemExit) as stop:
        run(script, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "usage:" in text
    assert "--output" in text
    assert len(text.splitlines()) > 10


# The arguments of each script beside --quick, and the fixtures that make it short.
# suite.py has a test of its own.
SMOKE = {
    "active.py": ("--sets concrete", "few_epochs in_this_process"),
    "bdistil.py": ("--parts toys", "few_epochs"),
    "conformal.py": ("--sets boston --splits 1", "few_epochs"),
    "decisions.py": ("--sets wine", "few_epochs"),
    "drift.py": ("", "few_epochs"),
    "engine.py": ("", "few_epochs"),
    "epistemic.py": ("--sets german --models teacher forest", "few_epochs"),
    "forest.py": ("", "few_epochs"),
    "gped.py": ("", "few_images"),
    "hydra.py": ("", "few_epochs"),
    "logits.py": ("", "few_epochs"),
    "many_classes.py": ("", "in_this_process growing_peaks"),
    "optimise.py": ("", "few_epochs"),
    "parallel.py": ("", "few_epochs"),
    "persistence.py": ("", "few_epochs"),
    "predict.py": ("", "few_epochs in_this_process one_graph"),
    "scale.py": ("", "few_epochs in_this_process"),
    "scoring_bench.py": ("--sets boston --models teacher distribution", "few_epochs referees"),
    "serving.py": ("", "few_epochs one_graph"),
    "tab_tune.py": ("--sets pm10 --teachers forest", "few_epochs referees"),
    "translation.py": ("", "few_epochs"),
    "trees.py": ("--sets boston", "few_epochs"),
    "uci.py": ("--sets boston", "few_epochs"),
}


def rows_of(found):
    """All dicts in what a script has written that hold no further ones."""
    if isinstance(found, dict):
        if not any(isinstance(value, (dict, list)) for value in found.values()):
            yield found
        found = found.values()
    for value in found if not isinstance(found, (str, float, int, type(None))) else ():
        yield from rows_of(value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", sorted(SMOKE))
def test_quick_run_prints_a_table_and_writes_json(run, script, data_dir, tmp_path, request):
    options, fixtures = SMOKE[script]
    for fixture in fixtures.split():
        request.getfixturevalue(fixture)
    output = tmp_path / "folder" / "result.json"
    text = run(script, "--quick", *options.split(), "--output", output)
    result = json.loads(output.read_text(encoding="utf-8"))
    assert {"date", "machine", "versions"} <= set(result)
    assert {"python", "torch", "skdistill"} <= set(result["versions"])
    assert len(text.splitlines()) > 3
    rows = list(rows_of({key: result[key] for key in set(result) - {"machine", "versions"}}))
    assert rows


def test_results_are_resumed_on_the_same_hardware(common, tmp_path):
    path = tmp_path / "results.json"
    machine = {**common.machine(), "system": "Linux-0.1-of-another-day"}
    for key, value in {"cores": 0, "system": "Windows-11"}.items():
        common.write_json(path, {"machine": {**machine, key: value}, "settings": {}})
        with pytest.raises(SystemExit, match="its machine is"):
            common.resumed(path, {})
    common.write_json(path, {"machine": machine, "settings": {}})
    assert common.resumed(path, {})["machine"] == machine


def test_results_stay_whole_when_writing_is_stopped(common, monkeypatch, tmp_path):
    path = tmp_path / "result.json"
    common.write_json(path, {"a": 1})
    write = Path.write_text

    def stopped(self, text, **how):
        write(self, text[:5], **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            common.write_json(path, {"a": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
    common.write_json(path, {"a": 3})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 3}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


# The suite -----------------------------------------------------------------------------------


@pytest.fixture
def suite(common):
    """The script that judges defaults."""
    return importlib.import_module("suite")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # networks of two epochs have learnt nothing
def test_defaults_are_judged_by_every_criterion(run, suite, few_epochs, data_dir, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    quick = ["--quick", "--fast", "--sets", "esl", "german", "boston", "sine", "--output"]
    run("suite.py", *quick, first, "--models", *suite.MODELS, "HGB", "--against", first)
    found = json.loads(first.read_text(encoding="utf-8"))
    assert found["failures"] == []
    places = [suite.identity(row) for row in found["results"]]
    assert len(set(places)) == len(places) == 3 * (2 + 2 + 1 + 1 + 1) + 2
    for protocol, scores in suite.CRITERIA.items():
        rows = [row for row in found["results"] if row["protocol"] == protocol]
        assert set(scores) <= set().union(*rows)
    # without peers those of the stored run stay, and what is there is not measured again
    arguments = ["--models", "teacher", "--set", "max_epochs=1", "--against", first]
    text = run("suite.py", *quick, second, "--protocols", "scores", *arguments)
    assert "scores    nll " in text
    rows = json.loads(second.read_text(encoding="utf-8"))["results"]
    assert [row for row in rows if row["model"] == "HGB"] == [
        row for row in found["results"] if row["model"] == "HGB"
    ]
    assert "[1/" not in run(
        "suite.py", *quick, second, "--protocols", "scores", *arguments, "--resume"
    )


def test_verdicts_are_beyond_twice_the_error_of_paired_differences(suite):
    def rows(values, score="nll"):
        place = {"protocol": "scores", "case": "0", "model": "teacher"}
        return [{**place, "set": str(i), score: value} for i, value in enumerate(values)]

    before = [1.0, 2.0, 3.0, 4.0]
    for now, said in (
        ([0.8, 1.9, 2.8, 3.9], "better"),  # changes -.2, -.1, -.2, -.1: mean -.15, error .029
        ([0.8, 2.1, 2.9, 4.1], "same"),  # -.2, .1, -.1, .1
        ([1.2, 2.1, 3.2, 4.1, 9.0], "worse"),  # the last one has nothing to be compared with
    ):
        ((*_, n_sets, then, mean, change, error, worst, verdict),) = suite.verdicts(
            rows(now), rows(before)
        )
        assert (n_sets, then, verdict) == (4, 2.5, said)
        assert change == pytest.approx(mean - then)
        changes = np.subtract(now[:4], before)
        assert error == pytest.approx(changes.std(ddof=1) / 2)
        assert worst.startswith(f"{changes.argmax()} ")
    # nearer to .9 is better, and so is more accuracy
    for score, now, then in (
        ("coverage", 0.91, 0.8),
        ("accuracy", 0.9, 0.8),
        ("in_the_large", 1, 3),
    ):
        (found,) = suite.verdicts(rows([now, now], score), rows([then, then], score))
        assert found[-1] == "better"


def test_places_among_peers_name_the_tables_lost(suite):
    nll = {"teacher": [1.0, 2.0, 3.0], "GP": [1.5, 1.8], "forest": [2.0, 2.5, 4.0]}
    rows = [
        {"protocol": "scores", "set": name, "case": "0", "model": model, "nll": value}
        for model, values in nll.items()
        for name, value in zip(("a", "b", "c"), values, strict=False)
    ]
    found = suite.field(rows, "teacher", "NLL")
    assert found.ranks == {"teacher": 4 / 3, "GP": 1.5, "forest": 8 / 3}
    assert found.wins == {"teacher": 2, "GP": 1, "forest": 0} | dict.fromkeys(
        set(suite.PEERS) - {"GP", "forest"}, 0
    )
    assert suite.lost(rows, "teacher", "NLL") == ["b 0.200 (GP)"]
    assert [row[:3] for row in suite.places(rows)] == [["NLL", 3, "1.33 (2)"]]


def test_probabilities_are_compared_with_frequencies(suite):
    y = np.repeat([0, 1, 2], [50, 30, 20])
    proba = np.tile([0.4, 0.4, 0.2], (100, 1))
    found = suite.of_classes(y, proba, np.arange(3))
    assert (found["worst_class"], found["worst_ratio"]) == ("0", pytest.approx(0.8))
    assert found["in_the_large"] == pytest.approx(0.1 / np.sqrt(0.4 * 0.6 / 100))
    mean, std = np.zeros(3), np.ones(3)
    gaussian = suite.of_numbers(np.array([-1.0, 0.5, 2.0]), mean, std)
    members = np.stack([mean, std**2], axis=-1)[:, np.newaxis, np.newaxis]
    assert gaussian["crps"] == pytest.approx(crps([-1.0, 0.5, 2.0], members), rel=1e-3)
    assert gaussian["coverage"] == pytest.approx(2 / 3)


def test_splits_of_the_suite_are_fixed_and_disjoint(suite, monkeypatch):
    for n, n_train, n_test in ((200, 133, 67), (4500, 2000, 1500), (9000, 2000, 2000)):
        table = np.arange(n)[:, np.newaxis], np.arange(n) % 2
        monkeypatch.setattr(suite.epistemic, "table", lambda name, table=table: table)
        first, same, other = (suite.fold_of("glass", split) for split in (0, 0, 1))
        assert (len(first.X_train), len(first.X_test)) == (n_train, n_test)
        np.testing.assert_array_equal(first.X_train, same.X_train)
        assert set(first.X_train[:, 0]) != set(other.X_train[:, 0])
        assert not set(first.X_train[:, 0]) & set(first.X_test[:, 0])
        np.testing.assert_array_equal(first.y_test, first.X_test[:, 0] % 2)


# Distribution distillation -------------------------------------------------------------------


@pytest.fixture
def many_classes(common):
    """The script that times the loss of forty thousand classes."""
    return importlib.import_module("many_classes")


@pytest.mark.parametrize(
    ("n_classes", "expected"),
    [
        (10, [0.90, 0.033, 0.0030, 1.46]),
        (100, [0.99, 0.0060, 0.00050, 1.62]),
        (1000, [0.999, 0.00087, 0.000072, 1.63]),
    ],
)
def test_gradient_ratios_are_those_of_the_paper(many_classes, n_classes, expected):
    assert list(many_classes.gradient_ratios(n_classes).values()) == pytest.approx(
        expected, rel=0.01
    )


# What the scripts share ----------------------------------------------------------------------


@pytest.fixture
def sentences(common):
    """The module that writes real sentences."""
    for package in ("babel", "num2words", "sentencepiece"):
        pytest.importorskip(package)
    return importlib.import_module("_sentences")


@pytest.mark.slow
def test_sentences_are_pieces_and_their_meanings_symbols(sentences):
    X, y = sentences.make_sentences(20, "known", 0)
    assert X.shape == (20, sentences.LONGEST_SOURCE)
    assert y.shape == (20, sentences.LONGEST_TARGET)
    assert X.max() < sentences.N_PIECES
    texts = sentences.pieces().decode([row[row > 0].tolist() for row in X])
    drawn = list(itertools.islice(sentences.sentences("known", 0), 20))
    for text, row, sentence in zip(texts, y, drawn, strict=True):
        assert text.replace(" ", "") == "".join(sentence.text.casefold().split())
        symbols = [sentences.TARGETS[token] for token in row[row > 0]]
        assert symbols == [*sentence.meaning, "end"]


def test_ratios_are_medians_within_rounds(common):
    seconds = {"skdistill": [1.0, 2.0, 4.0], "peer": [3.0, 4.0, 40.0]}
    assert common.ratio(seconds, "peer", "skdistill") == 3.0  # of 3, 2 and 10
    faster = common.comparison("s", seconds, "peer", at_least=3.5)
    assert (faster["ratio"], faster["measure"], faster["reached"]) == (3.0, "times as fast", False)
    assert (faster["ours_seconds"], faster["peer_seconds"]) == (2.0, 4.0)
    longer = common.comparison("s", seconds, "peer", at_most=0.5)
    assert longer["ratio"] == pytest.approx(1 / 3)
    assert longer["reached"] is True
    assert common.comparison("s", seconds, "peer")["reached"] is None
    assert common.scaled(seconds, "peer", 2.0)["peer"] == [6.0, 8.0, 80.0]
    assert seconds["peer"][0] == 3.0


def test_contenders_take_turns_and_the_first_call_is_not_counted(common):
    calls = []
    seconds = common.interleaved(
        {"a": partial(calls.append, "a"), "b": partial(calls.append, "b")}, n_rounds=2, n_calls=3
    )
    assert "".join(calls) == "ab" + "aaabbb" + "bbbaaa"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}


def test_table(common, capsys):
    common.print_table(["name", "x", "y"], [["a", 1.23456789, "yes"], ["longer", None], ["b", 12]])
    assert capsys.readouterr().out.splitlines() == [
        "name    x      y",
        "------  -----  ---",
        "a       1.235  yes",
        "longer",
        "b          12",
    ]


def test_means_over_seeds_have_standard_errors(common):
    gped = importlib.import_module("gped")
    rows = [{"nll": 1.0, "rank": None}, {"nll": 3.0, "rank": None}]
    assert gped.over_seeds(rows) == {"nll": 2.0, "rank": None, "errors": {"nll": 1.0}}
    assert gped.over_seeds(rows[:1]) == rows[0]


# Conformal intervals ----------------------------------------------------------------------------


def test_conformal_half_width_is_the_quantile_of_finite_samples(common):
    conformal = importlib.import_module("conformal")
    errors = np.arange(1.0, 20.0)  # 19: the next one is below the 18th in 18 cases of 20
    assert conformal.half_width(-errors, 0.9) == 18
    assert conformal.half_width(errors, 0.95) == 19
    assert conformal.half_width(errors, 0.96) == math.inf


# Drift ------------------------------------------------------------------------------------------


def test_statistics_of_drift_are_those_of_scipy(common):
    drift = importlib.import_module("drift")
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(drift.N_REFERENCE, 20))
    X = rng.normal(np.linspace(0, 1, 20), size=(drift.BATCH, 20))
    found = drift.statistics(X, np.sort(reference, axis=0))
    expected = ks_2samp(X, reference, method="asymp")
    np.testing.assert_allclose(found, expected.statistic)
    for name, level in drift.TESTS.items():
        is_alarm = expected.pvalue <= level
        np.testing.assert_array_equal(found >= drift.LIMITS[name], is_alarm)
        assert 0 < is_alarm.sum() < 20


# Outside referees ---------------------------------------------------------------------------------

# As much of ScoringBench and TabTune as the scripts call.
IMITATED = {
    "scoringbench/__init__.py": "from . import config\n__version__ = '0'",
    "scoringbench/config.py": "N_FOLDS, SAMPLE_SIZE, SEED = 5, 300, 42",
    "scoringbench/wrappers/__init__.py": """
CatBoostQuantileWrapper = XGBQuantileVectorWrapper = dict
""",
    "scoringbench/wrappers/base.py": """
from typing import NamedTuple
class DistributionPrediction(NamedTuple):
    probas: object
    bin_edges: object
    bin_midpoints: object
    mean: object
class ProbabilisticWrapper: ...
""",
    "scoringbench/metrics.py": """
import numpy as np, scoring_bench
def compute_metrics(found, y):
    error = np.square(found.mean - y).mean()
    return dict.fromkeys(scoring_bench.SCORES, error)
""",
    "tabtune/TabularPipeline/__init__.py": "from .pipeline import TabularPipeline",
    "tabtune/distillation.py": """
from tabtune.TabularPipeline.pipeline import TabularPipeline
class TabDistiller:
    def __init__(self, teachers, task_type, **settings):
        (self.teacher,) = teachers
        self.is_classifier = task_type == 'classification'
        assert self.teacher.tuning_strategy != 'inference'
    def fit(self, X, y):
        known = (self.teacher.predict_proba if self.is_classifier else self.teacher.predict)(X)
        assert known.shape[:1] == y.shape
        self.mean = known.mean(axis=0)
        return self
    def predict(self, X):
        return self.mean.repeat(len(X))
    def predict_proba(self, X):
        return self.mean[None].repeat(len(X), axis=0)
""",
}


@pytest.fixture
def referees(common, monkeypatch, tmp_path):
    """ScoringBench and TabTune are imitated."""
    for name, text in IMITATED.items():
        path = tmp_path / "referees" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in [name for name in sys.modules if name.startswith(("scoringbench", "tabtune"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "referees")


@pytest.mark.filterwarnings("ignore")  # networks of three epochs have learnt nothing
def test_bins_of_scoringbench_have_the_moments_of_the_prediction(referees, few_epochs):
    wrapper = importlib.import_module("_scoringbench_wrapper")
    X, y = importlib.import_module("_common").made_up_table(200, 7)
    model = skdistill.BayesianEnsembleRegressor(3, random_state=0)
    found = wrapper.SkdistillWrapper(model).fit(X, y).predict_distribution(X[:50])
    np.testing.assert_allclose(found.probas.sum(axis=1), 1)
    widths = np.diff(found.bin_edges, axis=1)
    assert (widths > 0).all()
    mean = (found.probas * found.bin_midpoints).sum(axis=1)
    squares = np.square(found.bin_midpoints) + widths**2 / 12  # of a uniform density in each bin
    variance = (found.probas * squares).sum(axis=1) - mean**2
    total = skdistill.predict_uncertainty(model, X[:50]).total
    np.testing.assert_allclose(variance, total, rtol=0.02)
    assert (np.abs(mean - found.mean) < 0.01 * np.sqrt(total)).all()


def test_folds_of_scoringbench_are_its_own(referees):
    folds = list(importlib.import_module("scoring_bench").splits(400))
    assert [(len(train), len(test)) for train, test in folds] == [(240, 60)] * 5
    for train, test in folds:
        assert not set(train) & set(test)
    tests = np.concatenate([test for _, test in folds])
    assert len(set(tests)) == len(tests)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_referees_are_resumed(run, referees, few_epochs, data_dir, tmp_path):
    for script, arguments in (
        ("scoring_bench.py", "--sets boston --models hydra"),
        ("tab_tune.py", "--sets german --teachers forest"),
    ):
        output = tmp_path / f"{script}.json"
        command = script, "--quick", *arguments.split(), "--output", output
        run(*command)
        first = json.loads(output.read_text(encoding="utf-8"))
        run(*command, "--resume")
        assert json.loads(output.read_text(encoding="utf-8")) == first
