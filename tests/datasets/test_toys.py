# SPDX-License-Identifier: BSD-3-Clause
"""The toy problems against numbers by hand and the geometry of a spiral."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

from skdistill.datasets import make_cube, make_ellipsoid, make_hydra_regression, make_spirals


def test_hydra_regression_is_the_function_of_the_paper():
    X, y = make_hydra_regression(n_samples=500, noise=0.0, random_state=0)
    assert X.shape == (500, 1)
    assert y.shape == (500,)
    assert -6 <= X.min() < -5.9
    assert 5.9 < X.max() <= 6
    # By hand: f(0) = 0, f(2) = sin 2 - .2 + .4 + .08, f(-4) = -sin 4 + .4 + 1.6 - .64.
    order = np.argsort(X[:, 0])
    for x, f in [(0.0, 0.0), (2.0, np.sin(2.0) + 0.28), (-4.0, 1.36 - np.sin(4.0))]:
        assert_allclose(np.interp(x, X[order, 0], y[order]), f, atol=1e-3)


@pytest.mark.parametrize("n_arms", [2, 3, 5])
def test_without_noise_the_radius_is_the_angle_turned_by_the_arm(n_arms):
    X, y = make_spirals(301, n_arms, noise=0.0, random_state=0)
    radius, angle = np.hypot(*X.T), np.arctan2(X[:, 1], X[:, 0])
    turned = radius + 2 * np.pi * y / n_arms
    assert_allclose(np.exp(1j * angle), np.exp(1j * turned), atol=1e-12)
    assert radius.max() <= 2 * np.pi


def test_arms_share_the_rows_evenly():
    X, y = make_spirals(100, n_arms=3)
    assert X.shape == (100, 2)
    assert_array_equal(np.bincount(y), [34, 33, 33])


def test_ellipsoid_has_as_many_rows_outside_as_inside():
    X, y = make_ellipsoid(2001, 5, random_state=0)
    assert X.shape == (2001, 5)
    assert y.sum() == 1000
    # The matrix is found from the rows: a quadratic function of them tells the classes.
    pairs = X[:, :, None] * X[:, None, :]
    columns = pairs[:, *np.triu_indices(5)]
    again = LogisticRegression(C=1e4, max_iter=2000).fit(columns[:1500], y[:1500])
    assert again.score(columns[1500:], y[1500:]) > 0.97
    assert LogisticRegression().fit(X, y).score(X, y) < 0.6


def test_cube_has_the_class_of_the_nearest_vertex():
    X, y = make_cube(4000, 3, n_vertices=6, n_classes=3, random_state=1)
    assert set(y.tolist()) == {0, 1, 2}
    random_state = np.random.RandomState(1)
    vertices = random_state.choice([-1.0, 1.0], size=(6, 3))
    distances = np.square(X[:, None] - vertices).sum(axis=-1)
    np.testing.assert_array_equal(y, distances.argmin(axis=1) % 3)
    with pytest.raises(ValueError, match="n_classes must be an integer from 2 to 6, got 7"):
        make_cube(n_vertices=6, n_classes=7)
