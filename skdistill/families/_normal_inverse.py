# SPDX-License-Identifier: BSD-3-Clause
"""Conjugate distributions over the means and the variances of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from .. import losses
from ..distributions import Gaussian, NormalInverseGamma, NormalInverseWishart
from ._family import NumericFamily


class NormalInverseGammaFamily(NumericFamily):
    """A normal-inverse-gamma distribution over a member's mean and variance (Eq 11 of [1]_).

    Each target has one by itself; y follows Student's t.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for ensemble
       distribution distillation", MLSP 2020.
    """

    name: ClassVar[str] = "normal_inverse_gamma"

    def n_outputs(self, size: int) -> int:
        return NormalInverseGamma.outputs_per_target * size

    def distribution(self, outputs: Tensor) -> NormalInverseGamma:
        return NormalInverseGamma.from_outputs(outputs)

    def loss_and_gradient(self, outputs: Tensor, members: Gaussian, **_: Any) -> Any:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_gamma_nll.and_gradient(outputs, target)

    def initial_outputs(self, members: Gaussian, weight: Tensor) -> Tensor:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_gamma_start(target, weight)


class NormalInverseWishartFamily(NumericFamily):
    """A normal-inverse-Wishart distribution over a member's means and covariance (Eq 11 of [1]_).

    All targets have one strength of belief in common; y follows a multivariate t distribution.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for ensemble
       distribution distillation", MLSP 2020.
    """

    name: ClassVar[str] = "normal_inverse_wishart"
    takes_functions: ClassVar[bool] = False  # its targets have one strength of belief

    def n_outputs(self, size: int) -> int:
        return 2 * size + 2

    def distribution(self, outputs: Tensor) -> NormalInverseWishart:
        return NormalInverseWishart.from_outputs(outputs)

    def loss_and_gradient(self, outputs: Tensor, members: Gaussian, **_: Any) -> Any:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_wishart_nll.and_gradient(outputs, target)

    def initial_outputs(self, members: Gaussian, weight: Tensor) -> Tensor:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_wishart_start(target, weight)
