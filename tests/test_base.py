# SPDX-License-Identifier: BSD-3-Clause
"""The read-offs of a fitted estimator, the same through meta-estimators, and the callbacks."""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import skorch
import torch
from scipy import sparse, stats
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_regression
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    _reading,
    predict_interval,
    predict_members,
    predict_quantiles,
    predict_uncertainty,
)
from skdistill._reading import chunk_size
from skdistill._standardisation import standardisation
from skdistill.distributions import EmpiricalGaussian
from skdistill.ensembles import _training
from skdistill.modules import MLP, GaussianStack
from skdistill.samplers import SGLD

ROOT = Path(__file__).parents[1]


def ensemble(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleRegressor(**{**settings, **params})


def student(teacher=None, **params):
    settings = {"max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return HydraPlusRegressor(teacher or ensemble(), **{**settings, **params})


@pytest.fixture(scope="module")
def data():
    X, y = make_regression(60, 3, noise=5.0, random_state=0)
    return X, y / y.std() + 5.0


@pytest.fixture(scope="module")
def two_targets(data):
    X, y = data
    return X, np.column_stack([y, np.exp(-y)])


FUNCTIONS = {
    "predict_uncertainty": predict_uncertainty,
    "predict_members": predict_members,
    "predict_quantiles": lambda model, X: predict_quantiles(model, X, [0.1, 0.5, 0.95]),
    "predict_interval": lambda model, X: predict_interval(model, X, coverage=0.8),
}
METHODS = {
    "predict_uncertainty": lambda model, X: model.predict_uncertainty(X),
    "predict_members": lambda model, X: model.predict_members(X),
    "predict_quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.5, 0.95]),
    "predict_interval": lambda model, X: model.predict_interval(X, coverage=0.8),
}


def assert_same(actual, expected, **tolerance):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


# ------------------------------------------------------------------------------------------
# Functions that see through scikit-learn's meta-estimators
# ------------------------------------------------------------------------------------------


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


def target_transformed(data, **transform):
    X, y = data
    model = TransformedTargetRegressor(ensemble(), **transform).fit(X, y)
    return model, model.regressor_


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
        (BaggingRegressor(ensemble(), n_estimators=2), "BaggingRegressor"),
    ],
    ids=["bare", "pipeline", "search", "frozen", "bagging"],
)
def test_models_without_the_method_are_named(name, model, class_name, data):
    X, y = data
    inner = getattr(model, "estimator", None) if isinstance(model, FrozenEstimator) else model
    inner.fit(X, y)
    with pytest.raises(TypeError, match=f"{class_name} has no {name}; skdistill.{name} takes"):
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


# ------------------------------------------------------------------------------------------
# Shapes and dtypes
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize("n_targets", [None, 1, 2, 3])
def test_shapes_follow_y(make, n_targets, data):
    X, y = data
    n = len(X)
    if n_targets is not None:
        y = np.column_stack([y * (k + 1) for k in range(n_targets)])
    if n_targets == 1:
        with pytest.warns(DataConversionWarning, match="column-vector"):
            model = make().fit(X, y)
    else:
        model = make().fit(X, y)
    t = n_targets or 1
    row = (n,) if t == 1 else (n, t)
    mean, std = model.predict(X, return_std=True)
    assert model.predict(X).shape == mean.shape == std.shape == row
    assert {part.shape for part in model.predict_uncertainty(X)} == {row}
    assert model.predict_uncertainty(X).measure == "variance"
    assert model.predict_interval(X).shape == (*row, 2)
    assert model.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (*row, 3)
    assert model.predict_quantiles(X, 0.5).shape == (*row, 1)
    assert model.sample_y(X, n_samples=4).shape == (*row, 4)
    assert model.predict_members(X).shape == (n, 3, t, 2)
    assert model.predict_distribution(X).means.shape == (3, n, t)
    assert model.n_outputs_ == t
    assert np.isscalar(model.score(X, y))


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_column_is_never_broadcast(make, data):
    X, y = data
    with pytest.warns(DataConversionWarning):
        column = make().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X), make().fit(X, y).predict(X))


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist], ids=["array", "list"])
@pytest.mark.parametrize("make", [ensemble, student])
def test_a_column_is_warned_of_once(make, kind, data):
    X, y = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(X, kind(y[:, None]))
    assert [warning.category for warning in caught] == [DataConversionWarning]


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize("factor", [1e100, 1e-100])
def test_targets_of_any_scale_are_learnt_alike(make, factor, data):
    X, y = data
    plain, scaled = make().fit(X, y), make().fit(X, factor * y)
    np.testing.assert_allclose(scaled.predict(X), factor * plain.predict(X), rtol=1e-6)
    intervals = scaled.predict_interval(X), factor * plain.predict_interval(X)
    np.testing.assert_allclose(*intervals, rtol=1e-6)


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_targets_that_their_dtype_cannot_hold_are_named(make, factor, data):
    X, y = data
    with pytest.raises(ValueError, match=r"^y has a standard deviation of .*float32 cannot hold"):
        make().fit(X.astype(np.float32), factor * y)


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_large_offset_of_the_targets_does_no_harm(make, data):
    X, y = data
    plain, shifted = make().fit(X, y), make().fit(X, y + 1e8)
    np.testing.assert_allclose(shifted.predict(X) - 1e8, plain.predict(X), atol=1e-5 * y.std())
    parts = shifted.predict_uncertainty(X), plain.predict_uncertainty(X)
    assert_same(*parts, rtol=1e-5)


