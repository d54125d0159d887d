# SPDX-License-Identifier: BSD-3-Clause
"""Targets in, predictions out: shapes, dtypes and scales."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.exceptions import DataConversionWarning
from small_models import METHODS, ensemble, student

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    load,
    save,
)
from skdistill._method.task import ClassificationTask, RegressionTask
from skdistill._utils import moments as _standardisation
from skdistill._utils.moments import standardisation
from skdistill.families import known_families
from skdistill.samplers import SGLD
from skdistill.settings import Runtime


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
@pytest.mark.parametrize("factor", [1e100, 1e-100])
def test_targets_of_any_scale_are_learnt_alike(make, factor, data):
    X, y = data
    plain, scaled = make().fit(X, y), make().fit(X, factor * y)
    np.testing.assert_allclose(scaled.predict(X), factor * plain.predict(X), rtol=1e-6)
    intervals = scaled.predict_interval(X), factor * plain.predict_interval(X)
    np.testing.assert_allclose(*intervals, rtol=1e-6)


FAST = {"max_epochs": 2, "random_state": 0}
FAR_FROM_ZERO = {
    "ensemble": ensemble,
    "hydra": student,
    "bdistil": lambda: BDistilBooster(ensemble(), n_rounds=2, **FAST),
    "replayed": lambda: GPEDDistiller(ensemble(), **FAST),
    "chains": lambda: GPEDDistiller(ensemble(inference=SGLD(1e-5), max_epochs=20), random_state=0),
    **{
        family: lambda family=family: DistributionDistiller(ensemble(), family=family, **FAST)
        for family in known_families("regressor")
    },
}


def read_around(offset, model, X):
    """Everything that is in units of y, with the offset taken off."""
    mean, std = model.predict(X, return_std=True)
    located = [mean, model.predict_quantiles(X, [0.1, 0.9]), model.sample_y(X, 2, random_state=0)]
    assert {array.dtype for array in located} == {np.dtype(float)} or not offset
    return [std, *(array - offset for array in located)]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, np.float32) for kind in FAR_FROM_ZERO), ("ensemble", np.float64)],
)
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


def classifier(**params):
    settings = {"n_members": 3, "max_epochs": 2, "module__activation": "relu", "random_state": 0}
    return BayesianEnsembleClassifier(**{**settings, **params})


ALL_KINDS = {
    "regressor": lambda: ensemble(module__activation="relu"),
    "bounded": ensemble,
    "hydra": student,
    "bdistil": lambda: BDistilBooster(ensemble(), n_rounds=2, **FAST),
    "gped, classes": lambda: GPEDDistiller(classifier(), **FAST),
    "gaussian": lambda: DistributionDistiller(ensemble(), **FAST),
    "mixture": lambda: DistributionDistiller(ensemble(), family="mixture", **FAST),
    "dirichlet": lambda: DistributionDistiller(classifier(), **FAST),
    "logit_normal": lambda: DistributionDistiller(classifier(), family="logit_normal", **FAST),
}
PREDICTIONS = {
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


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, np.float32) for kind in ALL_KINDS),
        ("regressor", np.float64),
        ("bounded", np.float64),
    ],
)
def test_a_row_that_overflows_is_named_and_never_predicted_as_nonsense(kind, dtype, data, tally):
    X, y = data
    model = ALL_KINDS[kind]()
    fits_classes = "class" in kind or kind in ("dirichlet", "logit_normal")
    model.fit(X.astype(dtype), y > y.mean() if fits_classes else y)
    rows, outcomes = X[:5].copy(), Counter()
    for value in (1e10, 1e25, 1e38, 1e100, 1e300, 1.7e308):
        rows[3, 1:] = value, -value
        for name, read in PREDICTIONS.items():
            if not hasattr(model, {"early exit": "staged_predict"}.get(name, name)):
                continue
            arrays, error = [], ""
            try:
                arrays = read(model, rows)
            except ValueError as raised:
                error = str(raised)
            assert all(np.isfinite(a).all() for a in arrays if a is not None)
            assert arrays or re.search(
                r"^X must .*(sample 3 .* X\[3, 1\]|\[3, 1\], its row)", error
            )
            outcomes["named" if error else "predicted"] += 1
    assert len(outcomes) == 2 or dtype == np.float64  # tanh is none the worse for 1e300
    tally("samples that overflow", outcomes.total())


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


@pytest.mark.parametrize(
    ("dtype", "n_rows", "computed"),
    [
        ("auto", 200, torch.float32),
        ("auto", 199, torch.float64),
        ("float32", 50, torch.float32),
        ("float64", 200, torch.float64),
    ],
)
@pytest.mark.parametrize("kind", [BayesianEnsembleRegressor, BayesianEnsembleClassifier])
def test_large_tables_are_computed_in_float32(dtype, n_rows, computed, kind, tmp_path):
    X = np.random.default_rng(0).standard_normal((n_rows, 2))
    model = kind(2, max_epochs=1, runtime=Runtime(dtype=dtype), random_state=0)
    model.fit(X, X[:, 0] > 0)
    assert {parameter.dtype for parameter in model.module_.parameters()} == {computed}
    save(model, tmp_path / "model")
    for found in (model, pickle.loads(pickle.dumps(model)), load(tmp_path / "model")):
        total = found.predict_uncertainty(X[:9]).total
        assert total.dtype == np.float64
        np.testing.assert_array_equal(total, model.predict_uncertainty(X[:9]).total)


def test_spread_members_have_the_variance_without_bias(monkeypatch):
    monkeypatch.setattr(_standardisation, "_PIECE", 40)
    rng = np.random.default_rng(0)
    members = np.stack([rng.normal(3, 1, (23, 5, 2)), rng.gamma(2, size=(23, 5, 2))], -1)
    units = {"y_loc": np.zeros(2), "y_scale": np.ones(2)}
    found = RegressionTask(2, True).encode_members(members, units, float, np.sqrt(5 / 4))
    np.testing.assert_allclose(found[..., 0].mean(1), members[..., 0].mean(1))
    np.testing.assert_allclose(found[..., 0].var(1), members[..., 0].var(1, ddof=1))
    np.testing.assert_array_equal(found[..., 1], members[..., 1])

    proba = rng.dirichlet(np.ones(4), size=(23, 5))
    proba[5, 1] = [0, 0, 0, 1]
    with np.errstate(divide="ignore"):
        logits = np.log(proba)
    found = ClassificationTask(np.arange(4)).encode_members(proba, {}, float, np.sqrt(5 / 4))
    np.testing.assert_array_equal(found[5], logits[5])
    found, logits = np.delete(found, 5, axis=0), np.delete(logits, 5, axis=0)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1)
    centred = [values - values.mean(-1, keepdims=True) for values in (found, logits)]
    np.testing.assert_allclose(centred[0].mean(1), centred[1].mean(1), atol=1e-12)
    np.testing.assert_allclose(centred[0].var(1), centred[1].var(1, ddof=1))


def test_targets_that_float64_does_not_tell_apart_are_refused():
    task, weight = RegressionTask(1, True), np.ones(50)
    z = np.random.RandomState(0).randn(50, 1)
    with pytest.raises(ValueError, match="y must vary by more than float64 rounds"):
        task.scaling(1.7e18 + 1000 * z, weight, np.float64)
    for y in (np.full((50, 1), 1e17), 1.7e18 + 1e5 * z):
        assert np.isfinite(task.scaling(y, weight, np.float64)["y_scale"]).all()
    weight[z[:, 0] != z[0, 0]] = 0  # the rest is constant
    assert task.scaling(1.7e18 + 1000 * z, weight, np.float64)["y_scale"] == 1
