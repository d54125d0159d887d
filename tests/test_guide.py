# SPDX-License-Identifier: BSD-3-Clause
"""The code on README and on pages of the user guide runs, one block after the other."""

from __future__ import annotations

import io
import itertools
import re
import socket
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn import datasets

from skdistill import report

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"
GUIDE = DOC / "user_guide"

BLOCKS = {
    # A paragraph, no directive, that ends in two colons; and the indented block that follows.
    ".rst": re.compile(r"^(?! *\.\. ).*::\n\n((?:    .*\n|\n)+)", re.MULTILINE),
    ".md": re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL),
}


def blocks_of(page):
    """Code of each block, at the line where it stands on the page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCKS[page.suffix].finditer(text):
        n_lines = text.count("\n", 0, match.start(1))
        yield "\n" * n_lines + textwrap.dedent(match[1])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """What pages write, they write there."""
    monkeypatch.chdir(tmp_path)


def run(page, changes=()):
    """Run a page's blocks, with some texts exchanged; return the names that they leave."""
    found = list(blocks_of(page))
    assert found
    assert all(any(old in block for block in found) for old, _ in changes)
    names: dict[str, object] = {}
    for block in found:
        for old, new in changes:
            block = block.replace(old, new)
        exec(compile(block, str(page), "exec"), names)
    return names


# Chains of pages are not among the trainings that `few_epochs` makes short.
LESS = {
    "../coming_from": [
        ("RandomForestRegressor(200,", "RandomForestRegressor(20,"),
        ("max_members=20)", "max_members=5)"),
        ("n_members=10,", "n_members=3,"),
    ],
    "ensembles": [("n_members=100,", "n_members=20,"), ("max_epochs=600,", "max_epochs=30,")],
    "evaluation": [("BayesianEnsembleClassifier(20)", "BayesianEnsembleClassifier(3)")],
    "gped": [("inference=SGLD(), max_epochs=100", "inference=SGLD(), max_epochs=30")],
    "hydra_plus": [("n_members=20)", "n_members=3)")],
    "report": [("n_members=10,", "n_members=3,"), ("n_members=30,", "n_members=4,")],
    "smaller_students": [
        ("BayesianEnsembleClassifier(5,", "BayesianEnsembleClassifier(2,"),
        ("train_size=300,", "train_size=100,"),  # that have labels
    ],
    "teachers": [
        ("RandomForestClassifier(500,", "RandomForestClassifier(10,"),
        ("RandomForestRegressor(100,", "RandomForestRegressor(10,"),
        ("heads=20,", "heads=3,"),
        ("max_members=20)", "max_members=5)"),
        ("BayesianEnsembleRegressor(),", "BayesianEnsembleRegressor(3),"),
    ],
}


def first(n_rows, load):
    """What loads only so many rows of a data set."""
    return lambda **kwargs: tuple(values[:n_rows] for values in load(**kwargs))


def some_of_adult(name, version, return_X_y):
    """What fetch_openml gives, by its types, without a connection."""
    import pandas as pd

    rng = np.random.default_rng(0)
    ages, works = rng.integers(17, 90, 150), rng.choice(["Private", "State-gov", None], 150)
    income = pd.Series(np.where(ages > 50, ">50K", "<=50K"), dtype="category", name="class")
    return pd.DataFrame({"age": ages, "workclass": pd.Categorical(works)}), income


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:R-hat is above:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("translations_read_once")
@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("../coming_from", []),
        ("../questions", []),
        ("abstention", []),
        ("active_learning", []),
        ("b_distil", ["matplotlib"]),
        ("distribution_distillation", ["matplotlib"]),
        ("drift", ["pandas"]),
        ("ensembles", ["matplotlib"]),
        ("evaluation", ["matplotlib"]),
        ("foundation_models", []),
        ("gped", []),
        ("hydra_plus", ["matplotlib"]),
        ("mlflow", ["mlflow", "onnxruntime", "pandas", "skl2onnx"]),
        ("production", ["onnxruntime", "pandas", "skl2onnx", "skops"]),
        ("report", ["matplotlib", "pandas"]),
        ("smaller_students", ["matplotlib"]),
        ("tables", ["pandas"]),
        ("teachers", []),
    ],
)
def test_page(name, needs, tmp_path, monkeypatch, few_epochs):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for package in needs:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)  # where pages write files
    # As few as the pages' splits and chains can do with.
    n_digits = 200 if name == "smaller_students" else 450  # it fits dozens of students
    monkeypatch.setattr(datasets, "load_digits", first(n_digits, datasets.load_digits))
    monkeypatch.setattr(datasets, "load_breast_cancer", first(150, datasets.load_breast_cancer))
    if name != "drift":  # whose stream takes most of them
        monkeypatch.setattr(datasets, "load_diabetes", first(150, datasets.load_diabetes))
    monkeypatch.setattr(datasets, "fetch_openml", some_of_adult)
    run(GUIDE / f"{name}.rst", LESS.get(name, ()))


