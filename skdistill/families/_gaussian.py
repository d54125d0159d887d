# SPDX-License-Identifier: BSD-3-Clause
"""Distributions over the mean and the variance of a member (Lindqvist et al., 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import losses
from .._utils.validation import OneOf
from ..distributions import Gaussian, GaussianNormal, NormalInverseGamma, NormalInverseWishart
from ._family import NumericFamily

# By covariance, the likelihood of Eq 7, and the statistics of members that it takes.
_NLL: dict[str, tuple[Any, Any]] = {
    "diagonal": (losses.normal_nll, losses.normal_target),
    "full": (losses.paired_normal_nll, losses.paired_normal_target),
}


@dataclass(eq=False, repr=False)
class GaussianFamily(NumericFamily):
    """A normal distribution over a member's mean and raw variance (Eqs 12 and 13).

    Equations are those of Lindqvist et al. (2020).

    Parameters
    ----------
    covariance : {"diagonal", "full"}, default="diagonal"
        Of mean and raw variance.
    loss : {"moments", "nll"}, default="moments"
        ``"moments"`` matches means and covariance, each by a term of its own; ``"nll"`` is the
        members' likelihood (Eq 7), which counts what the student misses of the members' mean as
        their disagreement. The paper's is ``"nll"`` with ``ddof=0`` of the distiller.
    """

    name: ClassVar[str] = "gaussian"
    _parameter_table = {
        "covariance": OneOf(("diagonal", "full")),
        "loss": OneOf(("moments", "nll")),
    }

    covariance: str = "diagonal"
    loss: str = "moments"

    def n_outputs(self, size: int) -> int:
        return GaussianNormal.outputs_per_target[self.covariance] * size

    def distribution(self, outputs: Tensor) -> GaussianNormal:
        return GaussianNormal.from_outputs(outputs, self.covariance)

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return losses.weighted_sum([self._term(members)], outputs)

    def _term(self, members: Gaussian) -> losses.Term:
        z = losses.gaussian_parameters(members)  # Eq 12
        nll, target_of = _NLL[self.covariance]
        target, floor = target_of(z), GaussianNormal.min_variance_of_z
        if self.loss == "nll":
            return losses.Term(nll, (target, floor))
        # An error of the mean counts as in the likelihood of y, one of the raw variance as it is.
        precision = losses.moments(members)[0].variance.reciprocal()
        precision = torch.cat((precision, torch.ones_like(precision)), dim=-1)
        return losses.Term(losses.matched_moments, (nll, target, precision, floor))


class _Conjugate(NumericFamily):
    """A conjugate distribution, by its likelihood, whose best constant is known."""

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_nll.and_gradient(outputs, target)

    def initial_outputs(self, members: Gaussian, weight: Tensor) -> Tensor:
        target = losses.normal_inverse_gamma_target(members)
        n_targets = target.mean.shape[-1]
        n_groups = self.n_outputs(n_targets) // 2 - n_targets  # each with one nu
        return losses.normal_inverse_start(target, weight, n_groups)


class NormalInverseGammaFamily(_Conjugate):
    """A normal-inverse-gamma distribution over a member's mean and variance.

    Each target has one by itself; y follows Student's t (Eq 11 of Lindqvist et al., 2020).
    """

    name: ClassVar[str] = "normal_inverse_gamma"

    def n_outputs(self, size: int) -> int:
        return NormalInverseGamma.outputs_per_target * size

    def distribution(self, outputs: Tensor) -> NormalInverseGamma:
        return NormalInverseGamma.from_outputs(outputs)


class NormalInverseWishartFamily(_Conjugate):
    """A normal-inverse-Wishart distribution over a member's means and covariance (Eq 11).

    All targets have one strength of belief in common; y follows a multivariate t distribution.
    """

    name: ClassVar[str] = "normal_inverse_wishart"
    takes_functions: ClassVar[bool] = False  # its targets have one strength of belief

    def n_outputs(self, size: int) -> int:
        return 2 * size + 2

    def distribution(self, outputs: Tensor) -> NormalInverseWishart:
        return NormalInverseWishart.from_outputs(outputs)
