# SPDX-License-Identifier: BSD-3-Clause
"""Small ensembles and stacks that several test files train."""

from __future__ import annotations

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn

from skdistill import BayesianEnsembleRegressor
from skdistill._engine import Rows, StackNet
from skdistill._method.plan import Objective
from skdistill.modules import MLP, build_member, stack
from skdistill.settings import Runtime

N, D, BATCH, EPOCHS = 45, 3, 16, 10
LR, PRIOR_SCALE, BETA = 0.02, 2.0, 0.5


def data(dtype=np.float64, n=N, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n, D))
    y = 3 + 2 * np.sin(X[:, 0]) + X[:, 1] * rng.normal(size=n)
    return X.astype(dtype), y.astype(dtype)


def ensemble(n_members=3, **kwargs):
    settings = {
        "module__hidden_units": (6,),
        "module__activation": "tanh",
        "prior_scale": PRIOR_SCALE,
        "beta": BETA,
        "lr": LR,
        "max_epochs": EPOCHS,
        "batch_size": BATCH,
        "runtime": Runtime(device="cpu"),
        "random_state": 0,
        "normalize": "y",  # weights are held against X
    }
    return BayesianEnsembleRegressor(n_members, **{**settings, **kwargs})


def batch_normalised(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, out_features)
    )


def parameters_of(fitted):
    return [p.detach().clone() for p in fitted.module_.parameters()]


def assert_same_weights(first, second, **tolerance):
    for a, b in zip(parameters_of(first), parameters_of(second), strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 0.0, "atol": 0.0, **tolerance})


class Spy(Callback):
    """Keeps the net, the weights that training began with and the samples it was given."""

    def on_train_begin(self, net, X=None, **kwargs):
        self.net = net
        self.start = [p.detach().clone() for p in net.module_.parameters()]
        self.order_seeds = [generator.initial_seed() for generator in X.generators]
        self.row_weight = X.weight


class SquaredError(Objective):
    def forward(self, outputs, targets):
        return (outputs - targets[0]).square().sum(-1)


def plain_member(in_features, out_features):
    return MLP(in_features, out_features, (8,), "tanh")


def trained_stack(
    seeds, callbacks, module=plain_member, epochs=40, valid=True, edit=None, **kwargs
):
    """Train members with these seeds in one StackNet."""
    members = [build_member(module, s, in_features=D, out_features=1).double() for s in seeds]
    stacked = stack(members)
    if edit is not None:
        edit(stacked)
    X, y = (torch.tensor(a) for a in data(n=60))
    y = ((y - y.mean()) / y.std()).unsqueeze(1)
    rows = Rows(X[:30], (y[:30],), None, 10, [seed + 100 for seed in seeds])
    net = StackNet(
        stacked,
        SquaredError(),
        callbacks=callbacks,
        max_epochs=epochs,
        verbose=0,
        **{"optimizer": torch.optim.Adam, "lr": 0.05, **kwargs},
    )
    return net.fit(rows, Rows(X[30:], (y[30:],)) if valid else None)
