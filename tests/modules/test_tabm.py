# SPDX-License-Identifier: BSD-3-Clause
"""TabM: what its members share, and that they are the networks they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from skdistill.modules import TabM, build_member, n_parameters, stack, unstack

D, P, K = 5, 2, 4
ROWS = torch.randn(1, 11, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def tabm(**params):
    settings = {"n_members": K, "hidden_units": (7, 6), "mini": False, **params}
    network = build_member(TabM, 0, in_features=D, out_features=P, **settings).double()
    with torch.no_grad():  # as they are after training, no two numbers alike
        for i, parameter in enumerate(network.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.add_(0.3 * noise)
    return network.eval()


@pytest.mark.parametrize("mini", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_the_members_are_perceptrons(mini, activation):
    network = tabm(mini=mini, activation=activation)
    networks = unstack(network)
    assert all(type(member[0]) is nn.Linear for member in networks)
    expected = torch.stack([member(ROWS[0]) for member in networks])
    torch.testing.assert_close(network(ROWS)[0], expected)
    torch.testing.assert_close(stack(networks)(ROWS), expected)


@pytest.mark.parametrize("n", [1, 3, 4, 11])
def test_in_training_row_i_is_dealt_to_member_i_mod_k(n):
    network = tabm()
    of_all = network(ROWS[:, :n])
    of_one = network.train()(ROWS[:, :n])
    assert of_one.shape == (1, n, P)
    for i in range(n):
        torch.testing.assert_close(of_one[0, i], of_all[0, i % K, i])


def test_the_mini_form_shares_all_but_scales_of_the_inputs_and_the_output_layer():
    shapes = {name: tuple(p.shape) for name, p in tabm(mini=True).named_parameters()}
    assert shapes == {
        "core.0.weight": (1, D, 7),
        "core.0.bias": (1, 1, 7),
        "core.0.r": (1, K, D),
        "core.2.weight": (1, 7, 6),
        "core.2.bias": (1, 1, 6),
        "heads.weight": (1, K, 6, P),
        "heads.bias": (1, K, 1, P),
    }


def test_the_full_form_has_scales_and_biases_of_each_member_in_every_layer():
    per_member = (D + 7 + 7) + (7 + 6 + 6) + (6 * P + P)
    assert n_parameters(tabm()) == D * 7 + 7 * 6 + K * per_member
