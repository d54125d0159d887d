# SPDX-License-Identifier: BSD-3-Clause
"""A normal-inverse-Wishart distribution over the mean and the covariance of a Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ._gaussian import Gaussian
from ._normal_inverse_gamma import NormalInverseGamma, t_log_density
from ._protocol import NumericDistribution, ReadFromOutputs
from ._shared import check_n_samples, check_targets, of_one_network, random_numbers
from ._uncertainty import Uncertainty


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class NormalInverseWishart(NumericDistribution, ReadFromOutputs):
    """Gaussians of several targets whose mean and covariance are normal-inverse-Wishart.

    Per row, the covariance follows an inverse Wishart distribution with the scale matrix
    ``diag(psi)`` and, given it, ``mean ~ N(mean, covariance / nu)`` (Lindqvist et al., 2020, Eq.
    11). The marginal of y is a multivariate t distribution with ``degrees - t + 1`` degrees of
    freedom: targets are uncorrelated, but where one is far off, the others probably are too. Each
    target by itself is :attr:`marginals`.

    Parameters
    ----------
    mean : Tensor of shape (n, t)
        Expectation of the mean, in units of y; the mean of y.
    nu : Tensor of shape (n, 1)
        Positive: the noise variance divided by the variance of the mean.
    degrees : Tensor of shape (n, 1)
        Degrees of freedom of the covariance, more than t + 1.
    psi : Tensor of shape (n, t)
        Positive, in squared units of y: the diagonal of the scale matrix. The most likely one is
        diagonal wherever the members' covariances are.
    """

    mean: Tensor
    nu: Tensor
    degrees: Tensor
    psi: Tensor

    output_limits: ClassVar[tuple[float, float]] = NormalInverseGamma.output_limits

    @classmethod
    def from_outputs(cls, outputs: Tensor) -> NormalInverseWishart:
        """Read outputs (n, 2 t + 2) of a network.

        Blocks of t columns are the expectation of the mean, and the raw value of the harmonic mean
        ``psi / degrees`` of the variance, which is ``softplus(raw) + 1e-6``; then come ``log nu``
        and ``log((degrees - t - 1) / 2)``, both within the limits of
        :meth:`NormalInverseGamma.from_outputs`.
        """
        outputs = of_one_network(outputs, 2, "2 t + 2 for t targets", at_least=4)
        gaussian, logarithms = outputs.tensor_split([-2], dim=-1)
        mean, harmonic = Gaussian.from_outputs(gaussian)
        nu, excess = logarithms.clamp(*cls.output_limits).exp().chunk(2, dim=-1)
        degrees = mean.shape[-1] + 1 + 2 * excess
        return cls(mean, nu, degrees, degrees * harmonic)

    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> NormalInverseWishart:
        loc, scale = (torch.as_tensor(value).to(self.mean) for value in (loc, scale))
        psi = scale.square() * self.psi
        return NormalInverseWishart(loc + scale * self.mean, self.nu, self.degrees, psi)

    def with_mean_variance(self, variance: Tensor) -> NormalInverseWishart:
        # Targets share nu: the epistemic part of each grows by the mean factor of all.
        epistemic = self.uncertainty().epistemic
        ratio = variance.to(epistemic) / epistemic
        return replace(self, nu=self.nu / (1 + ratio.mean(-1, keepdim=True)))

    @property
    def marginals(self) -> NormalInverseGamma:
        """Distribution of each target by itself, of shape (n, t)."""
        alpha = 0.5 * (self.degrees - self.mean.shape[-1] + 1)
        nu, alpha = self.nu.expand_as(self.mean), alpha.expand_as(self.mean)
        return NormalInverseGamma(self.mean, nu, alpha, 0.5 * self.psi)

    def uncertainty(self) -> Uncertainty:
        """Parts of the variance by the law of total variance, in closed form.

        The aleatoric part is the expected variance ``psi / (degrees - t - 1)``, the epistemic part
        the variance of the mean, the aleatoric part over nu: the same share for all targets.
        """
        return self.marginals.uncertainty()

    def log_prob(self, y: Tensor) -> Tensor:
        """Joint log density of the targets under the multivariate t distribution, per sample: (n,).

        ``marginals.log_prob`` is that of each target by itself.
        """
        check_targets(y, self.mean)
        marginals = self.marginals
        square = ((y - self.mean) / marginals.spread).square().sum(-1)
        log_spread = marginals.spread.log().sum(-1)
        return t_log_density(square, log_spread, marginals.alpha[:, 0], y.shape[-1])

    def cdf(self, y: Tensor) -> Tensor:
        return self.marginals.cdf(y)

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_n_samples(n_samples)
        draw = partial(random_numbers, generator=generator, like=self.mean, dtype=torch.float64)
        normal = draw(torch.randn, (n_samples, 1, self.mean.shape[1]))
        level = draw(torch.rand, (n_samples, 1, 1))  # of what the targets of a sample share
        level.clamp_(min=torch.finfo(level.dtype).tiny)  # no draw is infinite
        marginals = self.marginals
        alpha = marginals.alpha[:, :1].double().cpu().numpy()
        precision = special.gammaincinv(alpha, level.cpu().numpy()) / alpha  # its mean is 1
        inflation = torch.as_tensor(precision**-0.5).to(self.mean)
        return self.mean + marginals.spread * inflation * normal.to(self.mean)

    def closed_quantile(self, levels: np.ndarray) -> Tensor:
        return self.marginals.closed_quantile(levels)

    def _tail_quantile(self, tail: Tensor, upper: Tensor) -> Tensor:
        return self.marginals._tail_quantile(tail, upper)
