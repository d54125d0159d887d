# SPDX-License-Identifier: BSD-3-Clause
"""Stacks: one module that holds many networks of the same architecture."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, groupby
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from .._utils.warnings import warn
from ._networks import ELEMENTWISE, ResidualLayer
from ._recurrent import written_out

_LARGE_MAPS, _LARGE_STATES = 100_000, 5_000  # values of a member, from which on a loop is faster


class StackedLinear(nn.Module):
    """Linear layers with leading axes: ``y = x @ weight + bias`` for each of them.

    The weight is (*lead, in, out) and the bias (*lead, 1, out), where `lead` is (S,) for S members
    or (S, M) for M heads of each.
    """

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.lead = tuple(weight.shape[:-2])
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    @classmethod
    def of(cls, layers: Sequence[nn.Linear], lead: tuple[int, ...]) -> StackedLinear:
        """Stack layers, in row-major order of `lead`."""
        weight = _side_by_side([layer.weight.detach().t() for layer in layers])
        bias = _side_by_side([layer.bias.detach() for layer in layers])
        stacked = cls(weight.reshape(*lead, *weight.shape[1:]), bias.reshape(*lead, 1, -1))
        _train_alike(stacked, layers[0])
        return stacked

    def forward(self, x: Tensor) -> Tensor:
        """Map (*lead, n, in), or samples shared over the last lead axis, to (*lead, n, out)."""
        own: dict[str, Any] = self._parameters  # as attributes they take as long as a small product
        weight, bias = own["weight"], own["bias"]
        if not torch.compiler.is_exporting():  # of any number of samples
            n_rows, is_shared = x.shape[-2], x.shape[:-2] != self.lead
            if n_rows > weight.shape[-1] or (n_rows == 1 and is_shared):
                return self._forward_units_first(x)
            if not is_shared and len(self.lead) == 1:
                return torch.baddbmm(bias, x, weight)
        return x @ weight + bias

    def _forward_units_first(self, x: Tensor) -> Tensor:
        """The same as ``y.mT = weight.mT @ x.mT + bias.mT``, for many samples.

        BLAS multiplies a matrix of few rows several times as fast as one of few columns. Networks
        that share their samples are one wide network.
        """
        bias, x, weight = (part.flatten(0, -3).mT for part in (self.bias, x, self.weight))
        bias, weight = (part.reshape(len(x), -1, part.shape[-1]) for part in (bias, weight))
        return torch.baddbmm(bias, weight, x).view(*self.lead, -1, x.shape[-1]).mT


class SharedLinear(nn.Module):
    """Linear layer whose matrix all members share, with what each member has of its own.

    Member m maps h to ``((h * r[m]) @ weight) * s[m] + bias[m]``, Eq 1 of BatchEnsemble; in the
    mini form r and s are 1 and the bias, else (1, k, out), is shared. The weight is (1, in, out).
    """

    def __init__(self, weight: Tensor, bias: Tensor, r: Tensor | None, s: Tensor | None):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.r, self.s = (None if own is None else nn.Parameter(own) for own in (r, s))

    def forward(self, h: Tensor) -> Tensor:
        """Map samples (1, n, k, in), or shared ones (1, n, 1, in), to (1, n, k, out)."""
        if self.r is not None:
            h = h * self.r
        z = h @ self.weight.squeeze(0)
        return z + self.bias if self.s is None else torch.addcmul(self.bias, z, self.s)


def _side_by_side(tensors: list[Tensor]) -> Tensor:
    """Stack tensors of one shape."""
    first = tensors[0]  # without values torch.stack would import a compiler, for a second
    return first.new_empty(len(tensors), *first.shape) if first.is_meta else torch.stack(tensors)


class StackedActivation(nn.Module):
    """Elementwise layers of a stack, of which members in a row may have others than the next."""

    def __init__(self, layers: Sequence[nn.Module]):
        super().__init__()
        runs = [list(run) for _, run in groupby(layers, type)]
        self.layers, self.sizes = nn.ModuleList(run[0] for run in runs), [*map(len, runs)]

    def forward(self, z: Tensor) -> Tensor:
        """Map (S, ...) to numbers of the same shape."""
        parts = z.split_with_sizes(self.sizes)
        return torch.cat([layer(part) for layer, part in zip(self.layers, parts, strict=True)])

    def of_member(self, m: int) -> nn.Module:
        return next(
            layer for layer, end in zip(self.layers, accumulate(self.sizes), strict=True) if m < end
        )


class StackedSequential(nn.Sequential):
    """A hand-made stack of Sequential networks of linear and elementwise layers."""

    def __init__(self, members: Sequence[nn.Sequential], lead: tuple[int, ...]):
        super().__init__(*(_stacked(layers, lead) for layers in zip(*members, strict=True)))
        self.lead = lead

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers, which have no hooks, without what a call of a module costs."""
        for layer in self._modules.values():
            x = layer.forward(x)
        return x

    @staticmethod
    def supports(member: nn.Module) -> bool:
        """Tell whether `member` is made of linear layers with bias and elementwise ones only."""
        if not (is_plain_sequential(member) and all(map(_is_supported, member))):
            return False
        # Layers may share a parameter, or be the same one.
        n_used = sum(len(list(layer.parameters())) for layer in member)
        return n_used == len(list(member.parameters()))


