# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pickle
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scoringrules
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.inspection import permutation_importance
from sklearn.metrics import auc, mean_absolute_error
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from skdistill import metrics
from skdistill.metrics import (
    EpistemicFidelity,
    UncertaintyScorer,
    ause,
    crps,
    epistemic_fidelity,
    gaussian_nll,
    interval_coverage,
    interval_score,
    interval_width,
    make_interval_scorer,
    mixture_nll,
    neg_ause_scorer,
    neg_crps_scorer,
    neg_gaussian_nll_scorer,
    neg_interval_score_scorer,
    neg_mixture_nll_scorer,
    regression_calibration_curve,
    regression_calibration_error,
    sparsification_curve,
    uncertainty_total_variation,
)

QUANTILES = np.array([0.1, 0.25, 0.5, 0.9])


def total_variation_of_pair(a, b, *, sample_weight=None):
    return uncertainty_total_variation(
        a, b, bins=7, a_weights=sample_weight, b_weights=sample_weight
    )


def score_of_80_percent(y_true, y_interval, *, sample_weight=None):
    return interval_score(y_true, y_interval, coverage=0.8, sample_weight=sample_weight)


def error_at_quantiles(y_true, y_quantiles, *, sample_weight=None):
    return regression_calibration_error(y_true, y_quantiles, QUANTILES, sample_weight=sample_weight)


# Every metric as a function of arrays with one row per sample, by the names of what it takes.
METRICS = {
    gaussian_nll: ("y_true", "y_pred", "std"),
    mixture_nll: ("y_true", "members"),
    crps: ("y_true", "members"),
    ause: ("y_true", "y_pred", "std"),
    interval_coverage: ("y_true", "interval"),
    interval_width: ("interval",),
    score_of_80_percent: ("y_true", "interval"),
    error_at_quantiles: ("y_true", "quantiles"),
    total_variation_of_pair: ("std", "other_std"),
    epistemic_fidelity: ("std", "other_std"),
}
all_metrics = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
shapes = pytest.mark.parametrize("n_targets", [None, 1, 3])


def make_predictions(n_targets=None, n_samples=30, n_members=4, seed=0):
    """Predictions worth comparing; `std` comes in few levels, so that there are ties."""
    rng = np.random.default_rng(seed)
    shape = (n_samples,) if n_targets is None else (n_samples, n_targets)
    std = rng.choice([0.3, 0.7, 1.1, 2.0], size=shape)
    y_pred = rng.normal(size=shape)
    y_true = y_pred + std * rng.normal(size=shape)
    columns = y_pred.reshape(n_samples, -1)
    means = columns[:, None, :] + 0.5 * rng.normal(size=(n_samples, n_members, columns.shape[1]))
    variances = rng.gamma(2.0, size=means.shape)
    levels = stats.norm.ppf(QUANTILES)
    return {
        "y_true": y_true,
        "y_pred": y_pred,
        "std": std,
        "other_std": std * rng.gamma(5.0, 0.2, size=shape),
        "members": np.stack([means, variances], axis=-1),
        "interval": y_pred[..., None] + std[..., None] * np.array([-1.0, 1.5]),
        "quantiles": y_pred[..., None] + std[..., None] * levels,
    }


def arguments(metric, data):
    return [data[name] for name in METRICS[metric]]


# What every metric keeps to


@all_metrics
@shapes
def test_integer_weights_are_repetitions(metric, n_targets):
    arrays = arguments(metric, make_predictions(n_targets))
    weights = np.random.default_rng(1).integers(0, 4, size=len(arrays[0]))
    assert (weights == 0).any()
    repeated = [np.repeat(array, weights, axis=0) for array in arrays]
    assert_allclose(metric(*arrays, sample_weight=weights), metric(*repeated), rtol=1e-12)


@all_metrics
def test_scale_of_weights_does_not_matter(metric):
    arrays = arguments(metric, make_predictions())
    weights = np.random.default_rng(1).integers(0, 4, size=len(arrays[0]))
    expected = metric(*arrays, sample_weight=weights)
    assert_allclose(metric(*arrays, sample_weight=0.1 * weights), expected, rtol=1e-12)
    assert_allclose(
        metric(*arrays, sample_weight=np.full(len(weights), 0.1)), metric(*arrays), rtol=1e-12
    )


