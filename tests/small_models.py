# SPDX-License-Identifier: BSD-3-Clause
"""Small estimators that several test files use, and what can be read off them."""

from __future__ import annotations

import numpy as np
from sklearn.compose import TransformedTargetRegressor

from skdistill import (
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
    predict_interval,
    predict_members,
    predict_quantiles,
    predict_uncertainty,
)


def ensemble(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleRegressor(**{**settings, **params})


def student(teacher=None, **params):
    settings = {"max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return HydraPlusRegressor(teacher or ensemble(), **{**settings, **params})


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


def target_transformed(data, **transform):
    X, y = data
    model = TransformedTargetRegressor(ensemble(), **transform).fit(X, y)
    return model, model.regressor_


def weights(model):
    """Copies of a fitted model's parameters and buffers."""
    return {name: value.numpy().copy() for name, value in model.module_.state_dict().items()}


def assert_same_weights(model, expected):
    """Hold the weights of two models against each other, bit for bit."""
    found, wanted = weights(model), weights(expected)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)
