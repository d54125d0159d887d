# SPDX-License-Identifier: BSD-3-Clause
"""All that is read off the predicted distribution."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context
from small_models import assert_same, ensemble

from skdistill import (
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill._estimator import batched
from skdistill._estimator.batched import chunk_size
from skdistill.distributions import EmpiricalGaussian
from skdistill.families import known_families
from skdistill.modules import InputEncoder


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


STUDENTS = {
    "ensemble": lambda teacher, **settings: teacher,
    **{
        family: partial(DistributionDistiller, family=family)
        for family in known_families("regressor")
    },
    "hydra": HydraPlusRegressor,
    "hydra with a gain": partial(HydraPlusRegressor, heads=2),
    "expectations": GPEDDistiller,
    "boosting": partial(BDistilBooster, n_rounds=2),
}


@pytest.mark.parametrize("name", STUDENTS)
def test_the_mean_alone_is_that_of_the_distribution(name, two_targets):
    X, Y = two_targets
    settings = {"max_epochs": 2, "module__hidden_units": (8,), "random_state": 0}
    model = STUDENTS[name](ensemble(), **settings).fit(X, Y)
    expected = model.predict_distribution(X).mean.numpy()
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)
    if name == "hydra with a gain":
        assert model._plan.has_gain


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


def n_encoded(module):
    """Inputs that encoders make of a sample: of the networks, and of random functions."""
    return sum(part.n_inputs for part in module.modules() if isinstance(part, InputEncoder))


def test_chunks_follow_the_cache_and_working_memory(data, monkeypatch):
    model = ensemble(n_members=10, module__hidden_units=(100, 30), max_epochs=1).fit(*data)
    # Inputs, and activations of all layers and members, in float64.
    per_row = (n_encoded(model.module_) + 10 * (100 + 30 + 2)) * 8
    assert chunk_size(model.module_, model._recipe.row_shape) == batched._CHUNK_BYTES // per_row
    with config_context(working_memory=1):
        assert chunk_size(model.module_, model._recipe.row_shape) == 2**20 // per_row
    monkeypatch.setattr(batched, "_CHUNK_BYTES", 2 * per_row)
    assert chunk_size(model.module_, model._recipe.row_shape) == 2
    monkeypatch.setattr(batched, "_CHUNK_BYTES", per_row - 1)
    assert chunk_size(model.module_, model._recipe.row_shape) == 1  # never less than a sample
