# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdistill.displays import RejectionCurveDisplay
from skdistill.metrics import aurc, prediction_rejection_ratio, risk_coverage_curve


def at(points, x, y):
    """Values of a curve at points that it must have."""
    return y[[np.flatnonzero(np.isclose(x, point, atol=1e-12))[0] for point in points]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("part", ["total", "epistemic"])
def test_draws_the_metric_of_a_classifier(part, weighted, make_classes, legend_texts):
    model, X, y = make_classes()
    weights = np.linspace(0, 1, len(y)) if weighted else None
    display = RejectionCurveDisplay.from_estimator(model, X, y, part=part, sample_weight=weights)
    losses = y != model.predict(X)
    arrays = (losses, getattr(model.predict_uncertainty(X), part))
    coverage, risk = risk_coverage_curve(*arrays, sample_weight=weights)
    assert_allclose(at(coverage, *display.line_.get_data()), risk)
    coverage, risk = risk_coverage_curve(losses, losses, sample_weight=weights)
    assert_allclose(at(coverage, *display.oracle_line_.get_data()), risk)
    assert_allclose(display.random_line_.get_ydata(), np.average(losses, weights=weights))
    area = aurc(*arrays, sample_weight=weights)
    ratio = prediction_rejection_ratio(*arrays, sample_weight=weights)
    assert (display.aurc, display.rejection_ratio) == (area, ratio)
    assert legend_texts(display) == [
        f"SectorClassifier (AURC = {area:.3g}, PRR = {ratio:.3g})",
        "oracle",
        "random order",
    ]
    assert display.ax_.get_ylabel() == "Risk: mean error of samples predicted"


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_draws_the_metric_of_a_regressor(n_targets, target, make_data):
    model, X, y = make_data(n_targets)
    display = RejectionCurveDisplay.from_estimator(model, X, y, target=target)
    losses = ((y - model.predict(X)) ** 2).reshape(len(y), -1)[:, target]
    total = model.predict_uncertainty(X).total.reshape(len(y), -1)[:, target]
    coverage, risk = risk_coverage_curve(losses, total)
    assert_allclose(at(coverage, *display.line_.get_data()), risk)
    assert display.ax_.get_ylabel() == "Risk: mean squared error of samples predicted"


def test_between_the_rows_the_sum_of_losses_is_linear():
    """Half of the samples are wrong: the oracle's risk at coverage c > 1/2 is (c - 1/2) / c."""
    display = RejectionCurveDisplay.from_losses([0, 1, 0, 1], [1, 1, 1, 1])
    coverage, oracle = display.oracle_line_.get_data()
    assert_allclose(oracle, np.maximum(coverage - 0.5, 0) / np.maximum(coverage, 0.5), atol=1e-12)
    assert_allclose(display.line_.get_ydata(), 0.5)
    assert display.aurc == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"part": "epistemic"}, r"part must be one of \['total'\] of this model, got 'epistemic'"),
        ({"part": "all"}, "part must be one of .*got 'all'"),
        ({"target": 1}, "target must be an integer from 0 to 0, .* got 1"),
        ({"y": ["red"] * 3}, r"y must have the shape of the predictions, \(80,\), got \(3,\)"),
    ],
)
def test_bad_arguments(change, message, make_classes):
    model, X, y = make_classes(tells_parts=False)
    with pytest.raises(ValueError, match=message):
        RejectionCurveDisplay.from_estimator(model, X, **{"y": y, **change})
