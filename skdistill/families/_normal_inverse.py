# SPDX-License-Identifier: BSD-3-Clause
"""Conjugate distributions over the means and the variances of a member (Lindqvist et al., 2020)."""

from typing import Any, ClassVar

from torch import Tensor

from .. import losses
from ..distributions import Gaussian, NormalInverseGamma, NormalInverseWishart
from ._family import NumericFamily


class _Conjugate(NumericFamily):
    """A conjugate distribution, by its likelihood, whose best constant is known."""

    _nll: ClassVar[Any]

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        target = losses.normal_inverse_gamma_target(members)
        return self._nll.and_gradient(outputs, target)

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
    _nll = staticmethod(losses.normal_inverse_gamma_nll)

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
    _nll = staticmethod(losses.normal_inverse_wishart_nll)

    def n_outputs(self, size: int) -> int:
        return 2 * size + 2

    def distribution(self, outputs: Tensor) -> NormalInverseWishart:
        return NormalInverseWishart.from_outputs(outputs)
