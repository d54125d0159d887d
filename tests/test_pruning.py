# SPDX-License-Identifier: BSD-3-Clause
"""The group lasso against its definition, and small networks against large ones with zeros."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from skdistill.modules import (
    MLP,
    CategoricalStack,
    ConvNet,
    MultiHead,
    ResNet,
    StackedSequential,
    split_head,
    stack,
    unstack,
)
from skdistill.pruning import ProximalStep, narrow, prune, shrink, widths


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


# --- the proximal step ----------------------------------------------------------------------


def test_by_hand():
    weight = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    (small,) = shrink([weight], 1.0)
    # Norms 5, .5 and 0: factors 1 - 1/5, and 0 for the others.
    torch.testing.assert_close(small, torch.tensor([[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]]))
    assert weight[1, 0] == 0.3
    shrink([weight], 1.0, inplace=True)
    torch.testing.assert_close(weight, small)


def test_is_the_minimum():
    weight, amount = randn(4, 2), 1.3
    small = shrink([weight], amount)[0]
    assert 0 < (small == 0).all(1).sum() < 4, "some groups are to be zero"
    for unit, expected in zip(weight.numpy(), small.numpy(), strict=True):

        def objective(v, unit=unit):
            return np.sum((v - unit) ** 2) / 2 + amount * np.linalg.norm(v)

        found = minimize(objective, unit, method="Nelder-Mead", options={"xatol": 1e-9}).x
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert objective(expected) <= objective(found) + 1e-12


def test_units_with_inputs_in_two_layers_are_one_group():
    first, second = randn(3, 4), randn(3, 3, seed=1)
    joined = shrink([torch.cat([first, second], 1)], 0.7)[0]
    close(torch.cat(shrink([first, second], 0.7), 1), joined)


# --- the step -------------------------------------------------------------------------------


def step(module, strength, lr=0.1, **kwargs):
    """Take the proximal step on the module's own weights."""
    ProximalStep(module, strength, **kwargs).bind(dict(module.named_parameters()))(lr)


def mlps(n, **kwargs):
    kwargs = {"hidden_units": (6, 5), "activation": "tanh", **kwargs}
    return [MLP(4, 2, generator=generator(seed), **kwargs).double() for seed in range(n)]


def convnets(n, **kwargs):
    kwargs = {"channels": (5, 4), "kernel_size": 3, "hidden_units": (7,), **kwargs}
    return [ConvNet((11, 11), 3, generator=generator(seed), **kwargs).double() for seed in range(n)]