FAST = {"max_epochs": 2, "random_state": 0}
FAR_FROM_ZERO = {
    "ensemble": ensemble,
    "hydra": student,
    "folds": lambda: student(teacher_cv=3),
    "bdistil": lambda: BDistilBooster(ensemble(), n_rounds=2, **FAST),
    "replayed": lambda: GPEDDistiller(ensemble(), **FAST),
    "chains": lambda: GPEDDistiller(ensemble(inference=SGLD(1e-5), max_epochs=20), random_state=0),
    **{
        family: lambda family=family: DistributionDistiller(ensemble(), family=family, **FAST)
        for family in ("gaussian", "normal_inverse_gamma", "normal_inverse_wishart", "mixture")
    },
}


def read_around(offset, model, X):
    """Everything that is in units of y, with the offset taken off."""
    mean, std = model.predict(X, return_std=True)
    located = [mean, model.predict_quantiles(X, [0.1, 0.9]), model.sample_y(X, 2, random_state=0)]
    assert {array.dtype for array in located} == {np.dtype(float)} or not offset
    return [std, *(array - offset for array in located)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", FAR_FROM_ZERO)
def test_targets_far_from_zero_are_predicted_as_well(kind, dtype, data, tally):
    X, y = data[0].astype(dtype), data[1] - 5
    make = FAR_FROM_ZERO[kind]
    near = read_around(0, make().fit(X, y), X)[:-1]  # draws depend on the dtype
    for offset in (1e6, 1e8, 1e12):
        model = make().fit(X, y + offset)
        for found, expected in zip(read_around(offset, model, X), near, strict=False):
            np.testing.assert_allclose(found, expected, atol=0.02)
        copied = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copied.predict(X), model.predict(X))
        assert next(copied.module_.parameters()).dtype == getattr(torch, np.dtype(dtype).name)
        tally("offsets of y")


def test_answers_in_float32_that_cannot_hold_the_targets_are_refused(data):
    X, y = data
    answers = np.stack([y, np.ones(len(y))], axis=1)[:, None, None]
    answers = np.concatenate([answers, answers + 0.1], axis=1)
    model = DistributionDistiller("regressor", **FAST)
    for offset, dtype in ((0, np.float32), (1e8, np.float64)):
        shifted = answers + [offset, 0]
        model.fit(X, y + offset, member_predictions=shifted.astype(dtype))
    with pytest.raises(ValueError, match=r"member_predictions, are float32.* \[1000.*float64"):
        model.fit(X, y + 1e8, member_predictions=shifted.astype(np.float32))
    teacher = BaggingRegressor(LinearRegression(), n_estimators=3)  # float32 for such X
    with pytest.raises(ValueError, match=r"teacher's predictions.* are float32.*float64"):
        HydraPlusRegressor(teacher, **FAST).fit(X.astype(np.float32), y + 1e8)


def classifier(**params):
    settings = {"n_members": 3, "max_epochs": 2, "module__activation": "relu", "random_state": 0}
    return BayesianEnsembleClassifier(**{**settings, **params})


