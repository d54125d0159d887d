# SPDX-License-Identifier: BSD-3-Clause
"""Modules that estimators train: stacks with heads, or that give distributions; what they cost."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .._utils.process import DISPATCH_MODE_LOCK
from ..distributions import EmpiricalCategorical, EmpiricalGaussian
from ._function_draws import UnknownDraws
from ._inputs import InputEncoder
from ._stacks import (
    StackedLinear,
    StackedModule,
    StackedSequential,
    is_plain_sequential,
    output_sizes,
)


def split_head(network: nn.Module, head_layers: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Cut a Sequential network before its last `head_layers` layers that have parameters."""
    if not is_plain_sequential(network):
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

    The core is a stack with lead (S,), the heads are one with lead (S, M).
    """

    def __init__(self, core: nn.Module, heads: nn.Module):
        super().__init__()
        self.core = core
        self.heads = heads
        self.lead = heads.lead

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (S, n, ...) to the heads' outputs (S, M, n, out)."""
        modules: dict[str, Any] = self._modules
        return modules["heads"](modules["core"](x).unsqueeze(1))

    def head_weights(self) -> list[Tensor]:
        """Weights of the heads' layers, (S, M, n_units, fan_in), as in Hydra+'s Eq 9."""
        if isinstance(self.heads, StackedSequential):
            linear = (part for part in self.heads.modules() if isinstance(part, StackedLinear))
            return [layer.weight.transpose(-1, -2) for layer in linear]
        return [p.flatten(3) for p in self.heads.parameters() if p.ndim >= 4]


