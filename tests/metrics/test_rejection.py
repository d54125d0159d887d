# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate
from sklearn.metrics import auc, roc_auc_score

from skdistill.metrics import aurc, ause, prediction_rejection_ratio, risk_coverage_curve

# Uncertainties with ties, and every order in which the samples could come.
TIED = np.array([1, 2, 2, 2, 3, 3])
ORDERS = [
    TIED + np.array([0, *twos, *threes]) / 10
    for twos in permutations(range(3))
    for threes in permutations(range(2))
]

ranked = pytest.mark.parametrize("metric", [aurc, prediction_rejection_ratio])


# Sparsification


def test_ause_by_hand():
    # Squared errors 4, 1, 0, 1 and uncertainties that remove 1, 4, 1, 0 in this order: relative to
    # 6 / 4 the curves are 6/4, 5/3, 1/2, 0, 0 and 6/4, 2/3, 1/2, 0, 0.
    area = 0.25 * (5 / 3 - 2 / 3) / (6 / 4)
    assert_allclose(ause([2, 1, 0, 1], [0, 0, 0, 0], [0.3, 0.4, 0.1, 0.2]), area)


def test_ause_is_the_plain_loop():
    rng = np.random.default_rng(0)
    y_true, uncertainty = rng.normal(size=(2, 50))
    squared = y_true**2

    def loop(by):
        remaining = squared[np.argsort(-by)]
        curve = [remaining[k:].mean() for k in range(50)]
        return np.array([*curve, curve[-1]]) / squared.mean()

    expected = auc(np.arange(51) / 50, loop(uncertainty) - loop(squared))
    assert_allclose(ause(y_true, np.zeros(50), uncertainty), expected)
    constant = auc(np.arange(51) / 50, 1 - loop(squared))
    assert_allclose(ause(y_true, np.zeros(50), np.ones(50)), constant)


# Risk and coverage


def test_risk_coverage_by_hand():
    # From the surest: losses 0, 3, 0, and then 1 and 5 that tie.
    losses, uncertainty = [3.0, 0.0, 1.0, 5.0, 0.0], [0.2, 0.1, 0.9, 0.9, 0.3]
    coverage, risk = risk_coverage_curve(losses, uncertainty)
    assert_allclose(coverage, [0, 0.2, 0.4, 0.6, 1])
    assert_allclose(risk, [0, 0, 3 / 2, 3 / 3, 9 / 5])


def test_risk_coverage_is_the_plain_loop():
    losses, uncertainty = np.random.default_rng(0).normal(size=(2, 50))
    surest = losses[np.argsort(uncertainty)]
    coverage, risk = risk_coverage_curve(losses, uncertainty)
    assert_allclose(coverage, np.arange(51) / 50)
    assert_allclose(risk, [surest[0], *(surest[:k].mean() for k in range(1, 51))])


def test_accuracy_is_one_minus_the_risk_of_the_labels():
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.choice(["cat", "dog", "eel"], size=(2, 40))
    uncertainty = rng.choice([0.1, 0.3, 0.5], size=40)
    coverage, accuracy = risk_coverage_curve(y_true == y_pred, uncertainty)
    expected_coverage, risk = risk_coverage_curve(y_true != y_pred, uncertainty)
    assert_array_equal(coverage, expected_coverage)
    assert_allclose(accuracy, 1 - risk)
    assert accuracy[-1] == np.mean(y_true == y_pred)


def test_aurc_by_hand():
    # The loss that has come in by coverage c is max(0, c - 1/2): the area is that of 1 - 1 / (2 c).
    assert_allclose(aurc([0, 1], [1, 2]), 1 / 2 - np.log(2) / 2)
    assert_allclose(aurc([1, 0], [1, 2]), 1 / 2 + np.log(2) / 2)
    assert aurc([0, 0, 0], [1, 2, 3]) == 0


def test_aurc_is_the_integral_of_the_risk():
    rng = np.random.default_rng(0)
    losses, uncertainty = rng.gamma(1, size=9), rng.choice([1, 2, 3, 4], size=9)
    coverage, risk = risk_coverage_curve(losses, uncertainty)

    def mean_loss(c):
        return np.interp(c, coverage, coverage * risk) / c

    pieces = [integrate.quad(mean_loss, *ends)[0] for ends in pairwise(coverage)]
    assert_allclose(aurc(losses, uncertainty), sum(pieces))


@ranked
def test_ties_are_worth_the_mean_over_their_orders(metric):
    losses = np.random.default_rng(0).gamma(1, size=6)
    scores = [metric(losses, order) for order in ORDERS]
    assert len(set(scores)) == len(ORDERS)
    assert_allclose(metric(losses, TIED), np.mean(scores))


# Rejection ratio


def test_rejection_ratio_by_hand():
    # Losses 0, 4, 1, 1 as they are kept: of their sum 0, 4, 5, 6 have come after each sample, in
    # the best order 0, 1, 2, 6. Areas by trapezoids, less those of the straight line from 0 to 6.
    model = 12 - (0 + 2 + 4.5 + 5.5)
    best = 12 - (0 + 0.5 + 1.5 + 4)
    assert_allclose(prediction_rejection_ratio([4, 0, 1, 1], [2, 1, 3, 4]), model / best)


def test_rejection_ratio_of_errors_is_the_gini_of_their_detection():
    rng = np.random.default_rng(0)
    errors, uncertainty = rng.choice([0, 1], size=60), rng.choice(8, size=60)
    weights = rng.uniform(size=60)
    ratio = prediction_rejection_ratio(errors, uncertainty, sample_weight=weights)
    expected = 2 * roc_auc_score(errors, uncertainty, sample_weight=weights) - 1
    assert_allclose(ratio, expected)
