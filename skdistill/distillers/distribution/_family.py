# SPDX-License-Identifier: BSD-3-Clause
"""What the plans of all families share: one network, trained to match the members.

Equations are those of J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for
ensemble distribution distillation" (2020), unless said otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ... import losses
from ..._method.objective import LARGE_LOSS, Objective
from ..._method.plan import Plan, TrainingBudget
from ..._method.task import Task
from ..._utils.validation import value_at_epoch
from ...distributions import EmpiricalGaussian, Gaussian
from ...losses import Term
from ...modules import GaussianHead


@dataclass(frozen=True)
class FamilyPlan(Plan):
    """A network that predicts a distribution over predictions, of one family.

    Subclasses define the distribution and the loss. Members are on the axis before the rows:
    Gaussians of shape (..., M, n, t), or log probabilities (..., M, n, K).

    Parameters
    ----------
    task : RegressionTask or ClassificationTask
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
    supervised_weight : float, default=0.0
        Weight of the labels' negative log-likelihood.
    n_members : int, default=2
        Number of members of the teacher; one cannot tell the parts of the uncertainty.
    members_agree : bool, default=False
        Whether the members never disagreed on the training set, so that the student predicts their
        mean alone.
    calibration : Calibration, default=None
        Of the fitted student.
    """

    task: Task
    temperature: Any = 1.0
    supervised_weight: float = 0.0
    n_members: int = 2
    members_agree: bool = False
    calibration: Any = None

    can_be_displaced: ClassVar[bool] = True  # by functions of the teacher
    can_tell_parts: ClassVar[bool] = True  # of the uncertainty, given several members
    has_members: ClassVar[bool] = False
    has_start: ClassVar[bool] = False
    learns_from_members: ClassVar[bool] = False  # by `informed`, before the network is built
    draws_functions: ClassVar[bool] = False  # by `draw`, see `FactorPlan`

    # Those parameters of the distiller that this family reads and not every family does.
    settings: ClassVar[frozenset[str]] = frozenset()

    # What a family that reads the parameter `loss` can minimise, "auto" first.
    known_losses: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        """Return the plan for a distiller's parameters."""
        return cls(task, parameters.temperature, parameters.supervised_weight, **fields)

    @classmethod
    def loss_of(cls, parameters: Any) -> str:
        """Return the name of the loss, checked, that a distiller's parameters choose."""
        if parameters.loss == "auto":
            return cls.known_losses[0]
        if parameters.loss not in cls.known_losses:
            raise ValueError(
                f"loss must be 'auto' or one of {sorted(cls.known_losses)} with this family, got "
                f"{parameters.loss!r}."
            )
        return parameters.loss

    def informed(self, predictions: Tensor, weight: Tensor) -> FamilyPlan:
        """Return the plan with what encoded predictions of members, (n, M, ...), tell of them."""
        return self

    def informed_as(self, fitted: FamilyPlan) -> FamilyPlan:
        """Return the plan with what that of the student knows that training goes on from."""
        return self

    @property
    def size(self) -> int:
        """Number of targets t, or of classes K."""
        return self.task.size

    @property
    def tells_parts(self) -> bool:
        return self.can_tell_parts and self.n_members > 1

    @property
    def takes_functions(self) -> bool:
        return self.can_be_displaced

    def read(self, outputs: Tensor) -> Any:
        return self.expected(outputs) if self.members_agree else self.distribution(outputs)

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        return DistributionObjective(self, training_budget.n_rows, next(module.parameters()))

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Any:
        """Return the distribution for outputs (1, n, n_outputs), on the scale of the loss."""

    def expected(self, outputs: Tensor) -> Any:
        """Return the expected prediction alone, as of one member."""
        return self.distribution(outputs)

    @abstractmethod
    def members(self, predictions: Tensor) -> Any:
        """Return members' predictions (..., n, M, ...) in the form that `term` takes."""

    @abstractmethod
    def term(self, members: Any, temperature: Tensor) -> Term:
        """Return the loss for outputs, given members; both are divided by the temperature."""

    def given(self, epoch: int) -> np.ndarray | None:
        """Return numbers that the loss of an epoch is given beside the members, if any."""
        return None

    def term_given(self, given: Tensor, members: Any) -> Term:
        """Return the loss for outputs, given these numbers too; by default it does without."""
        return self.term(members, given.new_ones(()))


@dataclass(frozen=True)
class OfGaussians(FamilyPlan):
    """A distribution over Gaussians; of the outputs, t means and t raw variances come first."""

    def expected(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs[..., : 2 * self.size])

    def members(self, predictions: Tensor) -> Gaussian:
        return Gaussian(*predictions.transpose(-4, -3).unbind(-1))


@dataclass(frozen=True)
class OfProbabilities(FamilyPlan):
    """A distribution over the probabilities of classes."""

    def members(self, predictions: Tensor) -> Tensor:
        return predictions.transpose(-3, -2)


def start_at(module: nn.Module, outputs: Tensor) -> None:
    """Set the bias of the last layer to outputs that are the same for all rows."""
    *_, last = module.parameters()
    if last.shape[-1] == outputs.shape[-1]:  # it has a bias
        with torch.no_grad():
            last.copy_(outputs.expand_as(last))


class DistributionObjective(Objective):
    """Loss of a family against the members, and of the labels (Eqs 16 and 17).

    Very large losses of a row grow logarithmically.

    Targets are the members' predictions (1, n, M, ...), the labels (1, n, ...), and whether a row
    has a label (1, n). A temperature T divides the logits of both sides, and the loss is multiplied
    by T^2.

    Parameters
    ----------
    plan : FamilyPlan
    n_rows : float
        Sum of the rows' weights; only a Gaussian head depends on it.
    like : Tensor
        Of the dtype and on the device of the networks.
    """

    temperature: Tensor
    given: Tensor | None  # by the plan, in this epoch

    def __init__(self, plan: FamilyPlan, n_rows: float, like: Tensor):
        super().__init__()
        self.plan = plan
        self.n_rows = n_rows
        self.limit = LARGE_LOSS * plan.size
        first = float(value_at_epoch(plan.temperature, 0, end=1.0))
        self.register_buffer("temperature", torch.tensor(first))
        given = plan.given(0)
        self.register_buffer("given", None if given is None else torch.tensor(given).to(like))

    def begin_epoch(self, epoch: int) -> None:
        self.temperature.fill_(value_at_epoch(self.plan.temperature, epoch, end=1.0))
        if self.given is not None:
            self.given.copy_(torch.tensor(self.plan.given(epoch)))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        predictions, y, labelled = targets
        term = self.term(self.plan.members(predictions))
        loss, gradient = losses.tempered_sum([term], outputs, self.temperature)
        weight = self.plan.supervised_weight
        if weight:
            of_labels, slope = losses.by_autograd(self._label_nll, outputs, y)
            loss = loss + weight * labelled * of_labels  # Eqs 16 and 17
            gradient = gradient + weight * labelled.unsqueeze(-1) * slope
        return losses.log_tailed_clip(loss, gradient, self.limit)

    def term(self, members: Any) -> Term:
        """Return the loss for outputs, given members."""
        if self.given is None:
            return self.plan.term(members, self.temperature)
        return self.plan.term_given(self.given, members)

    def _label_nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        student = self.plan.distribution(outputs.flatten(0, -3))
        return losses.label_nll(student, y.squeeze(0)).unsqueeze(0)

    def penalty(self, module: Any) -> Tensor | None:
        if not isinstance(module.network, GaussianHead):
            return None
        return module.network.divergence() / self.n_rows  # the evidence lower bound, per row
