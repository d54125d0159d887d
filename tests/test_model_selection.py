# SPDX-License-Identifier: BSD-3-Clause
"""Costs against what is counted by hand."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.datasets import make_regression
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
)
from skdistill.model_selection import (
    flops,
    latency,
    n_parameters,
)
from skdistill.modules import ConvNet


@pytest.fixture(scope="module")
def data():
    return make_regression(40, 4, noise=5.0, random_state=0)


@pytest.fixture(scope="module")
def ensemble(data):
    """Three networks of 4 -> 5 -> 2, and nothing else."""
    model = BayesianEnsembleRegressor(
        3, max_epochs=1, module__hidden_units=(5,), distance_aware=False, random_state=0
    )
    return model.fit(*data)


N_WEIGHTS = 4 * 5 + 5 * 2
N_PARAMETERS = N_WEIGHTS + 5 + 2


# --- costs ----------------------------------------------------------------------------------


def test_of_an_ensemble_by_hand(ensemble, data):
    assert n_parameters(ensemble) == 3 * N_PARAMETERS
    assert flops(ensemble, data[0]) == 3 * 2 * N_WEIGHTS  # a product and a sum for each weight


def test_of_a_student_by_hand(ensemble, data):
    student = HydraPlusRegressor(
        FrozenEstimator(ensemble), max_epochs=1, module__hidden_units=(6, 5), transfer=None
    ).fit(*data)
    core, heads = 4 * 6 + 6 * 5, (3 + 1) * 5 * 2  # the last is the gain
    assert flops(student, data[0]) == 2 * (core + heads)
    assert n_parameters(student) == student.n_parameters_ == core + heads + 6 + 5 + (3 + 1) * 2


def test_of_convolutions_by_hand():
    X = np.random.default_rng(0).normal(size=(20, 6, 6))
    model = BayesianEnsembleClassifier(
        2, module=ConvNet, module__channels=(3,), module__hidden_units=(4,), max_epochs=1
    ).fit(X, np.arange(20) % 2)
    one = 2 * (3 * 9 * 36 + 27 * 4 + 4 * 2)  # 3 x 3 at 36 pixels, pooled to 3 x 3
    assert flops(model, X) == 2 * one


class Sleeper(BaseEstimator):
    """Takes a millisecond for a sample, and ten times that the first two times."""

    n_calls, seen = 0, ()

    def predict(self, X):
        self.n_calls += 1
        self.seen = (*self.seen, (len(X), torch.get_num_threads()))
        time.sleep(1e-3 * len(X) * (10 if self.n_calls <= 2 else 1))


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, lambda X: X.tolist()])
def test_latency_is_the_median_of_calls_on_one_thread(make, data):
    model = Sleeper()
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = latency(model, make(data[0][:3]), batch_size=5, n_repeats=4)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)
    assert 5e-3 <= found < 40e-3
    assert model.seen == ((5, 1),) * 5
