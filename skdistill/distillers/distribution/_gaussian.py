# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the mean and the raw variance of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import losses
from ..._method.task import Task
from ...distributions import Gaussian, GaussianNormal
from ._family import FamilyPlan, OfGaussians, Term

# By covariance, the likelihood of Eq 7, and the statistics of members that it takes.
_NLL: dict[str, tuple[Any, Any]] = {
    "diagonal": (losses.normal_nll, losses.normal_target),
    "full": (losses.paired_normal_nll, losses.paired_normal_target),
}


@dataclass(frozen=True)
class GaussianPlan(OfGaussians):
    """A normal distribution over the mean and the raw variance (Eqs 12 and 13)."""

    covariance: str = "diagonal"
    loss: str = "moments"

    settings: ClassVar[frozenset[str]] = frozenset({"covariance", "loss"})
    known_losses: ClassVar[tuple[str, ...]] = ("moments", "nll")

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        if parameters.covariance not in ("diagonal", "full"):
            raise ValueError(
                "covariance must be 'diagonal' or 'full' with family='gaussian', got "
                f"{parameters.covariance!r}."
            )
        return super().of(
            parameters,
            task,
            covariance=parameters.covariance,
            loss=cls.loss_of(parameters),
            **fields,
        )

    @property
    def n_outputs(self) -> int:
        return GaussianNormal.outputs_per_target[self.covariance] * self.size

    @property
    def meaning_of_outputs(self) -> str:
        return (
            "two expectations and two raw variances, of mean and raw variance"
            f"{', and a slope' if self.covariance == 'full' else ''}, for each of {self.size} "
            "target(s)"
        )

    def distribution(self, outputs: Tensor) -> GaussianNormal:
        return GaussianNormal.from_outputs(outputs, self.covariance)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        z = losses.gaussian_parameters(members)  # Eq 12
        nll, target_of = _NLL[self.covariance]
        target, floor = target_of(z), GaussianNormal.min_variance_of_z
        if self.loss == "nll":
            return Term(nll, (target, floor))
        # An error of the mean counts as in the likelihood of y, one of the raw variance as it is.
        precision = losses.moments(members)[0].variance.reciprocal()
        precision = torch.cat((precision, torch.ones_like(precision)), dim=-1)
        return Term(losses.matched_moments, (nll, target, precision, floor))