@all_metrics
@shapes
def test_order_of_rows_does_not_matter(metric, n_targets):
    arrays = arguments(metric, make_predictions(n_targets))
    rows = np.random.default_rng(2).permutation(len(arrays[0]))
    assert_allclose(metric(*(array[rows] for array in arrays)), metric(*arrays), rtol=1e-12)


@all_metrics
def test_average_over_targets_is_uniform(metric):
    data = make_predictions(3)
    per_target = [
        metric(
            *(
                data[name][:, :, [target]] if name == "members" else data[name][:, target]
                for name in METRICS[metric]
            )
        )
        for target in range(3)
    ]
    assert_allclose(metric(*arguments(metric, data)), np.mean(per_target, axis=0), rtol=1e-12)


@all_metrics
def test_one_column_is_one_target(metric):
    data = make_predictions(1)
    flat = {k: v if k == "members" else v[:, 0] for k, v in data.items()}
    assert metric(*arguments(metric, flat)) == metric(*arguments(metric, data))


@all_metrics
def test_returns_python_floats(metric):
    score = metric(*arguments(metric, make_predictions(2)))
    assert all(type(value) is float for value in np.atleast_1d(score).tolist())
    assert type(score) is (EpistemicFidelity if metric is epistemic_fidelity else float)


@all_metrics
def test_lists_and_frames_do(metric):
    pd = pytest.importorskip("pandas")
    arrays = arguments(metric, make_predictions())
    as_lists = [array.tolist() for array in arrays]
    as_frames = [
        {1: pd.Series, 2: pd.DataFrame}.get(array.ndim, np.asarray)(array) for array in arrays
    ]
    assert metric(*as_lists) == metric(*as_frames) == metric(*arrays)


@all_metrics
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(29), r"weights? must have shape \(30,\), got \(29,\)"),
        (np.ones((30, 2)), r"weights? must have shape \(30,\), got \(30, 2\)"),
        (-np.ones(30), "weights? must not be negative, got a smallest value of -1"),
        (np.zeros(30), "weights? must have at least one positive value, got zeros only"),
        (np.full(30, np.nan), "weights? contains NaN"),
    ],
)
def test_bad_weights(metric, weights, message):
    with pytest.raises(ValueError, match=message):
        metric(*arguments(metric, make_predictions()), sample_weight=weights)