def _stacked(layers: Sequence[Any], lead: tuple[int, ...]) -> nn.Module:
    """Stack one layer of each member, supported ones."""
    if isinstance(layers[0], ResidualLayer):
        linear = StackedLinear.of([layer.linear for layer in layers], lead)
        return ResidualLayer(linear, layers[0].activation)
    if isinstance(layers[0], nn.Linear):
        return StackedLinear.of(layers, lead)
    return layers[0] if len({*map(type, layers)}) == 1 else StackedActivation(layers)


def _is_supported(layer: nn.Module) -> bool:
    """Whether :func:`_stacked` takes the layer, which has no hooks."""
    if _is_hooked(layer):
        return False
    if type(layer) is ResidualLayer:
        return _is_supported(layer.linear) and _is_supported(layer.activation)
    is_linear = type(layer) is nn.Linear and layer.bias is not None
    return is_linear or type(layer) in ELEMENTWISE


def is_plain_sequential(network: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether a network only applies its layers, one after the other."""
    is_plain = isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward
    return is_plain and not _is_hooked(network)


def _is_hooked(module: nn.Module) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks)


class _TemplatePool:
    """Copies of a network, one for each ``functional_call``, which swaps the weights inside."""

    def __init__(self, network: nn.Module):
        self.network = network
        self._idle: list[nn.Module] = []

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[nn.Module]:
        """Lend a copy that shares the network's weights. After an error it is not used again."""
        try:
            copied = self._idle.pop()
        except IndexError:
            copied = _copy_sharing_weights(self.network)
        yield copied
        self._idle.append(copied)

    def __reduce__(self):
        return _TemplatePool, (self.network,)


def _copy_sharing_weights(network: nn.Module) -> nn.Module:
    """Copy a network, but not its weights: mode and hooks are the copy's own."""
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, shared)


