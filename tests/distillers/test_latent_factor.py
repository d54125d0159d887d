# SPDX-License-Identifier: BSD-3-Clause
"""Students of the family "latent_factor": spread, covariance of samples, and drawn functions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleRegressor,
    DistributionDistiller,
)
from skdistill.families import LatentFactorFamily
from skdistill.settings import Optimizer

N_ROWS, N_MEMBERS = 6, 9
X = np.eye(N_ROWS)  # samples that a linear network can tell what it likes about


def student(**params):
    """A student that fits every row of X by itself, to convergence."""
    settings = {
        "family": "latent_factor",
        "module__hidden_units": (),
        "max_epochs": 1500,
        "lr": 0.05,
        "random_state": 0,
        "normalize": "X",
        "ddof": 0,
    }
    return DistributionDistiller("regressor", **{**settings, **params})


def members_of_two_factors(n_targets=1, noise=0.2, n_members=N_MEMBERS):
    """Means and variances, (n, M, t, 2): two functions in common, and deviations of each sample."""
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(n_members, 2))
    functions = draw.normal(size=(N_ROWS, 2, n_targets))
    means = np.einsum("iq,nqt->nit", scores, functions)
    means += noise * draw.normal(size=means.shape)
    return np.stack([means, np.full_like(means, 0.5)], axis=-1)


def covariance(values):
    """Covariance between samples and targets of members (n, M, ...), flattened."""
    flat = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
    return np.cov(flat.T, bias=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_targets", [1, 2])
def test_spread_and_covariance_are_those_of_the_members(n_targets):
    members = members_of_two_factors(n_targets)
    y = members[..., 0].mean(1)
    model = student().fit(X, y if n_targets > 1 else y[:, 0], member_predictions=members)
    n_factors = model._plan.family.scores.shape[1]
    assert 2 <= n_factors < N_MEMBERS - 1
    uncertainty = model.predict_uncertainty(X)
    shape = uncertainty.epistemic.shape
    np.testing.assert_allclose(
        uncertainty.epistemic, members[..., 0].var(1).reshape(shape), rtol=0.02
    )
    np.testing.assert_allclose(uncertainty.aleatoric, 0.5, rtol=1e-3)
    np.testing.assert_allclose(model.predict(X).reshape(y.shape), y, atol=0.02)
    drawn = model.sample_members(X, 20_000, random_state=0)
    assert drawn.shape == (N_ROWS, 20_000, n_targets, 2)
    np.testing.assert_allclose(drawn[..., 1], 0.5, rtol=1e-3)
    wanted = covariance(members[..., 0])
    found = covariance(drawn[..., 0])
    np.testing.assert_allclose(np.diag(found), np.diag(wanted), rtol=0.05)
    np.testing.assert_allclose(found, wanted, atol=0.1 * np.diag(wanted).max())
    # Without the residual variance the factors alone are left, which explain most of it.
    smooth = covariance(model.sample_members(X, 20_000, with_residual=False)[..., 0])
    assert (np.diag(smooth) < np.diag(found)).all()
    assert np.diag(smooth).sum() > 0.8 * np.diag(found).sum()


@pytest.mark.slow
def test_what_the_student_misses_is_left_to_the_residual():
    """It learns neither the mean, a curve, nor the loadings, but the members' spread is kept."""
    rows = np.linspace(-1, 1, 200)[:, None]
    scores = np.random.default_rng(0).normal(size=N_MEMBERS)
    scores = (scores - scores.mean()) / scores.std()
    means = np.cos(3 * rows) + 0.1 * np.sign(np.sin(40 * rows)) * scores
    members = np.stack([means, np.full_like(means, 0.04)], axis=-1)[:, :, None]
    model = student(max_epochs=300)
    model.fit(rows, means.mean(1), member_predictions=members)
    np.testing.assert_allclose(model.predict_uncertainty(rows).epistemic, 0.01, rtol=0.1)
    smooth = model.sample_members(rows, 500, with_residual=False, random_state=0)[:, :, 0, 0]
    assert smooth.var(1).mean() < 0.001


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(80, 3))
    return X, X[:, 0] + 0.1 * draw.normal(size=80)


def fitted(data, **params):
    """A student of a small ensemble."""
    small = {"module__hidden_units": (8,), "max_epochs": 5, "random_state": 0}
    X, y = data
    ensemble = BayesianEnsembleRegressor(params.pop("n_members", 4), **small)
    teacher = FrozenEstimator(ensemble.fit(X, y))
    family = LatentFactorFamily(n_factors=params.pop("n_factors", "auto"))
    model = DistributionDistiller(teacher, family=family, **{**small, **params})
    return model.fit(X, y), y


@pytest.mark.parametrize(("given", "expected"), [(1, 1), (2, 2), (10, 3)])
def test_number_of_factors(given, expected, data):
    model, _ = fitted(data, n_factors=given)
    assert model._plan.family.scores.shape == (4, expected)
    assert model.module_.network[-1].bias.shape[-1] == 4 + expected


def test_training_goes_on_with_the_same_factors(data):
    model, y = fitted(data, warm_start=True, optimizer=Optimizer(lr_schedule=None))
    scores = model._plan.family.scores
    model.set_params(max_epochs=8).fit(data[0], y)
    np.testing.assert_array_equal(model._plan.family.scores, scores)
    at_once, _ = fitted(data, optimizer=Optimizer(lr_schedule=None), max_epochs=8)
    np.testing.assert_array_equal(
        model.predict_uncertainty(data[0]).total, at_once.predict_uncertainty(data[0]).total
    )
    model.set_params(family__n_factors=scores.shape[1] + 1, max_epochs=9)
    with pytest.raises(ValueError, match="n_factors must be 'auto' or"):
        model.fit(data[0], y)


def test_members_that_agree_are_drawn_alike():
    members = members_of_two_factors()[:, :1].repeat(3, axis=1)
    y = members[:, 0, 0, 0]
    model = student(max_epochs=5)
    with pytest.warns(UserWarning, match="never disagreed"):
        model.fit(X, y, member_predictions=members)
    drawn = model.sample_members(X, 4)
    assert (drawn == drawn[:, :1]).all()
    assert (model.predict_uncertainty(X).epistemic == 0).all()
