# SPDX-License-Identifier: BSD-3-Clause
"""A normal-inverse-gamma distribution over the mean and the variance of a Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from .._utils.special import interpolation, polynomial
from ._gaussian import Gaussian
from ._protocol import Calibratable, NumericDistribution, ReadFromOutputs
from ._shared import (
    as_tensor_like,
    check_n_samples,
    check_targets,
    of_one_network,
    random_numbers,
)
from ._uncertainty import Uncertainty

# Degree of the polynomials for Student's quantiles in graphs; their relative error is below 1e-8.
_DEGREE = 16


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class NormalInverseGamma(NumericDistribution, Calibratable, ReadFromOutputs):
    """Gaussians whose mean and variance follow a normal-inverse-gamma distribution.

    Per sample and target, ``1 / variance ~ Gamma(alpha, rate=beta)`` and, given the variance,
    ``mean ~ N(mean, variance / nu)``. This is the normal-inverse-Wishart distribution of one target
    (Lindqvist et al., 2020, Eq. 11). The marginal of y is Student's t with ``2 alpha`` degrees of
    freedom, and all that is read off it has a closed form.

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
        clipped to [-7, 6], which caps the precision where members are identical: training fails
        where the likelihood may grow ever steeper.
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
        return self.mean + self.spread * self._standard_quantile(uniform, self.alpha)

    def closed_quantile(self, levels: np.ndarray) -> Tensor:
        standard = student_quantiles(2 * self.alpha, levels).to(self.spread)
        return self.mean.unsqueeze(-1) + self.spread.unsqueeze(-1) * standard

    def _standard_quantile(self, levels: Tensor, alpha: Tensor) -> Tensor:
        """Quantiles of Student's t with mean 0 and scale 1."""
        degrees = 2 * alpha.double().cpu().numpy()
        return torch.as_tensor(special.stdtrit(degrees, levels.cpu().numpy())).to(self.mean)

    def _tail_quantile(self, tail: Tensor, upper: Tensor) -> Tensor:
        sign = 1 - 2 * upper.to(self.mean)  # an upper tail is a lower one of -y
        deviation = self._standard_quantile(tail, self.alpha.unsqueeze(-1))
        return self.mean.unsqueeze(-1) + self.spread.unsqueeze(-1) * (sign * deviation)


def t_log_density(square: Tensor, log_spread: Tensor, alpha: Tensor, size: int) -> Tensor:
    """Log density of multivariate t with ``2 alpha`` degrees of freedom.

    `square` is the squared distance of y in units of the spread, `log_spread` the logarithm of the
    spread, both summed over the `size` targets.
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
