# SPDX-License-Identifier: BSD-3-Clause
"""The plan of an ensemble, whose members each predict the task, and their objectives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._method.objective import Objective
from .._method.plan import NetworkRecipe, Plan, TrainingBudget
from .._method.task import RegressionTask, Task
from ..losses import cross_entropy, gaussian_nll
from ..modules import shares_weights, stack, with_dropout


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task."""

    task: Task
    n_networks: int = 1
    beta: float = 0.0  # exponent of the variance in the beta-NLL of numbers
    dropout_rate: float | None = None  # where members are draws of dropout
    n_sharing: int = 1  # members of one network, which share its weights
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
        if shares_weights(recipe.module):
            (network,) = members
            return network  # a stack already
        if self.dropout_rate is not None:
            members = [
                with_dropout(member, self.dropout_rate, recipe.input_shape, seed)
                for member, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        is_numeric = isinstance(self.task, RegressionTask)
        objective = GaussianObjective(self.beta) if is_numeric else CategoricalObjective()
        has_shared = len(module.network.lead) > 1
        return ValidatedTogether(objective, module.read) if has_shared else objective


class GaussianObjective(Objective):
    """Negative log-likelihood of the targets under each member's Gaussian, or its beta-NLL."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        (y,) = targets
        # beta-NLL is no proper score: members are validated by the likelihood itself.
        return gaussian_nll.and_gradient(outputs, y, self.beta if self.training else 0.0)


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

    It is the negative log-likelihood of what `read` makes of the outputs of all members. Members
    that have overfitted one by one may be better together, and they stop together.
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

    A temperature mends probabilities that are too sure, which raise the log loss before accuracy
    falls, and the Brier score less so. By the log loss members kept too early an epoch: covtype's
    validation samples had .422 after the temperature, by the Brier score .399.

    Members that share weights are judged by the mean of their probabilities.
    """

    def validation_loss(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        probs = outputs.softmax(-1)
        if probs.ndim == 4:  # of members that share weights
            probs = probs.mean(1)
        codes = targets[0].expand(probs.shape[:-1]).unsqueeze(-1)
        return probs.scatter_add(-1, codes, torch.full_like(probs[..., :1], -1.0)).square().sum(-1)
