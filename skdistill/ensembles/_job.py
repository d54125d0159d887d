# SPDX-License-Identifier: BSD-3-Clause
"""What a fit of an ensemble trains: its data, its plan, how much of it, in how large blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .._data.encoding import MANY_ROWS, InputEncoding, InputSettings
from .._method.objective import Objective
from .._method.plan import NetworkRecipe, Plan, TrainingBudget
from .._method.task import Buffers, RegressionTask, Task
from .._training.stream import Stream
from .._training.trainer import Training, batch_size_for, n_epochs_for
from ..losses import cross_entropy, gaussian_nll
from ..modules import shares_weights, stack, widest_activation, with_dropout
from ..samplers import SGHMC, SGLD
from ._out_of_bag import Parts
from ._spec import EnsembleSpec

# How these were chosen: see doc/design.rst.
_BLOCK_ACTIVATIONS = 2**19  # activations in the widest layer of a block of members, on a CPU
_FIT_ACTIVATIONS = 2**27  # activations of a fit, from which on blocks are trained side by side
_LEAST_BLOCK = 10  # members
_SMOOTH = "silu"  # activation of smooth networks
_EPOCHS = {"regressor": 100, "classifier": 50}  # of max_epochs="auto"
_ROWS_SEEN_AT_MOST = 3_000_000  # samples that a member is shown on large tables
_ROWS_SEEN_IN_BINS, _ROWS_OF_HALF = 80_000, 10_000  # samples shown; samples up to half the epochs
_LEAST_ROWS_SEEN, _MOST_EPOCHS = 40_000, 300  # samples shown on small tables; epochs at most
_RATE, _RATE_OF_LARGE, _EPOCHS_OF_RATES = 0.01, 0.003, (50, 85)  # lr="auto"; epochs between them
_MORE_EPOCHS_OF_SHARED = 2  # times the epochs, where members share weights
_SHARED_BATCH_SIZE = 128  # samples of each member, there


class Data(NamedTuple):
    """Samples, their targets and their weights, which may be None."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def total_weight(self) -> float:
        return len(self.X) if self.weight is None else float(self.weight.sum())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self.X.dtype

    def scaling(self, task: Task, normalize_y: bool) -> Buffers:
        return task.scaling(self.y, self.weight, self.dtype, normalize_y)

    def inputs(self, settings: InputSettings, embedded_from: int) -> InputEncoding | None:
        return settings.encoding(self.X, self.y, self.weight, embedded_from)

    def at(self, rows: np.ndarray) -> Data:
        weight = None if self.weight is None else self.weight[rows]
        return Data(self.X[rows], self.y[rows], weight)


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task."""

    task: Task
    n_networks: int = 1
    beta: float = 0.0  # exponent of the variance in the beta-NLL of numbers
    dropout_rate: float | None = None  # where members are draws of dropout
    n_sharing: int = 1  # members of one network, which share its weights
    are_smooth: tuple[bool, ...] = ()  # of networks of two kinds, see `_smooth`
    calibration: Any = None  # of the fitted ensemble

    @property
    def tells_parts(self) -> bool:
        return self.n_networks * self.n_sharing > 1

    def members_of(self, networks: Sequence[int]) -> list[int]:
        """Numbers of the members of networks of these numbers."""
        k = self.n_sharing
        return [k * network + member for network in networks for member in range(k)]

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        members = recipe.build(seeds)
        if any(self.are_smooth):
            kinds = zip(self.are_smooth, members, _smooth(recipe, seeds), strict=True)
            members = [other if is_smooth else member for is_smooth, member, other in kinds]
        if shares_weights(recipe.module):
            (network,) = members
            return network  # a stack already
        if self.dropout_rate is not None:
            members = [
                with_dropout(member, self.dropout_rate, recipe.input_shape, seed)
                for member, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    def read_mean(self, outputs: Tensor) -> Tensor:
        if self.calibration is None or not self.calibration.are_smooth:
            return super().read_mean(outputs)
        means = outputs.narrow(-1, 0, self.task.size)
        return (self.calibration.weights.to(means)[:, None, None] * means).sum(0)

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        is_numeric = isinstance(self.task, RegressionTask)
        objective = GaussianObjective(self.beta) if is_numeric else CategoricalObjective()
        has_shared = len(module.network.lead) > 1
        return ValidatedTogether(objective, module.read) if has_shared else objective


class Job(NamedTuple):
    """An ensemble to train: what its parameters say, its plan and its data.

    `parts` says which samples each member leaves out, None that it has them all; the seed is that
    of the perturbations of members' data, None that there are none.
    """

    spec: EnsembleSpec
    n_epochs: int
    batch_size: int
    plan: EnsemblePlan
    recipe: NetworkRecipe
    scaling: Buffers
    parts: Parts | None
    perturbation_seed: int | None
    has_two_kinds: bool  # whether the second ten of every twenty networks are smooth
    train: Data | Stream
    valid: Data | None

    @property
    def training(self) -> Training:
        return self.spec.training

    def with_training(self, **changes: Any) -> Job:
        """Return the job with other settings of :class:`Training`."""
        return self._replace(spec=replace(self.spec, training=replace(self.training, **changes)))


def _smooth(recipe: NetworkRecipe, seeds: Sequence[int]) -> list[Any]:
    """Build networks with a smooth activation, whose weights of bins are zero, and remain so.

    The other weights begin as they would if there were no bins.
    """
    settings = {**recipe.settings, "activation": _SMOOTH}
    networks: list[Any] = replace(recipe, settings=settings).build(seeds)
    if n_bins := n_bins_of(recipe):
        n_plain = recipe.input_shape[0] - n_bins
        for weight in (network[0].weight.data for network in networks):
            weight[:, :n_plain] *= (weight.shape[1] / n_plain) ** 0.5
            weight[:, n_plain:] = 0.0
    return networks


def n_bins_of(recipe: NetworkRecipe) -> int:
    """Return how many inputs, the last ones, are piecewise-linear encodings."""
    inputs = recipe.inputs
    return 0 if inputs is None else inputs.module(torch.float32).n_bins


def has_bins(recipe: NetworkRecipe) -> bool:
    """Tell whether networks get piecewise-linear encodings."""
    return recipe.inputs is not None and recipe.inputs.has_bins


def amount_of_training(
    spec: EnsembleSpec, n_rows: int, are_in_bins: bool = False
) -> tuple[int, int]:
    """Return the number of epochs and the rows of a minibatch, for so many rows.

    Chains have the same on large tables: their step size is suited to a size of minibatches, and
    with fewer epochs they would end before they are where they should be.
    """
    n_of_small, most, batch_size = _EPOCHS[spec.kind], _ROWS_SEEN_AT_MOST, spec.batch_size
    n_seen, least = 0, n_of_small
    if shares_weights(spec.networks.module):
        n_of_small, most = (_MORE_EPOCHS_OF_SHARED * number for number in (n_of_small, most))
        least = n_of_small
        if batch_size == "auto":
            batch_size = max(_SHARED_BATCH_SIZE, batch_size_for("auto", n_rows), spec.n_members)
    elif are_in_bins and spec.kind == "regressor":
        half = n_of_small // 2
        n_seen = _ROWS_SEEN_IN_BINS
        if spec.trains_each:
            n_of_small = max(n_of_small, min(_LEAST_ROWS_SEEN // n_rows, _MOST_EPOCHS))
        least = min(max(half, half * n_rows**2 // _ROWS_OF_HALF**2), n_of_small)
    if isinstance(spec.inference, (SGLD, SGHMC)):
        n_rows = 1
    return (
        n_epochs_for(spec.max_epochs, n_rows, n_seen, least, n_of_small, most),
        batch_size_for(batch_size, n_rows),
    )


def learning_rate(spec: EnsembleSpec, n_epochs: int, n_rows: int, are_in_bins: bool) -> float:
    """Return the learning rate of an ensemble trained for so many epochs on so many samples."""
    if spec.training.lr != "auto":
        return float(spec.training.lr)
    is_large = spec.kind == "regressor" and are_in_bins and n_rows >= MANY_ROWS
    if not is_large or shares_weights(spec.networks.module):
        return _RATE
    share = float(np.interp(n_epochs, _EPOCHS_OF_RATES, (0.0, 1.0)))
    return _RATE ** (1.0 - share) * _RATE_OF_LARGE**share


def block_size(spec: EnsembleSpec, recipe: NetworkRecipe, device: torch.device, n_rows: int) -> int:
    """Return how many members to train together on so many samples."""
    if spec.member_block != "auto":
        return int(spec.member_block)
    if device.type != "cpu":
        return spec.n_members
    (member,) = recipe.build([0])
    widest = widest_activation(member, recipe.input_shape)
    n_epochs, batch_size = amount_of_training(spec, n_rows, has_bins(recipe))
    most = max(1, _BLOCK_ACTIVATIONS // (min(batch_size, n_rows) * widest))
    n_members = spec.n_members
    is_long = n_rows * n_epochs * n_members * widest >= _FIT_ACTIVATIONS
    n_blocks = n_members // _LEAST_BLOCK if is_long else 1
    return min(most, -(-n_members // n_blocks)) if n_blocks > 1 else most


# --- objectives ------------------------------------------------------------------------------


class GaussianObjective(Objective):
    """Negative log-likelihood of the targets under each member's Gaussian, or its beta-NLL."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        y, *noise = targets  # of each member's own
        # beta-NLL is no proper score: members are validated by the likelihood itself.
        beta = self.beta if self.training else 0.0
        return gaussian_nll.and_gradient(outputs, y, beta, noise=noise[0] if noise else None)


