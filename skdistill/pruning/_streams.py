# SPDX-License-Identifier: BSD-3-Clause
"""Units of a network that may be removed, and where their weights are."""

import itertools
from functools import singledispatch
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..modules import (
    ELEMENTWISE,
    MultiHead,
    ResidualLayer,
    StackedModule,
    StackedSequential,
    is_plain_sequential,
    unstack,
)

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHTED = (nn.Linear, *CONVOLUTIONS)

# Layers that act on each element. Dropout does nothing when a network predicts.
ELEMENTWISE_LAYERS = (
    *ELEMENTWISE,
    *(nn.ELU, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.Mish, nn.ReLU6, nn.SELU, nn.Sigmoid),
    *(nn.Softplus, nn.Softsign),
)
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)

# Layers that leave a constant channel as it is.
_POOLING = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)


class Stream(NamedTuple):
    """Units that are removed together: a layer's, and those of residual layers that add to them."""

    source: Any  # the layer that makes them
    path: list[Any]  # layers without weights and residual layers, which they go through
    reader: Any  # the layer that reads them

    @property
    def layers(self) -> list[Any]:
        """Layers of which each has one row of weights, or filter, for each unit."""
        return [self.source, *(part.linear for part in self.path if type(part) is ResidualLayer)]


def streams_of(network: nn.Module) -> list[Stream]:
    """Units of a Sequential network that may be removed, from its input to its output."""
    layers = _leaves(network)
    parameters = [p for layer in layers for p in layer.parameters()]
    if len(set(parameters)) < len(parameters):
        raise ValueError("module must not share weights between layers, for units to be removed.")
    weighted = [i for i, layer in enumerate(layers) if type(layer) in _WEIGHTED]
    pairs = itertools.pairwise(weighted)
    return [_checked(Stream(layers[i], layers[i + 1 : j], layers[j])) for i, j in pairs]


def _leaves(network: nn.Module) -> list[nn.Module]:
    """Layers of a Sequential network, those of Sequential networks in it included."""
    if not is_plain_sequential(network):
        raise ValueError(
            "module must be an nn.Sequential without a forward of its own, for units to be "
            f"removed; got {type(network).__name__}."
        )
    nested = (_leaves(part) if isinstance(part, nn.Sequential) else [part] for part in network)
    return [layer for layers in nested for layer in layers]


def _checked(stream: Stream) -> Stream:
    """Return a stream; raise a ValueError unless removing units of it can be made up for."""
    source, path, reader = stream
    known = (*ELEMENTWISE_LAYERS, *_DROPOUT, *_POOLING, nn.Flatten, ResidualLayer)
    for layer in path:
        if type(layer) not in known:
            raise ValueError(
                f"Units that go through {type(layer).__name__} cannot be removed. Between its "
                "layers with weights module may have activations, dropout, pooling and Flatten, "
                "but no normalisation, whose statistics would change."
            )
    is_lossy = any(type(layer) in _POOLING and _changes_constants(layer) for layer in path)
    is_grouped = any(vars(layer).get("groups", 1) != 1 for layer in (source, reader))
    if is_lossy or is_grouped or not _fits(stream):
        raise ValueError(
            f"Units between {source} and {reader} cannot be removed. Convolutions must have "
            "groups=1, average pooling no padding and no divisor_override, and nn.Flatten() must "
            "stand between convolutions and linear layers, nowhere else."
        )
    return stream


def _changes_constants(pooling: nn.Module) -> bool:
    """Whether an average is over zeros too, or no average."""
    padding = vars(pooling).get("padding", 0)
    is_plain = padding in (0, (0,), (0, 0), (0, 0, 0))
    is_plain &= vars(pooling).get("divisor_override") is None
    return "Avg" in type(pooling).__name__ and not is_plain


def _fits(stream: Stream) -> bool:
    """Whether the reader's inputs are the units, each of them one or a block of the same size."""
    source, path, reader = stream
    n_units, n_inputs = source.weight.shape[0], reader.weight.shape[1]
    flattened = [(part.start_dim, part.end_dim) for part in path if type(part) is nn.Flatten]
    if type(source) is type(reader):
        return not flattened and n_inputs == n_units
    is_residual = any(type(part) is ResidualLayer for part in path)
    is_flat = flattened == [(1, -1)] and n_inputs % n_units == 0
    return type(reader) is nn.Linear and is_flat and not is_residual


class Place(NamedTuple):
    """Where the weights of units lie in a module."""

    weight: nn.Parameter
    n_lead: int = 0
    units_last: bool = False

    def of(self, weight: Tensor) -> Tensor:
        """View the weights as (..., n_units, ...)."""
        return weight.mT if self.units_last else weight


@singledispatch
def places_of(module: Any) -> list[list[Place]]:
    """Where the weights of each stream of units are in a network, a stack, or a model of one."""
    if hasattr(module, "network"):
        return places_of(module.network)
    return [[Place(layer.weight) for layer in s.layers] for s in streams_of(module)]


@places_of.register(StackedModule)
@places_of.register(StackedSequential)
def _(module):
    template, where = _template(module)
    return [[where[layer.weight] for layer in s.layers] for s in streams_of(template)]


@places_of.register
def _(module: MultiHead):
    (core, in_core), (heads, in_heads) = _template(module.core), _template(module.heads)
    where = {**in_core, **in_heads}
    joined = joined_layers(core, heads)
    return [[where[layer.weight] for layer in s.layers] for s in streams_of(joined)]


def _template(stacked: Any) -> tuple[nn.Module, dict[nn.Parameter, Place]]:
    """One network of a stack, and where its parameters are in the stack."""
    network = unstack(stacked)[0]
    by_hand = isinstance(stacked, StackedSequential)  # their linear layers are (*lead, in, out)
    own = dict(stacked.named_parameters())
    names = {
        p: name if by_hand else name.replace(".", "__") for name, p in network.named_parameters()
    }
    return network, {p: Place(own[name], len(stacked.lead), by_hand) for p, name in names.items()}


def joined_layers(core: Any, head: Any) -> nn.Sequential:
    if type(head[0]) is ResidualLayer:
        raise ValueError(
            "module must not have a residual layer as the first of its last head_layers layers, "
            "for units to be removed: each head would add to the units of the core."
        )
    return nn.Sequential(*core, *head)


def widths(module: nn.Module) -> tuple[int, ...]:
    """Count the units of each layer but the last; residual layers count with what they add to.

    Parameters
    ----------
    module : nn.Module
        As in :func:`prune`.

    Returns
    -------
    widths : tuple of int
    """
    return tuple(p.of(p.weight).shape[p.n_lead] for p, *_ in places_of(module))
