# SPDX-License-Identifier: BSD-3-Clause
"""Networks, and stacks of networks that train and predict as one.

A *stack* is one module that holds S networks of the same architecture. Every parameter of it has
a leading member axis, so that slice ``m`` of every parameter is member ``m``, and one batched
product does the work of S small ones. Everything the engine trains is a stack; a single student
is a stack of one.

Stacks map rows of shape (S, n, ...), one set of rows for each member, or (1, n, ...), rows that the
members share, to outputs of shape (S, n, ...). Wherever a stack has two leading axes, members and
heads, the same holds for both.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from .distributions import EmpiricalGaussian

__all__ = ["MLP", "n_parameters", "stack"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
}

# Layers without parameters that act on each element: a stack applies them as they are.
_ELEMENTWISE = tuple(ACTIVATIONS.values())

# Modules that draw from torch's global generator are built, and trained, one at a time.
GLOBAL_GENERATOR_LOCK = threading.RLock()


class MLP(nn.Sequential):
    """Multi-layer perceptron.

    Parameters
    ----------
    in_features, out_features : int
        Width of the input and of the output.
    hidden_units : tuple of int, default=(50,)
        Width of each hidden layer; ``()`` is a linear model.
    activation : str or tuple of str, default="relu"
        Activation after each hidden layer: "relu", "tanh", "silu", "gelu" or "identity"; or one
        for each hidden layer, the last of them serving all further ones.
    generator : torch.Generator, default=None
        Source of the initial weights; None is torch's global generator.

    Notes
    -----
    Weights and biases start as torch's ``nn.Linear`` does: uniform on
    :math:`\\pm 1/\\sqrt{\\text{fan in}}`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_units: Any = (50,),
        activation: str | Sequence[str] = "relu",
        generator: torch.Generator | None = None,
    ):
        if not isinstance(hidden_units, Iterable):
            hidden_units = (hidden_units,)
        widths = (in_features, *hidden_units, out_features)
        if not all(isinstance(width, (int, np.integer)) and width >= 1 for width in widths):
            raise ValueError(f"hidden_units must be positive integers, got {hidden_units!r}.")
        names = (activation,) if isinstance(activation, str) else tuple(activation)
        if not names or not set(names) <= set(ACTIVATIONS):
            raise ValueError(
                f"activation must be one of {sorted(ACTIVATIONS)}, or a tuple of them; got "
                f"{activation!r}."
            )
        layers: list[nn.Module] = []
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            name = names[min(k, len(names) - 1)]
            layers += [_linear(fan_in, fan_out, generator), ACTIVATIONS[name]()]
        super().__init__(*layers[:-1])


def _linear(fan_in: int, fan_out: int, generator: torch.Generator | None) -> nn.Linear:
    """``nn.Linear`` with its usual initial distribution, drawn from `generator`."""
    layer = nn.Linear(fan_in, fan_out, bias=False, device="meta")  # draws nothing, as skip_init
    layer.weight = nn.Parameter(torch.empty(fan_out, fan_in))
    layer.bias = nn.Parameter(torch.empty(fan_out))
    bound = 1.0 / math.sqrt(fan_in)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def build_member(module: Callable[..., nn.Module], seed: int, **kwargs) -> nn.Module:
    """Build one network with weights drawn from `seed`.

    `module` is called with those of ``in_features``, ``out_features`` and ``generator`` that its
    signature takes, and with whatever the user gave. Torch's global generator stays as it was.
    """
    (member,) = build_members(module, [seed], **kwargs)
    return member


def build_members(
    module: Callable[..., nn.Module], seeds: Sequence[int], **kwargs
) -> list[nn.Module]:
    """Build a network for each seed, as :func:`build_member` does; equal seeds share one."""
    accepted = inspect.signature(module).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for width in ("in_features", "out_features"):
        if not takes_any and width not in accepted:
            kwargs.pop(width, None)

    def build(seed: int) -> nn.Module:
        if "generator" in accepted:
            return module(generator=torch.Generator().manual_seed(seed), **kwargs)
        with GLOBAL_GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
            return module(**kwargs)

    built = {seed: build(seed) for seed in dict.fromkeys(seeds)}
    return [built[seed] for seed in seeds]


