# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the mean and the raw variance of a Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ._gaussian import Gaussian
from ._protocol import Calibratable, NumericDistribution, ReadFromOutputs
from ._shared import (
    Uncertainty,
    as_tensor_like,
    check_n_samples,
    check_targets,
    normal_cdf,
    of_one_network,
    random_numbers,
)

# Gauss-Hermite quadrature for N(0, 1): E softplus has relative errors of 1e-14, 3e-8 and 6e-6 for
# standard deviations of the raw variance of 1, 2 and 3.
_NODES, _WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.hermite.hermgauss(32))
_NODES, _WEIGHTS = math.sqrt(2) * _NODES, _WEIGHTS / math.sqrt(math.pi)

_OVERLAP = 0.1  # least variance of z1 given z2, relative to the variance of z1 that z2 explains


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class GaussianNormal(NumericDistribution, Calibratable, ReadFromOutputs):
    """Gaussians whose mean and raw variance z = (z1, z2) follow a normal distribution.

    Per sample and target, y given z is ``N(z1, softplus(z2) + 1e-6)``, and z is normal: what a
    student of ensemble distribution distillation predicts for regression (Lindqvist et al., 2020,
    Eqs 12 and 13). ``z1 = mean + slope (z2 - raw_mean)`` plus an independent deviation.

    Parameters
    ----------
    mean, raw_mean : Tensor of shape (n, t)
        Expectations of z1, in units of y, which is the mean of y, and of z2.
    conditional_variance, raw_variance : Tensor of shape (n, t)
        Variances of z1 given z2, in squared units of y, and of z2.
    slope : Tensor of shape (n, t) or (1, t)
        ``Cov(z1, z2) / Var z2``, in units of y; zeros for a diagonal covariance.
    scale : Tensor of shape (t,)
        Unit of y in which the noise is measured: its variance is
        ``scale^2 (softplus(z2) + 1e-6)``.

    Notes
    -----
    In density and quantiles z1 is integrated out exactly, z2 by quadrature with 32 nodes: the
    density is that of a mixture of 32 Gaussians with the mean and the variance of y. So that these
    overlap, a correlation of z1 and z2 beyond .953 counts as .953 there.
    """

    mean: Tensor
    raw_mean: Tensor
    conditional_variance: Tensor
    raw_variance: Tensor
    slope: Tensor
    scale: Tensor

    outputs_per_target: ClassVar[dict[str, int]] = {"diagonal": 4, "full": 5}
    min_variance: ClassVar[float] = 1e-6  # of y given z
    # Of z on standardised targets: members that learn a noise-free y agree to 1e-3 and better.
    min_variance_of_z: ClassVar[float] = 1e-8
    component_weights: ClassVar[np.ndarray] = _WEIGHTS.numpy()

    @classmethod
    def from_outputs(cls, outputs: Tensor, covariance: str = "diagonal") -> GaussianNormal:
        """Read outputs (n, 4 t), or (n, 5 t) for a "full" `covariance` of z1 and z2, of a network.

        Blocks of t columns are the expectation of z1, that of z2, the raw variance of z1 given z2,
        that of z2 and, for a full covariance, the slope. Variances are ``softplus(raw) + 1e-8``. An
        unknown covariance is a ValueError too.
        """
        if covariance not in cls.outputs_per_target:
            raise ValueError(
                f"covariance must be one of {sorted(cls.outputs_per_target)}, got {covariance!r}."
            )
        n_blocks = cls.outputs_per_target[covariance]
        what = f"{n_blocks} t for a {covariance} covariance and t targets"
        outputs = of_one_network(outputs, n_blocks, what)
        n_targets = outputs.shape[1] // n_blocks
        means, variances = Gaussian.from_outputs(outputs[:, : 4 * n_targets], cls.min_variance_of_z)
        is_full = covariance == "full"
        slope = outputs[:, 4 * n_targets :] if is_full else means.new_zeros(1, n_targets)
        mean, raw_mean = means.chunk(2, dim=-1)
        conditional_variance, raw_variance = variances.chunk(2, dim=-1)
        scale = means.new_ones(n_targets)
        return cls(mean, raw_mean, conditional_variance, raw_variance, slope, scale)

    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> GaussianNormal:
        loc, scale = (torch.as_tensor(value).to(self.mean) for value in (loc, scale))
        return GaussianNormal(
            loc + scale * self.mean,
            self.raw_mean,
            scale.square() * self.conditional_variance,
            self.raw_variance,
            scale * self.slope,
            scale.abs() * self.scale,
        )

    def tempered(self, temperature: Any) -> GaussianNormal:
        return replace(self, scale=as_tensor_like(temperature, self.scale).sqrt() * self.scale)

    def widened(self, factor: Tensor) -> GaussianNormal:
        conditional_variance = factor * self.conditional_variance
        slope = factor.sqrt() * self.slope
        return replace(self, conditional_variance=conditional_variance, slope=slope)

    def with_mean_variance(self, variance: Tensor) -> GaussianNormal:
        added = variance.to(self.conditional_variance)
        return replace(self, conditional_variance=self.conditional_variance + added)

    def uncertainty(self) -> Uncertainty:
        """Parts of the variance by the law of total variance (Eqs 4a to 4c and 15 of the paper).

        The aleatoric part is the expected noise variance, by Gauss-Hermite quadrature; the
        epistemic part is the variance of z1.
        """
        nodes, weights = _NODES.to(self.mean), _WEIGHTS.to(self.mean)
        std = self.raw_variance.sqrt().unsqueeze(-1)
        raw = torch.addcmul(self.raw_mean.unsqueeze(-1), std, nodes)  # nodes last: fast in ONNX too
        expected = F.softplus(raw).mul_(weights).sum(-1)
        aleatoric = self.scale.square() * (expected + self.min_variance)  # Eq 4b
        epistemic = self.conditional_variance + self.slope.square() * self.raw_variance  # Eq 4c
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="variance")

    def components(self) -> tuple[Tensor, Tensor]:
        """Means and variances of the Gaussians whose mixture y follows, by quadrature.

        Returns
        -------
        means, variances : Tensor of shape (32, n, t)
            Their weights are ``component_weights``.
        """
        # Nodes of z2, as deviations from its expectation, (32, n, t).
        raw = self.raw_variance.sqrt() * _NODES.to(self.mean).view(-1, 1, 1)
        explained = self.slope.square() * self.raw_variance
        # The part of it that counts as independent of z2, so that neighbouring Gaussians overlap.
        moved = (_OVERLAP * explained - self.conditional_variance).clamp(min=0) / (1 + _OVERLAP)
        share = moved / explained.clamp(min=torch.finfo(explained.dtype).tiny)
        means = self.mean + self.slope * (1 - share).sqrt() * raw
        return means, self.conditional_variance + moved + self._noise(raw)

    def log_prob(self, y: Tensor) -> Tensor:
        check_targets(y, self.mean)
        means, variances = self.components()
        log_densities = -0.5 * ((y - means).square() / variances + (2 * math.pi * variances).log())
        return (log_densities + _WEIGHTS.log().to(self.mean).view(-1, 1, 1)).logsumexp(dim=0)

    def cdf(self, y: Tensor) -> Tensor:
        check_targets(y, self.mean)
        means, variances = self.components()
        masses = normal_cdf((y - means) / variances.sqrt())
        return torch.einsum("q,q...->...", _WEIGHTS.to(self.mean), masses)

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_n_samples(n_samples)
        shape = (2, n_samples, 1, self.mean.shape[1])
        raw, noise = random_numbers(torch.randn, shape, generator, self.mean)
        raw = self.raw_variance.sqrt() * raw
        variance = self.conditional_variance + self._noise(raw)
        drawn: Tensor = self.mean + self.slope * raw + variance.sqrt() * noise
        return drawn

    def _noise(self, raw: Tensor) -> Tensor:
        """Noise variance, given the deviation of z2 from its expectation."""
        return self.scale.square() * (F.softplus(self.raw_mean + raw) + self.min_variance)  # Eq 12

    def _at_levels(self, levels: np.ndarray) -> Tensor:
        if self.slope.any():
            return super()._at_levels(levels)
        # The mixture is symmetric: a lower tail tells the upper one.
        tails, place = np.unique(np.minimum(levels, 1 - levels), return_inverse=True)
        sign = as_tensor_like(np.where(levels > 0.5, -1.0, 1.0), self.mean)
        below = replace(self, mean=torch.zeros_like(self.mean))
        found = super(GaussianNormal, below)._at_levels(tails)
        found = found.index_select(-1, torch.tensor(place.tolist(), device=found.device))
        return torch.addcmul(self.mean.unsqueeze(-1), sign, found)
