# SPDX-License-Identifier: BSD-3-Clause
"""The plan of an ensemble, whose members each predict the task, and their objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .._objective import Objective
from .._plans import Extent, NetworkRecipe, Plan
from .._tasks import Numbers, Task
from ..losses import cross_entropy, gaussian_nll
from ..modules import stack, with_dropout


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task.

    Parameters
    ----------
    task : Numbers or Classes
    n_networks : int
        Number of members.
    beta : float, default=0.0
        Exponent of the variance in the beta-NLL of numbers.
    dropout_rate : float, default=None
        Probability that a unit is dropped, where members are draws of dropout.
    calibration : Temperature, default=None
        Of the fitted ensemble.
    """

    task: Task
    n_networks: int = 1
    beta: float = 0.0
    dropout_rate: float | None = None
    calibration: Any = None

    @property
    def tells_parts(self) -> bool:
        return self.n_networks > 1

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        members = recipe.build(seeds)
        if self.dropout_rate is not None:
            members = [
                with_dropout(member, self.dropout_rate, recipe.row_shape, seed)
                for member, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    def objective(self, module: Any, extent: Extent) -> Objective:
        is_numeric = isinstance(self.task, Numbers)
        return GaussianObjective(self.beta) if is_numeric else CategoricalObjective()


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