@all_metrics
def test_bad_values_are_named(metric):
    arrays = arguments(metric, make_predictions())
    for position in range(len(arrays)):
        spoilt = [array.copy() for array in arrays]
        spoilt[position].flat[0] = np.nan
        with pytest.raises(ValueError, match="contains NaN"):
            metric(*spoilt)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d: gaussian_nll(d["y_true"], d["y_pred"][:-1], d["std"]),
            r"y_pred must have shape \(30,\) or \(30, 1\) to go with y_true, got \(29, 1\)",
        ),
        (
            lambda d: gaussian_nll(np.ones((30, 2)), d["y_pred"], d["std"]),
            r"y_pred must have shape \(30, 2\) to go with y_true, got \(30, 1\)",
        ),
        (
            lambda d: gaussian_nll(d["y_true"], d["y_pred"], -d["std"]),
            "y_std must be positive, got a smallest value of -2",
        ),
        (
            lambda d: gaussian_nll(np.ones((30, 1, 1)), d["y_pred"], d["std"]),
            r"y_true must have 1 or 2 dimension\(s\), got shape \(30, 1, 1\)",
        ),
        (
            lambda d: mixture_nll(d["y_true"], d["members"][:, :, 0]),
            r"y_members must have 4 dimension\(s\), got shape \(30, 4, 2\)",
        ),
        (
            lambda d: crps(d["y_true"], np.swapaxes(d["members"], 0, 1)),
            r"y_members must have shape .* \(30, S, 1, 2\) to go with y_true, got \(4, 30, 1, 2\)",
        ),
        (
            lambda d: mixture_nll(d["y_true"], 0 * d["members"]),
            r"variances y_members\[..., 1\] must be positive, got a smallest value of 0",
        ),
        (
            lambda d: ause(d["y_true"], d["y_pred"], np.ones((30, 2))),
            r"uncertainty must have shape \(30,\) or \(30, 1\) to go with y_true, got \(30, 2\)",
        ),
        (
            lambda d: interval_coverage(d["y_true"], d["quantiles"]),
            r"y_interval must have shape \(30, 2\) or \(30, 1, 2\), got \(30, 4\)",
        ),
        (
            lambda d: interval_width(d["interval"][:, ::-1]),
            r"y_interval must have its lower end first.* 30 row\(s\) have not.* row 0",
        ),
        (
            lambda d: interval_score(d["y_true"], d["interval"], coverage=90),
            "coverage == 90, must be < 1",
        ),
        (
            lambda d: regression_calibration_curve(d["y_true"], d["quantiles"], [0.5, 0.6]),
            r"y_quantiles must have shape \(30, 2\) or \(30, 1, 2\), got \(30, 4\)",
        ),
        (
            lambda d: regression_calibration_error(d["y_true"], d["quantiles"][:, :2], [0.6, 0.5]),
            r"quantiles must increase and lie strictly between 0 and 1, got \[0.6, 0.5\]",
        ),
        (
            lambda d: uncertainty_total_variation(d["std"], d["std"], bins=0),
            "bins == 0, must be >= 1",
        ),
        (
            lambda d: uncertainty_total_variation(d["std"], np.ones((5, 2))),
            "b must have as many targets as a, got 2 where a has 1",
        ),
        (
            lambda d: epistemic_fidelity(d["std"], d["std"][1:]),
            r"student must have shape \(30,\) or \(30, 1\) to go with teacher, got \(29, 1\)",
        ),
        (
            lambda d: epistemic_fidelity(-d["std"], d["std"]),
            "teacher must not be negative, got a smallest value of -2",
        ),
        (lambda d: make_interval_scorer(1.0), "coverage == 1.0, must be < 1"),
    ],
)
def test_errors_name_the_argument_the_given_and_the_accepted(call, message):
    with pytest.raises(ValueError, match=message):
        call(make_predictions())


# Proper scores


@shapes
def test_gaussian_nll_is_scipys(n_targets):
    data = make_predictions(n_targets)
    expected = -stats.norm.logpdf(data["y_true"], data["y_pred"], data["std"]).mean()
    assert_allclose(gaussian_nll(data["y_true"], data["y_pred"], data["std"]), expected)


def test_mixture_nll_by_hand():
    # Half N(0, 1), half N(2, 4) at y = 1: densities exp(-1/2) / sqrt(2 pi), exp(-1/8) / sqrt(8 pi).
    members = np.array([[[[0.0, 1.0]], [[2.0, 4.0]]]])
    density = (np.exp(-1 / 2) / np.sqrt(2 * np.pi) + np.exp(-1 / 8) / np.sqrt(8 * np.pi)) / 2
    assert_allclose(mixture_nll([1.0], members), -np.log(density))


def test_mixture_nll_far_from_every_member_is_finite():
    members = np.array([[[[0.0, 1.0]], [[1.0, 1.0]]]])
    assert_allclose(
        mixture_nll([1e3], members), (1e3 - 1) ** 2 / 2 + np.log(2 * np.pi) / 2 + np.log(2)
    )


@pytest.mark.parametrize("n_copies", [1, 5])
@shapes
def test_one_member_is_a_gaussian(n_copies, n_targets):
    data = make_predictions(n_targets)
    y_true, y_pred, std = data["y_true"], data["y_pred"], data["std"]
    member = np.stack([y_pred, std**2], axis=-1).reshape(len(y_true), 1, -1, 2)
    members = np.repeat(member, n_copies, axis=1)
    assert_allclose(mixture_nll(y_true, members), gaussian_nll(y_true, y_pred, std))
    expected = scoringrules.crps_normal(y_true, y_pred, std).mean()
    assert_allclose(crps(y_true, members), expected)


def test_crps_is_the_integral():
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


