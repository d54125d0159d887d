# SPDX-License-Identifier: BSD-3-Clause
"""The mean of the members' predictions: plain ensemble distillation (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ... import losses
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ._family import OfGaussians, OfProbabilities, Term


@dataclass(frozen=True)
class GaussianMixturePlan(OfGaussians):
    """One Gaussian with the moments of the members' mixture (Eqs 5 and 6): the total only."""

    can_be_displaced: ClassVar[bool] = False  # one member has the total alone
    can_tell_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True

    def distribution(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        mixture, _ = losses.moments(members)
        return Term(losses.normal_nll, (mixture,))  # Eq 6


@dataclass(frozen=True)
class CategoricalMixturePlan(OfProbabilities):
    """The members' mean probabilities (Eqs 5 and 6), plain ensemble distillation: total only."""

    can_be_displaced: ClassVar[bool] = False  # one member has the total alone
    can_tell_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"temperature"})

    def distribution(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(outputs)

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        softened = (members / temperature).softmax(-1).mean(-3)  # Eq 5
        return Term(losses.cross_entropy, (softened,))
