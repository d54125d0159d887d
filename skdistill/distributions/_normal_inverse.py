# SPDX-License-Identifier: BSD-3-Clause
"""Normal-inverse-gamma and normal-inverse-Wishart distributions over Gaussians' parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from .._utils.special import interpolation, polynomial
from ._gaussian import Gaussian
from ._protocol import Calibratable, NumericDistribution, ReadFromOutputs
from ._shared import (
    Uncertainty,
    as_tensor_like,
    check_n_samples,
    check_targets,
    of_one_network,
    random_numbers,
)

_DEGREE = 16  # of polynomials for Student's quantiles in graphs: relative errors below 1e-8


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class NormalInverseGamma(NumericDistribution, Calibratable, ReadFromOutputs):
    """Gaussians whose mean and variance follow a normal-inverse-gamma distribution.

    Per sample and target, ``1 / variance ~ Gamma(alpha, rate=beta)`` and, given the variance,
    ``mean ~ N(mean, variance / nu)``: the normal-inverse-Wishart distribution of one target
    (Lindqvist et al., 2020, Eq. 11). The marginal of y is Student's t with ``2 alpha`` degrees of
    freedom.

    Parameters
    ----------
    mean : Tensor of shape (n, t)
        Expectation of the mean, in units of y; the mean of y.
    nu : Tensor of shape (n, t)
        Positive: the noise variance divided by the variance of the mean.
    alpha, beta : Tensor of shape (n, t)
        Shape, more than 1, and rate, in squared units of y, of the precision's distribution.
    """

    mean: Tensor
    nu: Tensor
    alpha: Tensor
    beta: Tensor

    outputs_per_target: ClassVar[int] = 4
    output_limits: ClassVar[tuple[float, float]] = (-7.0, 6.0)  # of log nu and log(alpha - 1)

    @classmethod
    def from_outputs(cls, outputs: Tensor) -> NormalInverseGamma:
        """Read outputs (n, 4 t) of a network.

        Blocks of t columns are the expectation of the mean, the raw value of the harmonic mean
        ``beta / alpha`` of the variance, which is ``softplus(raw) + 1e-6`` and whose most likely
        value does not depend on alpha, ``log nu`` and ``log(alpha - 1)``. These logarithms are
        clipped to [-7, 6]: training fails where identical members let the likelihood grow steeper.
        """
        outputs = of_one_network(outputs, cls.outputs_per_target, "4 t for t targets")
        gaussian, logarithms = outputs.chunk(2, dim=-1)
        mean, harmonic = Gaussian.from_outputs(gaussian)
        nu, excess = logarithms.clamp(*cls.output_limits).exp().chunk(2, dim=-1)
        alpha = 1 + excess
        return cls(mean, nu, alpha, alpha * harmonic)

    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> NormalInverseGamma:
        loc, scale = (torch.as_tensor(value).to(self.mean) for value in (loc, scale))
        beta = scale.square() * self.beta
        return NormalInverseGamma(loc + scale * self.mean, self.nu, self.alpha, beta)

    def tempered(self, temperature: Any) -> NormalInverseGamma:
        temperature = as_tensor_like(temperature, self.nu)
        return replace(self, nu=temperature * self.nu, beta=temperature * self.beta)

    def widened(self, factor: Tensor) -> NormalInverseGamma:
        return replace(self, nu=self.nu / factor)

    def with_mean_variance(self, variance: Tensor) -> NormalInverseGamma:
        aleatoric = self.beta / (self.alpha - 1)
        return replace(self, nu=aleatoric / (aleatoric / self.nu + variance.to(self.nu)))

    @property
    def spread(self) -> Tensor:
        """Scale of Student's t, of shape (n, t), in units of y."""
        return (self.beta / self.alpha * (1 + 1 / self.nu)).sqrt()

    def uncertainty(self) -> Uncertainty:
        """Parts of the variance by the law of total variance, in closed form.

        The aleatoric part is the expected variance ``beta / (alpha - 1)``, the epistemic part the
        variance of the mean, the aleatoric part over nu.
        """
        aleatoric = self.beta / (self.alpha - 1)
        epistemic = aleatoric / self.nu
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="variance")

    def log_prob(self, y: Tensor) -> Tensor:
        check_targets(y, self.mean)
        square = ((y - self.mean) / self.spread).square()
        return t_log_density(square, self.spread.log(), self.alpha, 1)

    @torch.no_grad()
    def cdf(self, y: Tensor) -> Tensor:
        check_targets(y, self.mean)
        score = ((y - self.mean) / self.spread).double().cpu().numpy()
        masses = special.stdtr(2 * self.alpha.double().cpu().numpy(), score)
        return torch.as_tensor(masses).to(self.mean)

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_n_samples(n_samples)
        shape = (n_samples, 1, self.mean.shape[1])
        uniform = random_numbers(torch.rand, shape, generator, self.mean, torch.float64)
        uniform.clamp_(min=torch.finfo(torch.float64).tiny)  # the quantile of 0 is infinite
        standard = special.stdtrit(2 * self.alpha.double().cpu().numpy(), uniform.cpu().numpy())
        return self.mean + self.spread * as_tensor_like(standard, self.mean)

    def closed_quantile(self, levels: np.ndarray) -> Tensor:
        standard = student_quantiles(2 * self.alpha, levels).to(self.spread)
        return self.mean.unsqueeze(-1) + self.spread.unsqueeze(-1) * standard

    def _at_levels(self, levels: np.ndarray) -> Tensor:
        tail, sign = np.minimum(levels, 1 - levels), np.where(levels > 0.5, -1.0, 1.0)
        degrees = 2 * self.alpha.double().cpu().numpy()[..., None]
        standard = as_tensor_like(sign * special.stdtrit(degrees, tail), self.mean)
        return self.mean.unsqueeze(-1) + self.spread.unsqueeze(-1) * standard


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class NormalInverseWishart(NumericDistribution, ReadFromOutputs):
    """Gaussians of several targets whose mean and covariance are normal-inverse-Wishart.

    Per row, the covariance follows an inverse Wishart distribution with the scale matrix
    ``diag(psi)`` and, given it, ``mean ~ N(mean, covariance / nu)`` (Lindqvist et al., 2020, Eq.
    11). The marginal of y is a multivariate t distribution with ``degrees - t + 1`` degrees of
    freedom: targets are uncorrelated, but where one is far off, the others probably are too.

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
        ``psi / degrees`` of the variance; then come ``log nu`` and ``log((degrees - t - 1) / 2)``,
        all as in :meth:`NormalInverseGamma.from_outputs`.
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

        That of each target by itself is ``marginals.log_prob``.
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

    def _at_levels(self, levels: np.ndarray) -> Tensor:
        return self.marginals._at_levels(levels)


def t_log_density(square: Tensor, log_spread: Tensor, alpha: Tensor, size: int) -> Tensor:
    """Log density of multivariate t with ``2 alpha`` degrees of freedom.

    The square of y in units of the spread, and the log spread, are sums over the `size` targets.
    """
    double = alpha.double()  # the logarithms of Gamma are large, and cancel
    log_kernel = (double + 0.5 * size) * torch.log1p(square / (2 * double))
    log_normaliser = (
        double.lgamma()
        - (double + 0.5 * size).lgamma()
        + 0.5 * size * (2 * math.pi * double).log()
        + log_spread
    )
    return -(log_kernel + log_normaliser).to(alpha.dtype)


def student_quantiles(degrees: Tensor, q: np.ndarray) -> Tensor:
    """Quantiles (..., k) of Student's t with at least two degrees of freedom (...), in float64.

    The logarithm of their ratio to those of the normal distribution is a polynomial in
    ``1 / degrees``, which interpolates scipy's values; there is one for each level.
    """
    normal = special.ndtri(q)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        exact = special.stdtrit(4 / (1 + x[:, None]), q)
        ratio = np.divide(exact, normal, np.ones_like(exact), where=normal != 0)
        found: np.ndarray = np.log(ratio)
        return found

    x = 4 / degrees.double().unsqueeze(-1) - 1  # -1 at infinitely many degrees, 1 at two
    return torch.tensor(normal) * polynomial(interpolation(log_ratio, _DEGREE), x).exp()