def test_crps_of_a_sharp_prediction_is_the_absolute_error():
    data = make_predictions()
    members = np.stack([data["y_pred"], np.full(30, 1e-20)], axis=-1)[:, None, None, :]
    assert_allclose(
        crps(data["y_true"], members), mean_absolute_error(data["y_true"], data["y_pred"])
    )


def test_crps_does_not_depend_on_the_chunks():
    data = make_predictions(2)
    expected = crps(data["y_true"], data["members"])
    with sklearn.config_context(working_memory=1e-5):  # MiB: one row at a time
        assert metrics._crps_batch_size(4, 2) == 1
        assert_allclose(crps(data["y_true"], data["members"]), expected, rtol=1e-14)


def test_crps_without_scoringrules(monkeypatch):
    monkeypatch.setitem(sys.modules, "scoringrules", None)
    data = make_predictions()
    with pytest.raises(ImportError, match=r"pip install skdistill\[metrics\]"):
        crps(data["y_true"], data["members"])


# Sparsification


def test_sparsification_by_hand():
    # Squared errors 4, 1, 0, 1 and uncertainties that remove 1, 4, 1, 0 in this order.
    fraction, model, oracle = sparsification_curve([2, 1, 0, 1], [0, 0, 0, 0], [0.3, 0.4, 0.1, 0.2])
    assert_array_equal(fraction, [0, 0.25, 0.5, 0.75, 1])
    assert_allclose(model, np.array([6 / 4, 5 / 3, 1 / 2, 0, 0]) / (6 / 4))
    assert_allclose(oracle, np.array([6 / 4, 2 / 3, 1 / 2, 0, 0]) / (6 / 4))
    area = 0.25 * (5 / 3 - 2 / 3) / (6 / 4)
    assert_allclose(ause([2, 1, 0, 1], [0, 0, 0, 0], [0.3, 0.4, 0.1, 0.2]), area)


def test_sparsification_is_the_plain_loop():
    rng = np.random.default_rng(0)
    y_true, uncertainty = rng.normal(size=(2, 50))
    squared = y_true**2

    def loop(by):
        remaining = squared[np.argsort(-by)]
        curve = [remaining[k:].mean() for k in range(50)]
        return np.array([*curve, curve[-1]]) / squared.mean()

    fraction, model, oracle = sparsification_curve(y_true, np.zeros(50), uncertainty)
    assert_allclose(fraction, np.arange(51) / 50, atol=1e-15)
    assert_allclose(model, loop(uncertainty))
    assert_allclose(oracle, loop(squared))
    expected = auc(fraction, loop(uncertainty) - loop(squared))
    assert_allclose(ause(y_true, np.zeros(50), uncertainty), expected)


def test_sparsification_of_ties_is_the_expectation_over_their_orders():
    rng = np.random.default_rng(0)
    y_true = rng.normal(size=12)
    uncertainty = np.repeat([1.0, 2.0, 3.0], 4)
    curves = [
        sparsification_curve(y_true, np.zeros(12), uncertainty + 1e-3 * rng.uniform(size=12))[1]
        for _ in range(20_000)
    ]
    _, model, _ = sparsification_curve(y_true, np.zeros(12), uncertainty)
    assert_allclose(model, np.mean(curves, axis=0), atol=0.01)


def test_constant_uncertainty_gives_a_flat_curve():
    y_true = np.random.default_rng(0).normal(size=20)
    fraction, model, oracle = sparsification_curve(y_true, np.zeros(20), np.ones(20))
    assert_allclose(model, 1)
    assert_allclose(ause(y_true, np.zeros(20), np.ones(20)), 1 - auc(fraction, oracle))


@shapes
def test_ause_of_the_absolute_error_is_zero(n_targets):
    data = make_predictions(n_targets)
    error = np.abs(data["y_true"] - data["y_pred"])
    assert ause(data["y_true"], data["y_pred"], error) == pytest.approx(0, abs=1e-14)
    assert ause(data["y_true"], data["y_pred"], data["std"]) > 0.05


def test_ause_depends_on_the_order_only():
    data = make_predictions()
    y_true, y_pred, std = data["y_true"], data["y_pred"], data["std"]
    assert ause(y_true, y_pred, std) == ause(y_true, y_pred, std**2)
    assert_allclose(ause(5 * y_true, 5 * y_pred, std), ause(y_true, y_pred, std), rtol=1e-12)


