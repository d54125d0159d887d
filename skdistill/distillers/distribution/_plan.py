# SPDX-License-Identifier: BSD-3-Clause
"""One network that learns a family of distributions from members.

Equations are those of J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for
ensemble distribution distillation" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ... import losses
from ..._method.plan import LARGE_LOSS, Objective, Plan, TrainingBudget
from ..._method.task import Buffers, Task
from ..._utils.validation import value_at_epoch
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ...families import Family
from ...modules import DistributionStack


@dataclass(frozen=True)
class FamilyPlan(Plan):
    """A network that predicts a distribution over predictions, of one family."""

    task: Task
    family: Family  # that for the task
    supervised_weight: float = 0.0  # of the labels' negative log-likelihood
    n_members: int = 2  # of the teacher; one cannot tell the parts of the uncertainty
    members_agree: bool = False  # never disagreed in training: their mean alone is predicted
    calibration: Any = None  # of the fitted student
    ddof: int = 0

    @property
    def tells_parts(self) -> bool:
        return self.family.tells_parts and self.n_members > 1

    @property
    def takes_functions(self) -> bool:
        return self.family.takes_functions

    @property
    def has_members(self) -> bool:
        return self.family.has_members

    @property
    def has_start(self) -> bool:
        return _defines(self.family, "initial_outputs")

    @property
    def learns_from_members(self) -> bool:
        """Whether `informed` completes the family, before the network is built."""
        return _defines(self.family, "informed")

    @property
    def n_outputs(self) -> int:
        return self.family.n_outputs(self.task.size)

    @property
    def meaning_of_outputs(self) -> str:
        what = "class(es)" if self.task.kind == "classifier" else "target(s)"
        return f"the outputs of {type(self.family).__name__} for {self.task.size} {what}"

    def informed(self, predictions: Tensor, weight: Tensor) -> FamilyPlan:
        """Return the plan with what encoded predictions of members, (n, M, ...), tell of them."""
        return replace(self, family=self.family.informed(self.members(predictions), weight))

    def build(self, recipe: Any, seeds: Sequence[int]) -> Any:
        (network,) = recipe.build(seeds)
        return self.family.build(network, self.n_members)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        return super().encode_members(self.family.prepare_members(members), scaling, dtype)

    def members(self, predictions: Tensor) -> Any:
        """Return members' predictions (..., n, M, ...) in the form that families take."""
        if self.task.kind == "classifier":
            return predictions.transpose(-3, -2)
        return Gaussian(*predictions.transpose(-4, -3).unbind(-1))

    def read(self, outputs: Tensor) -> Any:
        found = self.family.distribution(outputs)
        if not self.members_agree:
            return found
        if self.task.kind == "classifier":
            return EmpiricalCategorical(found.log_mean.unsqueeze(0))
        parts = found.mean, found.uncertainty().aleatoric
        return EmpiricalGaussian(*(part.unsqueeze(0) for part in parts))

    def read_mean(self, outputs: Tensor) -> Tensor:
        return self.family.mean(outputs, self.task.size)

    def start(self, module: DistributionStack, predictions: Tensor, weight: Tensor) -> None:
        outputs = self.family.initial_outputs(self.members(predictions), weight)
        *_, last = module.parameters()
        if outputs is not None and last.shape[-1] == outputs.shape[-1]:  # it is a bias
            with torch.no_grad():
                last.copy_(outputs.expand_as(last))

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        return DistributionObjective(self, training_budget.n_rows, next(module.parameters()))


def _defines(family: Family, method: str) -> bool:
    """Whether a family has a method of its own in the place of the default."""
    return getattr(type(family), method) is not getattr(Family, method)


class DistributionObjective(Objective):
    """Loss of a family against the members, and of the labels (Eqs 16 and 17).

    Targets are the members' predictions (1, n, M, ...), the labels (1, n, ...), and whether a
    sample has a label (1, n). A temperature T divides the logits of both sides, and the loss is
    multiplied by T^2. A family's penalty is divided by `n_rows`, the sum of the samples' weights.
    """

    temperature: Tensor
    given: Tensor | None  # by the family, in this epoch

    def __init__(self, plan: FamilyPlan, n_rows: float, like: Tensor):
        super().__init__()
        self.plan = plan
        self.n_rows = n_rows
        self.limit = LARGE_LOSS * plan.task.size
        first = float(value_at_epoch(plan.family.temperature, 0, end=1.0))
        self.register_buffer("temperature", torch.tensor(first))
        given = plan.family.given(0, plan.task.size)
        self.register_buffer("given", None if given is None else torch.tensor(given).to(like))

    def begin_epoch(self, epoch: int) -> None:
        family, size = self.plan.family, self.plan.task.size
        self.temperature.fill_(value_at_epoch(family.temperature, epoch, end=1.0))
        if self.given is not None:
            self.given.copy_(torch.tensor(family.given(epoch, size)))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        predictions, y, labelled = targets
        members, temperature = self.plan.members(predictions), self.temperature
        loss, gradient = self.plan.family.loss_and_gradient(
            outputs / temperature, members, temperature=temperature, given=self.given
        )
        loss, gradient = loss * temperature**2, gradient.mul_(temperature)
        weight = self.plan.supervised_weight
        if weight:
            of_labels, slope = losses.by_autograd(self._label_nll, outputs, y)
            loss = loss + weight * labelled * of_labels  # Eqs 16 and 17
            gradient = gradient + weight * labelled.unsqueeze(-1) * slope
        return losses.log_tailed_clip(loss, gradient, self.limit)

    def _label_nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        student = self.plan.family.distribution(outputs.flatten(0, -3))
        return losses.label_nll(student, y.squeeze(0)).unsqueeze(0)

    def penalty(self, module: nn.Module) -> Tensor | None:
        penalty = self.plan.family.penalty(module.network)
        return None if penalty is None else penalty / self.n_rows
