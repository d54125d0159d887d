# SPDX-License-Identifier: BSD-3-Clause
"""Stacks of networks for images and series against their members, side by side and one by one."""

from __future__ import annotations

import warnings

import pytest
import torch

from skdistill.modules import (
    ConvNet,
    MultiHead,
    Recurrent,
    ResNet,
    StackedModule,
    build_members,
    split_head,
    stack,
    weights_and_fan_ins,
)
from skdistill.modules import _stacks as stacks

S, M, N, OUT = 3, 4, 5, 2  # members, heads, samples, outputs

NETWORKS = {
    "convnet": (ConvNet, (8, 8), {"channels": (2, 3), "hidden_units": (4,)}),
    "lenet": (ConvNet, (1, 8, 8), {"channels": (2, 3), "pooling": "avg", "activation": "tanh"}),
    "resnet": (ResNet, (2, 8, 8), {"blocks": (1, 1), "channels": (3, 4)}),
    "batch": (ResNet, (8, 8), {"blocks": 1, "channels": (3, 4), "normalization": "batch"}),
    "plain": (ResNet, (8, 8), {"blocks": 1, "channels": 3, "normalization": None}),
    "lstm": (Recurrent, (6, 2), {"cell": "lstm", "hidden_units": (5, 4)}),
    "gru": (Recurrent, (6, 2), {"cell": "gru", "hidden_units": (5, 4)}),
    "fastrnn": (Recurrent, (6, 2), {"cell": "fastrnn", "hidden_units": (5, 4)}),
}
# FastRNN has no reason to be run one by one.
ONE_BY_ONE = [name for name in NETWORKS if name != "fastrnn"]
WAYS = [(name, False) for name in NETWORKS] + [(name, True) for name in ONE_BY_ONE]


def members_of(name, n=S, seed=0):
    module, shape, settings = NETWORKS[name]
    built = build_members(
        module, range(seed, seed + n), in_features=shape, out_features=OUT, **settings
    )
    return [member.double() for member in built]


def rows_of(name, *lead, seed=0):
    shape = NETWORKS[name][1]
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*lead, N, *shape, generator=generator, dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.fixture
def vectorised(monkeypatch):
    """How many rows each call of a stack by vmap has had; the others loop."""
    found, original = [], StackedModule._vmapped

    def noting(self, state, rows):
        found.append(len(rows))
        return original(self, state, rows)

    monkeypatch.setattr(StackedModule, "_vmapped", noting)
    return found


def go(monkeypatch, one_by_one):
    """Make everything too large for vmap, or nothing."""
    size = 0 if one_by_one else 10**9
    monkeypatch.setattr(stacks, "_LARGE_MAPS", size)
    monkeypatch.setattr(stacks, "_LARGE_STATES", size)


@pytest.mark.parametrize("n_shared", [1, S])
@pytest.mark.parametrize(("name", "one_by_one"), WAYS)
def test_outputs_and_gradients_are_those_of_the_members(
    name, one_by_one, n_shared, vectorised, monkeypatch
):
    go(monkeypatch, one_by_one)
    members = members_of(name)
    stacked, rows = stack(members), rows_of(name, n_shared)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = stacked(rows)
    assert bool(vectorised) != one_by_one
    own_rows = rows.expand(S, *rows.shape[1:])
    expected = torch.stack([member(x) for member, x in zip(members, own_rows, strict=True)])
    close(outputs, expected)
    outputs.square().sum().backward()
    expected.square().sum().backward()
    gradients = {name.replace("__", "."): p.grad for name, p in stacked.named_parameters()}
    for m, member in enumerate(members):
        for parameter, value in member.named_parameters():
            close(gradients[parameter][m], value.grad)


@pytest.mark.parametrize(("name", "one_by_one"), WAYS)
def test_heads_are_those_of_the_networks(name, one_by_one, monkeypatch):
    go(monkeypatch, one_by_one)
    networks = [network.eval() for network in members_of(name, n=M)]
    cut = [split_head(network, head_layers=2) for network in networks]
    student = MultiHead(
        stack([cut[0][0]]).eval(), stack([head for _, head in cut], lead=(1, M)).eval()
    )
    rows = rows_of(name, 1)
    expected = torch.stack([head(cut[0][0](rows[0])) for _, head in cut])
    close(student(rows), expected.unsqueeze(0))


@pytest.mark.parametrize("one_by_one", [False, True])
def test_every_member_has_its_own_running_averages(one_by_one, vectorised, monkeypatch):
    go(monkeypatch, one_by_one)
    members = [member.train() for member in members_of("batch")]
    stacked = stack(members).train()
    for seed in range(3):
        rows = 1 + rows_of("batch", S, seed=seed)
        close(stacked(rows), torch.stack([m(x) for m, x in zip(members, rows, strict=True)]))
    buffers = {name.replace("__", "."): buffer for name, buffer in stacked.named_buffers()}
    assert buffers
    for m, member in enumerate(members):
        for name, buffer in member.named_buffers():
            close(buffers[name][m], buffer)
    rows = rows_of("batch", 1)
    close(stacked.eval()(rows), torch.stack([member.eval()(rows[0]) for member in members]))
    assert bool(vectorised) != one_by_one


def test_fan_ins_are_the_inputs_of_each_unit():
    def found(name):
        return [
            (tuple(w.shape), fan_in) for w, fan_in in weights_and_fan_ins(stack(members_of(name)))
        ]

    assert found("convnet") == [
        ((S, 2, 1, 3, 3), 9),
        ((S, 3, 2, 3, 3), 18),
        ((S, 4, 12), 12),
        ((S, OUT, 4), 4),
    ]
    assert found("fastrnn") == [
        ((S, 5, 2), 2),
        ((S, 5, 5), 5),
        ((S, 4, 5), 5),
        ((S, 4, 4), 4),
        ((S, OUT, 4), 4),
    ]
