# SPDX-License-Identifier: BSD-3-Clause
"""Dropout layers put into networks, by which members are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skdistill.modules import MLP, ConvNet, stack, with_dropout
from skdistill.modules._random import MemberDropout

SEED = 3


def kinds(network):
    return [type(layer) for layer in network]


def dropped(network, rate=0.25, row_shape=(4,), seed=SEED):
    return with_dropout(network, rate, row_shape, seed)


def masks(network):
    return [layer.dropout_mask for layer in network.modules() if isinstance(layer, MemberDropout)]


def test_a_sequential_gets_a_layer_before_each_one_with_weights_but_the_first():
    network = dropped(MLP(4, 2, (8, 6)))
    assert kinds(network) == [
        nn.Linear,
        nn.ReLU,
        MemberDropout,
        nn.Linear,
        nn.ReLU,
        MemberDropout,
        nn.Linear,
    ]
    assert [mask.shape for mask in masks(network)] == [(8,), (6,)]
    assert all(layer.rate == 0.25 for layer in network if isinstance(layer, MemberDropout))


def test_feature_maps_and_what_is_flattened_are_dropped_one_by_one():
    generator = torch.Generator().manual_seed(0)
    network = ConvNet((1, 6, 6), 2, (3,), hidden_units=(5,), generator=generator)
    widths = [mask.shape for mask in masks(dropped(network, row_shape=(1, 6, 6)))]
    assert len(widths) == 2
    assert widths[1] == (5,)


def own(p=0.9):
    return nn.Sequential(
        nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Dropout(p)), nn.Linear(8, 6), nn.Linear(6, 2)
    )


def test_layers_of_the_networks_own_are_the_only_ones():
    network = dropped(own())
    assert kinds(network) == [nn.Linear, nn.Sequential, nn.Linear, nn.Linear]
    assert type(network[1][1]) is MemberDropout
    assert network[1][1].rate == 0.25
    assert len(masks(network)) == 1


def test_without_training_the_same_units_are_dropped_for_all_rows():
    network = dropped(MLP(4, 2, (8,))).eval()
    X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    (mask,) = masks(network)
    h = network[1](network[0](X))
    torch.testing.assert_close(network(X), network[3](h * mask))
    torch.testing.assert_close(network(X), network(X))
    assert mask.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]


def test_in_training_every_row_drops_its_own_units():
    layer = MemberDropout(0.25).train()
    torch.manual_seed(0)
    out = layer(torch.ones(20_000, 3))
    assert out.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (out == 0).float().mean(0).numpy() == pytest.approx([0.25] * 3, abs=0.02)
    correlation = np.corrcoef(out.T.numpy()) - np.eye(3)
    assert np.abs(correlation).max() < 0.03


def test_units_are_their_seeds():
    first, second, other = (masks(dropped(MLP(4, 2, (200,)), seed=s))[0] for s in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_members_of_a_stack_have_masks_of_their_own():
    members = [dropped(MLP(4, 2, (8,)), seed=seed).eval() for seed in range(5)]
    X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    outputs = stack(members).eval()(X[None])
    torch.testing.assert_close(outputs, torch.stack([member(X) for member in members]))