ALL_KINDS = {
    "regressor": lambda: ensemble(module__activation="relu"),
    "bounded": ensemble,  # by tanh
    "classifier": classifier,
    "hydra": student,
    "hydra, classes": lambda: HydraPlusClassifier(classifier(), **FAST),
    "bdistil": lambda: BDistilBooster(ensemble(), n_rounds=2, **FAST),
    "bdistil, classes": lambda: BDistilBooster(classifier(), n_rounds=2, **FAST),
    "gped": lambda: GPEDDistiller(ensemble(), **FAST),
    "gped, classes": lambda: GPEDDistiller(classifier(), **FAST),
    "gaussian": lambda: DistributionDistiller(ensemble(), **FAST),
    "mixture": lambda: DistributionDistiller(ensemble(), family="mixture", **FAST),
    "dirichlet": lambda: DistributionDistiller(classifier(), **FAST),
    "logit_normal": lambda: DistributionDistiller(classifier(), family="logit_normal", **FAST),
}
READ_OFFS = {
    **{
        name: lambda model, X, name=name: [getattr(model, name)(X)]
        for name in ("predict", "predict_proba", "predict_members", "predict_interval", "sample_y")
    },
    "predict_uncertainty": lambda model, X: list(model.predict_uncertainty(X)),
    "predict_quantiles": lambda model, X: [model.predict_quantiles(X, [0.1, 0.9])],
    "staged_predict": lambda model, X: list(model.staged_predict(X)),
    "anytime": lambda model, X: list(model.anytime(X)),
    "early exit": lambda model, X: [model.predict(X, early_exit=0.5)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_row_that_overflows_is_named_and_never_predicted_as_nonsense(kind, dtype, data, tally):
    X, y = data
    model = ALL_KINDS[kind]()
    fits_classes = "class" in kind or kind in ("dirichlet", "logit_normal")
    model.fit(X.astype(dtype), y > y.mean() if fits_classes else y)
    rows, outcomes = X[:5].copy(), Counter()
    for value in (1e10, 1e25, 1e38, 1e100, 1e300, 1.7e308):
        rows[3, 1:] = value, -value
        for name, read in READ_OFFS.items():
            if not hasattr(model, {"early exit": "staged_predict"}.get(name, name)):
                continue
            arrays, error = [], ""
            try:
                arrays = read(model, rows)
            except ValueError as raised:
                error = str(raised)
            assert all(np.isfinite(a).all() for a in arrays if a is not None)
            assert arrays or re.search(r"^X must .*(row 3 .* X\[3, 1\]|\[3, 1\], its row)", error)
            outcomes["named" if error else "predicted"] += 1
    assert len(outcomes) == 2 or dtype == np.float64  # tanh is none the worse for 1e300
    tally("rows that overflow", outcomes.total())


def test_the_row_is_named_whatever_the_chunk(data):
    X, y = data
    model = ensemble(module__activation="relu").fit(X, y)
    many = np.tile(X, (100, 1))
    many[5_432, 2] = -1e200  # whose square overflows
    with (
        config_context(working_memory=0.01),
        pytest.raises(ValueError, match=r"row 5432 .* X\[5432, 2\] = -1e\+200"),
    ):
        model.predict_uncertainty(many)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [ensemble, classifier, student])
def test_inputs_too_large_to_train_on_are_named(make, dtype, data):
    X, y = data[0].astype(dtype), data[1]
    y = y > y.mean() if make is classifier else y
    X[7, 2] = -1e300 if dtype == np.float64 else -1e30
    with pytest.raises(ValueError, match=r"^X must be within .*-1e\+.* at \[7, 2\], its row"):
        make().fit(X, y)
    if make is student:
        with pytest.raises(ValueError, match=r"^X_transfer must be within .* at \[7, 2\]"):
            make().fit(data[0].astype(dtype), y, X_transfer=X)


def test_targets_and_answers_too_large_for_the_dtype_are_named(data):
    X, y = data[0].astype(np.float32), data[1]
    with pytest.raises(ValueError, match=r"^y, with normalize_y=False, must be within"):
        ensemble(normalize_y=False).fit(X, 1e30 * y)
    answers = np.stack([y, np.full(len(y), 1e-60)], axis=1)[:, None, None]
    with pytest.raises(ValueError, match="member_predictions, must have means and variances"):
        DistributionDistiller("regressor", **FAST).fit(X, y, member_predictions=answers)


@pytest.mark.parametrize("offset", [0.0, 1e8, 1e15])
def test_the_standardisation_of_a_column_is_exact_far_from_zero(offset):
    values = np.random.default_rng(0).integers(-50, 50, size=(10_000, 1)).astype(float)
    weight = np.random.default_rng(1).random(10_000)
    shares = weight / weight.sum()
    loc = math.fsum(shares * values[:, 0])
    scale = math.sqrt(math.fsum(shares * (values[:, 0] - loc) ** 2))
    found_loc, found_scale = standardisation(values + offset, weight)
    assert found_loc[0] - offset == pytest.approx(loc, abs=np.spacing(offset) + 1e-12)
    assert found_scale[0] == pytest.approx(scale, rel=1e-5)


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_computes_in_the_dtype_of_X(make, dtype, data):
    X, y = data
    model = make().fit(X.astype(dtype), y)
    wide = X.astype(np.float64)
    mean, std = model.predict(wide, return_std=True)
    arrays = [mean, std, *model.predict_uncertainty(wide), model.sample_y(wide)]
    arrays += [METHODS[name](model, wide) for name in METHODS if name != "predict_uncertainty"]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}
    assert model.predict_distribution(wide).means.dtype == getattr(torch, np.dtype(dtype).name)


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.uint8, bool])
def test_other_dtypes_compute_in_float64(make, dtype, data):
    X, y = data
    X = (10 * X).astype(dtype)
    expected = make().fit(X.astype(np.float64), y).predict(X)
    actual = make().fit(X, y).predict(X)
    assert actual.dtype == np.float64
    np.testing.assert_array_equal(actual, expected)


# ------------------------------------------------------------------------------------------
# One distribution behind all read-offs
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2], ids=["one target", "two targets"])
def fitted(request, data, two_targets):
    return ensemble().fit(*(data if request.param == 1 else two_targets))


def test_all_is_read_off_the_distribution(fitted, data):
    X, _ = data
    distribution = fitted.predict_distribution(X)
    assert isinstance(distribution, EmpiricalGaussian)
    per_target = fitted._plan.task.per_target
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, per_target(distribution.mean.numpy()))
    np.testing.assert_allclose(std, per_target(distribution.variance.sqrt().numpy()))
    assert_same(
        fitted.predict_uncertainty(X),
        [per_target(part.numpy()) for part in distribution.uncertainty()],
    )
    np.testing.assert_array_equal(fitted.predict_members(X), distribution.members.numpy())
    levels = [0.05, 0.3, 0.9]
    quantiles = per_target(distribution.quantile(levels).numpy())
    np.testing.assert_allclose(fitted.predict_quantiles(X, levels), quantiles)
    interval = per_target(distribution.interval(0.7).numpy())
    np.testing.assert_allclose(fitted.predict_interval(X, 0.7), interval)


