# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from skdistill.metrics import (
    crps,
    gaussian_nll,
    interval_coverage,
    mixture_nll,
    regression_calibration_curve,
    regression_calibration_error,
)


@pytest.fixture(scope="module")
def scoringrules():
    """The package, which compiles for seconds when it is imported."""
    return importlib.import_module("scoringrules")


shapes = pytest.mark.parametrize("n_targets", [None, 1, 3])

# Proper scores


@shapes
def test_gaussian_nll_is_scipys(n_targets, make_predictions):
    data = make_predictions(n_targets)
    expected = -stats.norm.logpdf(data["y_true"], data["y_pred"], data["std"]).mean()
    assert_allclose(gaussian_nll(data["y_true"], data["y_pred"], data["std"]), expected)


def test_mixture_nll_by_hand():
    # Half N(0, 1), half N(2, 4) at y = 1: densities exp(-1/2) / sqrt(2 pi), exp(-1/8) / sqrt(8 pi).
    members = np.array([[[[0.0, 1.0]], [[2.0, 4.0]]]])
    density = (np.exp(-1 / 2) / np.sqrt(2 * np.pi) + np.exp(-1 / 8) / np.sqrt(8 * np.pi)) / 2
    assert_allclose(mixture_nll([1.0], members), -np.log(density))


@pytest.mark.parametrize("n_copies", [1, 5])
@shapes
def test_one_member_is_a_gaussian(n_copies, n_targets, make_predictions, scoringrules):
    data = make_predictions(n_targets)
    y_true, y_pred, std = data["y_true"], data["y_pred"], data["std"]
    member = np.stack([y_pred, std**2], axis=-1).reshape(len(y_true), 1, -1, 2)
    members = np.repeat(member, n_copies, axis=1)
    assert_allclose(mixture_nll(y_true, members), gaussian_nll(y_true, y_pred, std))
    expected = scoringrules.crps_normal(y_true, y_pred, std).mean()
    assert_allclose(crps(y_true, members), expected)


def test_crps_is_the_integral(make_predictions):
    data = make_predictions(n_samples=3)
    means, variances = data["members"][:, :, 0].transpose(2, 0, 1)

    def integral(y, mean, std):
        def squared_difference(z):
            return (stats.norm.cdf(z, mean, std).mean() - (y <= z)) ** 2

        below, _ = integrate.quad(squared_difference, -40, y)
        above, _ = integrate.quad(squared_difference, y, 40)
        return below + above

    expected = [integral(*row) for row in zip(data["y_true"], means, variances**0.5, strict=True)]
    assert_allclose(crps(data["y_true"], data["members"]), np.mean(expected), rtol=1e-6)


def test_crps_without_scoringrules(monkeypatch, make_predictions):
    monkeypatch.setitem(sys.modules, "scoringrules", None)
    data = make_predictions()
    with pytest.raises(ImportError, match=r"pip install skdistill\[metrics\]"):
        crps(data["y_true"], data["members"])


# Intervals and quantiles


def test_coverage_counts_the_ends():
    y_interval = np.array([[0.0, 1.0]] * 5)
    assert interval_coverage([0.0, 1.0, 0.5, -0.1, 1.1], y_interval) == 0.6


def test_calibration_of_the_truth_and_of_a_shift():
    # y at the mid-quantiles of N(0, 1): the curve of N(b, 1) is cdf(ppf(level) + b).
    y_true = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)
    levels = np.linspace(0.05, 0.95, 19)
    for shift in (0.0, 0.7):
        y_quantiles = np.tile(stats.norm.ppf(levels) + shift, (1000, 1))
        nominal, observed = regression_calibration_curve(y_true, y_quantiles, levels)
        expected = stats.norm.cdf(stats.norm.ppf(levels) + shift)
        assert_array_equal(nominal, levels)
        assert_allclose(observed, expected, atol=1e-3)
        error = regression_calibration_error(y_true, y_quantiles, levels)
        assert_allclose(error, np.abs(expected - levels).mean(), atol=1e-3)


INF = np.inf


@pytest.mark.parametrize(
    ("interval", "coverage"),
    [([-INF, INF], 1), ([-INF, 3.0], 1), ([2.0, INF], 0), ([0.0, 4.0], 1)],
)
def test_intervals_may_be_infinite(interval, coverage):
    assert interval_coverage([1.0], [interval]) == coverage


@pytest.mark.parametrize("std", [1e-170, 1e170, 5e-324])
def test_densities_of_deviations_whose_squares_are_no_floats(std):
    """-log N(1; 1, s^2) is log(s) + log(2 pi) / 2: -390.5 for s = 1e-170."""
    expected = np.log(std) + np.log(2 * np.pi) / 2
    assert gaussian_nll([1.0], [1.0], [std]) == pytest.approx(expected)
    if std == 1e170:
        assert gaussian_nll([2e170], [0.0], [std]) == pytest.approx(expected + 2)
        members = [[[[2e160, 1e300]]]]  # whose distance has no square
        assert mixture_nll([0.0], members) == pytest.approx(2e20, rel=1e-6)
