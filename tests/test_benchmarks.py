# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark scripts run, at tiny sizes, and defaults are judged by every criterion."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import Bunch

import skdistill

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


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
