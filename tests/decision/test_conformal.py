# SPDX-License-Identifier: BSD-3-Clause
"""Conformal intervals against numpy's quantiles and MAPIE's intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from skdistill import BayesianEnsembleRegressor
from skdistill.decision import ConformalRegressor

SMALL = {"n_members": 2, "max_epochs": 3, "random_state": 0}


def samples(n, seed=0):
    """x ~ N(0, 1) and y ~ N(0, exp(x)), which a model takes for one of variance 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return np.column_stack([x, np.ones(n)]), np.exp(x / 2) * rng.standard_normal(n)


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
def test_it_is_split_conformal_prediction(regressor, n, coverage):
    rng = np.random.default_rng(n)
    X = np.column_stack([np.zeros(n), 1 + rng.random(n)])
    y = rng.standard_normal(n)
    X_new = np.array([[0, 1.0], [0, 4.0]])
    level = math.ceil(coverage * (n + 1)) / n  # Lei et al.
    quantile = np.quantile(np.abs(y) / np.sqrt(X[:, 1]), level, method="inverted_cdf")
    expected = quantile * np.array([[-1, 1], [-2, 2]])
    model = ConformalRegressor(regressor).fit(X, y)
    np.testing.assert_allclose(model.predict_interval(X_new, coverage), expected)
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


def test_noise_that_the_model_does_not_know_is_covered(regressor):
    """Of one new sample for each of 400 draws, so that they are independent."""
    inside = 0
    for seed in range(400):
        X, y = samples(50, seed=[0, seed])
        X_new, y_new = samples(1, seed=[1, seed])
        inside += (
            abs(y_new[0]) <= ConformalRegressor(regressor).fit(X, y).predict_interval(X_new)[0, 1]
        )
    assert abs(inside / 400 - 46 / 51) < 3 * math.sqrt(0.9 * 0.1 / 400)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"uncertainty": "std"}, "uncertainty must be one of"),
        ({"uncertainty": "epistemic"}, "cannot tell the parts"),
        ({"held_out": 0}, "held_out must be"),
    ],
)
def test_what_is_wrong_is_named(regressor, params, message):
    with pytest.raises(ValueError, match=message):
        ConformalRegressor(regressor, **params).fit(*samples(50))


@pytest.mark.slow
def test_contract_of_scikit_learn(contract):
    model = ConformalRegressor(BayesianEnsembleRegressor(**SMALL), random_state=0)
    contract(model, exempt=["check_dtype_object"])  # see test_selective
