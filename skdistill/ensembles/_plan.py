# SPDX-License-Identifier: BSD-3-Clause
"""The plan of an ensemble, whose members each predict the task, and their objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._objective import Objective
from .._plans import Extent, NetworkRecipe, Plan
from .._tasks import Numbers, Task
from ..losses import cross_entropy, gaussian_nll
from ..modules import shares_weights, stack, with_dropout


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task.

    Parameters
    ----------
    task : Numbers or Classes
    n_networks : int
        Number of networks.
    beta : float, default=0.0
        Exponent of the variance in the beta-NLL of numbers.
    dropout_rate : float, default=None
        Probability that a unit is dropped, where members are draws of dropout.
    n_sharing : int, default=1
        Number of members of one network, which share its weights.
    calibration : Temperature, default=None
        Of the fitted ensemble.
    """

    task: Task
    n_networks: int = 1
    beta: float = 0.0
    dropout_rate: float | None = None
    n_sharing: int = 1
    calibration: Any = None

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

    def objective(self, module: Any, extent: Extent) -> Objective:
        is_numeric = isinstance(self.task, Numbers)
        objective = GaussianObjective(self.beta) if is_numeric else CategoricalObjective()
        has_shared = len(module.network.lead) > 1
        return MeanOverMembers(objective) if has_shared else objective


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


class MeanOverMembers(Objective):
    """An objective, averaged over the members where a network gives the outputs of all of them.

    It does so in validation, (1, k, n, p); in training there is one member for each row, (1, n, p).
    """

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        if outputs.ndim == 3:
            return self.objective.loss_and_gradient(outputs, targets)
        shared = tuple(target.unsqueeze(1) for target in targets)
        losses, gradient = self.objective.loss_and_gradient(outputs, shared)
        return losses.mean(1), gradient / outputs.shape[1]


class ValidatedByBrier(Objective):
    """An objective for classes whose loss in validation is the Brier score of the probabilities.

    A temperature mends probabilities that are too sure, which raise the log loss before accuracy
    falls, and the Brier score less so. By the log loss members kept too early an epoch: covtype's
    validation rows had .422 after the temperature, by the Brier score .399.
    """

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        if self.training:
            return self.objective.loss_and_gradient(outputs, targets)
        probs = outputs.softmax(-1)
        gradient = probs.clone()
        codes = targets[0].expand(outputs.shape[:-1]).unsqueeze(-1)
        gradient.scatter_add_(-1, codes, torch.full_like(probs[..., :1], -1.0))
        score = gradient.square().sum(-1)
        # Of the softmax, from the gradient 2 (p - e_y) by the probabilities.
        gradient = 2 * probs * (gradient - (probs * gradient).sum(-1, keepdim=True))
        return score, gradient
