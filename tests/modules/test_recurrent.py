# SPDX-License-Identifier: BSD-3-Clause
"""Networks for series against torch's recurrent layers and the equations in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit
from torch import nn

from skdistill.modules import Recurrent, n_parameters

N, T, D, OUT = 4, 6, 3, 2  # rows, times, channels, outputs
CELLS = ["lstm", "gru", "fastrnn"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def series(seed=0):
    return torch.randn(N, T, D, generator=generator(seed), dtype=torch.float64)


def states_of(network):
    return nn.Sequential(*list(network)[:-2])(series())


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("cell", "n_gates", "n_biases", "n_scalars"),
    [("lstm", 4, 2, 0), ("gru", 3, 2, 0), ("fastrnn", 1, 1, 2)],
)
def test_parameters_by_hand(cell, n_gates, n_biases, n_scalars):
    network = Recurrent((T, D), OUT, cell, hidden_units=(5, 4))
    layers = [
        n_gates * (read + width + n_biases) * width + n_scalars for read, width in ((D, 5), (5, 4))
    ]
    assert n_parameters(network) == sum(layers) + (4 * OUT + OUT)


@pytest.mark.parametrize(("cell", "layer"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_lstm_and_gru_are_torchs(cell, layer):
    network = Recurrent((T, D), OUT, cell, hidden_units=(5, 5), generator=generator()).double()
    theirs = layer(D, 5, num_layers=2, batch_first=True).double()
    *own, weight, bias = network.parameters()
    with torch.no_grad():
        for parameter, value in zip(theirs.parameters(), own, strict=True):
            parameter.copy_(value)
    states, _ = theirs(series())
    close(network(series()), states[:, -1] @ weight.t() + bias)
    close(states_of(network), states)


def test_fastrnn_is_its_equation():
    network = Recurrent((T, D), OUT, "fastrnn", hidden_units=5, generator=generator()).double()
    values = {name: p.detach().numpy() for name, p in network.named_parameters()}
    W, U, b = values["0.new.weight"], values["0.old.weight"], values["0.new.bias"]
    assert values["0.alpha"] == -3
    assert values["0.beta"] == 3
    h = np.zeros((N, 5))
    for x in series().numpy().swapaxes(0, 1):
        h = expit(-3) * np.tanh(x @ W.T + h @ U.T + b) + expit(3) * h
    expected = h @ values["2.weight"].T + values["2.bias"]
    np.testing.assert_allclose(network(series()).detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("cell", CELLS)
def test_the_output_reads_the_last_state(cell):
    network = Recurrent((T, D), OUT, cell).double()
    x = series().requires_grad_()
    network(x)[0].sum().backward()
    assert (x.grad[0] != 0).any(-1).all(), "an earlier time has no influence"
    assert not x.grad[1:].any(), "rows influence one another"
    close(network(series()[:, :4]), network[-1](states_of(network)[:, 3]))


@pytest.mark.parametrize("cell", CELLS)
def test_weights_start_uniform_on_one_over_the_root_of_the_width(cell):
    network = Recurrent((T, 40), OUT, cell, hidden_units=100, generator=generator(1))
    bound = 1 / math.sqrt(100)
    for parameter in network[0].parameters():
        if parameter.ndim:
            values = parameter.detach().flatten().numpy()
            assert abs(values).max() <= bound
            assert stats.kstest(values, stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("in_features", "settings", "message"),
    [
        ((12,), {}, r"in_features must be .*got \(12,\)"),
        ((T, D), {"cell": "rnn"}, r"cell must be one of \['lstm', 'gru', 'fastrnn'\], got 'rnn'"),
        ((T, D), {"hidden_units": (4, 0.5)}, r"hidden_units must be .*got \(4, 0\.5\)"),
    ],
)
def test_recurrent_refuses(in_features, settings, message):
    with pytest.raises(ValueError, match=message):
        Recurrent(in_features, OUT, **settings)
