# SPDX-License-Identifier: BSD-3-Clause
"""The training loop against bare torch loops over single networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from skorch import callbacks as skorch_callbacks
from skorch.callbacks import Callback
from small_stacks import (
    BATCH,
    BETA,
    EPOCHS,
    LR,
    PRIOR_SCALE,
    D,
    N,
    Spy,
    data,
    ensemble,
    parameters_of,
)
from torch import nn
from torch.nn import functional as F

from skdistill.samplers import DeepEnsemble

# --- a stack is its members ------------------------------------------------------------------


class PlainNet(nn.Module):
    """One member as anybody would write it."""

    def __init__(self, start, m):
        super().__init__()
        self.hidden, self.out = nn.Linear(D, 6), nn.Linear(6, 2)
        self.to(start[0].dtype)
        with torch.no_grad():
            layers = (self.hidden, self.out)
            for layer, weight, bias in zip(layers, start[::2], start[1::2], strict=True):
                layer.weight.copy_(weight[m].t())
                layer.bias.copy_(bias[m, 0])

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def trained_alone(spy, m, X, y, weight, n_rows, batch_size=BATCH):
    """Train member m by itself, in a bare loop."""
    net = PlainNet(spy.start, m)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    order = torch.Generator().manual_seed(spy.order_seeds[m])
    weight = weight / weight.mean()
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = LR * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        permutation = torch.randperm(len(X), generator=order)
        for rows in permutation.split(batch_size):
            mean, raw = net(X[rows]).T
            variance = F.softplus(raw) + 1e-6
            nll = 0.5 * (variance.log() + (y[rows] - mean) ** 2 / variance)
            loss = (weight[rows] * variance.detach() ** BETA * nll).mean()
            for layer in (net.hidden, net.out):
                precision = layer.in_features / PRIOR_SCALE**2
                loss = loss + 0.5 * precision / n_rows * layer.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-5)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_stack_trains_as_its_members_do_alone(dtype, tolerance, weighted, bootstrap):
    X, y = data(dtype)
    sample_weight = np.random.RandomState(1).uniform(0.2, 3, N).astype(dtype) if weighted else None
    spy = Spy()
    fitted = ensemble(inference=DeepEnsemble(bootstrap=bootstrap), callbacks=[spy]).fit(
        X, y, sample_weight
    )

    weight = np.ones(N, dtype) if sample_weight is None else sample_weight
    loc = np.average(y, weights=weight)
    scale = np.sqrt(np.average((y - loc) ** 2, weights=weight))
    X_tensor, y_tensor = torch.tensor(X), torch.tensor(((y - loc) / scale).astype(dtype))
    members = fitted.predict_members(X)
    assert members.dtype == dtype
    for m in range(3):
        own = torch.tensor(weight)
        if bootstrap:
            own = spy.row_weight[m] * (N / spy.row_weight[m].sum())
            assert_allclose(own, own.round(), atol=1e-5)  # how often each sample was drawn
            assert own.sum().item() == pytest.approx(N)
        alone = trained_alone(spy, m, X_tensor, y_tensor, own, n_rows=weight.sum())
        with torch.no_grad():
            mean, raw = alone(X_tensor).T
        stacked = [p[m] for p in parameters_of(fitted)]
        for layer, W, b in zip((alone.hidden, alone.out), stacked[::2], stacked[1::2], strict=True):
            assert_allclose(W.T, layer.weight.detach(), rtol=0, atol=tolerance)
            assert_allclose(b[0], layer.bias.detach(), rtol=0, atol=tolerance)
        variance = F.softplus(raw) + 1e-6
        assert_allclose((members[:, m, 0, 0] - loc) / scale, mean, atol=2 * tolerance)
        assert_allclose(members[:, m, 0, 1] / scale**2, variance, atol=2 * tolerance)


# --- layers ----------------------------------------------------------------------------------


def test_layers_can_be_frozen():
    X, y = data()
    spy = Spy()
    freezer = skorch_callbacks.Freezer("network.0.*")
    fitted = ensemble(callbacks=[spy, freezer]).fit(X, y)
    changed = [not torch.equal(a, b) for a, b in zip(spy.start, parameters_of(fitted), strict=True)]
    assert changed == [False, False, True, True]


class TrainingMode(Callback):
    """Asks every part of the net, when a gradient has been computed, whether it is in training."""

    def __init__(self):
        self.heard = []

    def on_grad_computed(self, net, **kwargs):
        self.heard.append(all(part.training for part in net.module_.modules()))


@pytest.mark.parametrize("early_stopping", [False, True])
def test_dropout_and_normalisation_layers_are_in_training_mode_in_training(early_stopping):
    X, y = data()
    mode = TrainingMode()
    settings = {
        "inference": DeepEnsemble(early_stopping=early_stopping),
        "callbacks": [mode],
        "max_epochs": 3,
    }
    fitted = ensemble(**settings).fit(X, y)
    assert mode.heard
    assert all(mode.heard)
    assert not any(part.training for part in fitted.module_.modules())
