# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark scripts run, at tiny sizes, and what they share counts right."""

from __future__ import annotations

import datetime
import importlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.utils import Bunch

import skdistill
from skdistill.distillers._fit import _student
from skdistill.metrics import crps
from skdistill.modules import n_parameters

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
    for script in ("_datasets", "gped", "mnist"):  # which others import
        monkeypatch.setattr(importlib.import_module(script), "load_images", first_images)


@pytest.fixture
def in_this_process(common, monkeypatch):
    """Scripts call what they would call in new processes, which would import torch first."""
    monkeypatch.setattr(common, "in_new_process", lambda function, *args: function(*args))


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "part", "peers"),
    [
        (
            "engine.py",
            "training",
            {"skorch", "plain loop", "Bagging of MLPs", "bare torch loop"},
        ),
        (
            "predict.py",
            "prediction",
            {
                "student's module",
                "1-head student's module",
                "student's module + 90 us",
                "1-head student's module + 90 us",
                "MLPRegressor",
                "10 students",
                "10 skorch nets",
            },
        ),
    ],
)
def test_quick_run_prints_a_table_and_writes_json(
    run, script, part, peers, few_epochs, tmp_path, request
):
    if script == "predict.py":  # the other one starts a process
        request.getfixturevalue("in_this_process")
        request.getfixturevalue("one_graph")
    output = tmp_path / "folder" / "result.json"
    text = run(script, "--quick", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    assert {"date", "machine", "versions", part, "memory"} <= set(result)
    assert {row["peer"] for row in result[part]} == peers
    for row in result[part]:
        assert row["ratio"] > 0
        assert row["setting"] in text
    assert all(row["peak_mib"] >= 0 for row in result["memory"])
    assert {"python", "torch", "skdistill"} <= set(result["versions"])


@pytest.fixture
def predict(common):
    """The script that measures prediction, and what predicts in it, with small members."""
    script = importlib.import_module("predict")
    return script, script.fitted_models((5,))


def test_the_bare_module_gives_the_means_of_its_student(predict):
    script, models = predict
    X = script.inputs(7)
    for student, n_heads in ((models.student, 20), (models.single, 1), (models.member, 1)):
        assert student.n_heads_ == n_heads
        module = student.module_
        means = module.y_loc + module.y_scale * script.module_predict(student, X)
        np.testing.assert_allclose(student.predict(X), means[0, :, 0], rtol=1e-5)
    assert models.ensemble.n_members_ == 10
    assert models.member.n_parameters_ == n_parameters(models.ensemble.module_) / 10


def test_predictions_are_held_against_their_targets(predict):
    script, models = predict
    one = script.one_row(models, n_calls=1, n_rounds=1)
    some = script.some_rows(models, 3, n_calls=1, n_rounds=1, at_most=2.5)
    rows = [*one, *some, *script.loops(models, 3, n_rounds=1)]
    targets = {(row["ours"], row["peer"]): row["target"] for row in rows if row["target"]}
    assert targets == {
        ("student", "student's module + 90 us"): 1,
        ("1-head student", "1-head student's module + 90 us"): 1,
        ("student", "MLPRegressor"): 1.5,
        ("ensemble of 10", "MLPRegressor"): 1.5,
        ("student", "student's module"): 2.5,
        ("1-head student", "1-head student's module"): 2.5,
        ("ensemble of 10", "10 students"): 1.5,
        ("ensemble of 10", "10 skorch nets"): 40,
    }
    seconds = {row["peer"]: row["peer_seconds"] for row in one}
    granted = seconds["student's module + 90 us"] - seconds["student's module"]
    assert granted == pytest.approx(90e-6)


@pytest.mark.slow
def test_uci_runs_with_its_peers(run, data_dir, tmp_path):
    output = tmp_path / "uci.json"
    text = run("uci.py", "--quick", "--peers", "gp", "mlp", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))["results"]["boston"]
    assert set(result) == {"teacher", "student", "fidelity", "gp", "mlp"}
    for model in ("teacher", "student", "gp", "mlp"):
        assert result[model]["rmse"] < 9  # the standard deviation of y
        assert model in text


def test_results_are_resumed_on_the_same_hardware(common, tmp_path):
    path = tmp_path / "results.json"
    machine = {**common.machine(), "system": "Linux-0.1-of-another-day"}
    for key, value in {"cores": 0, "system": "Windows-11"}.items():
        common.write_json(path, {"machine": {**machine, key: value}, "settings": {}})
        with pytest.raises(SystemExit, match="its machine is"):
            common.resumed(path, {})
    common.write_json(path, {"machine": machine, "settings": {}})
    assert common.resumed(path, {})["machine"] == machine


@pytest.mark.slow
def test_tables_are_resumed(run, in_this_process, data_dir, tmp_path):
    output = tmp_path / "tables.json"
    resume = ("--quick", "--parts", "scores", "--output", str(output), "--resume", "--teachers")

    def scores():
        return json.loads(output.read_text())["results"]["scores"]["california"]

    run("tables.py", *resume, "boosting")
    first = scores()["boosting"]
    assert first["rmse"] > 0
    assert {"cpu_seconds", "peak_mib"} < set(first)
    text = run("tables.py", *resume, "boosting", "TabM")
    assert "california  TabM" in text
    assert list(scores()) == ["TabM", "boosting"]
    assert scores()["boosting"] == first  # its seconds too: it was not fitted again
    with pytest.raises(SystemExit, match="validation is False, not True"):
        run("tables.py", *resume, "TabM", "--validation")
    # what was measured without memory gets it, and keeps all else
    found = json.loads(output.read_text())
    del found["results"]["scores"]["california"]["boosting"]["peak_mib"]
    output.write_text(json.dumps(found))
    run("tables.py", *resume, "boosting")
    memory = {"peak_mib": scores()["boosting"]["peak_mib"]}
    assert scores()["boosting"] == first | memory
    # ours are measured anew where defaults have changed since
    found = json.loads(output.read_text())
    found["defaults"]["rules"] = "0"
    found["results"]["scores"]["california"]["TabM"]["rmse"] = 99.0
    output.write_text(json.dumps(found))
    run("tables.py", *resume, "boosting", "TabM")
    assert scores()["boosting"] == first | memory
    assert scores()["TabM"]["rmse"] < 99


def test_peers_of_tables_that_are_not_installed_are_left_out_aloud(common, monkeypatch, capsys):
    tables = importlib.import_module("tables")
    monkeypatch.setattr(tables, "versions", lambda: {"scikit-learn": "1", "lightgbm": "4"})
    assert tables.installed(["default", "LightGBM", "TabM-D"]) == ["default", "LightGBM"]
    assert capsys.readouterr().out == "TabM-D is left out: pytabkit is not installed.\n"


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
        assert (len(first.X_train), len(first.X_held_out)) == (n_train, n_test)
        np.testing.assert_array_equal(first.X_train, same.X_train)
        assert set(first.X_train[:, 0]) != set(other.X_train[:, 0])
        assert not set(first.X_train[:, 0]) & set(first.X_held_out[:, 0])
        np.testing.assert_array_equal(first.y_held_out, first.X_held_out[:, 0] % 2)


def test_processes_see_at_most_so_many_rows(common, monkeypatch):
    trees = importlib.import_module("trees")
    monkeypatch.setattr(trees, "GP_ROWS", 20)
    X = np.random.default_rng(0).standard_normal((50, 1))
    model = trees.GaussianProcess(random_state=0).fit(X, X[:, 0])
    assert len(np.unique(model.X_train_)) == 20
    assert set(model.X_train_[:, 0]) <= set(X[:, 0])
    np.testing.assert_array_equal(model.X_train_[:, 0], model.y_train_)


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


