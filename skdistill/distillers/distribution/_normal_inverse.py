# SPDX-License-Identifier: BSD-3-Clause
"""Conjugate distributions over the means and the variances of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ... import losses
from ...distributions import Gaussian, NormalInverseGamma, NormalInverseWishart
from ._family import OfGaussians, Term, start_at


@dataclass(frozen=True)
class NormalInverseGammaPlan(OfGaussians):
    """A normal-inverse-gamma distribution over the mean and the variance (Eq 11)."""

    has_start: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return NormalInverseGamma.outputs_per_target * self.size

    @property
    def meaning_of_outputs(self) -> str:
        return (
            "a mean, a raw variance and the logarithms of nu and alpha - 1 for each of "
            f"{self.size} target(s)"
        )

    def distribution(self, outputs: Tensor) -> NormalInverseGamma:
        return NormalInverseGamma.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        target = losses.normal_inverse_gamma_target(members)
        return Term(losses.normal_inverse_gamma_nll, (target,))

    def start(self, module: nn.Module, predictions: Tensor, weight: Tensor) -> None:
        target = losses.normal_inverse_gamma_target(self.members(predictions))
        start_at(module, losses.normal_inverse_gamma_start(target, weight))


@dataclass(frozen=True)
class NormalInverseWishartPlan(OfGaussians):
    """A normal-inverse-Wishart distribution over the means and the covariance (Eq 11)."""

    can_be_displaced: ClassVar[bool] = False  # targets have one strength of belief
    takes_functions: ClassVar[bool] = False  # its targets have one strength of belief
    has_start: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return 2 * self.size + 2

    @property
    def meaning_of_outputs(self) -> str:
        return (
            f"a mean and a raw variance for each of {self.size} target(s), and the logarithms of "
            "nu and of the degrees of freedom"
        )

    def distribution(self, outputs: Tensor) -> NormalInverseWishart:
        return NormalInverseWishart.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        target = losses.normal_inverse_gamma_target(members)
        return Term(losses.normal_inverse_wishart_nll, (target,))

    def start(self, module: nn.Module, predictions: Tensor, weight: Tensor) -> None:
        target = losses.normal_inverse_gamma_target(self.members(predictions))
        start_at(module, losses.normal_inverse_wishart_start(target, weight))