def hidden(network):
    layers = [layer for layer in network.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    return layers[:-1]


# Weights that lead to a unit, or read it, by layer. After 5 and 4 filters of 3 x 3 pixels with
# pooling, images of 11 x 11 have 2 x 2 pixels.
COSTS = {
    mlps: [4 + 5, 6 + 2],
    convnets: [9 + 4 * 9, 5 * 9 + 4 * 7, 4 * 4 + 3],
}


@pytest.mark.parametrize("make", [mlps, convnets])
def test_the_step_shrinks_hidden_units_by_the_learning_rate_and_their_cost(make):
    (network,) = make(1)
    before = copy.deepcopy(network)
    step(network, 1.5)
    costs, n_units = np.array(COSTS[make]), [len(layer.weight) for layer in hidden(before)]
    costs = costs / np.average(costs, weights=n_units)
    for layer, old, cost in zip(hidden(network), hidden(before), costs, strict=True):
        n_weights = old.weight[0].numel()  # of a unit
        close(layer.weight, shrink([old.weight], 0.15 * (n_weights * cost) ** 0.5)[0])
        close(layer.bias, old.bias)
    close(network[-1].weight, before[-1].weight)


def test_the_step_without_weights_shrinks_all_units_alike():
    (network,) = mlps(1)
    before = copy.deepcopy(network)
    step(network, 1.5, weighted=False)
    for layer, old in zip(hidden(network), hidden(before), strict=True):
        close(layer.weight, shrink([old.weight], 0.15)[0])


@pytest.mark.parametrize("make", [mlps, convnets])
def test_the_step_does_to_a_stack_what_it_does_to_its_networks(make):
    networks = make(3)
    stacked = stack(networks)
    step(stacked, 2.0)
    for network, member in zip(networks, unstack(stacked), strict=True):
        step(network, 2.0)
        for one, other in zip(network.parameters(), member.parameters(), strict=True):
            close(one, other)


def multi_head(networks, head_layers):
    cores, heads = zip(*(split_head(net, head_layers) for net in networks), strict=True)
    return MultiHead(stack(cores[:1]), stack(heads, (1, len(heads))))


def test_the_step_knows_core_and_heads():
    model = CategoricalStack(multi_head(mlps(3), 2))
    before = copy.deepcopy(model).network
    step(model, 2.0)
    after = model.network
    first, old = after.core[0], before.core[0]
    # A unit of the core is read by all three heads, one of a head by two outputs.
    n_core, n_head = 4 + 3 * 5, 6 + 2
    mean = (6 * n_core + 3 * 5 * n_head) / (6 + 3 * 5)
    amount = 0.2 * (4 * n_core / mean) ** 0.5
    close(first.weight.mT, shrink([old.weight.mT], amount, n_lead=1)[0])
    amount = 0.2 * (6 * n_head / mean) ** 0.5
    close(after.heads[0].weight.mT, shrink([before.heads[0].weight.mT], amount, n_lead=2)[0])
    close(after.heads[2].weight, before.heads[2].weight)


# --- removal --------------------------------------------------------------------------------


def silence(layer, *units, left=0.0):
    """Make the weights of units zero, or next to it."""
    with torch.no_grad():
        layer.weight[list(units)] = left
    return layer


def test_a_perceptron_without_its_silent_units():
    (network,) = mlps(1)
    silence(network[0], 1, 4)
    silence(network[2], 0, 2, 3)
    small = prune(network)
    assert widths(network) == (6, 5)
    assert widths(small) == (4, 2)
    assert [(p.in_features, p.out_features) for p in small if isinstance(p, nn.Linear)] == [
        (4, 4),
        (4, 2),
        (2, 2),
    ]
    x = randn(10, 4)
    close(small(x), network(x))
    assert network[0].weight.shape == (6, 4), "the large one stays"


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu", "gelu", "identity"])
@pytest.mark.parametrize("pooling", ["max", "avg", None])
@pytest.mark.parametrize("padding", [0, 1, (1, 0), (0, 2)])
def test_a_convnet_without_its_silent_filters(padding, pooling, activation):
    (network,) = convnets(1, padding=padding, pooling=pooling, activation=activation)
    first, second, linear = hidden(network)
    silence(first, 0, 2, 3)
    silence(second, 1, 3)
    silence(linear, 0, 5, 6)
    small = prune(network)
    is_padded = padding in (1, (0, 2))
    # Before a convolution that pads with zeros, one filter stands for all that were removed.
    assert widths(small) == (3 if is_padded else 2, 2, 4)
    x = randn(6, 11, 11)
    close(small(x), network(x))


def test_strides_dilations_and_layers_without_bias():
    network = nn.Sequential(
        nn.Sequential(nn.Conv1d(2, 5, 3, stride=2, bias=False), nn.Softplus()),
        nn.Conv1d(5, 4, 3, dilation=2, padding="valid", bias=False),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Dropout(0.9),
        nn.Linear(16, 3, bias=False),
    ).double()
    silence(network[0][0], 0, 3)
    silence(network[1], 2)
    network.eval()
    small = prune(network)
    x = randn(4, 2, 25)
    close(small(x), network(x))
    assert widths(small) == (3, 3)
    assert not small.training
    assert small[0][0].bias is None
    assert small[1].bias is not None


@pytest.mark.parametrize("hidden_units", [(6, 6, 6), (6, 6, 5, 5), (5, 4, 4, 4)])
def test_residual_layers_lose_units_together_with_what_they_add_to(hidden_units):
    (network,) = mlps(1, hidden_units=hidden_units, residual=True)
    layers = hidden(network)
    for layer, width in zip(layers, hidden_units, strict=True):
        silence(layer, 0, 2, 3)
        if width == hidden_units[0]:
            silence(layer, 1)
    silence(layers[1], *range(hidden_units[1]))  # not by itself: what it adds to goes on
    small = prune(network)
    x = randn(10, 4)
    close(small(x), network(x))
    assert widths(small)[0] == hidden_units[0] - 4


# --- stacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [mlps, convnets])
def test_stacks_are_pruned_network_by_network(make):
    networks = make(3)
    for m, network in enumerate(networks):
        silence(hidden(network)[0], *range(m, m + 3))
        silence(hidden(network)[1], *range(m + 1))
    stacked = stack(networks)
    small = prune(stacked)
    assert type(small) is type(stacked)
    assert small.lead == (3,)
    x = randn(3, 5, *((4,) if make is mlps else (11, 11)))
    close(small(x), stacked(x))
    n_second = len(hidden(networks[0])[1].weight)
    assert widths(small)[1] == n_second - 1, "the first network needs all but one"


@pytest.mark.parametrize(("head_layers", "expected"), [(1, (4, 3)), (2, (4, 4))])
def test_heads_follow_the_core(head_layers, expected):
    networks = mlps(4)
    for m, network in enumerate(networks):
        silence(network[0], 1, 2)
        silence(network[2], *range(5 - 2, 5) if head_layers == 1 else (m,))
    model = multi_head(networks, head_layers)
    small = prune(model)
    assert widths(small) == expected
    x = randn(1, 7, 4)
    close(small(x), model(x))
    assert isinstance(small.heads, StackedSequential)


# --- what cannot be pruned ------------------------------------------------------------------


def test_weights_that_read_fewer_units_are_larger_by_the_root():
    (network,) = mlps(1)
    close(narrow(network, [2, 3])[2].weight, network[2].weight[:3, :2] * 3**0.5)


def test_a_layer_never_goes_altogether():
    (network,) = mlps(1)
    silence(network[0], *range(6), left=1e-6)
    network[0].weight.data[3] = 1e-5
    with pytest.warns(UserWarning, match=r"threshold=0.001 would remove all units of layer 0"):
        small = prune(network)
    assert widths(small) == (1, 5)
    close(small[0].weight, network[0].weight[3:4])


class OwnForward(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + x


SHARED = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (ResNet((8, 8), 2, blocks=(1,), channels=(4,)), "go through GroupNorm cannot be removed"),
        (
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)),
            "go through BatchNorm2d cannot",
        ),
        (OwnForward(nn.Linear(4, 4)), "module must be an nn.Sequential.*got OwnForward"),
        (nn.Sequential(SHARED, nn.ReLU(), SHARED), "must not share weights"),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3, groups=2)), "groups=1"),
        (
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.AvgPool2d(2, padding=1), nn.Conv2d(4, 4, 3)),
            "average pooling no padding",
        ),
        (nn.Sequential(nn.Conv2d(2, 6, 3), nn.Linear(6, 2)), r"nn.Flatten\(\) must stand between"),
    ],
)
def test_what_is_not_known_is_refused(network, message):
    with pytest.raises(ValueError, match=message):
        prune(network)
    with pytest.raises(ValueError, match=message):
        ProximalStep(network, 0.1)