@pytest.mark.slow
def test_hydra_judges_fidelity_and_counts_the_papers_parameters(run, tmp_path):
    output = tmp_path / "hydra.json"
    text = run("hydra.py", "--quick", "--ablations", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    spirals = result["sets"]["spirals"]
    assert set(spirals["all"]) == {"teacher", "Hydra+", "Hydra", "Hinton"}
    assert "ood_auroc" not in spirals["some_left_out"]["Hinton"]  # one head cannot tell the parts
    for row in spirals["targets"]:
        low, high = row["low"], row["high"]
        within = (low is None or low <= row["value"]) and (high is None or row["value"] <= high)
        assert row["reached"] is within
        assert row["target"] in text
    assert {"Hydra+", "heads: 5", "members: 5", "with L4", "without spread"} <= {
        row["change"] for row in result["ablations"]
    }
    # Hydra+ (Ferianc & Rodrigues, 2022), Section 4.1 and A.2, A.3
    counts = {(row["problem"], row["heads"]): row["parameters"] for row in result["toys"]}
    assert counts == {
        ("spirals", None): 618_060,
        ("spirals", 20): 228_560,
        ("spirals", 10): 124_530,
        ("spirals", 5): 72_515,
        ("regression", None): 106_040,
        ("regression", 20): 55_690,
        ("regression", 10): 29_170,
        ("regression", 5): 15_910,
    }


@pytest.mark.slow
def test_serving_measures_students_files_and_teachers(common, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    serving = importlib.import_module("serving")
    measured, export = serving.measured, serving.export_onnx
    graphs: list[bytes] = []

    def export_once(model, path):
        """Write the graph of the student, which takes seconds to make, for its pipeline too."""
        if not graphs:
            export(model, path)
            graphs.append(path.read_bytes())
        path.write_bytes(graphs[0])

    compiled = serving.compiled
    libraries: list = []

    def compile_once(student, folder, outputs=None):
        if not libraries:
            libraries.append(compiled(student, folder, ["mean"]))
        return libraries[0]

    @cache
    def of_numbers(*sizes):
        return measured("numbers", *sizes)

    monkeypatch.setattr(serving, "export_onnx", export_once)
    monkeypatch.setattr(serving, "compiled", compile_once)
    monkeypatch.setattr(
        serving,
        "measured",
        lambda task, *sizes: [row | {"task": task} for row in of_numbers(*sizes)],
    )
    output = tmp_path / "serving.json"
    monkeypatch.setattr(sys, "argv", ["serving.py", "--quick", "--output", str(output)])
    serving.main()
    text = capsys.readouterr().out
    for model in serving.models("classes"):
        probabilities, uncertainty = serving.all_of(model, serving.inputs(5))
        assert probabilities.shape == (5, 4)
        assert uncertainty.total.shape == (5,)
    rows = json.loads(output.read_text(encoding="utf-8"))["serving"]
    tasks = ("numbers", "classes")
    files = ("file", "pipeline", "file, 2 threads", "C", "C of the point")
    models = ("student", "program", *files, "teacher")
    assert [(row["task"], row["model"]) for row in rows] == list(itertools.product(tasks, models))
    for row in rows:
        assert row["model"] in text
        assert row["one_row_us"] > 0
        assert row["rows_per_second"] > 0
        # Half a megabyte is the matrix of 256 inducing points.
        assert "file" not in row["model"] or 0 < row["kilobytes"] <= 800


def run_in_fork(command, cwd, env, check):
    """What ``subprocess.run`` does with Python, in a process that need not import torch first."""
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            os.chdir(cwd)
            exec(command[-1], {})
            ended = 0
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_persistence_measures_each_model_in_each_way(
    common, few_epochs, tmp_path, monkeypatch, capsys
):
    output = tmp_path / "persistence.json"
    persistence = importlib.import_module("persistence")
    work = "import time\nwhile time.process_time() < 0.2: pass"
    monkeypatch.setitem(persistence.COLD, "torch and scikit-learn", work)
    monkeypatch.setattr(persistence, "subprocess", SimpleNamespace(run=run_in_fork))
    monkeypatch.setattr(sys, "argv", ["persistence.py", "--quick", "--output", str(output)])
    persistence.main()
    text = capsys.readouterr().out
    result = json.loads(output.read_text(encoding="utf-8"))
    sizes: dict[str, dict[str, float]] = {}
    for row in result["persistence"]:
        assert row["model"] in text
        for time_of in ("write_cpu_ms", "write_wall_ms", "read_cpu_ms", "read_wall_ms"):
            assert row[time_of] > 0
        sizes.setdefault(row["model"], {})[row["way"]] = row["kilobytes"]
    assert list(sizes) == ["student", "ensemble", "GPED", "booster"]
    for model, found in sizes.items():
        assert set(found) >= {"save", "pickle", "joblib"}
        assert ("with teacher" in found) == (model != "ensemble")
        assert 0 < found["save"] <= found.get("with teacher", math.inf)
    processes = {row["process"]: row["cpu_s"] for row in result["cold_start"]}
    assert set(processes) == {"torch and scikit-learn", "skdistill.load", "unpickling"}
    assert processes["torch and scikit-learn"] > 0.1  # that of the children


@pytest.mark.slow
def test_parallel_compares_two_jobs_with_one(run, tmp_path):
    output = tmp_path / "parallel.json"
    text = run("parallel.py", "--quick", "--clusters", "--output", str(output))
    found = json.loads(output.read_text(encoding="utf-8"))
    assert [row["ours"] for row in found["cores"]] == ["two processes", "two threads"]
    assert found["clusters"] == []
    for row in found["cores"]:
        assert row["ours"] in text
        assert row["ratio"] == pytest.approx(row["peer_seconds"] / row["ours_seconds"])


# The forest ----------------------------------------------------------------------------------


@pytest.fixture
def forest(common):
    """The script that distils a forest."""
    return importlib.import_module("forest")


def test_indicators_become_codes(forest):
    X = np.array([[0.5, 0, 1, 1, 0, 0], [1.5, 1, 0, 0, 0, 1]])
    categorical = np.array([False, True, True, True, True, True])
    coded, codes = forest.with_codes(X, categorical, (2, 3))
    np.testing.assert_array_equal(coded, [[0.5, 1, 0], [1.5, 0, 2]])
    np.testing.assert_array_equal(codes, [1, 2])
    as_it_is, codes = forest.with_codes(X, categorical, None)
    np.testing.assert_array_equal(as_it_is, X)
    np.testing.assert_array_equal(codes, [1, 2, 3, 4, 5])


def test_munged_rows_have_codes_that_exist_and_are_encoded_as_one_of_them(forest):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(3, 2, (40, 2)), rng.integers(0, 3, (40, 2))]).astype(np.float32)
    y = X[:, 2]
    rows = forest.Rows(X, X, y, y, np.array([2, 3]))
    made = forest.munged(rows, 5)
    assert made.shape == (200, 4)
    assert not (made == np.tile(X, (5, 1))).all(axis=1).all()
    encoded = forest.encoder(rows).fit(X).transform(made)
    assert encoded.dtype == np.float32
    for variable in (encoded[:, 2:5], encoded[:, 5:8]):
        np.testing.assert_array_equal(variable.sum(axis=1), 1)


@pytest.mark.slow
def test_forest_and_student_are_compared(run, data_dir, tmp_path):
    output = tmp_path / "forest.json"
    text = run("forest.py", "--quick", "--sets", "covtype20k", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))["results"]["covtype20k"]
    forest, student = result["scores"]["forest"], result["scores"]["student"]
    assert result["accuracy_ratio"] == pytest.approx(student["accuracy"] / forest["accuracy"])
    assert student["accuracy"] > 0.4  # seven classes
    assert student["mib"] == pytest.approx(4 * student["parameters"] / 2**20, rel=0.1)
    assert {row["target"] for row in result["times"] if "models" in row["setting"]} == {50}
    assert {row["target"] for row in result["times"] if "pipelines" in row["setting"]} == {None}
    assert len(result["times"]) == 6
    for row in result["times"]:
        assert row["setting"] in text


# MNIST, and shifts ---------------------------------------------------------------------------


@pytest.mark.slow
def test_mnist_runs_every_inference(run, few_images, data_dir, tmp_path):
    output = tmp_path / "mnist.json"
    options = ["--quick", "--threads", "1", "--masks", "0", "29"]
    text = run("mnist.py", *options, "--output", str(output))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert list(results) == ["0", "29"]
    for mask, found in results.items():
        assert f"mask {mask} %" in text
        kinds = {name.partition(",")[0] for name in found}
        assert kinds == {"deep ensemble", "SGLD", "MC dropout"}
        for name, row in found.items():
            assert name in text
            assert row["iterations"] == 3  # an epoch of 300 samples in batches of 100
            assert row["members"] == 2
            assert row["nll"] < 1.05 * math.log(10)  # a chain of 10 steps knows next to nothing
    nll = {mask: found["deep ensemble"]["nll"] for mask, found in results.items()}
    assert nll["29"] > nll["0"]  # less is to be seen
    assert "target <= 0.137" in text


