# SPDX-License-Identifier: BSD-3-Clause
"""Quantiles of mixtures of Gaussians."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ._shared import as_tensor_like, normal_cdf

_EPS = torch.finfo(torch.float64).eps
_TINY = torch.finfo(torch.float64).tiny
_CHUNK = 2**16  # elements of one temporary: 512 KiB in float64, which fits caches
_FEW = 2**10  # elements up to which an operation costs as much in float64 as in float32

_FAR = 1e8  # of means so many deviations from 0, rounding is no longer small beside a deviation

_STEPS = 6  # of Halley's method, at most
_ROUGH = 0.01  # standard deviations of the mixture: a step in float32 that is smaller is the last
_CONDITION = 16.0  # greatest error of x by the rounding of F, in units of the rounding of x


def mixture_quantile(
    means: Tensor, variances: Tensor, weights: np.ndarray, levels: np.ndarray
) -> Tensor:
    """Quantiles (..., k) of mixtures of Gaussians, exact to rounding, in the dtype of the means.

    Halley's method finds most of them. Where its last step is not small, or the distribution
    function flat, as between components far apart, a bracket is closed around the quantile.

    Means and variances have shape (S, ...), weights (S,) any sum, and levels (k,). Equal weights
    are 1: then in a wide gap between components their tails balance.
    """
    tail, sign = np.minimum(levels, 1 - levels), np.where(levels > 0.5, -1.0, 1.0)
    mass = weights.sum() * tail  # below a quantile of sign * y
    whole = mass.round()
    between = (whole > 0) & (np.abs(mass - whole) <= len(weights) * _EPS)
    mass = np.where(between, whole, mass)  # 20 * (1 - 0.95) is 1
    # Components at both ends are left out where their weights vanish beside the tail.
    least = torch.finfo(means.dtype).eps / len(weights) * mass.min()
    heavy = np.flatnonzero(weights > least)
    part = slice(int(heavy[0]), int(heavy[-1]) + 1)
    shape = (*means.shape[1:], len(levels))
    means, variances, weights = means[part].flatten(1), variances[part].flatten(1), weights[part]
    stds = variances.sqrt()
    extent = means.amax(0) - means.amin(0) + stds.amax(0)
    origin = torch.where(means[0].abs() > _FAR * extent, means[0], 0.0)  # of the search
    means = means - origin
    size = max(1, _CHUNK // (len(weights) * len(levels)))
    pieces = zip(means.split(size, 1), stds.split(size, 1), strict=True)
    parts = [_halley(*piece, weights, mass, sign) for piece in pieces]
    x, known = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    signs = as_tensor_like(sign, x).unsqueeze(1)
    if not known.all():
        level, row = (~known).nonzero().unbind(1)
        masses, column = (torch.tensor(v, device=x.device) for v in (mass, weights[:, None]))
        for k, i in zip(level.split(size), row.split(size), strict=True):
            signed, std = (signs[k, 0] * means[:, i]).double(), variances[:, i].double().sqrt()
            x[k, i] = _bracketed(signed, std, column, masses[k]).to(x)
    return torch.addcmul(origin, signs, x).T.reshape(shape)


def _halley(
    means: Tensor, stds: Tensor, weights: np.ndarray, mass: np.ndarray, sign: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Lower quantiles (k, m) of sign * y, and whether they are known to the rounding of the dtype.

    Means and standard deviations have shape (S, m), mass and sign (k,).
    """
    total, of_normal = weights.sum(), special.ndtri(mass / weights.sum())
    shares, normal, signs = (
        as_tensor_like(v, means) for v in (weights / total, of_normal[:, None], sign[:, None])
    )
    # Standardised by its moments the mixture is close to N(0, 1), whose quantiles are the start.
    centre = shares @ means
    shifted = means - centre
    spread = (shares @ torch.addcmul(stds * stds, shifted, shifted)).sqrt()
    start, n_steps = normal, _STEPS
    if means.dtype != torch.float32 and means.numel() > _FEW:
        gaps, scales = signs * (shifted / spread).unsqueeze(1), (stds / spread).unsqueeze(1)
        rough = _LogMass(gaps.float(), scales.float(), weights, mass)
        low, high, small = (as_tensor_like(v, rough.means) for v in (-np.inf, np.inf, _ROUGH))
        start = rough.search(normal.float(), low, high, small, _STEPS)[0].to(means)
        n_steps = 1
    means, stds = signs * means.unsqueeze(1), stds.unsqueeze(1)
    low, high = _brackets(means, stds, normal)
    x = torch.addcmul(signs * centre, spread, start).clamp(low, high)
    least = stds.amin(dim=0)
    small = torch.finfo(means.dtype).eps ** (1 / 3)  # a step leaves about the cube of the error
    exact = _LogMass(means, stds, weights, mass)
    x, step, growth = exact.search(x, low, high, small * least, n_steps)
    known = (step <= small * least) & (growth <= _CONDITION * (x.abs() + least))
    return x, known | (low == high)