def test_no_order_lies_below_the_oracle():
    data = make_predictions(2)
    weights = np.random.default_rng(3).uniform(size=30)
    for uncertainty in (data["std"], data["std"][:, 0], -data["std"]):
        _, model, oracle = sparsification_curve(
            data["y_true"], data["y_pred"], uncertainty, sample_weight=weights
        )
        assert model[0] == oracle[0] == 1
        assert (model >= oracle - 1e-12).all()


def test_one_uncertainty_orders_every_target():
    data = make_predictions(2)
    one = data["std"][:, 0]
    both = np.column_stack([one, one])
    assert ause(data["y_true"], data["y_pred"], one) == ause(data["y_true"], data["y_pred"], both)


def test_curves_of_several_targets_average():
    rng = np.random.default_rng(0)
    y_true, uncertainty = rng.normal(size=(2, 20, 3))
    _, *curves = sparsification_curve(y_true, np.zeros((20, 3)), uncertainty)
    singles = [
        sparsification_curve(y, np.zeros(20), u)[1:]
        for y, u in zip(y_true.T, uncertainty.T, strict=True)
    ]
    assert_allclose(curves, np.mean(singles, axis=0))


def test_ause_of_perfect_predictions_is_undefined():
    with pytest.warns(UndefinedMetricWarning, match="every error is zero") as record:
        assert np.isnan(ause([1.0, 2.0], [1.0, 2.0], [0.1, 0.2]))
    assert record[0].filename == __file__


# Intervals and quantiles


def test_coverage_counts_the_ends():
    y_interval = np.array([[0.0, 1.0]] * 5)
    assert interval_coverage([0.0, 1.0, 0.5, -0.1, 1.1], y_interval) == 0.6
    assert interval_width(y_interval) == 1


@shapes
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_interval_score_is_scoringrules(n_targets, coverage):
    data = make_predictions(n_targets)
    lower, upper = np.moveaxis(data["interval"], -1, 0)
    expected = scoringrules.interval_score(data["y_true"], lower, upper, 1 - coverage).mean()
    score = interval_score(data["y_true"], data["interval"], coverage=coverage)
    assert_allclose(score, expected)


def test_interval_score_by_hand():
    # Width 2; 3 above at alpha = .2 costs 2 / .2 * 3 = 30, 1 below 10.
    y_interval = np.array([[0.0, 2.0]] * 3)
    assert_allclose(interval_score([5.0, -1.0, 1.0], y_interval, coverage=0.8), 2 + 40 / 3)


def test_interval_score_is_least_at_the_true_quantiles():
    y_true = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    half_widths = stats.norm.ppf(0.95) * np.array([0.9, 1.0, 1.1])
    scores = [
        interval_score(y_true, np.tile([-h, h], (len(y_true), 1)), coverage=0.9)
        for h in half_widths
    ]
    assert np.argmin(scores) == 1


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


def test_opposite_miscalibrations_of_targets_do_not_cancel():
    y_true = np.tile(np.linspace(0.005, 0.995, 100)[:, None], (1, 2))
    levels = [0.3, 0.7]
    y_quantiles = np.tile([[0.2, 0.6], [0.4, 0.8]], (100, 1, 1))
    _, observed = regression_calibration_curve(y_true, y_quantiles, levels)
    assert_allclose(observed, levels)
    assert_allclose(regression_calibration_error(y_true, y_quantiles, levels), 0.1)


# Comparing uncertainties


def test_total_variation_by_hand():
    # Bins [0, 1), [1, 2]: shares 3/4, 1/4 against 1/2, 1/2.
    assert uncertainty_total_variation([0, 0, 0.5, 2], [0, 2], bins=2) == 0.25


def test_total_variation_is_a_distance_between_0_and_1():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2, size=200), rng.gamma(3, size=150)
    assert uncertainty_total_variation(a, a) == 0
    assert uncertainty_total_variation(np.ones(4), np.ones(3)) == 0
    assert_allclose(uncertainty_total_variation(a, a + 100), 1)
    assert 0 < uncertainty_total_variation(a, b) < 1
    assert uncertainty_total_variation(a, b) == uncertainty_total_variation(b, a)


