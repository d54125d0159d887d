# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the mean and the raw variance of a member (Lindqvist et al., 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import losses
from .._utils.validation import OneOf
from ..distributions import Gaussian, GaussianNormal
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
        their disagreement.
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