def _brackets(means: Tensor, stds: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest of the components' own quantiles, between which the mixture's lies."""
    own = torch.addcmul(means, normal, stds)
    return own.amin(dim=0), own.amax(dim=0)


class _LogMass:
    """Logarithm of the ratio of what lies below x to what is wanted there; shapes as above."""

    def __init__(self, means: Tensor, stds: Tensor, weights: np.ndarray, mass: np.ndarray) -> None:
        self.means, self.mass = means, as_tensor_like(mass[:, None], means)
        self.halves = as_tensor_like(0.5 * weights[:, None, None], means)
        self.rate = math.sqrt(0.5) / stds
        self.log_peak = torch.log(2 / math.sqrt(math.pi) * self.halves * self.rate)

    def search(
        self, x: Tensor, low: Tensor, high: Tensor, small: Tensor, n_steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take steps from x, until all are small; return x, the last ones' sizes and growths."""
        for _ in range(n_steps):
            step, growth = self.halley_step(x)
            x, size = (x + step).clamp(low, high), step.abs()
            if (size <= small).all():
                break
        return x, size, growth

    def halley_step(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Halley's step from x, and the change of x for which the mass grows e-fold, (k, m)."""
        u = (self.means - x).mul_(self.rate)
        mass = torch.erfc(u).mul_(self.halves).sum(dim=0)
        densities = torch.addcmul(self.log_peak, u, u, value=-1).exp_()
        density = densities.sum(dim=0)
        bend = u.mul_(self.rate).mul_(densities).sum(dim=0)  # half the derivative of the density
        log_ratio = torch.log(mass / self.mass)
        square = density.square()
        # At least half the denominator of Newton's step, so that x moves at most twice as far.
        divisor = torch.maximum(square + log_ratio * (0.5 * square - bend * mass), 0.5 * square)
        return -log_ratio * mass * density / divisor, mass / density


def _bracketed(means: Tensor, stds: Tensor, weights: Tensor, mass: Tensor) -> Tensor:
    """Lower quantiles (m,) of m mixtures of means and stds (S, m), exact to rounding.

    A safeguarded Newton iteration from the average of the components' quantiles: x moves by
    Newton's step for the logarithm of the two sides of the equation, or to the middle of the
    bracket where that step leaves it or is more than half the last one. The weights are (S, 1).
    """
    normal = torch.special.ndtri(mass / weights.sum())
    low, high = _brackets(means, stds, normal)
    average = (weights * torch.addcmul(means, normal, stds)).sum(dim=0) / weights.sum()
    root = torch.empty_like(low)
    stds = torch.maximum(stds, _EPS**2 * (high - low))  # keeps z defined at a point mass
    index = torch.arange(len(root), device=root.device)
    x, last = average.clamp(low, high), high - low
    while len(index):
        excess, slope = log_tail_ratio(x, mass, means, stds, weights)
        low, high = torch.where(excess < 0, x, low), torch.where(excess > 0, x, high)
        rounding = (2 * _EPS * (x.abs() + stds.amin(dim=0))).clamp(min=_TINY)
        step = -excess / slope
        step = step + torch.copysign(rounding, step)  # past the root, so that the bracket closes
        newton = (low < x + step) & (x + step < high) & (step.abs() <= 0.5 * last)
        step = torch.where(newton, step, 0.5 * (low - x) + 0.5 * (high - x))
        done = (excess.abs() <= 32 * _EPS) | (high - low <= 2 * rounding)
        root[index[done]] = x[done]
        state = (index, x + step, step.abs(), low, high, mass, means, stds)
        index, x, last, low, high, mass, means, stds = (value[..., ~done] for value in state)
    return root


def log_tail_ratio(
    x: Tensor,
    mass: Tensor,
    means: Tensor,
    stds: Tensor,
    weights: Tensor,
    tail: Callable[[Tensor], Tensor] = lambda z: normal_cdf(-z),
) -> tuple[Tensor, Tensor]:
    """Logarithm of the ratio of the two sides of ``F(x) = mass``, and its derivative by x.

    F(x) is the weight of the components whose mean is below x, less their upper tails, plus the
    lower tails of the others. With each term on the side where it is positive nothing cancels.
    `tail` is the probability beyond z > 0 of N(0, 1).
    """
    z = (x - means) / stds
    below = z > 0
    tails = weights * tail(z.abs())
    surplus = torch.where(below, weights, 0.0).sum(dim=0) - mass
    left = torch.where(below, 0.0, tails).sum(dim=0) + surplus.clamp(min=0)
    right = torch.where(below, tails, 0.0).sum(dim=0) + (-surplus).clamp(min=0)
    densities = weights * torch.exp(-0.5 * (z * z)) / (math.sqrt(2 * math.pi) * stds)
    slope = (densities / torch.where(below, right, left)).sum(dim=0)
    excess = torch.log(left / right)
    # 0 / 0 in a gap so wide that all tails underflow
    return torch.where(excess.isnan(), 0.0, excess), slope
