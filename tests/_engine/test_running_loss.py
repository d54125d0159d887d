# SPDX-License-Identifier: BSD-3-Clause
"""Losses over an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_stacks import (
    D,
    N,
    SquaredError,
    data,
    ensemble,
    plain_member,
)

from skdistill._engine import Rows, StackNet
from skdistill.modules import build_member, stack


def test_train_loss_is_the_mean_over_members_of_the_weighted_mean_over_rows():
    X, y = data()
    weight = np.random.RandomState(1).uniform(0.2, 3, N)
    # At this learning rate the weights stay where they are, so that all batches see the same net.
    fitted = ensemble(optimizer="SGD", lr=1e-30, beta=0.0, max_epochs=2).fit(X, y, weight)
    members = fitted.predict_members(X)[:, :, 0]  # (n, S, 2)
    loc = np.average(y, weights=weight)
    scale = np.sqrt(np.average((y - loc) ** 2, weights=weight))
    mean, variance = (members[..., 0] - loc) / scale, members[..., 1] / scale**2
    nll = 0.5 * (np.log(variance) + (((y - loc) / scale)[:, None] - mean) ** 2 / variance)
    expected = np.average(nll, axis=0, weights=weight).mean()
    assert [row["train_loss"] for row in fitted.history_] == pytest.approx([expected] * 2)


def test_the_constant_is_what_outputs_of_zero_lose():
    X, y = (torch.tensor(a) for a in data(n=40))
    weight = torch.rand(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight /= weight.mean(1, keepdim=True)
    expected = (weight * y.square()).mean(1)
    for batch_size in (8, 12, 40):
        members = [build_member(plain_member, s, in_features=D, out_features=1) for s in (1, 2)]
        rows = Rows(X, (y[:, None],), weight, batch_size, [1, 2])
        net = StackNet(stack(members).double(), SquaredError(), max_epochs=2, verbose=0).fit(rows)
        torch.testing.assert_close(net.constant_losses_, expected, rtol=1e-12, atol=0)
