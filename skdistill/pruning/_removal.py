# SPDX-License-Identifier: BSD-3-Clause
"""Units of a network that may be removed, where their weights are, and their removal for good."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._utils.validation import Number
from .._utils.warnings import warn
from ..modules import (
    ELEMENTWISE,
    MultiHead,
    ResidualLayer,
    StackedModule,
    StackedSequential,
    is_plain_sequential,
    stack,
    unstack,
)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHTED = (nn.Linear, *_CONVOLUTIONS)

# Layers that act on each element. Dropout does nothing when a network predicts.
_ELEMENTWISE = (
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


def prune(module: nn.Module, threshold: float = 1e-3) -> nn.Module:
    """Remove the units and filters whose weights are next to zero.

    Such a unit has a constant activation, that of its bias, which goes into the biases of the next
    layer. The smaller module computes what the large one would with these weights set to zero.

    Parameters
    ----------
    module : nn.Module
        An ``nn.Sequential`` of linear layers, convolutions, activations, dropout, pooling, Flatten
        and the residual layers of :class:`skdistill.modules.MLP`, as an MLP or a ConvNet is; or a
        stack of such networks, or the `module_` of an estimator. It is not changed.
    threshold : float, default=1e-3
        Units whose weights have a smaller norm are removed, of all layers but the last. A residual
        layer's unit goes together with those that it adds to. In a stack each network loses as many
        units of a layer as the one that keeps the most of them.

    Returns
    -------
    pruned : nn.Module
        The smaller module, of the same kind, on the same device, in the same dtype.

    Raises
    ------
    ValueError
        If weights are not finite, or the module has layers with which units cannot be removed:
        normalisation, whose statistics are over units, or the blocks of a ResNet.

    Warns
    -----
    UserWarning
        If no unit of a layer reaches the threshold. The largest is kept.

    Notes
    -----
    A convolution that pads its input with zeros sees the edge of a channel, also of a constant one.
    Before it one of the removed filters is kept, as a constant that stands for all of them: this is
    exact, as a bias would not be. Other layers get a bias if inputs of theirs were removed.

    Examples
    --------
    >>> import torch
    >>> from skdistill.modules import MLP, n_parameters
    >>> from skdistill.pruning import prune, widths
    >>> network = MLP(4, 2, hidden_units=(50,))
    >>> _ = network[0].weight.data[10:].zero_()
    >>> small = prune(network)
    >>> widths(small), n_parameters(network), n_parameters(small)
    ((10,), 352, 72)
    """
    Number(Real, 0).check(threshold, "threshold")
    if not all(p.isfinite().all() for p in module.parameters()):
        raise ValueError("module must have finite weights, for units to be removed.")

    empty: list[str] = []

    def change(networks: list[nn.Module]) -> list[nn.Module]:
        kept: list[list[Tensor]] = [[] for _ in networks]  # units of each stream, equally many
        for number, streams in enumerate(zip(*map(streams_of, networks), strict=True)):
            norms = [unit_norms([layer.weight.detach() for layer in s.layers]) for s in streams]
            n_kept = max(int((norm >= threshold).sum()) for norm in norms)
            if n_kept == 0:
                n_kept = 1
                empty.append(f"layer {number} ({streams[0].source})")
            for units, norm in zip(kept, norms, strict=True):
                units.append(norm.topk(n_kept).indices.sort().values)
        return [
            _with_units(*pair, exact_at_edges=True) for pair in zip(networks, kept, strict=True)
        ]

    pruned = _changed(module, change)
    if empty:
        warn(
            f"threshold={threshold:g} would remove all units of {', '.join(empty)}; the one with "
            "the largest weights is kept. Use a smaller threshold, or a weaker group lasso."
        )
    return pruned


def narrow(module: nn.Module, widths: Sequence[int]) -> nn.Module:
    """Keep the first units of each layer but the last, so many as `widths` says.

    Weights of a pruned module can be loaded into the result. It can be trained too: weights that
    read fewer units become larger by the root of how many times fewer, as new ones are.
    """

    def change(networks: list[nn.Module]) -> list[nn.Module]:
        now = tuple(len(stream.source.weight) for stream in streams_of(networks[0]))
        few_enough = (1 <= few <= many for few, many in zip(widths, now, strict=False))
        if len(now) != len(widths) or not all(few_enough):
            raise ValueError(f"widths must have a number up to each of {now}; got {widths!r}.")
        kept = [torch.arange(width, device="cpu") for width in widths]
        small = [_with_units(network, kept, exact_at_edges=False) for network in networks]
        for streams in map(streams_of, small):
            for stream, few, many in zip(streams, widths, now, strict=True):
                stream.reader.weight.data.mul_((many / few) ** 0.5)
        return small

    return _changed(module, change)


_Change = Callable[[list[nn.Module]], list[nn.Module]]


def _changed(module: Any, change: _Change) -> nn.Module:
    """Return a copy of a module with its list of networks replaced by ``change(networks)``."""
    if isinstance(module, (StackedModule, StackedSequential)):
        return stack(change(unstack(module)), module.lead).train(module.training)
    if hasattr(module, "network"):
        model = copy.deepcopy(module)
        model.network = _changed(module.network, change)
        return model
    if not isinstance(module, MultiHead):
        return change([module])[0]
    cores: list[Any] = unstack(module.core)
    heads: list[Any] = unstack(module.heads)
    n_heads, cut = len(heads) // len(cores), len(cores[0])
    # Each head gets a copy of the core. The copies are changed alike, since only weights matter.
    joined = [joined_layers(cores[i // n_heads], head) for i, head in enumerate(heads)]
    networks: list[Any] = change([*joined])
    cores = [network[:cut] for network in networks[::n_heads]]
    heads = [nn.Sequential(*network[cut:]) for network in networks]  # numbered from 0, as built
    lead: Any = module.lead
    return MultiHead(stack(cores, lead[:1]), stack(heads, lead)).train(module.training)


@torch.no_grad()
def _with_units(network: nn.Module, kept: Sequence[Tensor], exact_at_edges: bool) -> nn.Module:
    """Copy a network with some of its units only, in `kept` for each stream."""
    network = copy.deepcopy(network)
    for stream, units in zip(streams_of(network), kept, strict=True):
        is_kept = torch.zeros(len(stream.source.weight), dtype=torch.bool, device=units.device)
        is_kept[units] = True
        if not is_kept.all():
            _remove(stream, is_kept, exact_at_edges)
    return network


def _remove(stream: Stream, is_kept: Tensor, exact_at_edges: bool) -> None:
    """Remove units from the layers that make them and from those that read them."""
    source, path, reader = stream
    # Activation of each unit whose weights are zero; used for the removed units only.
    value = _bias_of(source)
    for layer in path:
        if isinstance(layer, ResidualLayer):
            linear: Any = layer.linear
            increment = layer.activation(_bias_of(linear))
            _drop_inputs(linear, is_kept, value)
            _drop_units(linear, is_kept)
            value = value + increment
        elif type(layer) in _ELEMENTWISE:
            value = layer(value)
    if exact_at_edges and type(reader) in _CONVOLUTIONS and reader.padding_mode == "zeros":
        # A constant input has no constant output where zeros are put around it.
        pads = reader.padding == "same" or (reader.padding != "valid" and any(reader.padding))
        is_kept = _merge(stream, is_kept, value) if pads else is_kept
    _drop_inputs(reader, is_kept, value)
    _drop_units(source, is_kept)


def _bias_of(layer: Any) -> Tensor:
    """Copy of a layer's bias, zeros if it has none."""
    weight = layer.weight
    return weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.clone()