class StackedLinear(nn.Module):
    """Linear layers with leading axes: ``y = x @ weight + bias`` for each of them.

    Parameters
    ----------
    layers : list of nn.Linear
        The layers to stack, in row-major order of `lead`.
    lead : tuple of int
        Leading axes, (S,) for S members or (S, M) for M heads of each.
    """

    def __init__(self, layers: Sequence[nn.Linear], lead: tuple[int, ...]):
        super().__init__()
        weight = torch.stack([layer.weight.detach().t() for layer in layers])
        bias = torch.stack([layer.bias.detach() for layer in layers])
        self.lead = lead
        trains = layers[0].weight.requires_grad, layers[0].bias.requires_grad
        self.weight = nn.Parameter(weight.reshape(*lead, *weight.shape[1:]), trains[0])
        self.bias = nn.Parameter(bias.reshape(*lead, 1, -1), trains[1])
        # Shapes (*lead, in, out) and (*lead, 1, out).

    def forward(self, x: Tensor) -> Tensor:
        """Map (*lead, n, in), or rows shared over the last lead axis, to (*lead, n, out)."""
        if x.shape[-3] == 1 and self.lead[-1] > 1:
            return self._forward_shared(x)
        if len(self.lead) == 1:
            return torch.baddbmm(self.bias, x, self.weight)
        flat = torch.baddbmm(self.bias.flatten(0, -3), x.flatten(0, -3), self.weight.flatten(0, -3))
        return flat.unflatten(0, self.lead)

    def _forward_shared(self, x: Tensor) -> Tensor:
        """One wide product instead of many narrow ones, since all branches read the same rows."""
        fan_in, fan_out = self.weight.shape[-2:]
        wide = self.weight.movedim(-3, -2).reshape(*self.lead[:-1], fan_in, -1)
        y = x.squeeze(-3) @ wide  # (*lead[:-1], n, lead[-1] * out)
        return y.unflatten(-1, (self.lead[-1], fan_out)).movedim(-2, -3) + self.bias

    def extra_repr(self) -> str:
        return f"lead={self.lead}, in={self.weight.shape[-2]}, out={self.weight.shape[-1]}"


class StackedSequential(nn.Sequential):
    """A hand-made stack of Sequential networks of linear and elementwise layers."""

    def __init__(self, members: Sequence[nn.Sequential], lead: tuple[int, ...]):
        super().__init__(
            *(
                StackedLinear(layers, lead) if isinstance(layers[0], nn.Linear) else layers[0]
                for layers in zip(*members, strict=True)
            )
        )
        self.lead = lead

    @staticmethod
    def supports(member: nn.Module) -> bool:
        """Tell whether `member` is made of linear layers with bias and elementwise ones only."""
        return (
            _is_plain_sequential(member)
            and not _ties_weights(member)
            and all(
                type(layer) in _ELEMENTWISE or (type(layer) is nn.Linear and layer.bias is not None)
                for layer in member
            )
            and not any(_is_hooked(layer) for layer in member)
        )


