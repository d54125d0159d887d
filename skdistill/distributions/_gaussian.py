# SPDX-License-Identifier: BSD-3-Clause
"""Distributions over Gaussians: of an ensemble's members, of known moments, of common factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn import functional as F

from ._protocol import Calibratable, NumericDistribution, ReadFromOutputs
from ._shared import (
    Uncertainty,
    as_tensor_like,
    check_n_samples,
    check_targets,
    normal_cdf,
    random_numbers,
)


class Gaussian(NamedTuple):
    """Mean and variance of Gaussians, tensors of one shape."""

    mean: Tensor
    variance: Tensor

    @classmethod
    def from_outputs(cls, outputs: Tensor, min_variance: float = 1e-6) -> Gaussian:
        """Read network outputs: the means, then as many raw variances.

        Parameters
        ----------
        outputs : Tensor of shape (..., 2 t)
        min_variance : float, default=1e-6
            Added to the softplus of the raw variances.

        Returns
        -------
        Gaussian of shape (..., t)
        """
        mean, raw_variance = outputs.tensor_split(2, dim=-1)
        raw_variance = raw_variance.contiguous()  # softplus is ten times slower on strides
        return cls(mean, F.softplus(raw_variance) + min_variance)  # Lindqvist et al., Eq. 12


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class EmpiricalGaussian(NumericDistribution, Calibratable, ReadFromOutputs):
    """Members of equal weight, each of which predicts a Gaussian for every sample and target.

    As a distribution over Gaussians it tells aleatoric from epistemic uncertainty; averaged over
    the members it is, per sample and target, the mixture
    ``1/S sum_s N(means[s], variances[s] + mean_variance)``, which is the predictive distribution of
    a deep ensemble.

    Parameters
    ----------
    means, variances : Tensor of shape (S, n, t)
        Mean and variance of each of S members for n samples and t targets, in units of y and their
        squares. Variances are positive; quantiles and samples also take zero, a member that
        predicts a point.
    mean_variance : Tensor of shape (n, t), default=None
        Variance, in squared units of y, by which each member's mean is uncertain, normally
        distributed around `means`. It is epistemic, and no part of `members`. None is 0. With one
        member it is what a GPED student predicts: the moments of a posterior's mixture.
    """

    means: Tensor
    variances: Tensor
    mean_variance: Tensor | None = None

    def __post_init__(self) -> None:
        if self.means.ndim != 3 or self.means.shape != self.variances.shape:
            raise ValueError(
                "means and variances must have one shape (S, n, t), got "
                f"{tuple(self.means.shape)} and {tuple(self.variances.shape)}."
            )

    @classmethod
    def from_outputs(cls, outputs: Tensor, min_variance: float = 1e-6) -> EmpiricalGaussian:
        """Read outputs (S, n, 2 t) of networks: the means, then as many raw variances.

        A variance is the softplus of the raw one plus `min_variance`, in squared units of y.
        """
        return cls(*Gaussian.from_outputs(outputs, min_variance))

    @classmethod
    def from_members(cls, members: Tensor | np.ndarray) -> EmpiricalGaussian:
        """Inverse of :attr:`members`.

        Parameters
        ----------
        members : Tensor or array of shape (n, S, t, 2)
            Means ``[..., 0]`` and variances ``[..., 1]``, samples first. A tensor is viewed,
            anything else is copied.

        Returns
        -------
        EmpiricalGaussian
        """
        if not isinstance(members, Tensor):
            members = torch.from_numpy(np.array(members))
        if members.ndim != 4 or members.shape[-1] != 2:
            raise ValueError(
                "members must have shape (n, S, t, 2): samples, members, targets, (mean, "
                f"variance); got {tuple(members.shape)}."
            )
        return cls(*members.transpose(0, 1).unbind(-1))

    @property
    def members(self) -> Tensor:
        """Means and variances, samples first: a tensor of shape (n, S, t, 2)."""
        return torch.stack((self.means.transpose(0, 1), self.variances.transpose(0, 1)), dim=-1)

    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> EmpiricalGaussian:
        loc, scale = as_tensor_like(loc, self.means), as_tensor_like(scale, self.means)
        squared, means = scale * scale, torch.addcmul(loc, scale, self.means)
        further = None if self.mean_variance is None else squared * self.mean_variance
        return EmpiricalGaussian(means, squared * self.variances, further)

    def tempered(self, temperature: Any) -> EmpiricalGaussian:
        temperature = as_tensor_like(temperature, self.variances)
        return replace(self, variances=temperature * self.variances)

    def widened(self, factor: Any) -> EmpiricalGaussian:
        factor, mean = as_tensor_like(factor, self.means), self.mean
        further = None if self.mean_variance is None else factor * self.mean_variance
        means = mean + factor.sqrt() * (self.means - mean)
        return EmpiricalGaussian(means, self.variances, further)

    def pooled(
        self, is_second: Sequence[bool], weight: float, factor: Any = 1.0
    ) -> EmpiricalGaussian:
        """Weigh two groups of members, as members of equal weight with the same moments.

        The mean is that of the groups' mixture, and so are the aleatoric variance and the epistemic
        one, of which `factor` multiplies the part within the groups.

        Parameters
        ----------
        is_second : sequence of S bools
            Which members are of the second group; neither group is empty.
        weight : float
            Weight of the second group, between 0 and 1; that of the first is ``1 - weight``.
        factor : float or Tensor of shape (t,), default=1.0

        Returns
        -------
        EmpiricalGaussian
        """
        members = np.array([np.logical_not(is_second), is_second], dtype=float)  # (2, S)
        shares, weights = members.mean(1), np.array([1 - weight, weight])
        average = as_tensor_like(members / members.sum(1, keepdims=True), self.means)
        means, noise = (torch.tensordot(average, v, dims=1) for v in (self.means, self.variances))
        mean, variance = ((1 - weight) * v[0] + weight * v[1] for v in (means, noise))
        # Groups of shares p and 1 - p stand at distances whose mean is 0, and whose mean square is
        # that of groups of these weights.
        offsets = np.sqrt(weight * (1 - weight) * shares[::-1] / shares) * (-1, 1)
        offsets, within = (
            as_tensor_like(values[:, None, None], self.means)
            for values in (offsets, np.sqrt(weights / shares))
        )
        factor = as_tensor_like(factor, self.means)
        group = torch.tensor(is_second, dtype=torch.int64, device=self.means.device)
        further = None if self.mean_variance is None else factor * self.mean_variance

        def of_member(of_groups: Tensor) -> Tensor:
            return of_groups.index_select(0, group)

        return EmpiricalGaussian(
            mean
            + of_member(offsets) * (means[1] - means[0])
            + factor.sqrt() * of_member(within) * (self.means - of_member(means)),
            self.variances * of_member(variance / noise),
            further,
        )

    def with_mean_variance(self, variance: Tensor) -> EmpiricalGaussian:
        variance = variance.to(self.means)
        further = variance if self.mean_variance is None else self.mean_variance + variance
        return EmpiricalGaussian(self.means, self.variances, further)

    def displaced(self, values: Tensor) -> EmpiricalGaussian:
        """Add a function to each member's mean; a single member is less sure by all of them.

        Parameters
        ----------
        values : Tensor of shape (S, n, t)
            Values of the functions at the samples, of mean 0 over the functions.

        Returns
        -------
        EmpiricalGaussian
        """
        values = values.to(self.means)
        if len(self.means) == 1:
            return replace(self, variances=self.variances + values.square().mean(0))
        return replace(self, means=self.means + values)

    def components(self) -> tuple[Tensor, Tensor]:
        """Means and variances of the Gaussians of the predictive density.

        Returns
        -------
        means, variances : Tensor of shape (S, n, t)
        """
        further = self.mean_variance
        return self.means, self.variances if further is None else self.variances + further

    @property
    def component_weights(self) -> np.ndarray:
        """Weights of these Gaussians, all 1: an array of shape (S,)."""
        return np.ones(len(self.means))

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, of shape (n, t)."""
        first = self.means.select(0, 0)
        return first + (self.means - first).mean(dim=0)

    def uncertainty(self) -> Uncertainty:
        """Parts of the variance by the law of total variance (Lindqvist et al., Eqs 4a to 4c).

        The epistemic part is the population variance (1/S) of the means, zero where they agree, and
        their own variance if they have one.
        """
        shifted = self.means - self.means.select(0, 0)  # of a common offset, before rounding
        centred = shifted - shifted.mean(dim=0)
        aleatoric = self.variances.mean(dim=0)  # Eq. 4b
        epistemic = (centred * centred).mean(dim=0)  # Eq. 4c
        if self.mean_variance is not None:
            epistemic = epistemic + self.mean_variance
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="variance")

    def log_prob(self, y: Tensor) -> Tensor:
        z, variances = self._standardise(y)
        log_densities = -0.5 * (z.square() + (2 * math.pi * variances).log())
        return log_densities.logsumexp(dim=0) - math.log(len(self.means))

    def cdf(self, y: Tensor) -> Tensor:
        z, _ = self._standardise(y)
        return normal_cdf(z).mean(dim=0)

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_n_samples(n_samples)
        n_members, _, n_targets = self.means.shape
        # Draw i takes one member for all samples, and so is a plausible function of x plus noise.
        choose = partial(torch.randint, n_members)
        member = random_numbers(choose, (n_samples,), generator, self.means, torch.int64)
        noise = random_numbers(torch.randn, (n_samples, 1, n_targets), generator, self.means)
        means, variances = self.components()
        return means[member] + variances[member].sqrt() * noise

    def closed_quantile(self, levels: np.ndarray) -> Tensor | None:
        if len(self.means) > 1:
            return None
        standard = torch.tensor(special.ndtri(levels))
        scale = self.variance.sqrt()
        return self.mean.unsqueeze(-1) + scale.unsqueeze(-1) * standard.to(scale)

    def _standardise(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Standard scores of y under each Gaussian, and the variances, each (S, n, t)."""
        check_targets(y, self.means[0])
        means, variances = self.components()
        return (y - means) / variances.sqrt(), variances


class FactorProcess(NamedTuple):
    """Functions ``f(x) = mean(x) + loadings(x)^T z + sqrt(residual(x)) e(x)``, at n samples.

    The factors z are standard normal and the same for all samples and all p values of a function, e
    is standard normal and independent for each (Park et al., 2025).
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
