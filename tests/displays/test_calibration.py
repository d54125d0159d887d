# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.displays import EpistemicCalibrationDisplay, RegressionCalibrationDisplay
from skdistill.metrics import (
    epistemic_calibration,
    regression_calibration_curve,
    regression_calibration_error,
)

LEVELS = np.array([0.1, 0.5, 0.8])


@pytest.mark.parametrize("n_targets", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_draws_the_metric(n_targets, weighted, make_data, legend_texts):
    model, X, y = make_data(n_targets)
    weights = np.linspace(0, 1, len(y)) if weighted else None
    display = RegressionCalibrationDisplay.from_estimator(
        model, X, y, quantiles=LEVELS.tolist(), sample_weight=weights
    )
    arrays = (y, model.predict_quantiles(X, LEVELS), LEVELS)
    nominal, observed = regression_calibration_curve(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), np.column_stack([nominal, observed]))
    assert_array_equal(display.ref_line_.get_xydata(), [[0, 0], [1, 1]])
    error = regression_calibration_error(*arrays, sample_weight=weights)
    assert display.calibration_error == error
    assert legend_texts(display) == [
        "perfectly calibrated",
        f"SineRegressor (error = {error:.3f})",
    ]

    other = RegressionCalibrationDisplay.from_predictions(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), other.line_.get_xydata())
    assert legend_texts(other)[1] == f"error = {error:.3f}"


def test_epistemic_calibration_draws_the_bins(legend_texts):
    rng = np.random.default_rng(0)
    variance = rng.gamma(2.0, size=50)
    error = variance * np.square(rng.normal(size=50))
    display = EpistemicCalibrationDisplay.from_predictions(error, variance, n_bins=4, name="model")
    found = epistemic_calibration(error, variance, n_bins=4)
    points = np.column_stack([found.bin_epistemic, found.bin_squared_error])
    assert_array_equal(display.line_.get_xydata(), points)
    assert_array_equal(display.ref_line_.get_xydata(), [[points.min()] * 2, [points.max()] * 2])
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"
    covered = f"model (90 % intervals cover {found.coverage:.2f})"
    assert legend_texts(display) == ["perfectly calibrated", covered]