class CategoricalObjective(Objective):
    """Cross-entropy of the labels under each member's class probabilities."""

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        (codes,) = targets
        return cross_entropy.and_gradient(outputs, codes.expand(outputs.shape[:-1]))


class Validated(Objective):
    """An objective that is trained by, and another loss in validation, which needs no gradient."""

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        if self.training:
            return super().forward(outputs, targets)
        return self.validation_loss(outputs, targets)

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        return self.objective.loss_and_gradient(outputs, targets)

    @abstractmethod
    def validation_loss(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of every network and sample, (S, n).

        Outputs are (S, n, p), or (1, k, n, p) of k members that share weights.
        """


class ValidatedTogether(Validated):
    """An objective of members that share weights, whose loss in validation is their mixture's.

    Members that have overfitted one by one may be better together, and they stop together.
    """

    def __init__(self, objective: Objective, read: Callable[[Tensor], Any]):
        super().__init__(objective)
        self.read = read

    def validation_loss(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        (y,) = targets
        log_prob = self.read(outputs[0]).log_prob(y[0])
        return -log_prob.reshape(1, outputs.shape[-2], -1).sum(-1)


class ValidatedByBrier(Validated):
    """An objective for classes whose loss in validation is the Brier score of the probabilities.

    Of members that share weights it is that of their mean. A temperature mends overconfident
    probabilities, which raise the log loss before accuracy falls, and the Brier score less so
    (doc/design.rst).
    """

    def validation_loss(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        probs = outputs.softmax(-1)
        if probs.ndim == 4:  # of members that share weights
            probs = probs.mean(1)
        codes = targets[0].expand(probs.shape[:-1]).unsqueeze(-1)
        return probs.scatter_add(-1, codes, torch.full_like(probs[..., :1], -1.0)).square().sum(-1)
