# SPDX-License-Identifier: BSD-3-Clause
"""Members drawn by dropout: other units for each sample in training, the same ones afterwards."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._stacks import is_plain_sequential


class MemberDropout(nn.Module):
    """Dropout that drops the same units for all samples when it is not training."""

    dropout_mask: Tensor

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate
        self.register_buffer("dropout_mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Drop units of samples (n, ...); in training, other ones for each sample."""
        return F.dropout(x, self.rate, training=True) if self.training else x * self.dropout_mask

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> None:
        """Choose the units, of one sample's shape, that are dropped when not training."""
        kept = torch.rand(*shape, generator=generator) >= self.rate
        self.dropout_mask = kept / (1.0 - self.rate)


def with_dropout(network: nn.Module, rate: float, row_shape: Sequence[int], seed: int) -> nn.Module:
    """Copy a network, with :class:`MemberDropout` of `rate` for its dropout layers.

    A Sequential network without any gets one before each layer with weights but the first. The
    units that are dropped when the copy is not training are drawn from `seed`. A ValueError says
    that there is no place for dropout, or that forward goes through one layer of it twice.
    """
    kind = type(network).__name__
    network = copy.deepcopy(network)
    places = [
        (parent, name)
        for parent in network.modules()
        for name, child in parent._modules.items()  # named_children() leaves out repetitions
        if type(child) is nn.Dropout
    ]
    for parent, name in places:
        parent.register_module(name, MemberDropout(rate))
    if not places and is_plain_sequential(network):
        network = nn.Sequential(*_with_layers_between(network, rate))
    if not any(isinstance(layer, MemberDropout) for layer in network.modules()):
        raise ValueError(
            "module must have nn.Dropout layers, or be an nn.Sequential of two layers with weights "
            f"or more, for members to be drawn by dropout; {kind} is neither."
        )
    _draw_units(network, row_shape, seed)
    return network


def _with_layers_between(network: nn.Sequential, rate: float) -> Iterator[nn.Module]:
    n_weighted = 0
    for layer in network:
        if any(True for _ in layer.parameters()):
            if n_weighted:
                yield MemberDropout(rate)
            n_weighted += 1
        yield layer


def _draw_units(network: nn.Module, row_shape: Sequence[int], seed: int) -> None:
    """Draw the dropped units of every layer, whose width is found by a sample of zeros."""
    generator = torch.Generator().manual_seed(seed)
    drawn = set()

    def draw(layer, inputs):
        if layer in drawn:
            raise ValueError(
                "module must have an nn.Dropout layer for each place where units are dropped; "
                f"{type(network).__name__} goes through one of them twice."
            )
        drawn.add(layer)
        layer.draw(inputs[0].shape[1:], generator)

    layers = [layer for layer in network.modules() if isinstance(layer, MemberDropout)]
    hooks = [layer.register_forward_pre_hook(draw) for layer in layers]
    was_training = network.training
    with torch.no_grad():
        network.eval()(torch.zeros(1, *row_shape))
    network.train(was_training)
    for hook in hooks:
        hook.remove()
