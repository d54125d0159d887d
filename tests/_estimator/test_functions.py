# SPDX-License-Identifier: BSD-3-Clause
"""Predictions through scikit-learn's meta-estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from small_models import FUNCTIONS, METHODS, assert_same, ensemble, student, target_transformed

from skdistill import predict_interval, predict_members, predict_quantiles, predict_uncertainty
from skdistill.modules import MLP

ROOT = Path(__file__).parents[2]


def unchanged(model, X):
    return model, X


def scaled(model, X):
    scaler = model.named_steps["standardscaler"]
    return model.steps[-1][1], scaler.transform(X)


WRAPPED = {
    "bare": (lambda: ensemble(), unchanged),
    "student": (lambda: student(), unchanged),
    "pipeline": (lambda: make_pipeline(StandardScaler(), ensemble()), scaled),
    "pipeline with gaps": (
        lambda: Pipeline([("a", None), ("b", "passthrough"), ("c", ensemble())]),
        lambda model, X: (model["c"], X),
    ),
    "nested pipeline": (
        lambda: make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), ensemble())),
        lambda model, X: scaled(*scaled(model, X)),
    ),
    "grid search": (
        lambda: GridSearchCV(ensemble(), {"lr": [0.01, 0.02]}, cv=2),
        lambda model, X: (model.best_estimator_, X),
    ),
    "grid search over a pipeline": (
        lambda: GridSearchCV(
            make_pipeline(StandardScaler(), ensemble()),
            {"bayesianensembleregressor__lr": [0.01, 0.02]},
            cv=2,
        ),
        lambda model, X: scaled(model.best_estimator_, X),
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


def test_affine_multi_output_targets_are_exact(two_targets):
    X, Y = two_targets
    model, inner = target_transformed(two_targets, transformer=StandardScaler())
    loc, scale = Y.mean(axis=0), Y.std(axis=0)
    members = inner.predict_members(X)
    expected = np.stack([loc + scale * members[..., 0], scale**2 * members[..., 1]], axis=-1)
    np.testing.assert_allclose(predict_members(model, X), expected)
    quantiles = loc[:, None] + scale[:, None] * inner.predict_quantiles(X, [0.1, 0.7])
    np.testing.assert_allclose(predict_quantiles(model, X, [0.1, 0.7]), quantiles)
    assert predict_interval(model, X).shape == (len(X), 2, 2)
    assert predict_uncertainty(model, X).total.shape == (len(X), 2)


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


def test_transforms_of_the_target_compose(data):
    X, _ = data
    log = FunctionTransformer(np.log, np.exp, check_inverse=False)
    together, _ = target_transformed(data, transformer=make_pipeline(log, StandardScaler()))
    nested = TransformedTargetRegressor(
        TransformedTargetRegressor(ensemble(), transformer=StandardScaler()), transformer=log
    )
    pipeline = make_pipeline(FunctionTransformer(), GridSearchCV(nested, {}, cv=2)).fit(*data)
    for function in FUNCTIONS.values():
        assert_same(function(pipeline, X), function(together, X))


def test_one_network_stays_without_parts_through_a_transform(data):
    X, _ = data
    model = TransformedTargetRegressor(ensemble(n_members=1), transformer=StandardScaler())
    total, aleatoric, epistemic = predict_uncertainty(model.fit(*data), X)
    np.testing.assert_allclose(total, predict_members(model, X)[:, 0, 0, 1])
    assert aleatoric is None
    assert epistemic is None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("model", "class_name"),
    [
        (LinearRegression(), "LinearRegression"),
        (make_pipeline(StandardScaler(), LinearRegression()), "LinearRegression"),
        (GridSearchCV(LinearRegression(), {}, cv=2), "LinearRegression"),
        (FrozenEstimator(LinearRegression()), "LinearRegression"),
        (StackingRegressor([("one", ensemble())], cv=2), "StackingRegressor"),
    ],
    ids=["bare", "pipeline", "search", "frozen", "stacking"],
)
def test_models_without_the_method_are_named(name, model, class_name, data):
    X, y = data
    inner = getattr(model, "estimator", None) if isinstance(model, FrozenEstimator) else model
    inner.fit(X, y)
    with pytest.raises(TypeError, match=f"{class_name} has no {name}; skdistill.{name} takes"):
        FUNCTIONS[name](model, X)


@pytest.mark.parametrize(
    "name", sorted(FUNCTIONS.keys() - {"predict_uncertainty"})
)  # see test_mixtures.py
def test_a_bag_has_uncertainty_only(name, data):
    X, y = data
    model = BaggingRegressor(ensemble(), n_estimators=2).fit(X, y)
    with pytest.raises(TypeError, match=f"BaggingRegressor has no {name}; skdistill.{name} takes"):
        FUNCTIONS[name](model, X)


def test_what_is_no_estimator_is_named(data):
    with pytest.raises(TypeError, match="MLP has no predict_uncertainty"):
        predict_uncertainty(MLP(2, 2), data[0])


UNFITTED = {
    "bare": ensemble,
    "student": student,
    "pipeline": lambda: make_pipeline(StandardScaler(), ensemble()),
    "search": lambda: GridSearchCV(ensemble(), {}),
    "target": lambda: TransformedTargetRegressor(ensemble()),
    "frozen": lambda: FrozenEstimator(ensemble()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("wrapping", UNFITTED)
def test_unfitted_models_say_so(wrapping, name, data):
    with pytest.raises(NotFittedError):
        FUNCTIONS[name](UNFITTED[wrapping](), data[0])


@pytest.mark.parametrize("make", [ensemble, student])
def test_every_method_of_an_unfitted_estimator_says_so(make, data):
    X, _ = data
    for name in ("predict", "predict_distribution", "sample_y", *METHODS):
        read = METHODS.get(name, lambda model, X, name=name: getattr(model, name)(X))
        with pytest.raises(NotFittedError, match=type(make()).__name__):
            read(make(), X)
    assert not hasattr(make(), "net_")


@pytest.mark.parametrize("shape", [(80,), (80, 2)])
def test_intervals_of_several_coverages_through_a_transform(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.exp(0.3 * rng.normal(size=shape))
    mirrored = FunctionTransformer(lambda y: -np.log(y), lambda z: np.exp(-z))
    model = TransformedTargetRegressor(ensemble(), transformer=mirrored, check_inverse=False)
    model.fit(X, y)
    found = predict_interval(model, X, coverage=[0.5, 0.9])
    assert found.shape == (*shape, 2, 2)
    for number, coverage in enumerate((0.5, 0.9)):
        one = predict_interval(model, X, coverage)
        np.testing.assert_allclose(found[..., number, :], one, rtol=1e-9)
    assert (found[..., 1, 0] < found[..., 0, 0]).all()


@pytest.mark.parametrize("coverage", [[0.5, 0.9], 1.0, "0.9", None])
def test_a_table_has_one_coverage(coverage, data):
    X, y = data
    model = ensemble().fit(X, y)
    with pytest.raises((TypeError, ValueError), match="coverage must be a number in"):
        model.predict_frame(X, coverage=coverage)


@pytest.mark.parametrize("steps", [False, True])
def test_std_through_a_transformed_target_says_where_it_is(steps, data):
    X, y = data
    regressor = make_pipeline(StandardScaler(), ensemble()) if steps else ensemble()
    model = TransformedTargetRegressor(regressor, transformer=StandardScaler()).fit(X, y)
    with pytest.raises(ValueError, match=r"return_std must be False in Transformed.*\.std\(\)"):
        model.predict(X, return_std=True)
    assert model.predict(X, return_std=False).shape == y.shape
    _, std = model.regressor_.predict(X, return_std=True)  # asked by itself it answers
    parts = predict_uncertainty(model, X).std()
    np.testing.assert_allclose(parts.total, std * model.transformer_.scale_)


class AsksForBoth(LinearRegression):
    """Asks an ensemble for its standard deviation, while it is asked for numbers."""

    def fit(self, X, y):
        self.ensemble_ = ensemble().fit(X, y)
        return self

    def predict(self, X):
        mean, std = self.ensemble_.predict(X, return_std=True)
        return mean + 0 * std


def test_a_model_within_a_transformed_target_may_ask_for_std(data):
    X, y = data
    model = TransformedTargetRegressor(AsksForBoth(), transformer=StandardScaler()).fit(X, y)
    assert model.predict(X).shape == y.shape
