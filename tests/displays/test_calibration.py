# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from skdistill.displays import EpistemicCalibrationDisplay
from skdistill.metrics import epistemic_calibration


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
