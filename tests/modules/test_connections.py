# SPDX-License-Identifier: BSD-3-Clause
"""Learners that read each other's activations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from skdistill.modules import (
    CONNECTIONS,
    MLP,
    Booster,
    Learner,
    Recurrent,
    Rounds,
    stack,
    unstack,
)


def mlp(d=5, k=3, hidden=(6, 4), seed=0, **kwargs):
    return MLP(d, k, hidden, generator=torch.Generator().manual_seed(seed), **kwargs)


def chain(connection, n=3, head_layers=1, widths=None, n_sources=1):
    learners = []
    for t in range(n):
        hidden = (6, widths[t]) if widths else (6, 4)
        sources = learners[::-1][: min(n_sources, t)]
        network = mlp(hidden=hidden, seed=t)
        generator = torch.Generator().manual_seed(t)
        learners.append(
            Learner(network, (5,), head_layers, connection, sources, generator=generator)
        )
    return learners


def booster(learners, k=3):
    return Booster(learners, torch.zeros(k), 10 * torch.ones(k), centred=False)


def test_without_connections_a_learner_is_its_network():
    network = mlp()
    x = torch.randn(7, 5)
    learner = Learner(network, (5,))
    assert_close(learner(x), network(x))
    assert isinstance(learner.trainable(), nn.Sequential)
    assert learner.connection_flop == 0
    assert learner.hidden_shape == (4,)


@pytest.mark.parametrize("head_layers", [1, 2])
def test_residual_connections_by_hand(head_layers):
    widths = None if head_layers == 1 else (6, 6)
    first, second = chain("residual", 2, head_layers, widths)
    x = torch.randn(7, 5)
    layers = list(mlp(hidden=(6, widths[1]) if widths else (6, 4), seed=1))
    own = nn.Sequential(*layers[:4] if head_layers == 1 else layers[:2])(x)
    rest = nn.Sequential(*layers[4:] if head_layers == 1 else layers[2:])
    hidden = first.hidden(x)
    packed = second.pack(x, [hidden])
    assert packed.shape == (7, 5 + hidden.shape[1])
    assert_close(second(packed), rest(own + hidden))


def test_dense_connections_widen_the_next_layer():
    first, second = chain("dense", 2)
    x = torch.randn(7, 5)
    own = second.core(x)
    expected = second.last(torch.cat([own, first.hidden(x)], 1))
    assert_close(second(second.pack(x, [first.hidden(x)])), expected)
    assert second.last[0].in_features == 8
    assert second.connection_flop == 2 * 4 * 3


def test_gates_by_hand():
    own, earlier = torch.randn(7, 4), torch.randn(7, 4)
    lstm, gru = CONNECTIONS["lstm"](4, 4), CONNECTIONS["gru"](4, 4)
    with torch.no_grad():
        for gate in (lstm, gru):
            for part in gate.parameters():
                part.copy_(torch.randn(part.shape))
    fed = lstm.own[:, None] * own + lstm.earlier[:, None] * earlier + lstm.bias[:, None]
    i, f, o = torch.sigmoid(fed[:3])
    assert_close(lstm(own, earlier), o * torch.tanh(f * earlier + i * torch.tanh(fed[3])))
    fed = gru.own[:, None] * own + gru.earlier[:, None] * earlier + gru.bias[:, None]
    r, z = torch.sigmoid(fed[:2])
    n = torch.tanh(gru.own[2] * own + gru.earlier[2] * r * earlier + gru.bias[2])
    assert_close(gru(own, earlier), (1 - z) * n + z * earlier)


@pytest.mark.parametrize("connection", CONNECTIONS)
@pytest.mark.parametrize("head_layers", [1, 2])
def test_learners_train_in_a_stack_and_give_the_weights_back(connection, head_layers):
    first, second = chain(connection, 2, head_layers, (6, 6))
    x = torch.randn(7, 5)
    packed = second.pack(x, [first.hidden(x).detach()])
    stacked = stack([second.trainable()])
    assert_close(stacked(packed.unsqueeze(0))[0], second(packed))
    with torch.no_grad():
        for parameter in stacked.parameters():
            parameter.add_(0.1)
    second.load_trained(unstack(stacked)[0])
    assert_close(stacked(packed.unsqueeze(0))[0], second(packed))


@pytest.mark.parametrize("connection", ["residual", "dense", "gru"])
def test_series_are_read_at_every_step(connection):
    def recurrent(seed):
        return Recurrent((9, 2), 3, "gru", (4,), generator=torch.Generator().manual_seed(seed))

    first = Learner(recurrent(0), (9, 2), over_time=True)
    second = Learner(recurrent(1), (9, 2), 1, connection, [first], over_time=True)
    x = torch.randn(5, 9, 2)
    assert first.hidden_shape == (9, 4)
    assert_close(first(x)[-1], recurrent(0)(x))
    assert_close(first(x)[4], recurrent(0)(x[:, :5]))  # nothing of the future is read
    states = first.hidden(x)
    over_time = second(second.pack(x, [states]))
    assert over_time.shape == (9, 5, 3)
    shorter = second.hidden(x[:, :6], [states[:, :6]])
    assert_close(second.outputs(shorter), over_time[5])
    whole = booster([first, second])
    rounds = Rounds(whole, x, over_time=True)
    rounds.advance()
    rounds.advance()
    assert_close(rounds.mean[-1], whole(x.unsqueeze(0))[0])
