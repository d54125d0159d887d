# SPDX-License-Identifier: BSD-3-Clause
"""Regressors with a predictive distribution of their own; imitations of those of other packages."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression

from skdistill.teachers import QuantileModels, as_teacher
from skdistill.teachers._members import LEVELS, moments_of_quantiles


class Line(RegressorMixin, BaseEstimator):
    """A line, about which y has the standard deviation 2 + |x|; imitations say so their way."""

    def fit(self, X, y, sample_weight=None):
        self.line_ = LinearRegression().fit(X, y, sample_weight)
        self.n_features_in_ = X.shape[1]
        return self

    def moments(self, X):
        return self.line_.predict(X), 2 + np.abs(X[:, 0])

    def predict(self, X):
        return self.moments(X)[0]


class WithStd(Line):
    def predict(self, X, return_std=False):
        mean, std = self.moments(X)
        return (mean, std) if return_std else mean


class LikeNGBoost(BaseEstimator):
    """Its type is told in the old way, as that of NGBoost is."""

    def __init__(self):
        self._estimator_type = "regressor"

    fit, moments, predict = Line.fit, Line.moments, Line.predict

    def pred_dist(self, X):
        return norm(*self.moments(X))


class LikeTabPFN(Line):
    """Gives a list with one array for each quantile."""

    def predict(self, X, *, output_type="mean", quantiles=None):
        mean, std = self.moments(X)
        if output_type != "quantiles":
            return mean
        return [norm.ppf(level, mean, std) for level in quantiles]


class LikeTabICL(Line):
    """Gives an array with one column for each quantile."""

    def predict(self, X, output_type="mean", alphas=None):
        mean, std = self.moments(X)
        if output_type != "quantiles":
            return mean
        return norm.ppf(np.asarray(alphas), mean[:, None], std[:, None])


class LikeQuantileForest(Line):
    def predict(self, X, quantiles=None):
        mean, std = self.moments(X)
        return mean if quantiles is None else norm.ppf(quantiles, mean[:, None], std[:, None])


class LikeSklearnQuantile(Line):
    """Its levels are a parameter; rows of its array are quantiles."""

    def __init__(self, q=(0.9, 0.1, 0.5)):
        self.q = q

    def predict(self, X):
        mean, std = self.moments(X)
        return norm.ppf(np.asarray(self.q)[:, None], mean, std)


class LikeXGBoost(Line):
    def __init__(self, quantile_alpha=(0.2, 0.5, 0.7, 0.8)):
        self.quantile_alpha = quantile_alpha

    def predict(self, X):
        mean, std = self.moments(X)
        return norm.ppf(np.asarray(self.quantile_alpha), mean[:, None], std[:, None])


IMITATIONS = [
    *(WithStd, LikeNGBoost, LikeTabPFN, LikeTabICL),
    *(LikeQuantileForest, LikeSklearnQuantile, LikeXGBoost),
]


@pytest.mark.parametrize("cls", IMITATIONS)
def test_one_member_with_the_models_own_variance(cls, numbers):
    X, y = numbers
    teacher = as_teacher(cls()).fit(X, y)
    members = teacher.predict_members(X)
    mean, std = teacher.estimator_.moments(X)
    assert members.shape == (len(X), 1, 1, 2)
    assert_allclose(members[:, 0, 0, 0], mean, rtol=1e-8)
    assert_allclose(members[:, 0, 0, 1], std**2, rtol=1e-8)
    assert teacher.residual_variance_ is None
    assert teacher.predict_uncertainty(X).epistemic is None
    assert_allclose(teacher.predict(X), mean, rtol=1e-8)
    assert teacher.score(X, y) > 0.5


def test_transformed_targets():
    random = np.random.RandomState(0)
    X = random.normal(size=(100, 2))
    y = np.exp(0.5 * X[:, 0] + 0.1 * random.normal(size=100))
    model = TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp)
    teacher = as_teacher(model).fit(X, y)
    inner = as_teacher(BayesianRidge()).fit(X, np.log(y)).predict_members(X)
    mean, variance = inner[..., 0], inner[..., 1]
    members = teacher.predict_members(X)
    assert_allclose(members[..., 0], np.exp(mean + variance / 2), rtol=1e-6)  # log-normal
    assert_allclose(members[..., 1], np.expm1(variance) * np.exp(2 * mean + variance), rtol=1e-5)
    forest = TransformedTargetRegressor(
        RandomForestRegressor(5, random_state=0), func=np.log, inverse_func=np.exp
    )
    of_forest = as_teacher(forest).fit(X, y)
    assert of_forest.n_members_ == 1
    assert_allclose(of_forest.predict(X), of_forest.estimator_.predict(X))


@pytest.mark.parametrize("levels", [LEVELS, [0.1, 0.9], [0.9, 0.05, 0.5, 0.4]])
def test_moments_of_a_normal_distribution_are_exact(levels):
    mean, std = np.array([1e6, -3.0]), np.array([2.0, 0.1])
    quantiles = norm.ppf(np.asarray(levels), mean[:, None], std[:, None])
    found = moments_of_quantiles(quantiles, levels)
    assert_allclose(found[0], mean, rtol=1e-9)
    assert_allclose(found[1], std**2, rtol=1e-6)


def test_moments_of_a_skewed_distribution():
    levels = np.arange(1, 400) / 400
    mean, variance = moments_of_quantiles(-np.log1p(-levels)[None], levels)  # exponential
    assert_allclose([mean[0], variance[0]], [1, 1], rtol=0.01)


def test_quantiles_that_cross_are_sorted():
    quantiles = norm.ppf(LEVELS)[None]
    crossed = quantiles.copy()
    crossed[0, [3, 4]] = crossed[0, [4, 3]]
    assert_allclose(moments_of_quantiles(crossed, LEVELS), moments_of_quantiles(quantiles, LEVELS))


LEVELS_OF_BOOSTING = [0.1, 0.3, 0.5, 0.7, 0.9]


def boosting(level):
    return HistGradientBoostingRegressor(loss="quantile", quantile=level, max_iter=30)


@pytest.mark.slow
def test_a_model_for_each_quantile():
    random = np.random.RandomState(0)
    X = random.uniform(-1, 1, size=(2000, 1))
    y = 3 * X[:, 0] + (1 + X[:, 0] ** 2) * random.normal(size=2000)
    models = [boosting(level) for level in LEVELS_OF_BOOSTING]
    teacher = as_teacher(QuantileModels(models, LEVELS_OF_BOOSTING)).fit(X, y)
    assert teacher.n_members_ == 1
    of_each = np.stack([clone(model).fit(X, y).predict(X) for model in models], axis=1)
    mean, variance = moments_of_quantiles(of_each, LEVELS_OF_BOOSTING)
    assert_allclose(teacher.predict(X), mean)
    assert_allclose(teacher.predict_uncertainty(X).total, np.maximum(variance, 1e-6 * y.var()))
    assert_allclose(np.sqrt(variance).mean(), (1 + X**2).mean(), rtol=0.1)
    assert_allclose(mean, 3 * X[:, 0], atol=1)
    frozen = [FrozenEstimator(model) for model in teacher.estimator_.models_]
    again = as_teacher(QuantileModels(frozen, LEVELS_OF_BOOSTING)).fit(X[:9], y[:9])
    assert_allclose(again.predict(X), mean)


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ([0.1, 0.5], "quantiles must be 3 levels"),
        ([0.1, 0.5, 1.0], "between 0 and 1"),
        ([0.1, 0.5, 0.5], "two different levels"),
        (["low", "mid", "high"], "quantiles"),
    ],
)
def test_wrong_quantiles_are_refused(quantiles, message, numbers):
    with pytest.raises(ValueError, match=message):
        as_teacher(QuantileModels([boosting(0.5)] * 3, quantiles)).fit(*numbers)
