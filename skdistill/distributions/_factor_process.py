# SPDX-License-Identifier: BSD-3-Clause
"""A Gaussian process of which a few factors are common to all samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._shared import check_n_samples, random_numbers


class FactorProcess(NamedTuple):
    """Functions ``f(x) = mean(x) + loadings(x)^T z + sqrt(residual(x)) e(x)``, at n samples.

    The factors z are standard normal and the same for all samples and all p values of a function, e
    is standard normal and independent for each (Park et al., 2025). So the covariance of two
    samples is ``loadings(x)^T loadings(x')``, and ``variance`` that of a sample.
    """

    mean: Tensor  # (n, p)
    loadings: Tensor  # (n, q, p)
    residual: Tensor  # (n, p), variance that no factor explains; the paper's is that of all samples

    @classmethod
    def of_shares(cls, mean: Tensor, variance: Tensor, raw_loadings: Tensor) -> FactorProcess:
        """Divide variances (n, p) between factors and residual, whose shares are ``|w|^2`` to 1.

        The raw loadings (n, q p) are, for each factor, the entries of w for the p values.
        """
        raw = raw_loadings.unflatten(-1, (-1, mean.shape[-1]))
        residual = variance / (1 + raw.square().sum(-2))
        return cls(mean, residual.sqrt().unsqueeze(-2) * raw, residual)

    @property
    def variance(self) -> Tensor:
        """Variance of each value, of shape (n, p)."""
        return self.loadings.square().sum(-2) + self.residual

    def draw(
        self, n_draws: int, generator: torch.Generator | None = None, with_residual: bool = True
    ) -> Tensor:
        """Draw functions (n_draws, n, p), with e for each sample by itself, or without it."""
        check_n_samples(n_draws)
        shape = (n_draws, self.loadings.shape[-2])
        factors = random_numbers(torch.randn, shape, generator, self.mean)
        drawn = self.mean + torch.einsum("sq,nqp->snp", factors, self.loadings)
        if with_residual:
            own = random_numbers(torch.randn, tuple(drawn.shape), generator, self.mean)
            drawn = drawn + self.residual.sqrt() * own
        return drawn
