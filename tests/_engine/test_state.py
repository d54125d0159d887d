# SPDX-License-Identifier: BSD-3-Clause
"""The engine's state between two epochs, and outputs in between steps."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, LRScheduler
from torch import nn
from torch.func import functional_call

from skdistill import BayesianEnsembleRegressor
from skdistill.samplers import SGHMC, SGLD
from skdistill.settings import Optimizer

X = np.random.RandomState(0).normal(size=(40, 3))
Y = np.sin(X[:, 0])


def dropping(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, out_features)
    )


def normalised(in_features, out_features):
    return nn.Sequential(nn.Linear(in_features, 6), nn.LayerNorm(6), nn.Linear(6, out_features))


def ensemble(n_members=2, **params):
    settings = {
        "batch_size": 8,
        "max_epochs": 6,
        "random_state": 0,
        "optimizer": Optimizer(lr_schedule=None),
    }
    return BayesianEnsembleRegressor(n_members, **{**settings, **params})


class Visitor(Callback):
    """Notes the state at the end of an epoch, or sets the one to go on from."""

    def __init__(self, at=None, start=None):
        self.at = at
        self.start = start

    def on_train_begin(self, net, X=None, **kwargs):
        self.rows = X
        if self.start is not None:
            net.state_to_load_, order = copy.deepcopy(self.start)
            X.load_state(order)

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.at:
            self.found = copy.deepcopy((net.state(), self.rows.state()))


CASES = {
    "closed form": {},
    "schedule": {
        "callbacks": lambda: LRScheduler("StepLR", step_size=2),
        "optimizer": Optimizer("AdamW", lr_schedule=None),
    },
    "momentum": {
        "optimizer": Optimizer("SGD", lr_schedule=None),
        "optimizer__momentum": 0.9,
        "lr": 1e-3,
    },
    "recorded": {"module": normalised},
    "batches": {"module": normalised, "callbacks": lambda: Listening()},
}


class Listening(Callback):
    def on_batch_end(self, net, **kwargs):
        pass


@pytest.mark.parametrize("case", CASES)
def test_training_goes_on_from_its_state(case):
    params = dict(CASES[case])
    other = params.pop("callbacks", Callback)
    visitor = Visitor(at=3)
    whole = ensemble(**params, callbacks=[other(), visitor]).fit(X, Y)
    resumed = ensemble(**params, callbacks=[other(), Visitor(start=visitor.found)]).fit(X, Y)
    for one, other in zip(whole.module_.parameters(), resumed.module_.parameters(), strict=True):
        assert torch.equal(one, other)
    assert len(resumed.history_) == 6
    for one, other in zip(whole.history_, resumed.history_, strict=True):
        assert {k: v for k, v in one.items() if k != "dur"} == {
            k: v for k, v in other.items() if k != "dur"
        }


class Outputs(Callback):
    """Compares outputs between steps with those of the module for the weights of the moment."""

    n_compared = 0

    def on_train_begin(self, net, **kwargs):
        self.keeper, net.after_step = net.after_step, self.after_step

    def after_step(self, net):
        self.keeper(net)
        rows = torch.tensor(X[None, :5])
        found = net.steps_.outputs(rows).clone()
        weights = {name: value.detach() for name, value in net.steps_.weights().items()}
        expected = functional_call(copy.deepcopy(net.module_).eval(), weights, (rows,))
        torch.testing.assert_close(found, expected)
        Outputs.n_compared += 1


@pytest.mark.parametrize("module", [None, dropping, normalised])
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("inference", [SGLD(1e-4, n_chains=2), SGHMC(1e-5, n_chains=2)])
def test_outputs_between_steps_are_those_of_prediction(module, listens, inference):
    Outputs.n_compared = 0
    params = {} if module is None else {"module": module}
    # Asked for outputs or not, the chains are the same.
    others = [Listening()] if listens else []
    fits = [
        ensemble(callbacks=[*own, *others], inference=inference, max_epochs=2, **params).fit(X, Y)
        for own in ([Outputs()], [])
    ]
    assert Outputs.n_compared == 10
    one, other = (fitted.predict_members(X) for fitted in fits)
    np.testing.assert_allclose(one, other)
