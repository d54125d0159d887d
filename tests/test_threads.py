# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of many threads are those of one, also while others fit and pickle."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
)
from skdistill._engine import _traced
from skdistill._estimator import batched
from skdistill.model_selection import flops
from skdistill.modules import MLP, ConvNet, Recurrent, count_flop
from skdistill.settings import Runtime

N_THREADS = 8
N_CALLS = 2  # of each thread, on each model
N_ROWS = 24

pytestmark = [
    pytest.mark.filterwarnings("ignore:Loops cannot be vectorised"),
]


@pytest.fixture(autouse=True)
def _restless(monkeypatch):
    """Threads take turns all the time, and few samples are many."""
    monkeypatch.setattr(batched, "_FEW", 100)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# --- Models -----------------------------------------------------------------------------------


class Own(nn.Module):
    """A network that only vmap can stack."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.norm = nn.LayerNorm(in_features)
        self.layers = MLP(in_features, out_features, (12, 5))

    def forward(self, x):
        return self.layers(self.norm(x))


class Loops(Own):
    """A network that vmap cannot take."""

    def forward(self, x):
        return super().forward(x) if x.sum() < 1e9 else x[:, :2]


MODULES = {
    "mlp": (MLP, (8,), {"hidden_units": (6,)}),
    "convnet": (ConvNet, (8, 8), {"channels": (2, 3), "hidden_units": (4,)}),
    "lstm": (Recurrent, (6, 2), {"hidden_units": (5,)}),
    "own": (Own, (8,), {}),
    "loops": (Loops, (8,), {}),
}


def data(classes: bool, dtype, shape=(8,)):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N_ROWS, *shape)).astype(dtype)
    return X, np.array(["a", "b", "c"])[rng.randint(3, size=N_ROWS)] if classes else rng.normal(
        size=N_ROWS
    )


def ensemble(name: str, classes: bool, **params):
    module, _, settings = MODULES[name]
    cls = BayesianEnsembleClassifier if classes else BayesianEnsembleRegressor
    given = {f"module__{key}": value for key, value in settings.items()}
    settings = {"max_epochs": 1, "random_state": 0, "runtime": Runtime(device="cpu"), **params}
    return cls(3, module=module, **given, **settings)


# --- What is asked of them --------------------------------------------------------------------

PREDICTIONS: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "predict": lambda model, X: model.predict(X),
    "predict_proba": lambda model, X: model.predict_proba(X),
    "predict_log_proba": lambda model, X: model.predict_log_proba(X),
    "predict_uncertainty": lambda model, X: tuple(model.predict_uncertainty(X)),
    "predict_interval": lambda model, X: model.predict_interval(X),
    "predict_quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.5]),
    "predict_members": lambda model, X: model.predict_members(X),
    "predict_distribution": lambda model, X: model.predict_distribution(X).mean,
    "sample_y": lambda model, X: model.sample_y(X, 3, random_state=0),
}


def arrays(answer) -> list[np.ndarray]:
    parts = answer if isinstance(answer, tuple) else (answer,)
    return [np.asarray(part) for part in parts if part is not None]


def questions(model, X) -> list[tuple[Callable[[], Any], list[np.ndarray]]]:
    """Every prediction method of single samples and of batches, with the answers of one thread."""
    reads = [read for name, read in PREDICTIONS.items() if hasattr(model, name)]
    batches = [X[:1], X[1:2], X, X[:13]]
    calls = [lambda read=read, X=X: read(model, X) for read in reads for X in batches]
    return [(call, arrays(call())) for call in calls]


def asker(asked, seed: int, n_calls: int) -> Callable[[], int]:
    """Ask some of the questions, in an order of one's own; each answer must be the same."""

    def ask() -> int:
        for call, expected in random.Random(seed).choices(asked, k=n_calls):
            for found, value in zip(arrays(call()), expected, strict=True):
                np.testing.assert_array_equal(found, value)
        return n_calls

    return ask


def together(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run each job in a thread of its own, all at once; raise what one of them raises."""
    barrier = threading.Barrier(len(jobs))

    def run(job):
        barrier.wait(timeout=30)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


# --- Predictions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_ensembles_of_every_module_predict_as_in_one_thread(name, tally):
    """Numbers in float32, and classes in float64, take turns."""
    classes = list(MODULES).index(name) % 2 == 1
    X, y = data(classes, np.float64 if classes else np.float32, MODULES[name][1])
    asked = questions(ensemble(name, classes).fit(X, y), X)
    counts = together([asker(asked, seed, N_CALLS) for seed in range(N_THREADS)])
    tally("predictions compared under 8 threads", sum(counts))


# --- While others fit, pickle, copy and measure -----------------------------------------------


@pytest.mark.slow
def test_models_can_be_asked_fitted_pickled_and_measured_at_once(tally, monkeypatch):
    name = "own"
    monkeypatch.setattr(_traced, "_STEPS_WORTH_RECORDING", 2)
    shape = MODULES[name][1]
    X, y = data(True, np.float64, shape)
    model = ensemble(name, True).fit(X, y)
    asked = questions(model, X)
    weights, cost = pickle.dumps(model), flops(model, X)

    def fit(seed):
        return ensemble(name, True, max_epochs=4, batch_size=6, random_state=seed).fit(X, y)

    alone = [fit(seed).predict_proba(X) for seed in range(3)]

    def fits():
        return [
            np.testing.assert_array_equal(fit(seed).predict_proba(X), expected)
            for seed, expected in enumerate(alone)
        ]

    def pickles():
        for _ in range(8):
            assert pickle.dumps(model) == weights
            again = pickle.loads(weights)
            np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    def copies():
        for _ in range(8):
            np.testing.assert_array_equal(
                copy.deepcopy(model).predict_proba(X), model.predict_proba(X)
            )
            assert clone(model).get_params()["random_state"] == 0
            assert model.net_.module_ is model.module_

    def measures():
        for _ in range(8):
            assert flops(model, X) == count_flop(model.module_, shape) == cost

    askers = [asker(asked, seed, 6 * N_CALLS) for seed in range(8)]
    together([*askers, fits, fits, pickles, pickles, copies, measures, measures])
    tally("predictions compared beside fits and pickles", 8 * 6 * N_CALLS)
    assert type(nn.Module.__call__).__name__ == "function"
    assert nn.Module.__call__.__module__ == "torch.nn.modules.module"
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
