# SPDX-License-Identifier: BSD-3-Clause
"""The epistemic part of foreign models against variances in closed form."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, Ridge

from skdistill import BayesianEnsembleRegressor
from skdistill.teachers import Teacher, as_teacher
from skdistill.teachers._held_out import EpistemicScale

by_halves = partial(as_teacher, epistemic_scale="halves")

N_COLUMNS, NOISE = 20, 0.5


def plane(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, N_COLUMNS))
    return X, X @ np.linspace(-1, 1, N_COLUMNS) + NOISE * random.normal(size=n)


def variance_of_the_mean(X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of a linear model with an intercept: noise x' (X' X)^-1 x."""
    X, rows = (np.column_stack([np.ones(len(one)), one]) for one in (X, rows))
    return NOISE**2 * np.einsum("ni,ij,nj->n", rows, np.linalg.inv(X.T @ X), rows)


def bag(n_members: int = 20, **params) -> BaggingRegressor:
    return BaggingRegressor(LinearRegression(), n_members, random_state=0, **params)


# --- Truth ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "low", "high"),
    [(bag(), 0.7, 1.4), (bag(max_samples=0.2), 0.05, 0.3)],
)
def test_the_mean_variance_is_that_of_the_models_mean(model, low, high):
    (X, y), (rows, _) = plane(), plane(500, seed=1)
    teacher = by_halves(model).fit(X, y)
    assert low <= teacher.epistemic_scale_ <= high
    members = teacher.predict_members(rows)[:, :, 0, 0]
    ratio = members.var(axis=1, ddof=1).mean() / variance_of_the_mean(X, rows).mean()
    assert 0.6 < ratio < 1.7


def test_each_target_has_its_scale():
    X, y = plane()
    both = np.column_stack([y, 1e3 * y[::-1]])
    teacher = by_halves(bag(max_samples=0.2)).fit(X, both)
    alone = by_halves(bag(max_samples=0.2)).fit(X, y)
    assert_allclose(teacher.epistemic_scale_[0], alone.epistemic_scale_)
    assert teacher.epistemic_scale_.shape == (2,)
    assert 0.05 < teacher.epistemic_scale_[1] < 0.3


# --- What stays -------------------------------------------------------------------------------


def test_mean_and_total_stay(classes, numbers):
    for model, (X, y) in [
        (RandomForestRegressor(12, random_state=0), numbers),
        (RandomForestClassifier(12, random_state=0), classes),
    ]:
        scaled = by_halves(model).fit(X, y)
        plain = as_teacher(model, epistemic_scale=None).fit(X, y)
        assert plain.epistemic_scale_ is None
        assert scaled.epistemic_scale_ < 1
        assert_array_equal(scaled.predict(X), plain.predict(X))
        ours, theirs = scaled.predict_uncertainty(X), plain.predict_uncertainty(X)
        assert_allclose(ours.total, theirs.total, rtol=1e-10)
        assert ours.epistemic.mean() < theirs.epistemic.mean()
        assert_allclose(
            scaled.predict_members(X).mean(axis=1)[..., :1],
            plain.predict_members(X).mean(axis=1)[..., :1],
        )


def test_moments_by_hand():
    members = np.array([[[[1.0, 2.0]], [[3.0, 4.0]]]])  # a spread of 1, a mean variance of 3
    quarter = EpistemicScale(np.array([0.25])).of_moments(members)
    assert_allclose(quarter[0, :, 0], [[1.5, 2.75], [2.5, 4.75]])
    double = EpistemicScale(np.array([2.0])).of_moments(members)
    assert_allclose(double[0, :, 0, 0], 2 + np.sqrt(2) * np.array([-1, 1]))
    assert_allclose(double[0, :, 0, 1], np.array([2, 4]) * 2 / 3)
    most = EpistemicScale(np.array([9.0])).of_moments(members)
    assert_allclose(most[0, :, 0, 1].mean(), 0.05 * 4)  # of the total


def test_the_power_depends_on_the_stated_variance():
    # Deviations of 1, 2 and 3 state variances of 2, 8 and 18 with ddof=1: the last is far.
    means = np.array([[-1.0, 1.0], [-2.0, 2.0], [-3.0, 3.0]])
    members = np.stack([means, np.full((3, 2), 50.0)], axis=-1)[:, :, None]
    scale = EpistemicScale(np.array([0.5]), np.array([-1.0]), np.array([2.0]))
    found = scale.of_moments(members)[:, 1, 0, 0]
    assert_allclose(np.square(found), [0.5 * 1, 0.5 * 4 / 4, 0.5 * 9 / 5])


def test_probabilities_stay_in_the_simplex():
    members = np.random.default_rng(0).dirichlet([5.0, 3.0, 0.5], size=(40, 10))
    for factor in (0.3, 4.0, 900.0):
        found = EpistemicScale(np.array([factor])).of_probabilities(members)
        assert (found >= 0).all()
        assert_allclose(found.sum(axis=-1), 1)
        assert_allclose(found.mean(axis=1), members.mean(axis=1), atol=1e-12)
    close = 0.2 + 0.01 * members / members.sum(axis=-1, keepdims=True) + 0.13
    found = EpistemicScale(np.array([4.0])).of_probabilities(close / close.sum(-1, keepdims=True))
    assert_allclose(
        found.std(axis=1), 2 * (close / close.sum(-1, keepdims=True)).std(axis=1), rtol=1e-6
    )


# --- Which models -----------------------------------------------------------------------------


def test_what_is_fitted_or_exact_or_has_one_member_keeps_its_scale(numbers):
    X, y = numbers
    forest = RandomForestRegressor(5, random_state=0)
    ensemble = BayesianEnsembleRegressor(3, max_epochs=1)
    fitted = forest.fit(X, y)
    for teacher in (
        by_halves(FrozenEstimator(fitted)),
        by_halves([fitted, clone(forest).set_params(random_state=1).fit(X, y)]),
        by_halves(GaussianProcessRegressor()),
        by_halves(Ridge()),
        by_halves(ensemble, max_members=2),
    ):
        assert teacher.fit(X, y).epistemic_scale_ is None


def test_a_number_multiplies_the_variance(numbers):
    X, y = numbers
    fitted = FrozenEstimator(RandomForestRegressor(6, random_state=0).fit(X, y))
    plain = by_halves(fitted).fit(X, y)
    scaled = as_teacher(fitted, epistemic_scale=0.25).fit(X, y)
    assert scaled.epistemic_scale_ == 0.25
    ours, theirs = scaled.predict_uncertainty(X), plain.predict_uncertainty(X)
    assert_allclose(ours.epistemic, theirs.epistemic / 4, atol=1e-9)
    ensemble = BayesianEnsembleRegressor(3, max_epochs=1)
    assert isinstance(as_teacher(ensemble, epistemic_scale=0.5), Teacher)
    assert as_teacher(ensemble) is ensemble