def test_names_of_runs_tell_their_iterations(common):
    mnist = importlib.import_module("mnist")
    n_batches = mnist.N_TRAIN // mnist.BATCH_SIZE
    told = {
        int(name.split()[1].replace(",", "")): method["max_epochs"] * n_batches
        for name, method in mnist.METHODS.items()
        if name.startswith("SGLD")
    }
    assert len(told) == 2
    assert list(told) == list(told.values())


@pytest.fixture
def shift(common):
    """The script that shifts test samples."""
    return importlib.import_module("shift")


def test_shifts_of_images(shift):
    image = np.zeros((1, 10, 10), dtype=np.float32)
    image[0, 2, 5] = 0.9
    brighter = shift.brighter(image, 30)
    assert brighter[0, 0, 0] == pytest.approx(0.3)
    assert brighter[0, 2, 5] == 1
    moved = shift.moved_down(image, 30)
    assert moved[0, 5, 5] == np.float32(0.9)
    assert moved.sum() == pytest.approx(0.9)
    assert shift.moved_down(image, 80).sum() == 0  # out of the picture
    turned = shift.rotated(image, 90)
    assert any(np.allclose(turned[0], np.rot90(image[0], k), atol=1e-6) for k in (1, -1))


def test_shifts_of_tables(shift):
    X = np.random.default_rng(1).standard_normal((20000, 2), dtype=np.float32)
    np.testing.assert_allclose(shift.offset(X, 20), X + 0.2, rtol=1e-6)
    np.testing.assert_allclose(shift.gained(X, 20), X * 1.2, rtol=1e-6)
    noise = shift.noisy(X, 50) - X
    np.testing.assert_allclose(noise.std(axis=0), 0.5, rtol=0.02)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.01)


@pytest.mark.slow
def test_shift_judges_every_model_under_every_shift_and_draws(
    run, few_images, few_epochs, data_dir, tmp_path
):
    output = tmp_path / "shift.json"
    sets = ["--sets", "mnist", "satimage", "--plot", str(tmp_path)]
    text = run("shift.py", "--quick", *sets, "--output", str(output))
    table = json.loads(output.read_text(encoding="utf-8"))["results"]
    for name, kinds in {
        "mnist": ("brightness", "rotation", "shift"),
        "satimage": ("offset", "gain", "noise"),
    }.items():
        rows = [row for row in table if row["set"] == name]
        degrees = {(row["shift"], row["degree"]) for row in rows}
        assert {kind for kind, _ in degrees} == {"none", *kinds}
        assert len(degrees) == 1 + 3
        assert len(rows) == len(degrees) * len({row["model"] for row in rows})
        assert (tmp_path / f"shift_{name}.png").stat().st_size > 10_000
    for row in table:
        assert row["model"] in text
        assert 0 <= row["error"] <= 1
        is_teacher, has_one_head = row["model"] == "teacher", row["model"] == "Hinton"
        assert ("tv_total" in row) is not is_teacher
        assert ("tv_epistemic" in row) is not (is_teacher or has_one_head)


# Distribution distillation -------------------------------------------------------------------


@pytest.fixture
def many_classes(common):
    """The script that times the loss of forty thousand classes."""
    return importlib.import_module("many_classes")


