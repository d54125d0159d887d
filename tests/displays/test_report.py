# SPDX-License-Identifier: BSD-3-Clause
"""The report: its numbers are those of the metrics, its page needs nothing else."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
    report,
)
from skdistill.metrics import fidelity, gaussian_nll, interval_coverage
from skdistill.model_selection import disagreement_of_halves, flops, n_parameters

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

SMALL = {"max_epochs": 3, "module__hidden_units": (8,), "random_state": 0}
FEW = {"transfer": None, **SMALL}
X, Y = make_friedman1(160, n_features=5, noise=0.5, random_state=0)
TRAIN, TEST = slice(None, 100), slice(100, None)
_, LABELS = make_classification(160, random_state=0)
LABELS = np.array(["no", "yes"])[(X[:, 0] + 0.3 * LABELS > 0.6).astype(int)]


@pytest.fixture(scope="module")
def regressors():
    teacher = BayesianEnsembleRegressor(3, **SMALL)
    student = HydraPlusRegressor(teacher, **FEW).fit(X[TRAIN], Y[TRAIN])
    reference = BayesianEnsembleRegressor(6, **{**SMALL, "random_state": 1})
    return student, reference.fit(X[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def of_numbers(regressors):
    student, reference = regressors
    return report(student, X[TEST], Y[TEST], reference=reference)


@pytest.fixture(scope="module")
def classifier():
    teacher = BayesianEnsembleClassifier(3, **SMALL)
    student = HydraPlusClassifier(teacher, **FEW)
    return make_pipeline(StandardScaler(), student).fit(X[TRAIN], LABELS[TRAIN])


@pytest.fixture(scope="module")
def of_classes(classifier):
    return report(classifier, X[TEST], LABELS[TEST])


@pytest.fixture(scope="module")
def pages(of_numbers, of_classes, tmp_path_factory):
    """What the reports write to files, drawn once."""
    written = {}
    for name, found in (("numbers", of_numbers), ("classes", of_classes)):
        path = tmp_path_factory.mktemp("pages") / "report.html"
        found.save(path)
        written[name] = path.read_text(encoding="utf-8")
    return written


def value(found, quantity, column="student"):
    frame = found.to_frame().set_index("quantity")
    return frame.loc[quantity, column]


@pytest.mark.slow
def test_numbers_are_those_of_the_metrics(of_numbers, regressors):
    student, reference = regressors
    models = {"student": student, "teacher": student.teacher_, "reference": reference}
    for role, model in models.items():
        mean, std = model.predict(X[TEST], return_std=True)
        expected = {
            "RMSE": root_mean_squared_error(Y[TEST], mean),
            "NLL of one Gaussian": gaussian_nll(Y[TEST], mean, std),
            "coverage of 50 % intervals": interval_coverage(
                Y[TEST], model.predict_interval(X[TEST], 0.5)
            ),
            "coverage of 90 % intervals": interval_coverage(
                Y[TEST], model.predict_interval(X[TEST], 0.9)
            ),
            "parameters": n_parameters(model),
            "floating-point operations for a sample": flops(model, X[TEST]),
            "root of the mean epistemic variance": np.sqrt(
                model.predict_uncertainty(X[TEST]).epistemic.mean()
            ),
        }
        found = {quantity: value(of_numbers, quantity, role) for quantity in expected}
        assert found == pytest.approx(expected, rel=1e-5)


def test_differences_are_student_less_teacher_with_paired_errors(of_numbers):
    frame = of_numbers.to_frame().set_index("quantity")
    assert_allclose(frame.difference, frame.student - frame.teacher)
    rmse = frame.loc["RMSE"]
    assert 0 < rmse.difference_error < rmse.student_error


def test_fidelity_is_that_of_the_metric(of_numbers, regressors):
    student, reference = regressors
    table = fidelity(student.teacher_, student, X[TEST], Y[TEST], reference=reference)
    rank = "rank correlation of the epistemic part with the {}'s"
    key = "epistemic_rank_correlation"
    assert value(of_numbers, rank.format("teacher")) == table["student_to_teacher"][key]
    of_reference = rank.format("reference")
    assert value(of_numbers, of_reference) == table["student_to_reference"][key]
    assert value(of_numbers, of_reference, "teacher") == table["teacher_to_reference"][key]
    gap = value(of_numbers, "NLL less the reference's", "teacher")
    assert gap == table["teacher_to_reference"]["nll_gap"]


def test_classes_in_a_pipeline_have_its_teacher_behind_the_same_steps(of_classes, classifier):
    rows = classifier[:-1].transform(X[TEST])
    for role, model in (("student", classifier[-1]), ("teacher", classifier[-1].teacher_)):
        expected = {
            "accuracy": accuracy_score(LABELS[TEST], model.predict(rows)),
            "log loss": log_loss(LABELS[TEST], model.predict_proba(rows)),
            "mean total entropy": model.predict_uncertainty(rows).total.mean(),
        }
        found = {quantity: value(of_classes, quantity, role) for quantity in expected}
        assert found == pytest.approx(expected, rel=1e-5)
    assert of_classes.title == "HydraPlusClassifier"


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_halves_of_the_table_have_a_chapter(kind, regressors, classifier):
    model, y = (regressors[0], Y) if kind == "numbers" else (classifier, LABELS)
    halves = disagreement_of_halves(model, X[TRAIN], y[TRAIN], random_state=0)
    found = report(model, X[TEST], y[TEST], halves=halves)
    rows = found.to_frame().query("section == 'halves'")
    lower = halves.ratio[:-1]
    expected = [halves.coverage, halves.overall, lower.min(), lower.max(), halves.ratio[-1]]
    assert_allclose(rows["student"], [*expected, halves.rank])
    page = found.to_html()
    assert "<h2>Disagreement of two halves</h2>" in page
    assert "Mean squared difference of the two predictions" in page
    with pytest.raises(ValueError, match=r"halves must be what .*disagreement_of_halves.*got dict"):
        report(model, X[TEST], y[TEST], halves={"coverage": 0.9})


@pytest.mark.slow
def test_several_targets(regressors):
    targets = np.column_stack([Y, X[:, 0] - Y])
    student = HydraPlusRegressor(BayesianEnsembleRegressor(3, **SMALL), **FEW)
    student.fit(X[TRAIN], targets[TRAIN])
    found = report(student, X[TEST], targets[TEST])
    mean = student.predict(X[TEST])
    assert value(found, "RMSE") == pytest.approx(root_mean_squared_error(targets[TEST], mean))
    assert "2" in found.facts["targets"]
    assert found.to_html().count("<img") == 5


class Page(HTMLParser):
    """What stands in a page."""

    void = frozenset({"meta", "link", "img", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_page_is_whole_and_needs_nothing_from_elsewhere(kind, pages):
    text = pages[kind]
    page = Page(text)
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]
    for _, attributes in page.found:
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith("data:")
    assert "url(" not in text
    assert "@import" not in text
    assert page.all("script") == []
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert max(np.diff(levels)) == 1
    assert all(len(image["alt"]) > 30 for image in page.all("img"))
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))


def test_without_matplotlib_there_is_the_frame(of_numbers, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert len(of_numbers.to_frame()) >= 30
    with pytest.raises(ImportError, match=r"ModelReport.to_html needs matplotlib: pip install"):
        of_numbers.to_html()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"student": LinearRegression()}, TypeError, "student must be .* got LinearRegression"),
        ({"teacher": RandomForestRegressor()}, TypeError, "teacher must be .*as_teacher"),
        ({"y": Y[TEST][1:]}, ValueError, "X and y: .*inconsistent"),
        ({"X": X[:19], "y": Y[:19]}, ValueError, "X must have at least 20 samples .* got 19"),
        ({"y": 1e300 * Y[TEST]}, ValueError, "y must be within"),
        ({"y": np.stack([Y[TEST]] * 2, 1)}, ValueError, "y must have the shape of the student's"),
    ],
)
def test_bad_arguments_are_named(change, error, message, regressors):
    given = {"student": regressors[0], "X": X[TEST], "y": Y[TEST], **change}
    with pytest.raises(error, match=message):
        report(**given)
