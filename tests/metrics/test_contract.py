# SPDX-License-Identifier: BSD-3-Clause
"""What all metrics keep to: weights, order of samples, targets, types, errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdistill.metrics import (
    aurc,
    ause,
    crps,
    epistemic_fidelity,
    expected_calibration_error,
    gaussian_nll,
    interval_coverage,
    mixture_nll,
    ood_auroc,
    prediction_rejection_ratio,
    regression_calibration_error,
    risk_coverage_curve,
    uncertainty_ndcg,
    uncertainty_total_variation,
)


def total_variation_of_pair(a, b, *, sample_weight=None):
    return uncertainty_total_variation(
        a, b, bins=7, a_weights=sample_weight, b_weights=sample_weight
    )


def error_at_quantiles(y_true, y_quantiles, *, sample_weight=None):
    levels = [0.1, 0.25, 0.5, 0.9]
    return regression_calibration_error(y_true, y_quantiles, levels, sample_weight=sample_weight)


def auroc_of_pair(inside, outside, *, sample_weight=None):
    return ood_auroc(inside, outside, in_weights=sample_weight, out_weights=sample_weight)


def error_in_equal_bins(y_true, y_prob, *, sample_weight=None):
    return expected_calibration_error(y_true, y_prob, n_bins=7, sample_weight=sample_weight)


def classwise_error(y_true, y_prob, *, sample_weight=None):
    return expected_calibration_error(y_true, y_prob, classwise=True, sample_weight=sample_weight)


# Every metric as a function of arrays with one row per sample, by the names of what it takes:
# those that average over targets, and those of one target.
OF_TARGETS = {
    gaussian_nll: ("y_true", "y_pred", "std"),
    mixture_nll: ("y_true", "members"),
    crps: ("y_true", "members"),
    ause: ("y_true", "y_pred", "std"),
    interval_coverage: ("y_true", "interval"),
    error_at_quantiles: ("y_true", "quantiles"),
    total_variation_of_pair: ("std", "other_std"),
    epistemic_fidelity: ("std", "other_std"),
}
OF_ONE = {
    expected_calibration_error: ("labels", "y_prob"),
    error_in_equal_bins: ("labels", "y_prob"),
    classwise_error: ("labels", "y_prob"),
    aurc: ("losses", "entropy"),
    prediction_rejection_ratio: ("losses", "entropy"),
    auroc_of_pair: ("losses", "entropy"),
}
CURVES = {risk_coverage_curve: ("losses", "entropy")}
NAMES = {**OF_TARGETS, **OF_ONE, **CURVES}


def parametrize(metrics):
    return pytest.mark.parametrize("metric", metrics, ids=lambda metric: metric.__name__)


all_metrics = parametrize({**OF_TARGETS, **OF_ONE})
metrics_of_targets = parametrize(OF_TARGETS)
metrics_and_curves = pytest.mark.parametrize(
    ("metric", "n_targets"),
    [
        pytest.param(metric, n_targets, id=f"{metric.__name__}-{n_targets}")
        for metrics, shapes in (
            (OF_TARGETS, [None, 1, 3]),
            ({**OF_ONE, **CURVES}, [None]),
        )
        for metric in metrics
        for n_targets in shapes
    ],
)


def arguments(metric, data):
    return [data[name] for name in NAMES[metric]]


@metrics_and_curves
def test_integer_weights_are_repetitions(metric, n_targets, make_predictions):
    arrays = arguments(metric, make_predictions(n_targets))
    weights = np.random.default_rng(1).integers(0, 4, size=len(arrays[0]))
    assert (weights == 0).any()
    repeated = [np.repeat(array, weights, axis=0) for array in arrays]
    assert_allclose(metric(*arrays, sample_weight=weights), metric(*repeated), rtol=1e-12)


@metrics_of_targets
def test_average_over_targets_is_uniform(metric, make_predictions):
    data = make_predictions(3)
    per_target = [
        metric(
            *(
                data[name][:, :, [target]] if name == "members" else data[name][:, target]
                for name in NAMES[metric]
            )
        )
        for target in range(3)
    ]
    assert_allclose(metric(*arguments(metric, data)), np.mean(per_target, axis=0), rtol=1e-12)


@all_metrics
def test_bad_values_are_named(metric, make_predictions):
    arrays = arguments(metric, make_predictions())
    for position in range(len(arrays)):
        spoilt = [array.copy() for array in arrays]
        spoilt[position].flat[0] = np.nan
        with pytest.raises(ValueError, match=r"contains NaN|must not hold NaN"):
            metric(*spoilt)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d: gaussian_nll(d["y_true"], d["y_pred"][:-1], d["std"]),
            r"y_pred must have shape \(30,\) or \(30, 1\) to go with y_true, got \(29, 1\)",
        ),
        (
            lambda d: gaussian_nll(d["y_true"], d["y_pred"], -d["std"]),
            "y_std must be positive, got a smallest value of -2",
        ),
        (
            lambda d: epistemic_fidelity(-d["std"], d["std"]),
            "teacher must not be negative, got a smallest value of -2",
        ),
        (
            lambda d: expected_calibration_error(
                [0, 1, 2], [[1, 0, 0], [0.5, 0, 0], [0, 0.1, 0.9]]
            ),
            "y_prob must have rows that sum to 1, but row 1 sums to 0.5",
        ),
        (
            lambda d: uncertainty_ndcg(d["std"], d["std"], n_candidates=10),
            "k must be an integer from 1 to 10, got 20",
        ),
    ],
)
def test_errors_name_the_argument_the_given_and_the_accepted(call, message, make_predictions):
    with pytest.raises(ValueError, match=message):
        call(make_predictions())