def test_the_parts_add_up_and_are_the_members_moments(fitted, data):
    X, _ = data
    means, variances = np.moveaxis(fitted.predict_members(X), -1, 0)
    total, aleatoric, epistemic = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(aleatoric, fitted._plan.task.per_target(variances.mean(axis=1)))
    np.testing.assert_allclose(epistemic, fitted._plan.task.per_target(means.var(axis=1)))
    np.testing.assert_array_equal(total, aleatoric + epistemic)
    _, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(std, fitted.predict_uncertainty(X).std().total)


def test_quantiles_are_those_of_the_mixture(data):
    X, _ = data
    model = ensemble().fit(*data)
    levels = [0.025, 0.4, 0.975]
    quantiles = model.predict_quantiles(X, levels)
    means, variances = np.moveaxis(model.predict_members(X)[:, :, 0], -1, 0)
    for k, level in enumerate(levels):
        cdf = stats.norm.cdf(quantiles[:, k, None], means, np.sqrt(variances)).mean(axis=1)
        np.testing.assert_allclose(cdf, level, rtol=1e-9)
    np.testing.assert_allclose(model.predict_interval(X, 0.95), quantiles[:, [0, 2]])


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90])
def test_coverage_out_of_range_is_named(coverage, data):
    model = ensemble().fit(*data)
    for predict in (model.predict_interval, lambda X, c: predict_interval(model, X, c)):
        with pytest.raises(ValueError, match=f"coverage must be strictly.*{coverage}"):
            predict(data[0], coverage)


def test_a_coverage_that_is_no_number_is_named(data):
    with pytest.raises(ValueError, match="coverage must be strictly between 0 and 1, got 'a'"):
        ensemble().fit(*data).predict_interval(data[0], "a")


@pytest.mark.parametrize("levels", [0.0, [0.1, 1.0], [1.5], [[0.1]]])
def test_quantiles_out_of_range_are_named(levels, data):
    bare = ensemble().fit(*data)
    through, _ = target_transformed(data, transformer=StandardScaler())
    for model in (bare, through):
        message = "quantiles must be a number or a 1-D sequence.*got"
        with pytest.raises(ValueError, match=message) as error:
            predict_quantiles(model, data[0], levels)
        assert str(np.ravel(levels)[-1]) in str(error.value)


def test_one_network_cannot_tell_the_parts(data):
    X, _ = data
    model = ensemble(n_members=1).fit(*data)
    total, aleatoric, epistemic = model.predict_uncertainty(X)
    np.testing.assert_allclose(total, model.predict_members(X)[:, 0, 0, 1])
    assert aleatoric is None
    assert epistemic is None
    assert model.predict_uncertainty(X).std().aleatoric is None


def test_samples_have_the_predicted_moments(data):
    X, _ = data
    model = ensemble().fit(*data)
    mean, std = model.predict(X, return_std=True)
    draws = model.sample_y(X, n_samples=20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.03 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.03)
    below = (draws < model.predict_quantiles(X, 0.2)).mean(axis=1)
    np.testing.assert_allclose(below, 0.2, atol=0.02)


def test_targets_are_drawn_apart(two_targets):
    X, _ = two_targets
    model = ensemble(n_members=1).fit(*two_targets)
    draws = model.sample_y(X[:1], n_samples=20_000, random_state=0)[0]
    assert abs(np.corrcoef(draws)[0, 1]) < 0.03  # one member: the noises of targets are independent


def test_samples_repeat_with_their_seed(fitted, data):
    X, _ = data
    first = fitted.sample_y(X, 5, random_state=3)
    np.testing.assert_array_equal(first, fitted.sample_y(X, 5, random_state=3))
    np.testing.assert_array_equal(
        first, fitted.sample_y(X, 5, random_state=np.random.RandomState(3))
    )
    assert (first != fitted.sample_y(X, 5, random_state=4)).any()
    assert (fitted.sample_y(X, 5) != fitted.sample_y(X, 5)).any()


@pytest.mark.parametrize(("n_samples", "error"), [(-1, ValueError), (1.5, TypeError)])
def test_numbers_of_samples_out_of_range_are_named(n_samples, error, data):
    with pytest.raises(error, match="n_samples"):
        ensemble().fit(*data).sample_y(data[0], n_samples)


READS = {
    "predict": lambda model, X: model.predict(X),
    "std": lambda model, X: model.predict(X, return_std=True)[1],
    "epistemic": lambda model, X: model.predict_uncertainty(X).epistemic,
    "members": lambda model, X: model.predict_members(X),
    "quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.9]),
    "interval": lambda model, X: model.predict_interval(X),
    "samples": lambda model, X: model.sample_y(X, 3, random_state=0),
    "distribution": lambda model, X: model.predict_distribution(X).members.numpy(),
}


@pytest.fixture
def chunks(monkeypatch):
    """Numbers of rows that networks are asked about at a time, as they are asked."""
    sizes: list[int] = []
    original = GaussianStack.outputs

    def spy(self, x):
        sizes.append(len(x))
        return original(self, x)

    monkeypatch.setattr(GaussianStack, "outputs", spy)
    return sizes


