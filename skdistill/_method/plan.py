# SPDX-License-Identifier: BSD-3-Clause
"""Plans, which describe a method as a value, and recipes for its networks."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from .._data.encoding import InputEncoding
from .._utils.messages import name_of
from .._utils.process import DISPATCH_MODE_LOCK
from .._utils.validation import part_of
from ..losses import by_autograd, differentiable
from ..modules import (
    MLP,
    ConvNet,
    DistributionStack,
    Recurrent,
    RecurrentSequenceModel,
    ResNet,
    TabM,
    build_members,
    parts_of,
    shares_weights,
    stack,
)
from ..pruning import narrow
from .random_functions import RandomFunctions
from .task import Buffers, Task

LARGE_LOSS = 300.0  # nats per class or target, beyond which it is a logarithm; see doc/design.rst

_OURS = (MLP, ConvNet, ResNet, Recurrent, RecurrentSequenceModel, TabM)


@dataclass(frozen=True)
class NetworkRecipe:
    """How to build a network, independent of later changes of the estimator's parameters."""

    module: Callable[..., nn.Module]  # a model class, or a function that builds a network
    settings: dict[str, Any]  # its arguments
    row_shape: tuple[int, ...]  # of a row of X
    widths: Any = None  # units that pruning has left, see :func:`skdistill.pruning.narrow`
    inputs: InputEncoding | None = None  # what is done to samples before networks take them
    functions: RandomFunctions | None = None  # by which members differ away from the samples

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of what networks take for a sample."""
        return self.row_shape if self.inputs is None else (self.inputs.n_inputs,)

    @property
    def is_builtin(self) -> bool:
        """Whether the networks are of :mod:`skdistill.modules`, whose weights are all they hold."""
        return self.module in _OURS

    def with_outputs(self, n_outputs: int) -> NetworkRecipe:
        """Return the recipe for networks with so many outputs."""
        return replace(self, settings={**self.settings, "out_features": n_outputs})

    def build(self, seeds: Sequence[int]) -> list[nn.Module]:
        """Build a network for each seed."""
        networks = build_members(self.module, seeds, **self.settings)
        if self.widths is None:
            return networks
        return [narrow(network, self.widths) for network in networks]


@dataclass(frozen=True)
class NetworkSettings:
    """A class of networks, one of several perhaps, and its arguments as parameters give them."""

    module: Any
    settings: dict[str, Any]

    @classmethod
    def of(
        cls, params: dict[str, Any], defaults: dict[str, Any], module: Any = None
    ) -> NetworkSettings:
        """Read an estimator's parameters; `defaults` are those of an MLP."""
        module = params["module"] if module is None else module
        return cls(module, {**(defaults if module is MLP else {}), **part_of(params, "module")})

    def recipe(
        self, plan: Plan, row_shape: tuple[int, ...], inputs: InputEncoding | None
    ) -> NetworkRecipe:
        """Return how to build the networks of a plan for samples of a shape, encoded."""
        shape = row_shape if inputs is None else (inputs.n_inputs,)
        settings: dict[str, Any] = {
            "in_features": shape[0] if len(shape) == 1 else shape,
            "out_features": plan.n_outputs,
        }
        for name, value in self.settings.items():
            try:
                settings[name] = copy.deepcopy(value)
            except TypeError as error:
                raise TypeError(
                    f"module__{name} must be something that can be copied, got {value!r}: {error}."
                ) from error
        if shares_weights(self.module):
            if plan.n_sharing is None:
                raise ValueError(
                    f"module must build one network, got {self.module.__name__}, an ensemble in "
                    "one: BayesianEnsembleRegressor and BayesianEnsembleClassifier take it."
                )
            settings["n_members"] = plan.n_sharing
        return NetworkRecipe(self.module, settings, row_shape, inputs=inputs)


