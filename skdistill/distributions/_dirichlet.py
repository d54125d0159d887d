# SPDX-License-Identifier: BSD-3-Clause
"""The Dirichlet distribution over class probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .._utils.special import digamma_excess
from ._protocol import Calibratable, ClassDistribution, ReadFromOutputs
from ._shared import Uncertainty, of_one_network, row_chunks

_CHUNK = 2**14  # elements of one temporary: 128 KiB of float64, several fit the cache

_LEAST_PRECISION, _LEAST_CONCENTRATION = 1e-3, 1e-12  # of a mixture of corners of the simplex


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class Dirichlet(ClassDistribution, Calibratable, ReadFromOutputs):
    """Class probabilities that follow a Dirichlet distribution, one for every sample.

    It is what a student of ensemble distribution distillation predicts (Malinin et al., 2020;
    equations are those of Ryabinin et al., 2021). Its mean is the predictive distribution. Its
    precision, the sum of the concentrations, is the larger the more the members of the ensemble
    agree.

    Parameters
    ----------
    concentrations : Tensor of shape (n, K)
        Positive numbers, one for each sample and class: alpha.
    """

    concentrations: Tensor

    max_precision: ClassVar[float] = 1e8  # of what outputs are read as, as in `dirichlet_moments`
    min_output: ClassVar[float] = -20.0  # so that the products in the losses fit float32

    def __post_init__(self) -> None:
        if self.concentrations.ndim != 2:
            raise ValueError(
                f"concentrations must have shape (n, K); got {tuple(self.concentrations.shape)}."
            )

    @classmethod
    def from_outputs(cls, outputs: Tensor, offset: float = 1.0) -> Dirichlet:
        """Read outputs z of a network as ``exp(z) + offset``, for K classes.

        Offset 1 is the form that goes with the proxy target (Sec. 3), 0 the plain one (Eq. 6).
        Outputs are :meth:`limited`.
        """
        outputs = of_one_network(outputs, 1, "K")
        return cls(cls.limited(outputs).exp() + offset)  # Eq. 6

    @classmethod
    def limited(cls, outputs: Tensor) -> Tensor:
        """Return outputs whose precision is at most 1e8, with the same mean; none is below -20.

        Parameters
        ----------
        outputs : Tensor of shape (..., n_classes)

        Returns
        -------
        limited : Tensor of the same shape
        """
        excess = outputs.logsumexp(-1, keepdim=True) - math.log(cls.max_precision)
        return (outputs - excess.clamp(min=0)).clamp_(min=cls.min_output)

    def tempered(self, temperature: float) -> Dirichlet:
        mean = (self.log_mean / temperature).softmax(-1)
        return Dirichlet(self.precision.unsqueeze(-1) * mean)

    def widened(self, factor: Tensor) -> Dirichlet:
        return Dirichlet(self.concentrations / factor.unsqueeze(-1))

    def displaced(self, values: Tensor) -> Dirichlet:
        # The result has the mean, and the expected sum of squares, of the mixture of S
        # distributions of the same precision whose means have displaced logits.
        # Sums of positive terms: near a corner of the simplex, 1 minus the squares would have no
        # digit left.
        means = (self.log_mean + values.to(self.concentrations)).softmax(-1)
        mean = means.mean(0)
        # 1 - sum_k p_k^2 = 2 sum_{j < k} p_j p_k
        impurity = 2 * (means[..., 1:] * means.cumsum(-1)[..., :-1]).sum(-1).mean(0)
        variance = (means - mean).square().sum(-1).mean(0)
        least = torch.finfo(mean.dtype).tiny
        spread = (self.precision + 1) * variance + impurity
        precision = self.precision * impurity / spread.clamp(min=least)
        precision = precision.clamp(min=_LEAST_PRECISION)
        found = (precision.unsqueeze(-1) * mean).clamp(min=_LEAST_CONCENTRATION)
        are_added = (values != 0).any(0).any(-1, keepdim=True)
        return Dirichlet(torch.where(are_added, found, self.concentrations))

    @property
    def precision(self) -> Tensor:
        """Sum of the concentrations over the classes, of shape (n,): alpha_0."""
        return self.concentrations.sum(-1)

    @property
    def mean(self) -> Tensor:
        """Expected class probabilities, of shape (n, K); the predictive distribution (Eq. 8)."""
        return self.concentrations / self.precision.unsqueeze(-1)

    @property
    def log_mean(self) -> Tensor:
        """Log of :attr:`mean`, of shape (n, K)."""
        return self.concentrations.log() - self.precision.log().unsqueeze(-1)

    @property
    def expected_pairwise_kl(self) -> Tensor:
        """Expected divergence between two independent draws, of shape (n,), in nats.

        It is the epistemic part of :meth:`uncertainty` and :attr:`reverse_mutual_information`.
        """
        return (self.concentrations.shape[-1] - 1) / self.precision

    @property
    def reverse_mutual_information(self) -> Tensor:
        """Expected divergence of the mean from a draw, ``E KL(mean || p)``, of shape (n,), in nats.

        The mutual information is at most half of the minuend: the difference loses at most one bit.
        """
        mutual_information: Tensor = self.uncertainty().epistemic
        return self.expected_pairwise_kl - mutual_information

    @torch.no_grad()
    def uncertainty(self) -> Uncertainty:
        """Parts of the entropy of the mean, in closed form.

        The aleatoric part is the expected entropy of a draw, the epistemic part the mutual
        information of class and draw, the expected divergence of a draw from the mean (Eq. 9). No
        gradient passes through.
        """
        chunks = row_chunks(self.concentrations, _CHUNK // self.concentrations.shape[-1])
        parts = [_expected_entropy_and_information(chunk) for chunk in chunks]
        aleatoric, epistemic = (
            torch.cat(part).to(self.concentrations.dtype) for part in zip(*parts, strict=True)
        )
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="entropy")


def _expected_entropy_and_information(concentrations: Tensor) -> tuple[Tensor, Tensor]:
    """Expected entropy of draws, and mutual information, of shape (n,), in float64.

    With ``g(x) = digamma(x + 1) - log x``, which is positive and falls, the information is
    ``sum p_k (g(alpha_k) - g(alpha_0))`` and the entropy of the mean is ``-sum p_k log p_k``. Each
    term of the former is clipped to lie between zero and the term of the latter, so that rounding
    makes neither part negative.
    """
    alpha = concentrations.double()
    precision = alpha.sum(-1, keepdim=True)
    mean = alpha / precision
    surprise = mean.log().neg_()
    excess = digamma_excess(torch.cat((alpha, precision), dim=-1))
    share = (excess[..., :-1] - excess[..., -1:]).clamp_(min=0)
    share = torch.minimum(share, surprise, out=share)
    information = (mean * share).sum(-1)
    return surprise.sub_(share).mul_(mean).sum(-1), information
