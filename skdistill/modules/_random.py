# SPDX-License-Identifier: BSD-3-Clause
"""Networks from which members or heads are drawn: by dropout, or by a random last layer."""

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._stacks import StackedLinear, is_plain_sequential

_RAW_STD = -4.0  # of a random layer's weights at the start: a standard deviation of .018


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

    A Sequential network without any gets one before each layer with weights but the first. `seed`
    draws the units that are dropped in prediction, of layers whose widths a sample of zeros tells.
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
        layers = list(network)
        has_weights = [any(True for _ in layer.parameters()) for layer in layers]
        for k in reversed(range(len(layers))):
            if has_weights[k] and any(has_weights[:k]):
                layers.insert(k, MemberDropout(rate))
        network = nn.Sequential(*layers)
    if not any(isinstance(layer, MemberDropout) for layer in network.modules()):
        raise ValueError(
            "module must have nn.Dropout layers, or be an nn.Sequential of two layers with weights "
            f"or more, for members to be drawn by dropout; {kind} is neither."
        )
    generator = torch.Generator().manual_seed(seed)
    drawn = set()

    def draw(layer, inputs):
        if layer in drawn:
            raise ValueError(
                "module must have an nn.Dropout layer for each place where units are dropped; "
                f"{kind} goes through one of them twice."
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
    return network


class RandomHead(nn.Module):
    """One network with a core and heads that are draws of its last layer, stacks with lead (1,).

    In training each sample has `n_drawn` draws of its own; otherwise all share `n_samples` draws.
    """

    draws_globally = True  # in training

    def __init__(self, core: nn.Module, layer: StackedLinear, n_drawn: int, n_samples: int):
        super().__init__()
        self.core = core
        self.layer = layer
        self.n_drawn = n_drawn
        self.n_samples = n_samples
        self.lead = (1, n_samples)
        self.extra_activations = n_samples * layer.bias.numel()

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (1, n, ...) to the heads' outputs (1, M, n, out)."""
        return self._heads(self.core(x).unsqueeze(1))

    def _heads(self, hidden: Tensor) -> Tensor:
        """Outputs of the heads, (1, M, n, out), for hidden units (1, 1, n, in)."""
        raise NotImplementedError  # each kind of head defines it

    def _draws(self, draw: Callable[..., Tensor], like: Tensor) -> Tensor:
        """Draws of the shape of `like` (1, 1, n, width) for each head, the same for all samples."""
        if self.training:
            return draw(1, self.n_drawn, *like.shape[2:], dtype=like.dtype, device=like.device)
        return torch.tensor(_shared_draws(draw, self.n_samples, like.shape[-1])).to(like)


@lru_cache(maxsize=8)
def _shared_draws(draw: Callable[..., Tensor], n_draws: int, width: int) -> np.ndarray:
    """Draws (1, n_draws, 1, width): numpy's, which a graph that is exported takes as constants."""
    generator = torch.Generator().manual_seed(0)
    return draw(1, n_draws, 1, width, generator=generator).numpy()


class GaussianHead(RandomHead):
    """Independent Gaussian weights, by local reparametrisation (Kingma et al., 2015)."""

    def __init__(self, *args):
        super().__init__(*args)
        self.raw_std = nn.Parameter(torch.full_like(self.layer.weight, _RAW_STD))
        self.raw_bias_std = nn.Parameter(torch.full_like(self.layer.bias, _RAW_STD))

    def _heads(self, hidden: Tensor) -> Tensor:
        mean = hidden @ self.layer.weight + self.layer.bias
        spread, bias_spread = (F.softplus(raw) for raw in (self.raw_std, self.raw_bias_std))
        variance = hidden.square() @ spread.square() + bias_spread.square()
        return mean + variance.sqrt() * self._draws(torch.randn, mean)

    def divergence(self) -> Tensor:
        """Divergence of the weights' distribution from the standard normal, of shape (1,)."""
        pairs = ((self.layer.weight, self.raw_std), (self.layer.bias, self.raw_bias_std))
        return torch.stack(
            [
                (0.5 * (mean.square() + F.softplus(raw).square() - 1) - F.softplus(raw).log()).sum()
                for mean, raw in pairs
            ]
        ).sum(0, keepdim=True)


class DropoutHead(RandomHead):
    """Dropout of the inputs of the last layer (Gal & Ghahramani, 2016)."""

    def __init__(self, *args, rate: float):
        super().__init__(*args)
        self.rate = rate

    def _heads(self, hidden: Tensor) -> Tensor:
        kept = (self._draws(torch.rand, hidden) >= self.rate) / (1 - self.rate)
        return (hidden * kept) @ self.layer.weight + self.layer.bias
