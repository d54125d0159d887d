# SPDX-License-Identifier: BSD-3-Clause
"""A student's uncertainty against its teacher's."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdistill.displays import FidelityDisplay
from skdistill.distributions import Uncertainty


def uncertainty(epistemic, aleatoric=1.0, measure="variance"):
    epistemic = np.asarray(epistemic, dtype=float)
    aleatoric = np.full_like(epistemic, aleatoric)
    return Uncertainty(epistemic + aleatoric, aleatoric, epistemic, measure)


def test_points_stand_by_the_teachers_uncertainty_without_a_reference():
    display = FidelityDisplay.from_predictions(
        uncertainty([1.0, 2.0, 4.0]), uncertainty([0.5, 1.0, 2.0])
    )
    assert list(display.points_) == ["total", "aleatoric", "epistemic"]
    assert not display.bands_
    points = display.points_["epistemic"]
    assert_allclose(points.get_offsets(), [[1, 0.5], [2, 1], [4, 2]])
    assert points.get_label() == "student (rank 1.00, ratio 0.50)"
    ax = display.axes_[2]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlabel() == "Epistemic, teacher (squared units of y)"


def test_the_band_holds_nine_in_ten_rows_of_the_teacher():
    rng = np.random.default_rng(0)
    reference = rng.lognormal(size=4000)
    teacher = reference * rng.chisquare(19, size=4000) / 19
    display = FidelityDisplay.from_predictions(
        uncertainty(teacher), uncertainty(reference), reference=uncertainty(reference)
    )
    (path,) = display.bands_["epistemic"].get_paths()
    assert display.axes_[2].get_xlabel().startswith("Epistemic, reference")
    x, y = path.vertices.T
    inner = (x > np.quantile(reference, 0.2)) & (x < np.quantile(reference, 0.8))
    # The quantiles .05 and .95 of chi-squared with 19 degrees of freedom are 10.12 and 30.14.
    low, high = (y / x)[inner & (y < x)], (y / x)[inner & (y > x)]
    assert_allclose(np.median(low), 10.12 / 19, rtol=0.1)
    assert_allclose(np.median(high), 30.14 / 19, rtol=0.1)
    assert "rank" in display.bands_["epistemic"].get_label()


def test_one_of_several_targets_and_parts_that_one_model_lacks():
    two = uncertainty([[1.0, 10.0], [2.0, 20.0]])
    total_only = Uncertainty(np.ones((2, 2)), None, None, "variance")
    display = FidelityDisplay.from_predictions(two, two, target=1)
    assert_array_equal(display.student["epistemic"], [10, 20])
    with pytest.warns(UserWarning, match="constant"):
        display = FidelityDisplay.from_predictions(two, total_only)
    assert list(display.points_) == ["total"]
    assert len(display.axes_) == 1
    plt.close("all")


def test_models_that_cannot_be_compared():
    one = uncertainty([1.0, 2.0])
    with pytest.raises(ValueError, match=r"one measure, got \['entropy', 'variance'\]"):
        FidelityDisplay.from_predictions(one, uncertainty([1.0, 2.0], measure="entropy"))
    with pytest.raises(ValueError, match="student must have 2 samples"):
        FidelityDisplay.from_predictions(one, uncertainty([1.0, 2.0, 3.0]))
