# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the mean and the raw variance of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ... import losses
from ..._tasks import Task
from ...distributions import Gaussian, GaussianNormal
from ._family import FamilyPlan, OfGaussians, Term


@dataclass(frozen=True)
class GaussianPlan(OfGaussians):
    """A normal distribution over the mean and the raw variance (Eqs 12 and 13)."""

    covariance: str = "diagonal"

    settings: ClassVar[frozenset[str]] = frozenset({"covariance"})

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        if parameters.covariance not in ("diagonal", "full"):
            raise ValueError(
                "covariance must be 'diagonal' or 'full' with family='gaussian', got "
                f"{parameters.covariance!r}."
            )
        return super().of(parameters, task, covariance=parameters.covariance, **fields)

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
        if self.covariance == "full":
            return Term(losses.paired_normal_nll, (losses.paired_normal_target(z),))
        return Term(losses.normal_nll, (losses.normal_target(z),))