@pytest.mark.slow
def test_page_on_maps(few_epochs):
    """A frame of dask, and what Spark calls, have the predictions of the whole table."""
    for package in ("dask.dataframe", "onnxruntime", "pandas", "pyarrow"):
        pytest.importorskip(package)
    names = run(GUIDE / "maps.rst")
    at_once = names["student"].predict_frame(names["frame"].compute())
    assert [*names["table"]] == [*at_once]
    np.testing.assert_allclose(names["table"], at_once, rtol=1e-3)
    of_spark = next(names["predicted"](iter([names["X"]])))
    np.testing.assert_allclose(of_spark["mean"], at_once["prediction"], rtol=1e-3)
    np.testing.assert_allclose(of_spark["epistemic"] ** 0.5, at_once["epistemic_std"], rtol=1e-2)


@pytest.mark.slow
def test_page_on_processes_of_torch(monkeypatch):
    """By a group of one process, as torchrun would start it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    _, text = (GUIDE / "engine.rst").read_text(encoding="utf-8").split("    # train.py\n")
    lines = itertools.takewhile(lambda line: not line or line[0] == " ", text.split("\n"))
    names: dict[str, object] = {}
    exec(textwrap.dedent("\n".join(lines)), names)
    assert np.mean(names["distribution"].mean.argmax(-1).numpy() == names["y"]) > 0.95
    of_teacher = names["teacher"].predict_uncertainty(names["X"]).epistemic
    assert stats.spearmanr(names["epistemic"], of_teacher).statistic > 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("translations_read_once")
def test_page_of_a_family_of_ones_own(few_rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    page = GUIDE / "own_family.rst"
    distribution, family, *_ = blocks_of(page)
    lines = [line for block in (distribution, family) for line in block.split("\n") if line.strip()]
    assert len(lines) <= 60
    names = run(page)
    student, X, y = (names[name] for name in ("student", "X", "y"))
    assert student.score(X, y) > 0.3
    assert (names["epistemic"] > 0).all()
    members = student.teacher_.predict_uncertainty(X)
    assert 0.7 < np.median(names["total"] / members.total) < 1.4
    for prediction in ("predict", "predict_uncertainty", "predict_interval"):
        found, expected = (getattr(m, prediction)(X) for m in (names["loaded"], student))
        np.testing.assert_array_equal(np.hstack([*found]), np.hstack([*expected]))
    session = onnxruntime.InferenceSession("student.onnx")
    outputs = [output.name for output in session.get_outputs()]
    (graph_input,) = session.get_inputs()
    rows = X.astype(np.float64 if "double" in graph_input.type else np.float32)
    graph = dict(zip(outputs, session.run(None, {"X": rows}), strict=True))
    np.testing.assert_allclose(graph["interval"], names["interval"], rtol=1e-4)
    np.testing.assert_allclose(graph["epistemic"], names["epistemic"], rtol=1e-3)
    draws = student.sample_y(X, 2000, random_state=0)
    inside = (draws > names["interval"][:, :1]) & (draws < names["interval"][:, 1:])
    np.testing.assert_allclose(inside.mean(1), 0.9, atol=0.03)
    assert report(student, X, y).to_html()


STUDENT = ("HydraPlusRegressor(random_state", "HydraPlusRegressor(max_epochs=3, random_state")


@pytest.fixture
def few_rows(monkeypatch):
    """Little for pages to fit."""
    monkeypatch.setattr(datasets, "load_diabetes", first(150, datasets.load_diabetes))


def test_front_page(few_rows):
    few = [
        ("n_members=20,", "n_members=3, max_epochs=3,"),
        ("(teacher,", "(teacher, max_epochs=3,"),
    ]
    names = run(DOC / "index.rst", few)
    lines = sum(len(block.split("\n")) for block in map(str.strip, blocks_of(DOC / "index.rst")))
    assert lines <= 10
    np.testing.assert_allclose(names["total"], names["aleatoric"] + names["epistemic"])


OUTPUT = re.compile(r"^\.\. code-block:: none\n\n((?:    .*\n)+)", re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.\d*")


@pytest.mark.slow
def test_getting_started_prints_what_it_shows(capsys):
    pandas = pytest.importorskip("pandas")
    names = run(DOC / "getting_started.rst")
    printed = capsys.readouterr().out
    *tables, scores = OUTPUT.findall((DOC / "getting_started.rst").read_text(encoding="utf-8"))
    samples = [names["X_test"][:3], names["strange"]]
    for table, X in zip(tables, samples, strict=True):
        shown = pandas.read_csv(io.StringIO(table), sep=r"\s+")
        found = names["student"].predict_frame(X)[[*shown]]
        assert table.split("\n")[0].split() == [*shown]
        assert table.split("\n")[0].strip() in printed
        assert shown.index.equals(found.index)
        # Rounding differs between processors, and training amplifies it.
        width = shown["upper"] - shown["lower"]
        for name in ("prediction", "lower", "upper"):
            assert (abs(found[name] - shown[name]) < 0.2 * width).all(), name
        assert (found["epistemic_std"] / shown["epistemic_std"]).between(1 / 2, 2).all()
        if "std" in shown:
            np.testing.assert_allclose(found["std"], shown["std"], rtol=0.2)
            np.testing.assert_allclose(found["aleatoric_std"], shown["aleatoric_std"], rtol=0.2)
    known, larger, elsewhere = names["student"].predict_uncertainty(names["strange"]).epistemic
    assert min(larger, elsewhere) > 30**2 * known, "over thirty times, says the page"
    width = np.ptp(names["student"].predict_interval(names["strange"]), axis=1)
    assert (width[1:] > 10 * width[0]).all(), "over ten times, says the page"
    lines = dict(line.rsplit(maxsplit=1) for line in printed.splitlines()[-3:])
    for line in scores.strip().splitlines():
        name, value = line.rsplit(maxsplit=1)
        assert float(lines[name.strip()]) == pytest.approx(float(value), abs=0.05), name


@pytest.mark.slow
def test_conformal_recipe_gives_the_intervals_of_mapie(few_rows):
    pytest.importorskip("mapie")
    names = run(GUIDE / "conformal.rst", [STUDENT])
    np.testing.assert_allclose(names["interval"], names["scaled"][:, :, 0])
    np.testing.assert_allclose(names["interval"], names["same_interval"])
    widths = np.ptp(names["constant"][:, :, 0], axis=1)
    np.testing.assert_allclose(widths, widths[0])
    with pytest.raises(ValueError, match="too few"):
        names["conformal_interval"](
            names["student"], names["X_cal"][:5], names["y_cal"][:5], X=None
        )


QUOTE = re.compile(r"warns:\n\n((?:    .*\n)+)")


@pytest.mark.slow
def test_common_mistakes_say_what_is_quoted(few_rows):
    few = [
        STUDENT,
        ("HydraPlusRegressor(process", "HydraPlusRegressor(process, max_epochs=3"),
        ("HydraPlusRegressor(Frozen", "HydraPlusRegressor(max_epochs=3, teacher=Frozen"),
        ("HydraPlusRegressor(forest", "HydraPlusRegressor(forest, max_epochs=3"),
        ("HydraPlusRegressor(transfer", "HydraPlusRegressor(max_epochs=3, transfer"),
        ("HydraPlusRegressor(Bagging", "HydraPlusRegressor(max_epochs=3, teacher=Bagging"),
        ("RandomForestRegressor(100", "RandomForestRegressor(10"),
        ("svr, 10", "svr, 3"),
    ]
    page = DOC / "common_mistakes.rst"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(page, few)
    said = [" ".join(str(warning.message).split()) for warning in caught]
    quotes = [" ".join(found.split()) for found in QUOTE.findall(page.read_text(encoding="utf-8"))]
    assert len(quotes) == 4
    assert [quote for quote in quotes if not any(quote in text for text in said)] == []


def test_readme_example_runs_with_less():
    (code,) = blocks_of(ROOT / "README.md")
    code = code.replace("BayesianEnsembleRegressor(", "BayesianEnsembleRegressor(3, max_epochs=3, ")
    names: dict[str, object] = {}
    exec(code.replace("(teacher,", "(teacher, max_epochs=3,"), names)
    assert names["student"].max_epochs == 3
    assert Path("student.safetensors").stat().st_size > 0


@pytest.mark.slow
def test_readme_prints_what_it_shows(capsys):
    (code,) = blocks_of(ROOT / "README.md")
    exec(code, {})
    printed = [float(number) for number in NUMBER.findall(capsys.readouterr().out)]
    shown = "".join(re.findall(r"^print.*  # (.*\n)", code, re.MULTILINE))
    np.testing.assert_allclose(
        printed, [float(number) for number in NUMBER.findall(shown)], rtol=0.2, atol=0.05
    )


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_targets_of_make_exist(name):
    named = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / name).read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named
    assert named <= targets


def test_readme_links_to_pages_that_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(?:\]\(|src=\")(doc/[^)\"]+)", readme)
    assert "doc/images/one_table.png" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
