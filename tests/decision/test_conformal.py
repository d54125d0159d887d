# SPDX-License-Identifier: BSD-3-Clause
"""Conformal intervals against numpy's quantiles, MAPIE's intervals and known shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from skdistill import BayesianEnsembleRegressor
from skdistill.decision import ConformalRegressor

SMALL = {"n_members": 2, "max_epochs": 3, "random_state": 0}


def samples(n, seed=0, mean=0.0):
    """x ~ N(mean, 1) and y ~ N(0, exp(x)), which a model takes for one of variance 1."""
    rng = np.random.default_rng(seed)
    x = mean + rng.standard_normal(n)
    return np.column_stack([x, np.ones(n)]), np.exp(x / 2) * rng.standard_normal(n)


def ratio(X):
    """Density of N(1, 1) over that of N(0, 1)."""
    return np.exp(X[:, 0] - 0.5)


class PredictedStd(RegressorMixin, BaseEstimator):
    """As in the guide: the standard deviation that a model predicts, for MAPIE."""

    is_fitted = True

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.sqrt(self.model.predict_uncertainty(X).total)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [19, 20, 99, 250])
def test_without_weights_it_is_split_conformal_prediction(regressor, n, coverage):
    rng = np.random.default_rng(n)
    X = np.column_stack([np.zeros(n), 1 + rng.random(n)])
    y = rng.standard_normal(n)
    X_new = np.array([[0, 1.0], [0, 4.0]])
    level = math.ceil(coverage * (n + 1)) / n  # Lei et al.
    quantile = np.quantile(np.abs(y) / np.sqrt(X[:, 1]), level, method="inverted_cdf")
    expected = quantile * np.array([[-1, 1], [-2, 2]])
    for known in (None, lambda X: np.ones(len(X)), lambda X: np.full(len(X), 7.3)):
        model = ConformalRegressor(regressor, likelihood_ratio=known).fit(X, y)
        np.testing.assert_allclose(model.predict_interval(X_new, coverage), expected)
        np.testing.assert_allclose(model.n_effective_, n)
    np.testing.assert_array_equal(model.predict(X_new), [0, 0])


@pytest.mark.parametrize("scaled", [True, False])
def test_intervals_are_those_of_mapie(regressor, scaled):
    regression = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    rng = np.random.default_rng(0)
    X, y = np.column_stack([np.zeros(200), 1 + rng.random(200)]), rng.standard_normal(200)
    score = scores.AbsoluteConformityScore()
    if scaled:
        score = scores.ResidualNormalisedScore(PredictedStd(regressor), prefit=True)
    mapie = regression.SplitConformalRegressor(
        regressor, confidence_level=0.9, conformity_score=score, prefit=True
    )
    expected = mapie.conformalize(X, y).predict_interval(X)[1][:, :, 0]
    model = ConformalRegressor(regressor, uncertainty="total" if scaled else None)
    np.testing.assert_allclose(model.fit(X, y).predict_interval(X), expected, rtol=1e-6)


def test_weighted_intervals_are_those_of_the_definition(regressor):
    X, y = samples(60)
    X_new, _ = samples(40, seed=1, mean=1)
    X_new[0, 0] = 9.0  # so far off that no held-out sample tells
    model = ConformalRegressor(regressor, likelihood_ratio=ratio).fit(X, y)
    interval = model.predict_interval(X_new, 0.8)
    for row, ends in zip(X_new, interval, strict=True):
        # Quantile of sum_i p_i delta(score_i) + p_{n+1} delta(infinity), Tibshirani et al.
        weights = np.append(ratio(X), ratio(row[np.newaxis]))
        probabilities = weights / weights.sum()
        scores = np.append(np.abs(y), np.inf)
        expected = min(s for s in scores if probabilities[scores <= s].sum() >= 0.8)
        np.testing.assert_allclose(ends, [-expected, expected])
    assert np.isinf(interval[0]).all()
    assert np.isfinite(interval[1:]).any()
    total = ratio(X).sum()
    np.testing.assert_allclose(model.n_effective_, total**2 / (ratio(X) ** 2).sum())


@pytest.mark.slow
def test_known_ratios_of_a_shift_keep_the_coverage(regressor):
    """Of one new sample for each of 800 draws, so that they are independent."""
    inside = {"plain": 0, "weighted": 0}
    models = {
        "plain": ConformalRegressor(regressor),
        "weighted": ConformalRegressor(regressor, likelihood_ratio=ratio),
    }
    for seed in range(800):
        X, y = samples(300, seed=[0, seed])
        X_new, y_new = samples(1, seed=[1, seed], mean=1)
        for name, model in models.items():
            interval = model.fit(X, y).predict_interval(X_new, 0.9)
            inside[name] += abs(y_new[0]) <= interval[0, 1]
    error = 3 * math.sqrt(0.9 * 0.1 * 800)
    # From above by .9 + E[largest weight] at most; the largest of 301 weights is .035 on average.
    assert 720 - error <= inside["weighted"] <= 748 + error
    assert inside["plain"] < 690


def test_estimated_ratios_of_a_shift_keep_the_coverage(regressor):
    coverages = []
    for seed in range(40):
        X, y = samples(1000, seed=[0, seed])
        X_new, y_new = samples(1000, seed=[1, seed], mean=1)
        model = ConformalRegressor(regressor, likelihood_ratio=LogisticRegression())
        interval = model.fit(X, y, X_new).predict_interval(X_new, 0.9)
        coverages.append(np.mean(np.abs(y_new) <= interval[:, 1]))
    assert abs(np.mean(coverages) - 0.9) < 0.02  # plain intervals cover .8
    assert model.n_effective_ < 800


def test_frames_are_told_apart_too():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    is_new = X["bmi"] > 0.03
    classifier = LogisticRegression(C=100)
    model = ConformalRegressor(
        BayesianEnsembleRegressor(**SMALL), likelihood_ratio=classifier, random_state=0
    )
    model.fit(X[~is_new | (X["age"] > 0)], y[~is_new | (X["age"] > 0)], X_new=X[is_new])
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.predict_interval(X[is_new]).shape == (is_new.sum(), 2)
    assert list(model.classifier_.feature_names_in_) == list(X.columns)
    assert isinstance(model.predict_interval(X), np.ndarray)


@pytest.mark.parametrize(
    ("params", "X_new", "error", "message"),
    [
        ({"uncertainty": "std"}, None, ValueError, "uncertainty must be one of"),
        ({"uncertainty": "epistemic"}, None, ValueError, "cannot tell the parts"),
        ({"likelihood_ratio": 2.0}, None, TypeError, "likelihood_ratio must be None, callable"),
        ({"likelihood_ratio": LogisticRegression()}, None, ValueError, "X_new must be given"),
        ({"likelihood_ratio": ratio}, np.ones((3, 2)), ValueError, "X_new must be given if"),
        ({"likelihood_ratio": lambda X: -X[:, 1]}, None, ValueError, "50 numbers that are not neg"),
        ({"likelihood_ratio": lambda X: np.ones(3)}, None, ValueError, r"got shape \(3,\)"),
        ({"likelihood_ratio": lambda X: 0 * X[:, 1]}, None, ValueError, "positive finite sum"),
        ({"held_out": 0}, None, ValueError, "held_out must be"),
    ],
)
def test_what_is_wrong_is_named(regressor, params, X_new, error, message):
    with pytest.raises(error, match=message):
        ConformalRegressor(regressor, **params).fit(*samples(50), X_new)


def test_what_else_is_wrong_is_named(regressor, classifier):
    X, y = samples(50)
    with pytest.raises(NotFittedError):
        ConformalRegressor(regressor).predict_interval(X)
    with pytest.raises(ValueError, match="coverage must be"):
        ConformalRegressor(regressor).fit(X, y).predict_interval(X, coverage=1.0)
    with pytest.raises(TypeError, match="estimator must be a regressor"):
        ConformalRegressor(classifier).fit(np.abs(X) // 9, np.zeros(50))
    with pytest.raises(ValueError, match=r"'total' is 0 for 1 of 50"):
        ConformalRegressor(regressor).fit(X * (y != y[3])[:, np.newaxis], y)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        ConformalRegressor(regressor).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="contains NaN"):
        ConformalRegressor(regressor).fit(X, np.where(y > 0, y, np.nan))


@pytest.mark.slow
def test_contract_of_scikit_learn(contract):
    model = ConformalRegressor(BayesianEnsembleRegressor(**SMALL), random_state=0)
    contract(model, exempt=["check_dtype_object"])  # see test_selective
