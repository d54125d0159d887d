# SPDX-License-Identifier: BSD-3-Clause
"""Students of trees have inputs that step where the trees split."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeRegressor

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill._data.encoding import InputEncoding
from skdistill.distillers import _student
from skdistill.teachers import as_teacher
from skdistill.transfer import GaussianNoise

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 50.0, size=(400, 2))
Y = np.where(X[:, 0] > 20, 3.0, 0.0) + np.where(X[:, 1] > 40, X[:, 0] > 30, 0.0)
TREE = FrozenEstimator(as_teacher(DecisionTreeRegressor(max_leaf_nodes=4)).fit(X, Y))


def test_bins_around_thresholds_are_steps():
    found = InputEncoding.with_steps(None, X, [np.array([20.0]), np.array([])])
    encoder = found.module(torch.float64)
    half = 1e-3 * X[:, 0].std()
    at = torch.tensor([[20 - half, 0.0], [20.0, 0.0], [20 + half, 0.0], [49.0, 0.0]]).double()
    np.testing.assert_allclose(encoder(at)[:, 2], [0.0, 0.5, 1.0, 1.0], atol=1e-9)
    np.testing.assert_array_equal(encoder(at)[:, :2], at)


def test_steps_stand_beside_the_bins_of_an_encoding():
    own = InputEncoding.of(X, None)
    assert own is not None
    steps = InputEncoding.with_steps(own, X, [np.array([20.0, 20.0 + 1e-9, 30.0]), np.array([])])
    assert [len(edges) for edges in steps.edges] == [4, 0]  # two that are as one, and one
    twice = InputEncoding.with_steps(steps, X, [np.array([40.0]), np.array([5.0])])
    assert [len(edges) for edges in twice.edges] == [6, 2]
    inside = (X > 21) & (X < 29)
    rows = torch.from_numpy(X[inside[:, 0]])
    assert len(rows) > 10
    np.testing.assert_allclose(
        steps.module(torch.float64)(rows)[:, :2],
        (rows - torch.from_numpy(own.loc)) / torch.from_numpy(own.scale),
    )


@pytest.mark.slow
def test_a_student_of_a_tree_is_nearer_to_it():
    def distance(**settings):
        student = HydraPlusRegressor(TREE, max_epochs=60, random_state=0, **settings).fit(X, Y)
        rows = RNG.uniform(0.0, 50.0, size=(2000, 2))
        return np.sqrt(np.mean((student.predict(rows) - TREE.predict(rows)) ** 2))

    plain = {"module__embeddings": None, "transfer": GaussianNoise(correlated=True)}
    assert distance() < 0.5 * distance(**plain)


def test_students_of_trees_are_trained_for_twice_as_many_epochs(monkeypatch):
    monkeypatch.setattr(_student, "_SEEN_PER_ROOT", 110)  # 14 epochs of 60 samples
    monkeypatch.setattr(_student, "_EPOCHS_WITHIN", (1, 24))
    few, noise = X[:60], RNG.standard_normal(60)
    tree = as_teacher(DecisionTreeRegressor(max_depth=1))
    networks = BayesianEnsembleRegressor(1, max_epochs=2)
    for teacher, n_epochs in ((tree, 28), (networks, 14)):
        fitted = FrozenEstimator(teacher.fit(few, noise))
        settings = {"transfer": None, "module__hidden_units": (2,), "random_state": 0}
        assert HydraPlusRegressor(fitted, **settings).fit(few, noise).n_epochs_ == n_epochs


def test_steps_are_as_narrow_as_the_values_about_them():
    heavy = np.exp(4 * np.random.default_rng(1).standard_normal(2000))[:, None]
    values, at = np.sort(heavy[:, 0]), np.quantile(heavy, [0.1, 0.5, 0.9])
    (edges,) = InputEncoding.with_steps(None, heavy, [at]).edges
    assert len(edges) == 6
    low, high = np.searchsorted(values, edges.reshape(3, 2)).T
    assert (high - low <= 8).all()  # of 2,000 samples
    np.testing.assert_allclose(edges.reshape(3, 2).mean(axis=1), at)