class DistributionStack(nn.Module):
    """A stack of networks whose outputs, (S, ..., n, p), are read as a distribution.

    `read` turns the outputs of all networks, or heads, (S, n, p), into a distribution, and
    `calibration` this into another. `inputs` encodes samples for the networks. `functions` are
    added where samples are unlike those of training, or columns are unknown.
    """

    calibration: Callable[[Any], Any] | None = None
    inputs: InputEncoder | None
    functions: UnknownDraws | None

    def __init__(self, network: nn.Module, read: Callable[[Tensor], Any]):
        super().__init__()
        self.network = network
        self.read = read
        self.register_module("inputs", None)
        self.register_module("functions", None)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the raw outputs, on the scale on which losses are computed, of encoded samples."""
        return self.network(inputs)

    def encode(self, x: Tensor) -> Tensor:
        """Return samples (..., n_features) as the networks take them."""
        if self.inputs is not None:
            return self.inputs(x)
        is_table = x.ndim == 2 and x.is_floating_point()
        # Columns that are taken as they are have a mean of 0, which is put where one is missing.
        return x.masked_fill(x.isnan(), 0.0) if is_table else x

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of all networks, or heads, (S, n, p), for samples (n, ...)."""
        return self.network(self.encode(x).unsqueeze(0)).flatten(0, -3)

    def of_outputs(self, outputs: Tensor, x: Tensor) -> Any:
        """Return the distribution for samples (n, ...), whose outputs are (S, n, p)."""
        if self.functions is None or self.functions.vanish(x):
            return self.predicted(outputs)
        return self.of_parts(*self.parts(outputs, x))

    def parts(self, outputs: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """Return what a distribution is made of, samples last but one: outputs, and functions."""
        return (outputs,) if self.functions is None else (outputs, self.functions(x))

    def of_parts(self, outputs: Tensor, *functions: Tensor) -> Any:
        found = self.predicted(outputs)
        return found.displaced(*functions) if functions else found

    def members(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Return what members predict, samples first, each with a function of its own."""
        members: Tensor = self.of_outputs(outputs, x).members
        return members

    def predicted(self, outputs: Tensor) -> Any:
        """Return what outputs of networks, (S, n, p), predict without functions, in units of y."""
        found = self.read(outputs)
        return found if self.calibration is None else self.calibration(found)

    def distribution(self, x: Tensor) -> Any:
        """Return the distribution for samples (n, ...)."""
        return self.of_outputs(self.outputs(x), x)


class GaussianStack(DistributionStack):
    """A stack of networks for regression, with location and scale of the targets, (t,), as buffers.

    These give the distribution its units and dtype. `read_mean` takes the mean from the outputs.
    """

    read_mean: Callable[[Tensor], Tensor]
    shared_buffers = ("y_loc", "y_scale")  # have no member axis
    y_loc: Tensor
    y_scale: Tensor

    def __init__(
        self,
        network: nn.Module,
        y_loc: Tensor,
        y_scale: Tensor,
        read: Callable[[Tensor], Any] = EmpiricalGaussian.from_outputs,
    ):
        super().__init__(network, read)
        self.register_buffer("y_loc", y_loc)
        self.register_buffer("y_scale", y_scale)

    def mean(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Return the mean of the distribution, (n, t), for samples with outputs (S, n, p)."""
        return torch.addcmul(self.y_loc, self.y_scale, self.read_mean(outputs.to(self.y_loc.dtype)))

    def parts(self, outputs: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return (outputs,) if self.functions is None else (outputs, self.functions.variance(x))

    def of_parts(self, outputs: Tensor, *functions: Tensor) -> Any:
        found = self.predicted(outputs)
        return found.with_mean_variance(*functions) if functions else found

    def members(self, outputs: Tensor, x: Tensor) -> Tensor:
        found = self.predicted(outputs)
        return (found if self.functions is None else found.displaced(self.functions(x))).members

    def predicted(self, outputs: Tensor) -> Any:
        outputs = outputs.to(self.y_loc.dtype)
        return super().predicted(outputs).affine(self.y_loc, self.y_scale)


class CategoricalStack(DistributionStack):
    """A stack of networks for classification; by default its outputs are logits.

    The distribution has the given dtype; None is that of the network.
    """

    def __init__(
        self,
        network: nn.Module,
        read: Callable[[Tensor], Any] = EmpiricalCategorical.from_logits,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(network, read)
        self.dtype = dtype

    def predicted(self, outputs: Tensor) -> Any:
        return super().predicted(outputs.to(self.dtype))  # as it is for None


# --- what they cost: parameters, operations and activations


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


def flop_per_row(module: nn.Module, row_shape: Sequence[int]) -> float:
    """Estimate the operations of :func:`count_flop`, where possible without a forward pass."""
    if not any(isinstance(part, StackedModule) for part in module.modules()):
        return 2.0 * n_parameters(module)  # each weight is multiplied and added once
    return count_flop(module, row_shape)


def parts_of(module: nn.Module) -> tuple[Any, Any, Any]:
    """Return networks, inputs and functions of a DistributionStack; a stack has networks alone."""
    if hasattr(module, "functions"):
        return module.network, module.inputs, module.functions
    return module, None, None


def _input_shape(module: nn.Module, row_shape: Sequence[int]) -> Sequence[int]:
    """Shape of what the networks of a module take for a row of X."""
    _, inputs, _ = parts_of(module)
    return row_shape if inputs is None else (inputs.n_inputs,)


def count_flop(module: nn.Module, row_shape: Sequence[int]) -> int:
    """Count the operations of a stack's forward pass for one sample of each member.

    They are those of matrix products, and what a network tells by ``elementwise_flop``.
    """
    # In float64, since torch's kernel for LSTMs in float32 is counted as nothing; for prediction,
    # since batch normalisation takes no single sample in training.
    network, _, functions = parts_of(module)
    network = copy.deepcopy(network)
    network.double().eval()
    row = next(network.parameters()).new_zeros(1, 1, *_input_shape(module, row_shape))
    with DISPATCH_MODE_LOCK.held(), _FlopCounter() as counter, torch.no_grad():
        network(row)
    of_functions = 0 if functions is None else functions.flop
    return counter.flop + getattr(network, "elementwise_flop", 0) + of_functions


class _FlopCounter(TorchDispatchMode):
    """Counts operations of matrix products; torch's ``FlopCounterMode`` hooks into all threads."""

    def __init__(self):
        super().__init__()
        self.flop = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        if func.overloadpacket in flop_registry:
            self.flop += flop_registry[func.overloadpacket](*args, **kwargs, out_val=outputs)
        return outputs


def widest_activation(network: nn.Module, row_shape: Sequence[int]) -> int:
    """Size of the largest output of a layer of one network, for one sample."""
    return max(output_sizes(network, row_shape), default=1)


def activations_per_row(module: nn.Module, row_shape: Sequence[int]) -> int:
    """Size of the outputs of all layers of a stack, for one sample."""
    linear = (part for part in module.modules() if isinstance(part, StackedLinear))
    total = sum(layer.bias.numel() for layer in linear)
    total += sum(getattr(part, "extra_activations", 0) for part in module.modules())
    stacks = [part for part in module.modules() if isinstance(part, StackedModule)]
    if any(part.row_shape is None for part in stacks):
        with torch.no_grad():
            module(next(module.parameters()).new_zeros(1, 1, *_input_shape(module, row_shape)))
    return total + sum(part.n_activations for part in stacks)
