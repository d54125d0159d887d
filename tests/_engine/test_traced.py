# SPDX-License-Identifier: BSD-3-Clause
"""Recorded steps are the steps that autograd takes, and every way of training trains the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from skdistill import BayesianEnsembleRegressor
from skdistill._engine import _steps, _traced
from skdistill.modules import MLP
from skdistill.samplers import DeepEnsemble
from skdistill.settings import EarlyStopping, Runtime

N, D, BATCH = 120, 3, 16


@pytest.fixture
def data():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, D))
    y = 3 + 2 * np.sin(X[:, 0]) + X[:, 1] * rng.normal(size=N)
    return X, y, rng.uniform(0.2, 3, N)


@pytest.fixture
def soon(monkeypatch):
    """Every shape of batch is recorded when it is seen for the second time."""
    monkeypatch.setattr(_traced, "_STEPS_WORTH_RECORDING", 2)


@pytest.fixture
def records(monkeypatch):
    """How often something was recorded, and was replayed."""
    counts = {"made": 0, "replayed": 0}
    recorded = _traced.recorded

    def counting(*args):
        record = recorded(*args)
        counts["made"] += 1

        def replay(*tensors):
            counts["replayed"] += 1
            return record(*tensors)

        return replay

    monkeypatch.setattr(_traced, "recorded", counting)
    return counts


def ensemble(module, **kwargs):
    settings = {
        "max_epochs": 6,
        "batch_size": BATCH,
        "runtime": Runtime(device="cpu"),
        "random_state": 0,
    }
    settings["inference"] = DeepEnsemble(calibrate=None)  # its search would end a little elsewhere
    return BayesianEnsembleRegressor(3, module=module, **{**settings, **kwargs})


def fit_unrecorded(model, monkeypatch, *args, **kwargs):
    with monkeypatch.context() as patch:
        patch.setattr(_steps, "flat_gradient_of", lambda net: None)
        return model.fit(*args, **kwargs)


def assert_same_weights(a, b, atol=1e-9):
    weights = b.module_.state_dict()
    for name, value in a.module_.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=atol)


def normalised(in_features, out_features, generator=None):
    """LayerNorm and dropout between linear layers."""
    torch.manual_seed(0 if generator is None else generator.initial_seed())
    return nn.Sequential(
        nn.Linear(in_features, 8),
        nn.LayerNorm(8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(8, out_features),
    )


def convolutional(in_features, out_features):
    return nn.Sequential(
        nn.Unflatten(-1, (1, in_features)),
        nn.Conv1d(1, 4, 2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(4 * (in_features - 1), out_features),
    )


class Wrapped(nn.Module):
    """An MLP that the engine does not recognise."""

    def __init__(self, in_features, out_features, generator):
        super().__init__()
        self.network = MLP(in_features, out_features, (12, 5), generator=generator)

    def forward(self, x):
        return self.network(x)


class Loops(Wrapped):
    """An MLP that vmap cannot take."""

    def forward(self, x):
        return super().forward(x) if x.sum() < 1e9 else x[:, :2]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])
@pytest.mark.parametrize("module", [normalised, convolutional, Wrapped])
def test_recorded_training_is_training_by_autograd(
    module, weighted, data, soon, records, monkeypatch
):
    X, y, weight = data
    kwargs = {"sample_weight": weight} if weighted else {}
    recorded = ensemble(module).fit(X, y, **kwargs)
    assert recorded.net_.engine_ == "traced"
    # Seven full batches an epoch and one with the rest.
    assert records == {"made": 2, "replayed": 6 * 8 - 2}
    plain = fit_unrecorded(ensemble(module), monkeypatch, X, y, **kwargs)
    assert plain.module_.state_dict().keys() == recorded.module_.state_dict().keys()
    assert_same_weights(recorded, plain)
    losses = [[row["train_loss"] for row in model.history_] for model in (recorded, plain)]
    np.testing.assert_allclose(*losses, rtol=0, atol=1e-9)


class Restless(Wrapped):
    """Depends on more than its inputs."""

    def forward(self, x):
        return super().forward(x) * random.random()


class TakesNoRecord(Wrapped):
    """Reads a number off a tensor, which a record would keep for ever."""

    scale = (torch.ones(()),)

    def forward(self, x):
        return super().forward(x) * self.scale[0].item()


@pytest.mark.slow
@pytest.mark.parametrize("module", [Restless, TakesNoRecord])
def test_what_cannot_be_recorded_trains_by_autograd(module, data, soon, records):
    X, y, _ = data
    model = ensemble(module)
    with pytest.warns(UserWarning, match="The training step cannot be recorded") as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert records == {"made": 0, "replayed": 0}
    assert model.net_.engine_ == "vmap"
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("bootstrap", [False, True], ids=["weights", "bootstrap"])
@pytest.mark.filterwarnings("ignore:Loops cannot be vectorised")
def test_all_ways_of_training_give_the_same_members(bootstrap, data, soon, records):
    """Weights and early stopping on, twenty epochs, 1e-9 in float64."""
    X, y, weight = data
    settings = {
        "max_epochs": 20,
        "inference": DeepEnsemble(
            calibrate=None,
            bootstrap=bootstrap,
            early_stopping=EarlyStopping(n_iter_no_change=3, tol=0.01),
        ),
        "lr": 0.02,
    }
    closed = ensemble(MLP, module__hidden_units=(12, 5), module__activation="relu", **settings)
    models = [closed, ensemble(Wrapped, **settings), ensemble(Loops, **settings)]
    for model, engine in zip(models, ["closed_form", "traced", "loop"], strict=True):
        model.fit(X, y, sample_weight=weight)
        assert model.net_.engine_ == engine
    assert records["replayed"] > 0
    expected = closed.predict_members(X)
    for model in models[1:]:
        np.testing.assert_allclose(model.predict_members(X), expected, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(model.best_epochs_, closed.best_epochs_)
    assert len(set(closed.best_epochs_)) > 1  # members have stopped at different epochs