def test_contenders_of_many_classes_compute_what_they_say(many_classes):
    logits = many_classes.logits(10, 3, 50)
    outputs, members = (values.double() for values in logits)
    expected = many_classes.reverse_kl(outputs, members)
    torch.testing.assert_close(many_classes.naive(outputs, members), expected, rtol=1e-5, atol=0)
    mean = members.softmax(-1).mean(0)
    soft = -(mean * outputs.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(many_classes.cross_entropy(outputs, members), soft)


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


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_many_classes_writes_times_memory_and_targets(run, common, monkeypatch, tmp_path):
    peaks = itertools.accumulate([3, 1, 3, 2, 3, 5])  # before and after each step
    monkeypatch.setattr(common, "peak_mib", peaks.__next__)
    output = tmp_path / "many_classes.json"
    text = run("many_classes.py", "--quick", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    assert {row["peer"]: row["target"] for row in result["step"]} == {
        "cross-entropy": 1.6,
        "naive": 2,
    }
    assert result["memory"]["peak_mib"] == {"reverse KL": 1, "cross-entropy": 2, "naive": 5}
    assert result["memory"]["share_of_naive"] == 0.2
    assert set(result["gradient_ratio"]) == {"10", "100", "1000"}
    assert "target <= 0.15" in text


@pytest.fixture
def logits(common):
    """The script that distils stored logits."""
    return importlib.import_module("logits")


def test_the_proxy_without_the_one_has_the_members_mean(logits):
    values = 3 * np.random.default_rng(0).standard_normal((5, 40, 7))
    proxies = logits.compare_proxies(logits.ensemble(values))
    assert proxies["without the one"]["total"] == 1
    assert all(0 < rank < 1 for rank in proxies["with the one"].values())


def test_a_linear_student_starts_as_the_identity(logits):
    layer = logits.FromIdentity(3, 3, start=np.array([1.0, 2.0, 3.0]))
    x = torch.tensor([[0.5, 0.0, -1.0]])
    torch.testing.assert_close(layer(x), torch.tensor([[1.5, 2.0, 2.0]]))


@pytest.mark.slow
def test_the_bootstrap_is_paired(logits):
    rng = np.random.default_rng(0)
    inside, outside = rng.standard_normal((300, 1)), 1 + rng.standard_normal((100, 1))
    same = logits.bootstrap(np.tile(inside, 2), np.tile(outside, 2), n_resamples=20)
    assert same == [0, 0]
    blind = np.hstack([inside, rng.standard_normal((300, 1))])
    low, high = logits.bootstrap(blind, np.tile(outside - 1, 2) + [1, 0], n_resamples=200)
    assert low < 0.5 - norm.cdf(1 / math.sqrt(2)) < high
    assert 0.05 < high - low < 0.3


@pytest.mark.slow
def test_stored_logits_are_distilled(run, few_epochs, data_dir, tmp_path):
    output = tmp_path / "logits.json"
    text = run("logits.py", "--quick", "--output", str(output))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert set(results) == {"imagenet", "cifar10"}
    for result in results.values():
        for row in result["targets"]:
            assert row["reached"] is (row["value"] >= row["low"])
            assert row["target"] in text
        for name in result["models"]:
            assert name in text
    assert results["imagenet"]["proxies"]["with the one"]["reverse_mutual_information"] > 0.99
    for family in ("logit_normal", "dirichlet"):
        row = results["cifar10"]["models"][family]
        low, high = row["interval"]
        assert low < row["difference"] < high


# Progressive distillation --------------------------------------------------------------------


@pytest.mark.slow
def test_bdistil_judges_every_part(run, few_epochs, data_dir, tmp_path):
    output = tmp_path / "bdistil.json"
    text = run("bdistil.py", "--quick", "--output", str(output))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert set(results) == {"ellipsoid", "cube", "letter", "magic", "series"}
    for result in results.values():
        assert 0 < result["teacher"] <= 1
        for row in result["targets"]:
            assert row["reached"] is (row["value"] <= row["limit"])
            assert row["target"] in text
    for name in ("ellipsoid", "cube"):
        assert len(results[name]["average"]) == len(results[name]["booster"]) == 7
        assert results[name]["seeds"][0]["share_of_flop"] < 0.5
    assert [row["time"] for row in results["series"]["peer"]] == [0.5, 0.75, 1.0]
    cost, peer = results["series"]["seeds"][0]["flop"]
    assert peer <= cost < 1.5 * peer
    assert {row["target"] for name in ("letter", "magic") for row in results[name]["times"]} == {
        15,
        1,
        None,
    }


@pytest.fixture
def bdistil(common):
    """The script that decomposes teachers into small networks."""
    return importlib.import_module("bdistil")


@pytest.mark.slow
def test_boosters_are_held_against_averages_of_the_same_networks(
    run, few_epochs, few_images, data_dir, tmp_path
):
    output = tmp_path / "bdistil.json"
    which = ["--parts", "average", "mnist", "--sets", "concrete", "magic"]
    text = run("bdistil.py", "--quick", *which, "--output", str(output))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    runs = {run["set"]: run for part in results.values() for run in part["runs"]}
    assert list(runs) == ["concrete", "magic", "convolutional", "residual"]
    for name, found in runs.items():
        assert name in text
        assert len(found["booster"]) == len(found["average"]) == 7
        assert list(found["oracle"]) == ["1", "2", "4", "7"]
        rows = [*found["booster"], *found["average"], *found["oracle"].values()]
        assert all(("divergence" in row) == (name != "concrete") for row in rows)
        assert all(row["distance"] > 0 for row in rows)
    for name in ("convolutional", "residual"):
        learner, teacher = runs[name]["flop"][0], runs[name]["teacher_flop"]
        assert 7 * learner < teacher
    for part in results.values():
        for row in part["targets"]:
            assert row["reached"] is (row["value"] <= row["limit"])
            assert row["target"] in text


def test_the_first_network_of_an_average_is_itself(bdistil):
    said = np.random.default_rng(0).dirichlet(np.ones(3), (2, 5))
    wanted, y = said[1], said[1].argmax(1)
    alone = bdistil.average_of(said[:1], wanted, y)
    assert alone == pytest.approx(bdistil.follows(said[0], wanted, y))
    exact = {"score": 1.0, "distance": 0.0, "divergence": 0.0}
    assert bdistil.follows(wanted, wanted, y) == pytest.approx(exact)


def test_an_average_is_of_logits_for_the_distance_and_of_probabilities_otherwise(bdistil):
    # logits (2, -2) and (-2, 2) are 0 on average, and the teacher's are 0; so are mean logits
    p = 1 / (1 + np.exp(-4.0))
    said = np.array([[[p, 1 - p]], [[1 - p, p]]])
    wanted = np.array([[0.5, 0.5]])
    found = bdistil.average_of(said, wanted, np.array([0]))
    assert found == pytest.approx({"score": 1.0, "distance": 0.0, "divergence": 0.0})
    alone = bdistil.average_of(said[:1], wanted, np.array([1]))
    assert alone["score"] == 0
    assert alone["distance"] == pytest.approx(2)
    assert alone["divergence"] == pytest.approx(-0.5 * np.log(4 * p * (1 - p)))


def test_averages_are_summed_up_over_sets_and_seeds(bdistil):
    def run_of(name, gain, distance):
        booster = [{"score": 0.8 + gain * t, "distance": distance} for t in range(7)]
        average = [{"score": 0.8, "distance": 1.0} for _ in range(7)]
        return {"set": name, "booster": booster, "average": average}

    runs = [run_of("a", 0.01, 0.5), run_of("a", 0.03, 0.7), run_of("b", -0.01, 0.9)]
    found = bdistil.summary_of_averages(runs)
    np.testing.assert_allclose(found["difference"], 0.01 * np.arange(7), atol=1e-12)
    error = np.std([0.01, 0.03, -0.01], ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(found["standard_error"], error * np.arange(7), atol=1e-12)
    np.testing.assert_allclose(found["ratio_of"]["a"], 0.6)
    behind, ratio = found["targets"]
    assert behind["value"] == pytest.approx(-(0.01 + error))  # after the second round
    assert behind["reached"]
    assert ratio["value"] == pytest.approx(0.7)
    assert ratio["reached"]


def test_series_are_summed_up_over_seeds_where_something_is_predicted(bdistil):
    def seed_of(teacher, at_end, accuracy):
        rows = [{"time": 0.5, "accuracy": accuracy, "share": 0.5}]
        return {"teacher": teacher, "at_end": at_end, "booster": rows, "peer": rows}

    found = bdistil.summary_of_series([seed_of(0.8, 0.7, None), seed_of(0.8, 0.9, 0.6)])
    (row,) = found["booster"]
    assert row["accuracy"] == {"mean": 0.6, "error": None}
    assert row["share"] == {"mean": 0.5, "error": 0.0}
    assert found["behind"] == pytest.approx({"mean": 0.0, "error": 0.1})
    assert found["targets"][0]["reached"]


def test_networks_are_as_wide_as_their_cost_allows(bdistil):
    assert bdistil.widest(99, lambda width: width**2) == 9
    width, _ = bdistil.layers_for(1000, 4, 3)
    assert bdistil.flop_of_mlp(4, width, width, 3) <= 1000
    assert bdistil.flop_of_mlp(4, width + 1, width + 1, 3) > 1000
    for name, network in bdistil.IMAGE_NETWORKS.items():
        costs = [bdistil.flop_of_images(bdistil.SIDES[name], network(n)) for n in (4, 5)]
        assert costs[0] < costs[1]


def test_pixels_are_means_of_squares(bdistil):
    images = np.arange(16.0).reshape(1, 4, 4)
    np.testing.assert_array_equal(bdistil.reduced(images, 2), [[[2.5, 4.5], [10.5, 12.5]]])
    np.testing.assert_array_equal(bdistil.reduced(images, 4), images)


# Large tables --------------------------------------------------------------------------------


@pytest.mark.slow
def test_amounts_compares_the_rule_with_settings_around_it(
    common, data_dir, tmp_path, monkeypatch, capsys
):
    output = tmp_path / "amounts.json"
    amounts = importlib.import_module("amounts")
    monkeypatch.setattr(amounts, "N_MEMBERS", {"teacher": 2, "student": 3})
    monkeypatch.setattr(_student, "_EPOCHS_WITHIN", (10, 40))
    monkeypatch.setattr(sys, "argv", ["amounts.py", "--quick", "--output", str(output)])
    amounts.main()
    text = capsys.readouterr().out
    result = json.loads(output.read_text(encoding="utf-8"))
    assert set(result["results"]) == {"magic", "smooth"}
    for name, found in result["results"].items():
        assert name in text
        for model in [name for name in ("teachers", "students") if name in found]:
            (by_rule,) = (row for row in found[model] if row["auto"])
            assert by_rule["batch_size"] == {"teachers": 32, "students": 80}[model]
            settings = [(row["batch_size"], row["epochs"]) for row in found[model]]
            assert len(set(settings)) == len(settings) >= 5
            assert settings == sorted(settings, key=lambda pair: (pair[0], -pair[1]))
    assert by_rule["epochs"] == 40  # the most that the rule has here
    students = result["results"]["smooth"]["students"]
    assert min(students, key=lambda row: row["cpu_seconds"])["on_front"]
    for row in students:  # another is at least as good in all three where it is not on the front
        better = [
            other
            for other in students
            if other is not row
            and other["cpu_seconds"] <= row["cpu_seconds"]
            and other["rank_correlation"] >= row["rank_correlation"]
            and other["nll_gap"] <= row["nll_gap"]
        ]
        assert row["on_front"] == (not better)
    assert -1 <= by_rule["rank_correlation"] <= 1
    (cost,) = result["costs"]
    assert cost["teacher"] > 0 < cost["student"]


@pytest.fixture
def scale(common):
    """The script that measures how costs grow."""
    return importlib.import_module("scale")


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_scale_measures_all_parts_and_judges_them(run, tmp_path):
    output = tmp_path / "scale.json"
    text = run("scale.py", "--quick", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    pairs = result["sizes"]["pairs"]
    assert [row["n_rows"] for row in pairs] == result["settings"]["rows"] == [100, 200]
    assert result["sizes"]["of_small_tables"]["epochs"] == [100, 50]
    histograms = [row for row in result["sizes"]["peers"] if row["nll"] is None]
    assert {"HistGradientBoosting"} <= {row["peer"] for row in histograms}
    for row in (*pairs, result["cores"], result["example"]):
        assert min(row["wall_seconds"]) > 0
        assert 0 <= row["growth_mib"][0] <= row["growth_mib"][1] < row["peak_mib"]
    assert all(min(row["cpu_seconds"]) > 0 for row in (*pairs, result["example"]))
    assert result["cores"]["cpu_seconds"] == [None, None]
    files = result["parquet"]
    assert files["n_rows"] == 150
    assert files["rows_per_second"] == pytest.approx(150 * files["epochs"] / files["wall_seconds"])
    assert files["peak_mib"] > 0
    assert len(result["targets"]) == 9
    for row in result["targets"]:
        assert row["reached"] is (row["value"] <= row["high"])
        assert row["target"] in text


@pytest.mark.slow
def test_gpu_measures_the_processor_where_there_is_nothing_else(run, few_epochs, tmp_path):
    output = tmp_path / "gpu.json"
    run("gpu.py", "--quick", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    fits = [row for row in result["fit"] if row["device"] == "cpu"]
    assert [row["n_rows"] for row in fits] == [300, 600]
    for row in (*result["fit"], *result["predict"], *result["wide"]):
        assert min(row["seconds"]) > 0
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="no GPU"):
            run("gpu.py", "--output", str(output))


def test_slopes_are_those_of_lines_through_logarithms(scale):
    fits = [{"n_rows": n, "cpu_seconds": [3 * n**0.5, n * (1 + (n > 10))]} for n in (1, 10, 100)]
    found = scale.slopes("n_rows", fits)
    np.testing.assert_allclose(found["slopes"], [0.5, 1 + math.log10(2) / 2])
    np.testing.assert_allclose(found["last_slopes"], [0.5, 1 + math.log10(2)])


def test_tables_have_what_was_asked_for(scale, common):
    X, y = scale.table(scale.Setting(2500, n_columns=9, n_classes=10, dtype="float32"))
    assert X.shape == (2500, 9)
    assert X.dtype == np.float32
    assert (np.bincount(y) == 250).all()
    X, y = common.made_up_table(2500)
    again, _ = common.made_up_table(2500, seed=1)
    assert not np.isin(again, X).any()
    a, b, c, d, e, f, g = X[:, :7].T
    noise = y - (np.sin(2 * a) + b * c + np.abs(d) + 0.5 * e * (f > 0))
    assert np.std(noise / np.exp(0.5 * g)) == pytest.approx(0.3, rel=0.1)


# What the scripts share ----------------------------------------------------------------------


@pytest.mark.slow
def test_students_are_held_against_their_teacher(run, few_epochs, data_dir, tmp_path):
    output = tmp_path / "students.json"
    text = run("students.py", "--quick", "--output", str(output))
    (results,) = json.loads(output.read_text(encoding="utf-8"))["results"].values()
    assert len(results) == 11
    for name, row in results.items():
        assert name in text
        assert np.isfinite(row["nll"])
        tells_parts = name not in ("teacher", "Hinton", "mixture")
        assert ("rank_correlation" in row.get("test", {})) is tells_parts


@pytest.mark.slow
def test_active_learning_begins_alike_and_can_go_on(
    run, few_epochs, in_this_process, data_dir, tmp_path
):
    output = tmp_path / "active.json"
    arguments = ["--quick", "--output", str(output), "--sets", "energy", "spambase"]
    text = run("active.py", *arguments)
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["finished"]
    assert result["pool"]["selected"] == 16
    assert [(r["set"], r["method"], r["labels"]) for r in result["rows"]] == [
        *(("energy", "random", 32), ("energy", "lcmd", 32)),
        *(("spambase", "random", 32), ("spambase", "margin", 32)),
    ]
    for table, (random, ours) in zip(result["tables"], ((0, 1), (2, 3)), strict=True):
        rows = result["rows"]
        assert table["mean_ratio"] == pytest.approx(rows[ours]["loss"] / rows[random]["loss"])
        assert table["set"] in text
    in_batches = tmp_path / "batches.json"
    steps = ("--sets", "energy", "--parts", "tables", "--batch", "8")
    run("active.py", "--quick", "--output", str(in_batches), *steps)
    rows = json.loads(in_batches.read_text(encoding="utf-8"))["rows"]
    assert [row["labels"] for row in rows] == [24, 32] * 2
    again = run("active.py", *arguments, "--parts", "tables", "--resume")
    assert "seed 0" not in again  # nothing is left to do
    assert json.loads(output.read_text(encoding="utf-8"))["rows"] == result["rows"]


@pytest.mark.slow
def test_optimisation_runs_and_goes_on(run, tmp_path):
    pytest.importorskip("botorch")
    output = tmp_path / "optimise.json"
    arguments = ("--quick", "--output", str(output), "--parts", "functions")
    run("optimise.py", *arguments)
    found = json.loads(output.read_text(encoding="utf-8"))
    assert {row["method"] for row in found["runs"]} == {"members", "Gaussian process", "random"}
    for row in found["runs"]:
        regret = row["regret"]
        assert len(regret) == 3  # six points to begin with, then two and two
        assert regret == sorted(regret, reverse=True)
        assert regret[-1] >= -1e-5
    assert len({row["regret"][0] for row in found["runs"]}) == 1  # the same first points
    run("optimise.py", *arguments, "--resume")
    again = json.loads(output.read_text(encoding="utf-8"))
    assert again["runs"] == found["runs"]


def test_regrets_are_compared_by_seed(common):
    pytest.importorskip("botorch")
    optimise = importlib.import_module("optimise")
    regrets = {"members": [1.0, 5.0, 3.0], "random": [2.0, 4.0, 4.0]}
    runs = [
        {"name": "f", "method": method, "seed": seed, "regret": [9.0, value], "seconds": 1.0}
        for method, values in regrets.items()
        for seed, value in enumerate(values)
    ]
    ours, random = optimise.summary(runs)
    assert (ours["regret"], ours["quartiles"]) == (3.0, [2.0, 4.0])
    assert ours["below_random"] == pytest.approx(2 / 3)
    assert random["below_random"] == 0


def test_ratios_of_active_learning_are_geometric_means(common):
    active = importlib.import_module("active")
    losses = {
        ("random", 0): (2.0, 4.0),
        ("random", 1): (1.0, 1.0),
        ("lcmd", 0): (1.0, 1.0),
        ("lcmd", 1): (2.0, 4.0),
    }
    rows = [
        {"set": "house", "seed": seed, "method": method, "labels": labels, "loss": loss}
        for (method, seed), of_labels in losses.items()
        for labels, loss in zip((512, 1024), of_labels, strict=True)
    ]
    (table,) = active.summary(rows)
    assert table["mean_ratio"] == table["last_ratio"] == pytest.approx(1.0)
    assert table["standard_error"] == pytest.approx(1.5 * math.log(2))
    worse = {**table, "set": "energy", "mean_ratio": 1.21, "last_ratio": 4.0}
    (mean,) = active.overall([table, worse])
    assert mean["mean_ratio"] == pytest.approx(1.1)
    assert mean["last_ratio"] == pytest.approx(2.0)
    assert mean["worse_on"] == ["energy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "domains"),
    [
        ("made-up", ["rare", "permuted", "foreign"]),
        (
            "real",
            [f"{name}{of}" for name in ("word", "near", "far") for of in ("", "_less_ambiguous")]
            + ["ambiguous"],
        ),
    ],
)
def test_translation_scores_every_model(run, data, domains, tmp_path, request):
    if data == "real":
        request.getfixturevalue("sentences")
    output = tmp_path / "translation.json"
    text = run("translation.py", "--quick", "--data", data, "--output", str(output))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    ways = ("", ", released form", ", longer", ", shown more")
    students = {"EnD", "EnD2", *(f"proxy student{how}" for how in ways)}
    assert set(results) == {"words", "single", "ensemble", "proxy", *students}
    for model, row in results.items():
        assert model in text
        knows = {name for name in row if name.endswith("_rmi")}
        wanted = {f"{name}_rmi" for name in ("prr", *domains)}
        assert knows == (set() if model in ("words", "single", "EnD") else wanted)
        assert all(
            0 <= row[name]["mean"] <= 100 for name in row if "_eoe" in name and "prr" not in name
        )


@pytest.fixture
def sentences(common):
    """The module that writes real sentences."""
    for package in ("babel", "num2words", "sentencepiece"):
        pytest.importorskip(package)
    return importlib.import_module("_sentences")


@pytest.mark.parametrize(
    ("text", "locale", "expected"),
    [
        ("3 April 1973", "en_GB", "three April nineteen seventy-three"),
        ("3. April 1973", "de_CH", "drei April neunzehnhundertdreiundsiebzig"),
        ("3 de abril de 1973", "es_MX", "tres de abril de mil novecientos setenta y tres"),
    ],
)
def test_numbers_are_written_in_words(sentences, text, locale, expected):
    assert sentences.in_words(text, locale, to="year") == expected


@pytest.mark.parametrize(
    ("day", "others"),
    [
        ((2025, 4, 3), {(1925, 4, 3), (1925, 3, 4), (2025, 3, 4)}),
        ((2025, 4, 13), {(1925, 4, 13)}),
        ((1950, 5, 5), set()),
        ((2024, 2, 29), {(1924, 2, 29)}),
        ((2000, 2, 29), set()),  # there was none in 1900, which is before the first day, too
    ],
)
def test_days_that_a_date_may_be_besides(sentences, day, others):
    found = set(sentences.other_days(datetime.date(*day)))
    assert found == {datetime.date(*other) for other in others}


def test_known_sentences_have_no_unknown_word_and_few_are_ambiguous(sentences):
    def drawn(domain, n_samples):
        return list(itertools.islice(sentences.sentences(domain, 0), n_samples))

    def is_unknown(sentence):
        return any(word in sentence.text.lower() for word in sentences.UNKNOWN)

    known = drawn("known", 500)
    assert not any(map(is_unknown, known))
    assert 0 < np.mean([sentence.is_ambiguous for sentence in known]) < 0.2
    assert all(map(is_unknown, drawn("word", 5)))
    assert all(sentence.is_ambiguous for sentence in drawn("ambiguous", 5))
    far = drawn("far", 20)
    assert all(any(letter.isalpha() for letter in sentence.text) for sentence in far)


@pytest.mark.parametrize(
    ("kind", "locale", "money", "are"),
    [
        ("price", "en_US", "USD", {True}),  # $, as in two other countries
        ("price", "en_GB", "GBP", {False}),
        ("date", "pl_PL", "PLN", {False}),  # the day comes first, and years are whole
        ("date", "en_US", "USD", {True, False}),
        ("measure", "en_US", "USD", {False}),
        ("amount", "en_US", "USD", {False}),
    ],
)
def test_what_could_come_from_another_country_is_ambiguous(sentences, kind, locale, money, are):
    rng = np.random.default_rng(0)
    write = getattr(sentences, kind)
    assert {write(rng, locale, money).is_ambiguous for _ in range(50)} == are


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


def test_times_are_cpu_seconds_of_one_call(common):
    def work():
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass

    seconds = common.interleaved({"sleep": partial(time.sleep, 0.02), "work": work}, 1, n_calls=2)
    assert seconds["sleep"][0] < 0.005
    assert seconds["work"][0] == pytest.approx(0.01, rel=0.5)


@pytest.mark.slow
def test_peak_growth_is_what_the_call_holds(common):
    size = 100 * 2**20
    growth = common.peak_growth(partial, bytearray, size)
    assert growth == pytest.approx(100, abs=5)


def test_the_peak_of_processes_has_those_of_children_in_it(common):
    def peak():
        with common.PeakOfProcesses() as together:
            pass
        return together.mib

    alone = peak()
    code = "import time; held = bytearray(100 * 2**20); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert 100 < peak() - alone < 150  # what is shared, such as Python itself, counts once
        child.kill()


def test_table(common, capsys):
    common.print_table(["name", "x", "y"], [["a", 1.23456789, "yes"], ["longer", None], ["b", 12]])
    assert capsys.readouterr().out.splitlines() == [
        "name    x      y",
        "------  -----  ---",
        "a       1.235  yes",
        "longer",
        "b          12",
    ]


def test_json_makes_its_folder(common, tmp_path):
    path = tmp_path / "a" / "b.json"
    common.write_json(path, common.record(value=1))
    assert json.loads(path.read_text(encoding="utf-8"))["value"] == 1


# GPED ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gped_times_the_loop_and_judges_students(run, data_dir, tmp_path):
    output = tmp_path / "gped.json"
    text = run("gped.py", "--quick", "--masks", "29", "--output", str(output))
    result = json.loads(output.read_text(encoding="utf-8"))
    step = result["speed"]["step_ms"]
    assert set(step) == {"SGLD", "student", "loop", "matrix products"}
    assert result["speed"]["steps_per_second"] == pytest.approx(1e3 / step["loop"])
    hours = result["speed"]["hours_for_a_million_iterations"]
    assert hours["H=1"] == pytest.approx(step["loop"] / 3.6)
    assert hours["H=100"] < hours["H=1"]
    quality = result["quality"]["29"]
    assert set(quality) == {"teacher", "GPED", "GPED U_o", "GPED U_s", "EnD2"}
    for name, row in quality.items():
        assert name in text
        assert row["nll"] < 2 * math.log(10)
    assert quality["GPED U_o"]["student_steps"] == 11  # H = 1, 15 iterations less three tenths


@pytest.mark.slow
def test_gped_is_measured_on_small_tables(run, few_epochs, few_images, data_dir, tmp_path):
    output = tmp_path / "gped.json"
    text = run("gped.py", "--quick", "--parts", "small", "--output", str(output))
    found = json.loads(output.read_text(encoding="utf-8"))["small"]
    methods = {"GPED", "GPED U_o", "GPED U_s", "EnD2", "GPED, one chain"}
    seen = "the same, held-out digits seen"
    assert set(found["digits"]) == methods | {"GPED, none generated", "the same, 256 units", seen}
    assert found["digits"]["EnD2"]["entropy_mae"] is None
    assert 0 < found["digits"]["GPED"]["chains_auroc"] < 1  # too few iterations for more
    assert set(found["numbers"]) == {"friedman1, one chain", "friedman1, SGLD()"}
    assert all(name in text for part in found.values() for name in part)


@pytest.mark.slow
def test_gped_has_the_papers_network_and_steps(common, monkeypatch):
    gped = importlib.import_module("gped")
    sampler, of_student = gped.CHAINS["paper"]
    short = {**sampler, "burn_in": 5, "thinning": 5}  # 1,000 iterations take too long
    monkeypatch.setitem(gped.CHAINS, "paper", (short, of_student))
    rng = np.random.default_rng(0)
    X, y = rng.random((100, 784), dtype=np.float32), np.arange(100) % 10
    images = gped.as_images(gped.Images(X, y, X[:50], X, y, X[:9]))
    (name, found), *_ = gped.run(["GPED U_s"], images, 16, {}, "CNN", "paper")
    assert name == "teacher"
    assert found["nll"] < 2 * math.log(10)
    distiller = gped.fitted(gped.METHODS["GPED U_s"], images, 16, {}, "CNN", "paper")
    assert gped.n_student_steps(distiller, len(X), 16) == 2  # of the iterations 9 and 14
    assert distiller.lr == 1e-3
    assert distiller.teacher_.inference.step_size == 4e-6
    # Appendix A.2: two convolutions, of 10 and 20 filters of 4 x 4, then 80 units; the entropy
    # is the student's eleventh output
    n_weights = (16 + 1) * 10 + (160 + 1) * 20 + (20 * 4 * 4 + 1) * 80 + (80 + 1) * 11
    assert n_parameters(distiller.module_) == n_weights


def test_means_over_seeds_have_standard_errors(common):
    gped = importlib.import_module("gped")
    rows = [{"nll": 1.0, "rank": None}, {"nll": 3.0, "rank": None}]
    assert gped.over_seeds(rows) == {"nll": 2.0, "rank": None, "errors": {"nll": 1.0}}
    assert gped.over_seeds(rows[:1]) == rows[0]


@pytest.mark.slow
def test_masked_images_keep_their_labels_and_one_mask(data_dir, common):
    gped = importlib.import_module("gped")
    plain, masked, again = gped.load(0, False), gped.load(15, False), gped.load(15, True)
    assert len(plain.X) == 10_000
    assert len(plain.X) + len(plain.X_transfer) == 60_000
    differs = plain.X != masked.X
    assert differs.any()
    assert not masked.X[differs].any()
    np.testing.assert_array_equal(masked.X, again.X)
    np.testing.assert_array_equal(masked.X_transfer[:10_000], again.X_test)
    assert len(again.X_transfer) == 40_000


@pytest.fixture
def pareto(common):
    """The script that holds pruned students against a search over widths."""
    return importlib.import_module("pareto")


def test_a_front_between_its_students_and_beyond(pareto):
    rows = [{"flops": flops} for flops in (100, 1000, 10_000, 500)]
    errors = [np.array([3.0, 5.0]), np.array([1.0, 4.0]), np.array([1.0, 1.0]), np.full(2, 9.0)]
    front = pareto.Front(rows, errors)
    assert front.indices.tolist() == [0, 1, 2]
    middle = math.sqrt(100 * 1000)
    np.testing.assert_allclose(front.at(middle), [2, 4.5])
    np.testing.assert_array_equal(front.at(middle, step=True), errors[0])
    for step in (False, True):
        np.testing.assert_array_equal(front.at(1000, step), errors[1])
        np.testing.assert_array_equal(front.at(10, step), errors[0])
        np.testing.assert_array_equal(front.at(1e9, step), errors[2])
    cheaper = pareto.Front([{"flops": row["flops"] / 2} for row in rows], errors)
    gain = pareto.mean_difference(cheaper, front, step=False)
    assert (gain <= 0).all()
    assert (gain < 0).any()


def test_verdicts_go_by_the_interval(pareto):
    noise = np.random.default_rng(0).standard_normal(400)
    noise -= noise.mean()
    for shift, verdict in ((-0.2, "dominates"), (0.0, "matches"), (0.2, "loses")):
        found = pareto.compared(noise + shift)
        assert found["verdict"] == verdict
        assert found["difference"] == pytest.approx(shift)
        width = np.subtract(*found["interval"][::-1])
        assert width == pytest.approx(2 * norm.ppf(0.975) / math.sqrt(400), rel=0.1)


@pytest.mark.slow
def test_pruned_students_are_held_against_the_search(run, few_epochs, data_dir, tmp_path):
    output, figure = tmp_path / "pareto.json", tmp_path / "pareto.png"
    text = run("pareto.py", "--quick", "--output", str(output), "--figure", str(figure))
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    search, pruned = results["students"].values()
    assert [row["widths"] for row in search] == [[10, 10], [10, 40], [40, 10], [40, 40]]
    large, small = pruned  # of a weak penalty and of one that silences everything
    assert (large["widths"], small["widths"]) == ([40, 40], [1, 1])
    for cost in ("flops", "parameters", "mib"):
        assert small[cost] < large[cost] / 10
    for name, title in (("nll", "NLL"), ("entropy_mae", "entropy MAE")):
        assert title in text
        for found in results["verdicts"][name].values():
            assert sum(found["counts"].values()) == len(found["each"]) == 2
            best = min(search, key=lambda row: row[name])
            assert best["widths"] in found["search_front"]
    assert figure.stat().st_size > 10_000


# Conformal intervals ----------------------------------------------------------------------------


def test_conformal_half_width_is_the_quantile_of_finite_samples(common):
    conformal = importlib.import_module("conformal")
    errors = np.arange(1.0, 20.0)  # 19: the next one is below the 18th in 18 cases of 20
    assert conformal.half_width(-errors, 0.9) == 18
    assert conformal.half_width(errors, 0.95) == 19
    assert conformal.half_width(errors, 0.96) == math.inf


def test_conformal_judges_four_intervals_of_each_set(run, data_dir, tmp_path):
    output = tmp_path / "conformal.json"
    options = ["--quick", "--sets", "boston", "--splits", "1", "--output", str(output)]
    text = run("conformal.py", *options)
    found = json.loads(output.read_text())["results"]["boston"]
    for scale in ("own", "constant", "total", "epistemic"):
        assert scale in text
        assert 0 <= found[scale]["coverage_of_unsure"] <= 1
        assert found[scale]["width"] > 0


@pytest.mark.slow
def test_decisions_judges_promises(run, data_dir, few_epochs, tmp_path):
    output = tmp_path / "decisions.json"
    run("decisions.py", "--quick", "--sets", "wine", "--output", output)
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert set(results) == {"abstention"}
    assert 0 <= results["abstention"]["wine"]["total"]["broken"] <= 0.5


def test_decisions_plain_threshold_is_the_largest_of_a_small_mean(common):
    decisions = importlib.import_module("decisions")
    uncertainty, losses = np.array([4.0, 1, 3, 2]), np.array([0.0, 0, 1, 1])
    assert decisions.plain_threshold(uncertainty, losses, 0.5) == np.inf  # all: 2 of 4
    assert decisions.plain_threshold(uncertainty[:3], losses[:3], 0.3) == 3.0
    assert decisions.plain_threshold(uncertainty, 1 - 0 * losses, 0.3) == -np.inf


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


@pytest.mark.slow
def test_false_alarms_and_delays_of_drift(run, few_epochs, tmp_path):
    output = tmp_path / "drift.json"
    text = run("drift.py", "--quick", "--output", output)
    rows = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert len(rows) == 12
    assert [row["shift"] for row in rows[::3]] == [0, 2, 4, 1]
    for row in rows:
        assert row["contender"] in text
        assert 0 <= row["false_alarms"] <= 1
        if row["shift"] == 4:
            assert row["median_delay"] is None or row["median_delay"] % 100 == 0
    monitor = rows[6]
    assert (monitor["contender"], monitor["missed"]) == ("DriftMonitor", 0)
    assert 100 <= monitor["median_delay"] <= 300


@pytest.fixture
def unseen(common):
    """The script that judges models on samples unlike those of training."""
    return importlib.import_module("unseen")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_epistemic_parts_are_judged_by_each_protocol(run, few_epochs, data_dir, tmp_path):
    output = tmp_path / "epistemic.json"
    arguments = ["--quick", "--sets", "pol", "german", "sine", "--output", output, "--models"]
    run("epistemic.py", *arguments, "gp", "forest")
    arguments += ["teacher", "gp", "forest", "--resume"]
    assert "[1/4," in run("epistemic.py", *arguments)
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found["failures"] == []
    places = {(row["protocol"], row["set"], row["model"]) for row in found["results"]}
    assert len(places) == len(found["results"]) == 11  # the process is of numbers only
    for row in found["results"]:
        if row["protocol"] == "curve":
            assert {"limit", "aleatoric_ratio", "n_limit"} <= set(row)
        else:
            assert 0 <= row["cover"] <= 1
        assert row["n"] == row["n_train"] == 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # networks of two epochs have learnt nothing
def test_samples_unlike_those_seen_are_judged_and_what_is_there_is_not_again(
    run, few_epochs, tmp_path
):
    output = tmp_path / "unseen.json"
    arguments = ["--quick", "--sets", "digits", "--protocols", "usual", "shuffled", "moved"]
    arguments += ["--output", output, "--resume", "--models"]
    run("unseen.py", *arguments, "teacher")
    first = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert len(first) == 12  # usual, shuffled, and five distances in one feature and in all
    text = run("unseen.py", *arguments, "teacher", "hydra", "gp")
    assert "[1/1," in text  # the process is of numbers only
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found["failures"] == []
    assert [row for row in found["results"] if row["model"] == "teacher"] == first
    of_student = [row for row in found["results"] if row["model"] == "hydra"]
    assert [row["case"] for row in of_student] == [row["case"] for row in first]
    for row in of_student[1:]:
        assert 0 <= row["auroc_epistemic"] <= 1
        assert {"unseen_ratio", "fit_seconds"} <= set(row)  # a constant part has no rank
    assert {"held_out_rank", "held_out_ratio", "held_out_gap"} <= set(of_student[0])
    with pytest.raises(SystemExit, match="its max_rows is 80, not 2000"):
        run("unseen.py", *arguments[1:], "teacher")
    # what was measured with older defaults is measured anew, if asked for, and else marked
    output.write_text(json.dumps(found | {"defaults": {"version": "old"}}), encoding="utf-8")
    assert "[1/1," in run("unseen.py", *arguments, "teacher")
    renewed = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert Counter(row["model"] for row in renewed) == {"teacher": 12, "hydra": 12}
    assert {row["model"] for row in renewed if "older" in row} == {"hydra"}


@pytest.mark.slow
def test_other_ways_are_scored_on_the_same_folds(
    common, few_epochs, tmp_path, data_dir, monkeypatch, capsys
):
    output = tmp_path / "other_ways.json"
    other_ways = importlib.import_module("other_ways")
    monkeypatch.setattr(other_ways, "N_STEPS", 100)
    monkeypatch.setattr(sys, "argv", ["other_ways.py", "--quick", "--output", str(output)])
    other_ways.main()
    assert "anchored" in capsys.readouterr().out
    found = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert [row["way"] for row in found] == 2 * list(other_ways.WAYS)  # a gap and tails
    for row in found:
        assert 0 <= row["auroc_epistemic"] <= 1
        assert 0.5 < row["held_out_coverage"] <= 1


def test_time_left_is_that_of_the_same_models_on_the_same_set(unseen):
    def unit(name, *models):
        return unseen.Unit("gap", name, "column 0", models, ("gap",))

    times = {unit("boston", "gp"): 2.0, unit("wine", "gp"): 40.0, unit("wine", "teacher"): 6.0}
    finished = [unseen.Done(unit, [], [], seconds) for unit, seconds in times.items()]
    assert unseen.seconds_left([unit("wine", "gp"), unit("boston", "gp")], finished) == 42
    assert unseen.seconds_left([unit("energy", "gp")], finished) == 21  # the mean of the models
    assert unseen.seconds_left([unit("energy", "plain")], finished) == 16  # and of all
    assert unseen.seconds_left([], []) == 0


def test_unseen_samples_are_what_their_protocol_says(unseen, data_dir):
    gap = unseen.load(unseen.Unit("gap", "boston", "column 0", ("teacher",), ("gap",)), 100)
    (left_out,) = gap.unseen.values()
    assert (len(gap.X_train), len(gap.X_held_out), len(left_out.X)) == (100, 34, 169)
    low, high = np.quantile(unseen.table("boston")[0][:, 0], [1 / 3, 2 / 3])
    assert ((left_out.X[:, 0] >= low - 0.01) & (left_out.X[:, 0] <= high + 0.01)).all()
    unit = unseen.Unit("base", "boston", "", ("teacher",), unseen.OF_BASE)
    base = unseen.load(unit, 2000)
    X, cases = base.X_held_out, base.unseen
    shuffled = cases["shuffled", ""].X
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(X, axis=0))
    steps = (cases["moved", "one by 4"].X - X) / base.X_train.std(axis=0)
    np.testing.assert_allclose(np.sort(steps, axis=1)[:, -2:], [[0, 4]] * len(X), atol=1e-9)
    other = cases["table", "concrete"].X
    np.testing.assert_allclose(other.mean(axis=0), base.X_train.mean(axis=0))
    letters = unseen.Unit("class", "letter", "A", ("teacher",), ("class",))
    assert set(unseen.load(letters, 50).unseen["class", "A"].y) == {"A"}
    assert unseen.cases_of("class", "letter") == ["A", "M", "Z"]


def test_slow_models_have_few_folds_and_every_protocol_has_some(unseen, data_dir):
    options = SimpleNamespace(
        sets=unseen.SETS, protocols=list(unseen.PROTOCOLS), columns=None, slow_columns=3
    )
    units = list(unseen.units(options, ["teacher", "hydra", "mixed", "gp"], set()))
    assert {protocol for unit in units for protocol in unit.protocols} == set(unseen.PROTOCOLS)
    of_boston = [unit for unit in units if (unit.kind, unit.set) == ("gap", "boston")]
    n_folds = {"teacher": 10, "hydra": 3, "mixed": 3, "gp": 10}
    assert n_folds == Counter(model for unit in of_boston for model in unit.models)
    assert not any("gp" in unit.models for unit in units if unit.set not in unseen.OF_UCI)


# Models that learn in context ---------------------------------------------------------------------

# In place of such a model: with this weighting it knows the samples that it was fitted on by heart.
NEIGHBORS = ["--model", "sklearn.neighbors:KNeighborsClassifier", "--param", "weights=distance"]


@pytest.fixture
def foundation(common):
    """The script that measures models that learn in context."""
    return importlib.import_module("foundation")


@pytest.mark.slow
def test_models_in_context_are_scored_beside_their_students(
    run, foundation, few_epochs, data_dir, tmp_path
):
    output = tmp_path / "foundation.json"
    arguments = ["--quick", *NEIGHBORS, "--context", 60, "--batch", 7, "--output", output]
    arguments += ["--regressor", "sklearn.neighbors:KNeighborsRegressor"]
    run("foundation.py", *arguments, "--sets", "spambase")
    first = json.loads(output.read_text(encoding="utf-8"))["results"]
    text = run("foundation.py", *arguments, "--sets", "spambase", "boston", "--resume")
    assert "spambase, split 0: nothing to do" in text
    rows = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert rows[:4] == first
    assert [row["model"] for row in rows] == 2 * [*foundation.MODELS]
    options = SimpleNamespace(context=60, test=5000, quick=True, validation=False)
    for found in (rows[:4], rows[4:]):
        data = foundation.load(found[0]["set"], 0, options)
        scores = foundation.SCORES[data.are_classes]
        sizes = 60, len(data.X_test)
        assert {(row["n_context"], row["n_test"]) for row in found} == {sizes}
        for row in found:
            assert min(row[f"{kind}_seconds"] for kind in ("fit", "row", "thousand")) > 0
            assert row["thousand_seconds"] > row["row_seconds"]
            assert row["peak_mib"] > 0
            if "student" in row["model"]:
                gaps = {score: row[score] - found[0][score] for score in scores}
                assert {score: row["gap"][score] for score in scores} == gaps
        kind = KNeighborsClassifier if data.are_classes else KNeighborsRegressor
        model = kind(weights="distance").fit(data.X_train, data.y_train)
        if data.are_classes:
            proba = model.predict_proba(data.X_test).astype(np.float32)  # zeros are clipped by it
            expected = [roc_auc_score(data.y_test, proba[:, 1]), log_loss(data.y_test, proba)]
            assert [found[0][score] for score in scores[:2]] == pytest.approx(expected, rel=1e-4)
        else:
            errors = data.y_test - model.predict(data.X_test)
            assert found[0]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    with pytest.raises(SystemExit, match="its context is 60, not 50"):
        run("foundation.py", *arguments, "--context", "50", "--resume")


class Normal(RegressorMixin, BaseEstimator):
    """Predicts quantiles of the standard normal, as TabPFN tells them."""

    def fit(self, X, y):
        return self

    def predict(self, X, *, output_type="mean", quantiles=None):
        if output_type == "mean":
            return np.zeros(len(X))
        return [np.full(len(X), norm.ppf(level)) for level in quantiles]


def test_crps_of_quantiles_is_that_of_the_distribution(foundation):
    X = y = np.linspace(-3, 3, 200)
    teacher = foundation.as_teacher(Normal(), batch_size=7).fit(X[:, None], y)
    found = foundation.crps_of_quantiles(teacher, X[:, None], y)
    members = np.broadcast_to([0.0, 1.0], (len(y), 1, 1, 2))
    assert found == pytest.approx(crps(y, members), rel=0.01)
    lines = foundation.as_teacher(LinearRegression(), batch_size=7).fit(X[:, None], y)
    assert foundation.crps_of_quantiles(lines, X[:, None], y) is None


def test_models_that_are_not_there_say_how_to_get_them(foundation, monkeypatch):
    with pytest.raises(SystemExit, match=r"cannot be imported .*: pip install tabulous"):
        foundation.class_at("tabulous.models:Classifier")
    with pytest.raises(SystemExit, match=r"cannot be imported .*: pip install sklearn"):
        foundation.class_at("sklearn.neighbors:Nobody")
    X = np.zeros((3, 1))
    monkeypatch.setattr(Normal, "fit", lambda *_: Path("weights.ckpt").read_bytes())
    model = foundation.as_teacher(Normal(), batch_size=7)
    with pytest.raises(SystemExit, match=r"FileNotFoundError: .*\n.*--param model_path="):
        foundation.try_out(model, foundation.Rows(X, X, X[:, 0], X[:, 0]))


def test_parameters_are_values_or_text(common):
    given = ["a=1", "b=(2, 3)", "c=distance", "d=/some/file.ckpt", "e=None"]
    found = dict(map(common.parameter, given))
    assert found == {"a": 1, "b": (2, 3), "c": "distance", "d": "/some/file.ckpt", "e": None}
