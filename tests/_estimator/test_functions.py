# SPDX-License-Identifier: BSD-3-Clause
"""Predictions through scikit-learn's meta-estimators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from small_models import FUNCTIONS, METHODS, assert_same, ensemble, student, target_transformed

from skdistill import predict_interval, predict_members, predict_quantiles, predict_uncertainty


def unchanged(model, X):
    return model, X


def scaled(model, X):
    scaler = model.named_steps["standardscaler"]
    return model.steps[-1][1], scaler.transform(X)


WRAPPED = {
    "bare": (lambda: ensemble(), unchanged),
    "student": (lambda: student(), unchanged),
    "pipeline with gaps": (
        lambda: Pipeline([("a", None), ("b", "passthrough"), ("c", ensemble())]),
        lambda model, X: (model["c"], X),
    ),
    "nested pipeline": (
        lambda: make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), ensemble())),
        lambda model, X: scaled(*scaled(model, X)),
    ),
    "randomized search in a pipeline": (
        lambda: make_pipeline(
            StandardScaler(), RandomizedSearchCV(ensemble(), {"lr": [0.01, 0.02]}, n_iter=1, cv=2)
        ),
        lambda model, X: (scaled(model, X)[0].best_estimator_, scaled(model, X)[1]),
    ),
}


@pytest.mark.parametrize("wrapping", WRAPPED)
def test_functions_see_through_meta_estimators(wrapping, data):
    make, unwrap = WRAPPED[wrapping]
    X, y = data
    model = make().fit(X, y)
    inner, inner_X = unwrap(model, X)
    for name, function in FUNCTIONS.items():
        expected = METHODS[name](inner, inner_X)
        assert_same(function(model, X), expected)
        assert_same(function(FrozenEstimator(model), X), expected)


def test_affine_targets_are_exact(data):
    X, y = data
    model, inner = target_transformed(data, transformer=StandardScaler())
    loc, scale = y.mean(), y.std()
    members = inner.predict_members(X)
    np.testing.assert_allclose(predict_members(model, X)[..., 0], loc + scale * members[..., 0])
    np.testing.assert_allclose(predict_members(model, X)[..., 1], scale**2 * members[..., 1])
    assert_same(
        predict_uncertainty(model, X),
        [scale**2 * part for part in inner.predict_uncertainty(X)],
        rtol=1e-9,
    )
    for name in ("predict_quantiles", "predict_interval"):
        expected = loc + scale * METHODS[name](inner, X)
        np.testing.assert_allclose(FUNCTIONS[name](model, X), expected)
    mean = predict_members(model, X)[..., 0].mean(axis=1).ravel()
    np.testing.assert_allclose(mean, model.predict(X))


def test_log_targets_have_lognormal_moments_and_exact_quantiles(data):
    X, _ = data
    model, inner = target_transformed(data, func=np.log, inverse_func=np.exp)
    mean, variance = np.moveaxis(inner.predict_members(X), -1, 0)
    members = predict_members(model, X)
    np.testing.assert_allclose(members[..., 0], np.exp(mean + variance / 2))
    np.testing.assert_allclose(members[..., 1], np.expm1(variance) * np.exp(2 * mean + variance))
    total, aleatoric, epistemic = predict_uncertainty(model, X)
    np.testing.assert_allclose(aleatoric, members[:, :, 0, 1].mean(axis=1))
    np.testing.assert_allclose(epistemic, members[:, :, 0, 0].var(axis=1))
    np.testing.assert_allclose(total, aleatoric + epistemic)
    for name in ("predict_quantiles", "predict_interval"):
        np.testing.assert_allclose(FUNCTIONS[name](model, X), np.exp(METHODS[name](inner, X)))


def test_predictions_of_a_clipped_target_stay_within_its_limits(data):
    """The recipe of doc/questions.rst."""
    X, y = data
    low, high = np.quantile(y, [0.2, 0.8])
    limits = {"a_min": low, "a_max": high}
    clip = FunctionTransformer(inverse_func=np.clip, inv_kw_args=limits)
    model, inner = target_transformed((X, np.clip(y, low, high)), transformer=clip)
    for name in ("predict_quantiles", "predict_interval"):
        expected = METHODS[name](inner, X)
        assert expected.min() < low < high < expected.max()
        np.testing.assert_allclose(FUNCTIONS[name](model, X), np.clip(expected, low, high))
    draws = np.clip(inner.sample_y(X, 20_000, random_state=0), low, high)
    std = predict_uncertainty(model, X).std().total
    np.testing.assert_allclose(std, draws.std(axis=1), rtol=0.1)


DECREASING = {
    "affine": {"func": np.negative, "inverse_func": np.negative},
    "exponential": {"func": lambda y: -np.log(y), "inverse_func": lambda z: np.exp(-z)},
}


@pytest.mark.parametrize("transform", DECREASING)
def test_decreasing_transforms_keep_quantiles_in_order(transform, data):
    X, _ = data
    model, inner = target_transformed(data, **DECREASING[transform])
    inverse = DECREASING[transform]["inverse_func"]
    levels = np.array([0.01, 0.1, 0.5, 0.7, 0.99])
    quantiles = predict_quantiles(model, X, levels)
    np.testing.assert_allclose(quantiles, inverse(inner.predict_quantiles(X, 1 - levels)))
    assert (np.diff(quantiles, axis=1) > 0).all()
    lower, upper = predict_interval(model, X, coverage=0.8).T
    np.testing.assert_allclose(lower, predict_quantiles(model, X, 0.1)[:, 0])
    np.testing.assert_allclose(upper, predict_quantiles(model, X, 0.9)[:, 0])


@pytest.mark.parametrize(
    "name", sorted(FUNCTIONS.keys() - {"predict_uncertainty"})
)  # see test_mixtures.py
def test_a_bag_has_uncertainty_only(name, data):
    X, y = data
    model = BaggingRegressor(ensemble(), n_estimators=2).fit(X, y)
    with pytest.raises(TypeError, match=f"BaggingRegressor has no {name}; skdistill.{name} takes"):
        FUNCTIONS[name](model, X)
