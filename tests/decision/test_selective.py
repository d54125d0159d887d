# SPDX-License-Identifier: BSD-3-Clause
"""Thresholds against tests one by one, and promises against risks that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_iris
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill.decision import SelectivePredictor
from skdistill.decision._selective import (
    accepted_threshold,
    betting_p_value,
    binomial_p_value,
)

# P-values -----------------------------------------------------------------------------------------


def test_p_values_of_losses_of_0_and_1_are_those_of_the_binomial_test():
    for n_errors, n in [(0, 10), (3, 40), (9, 50)]:
        expected = binomtest(n_errors, n, 0.2, alternative="less").pvalue
        np.testing.assert_allclose(binomial_p_value(np.arange(n) < n_errors, 0.2), expected)


def test_p_values_of_other_losses_are_rarely_small_where_the_risk_is_as_large():
    draws = np.random.default_rng(0).beta(0.2, 1.8, size=(2000, 100))  # of mean .1
    p_values = np.array([betting_p_value(losses, 0.1, 0.1) for losses in draws])
    for level in (0.05, 0.1, 0.3):
        n_below = np.sum(p_values <= level)
        assert n_below <= 2000 * level + 3 * math.sqrt(2000 * level * (1 - level))
    smaller = [betting_p_value(losses / 2, 0.1, 0.1) for losses in draws]
    assert np.mean(np.array(smaller) <= 0.1) > 0.9


def test_p_values_of_other_losses_are_those_of_the_definition():
    losses = np.random.default_rng(0).beta(1, 9, size=50)
    capital = most = 1.0
    for i, loss in enumerate(losses):
        means = [(0.5 + losses[: j + 1].sum()) / (2 + j) for j in range(i)]
        variance = (0.25 + np.sum((losses[:i] - means) ** 2)) / (1 + i)
        bet = min(1, math.sqrt(2 * math.log(1 / 0.2) / (50 * variance)))
        capital *= 1 - bet * (loss - 0.15)
        most = max(most, capital)
    np.testing.assert_allclose(betting_p_value(losses, 0.15, 0.2), 1 / most)
    assert most > 1.5


# Thresholds ---------------------------------------------------------------------------------------


def threshold_one_by_one(uncertainty, losses, risk, delta, min_coverage):
    """The same threshold, found as the documentation says."""
    n = len(losses)
    ends = sorted(uncertainty.tolist()) + [math.inf]
    least = 2 * math.ceil(math.log(delta) / math.log(1 - risk))
    found = -math.inf
    for count in range(min(max(math.ceil(min_coverage * n), least), n), n + 1):
        below = losses[np.argsort(uncertainty, kind="stable")[:count]]
        if binomtest(int(below.sum()), count, risk, alternative="less").pvalue > delta:
            break
        if ends[count] > ends[count - 1]:
            found = ends[count]
    return found


@pytest.mark.parametrize("n_decimals", [1, 8])  # with ties, and without
def test_threshold_is_the_last_of_the_sequence(n_decimals):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        uncertainty = rng.random(120).round(n_decimals)
        losses = rng.random(120) < 0.4 * uncertainty
        expected = threshold_one_by_one(uncertainty, losses, 0.1, 0.2, 0.3)
        found, p_value = accepted_threshold(uncertainty, losses, 0.1, 0.2, 0.3)
        assert found == expected
        assert p_value <= 0.2 or (found == -math.inf and p_value == 1)


# Risks of samples with an uncertainty u, uniform from 0 to 1, and what the risk below t is.
RISKS = {
    "rises": (lambda u: 0.6 * u**2, lambda t: 0.2 * t**2),
    "sure and wrong": (
        lambda u: np.where(u < 0.1, 0.3, np.where(u < 0.6, 0.0, 0.5)),
        lambda t: (0.3 * min(t, 0.1) + 0.5 * max(t - 0.6, 0)) / t,
    ),
    "of no use": (lambda u: np.full(len(u), 0.11), lambda t: 0.11),
}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", RISKS)
def test_promise_is_kept(name, binary):
    """Broken in a share delta of 1,000 draws at most, within three standard errors."""
    risk_at, risk_below = RISKS[name]
    delta, max_risk, n_draws = 0.2, 0.1, 1000
    n_broken, coverages = 0, []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        uncertainty = rng.random(400)
        losses = rng.random(400) < risk_at(uncertainty)
        if not binary:  # of the same mean
            losses = np.where(rng.random(400) < 0.5, losses, risk_at(uncertainty))
        threshold, _ = accepted_threshold(uncertainty, losses, max_risk, delta, 0.3)
        coverages.append(np.clip(threshold, 0, 1))
        n_broken += threshold > 0 and risk_below(min(threshold, 1)) > max_risk
    assert n_broken <= n_draws * delta + 3 * math.sqrt(n_draws * delta * (1 - delta))
    if name == "rises" and binary:
        assert n_broken > 0.02 * n_draws  # it promises no more than it is asked to
        assert np.mean(coverages) > 0.5  # of .71


# The predictor ------------------------------------------------------------------------------------


def samples_of_classes(n=600, seed=0):
    """Predicted classes and uncertainties; errors are as likely as the uncertainty is large."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(3, size=n), rng.random(n)])
    y = (X[:, 0] + (rng.random(n) < 0.5 * X[:, 1] ** 2)) % 3
    return X, y.astype(int)