@pytest.mark.parametrize("read", READS)
def test_a_row_does_not_depend_on_its_chunk(read, fitted, data, chunks, monkeypatch):
    X, _ = data
    whole = READS[read](fitted, X)
    assert chunks == [60]
    single = np.concatenate([READS[read](fitted, X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(single, whole, rtol=1e-11)
    monkeypatch.setattr(_reading, "_FEW", 0)
    with config_context(working_memory=1e-6):  # less than a row's worth: one row at a time
        assert chunk_size(fitted.module_, fitted._recipe.row_shape) == 1
        chunks.clear()
        np.testing.assert_allclose(READS[read](fitted, X), whole, rtol=1e-11)
        assert chunks == 60 * [1]
    activations = 3 * (8 + 2 * fitted.n_outputs_)  # of a row, in three networks of two layers
    monkeypatch.setattr(_reading, "_CHUNK_BYTES", 7 * 8 * activations)
    chunks.clear()
    np.testing.assert_allclose(READS[read](fitted, X), whole, rtol=1e-11)
    assert chunks == [*8 * [7], 4]


@pytest.mark.parametrize("n_rows", [1, 6, 7, 8, 14])
def test_chunks_hold_every_row_once(n_rows, data, chunks, monkeypatch):
    model = ensemble().fit(*data)
    expected = model.predict_members(data[0][:n_rows])
    monkeypatch.setattr(_reading, "_FEW", 0)
    monkeypatch.setattr(_reading, "chunk_size", lambda module, row_shape: 7)
    chunks.clear()
    members = model.predict_members(data[0][:n_rows])
    np.testing.assert_allclose(members, expected, rtol=1e-11)
    assert members.dtype == expected.dtype
    assert chunks == [7] * (n_rows // 7) + [n_rows % 7] * (n_rows % 7 > 0)


def test_a_few_rows_are_predicted_in_one_piece(data, chunks, monkeypatch):
    X, y = data
    model = ensemble().fit(X, y)
    with config_context(working_memory=1e-6):
        monkeypatch.setattr(_reading, "_FEW", X.size)
        model.predict(X)
        assert chunks == [60]
        chunks.clear()
        monkeypatch.setattr(_reading, "_FEW", X.size - 1)
        model.predict(X)
        assert chunks == 60 * [1]


def test_chunks_follow_the_cache_and_working_memory(data, monkeypatch):
    model = ensemble(n_members=10, module__hidden_units=(100, 30), max_epochs=1).fit(*data)
    per_row = 10 * (100 + 30 + 2) * 8  # activations of all layers and members, in float64
    assert chunk_size(model.module_, model._recipe.row_shape) == _reading._CHUNK_BYTES // per_row
    with config_context(working_memory=1):
        assert chunk_size(model.module_, model._recipe.row_shape) == 2**20 // per_row
    monkeypatch.setattr(_reading, "_CHUNK_BYTES", 2 * per_row)
    assert chunk_size(model.module_, model._recipe.row_shape) == 2
    monkeypatch.setattr(_reading, "_CHUNK_BYTES", per_row - 1)
    assert chunk_size(model.module_, model._recipe.row_shape) == 1  # never less than a row


def test_the_chunks_of_a_student_count_its_core_once(data):
    model = student(module__hidden_units=(100, 30), max_epochs=1).fit(*data)
    assert chunk_size(model.module_, model._recipe.row_shape) == _reading._CHUNK_BYTES // (
        (100 + 30 + 3 * 2) * 8
    )


class WithScalar(torch.nn.Module):
    """A network with a parameter that has no axis at all."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)
        self.gain = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.gain * self.linear(x)


def test_parameters_without_axes_are_chunked_too(data):
    model = BayesianEnsembleRegressor(2, module=WithScalar, max_epochs=1).fit(*data)
    assert model.predict(data[0]).shape == (60,)
    assert chunk_size(model.module_, model._recipe.row_shape) == _reading._CHUNK_BYTES // (
        2 * 2 * 8
    )


# ------------------------------------------------------------------------------------------
# Rows to predict: checked by hand where they are few, else by scikit-learn
# ------------------------------------------------------------------------------------------


@pytest.fixture
def validated(monkeypatch):
    """The rows that scikit-learn's ``validate_data`` was asked about."""
    seen: list = []
    original = _reading.validate_data

    def spy(estimator, X, *args, **kwargs):
        seen.append(X)
        return original(estimator, X, *args, **kwargs)

    monkeypatch.setattr(_reading, "validate_data", spy)
    return seen


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "some columns": lambda X: np.column_stack([X, X])[:, 1:4][:, [2, 0, 1]],
    "read-only": read_only,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fitted_dtype", [np.float32, np.float64])
def test_plain_arrays_need_no_validation(fitted_dtype, dtype, layout, data, validated, monkeypatch):
    X, y = data
    model = ensemble().fit(X.astype(fitted_dtype), y)
    rows = LAYOUTS[layout](X.astype(dtype))
    before = rows.copy()
    validated.clear()
    by_hand = model.predict_members(rows)
    assert validated == []
    monkeypatch.setattr(_reading, "_FEW", 0)
    by_sklearn = model.predict_members(rows)
    assert len(validated) == 1
    np.testing.assert_array_equal(by_hand, by_sklearn)
    np.testing.assert_array_equal(by_hand, model.predict_members(X.astype(dtype)))
    assert by_hand.dtype == by_sklearn.dtype == fitted_dtype
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("make", [ensemble, student])
def test_arrays_are_plain_up_to_a_size(make, data, validated, monkeypatch):
    X, y = data
    model = make().fit(X, y)
    monkeypatch.setattr(_reading, "_FEW", 30)
    validated.clear()
    few, more = model.predict(X[:10]), model.predict(X[:11])
    assert [len(rows) for rows in validated] == [11]
    np.testing.assert_allclose(few, more[:10], rtol=1e-11)


def memory_mapped(X, path):
    X.tofile(path)
    return np.memmap(path, dtype=X.dtype, shape=X.shape, mode="r")


# Whole numbers, which every dtype holds exactly.
CONVERTED = {
    "list": lambda X, path: X.tolist(),
    "tuple": lambda X, path: tuple(map(tuple, X)),
    "float16": lambda X, path: X.astype(np.float16),
    "long double": lambda X, path: X.astype(np.longdouble),
    "other byte order": lambda X, path: X.astype(X.dtype.newbyteorder()),
    "int8": lambda X, path: X.astype(np.int8),
    "int64": lambda X, path: X.astype(np.int64),
    "objects": lambda X, path: X.astype(object),
    "memory map": lambda X, path: memory_mapped(X, path / "rows"),
    "tensor": lambda X, path: torch.tensor(X),
}


@pytest.mark.parametrize("form", CONVERTED)
def test_what_is_no_plain_array_is_converted_by_scikit_learn(form, data, validated, tmp_path):
    X, y = data
    model = ensemble().fit(X, y)
    X = np.round(10 * X)
    expected = model.predict(X)
    validated.clear()
    actual = model.predict(CONVERTED[form](X, tmp_path))
    assert len(validated) == 1
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == np.float64


def test_truth_values_are_numbers(data, validated):
    X, y = data
    model = ensemble().fit(X, y)
    validated.clear()
    actual = model.predict(X > 0)
    assert len(validated) == 1
    np.testing.assert_array_equal(actual, model.predict((X > 0).astype(float)))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_held_against_the_names_of_the_fit(library, data):
    frames = pytest.importorskip(library)
    X, y = data
    frame = frames.DataFrame(dict(zip("abc", X.T, strict=True)))
    named, nameless = ensemble().fit(frame, y), ensemble().fit(X, y)
    expected = nameless.predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(named.predict(frame), expected, rtol=1e-11)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_allclose(named.predict(X), expected, rtol=1e-11)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        np.testing.assert_allclose(nameless.predict(frame), expected, rtol=1e-11)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["c", "b", "a"]])
    named.fit(X, y)  # and a fit without names forgets them
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(named.predict(X), expected, rtol=1e-11)


def with_entry(X, value):
    X = X.copy()
    X[-1, -1] = value
    return X


REFUSED = {
    "NaN": (lambda X: with_entry(X, np.nan), ValueError, "Input X contains NaN"),
    "infinity": (lambda X: with_entry(X, np.inf), ValueError, "Input X contains infinity"),
    "-infinity": (lambda X: with_entry(X, -np.inf), ValueError, "Input X contains infinity"),
    "NaN in float32": (
        lambda X: with_entry(X.astype(np.float32), np.nan),
        ValueError,
        "Input X contains NaN",
    ),
    "NaN in a list": (lambda X: with_entry(X, np.nan).tolist(), ValueError, "contains NaN"),
    "a column less": (
        lambda X: X[:, :2],
        ValueError,
        "X has 2 features, but BayesianEnsembleRegressor is expecting 3 features as input",
    ),
    "a column more": (
        lambda X: X[:, [0, 1, 2, 0]],
        ValueError,
        "X has 4 features, but BayesianEnsembleRegressor is expecting 3 features as input",
    ),
    "one row": (lambda X: X[0], ValueError, "Expected 2D array, got 1D array instead"),
    "a number": (lambda X: X[0, 0], ValueError, "Expected 2D array, got scalar array instead"),
    "three axes": (lambda X: X[..., None], ValueError, r"X must have rows of shape \(3,\)"),
    "no rows": (lambda X: X[:0], ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\)"),
    "no columns": (lambda X: X[:, :0], ValueError, r"0 feature\(s\) \(shape=\(60, 0\)\)"),
    "complex": (lambda X: X + 0j, ValueError, "Complex data not supported"),
    "words": (lambda X: np.full(X.shape, "a"), ValueError, "could not convert string to float"),
    "matrix": (np.asmatrix, TypeError, "np.matrix is not supported"),
    "sparse": (sparse.csr_array, TypeError, "Sparse data was passed"),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("rows", REFUSED)
def test_scikit_learn_refuses_rows_few_or_many(rows, data, monkeypatch):
    X, y = data
    make, error, message = REFUSED[rows]
    model = ensemble().fit(X, y)
    with pytest.raises(error, match=message) as few:
        model.predict(make(X))
    monkeypatch.setattr(_reading, "_FEW", 0)
    with pytest.raises(error, match=message) as many:
        model.predict(make(X))
    assert str(few.value) == str(many.value)


def test_assume_finite_is_the_users_word_for_it(data):
    X, y = data
    model = ensemble().fit(X, y)
    expected = model.predict(X)
    with config_context(assume_finite=True):
        mean = model.predict(with_entry(X, np.nan))
    np.testing.assert_array_equal(mean[:-1], expected[:-1])
    assert np.isnan(mean[-1])


@pytest.mark.parametrize("make", [ensemble, student])
def test_rows_may_come_backwards(make, data):
    X, y = data
    expected = make().fit(X[::-1].copy(), y[::-1].copy())
    model = make().fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    for backwards in (X[::-1], X[:, ::-1], X[::-1, ::-1]):
        np.testing.assert_array_equal(model.predict(backwards), model.predict(backwards.copy()))


# ------------------------------------------------------------------------------------------
# Weights
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.eye(60)[0], "sample_weight must not be negative"),
        (np.zeros(60), "sample_weight must have at least one positive value"),
        (0.0, "sample_weight must have at least one positive value"),
        (-1.0, "sample_weight must not be negative"),
        (np.ones(59), r"sample_weight must have shape \(60,\), got \(59,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\), got \(60, 1\)"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
        (np.full(60, np.inf), "sample_weight contains infinity"),
    ],
)
def test_bad_weights_are_named(make, weight, message, data):
    with pytest.raises(ValueError, match=message):
        make().fit(*data, sample_weight=weight)


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_number_weights_every_row(make, data):
    X, y = data
    expected = make().fit(X, y, sample_weight=np.full(len(X), 2.0)).predict(X)
    np.testing.assert_array_equal(make().fit(X, y, sample_weight=2.0).predict(X), expected)


