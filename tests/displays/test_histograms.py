# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdistill.displays import UncertaintyHistogramDisplay
from skdistill.distributions import Uncertainty
from skdistill.metrics import uncertainty_total_variation

PARTS = ("total", "aleatoric", "epistemic")


@pytest.fixture
def models(make_classes):
    teacher, X, _ = make_classes()
    student, _, _ = make_classes(scale=2.0)
    return {"teacher": teacher, "student": student}, X, 3 * X


def test_draws_teacher_and_student_in_and_out_of_distribution(models):
    estimators, X, X_out = models
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X, X_out, bins=20)
    for part, ax in zip(PARTS, display.axes_, strict=True):
        values = {
            name: {
                "in": getattr(model.predict_uncertainty(X), part),
                "out": getattr(model.predict_uncertainty(X_out), part),
            }
            for name, model in estimators.items()
        }
        everything = np.concatenate([v for by_set in values.values() for v in by_set.values()])
        edges = np.linspace(everything.min(), everything.max(), 21)
        assert_allclose(display.edges[part], edges)
        distances = []
        for name, by_set in values.items():
            for where, sample in by_set.items():
                patch = display.histograms_[part][name][where]
                shares = np.histogram(sample, display.edges[part])[0] / len(sample)
                assert_array_equal(patch.get_data().values, shares)
                assert patch in ax.patches
                assert patch.get_fill() == (name == "teacher")
                if name == "student":
                    distance = uncertainty_total_variation(
                        values["teacher"][where], sample, bins=20
                    )
                    assert display.total_variation[part]["student"][where] == distance
                    distances.append(f"{distance:.2f} {where}")
        assert ax.get_title() == f"total variation to teacher\nstudent: {', '.join(distances)}"
        assert ax.get_xlabel() == f"{part.capitalize()} (nats)"
    teacher, student = (display.histograms_["total"][name] for name in estimators)
    for where in ("in", "out"):
        assert teacher[where].get_facecolor()[:3] == student[where].get_edgecolor()[:3]
    assert student["in"].get_edgecolor() != student["out"].get_edgecolor()
    texts = [text.get_text() for text in display.axes_[-1].get_legend().get_texts()]
    assert texts == [
        "teacher, in distribution",
        "teacher, out of distribution",
        "student, in distribution",
        "student, out of distribution",
    ]


def test_title_by_hand():
    teacher = Uncertainty(np.array([0.0, 0.0, 1.0, 1.0]), None, None, "entropy")
    student = Uncertainty(np.array([1.0, 1.0, 1.0, 0.0]), None, None, "entropy")
    both = {"teacher": teacher, "student": student}
    display = UncertaintyHistogramDisplay.from_predictions(both, bins=2)
    assert_array_equal(display.shares["total"]["student"]["in"], [0.25, 0.75])
    (ax,) = display.axes_
    assert ax.get_title() == "total variation to teacher\nstudent: 0.25 in"


def test_one_model_is_compared_with_itself_out_of_distribution(models):
    estimators, X, X_out = models
    estimators = {"teacher": estimators["teacher"]}
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X, X_out)
    inside, outside = (estimators["teacher"].predict_uncertainty(rows).total for rows in (X, X_out))
    distance = uncertainty_total_variation(inside, outside)
    assert display.total_variation["total"] == {"teacher": {"out": distance}}
    assert display.axes_[0].get_title() == f"total variation of in and out: {distance:.2f}"
    alone = UncertaintyHistogramDisplay.from_estimators(estimators, X)
    assert alone.total_variation["total"] == {}
    assert alone.axes_[0].get_title() == ""


def test_a_student_that_tells_the_total_only(models, make_classes):
    estimators, X, _ = models
    estimators["plain"] = make_classes(tells_parts=False)[0]
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X)
    assert list(display.histograms_["total"]) == ["teacher", "student", "plain"]
    assert list(display.histograms_["epistemic"]) == ["teacher", "student"]
    lines = [display.histograms_["total"][name]["in"].get_linestyle() for name in estimators]
    assert lines[1:] == ["-", "--"]
    alone = UncertaintyHistogramDisplay.from_estimators({"plain": estimators["plain"]}, X)
    assert len(alone.axes_) == 1


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_regressors_in_variances_and_standard_deviations(n_targets, target, make_data):
    model, X, _ = make_data(n_targets)
    display = UncertaintyHistogramDisplay.from_estimators({"model": model}, X, target=target)
    total = model.predict_uncertainty(X).total.reshape(len(X), -1)[:, target]
    assert_allclose(display.edges["total"][[0, -1]], [total.min(), total.max()])
    assert display.axes_[0].get_xlabel() == "Total (squared units of y)"
    std = model.predict_uncertainty(X).std()
    display = UncertaintyHistogramDisplay.from_predictions({"model": std}, target=target)
    assert_allclose(display.edges["total"][-1], np.sqrt(total.max()))
    assert display.axes_[0].get_xlabel() == "Total (units of y)"


def test_scale_of_the_shares(models):
    estimators, X, _ = models
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X)
    ax = display.axes_[0]
    assert ax.get_ylabel() == "Share of samples (square-root scale)"
    assert_allclose(ax.get_yaxis_transform().transform([[0, 0]])[0, 1], ax.bbox.y0)
    heights = ax.transData.transform([[0, 0], [0, 0.01], [0, 0.04]])[:, 1]
    assert_allclose(heights[2] - heights[0], 2 * (heights[1] - heights[0]))
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X, yscale="log")
    assert display.axes_[0].get_yscale() == "log"
    assert display.axes_[0].get_ylabel() == "Share of samples"


def test_style(models):
    estimators, X, _ = models
    display = UncertaintyHistogramDisplay.from_estimators(estimators, X, lw=4)
    widths = {p["in"].get_linewidth() for p in display.histograms_["total"].values()}
    assert widths == {4}


def test_bad_arguments(models, make_data):
    estimators, X, _ = models
    inside = {name: model.predict_uncertainty(X) for name, model in estimators.items()}
    draw = UncertaintyHistogramDisplay.from_predictions
    with pytest.raises(TypeError, match=r"estimators must be a dict .*got SectorClassifier"):
        UncertaintyHistogramDisplay.from_estimators(estimators["teacher"], X)
    with pytest.raises(TypeError, match=r"in_distribution must be a dict .*got Uncertainty"):
        draw(inside["teacher"])
    with pytest.raises(TypeError, match=r"out_of_distribution must be a dict .*got Uncertainty"):
        draw(inside, inside["teacher"])
    with pytest.raises(ValueError, match=r"must have the names .*'student'\], got \['teacher'\]"):
        draw(inside, {"teacher": inside["teacher"]})
    variance = make_data()[0].predict_uncertainty(X)
    with pytest.raises(ValueError, match=r"must have one measure, got \['entropy', 'variance'\]"):
        draw({**inside, "student": variance})
    with pytest.raises(ValueError, match="bins must be an integer >= 1, got 0"):
        draw(inside, bins=0)
    with pytest.raises(
        ValueError, match="one of the columns of the total uncertainty of 'teacher'"
    ):
        draw(inside, target=1)