class Objective(nn.Module):
    """The objective of a stack: a loss for each sample, and perhaps a penalty on the weights.

    Subclasses define `loss_and_gradient` or `forward`, from which the other is derived. A sample's
    loss must not depend on the outputs of other samples.
    """

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of every member and sample, of shape (S, n), for autograd."""
        if not torch.is_grad_enabled():
            return self.loss_and_gradient(outputs, targets)[0]
        return differentiable(self.loss_and_gradient, outputs, targets)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, (S, n), and the gradient of their sum, of the shape of `outputs`."""
        return by_autograd(self, outputs, targets)

    def penalty(self, module: nn.Module) -> Tensor | None:
        """Return what is added to each member's loss, of shape (S,), or None."""
        return None

    first_epoch = 0  # number of the epoch that training begins with

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for epoch number `epoch`, counted from 0."""


class TrainingBudget(NamedTuple):
    """Amount of training, as far as an objective depends on it."""

    n_epochs: int = 1
    n_rows: float = 1.0  # sum of the samples' weights
    refinement: float = 1.0  # the low-noise factor, by its name in files


class Plan(Protocol):
    """The parts of a method: network, start, objective, and distribution that is predicted.

    Subclasses are frozen dataclasses and define the objective; the defaults are those of a network
    that predicts the task directly.
    """

    task: Task
    n_sharing: int | None = None  # members of one network; None where members cannot share one
    read: Callable[[Tensor], Any] | None = None  # takes outputs (S, n, p) to a distribution
    calibration: Callable[[Any], Any] | None = None  # takes this to the one that is predicted
    ddof: int = 0  # S - ddof divides the squares in the variance of S members
    replays: bool = True  # whether a student learns from members that are fitted before
    n_heads: int = 1  # of a network
    n_networks: int = 1  # seeds that `build` takes
    tells_parts: bool = True  # whether aleatoric and epistemic uncertainty can be told apart
    takes_functions: bool = False  # whether random functions of the teacher can displace outputs
    has_members: bool = True  # whether members, or draws for them, can be predicted
    has_start: bool = False  # whether `start` initialises the module

    @property
    def n_outputs(self) -> int:
        """Number of outputs for a sample."""
        return self.task.n_outputs

    @property
    def meaning_of_outputs(self) -> str:
        """Description of the outputs, for messages."""
        return self.task.meaning_of_outputs

    def build(self, recipe: Any, seeds: Sequence[int]) -> Any:
        """Build the stack, with a network (or head) for each seed."""
        return stack(recipe.build(seeds))

    def wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> DistributionStack:
        """Return a stack that predicts distributions."""
        stack = self.task.wrap(network, buffers, self.read)
        stack.calibration, stack.read_mean = self.calibration, self.read_mean
        return stack

    def read_mean(self, outputs: Tensor) -> Tensor:
        """Return what numbers are expected to be, (n, t): the first of the outputs (S, n, p)."""
        return outputs.narrow(-1, 0, self.task.size).mean(dim=0)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        """Return members' predictions as the objective takes them, spread by `ddof`."""
        n_members, spread = members.shape[1], 1.0
        if 0 < self.ddof < n_members:
            spread = math.sqrt(n_members / (n_members - self.ddof))
        return self.task.encode_members(members, scaling, dtype, spread)

    def auxiliary_outputs(self, outputs: Tensor, module: DistributionStack) -> dict[str, Tensor]:
        """Return by name what is predicted beside the distribution of outputs (S, n, p)."""
        return {}

    def complete(self, module: DistributionStack) -> None:
        """Prepare a module for prediction once it has its weights."""
        return None

    def start(self, module: DistributionStack, predictions: Tensor, weight: Tensor) -> None:
        """Initialise a module by encoded predictions of members, (n, S, ...), if `has_start`."""
        return None

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        """Return the objective of a module, as it is when training begins."""
        ...


def build_module(
    plan: Plan, recipe: NetworkRecipe, seeds: Sequence[int], dtype: torch.dtype, buffers=None
) -> DistributionStack:
    """Build the stack that predicts distributions; raise a ValueError for other outputs."""
    module = _built(plan, recipe, seeds, dtype, buffers or {})
    with torch.no_grad():
        outputs = module(torch.zeros(1, 3, *recipe.input_shape, dtype=dtype))
    n_axes = len(parts_of(module)[0].lead)
    shape, expected = tuple(outputs.shape[n_axes:]), (3, plan.n_outputs)
    if shape != expected:
        raise ValueError(
            f"module must give a tensor of shape (n, {expected[1]}), {plan.meaning_of_outputs}; "
            f"{name_of(recipe.module)} gives {shape} for 3 samples."
        )
    return module


def _built(
    plan: Plan, recipe: Any, seeds: Sequence[int], dtype: torch.dtype, buffers: dict[str, Tensor]
) -> Any:
    module = plan.wrap(plan.build(recipe, seeds).to(dtype=dtype), buffers)
    module.inputs = None if recipe.inputs is None else recipe.inputs.module(dtype)
    if recipe.functions is not None:
        module.functions = recipe.functions.module()
    return module.eval()


def as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return copies of arrays as tensors."""
    return {name: torch.tensor(value) for name, value in arrays.items()}


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    """Return parameters and buffers of a module as numpy arrays."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def rebuild_module(plan: Plan, recipe: Any, weights: dict[str, np.ndarray]) -> DistributionStack:
    """Build a fitted module anew, with these parameters and buffers."""
    tensors = as_tensors(weights)
    buffers = {name: value for name, value in tensors.items() if "." not in name}
    # The location and scale of the targets may be kept more precisely than the network.
    dtypes = {value.dtype for value in tensors.values() if value.is_floating_point()}
    dtype = min(dtypes, key=lambda dtype: dtype.itemsize)
    with contextlib.ExitStack() as around:
        if recipe.is_builtin:  # modules whose weights have shapes, but take no memory
            around.enter_context(DISPATCH_MODE_LOCK.held())
            around.enter_context(torch.device("meta"))
        module = _built(plan, recipe, [0] * plan.n_networks, dtype, buffers)
    module.load_state_dict(tensors, assign=True)
    plan.complete(module)
    return module.eval()