def _is_plain_sequential(network: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether a network does what its layers do, one after the other, and nothing else."""
    is_plain = isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward
    return is_plain and not _is_hooked(network)


def _is_hooked(module: nn.Module) -> bool:
    """Whether more than its forward runs when a module is called."""
    return bool(module._forward_pre_hooks or module._forward_hooks)


def _ties_weights(network: nn.Sequential) -> bool:
    """Whether layers share a parameter, or are the same layer."""
    used = sum(len(list(layer.parameters())) for layer in network)
    return used > len(list(network.parameters()))


class StackedModule(nn.Module):
    """A stack of any module, by ``torch.vmap``; by a loop over members where vmap cannot go.

    What vmap cannot take (control flow that depends on data, say) is run by the loop from the first
    call on, with a warning that says why.
    """

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
        # One member lends its code to all; kept in a list so that it is no submodule.
        self._template = [copy.deepcopy(members[0])]
        self.loops_ = False

    def forward(self, x: Tensor) -> Tensor:
        """Map (*lead, n, ...), or rows shared where a lead axis is 1, to (*lead, n, ...)."""
        n_axes = len(self.lead)
        rows = x.expand(*self.lead, *x.shape[n_axes:]).flatten(0, n_axes - 1)
        state = {name: getattr(self, safe).flatten(0, n_axes - 1) for safe, name in self._names}
        if not self.loops_:
            before = [buffer.clone() for buffer in self.buffers()]
            try:
                return self._vmapped(state, rows).unflatten(0, self.lead)
            except (RuntimeError, NotImplementedError) as error:
                self.loops_ = True
                for buffer, value in zip(self.buffers(), before, strict=True):
                    buffer.copy_(value)  # undo what the failed attempt has already counted
                warnings.warn(
                    f"{type(self._template[0]).__name__} cannot be vectorised over members, so "
                    "they run one by one, which is slower. torch says: "
                    f"{str(error).strip().splitlines()[0]}",
                    UserWarning,
                    stacklevel=2,
                )
        return self._looped(state, rows).unflatten(0, self.lead)

    def _call(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        template = self._template[0].train(self.training)
        outputs = functional_call(template, state, (rows,))
        if not isinstance(outputs, Tensor):
            raise ValueError(
                f"module must give a tensor; {type(template).__name__} gives a "
                f"{type(outputs).__name__}."
            )
        return outputs

    def _vmapped(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        return vmap(self._call, randomness="different")(state, rows)

    def _looped(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        slices = ({name: value[m] for name, value in state.items()} for m in range(len(rows)))
        return torch.stack([self._call(one, x) for one, x in zip(slices, rows, strict=True)])


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
        Maps rows of shape ``(*lead, n, ...)`` to outputs of shape ``(*lead, n, ...)``.
    """
    lead = (len(members),) if lead is None else lead
    if StackedSequential.supports(members[0]):
        return StackedSequential(members, lead)  # type: ignore[arg-type]
    return StackedModule(members, lead)


def split_head(network: nn.Module, head_layers: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Cut a Sequential network before its last `head_layers` layers that have parameters.

    Raises
    ------
    ValueError
        If the network is no ``nn.Sequential``, has fewer such layers, or if a layer of the head
        shares weights with one before it.
    """
    if not _is_plain_sequential(network):
        raise ValueError(
            "module must build an nn.Sequential without a forward of its own, so that its last "
            f"head_layers layers can be taken as a head; got {type(network).__name__}."
        )
    layers = list(network)
    weighty = [i for i, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    if not 1 <= head_layers <= len(weighty):
        raise ValueError(
            f"head_layers must be between 1 and {len(weighty)}, the number of layers with "
            f"parameters that module has; got {head_layers}."
        )
    cut = weighty[-head_layers]
    core, head = nn.Sequential(*layers[:cut]), nn.Sequential(*layers[cut:])
    if set(core.parameters()) & set(head.parameters()):
        raise ValueError(
            f"module must not share weights between its last head_layers={head_layers} layers, "
            "the head, and those before it."
        )
    return core, head


class MultiHead(nn.Module):
    """Stack of S networks, each with a shared core and M heads (Hydra's student, Fig 2).

    Parameters
    ----------
    core : nn.Module
        Stack with lead (S,).
    heads : nn.Module
        Stack with lead (S, M).
    """

    def __init__(self, core: nn.Module, heads: nn.Module):
        super().__init__()
        self.core = core
        self.heads = heads
        self.lead = heads.lead

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (S, n, ...) to the heads' outputs (S, M, n, out)."""
        return self.heads(self.core(x).unsqueeze(1))

    def head_weights(self) -> list[Tensor]:
        """Weights of the heads' layers, each of shape (S, M, n_units, fan_in).

        Biases and other one-dimensional parameters (normalisation layers) are left out, and a
        convolution's filter is flattened, as Hydra+'s diversity term (Eq 9) asks.
        """
        if isinstance(self.heads, StackedSequential):
            linear = (layer for layer in self.heads if isinstance(layer, StackedLinear))
            return [layer.weight.transpose(-1, -2) for layer in linear]
        return [p.flatten(3) for p in self.heads.parameters() if p.ndim >= 4]


class GaussianStack(nn.Module):
    """A stack of networks for regression, with the scale of the targets in its buffers.

    Parameters
    ----------
    network : nn.Module
        Stack whose outputs (S, ..., n, 2 * t) hold a mean and a raw variance for each of t
        standardised targets.
    y_loc, y_scale : Tensor of shape (t,)
        Location and scale of the targets in their own units.
    """

    y_loc: Tensor
    y_scale: Tensor

    def __init__(self, network: nn.Module, y_loc: Tensor, y_scale: Tensor):
        super().__init__()
        self.network = network
        self.register_buffer("y_loc", y_loc)
        self.register_buffer("y_scale", y_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the raw outputs, on the standardised scale on which losses are computed."""
        return self.network(x)

    def distribution(self, x: Tensor) -> EmpiricalGaussian:
        """Return the members' Gaussians for rows (n, ...), in the units of the targets."""
        outputs = self.network(x.unsqueeze(0))
        members = outputs.flatten(0, -3)  # (S, n, 2t), or (S * M, n, 2t) for heads
        return EmpiricalGaussian.from_outputs(members).affine(self.y_loc, self.y_scale)


def weights_and_fan_ins(module: nn.Module) -> list[tuple[nn.Parameter, int]]:
    """Weights of the layers of a stack, each with the number of inputs of one of its units.

    Biases and other parameters of one dimension (normalisation layers) are left out.
    """
    found: list[tuple[nn.Parameter, int]] = []
    for part in module.modules():
        if isinstance(part, StackedLinear):
            found.append((part.weight, part.weight.shape[-2]))
        elif isinstance(part, StackedModule):
            shapes = ((p, p.shape[len(part.lead) + 1 :]) for p in part.parameters())
            found += [(p, math.prod(shape)) for p, shape in shapes if shape]
    return found


def n_parameters(module: nn.Module) -> int:
    """Count the parameters of a module.

    Parameters
    ----------
    module : nn.Module

    Returns
    -------
    n_parameters : int
    """
    return sum(p.numel() for p in module.parameters())
