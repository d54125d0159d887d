# SPDX-License-Identifier: BSD-3-Clause
"""Distributions of which posterior expectations are known: what a GPED student predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ._categorical import EmpiricalCategorical
from ._gaussian import EmpiricalGaussian
from ._protocol import ClassDistribution, NumericDistribution
from ._uncertainty import Uncertainty


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class ExpectedCategorical(ClassDistribution):
    """Posterior expectations of class probabilities and of their entropy (Vadera et al., 2020).

    Nothing more is known of the distribution over class probabilities, and nothing more is needed
    for the parts of the uncertainty.
    """

    log_mean: Tensor  # (n, K), of the expected class probabilities, the predictive distribution
    entropy: Tensor | None = None  # (n,), expected, in nats; None where it is not known

    @property
    def mean(self) -> Tensor:
        """Expected class probabilities, of shape (n, K)."""
        return self.log_mean.exp()

    def displaced(self, values: Tensor) -> ExpectedCategorical:
        # The expected entropy changes by the factor by which that of the predictive distribution
        # does, on average over the functions.
        found = EmpiricalCategorical.from_logits(self.log_mean + values.to(self.log_mean))
        entropy = self.entropy
        if entropy is not None:
            before = torch.special.entr(self.mean).sum(-1)
            least = torch.finfo(before.dtype).tiny
            entropy = entropy * found.uncertainty().aleatoric / before.clamp(min=least)
        return ExpectedCategorical(found.log_mean, entropy)

    @torch.no_grad()
    def uncertainty(self) -> Uncertainty:
        """Parts of the entropy of the predictive distribution (Eq 3).

        The aleatoric part is the expected entropy, at most the total; the epistemic part is the
        rest. Where the expected entropy is not known, both parts are None. No gradient passes
        through.
        """
        total = torch.special.entr(self.mean).sum(-1)
        if self.entropy is None:
            return Uncertainty(total, None, None, measure="entropy")
        aleatoric = torch.minimum(self.entropy, total)
        epistemic = total - aleatoric
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="entropy")


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class ExpectedGaussian(NumericDistribution):
    """Posterior expectations of Gaussians' means and variances, and the variance of the means.

    These are the moments of the mixture of Gaussians that an ensemble, or a posterior, predicts.
    Quantiles, density and draws are those of the Gaussian with the same moments. All have the shape
    (n, t), in units of y and their squares.
    """

    mean: Tensor  # expected
    aleatoric: Tensor  # expected variance
    epistemic: Tensor  # variance of the mean

    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> ExpectedGaussian:
        loc, scale = (torch.as_tensor(value).to(self.mean) for value in (loc, scale))
        variances = scale.square() * self.aleatoric, scale.square() * self.epistemic
        return ExpectedGaussian(loc + scale * self.mean, *variances)

    def with_mean_variance(self, variance: Tensor) -> ExpectedGaussian:
        return replace(self, epistemic=self.epistemic + variance.to(self.epistemic))

    def uncertainty(self) -> Uncertainty:
        total = self.aleatoric + self.epistemic
        return Uncertainty(total, self.aleatoric, self.epistemic, measure="variance")

    def log_prob(self, y: Tensor) -> Tensor:
        return self._predictive.log_prob(y)

    def cdf(self, y: Tensor) -> Tensor:
        return self._predictive.cdf(y)

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        return self._predictive.sample(n_samples, generator)

    @property
    def _predictive(self) -> EmpiricalGaussian:
        """The Gaussian with these moments, as an ensemble of one member."""
        return EmpiricalGaussian(self.mean.unsqueeze(0), self.variance.unsqueeze(0))

    def closed_quantile(self, levels: np.ndarray) -> Tensor | None:
        return self._predictive.closed_quantile(levels)

    def _tail_quantile(self, tail: Tensor, upper: Tensor) -> Tensor:
        return self._predictive._tail_quantile(tail, upper)
