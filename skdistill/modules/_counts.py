# SPDX-License-Identifier: BSD-3-Clause
"""What networks cost: parameters, operations and activations."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .._utils.process import DISPATCH_MODE_LOCK
from ._stacks import StackedLinear, StackedModule, output_sizes


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
