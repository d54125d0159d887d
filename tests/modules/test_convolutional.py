# SPDX-License-Identifier: BSD-3-Clause
"""Networks for images against their layers written out, and published parameter counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdistill.modules import ConvNet, ResNet, n_parameters, split_head

N, OUT = 4, 3  # rows, outputs
IMAGE, COLOURED = (8, 8), (2, 9, 7)
SMALL_RESNET = {"blocks": (1, 2), "channels": (4, 6)}

GPED_MNIST = {"channels": (10, 20), "kernel_size": 4, "padding": 0, "hidden_units": (80,)}
GPED_CIFAR = {"channels": (16, 32), "kernel_size": 5, "padding": 0, "hidden_units": (200, 50)}
LENET = {
    "channels": (6, 16),
    "kernel_size": 5,
    "padding": (2, 0),
    "pooling": "avg",
    "activation": "tanh",
    "hidden_units": (120, 84),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(*shape, seed=0):
    return torch.randn(N, *shape, generator=generator(seed), dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


# --- ConvNet ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "settings", "expected"),
    [
        # Weights and biases of each layer; the maps shrink 28 - 25 - 12 - 9 - 4.
        (
            (28, 28),
            GPED_MNIST,
            (16 * 10 + 10) + (160 * 20 + 20) + (20 * 16 * 80 + 80) + (80 * 10 + 10),
        ),
        # 32 - 28 - 14 - 10 - 5.
        (
            (3, 32, 32),
            GPED_CIFAR,
            (75 * 16 + 16) + (400 * 32 + 32) + (800 * 200 + 200) + (200 * 50 + 50) + (50 * 10 + 10),
        ),
        ((28, 28), LENET, 61_706),
        ((1, 28, 28), LENET, 61_706),
    ],
)
def test_parameter_counts_of_published_networks(shape, settings, expected):
    assert n_parameters(ConvNet(shape, 10, **settings)) == expected


POOLS = {"max": F.max_pool2d, "avg": F.avg_pool2d, None: lambda x, size: x}


@pytest.mark.parametrize("pooling", POOLS)
def test_a_convnet_is_its_layers_written_out(pooling):
    network = ConvNet(
        COLOURED,
        OUT,
        channels=(4, 5),
        kernel_size=(3, 2),
        padding=(1, 0),
        pooling=pooling,
        activation="tanh",
        hidden_units=(6,),
    ).double()
    x = images(*COLOURED)
    w1, b1, w2, b2, *dense = network.parameters()
    h = POOLS[pooling](torch.tanh(F.conv2d(x, w1, b1, padding=1)), 2)
    h = POOLS[pooling](torch.tanh(F.conv2d(h, w2, b2)), 2).flatten(1)
    close(network(x), torch.tanh(h @ dense[0].t() + dense[1]) @ dense[2].t() + dense[3])


# --- ResNet -----------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["group", "batch"])
def test_resnet18_for_small_images_has_the_usual_number_of_parameters(normalization):
    assert n_parameters(ResNet((3, 32, 32), 10, normalization=normalization)) == 11_173_962


def test_a_resnet_is_its_blocks_written_out():
    network = ResNet(COLOURED, OUT, (1, 1), (4, 6), None, "tanh", generator()).double()
    x = images(*COLOURED)
    stem, a1, a2, b1, b2, shortcut, linear = zip(*[iter(network.parameters())] * 2, strict=True)
    h = torch.tanh(F.conv2d(x, *stem, padding=1))
    residual = F.conv2d(torch.tanh(F.conv2d(h, *a1, padding=1)), *a2, padding=1)
    h = torch.tanh(residual + h)
    residual = torch.tanh(F.conv2d(h, *b1, stride=2, padding=1))
    residual = F.conv2d(residual, *b2, padding=1)
    h = torch.tanh(residual + F.conv2d(h, *shortcut, stride=2))
    close(network(x), h.mean((2, 3)) @ linear[0].t() + linear[1])


@pytest.mark.parametrize(("width", "n_groups"), [(4, 1), (16, 1), (64, 4), (96, 6), (33, 1)])
def test_groups_have_sixteen_channels_where_they_can(width, n_groups):
    network = ResNet(IMAGE, OUT, (1,), (width,))
    norms = [part for part in network.modules() if isinstance(part, nn.GroupNorm)]
    assert [norm.num_groups for norm in norms] == [n_groups] * 3


def test_the_last_two_blocks_can_be_a_head():
    network = ResNet(COLOURED, OUT, **SMALL_RESNET).double()
    core, head = split_head(network, head_layers=3)
    assert [type(layer).__name__ for layer in head[:2]] == ["BasicBlock", "BasicBlock"]
    close(head(core(images(*COLOURED))), network(images(*COLOURED)))