def test_a_classifier_abstains_where_it_is_uncertain(classifier):
    X, y = samples_of_classes()
    model = SelectivePredictor(classifier, 0.1, random_state=0).fit(X, y)
    answered = X[:, 1] < model.threshold_
    assert 0.5 < model.threshold_ < 0.85  # the risk below t is t^2 / 6
    np.testing.assert_array_equal(model.answers(X), answered)
    np.testing.assert_array_equal(model.predict(X), np.where(answered, X[:, 0], -1))
    assert model.coverage_ == answered.mean()
    assert model.risk_ == (X[:, 0] != y)[answered].mean() <= 0.1
    assert model.score(X, y) == 1 - model.risk_
    assert model.p_value_ <= 0.1
    assert model.predict(X).dtype == int
    weight = np.where(X[:, 0] == y, 3.0, 1.0)
    n_wrong = model.risk_ * answered.sum()
    expected = 1 - n_wrong / (3 * (answered.sum() - n_wrong) + n_wrong)
    np.testing.assert_allclose(model.score(X, y, sample_weight=weight), expected)


def samples_of_numbers(n=1000, seed=0):
    """Samples whose variance is that in the last column."""
    rng = np.random.default_rng(seed)
    variance = rng.random(n)
    return np.column_stack([np.ones(n), variance]), np.sqrt(variance) * rng.standard_normal(n)


@pytest.mark.parametrize(
    ("loss", "function", "max_risk"),
    [
        ("squared_error", np.square, 0.3),
        ("auto", np.square, 0.3),
        ("absolute_error", np.abs, 0.45),
        (lambda y, predicted: (y - predicted) ** 2, np.square, 0.3),
    ],
)
def test_a_regressor_says_nan_where_it_is_uncertain(regressor, loss, function, max_risk):
    X, y = samples_of_numbers()
    model = SelectivePredictor(regressor, max_risk, loss=loss, max_loss=2).fit(X, y)
    answered = X[:, 1] < model.threshold_
    assert 0.1 < answered.mean() < 0.7
    np.testing.assert_array_equal(model.predict(X), np.where(answered, 0, np.nan))
    np.testing.assert_allclose(model.risk_, np.minimum(function(y[answered]), 2).mean())
    assert model.risk_ < max_risk
    assert not hasattr(model, "classes_")


def test_where_nothing_can_be_promised_nothing_is_answered(classifier):
    X, y = samples_of_classes()
    model = SelectivePredictor(classifier, 1e-4)
    with pytest.warns(UserWarning, match=r"max_risk=0.0001 with probability 0.9: all samples"):
        model.fit(X, y)
    assert (model.threshold_, model.coverage_, model.p_value_) == (-math.inf, 0, 1)
    assert math.isnan(model.risk_)
    assert (model.predict(X) == -1).all()
    with pytest.warns(UndefinedMetricWarning, match="no sample is answered"):
        assert math.isnan(model.score(X, y))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_risk": 1}, "max_loss must be a number larger than max_risk=1, got 1"),
        ({"loss": lambda y, p: -1.0 * (y == p), "max_loss": 1}, "not negative"),
        ({"loss": lambda y, p: np.zeros(3), "max_loss": 1}, r"600 values .* shape \(3,\)"),
        ({"loss": lambda y, p: 1.0 * (y == p)}, "max_loss must be .* got None"),
        ({"abstain_value": 1}, "abstain_value must be no class, got 1"),
    ],
)
def test_what_is_wrong_is_named(classifier, params, message):
    X, y = samples_of_classes()
    with pytest.raises(ValueError, match=message):
        SelectivePredictor(classifier, **params).fit(X, y)


def test_an_estimator_that_is_not_frozen_is_fitted_on_other_samples():
    X, y = load_iris(return_X_y=True)
    ensemble = BayesianEnsembleClassifier(2, max_epochs=40, random_state=0)
    model = SelectivePredictor(ensemble, 0.3, held_out=0.4, random_state=0).fit(X, y)
    assert model.n_features_in_ == 4
    again = SelectivePredictor(FrozenEstimator(model.estimator_), 0.3).fit(X, y)
    np.testing.assert_array_equal(again.estimator_.predict(X), model.estimator_.predict(X))
    fresh = SelectivePredictor(ensemble, 0.3, held_out=0.4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(fresh.predict(X), model.predict(X))
    assert fresh.coverage_ == model.coverage_ == pytest.approx(round(60 * model.coverage_) / 60)


# All samples are answered: scikit-learn's checks know of no abstention.
ANSWERING = {"delta": 0.9, "min_coverage": 1.0, "random_state": 0}
SMALL = {"n_members": 2, "max_epochs": 3, "random_state": 0}
EXEMPT = {
    "check_classifiers_classes": "-1 is a class there: abstain_value has to be another",
    "check_dtype_object": "the odd sample may be held out, and predicting raises another error",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        SelectivePredictor(BayesianEnsembleClassifier(**SMALL), 0.99, **ANSWERING),
        SelectivePredictor(BayesianEnsembleRegressor(**SMALL), 1e6, max_loss=1e7, **ANSWERING),
    ],
)
def test_contract_of_scikit_learn(model, contract):
    contract(model, EXEMPT)