def _merge(stream: Stream, is_kept: Tensor, value: Tensor) -> Tensor:
    """Let one of the removed units stand for all of them, and keep it."""
    source, _, reader = stream
    gone = torch.nonzero(~is_kept).flatten()
    one = gone[value[gone].abs().argmax()]
    if value[one] != 0:
        share = value[gone] / value[one]
        reader.weight[:, one] = torch.tensordot(reader.weight[:, gone], share, ([1], [0]))
    source.weight[one] = 0.0
    value[gone] = 0.0  # nothing is left for the bias
    is_kept = is_kept.clone()
    is_kept[one] = True
    return is_kept


def _drop_inputs(layer: Any, is_kept: Tensor, value: Tensor) -> None:
    """Remove constant units from a layer's inputs, and add what they contribute to its bias."""
    weight = layer.weight
    by_unit = weight.reshape(len(weight), len(is_kept), -1)  # a channel has pixels, or a kernel
    bias = _bias_of(layer) + by_unit[:, ~is_kept].sum(-1) @ value[~is_kept]
    weights = by_unit[:, is_kept].reshape(len(weight), -1, *weight.shape[2:])
    _set(layer, weights, bias)


def _drop_units(layer: Any, is_kept: Tensor) -> None:
    _set(layer, layer.weight[is_kept], None if layer.bias is None else layer.bias[is_kept])