class StackedModule(nn.Module):
    """A stack of any module, by ``torch.vmap``, or by a loop over members.

    The loop runs what vmap does not support (control flow that depends on data, say), with a
    warning, and large convolutions and recurrent layers, for which it is faster.
    """

    draws_globally = True  # layers such as dropout may

    def __init__(self, members: Sequence[nn.Module], lead: tuple[int, ...]):
        super().__init__()
        parameters, buffers = stack_module_state(list(members))
        self.lead = lead
        self._names = [(name.replace(".", "__"), name) for name in (*parameters, *buffers)]
        for safe, name in self._names:
            value = {**parameters, **buffers}[name]
            trains = value.requires_grad
            value = value.detach().reshape(*lead, *value.shape[1:])
            if name in parameters:
                self.register_parameter(safe, nn.Parameter(value, trains))
            else:
                self.register_buffer(safe, value)
        template = copy.deepcopy(members[0])
        self._template = _TemplatePool(template)
        self._vectorisable = _TemplatePool(written_out(template))
        self.row_shape: torch.Size | None = None  # of the first samples that it was called with
        self.loops_ = False
        self._vmaps: set[bool] = set()  # modes (training or not) in which vmap has worked

    def forward(self, x: Tensor) -> Tensor:
        """Map (*lead, n, ...), or samples shared where a lead axis is 1, to (*lead, n, ...)."""
        n_axes = len(self.lead)
        if self.row_shape is None:
            self.row_shape = x.shape[n_axes + 1 :]
        rows = x.expand(*self.lead, *x.shape[n_axes:]).flatten(0, n_axes - 1)
        state = {name: getattr(self, safe).flatten(0, n_axes - 1) for safe, name in self._names}
        if not self.loops_ and not _runs_one_by_one(self._template.network, rows):
            if self.training in self._vmaps:
                return self._vmapped(state, rows).unflatten(0, self.lead)
            before = [buffer.clone() for buffer in self.buffers()]
            try:
                outputs = self._vmapped(state, rows).unflatten(0, self.lead)
                self._vmaps.add(self.training)
                return outputs
            except (RuntimeError, NotImplementedError) as error:
                self.loops_ = True
                for buffer, value in zip(self.buffers(), before, strict=True):
                    buffer.copy_(value)  # undo updates by the failed attempt
                template = self._template.network
                warn(
                    f"{type(template).__name__} cannot be vectorised over members, so they run "
                    f"one by one, which is slower. {_advice_for_vmap(template)} torch reports: "
                    f"{str(error).strip().splitlines()[0]}"
                )
        values = {name: value.unbind() for name, value in state.items()}
        slices = ({name: value[m] for name, value in values.items()} for m in range(len(rows)))
        with self._template.borrowed() as template:
            pairs = zip(slices, rows.unbind(), strict=True)
            outputs = torch.stack([self._call(template, one, x) for one, x in pairs])
        return outputs.unflatten(0, self.lead)

    @cached_property
    def n_activations(self) -> int:
        """Size of the outputs of all layers, for one sample of the first call's shape."""
        row_shape: Any = self.row_shape
        return math.prod(self.lead) * sum(output_sizes(self._template.network, row_shape))

    def _call(self, template: nn.Module, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        outputs = functional_call(template.train(self.training), state, (rows,))
        if not isinstance(outputs, Tensor):
            raise ValueError(
                f"module must give a tensor; {type(template).__name__} gives a "
                f"{type(outputs).__name__}."
            )
        return outputs

    def _vmapped(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        with self._vectorisable.borrowed() as template:
            call = partial(self._call, template)
            return vmap(call, randomness="different")(state, rows)


def _runs_one_by_one(network: nn.Module, rows: Tensor) -> bool:
    """Whether a loop over members, on samples (S, n, ...), is faster than vmap, or can be exported.

    vmap makes one grouped convolution of the members', slow if they are large, and cannot use
    torch's fast kernels of recurrent layers (doc/design.rst).
    """
    if len(rows) == 1 or torch.compiler.is_exporting():
        return True
    if rows.device.type != "cpu":
        return False
    for part in network.modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            n_values = rows[0].numel() // part.in_channels * part.out_channels
            return n_values >= _LARGE_MAPS
        if isinstance(part, (nn.LSTM, nn.GRU)):
            has_fast_kernel = isinstance(part, nn.LSTM) and rows.dtype == torch.float32
            is_large = rows.shape[1] * part.hidden_size >= _LARGE_STATES
            return has_fast_kernel or is_large
    return False


def _advice_for_vmap(network: nn.Module) -> str:
    kinds = {type(part) for part in network.modules()}
    if any(issubclass(kind, nn.modules.batchnorm._NormBase) for kind in kinds):
        return (
            "Its running statistics are the reason: use LayerNorm, GroupNorm, or "
            "track_running_stats=False."
        )
    if any(issubclass(kind, nn.RNNBase) for kind in kinds):
        return "torch's recurrent layers are the reason: use skdistill.modules.Recurrent."
    return "Replace control flow that depends on the data by torch.where, and .item() by tensors."


def shares_weights(module: object) -> bool:
    """Tell whether a model class builds all members of an ensemble as one network."""
    return isinstance(module, type) and hasattr(module, "holds_all_members")


def stack(members: Sequence[nn.Module], lead: tuple[int, ...] | None = None) -> nn.Module:
    """Stack networks of the same architecture into one module.

    Parameters
    ----------
    members : list of nn.Module
        The networks, in row-major order of `lead`; their weights are copied.
    lead : tuple of int, default=None
        Leading axes whose product is the number of networks; None is ``(len(members),)``.

    Returns
    -------
    stacked : nn.Module
        Maps samples of shape ``(*lead, n, ...)`` to outputs of shape ``(*lead, n, ...)``.
    """
    lead = (len(members),) if lead is None else lead
    if StackedSequential.supports(members[0]):
        return StackedSequential(members, lead)  # type: ignore[arg-type]
    return StackedModule(members, lead)


def unstack(stacked: Any) -> list[nn.Module]:
    """Take a stack apart into its networks, the inverse of :func:`stack`; weights are copied."""
    if hasattr(stacked, "networks"):  # a TabM, whose members share weights
        return stacked.networks()
    members = range(math.prod(stacked.lead))
    if isinstance(stacked, StackedSequential):
        return [nn.Sequential(*(_unstacked(layer, m) for layer in stacked)) for m in members]
    n_axes, like = len(stacked.lead), next(stacked.parameters())
    copies = (copy.deepcopy(stacked._template.network) for _ in members)
    networks = [network.to_empty(device=like.device).to(like) for network in copies]
    with torch.no_grad():
        for safe, name in stacked._names:
            values = getattr(stacked, safe).flatten(0, n_axes - 1)
            for network, value in zip(networks, values, strict=True):
                parent, _, last = name.rpartition(".")
                getattr(network.get_submodule(parent), last).copy_(value)
    return [network.train(stacked.training) for network in networks]


def _unstacked(layer: nn.Module, m: int) -> nn.Module:
    if isinstance(layer, ResidualLayer):
        return ResidualLayer(_unstacked(layer.linear, m), layer.activation)
    if isinstance(layer, StackedActivation):
        return layer.of_member(m)
    if not isinstance(layer, StackedLinear):
        return layer
    weight, bias = layer.weight.detach().flatten(0, -3)[m], layer.bias.detach().flatten(0, -3)[m]
    linear = as_linear(weight, bias[0])
    _train_alike(linear, layer)
    return linear


def _train_alike(layer: Any, like: Any) -> None:
    """Let a layer's weights be trained if those of another are."""
    layer.weight.requires_grad_(like.weight.requires_grad)
    layer.bias.requires_grad_(like.bias.requires_grad)


def as_linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Layer of a weight, (in, out), and a bias, (out,), which are copied."""
    fan_in, fan_out = weight.shape
    linear = nn.Linear(fan_in, fan_out, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight.t().clone()), nn.Parameter(bias.clone())
    return linear


def member_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a stack, by name, that have the member axis first.

    These are all but the buffers that a module names in its attribute ``shared_buffers``.
    """
    shared = {
        f"{path}.{name}".removeprefix(".")
        for path, part in module.named_modules()
        for name in getattr(part, "shared_buffers", ())
    }
    return {name: value for name, value in module.state_dict().items() if name not in shared}


def weights_and_fan_ins(module: nn.Module) -> list[tuple[nn.Parameter, int]]:
    """Weights of the layers of a stack, each with the number of inputs of one of its units.

    Biases and other parameters of one dimension (normalisation layers) are left out.
    """
    found: list[tuple[nn.Parameter, int]] = []
    for part in module.modules():
        if isinstance(part, (StackedLinear, SharedLinear)):
            found.append((part.weight, part.weight.shape[-2]))
        elif isinstance(part, StackedModule):
            shapes = ((p, p.shape[len(part.lead) + 1 :]) for p in part.parameters())
            found += [(p, math.prod(shape)) for p, shape in shapes if shape]
    return found


def first_parameter(module: nn.Module) -> Any:
    """Return ``next(module.parameters())``, or None, in a tenth of the time."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for part in module._modules.values():
        if part is not None and (found := first_parameter(part)) is not None:
            return found
    return None


def output_sizes(network: nn.Module, row_shape: Sequence[int]) -> list[int]:
    """Size of the output of each layer of one network, for one sample."""
    sizes: list[int] = []

    def note(layer, args, outputs):
        sizes.append(outputs.numel() if isinstance(outputs, Tensor) else 1)

    network = _copy_sharing_weights(network).eval()
    for part in network.modules():
        if not any(True for _ in part.children()):
            part.register_forward_hook(note)
    like = next(network.parameters(), torch.zeros(()))
    with torch.no_grad():
        network(torch.zeros(1, *row_shape, dtype=like.dtype, device=like.device))
    return sizes