def test_total_variation_is_half_of_the_papers_sum():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2, size=200), rng.gamma(3, size=150)
    edges = np.linspace(min(a.min(), b.min()), max(a.max(), b.max()), 51)
    paper = np.abs(np.histogram(a, edges)[0] / 200 - np.histogram(b, edges)[0] / 150).sum()
    assert_allclose(uncertainty_total_variation(a, b), paper / 2)


def test_total_variation_weighs_each_sample_by_its_own():
    a, b = [0.0, 1.0], [0.0, 1.0, 1.0]
    assert uncertainty_total_variation(a, b, a_weights=[1, 2]) == pytest.approx(0)
    assert uncertainty_total_variation(a, b, b_weights=[2, 1, 1]) == pytest.approx(0)
    with pytest.raises(ValueError, match="b_weights must have shape"):
        uncertainty_total_variation(a, b, b_weights=[1, 2])


def test_fidelity_by_hand():
    fidelity = epistemic_fidelity([1.0, 2.0, 5.0, 4.0], [2.0, 1.0, 5.0, 8.0])
    # Ranks 1 2 4 3 and 2 1 3 4: 1 - 6 * 4 / (4 * 15); ratios 2, .5, 1, 2; |s - t| = 1, 1, 0, 4.
    assert_allclose(fidelity, [0.6, 1.5, 0.5])
    assert fidelity._fields == ("rank_correlation", "median_ratio", "relative_error")


@pytest.mark.parametrize("n_samples", [7, 30])
def test_fidelity_without_weights_is_scipy_and_numpy(n_samples):
    data = make_predictions(n_samples=n_samples)
    teacher, student = data["std"], data["other_std"]
    fidelity = epistemic_fidelity(teacher, student)
    assert_allclose(fidelity.rank_correlation, stats.spearmanr(teacher, student).statistic)
    assert_allclose(fidelity.median_ratio, np.median(student / teacher))
    assert_allclose(fidelity.relative_error, np.abs(student - teacher).mean() / teacher.mean())


def test_fidelity_of_a_scaled_teacher():
    teacher = np.random.default_rng(0).gamma(1, size=20)
    assert_allclose(epistemic_fidelity(teacher, teacher), [1, 1, 0])
    assert_allclose(epistemic_fidelity(teacher, 0.4 * teacher), [1, 0.4, 0.6])


