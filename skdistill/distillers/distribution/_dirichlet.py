# SPDX-License-Identifier: BSD-3-Clause
"""A Dirichlet distribution over the probabilities of a member.

Equations are those of M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution
Distillation to Many Classes with Proxy Targets" (2021), unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ... import losses
from ..._method.task import Buffers, Task
from ...distributions import Dirichlet, EmpiricalCategorical
from ._family import FamilyPlan, OfProbabilities, Term
from ._zeros import SMOOTHING, without_zeros

# Precision of the proxy, at most, for each class.
_PRECISION_PER_CLASS = 1e3


@dataclass(frozen=True)
class DirichletPlan(OfProbabilities):
    """A Dirichlet distribution over the probabilities (Ryabinin et al., 2021)."""

    loss: str = "moments"
    max_precision: float = float("inf")
    smoothing: float = 0.0
    mends_zeros: bool = False  # of members, see `without_zeros`

    settings: ClassVar[frozenset[str]] = frozenset(
        {"loss", "max_precision", "smoothing", "temperature"}
    )
    known_losses: ClassVar[tuple[str, ...]] = (
        *("moments", "reverse_kl", "reverse_kl_reference", "forward_kl"),
        "nll",
    )

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        loss = cls.loss_of(parameters)
        by_likelihood = loss == "nll"
        automatic = SMOOTHING if by_likelihood else 0.0
        is_auto = parameters.smoothing == "auto"
        cap = parameters.max_precision
        plan = {"moments": DirichletMomentsPlan, "nll": DirichletLikelihoodPlan}.get(loss, cls)
        return plan(
            task,
            parameters.temperature,
            parameters.supervised_weight,
            loss=loss,
            max_precision=_PRECISION_PER_CLASS * task.size if cap == "auto" else float(cap),
            smoothing=automatic if is_auto else float(parameters.smoothing),
            mends_zeros=is_auto and loss != "moments",
            **fields,
        )

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        members = without_zeros(members) if self.mends_zeros else members
        return super().encode_members(members, scaling, dtype)

    @property
    def n_outputs(self) -> int:
        return self.size

    @property
    def meaning_of_outputs(self) -> str:
        return "the logarithm of a concentration for each class"

    def distribution(self, outputs: Tensor) -> Dirichlet:
        """The plain concentrations ``exp(z)``.

        The one that is added to both sides of the divergence (Sec. 3) is there to train well. Read
        with it, the mean would be drawn to the uniform distribution by K units of precision.
        """
        return Dirichlet.from_outputs(outputs, offset=0.0)  # Eq 6

    def expected(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(outputs.clamp(*Dirichlet.output_limits))

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        cap = min(self.max_precision, losses.largest_precision(self.size, members.dtype))
        mean, precision = losses.proxy_target(members, cap, temperature, self.smoothing)
        return losses.proxy_term(self.loss, mean, precision)


@dataclass(frozen=True)
class DirichletMomentsPlan(DirichletPlan):
    """The same, by the members' mean and mutual information, each with a term of its own."""

    settings: ClassVar[frozenset[str]] = DirichletPlan.settings - {"max_precision"}

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        target = losses.information_target(members, temperature, self.smoothing)
        return Term(losses.dirichlet_moments, target)


@dataclass(frozen=True)
class DirichletLikelihoodPlan(DirichletPlan):
    """The same, by the likelihood of the members' probabilities (Eqs 7 and 11)."""

    settings: ClassVar[frozenset[str]] = DirichletPlan.settings - {"max_precision"}

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        statistics = losses.MemberStatistics(temperature, self.smoothing).add_together(members)
        return Term(losses.dirichlet_nll, (statistics.mean_log, 0.0))