# ------------------------------------------------------------------------------------------
# The caller's generators and threads
# ------------------------------------------------------------------------------------------


def with_dropout(in_features, out_features, dropout=0.5):
    return torch.nn.Sequential(
        torch.nn.Linear(in_features, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, out_features)
    )


def dropout_ensemble(**params):
    return BayesianEnsembleRegressor(2, module=with_dropout, max_epochs=2, **params)


def dropout_student(**params):
    return HydraPlusRegressor(ensemble(), module=with_dropout, max_epochs=2, **params)


def student_that_drops(**params):
    return student(**{"module__dropout": 0.5, **params})


@pytest.mark.parametrize("make", [ensemble, student, dropout_ensemble, dropout_student])
def test_fit_leaves_the_callers_generators_and_threads(make, data):
    model = make().set_params(random_state=0)
    torch.manual_seed(5)
    np.random.seed(5)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.fit(*data).predict(data[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()


@pytest.mark.parametrize("make", [dropout_ensemble, dropout_student, student_that_drops])
def test_dropout_is_on_in_fit_off_after_it_and_seeded(make, data):
    X, y = data
    first, second = (make(random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_array_equal(first.predict(X), first.predict(X))
    assert not first.module_.training
    without = make(random_state=0, module__dropout=0.0).fit(X, y)
    assert (first.predict(X) != without.predict(X)).all()


# ------------------------------------------------------------------------------------------
# skorch's callbacks and scikit-learn's
# ------------------------------------------------------------------------------------------


class Epochs(skorch.callbacks.Callback):
    """Counts epochs, and asks to end training after `last` of them."""

    def __init__(self, last=100):
        self.last = last

    def on_train_begin(self, net, **kwargs):
        self.seen = 0

    def on_epoch_end(self, net, **kwargs):
        self.seen += 1
        if self.seen == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("make", [ensemble, student])
def test_skorch_callbacks_see_epochs_and_may_stop(make, data):
    model = make(callbacks=[("epochs", Epochs())], callbacks__epochs__last=2)
    model.fit(*data)
    assert len(model.history_) == 2
    assert model.callbacks[0][1].seen == 2
    assert model.predict(data[0]).shape == (60,)


class Batches(skorch.callbacks.Callback):
    seen = 0

    def on_batch_end(self, net, batch, training, **kwargs):
        self.seen += 1


class StopsAtOnce(skorch.callbacks.Callback):
    def on_batch_end(self, net, batch, training, **kwargs):
        raise KeyboardInterrupt


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_stop_within_the_first_epoch_is_no_interruption(make, data):
    model = make(callbacks=[StopsAtOnce()])
    try:
        model.fit(*data)
    except KeyboardInterrupt:
        pytest.fail("a callback's wish to stop came out as Ctrl-C")
    assert model.predict(data[0]).shape == (60,)


class PressesCtrlC(skorch.callbacks.Callback):
    """The user presses Ctrl-C while this callback is at work, at the end of the second epoch."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("make", [ensemble, student])
def test_ctrl_c_within_a_callback_is_no_wish_to_stop(make, data):
    before = signal.getsignal(signal.SIGINT)
    model = make(callbacks=[PressesCtrlC()])
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(model.history_) == 2
    assert model.predict(data[0]).shape == (60,)


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_fit_within_a_thread_sets_no_signal_handler(make, data, monkeypatch):
    alone = make().fit(*data)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("a handler was set"))
    with ThreadPoolExecutor(1) as pool:
        model = pool.submit(make().fit, *data).result()
    np.testing.assert_array_equal(model.predict(data[0]), alone.predict(data[0]))


@pytest.mark.parametrize("make", [ensemble, student])
def test_skorch_callbacks_may_listen_to_batches(make, data):
    listener = Batches()
    model = make(callbacks=[listener], batch_size=25).fit(*data)
    assert listener.seen == 5 * 3
    silent = make(batch_size=25).fit(*data)
    np.testing.assert_allclose(model.predict(data[0]), silent.predict(data[0]), rtol=1e-9)


has_callbacks = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None, reason="scikit-learn < 1.9"
)


class Tasks:
    """A scikit-learn callback that writes down the tasks, and may stop at an epoch."""

    max_propagation_depth = None

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.begun: list[tuple] = []
        self.ended: list[tuple] = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(self.path(context))

    def on_fit_task_end(self, estimator, context):
        self.ended.append(self.path(context))
        return context.task_name == "epoch" and context.task_id == self.stop_at

    @staticmethod
    def path(context):
        names = []
        while context is not None:
            names.insert(0, (context.estimator_name, context.task_name))
            context = context.parent
        return tuple(names)


def counted(tasks):
    assert Counter(tasks.begun) == Counter(tasks.ended)
    return Counter((path[-1][0], path[-1][1]) for path in tasks.begun)


@has_callbacks
def test_every_epoch_is_a_task(data):
    tasks = Tasks()
    ensemble().set_callbacks(tasks).fit(*data)
    name = "BayesianEnsembleRegressor"
    assert counted(tasks) == {(name, "fit"): 1, (name, "epoch"): 5}


@has_callbacks
def test_every_block_of_members_has_its_epochs(data, monkeypatch):
    monkeypatch.setattr(_training, "block_size", lambda *arguments: 2)
    tasks = Tasks()
    model = ensemble(device="cpu").set_callbacks(tasks).fit(*data)
    assert counted(tasks)["BayesianEnsembleRegressor", "epoch"] == 10
    assert len(model.history_) == 10


@has_callbacks
@pytest.mark.parametrize("memory", [False, True])
def test_the_teachers_epochs_are_tasks_of_the_student(memory, data, tmp_path):
    tasks = Tasks()
    model = student(ensemble(max_epochs=3), memory=str(tmp_path) if memory else None)
    model.set_callbacks(tasks).fit(*data)
    counts = counted(tasks)
    fit, epoch = ("BayesianEnsembleRegressor", "fit"), ("BayesianEnsembleRegressor", "epoch")
    assert counts[fit] == 1
    assert counts[epoch] == 3
    assert counts["HydraPlusRegressor", "epoch"] == 5
    assert (("HydraPlusRegressor", "fit"), fit, epoch) in tasks.begun
    assert not hasattr(model.teacher_, "_skl_callbacks")


@has_callbacks
@pytest.mark.parametrize("make_teacher", ["frozen", "pipeline"])
def test_tasks_of_other_teachers_are_complete(make_teacher, data):
    tasks = Tasks()
    if make_teacher == "frozen":
        teacher = FrozenEstimator(ensemble().fit(*data))
    else:
        teacher = make_pipeline(StandardScaler(), ensemble())
    student(teacher).set_callbacks(tasks).fit(*data)
    counts = counted(tasks)
    assert counts["HydraPlusRegressor", "epoch"] == 5
    assert counts["BayesianEnsembleRegressor", "epoch"] == (5 if make_teacher == "pipeline" else 0)


@has_callbacks
def test_tasks_nest_through_a_grid_search(data):
    tasks = Tasks()
    search = GridSearchCV(student(), {"lr": [0.01, 0.02]}, cv=2).set_callbacks(tasks)
    search.fit(*data)
    counts = counted(tasks)
    n_fits = 2 * 2 + 1
    assert counts["HydraPlusRegressor", "epoch"] == 5 * n_fits
    assert counts["BayesianEnsembleRegressor", "epoch"] == 5 * n_fits
    deepest = max(tasks.begun, key=len)
    assert deepest[0][0] == "GridSearchCV"
    assert deepest[-1] == ("BayesianEnsembleRegressor", "epoch")


@has_callbacks
def test_a_callback_that_returns_true_stops(data):
    teacher = ensemble().set_callbacks(Tasks(stop_at=2)).fit(*data)
    assert len(teacher.history_) == 3
    model = student(FrozenEstimator(teacher)).set_callbacks(Tasks(stop_at=1)).fit(*data)
    assert len(model.history_) == 2
    assert model.predict(data[0]).shape == (60,)


@has_callbacks
def test_a_stop_at_the_first_epoch_keeps_what_it_learnt(data):
    model = ensemble(early_stopping=True).set_callbacks(Tasks(stop_at=0)).fit(*data)
    assert model.best_epochs_.tolist() == [1, 1, 1]


@has_callbacks
@pytest.mark.parametrize("search", [False, True])
def test_progress_bar_runs(search, data, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    model = student(max_epochs=2)
    if search:
        model = GridSearchCV(model, {"lr": [0.01]}, cv=2)
    model.set_callbacks(ProgressBar()).fit(*data)
    assert "HydraPlusRegressor" in capsys.readouterr().out
    assert clone(model).get_params()


def test_works_without_scikit_learns_callbacks():
    code = """
    import sys
    import sklearn.compose, sklearn.model_selection, sklearn.pipeline  # need them where they exist
    sys.modules["sklearn.callback"] = None
    from sklearn.datasets import make_regression
    from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
    X, y = make_regression(40, 3, random_state=0)
    teacher = BayesianEnsembleRegressor(2, max_epochs=2)
    assert not hasattr(teacher, "set_callbacks")
    model = HydraPlusRegressor(teacher, max_epochs=2).fit(X, y)
    assert len(model.history_) == 2
    print(model.predict(X).shape)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "(40,)"