def test_fidelity_of_constants_is_undefined():
    with pytest.warns(UndefinedMetricWarning, match="is constant") as record:
        fidelity = epistemic_fidelity([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    assert record[0].filename == __file__
    assert np.isnan(fidelity.rank_correlation)
    assert_allclose(fidelity[1:], [1, 2 / 6])

    with (
        pytest.warns(UndefinedMetricWarning, match="is constant"),
        pytest.warns(UndefinedMetricWarning, match="zero everywhere"),
    ):
        fidelity = epistemic_fidelity([0.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    assert np.isnan(fidelity.relative_error)
    assert fidelity.median_ratio == 1


def test_ratio_to_a_zero_of_the_teacher():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ratio = epistemic_fidelity(
            [0.0, 0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 0.5, 1.0, 4.5]
        ).median_ratio
    assert ratio == 1  # of 1 (0 / 0), inf, .5, .5, 1.5


# Scorers


class KnownRegressor(RegressorMixin, BaseEstimator):
    """Reads its members off the columns of X, (mean, variance) each; `inflate` spoils them."""

    def __init__(self, inflate=1.0):
        self.inflate = inflate

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = X.shape[1]
        return self

    def predict_members(self, X):
        members = X.reshape(len(X), -1, 1, 2).copy()
        members[..., 1] *= self.inflate
        return members

    def predict(self, X):
        return self.predict_members(X)[..., 0].mean(axis=(1, 2))

    def predict_uncertainty(self, X):
        members = self.predict_members(X)[:, :, 0]
        aleatoric, epistemic = members[..., 1].mean(axis=1), members[..., 0].var(axis=1)
        return SimpleNamespace(
            total=aleatoric + epistemic,
            aleatoric=aleatoric,
            epistemic=epistemic,
            measure="variance",
        )

    def predict_interval(self, X, coverage=0.9):
        half = stats.norm.ppf((1 + coverage) / 2) * np.sqrt(self.predict_uncertainty(X).total)
        return self.predict(X)[:, None] + half[:, None] * np.array([-1, 1])


def make_members_table(n_samples=40, n_members=3, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.1, 2.0, size=(n_samples, 1))
    means = rng.normal(size=(n_samples, 1)) + 0.3 * rng.normal(size=(n_samples, n_members))
    members = np.stack([means, np.broadcast_to(noise**2, means.shape)], axis=-1)
    y = means.mean(axis=1) + noise[:, 0] * rng.normal(size=n_samples)
    return members.reshape(n_samples, -1), y


SCORERS = {
    "mixture_nll": (
        neg_mixture_nll_scorer,
        lambda m, X, y, **w: mixture_nll(y, m.predict_members(X), **w),
    ),
    "crps": (neg_crps_scorer, lambda m, X, y, **w: crps(y, m.predict_members(X), **w)),
    "gaussian_nll": (
        neg_gaussian_nll_scorer,
        lambda m, X, y, **w: gaussian_nll(
            y, m.predict(X), np.sqrt(m.predict_uncertainty(X).total), **w
        ),
    ),
    "ause": (
        neg_ause_scorer,
        lambda m, X, y, **w: ause(y, m.predict(X), m.predict_uncertainty(X).total, **w),
    ),
    "interval_score": (
        neg_interval_score_scorer,
        lambda m, X, y, **w: interval_score(y, m.predict_interval(X, 0.9), coverage=0.9, **w),
    ),
    "interval_score_half": (
        make_interval_scorer(coverage=0.5),
        lambda m, X, y, **w: interval_score(y, m.predict_interval(X, 0.5), coverage=0.5, **w),
    ),
}
all_scorers = pytest.mark.parametrize(("scorer", "metric"), SCORERS.values(), ids=SCORERS)


@all_scorers
def test_scorer_is_minus_the_metric(scorer, metric):
    X, y = make_members_table()
    model = KnownRegressor().fit(X, y)
    weights = np.random.default_rng(0).uniform(size=len(y))
    assert scorer(model, X, y) == -metric(model, X, y)
    assert scorer(model, X, y, weights) == -metric(model, X, y, sample_weight=weights)
    assert scorer(model, X, y, sample_weight=weights) != scorer(model, X, y)


@all_scorers
def test_scorer_survives_pickling_and_shows_itself(scorer, metric):
    X, y = make_members_table()
    model = KnownRegressor().fit(X, y)
    copied = pickle.loads(pickle.dumps(scorer))
    assert copied(model, X, y) == scorer(model, X, y)
    assert repr(copied) == repr(scorer)


def test_repr_of_scorers():
    assert repr(neg_crps_scorer) == "UncertaintyScorer(neg_crps)"
    assert repr(make_interval_scorer(0.5)) == "UncertaintyScorer(neg_interval_score, coverage=0.5)"


def test_scorers_across_processes():
    X, y = make_members_table()
    scoring = {name: scorer for name, (scorer, _) in SCORERS.items()}
    here = cross_validate(KnownRegressor(), X, y, cv=2, scoring=scoring, error_score="raise")
    there = cross_validate(
        KnownRegressor(), X, y, cv=2, scoring=scoring, error_score="raise", n_jobs=2
    )
    for name in scoring:
        assert_array_equal(here[f"test_{name}"], there[f"test_{name}"])


@pytest.mark.parametrize("name", ["mixture_nll", "crps", "gaussian_nll", "interval_score"])
def test_grid_search_finds_the_honest_variance(name):
    X, y = make_members_table(n_samples=200)
    grid = {"inflate": [0.01, 1.0, 100.0]}
    search = GridSearchCV(KnownRegressor(), grid, scoring=SCORERS[name][0], cv=2).fit(X, y)
    assert search.best_params_ == {"inflate": 1.0}
    assert search.score(X, y) == SCORERS[name][0](search.best_estimator_, X, y)


def test_weights_reach_the_scorers_of_a_search():
    X, y = make_members_table()
    weights = np.tile([1.0, 3.0], 20)
    scoring = {"crps": neg_crps_scorer, "r2": "r2"}
    search = GridSearchCV(KnownRegressor(), {"inflate": [1.0]}, scoring=scoring, refit="crps", cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.set_params(
            estimator=KnownRegressor().set_fit_request(sample_weight=True),
            scoring={"crps": neg_crps_scorer.set_score_request(sample_weight=True)},
        )
        search.fit(X, y, sample_weight=weights)
    expected = [
        -SCORERS["crps"][1](KnownRegressor(), X[rows], y[rows], sample_weight=weights[rows])
        for rows in (slice(0, 20), slice(20, 40))
    ]
    assert_allclose([search.cv_results_[f"split{i}_test_crps"][0] for i in (0, 1)], expected)


def test_weights_without_routing():
    # scikit-learn >= 1.9 hands fit's weights on to the scorers, which it asks whether they take any
    X, y = make_members_table()
    scoring = {"crps": neg_crps_scorer, "nll": neg_mixture_nll_scorer}
    search = GridSearchCV(KnownRegressor(), {"inflate": [1.0]}, scoring=scoring, refit="crps", cv=2)
    search.fit(X, y, sample_weight=np.tile([1.0, 3.0], 20))
    assert np.isfinite(search.best_score_)


def test_requests_are_set_on_a_copy():
    with sklearn.config_context(enable_metadata_routing=True):
        requesting = neg_crps_scorer.set_score_request(sample_weight="importance")
        assert requesting is not neg_crps_scorer
        assert requesting.get_metadata_routing().score.requests == {"sample_weight": "importance"}
        assert neg_crps_scorer.get_metadata_routing().score.requests == {"sample_weight": None}


def test_weights_that_no_one_requested_are_refused():
    X, y = make_members_table()
    params = {"sample_weight": np.ones(len(y))}
    with sklearn.config_context(enable_metadata_routing=True):
        model = KnownRegressor().set_fit_request(sample_weight=True)
        with pytest.raises(ValueError, match=r"sample_weight.*not explicitly set as requested"):
            cross_validate(model, X, y, scoring=neg_crps_scorer, params=params)


def test_scorer_serves_permutation_importance():
    X, y = make_members_table()
    model = KnownRegressor().fit(X, y)
    importance = permutation_importance(
        model, X, y, scoring=neg_crps_scorer, n_repeats=3, random_state=0
    )
    assert importance.importances_mean[::2].min() > 0  # the means


@all_scorers
@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: make_pipeline("passthrough", model),
        lambda model: GridSearchCV(model, {"inflate": [1.0]}, cv=2),
        lambda model: TransformedTargetRegressor(model),
    ],
    ids=["Pipeline", "GridSearchCV", "TransformedTargetRegressor"],
)
def test_scorer_sees_through_meta_estimators(scorer, metric, wrap):
    X, y = make_members_table()
    model = KnownRegressor().fit(X, y)
    assert_allclose(scorer(wrap(model).fit(X, y), X, y), scorer(model, X, y), rtol=1e-10)


@pytest.mark.parametrize("scorer", [neg_gaussian_nll_scorer, neg_ause_scorer])
def test_scorers_of_the_variance_refuse_entropies(scorer):
    class Classifier(KnownRegressor):
        def predict_uncertainty(self, X):
            return SimpleNamespace(total=np.ones(len(X)), measure="entropy")

    X, y = make_members_table()
    with pytest.raises(ValueError, match=r"needs a regressor.*got measure='entropy'"):
        scorer(Classifier(), X, y)


def test_a_scorer_of_ones_own():
    def neg_largest_error(estimator, X, y, *, sample_weight, power):
        return -float(np.abs(estimator.predict(X) - y).max() ** power)

    X, y = make_members_table()
    scorer = UncertaintyScorer(neg_largest_error, power=2)
    assert repr(scorer) == "UncertaintyScorer(neg_largest_error, power=2)"
    assert scorer(KnownRegressor(), X, y) < 0