def _set(layer: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Replace a layer's weights and update its sizes."""
    trains = layer.weight.requires_grad
    layer.register_parameter("weight", nn.Parameter(weight, trains))
    layer.register_parameter("bias", None if bias is None else nn.Parameter(bias, trains))
    what = "channels" if type(layer) in _CONVOLUTIONS else "features"
    for name, size in zip(("out", "in"), weight.shape, strict=False):
        setattr(layer, f"{name}_{what}", size)


def unit_norms(weights: Sequence[Tensor], n_lead: int = 0) -> Tensor:
    """Norms (..., n_units) of each unit's weights (..., n_units, ...), of one layer or several."""
    # Ten times as fast as torch.linalg.vector_norm.
    squares = (w.square().sum(tuple(range(n_lead + 1, w.ndim))) for w in weights)
    return reduce(torch.add, squares).sqrt()


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
    return tuple(units.shape[-1] for units in units_of(module))


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
    return list(itertools.chain.from_iterable(nested))


def _checked(stream: Stream) -> Stream:
    """Return a stream; raise a ValueError unless removing units of it can be made up for."""
    source, path, reader = stream
    known = (*_ELEMENTWISE, *_DROPOUT, *_POOLING, nn.Flatten, ResidualLayer)
    for layer in path:
        if type(layer) not in known:
            raise ValueError(
                f"Units that go through {type(layer).__name__} cannot be removed. Between its "
                "layers with weights module may have activations, dropout, pooling and Flatten, "
                "but no normalisation, whose statistics would change."
            )
    averages = [vars(layer) for layer in path if type(layer) in _POOLING[3:6]]
    is_lossy = any(  # an average over zeros too, or no average
        of.get("padding", 0) not in (0, (0,), (0, 0), (0, 0, 0))
        or of.get("divisor_override") is not None
        for of in averages
    )
    is_grouped = any(vars(layer).get("groups", 1) != 1 for layer in (source, reader))
    # The reader's inputs are the units, each of them one or a block of the same size.
    n_units, n_inputs = source.weight.shape[0], reader.weight.shape[1]
    flattened = [(part.start_dim, part.end_dim) for part in path if type(part) is nn.Flatten]
    if type(source) is type(reader):
        fits = not flattened and n_inputs == n_units
    else:
        is_residual = any(type(part) is ResidualLayer for part in path)
        is_flat = flattened == [(1, -1)] and n_inputs % n_units == 0
        fits = type(reader) is nn.Linear and is_flat and not is_residual
    if is_lossy or is_grouped or not fits:
        raise ValueError(
            f"Units between {source} and {reader} cannot be removed. Convolutions must have "
            "groups=1, average pooling no padding and no divisor_override, and nn.Flatten() must "
            "stand between convolutions and linear layers, nowhere else."
        )
    return stream


class Place(NamedTuple):
    """Where the weights of units lie in a module."""

    weight: nn.Parameter
    n_lead: int = 0
    units_last: bool = False

    def of(self, weight: Tensor) -> Tensor:
        """View the weights as (..., n_units, ...)."""
        return weight.mT if self.units_last else weight


class Units(NamedTuple):
    """Where the weights of a stream's units lie in a module, and those that read these units."""

    own: list[Place]
    reader: Place

    @property
    def shape(self) -> torch.Size:
        """Shape (..., n_units) of the units: those of each member or head."""
        place = self.own[0]
        return place.of(place.weight).shape[: place.n_lead + 1]

    @property
    def n_weights(self) -> int:
        """Number of weights that would go with all units: their own, and those that read them."""
        return sum(place.weight.numel() for place in (*self.own, self.reader))


def units_of(module: Any) -> list[Units]:
    """Where the weights of each stream of units are in a network, a stack, or a model of one."""
    if hasattr(module, "network"):
        return units_of(module.network)
    network: nn.Module = module
    place: Callable[[nn.Parameter], Place] = Place
    if isinstance(module, (StackedModule, StackedSequential)):
        network, where = _template(module)
        place = where.__getitem__
    elif isinstance(module, MultiHead):
        (core, in_core), (heads, in_heads) = _template(module.core), _template(module.heads)
        network, place = joined_layers(core, heads), {**in_core, **in_heads}.__getitem__
    return [
        Units([place(layer.weight) for layer in s.layers], place(s.reader.weight))
        for s in streams_of(network)
    ]


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
