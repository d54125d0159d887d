# SPDX-License-Identifier: BSD-3-Clause
"""Units removed from a network for good."""

import copy
from collections.abc import Callable, Sequence
from functools import singledispatch
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from .._utils.validation import Number
from .._utils.warnings import warn
from ..modules import MultiHead, ResidualLayer, StackedModule, StackedSequential, stack, unstack
from ._group_lasso import unit_norms
from ._streams import CONVOLUTIONS, ELEMENTWISE_LAYERS, Stream, joined_layers, streams_of


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
    Before such a convolution one of the removed filters is kept, as a constant that stands for all
    of them. This is exact, as a bias would not be.

    Layers without a bias get one if inputs of theirs were removed.

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
        kept = _largest_units(networks, threshold, empty)
        return [
            _with_units(network, units, exact_at_edges=True)
            for network, units in zip(networks, kept, strict=True)
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

    The result has the shape of a pruned module of the same architecture, whose weights can then be
    loaded into it. A ValueError says that there are not as many layers, or units in a layer.
    """

    def change(networks: list[nn.Module]) -> list[nn.Module]:
        now = tuple(len(stream.source.weight) for stream in streams_of(networks[0]))
        if len(now) != len(widths) or not all(
            1 <= few <= many for few, many in zip(widths, now, strict=True)
        ):
            raise ValueError(f"widths must have a number up to each of {now}; got {widths!r}.")
        kept = [torch.arange(width, device="cpu") for width in widths]
        return [_with_units(network, kept, exact_at_edges=False) for network in networks]

    return _changed(module, change)


_Change = Callable[[list[nn.Module]], list[nn.Module]]


@singledispatch
def _changed(module: Any, change: _Change) -> nn.Module:
    """Return a copy of a module with its list of networks replaced by ``change(networks)``."""
    if not hasattr(module, "network"):
        return change([module])[0]
    model = copy.deepcopy(module)
    model.network = _changed(module.network, change)
    return model


@_changed.register(StackedModule)
@_changed.register(StackedSequential)
def _(module, change):
    return stack(change(unstack(module)), module.lead).train(module.training)


@_changed.register
def _(module: MultiHead, change):
    cores: list[Any] = unstack(module.core)
    heads: list[Any] = unstack(module.heads)
    n_heads, cut = len(heads) // len(cores), len(cores[0])
    # Each head gets a copy of the core. The copies are changed alike, since only weights matter.
    joined = [joined_layers(cores[i // n_heads], head) for i, head in enumerate(heads)]
    networks: list[Any] = change(joined)
    cores = [network[:cut] for network in networks[::n_heads]]
    heads = [nn.Sequential(*network[cut:]) for network in networks]  # numbered from 0, as built
    lead: Any = module.lead
    return MultiHead(stack(cores, lead[:1]), stack(heads, lead)).train(module.training)


def _largest_units(
    networks: Sequence[nn.Module], threshold: float, empty: list[str]
) -> list[list[Tensor]]:
    """Units to keep of each stream of each network, equally many in all.

    Layers of which nothing would remain keep one unit, and are added to `empty`.
    """
    kept: list[list[Tensor]] = [[] for _ in networks]
    for number, streams in enumerate(zip(*map(streams_of, networks), strict=True)):
        norms = [unit_norms([layer.weight.detach() for layer in s.layers]) for s in streams]
        n_kept = max(int((norm >= threshold).sum()) for norm in norms)
        if n_kept == 0:
            n_kept = 1
            empty.append(f"layer {number} ({streams[0].source})")
        for units, norm in zip(kept, norms, strict=True):
            units.append(norm.topk(n_kept).indices.sort().values)
    return kept


@torch.no_grad()
def _with_units(network: nn.Module, kept: Sequence[Tensor], exact_at_edges: bool) -> nn.Module:
    """Copy a network with some of its units only, in `kept` for each stream."""
    network = copy.deepcopy(network)
    for stream, units in zip(streams_of(network), kept, strict=True):
        is_kept = torch.zeros(len(stream.source.weight), dtype=torch.bool, device=units.device)
        is_kept[units] = True
        _remove(stream, is_kept, exact_at_edges)
    return network


def _remove(stream: Stream, is_kept: Tensor, exact_at_edges: bool) -> None:
    """Remove units from the layers that make them and from those that read them."""
    source, path, reader = stream
    if is_kept.all():
        return
    # Activation of each unit whose weights are zero; used for the removed units only.
    value = _bias_of(source)
    for layer in path:
        if isinstance(layer, ResidualLayer):
            linear: Any = layer.linear
            increment = layer.activation(_bias_of(linear))
            _drop_inputs(linear, is_kept, value)
            _drop_units(linear, is_kept)
            value = value + increment
        elif type(layer) in ELEMENTWISE_LAYERS:
            value = layer(value)
    if exact_at_edges and _sees_edges(reader):
        is_kept = _merge(stream, is_kept, value)
    _drop_inputs(reader, is_kept, value)
    _drop_units(source, is_kept)


def _bias_of(layer: Any) -> Tensor:
    """Copy of a layer's bias, zeros if it has none."""
    weight = layer.weight
    return weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.clone()


def _sees_edges(layer: Any) -> bool:
    """Whether a layer pads with zeros, so that a constant input has no constant output."""
    if type(layer) not in CONVOLUTIONS or layer.padding_mode != "zeros":
        return False
    return layer.padding == "same" or (layer.padding != "valid" and any(layer.padding))


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
    sizes = ("out_features", "in_features")
    if type(layer) in CONVOLUTIONS:
        sizes = ("out_channels", "in_channels")
    for name, size in zip(sizes, weight.shape, strict=False):
        setattr(layer, name, size)
