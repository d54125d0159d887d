# SPDX-License-Identifier: BSD-3-Clause
"""Quantiles of distributions in operations that ONNX has."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch._higher_order_ops import while_loop

from .._utils.special import interpolation, polynomial
from ..distributions import log_tail_ratio

_MAX_STEPS = 200  # bisection alone closes a bracket of float64 in fewer
_TOLERANCE = 1e-8  # relative, of the probability below a mixture's quantile
_EPS = torch.finfo(torch.float64).eps


def quantiles_of(distribution: Any, levels: Iterable[float]) -> Tensor:
    """Quantiles (n, t, k) of y, for k levels: in closed form, or searched for, of a mixture."""
    q = np.asarray(levels, dtype=np.float64)
    found: Tensor | None = distribution.closed_quantile(q)
    if found is not None:
        return found
    means, variances = distribution.components()
    weights = torch.tensor(np.asarray(distribution.component_weights))
    return mixture_quantiles(means, variances, weights, q)


# --- mixtures of Gaussians ------------------------------------------------------------------------


def mixture_quantiles(means: Tensor, variances: Tensor, weights: Tensor, q: np.ndarray) -> Tensor:
    """Quantiles (n, t, k) of mixtures of S Gaussians (S, n, t) with weights (S,), in any unit.

    The safeguarded Newton iteration of :class:`EmpiricalGaussian`, for all quantiles at once. Its
    steps are one loop of the graph, which ends when every bracket is closed, or the probability
    beyond every quantile right to a relative 1e-8.
    """
    tail = np.minimum(q, 1 - q)
    sign = torch.tensor(np.where(q > 0.5, -1.0, 1.0))  # an upper tail is a lower one of -y
    weights = weights.double().view(-1, 1, 1, 1)
    mass = weights.sum() * torch.tensor(tail)
    whole = mass.round()
    between_members = (whole > 0) & ((mass - whole).abs() <= len(weights) * _EPS)
    mass = torch.where(between_members, whole, mass)  # 20 * (1 - 0.95) is 1
    mu, sigma = sign * means.double().unsqueeze(-1), variances.double().sqrt().unsqueeze(-1)
    # The components' own quantiles bracket that of the mixture.
    own = mu + sigma * torch.tensor(special.ndtri(tail))
    low, high = own.amin(dim=0), own.amax(dim=0)
    sigma = torch.maximum(sigma, _EPS**2 * (high - low))  # keeps z defined at a point mass
    narrowest, ratio = sigma.amin(dim=0), mills_polynomial()

    def tail_of(z: Tensor) -> Tensor:
        return torch.exp(-0.5 * (z * z)) * mills_ratio(z, ratio)

    def goes_on(n_steps: Tensor, is_open: Tensor, *_: Tensor) -> Tensor:
        return (n_steps < _MAX_STEPS) & is_open.any()

    def step(n_steps: Tensor, is_open: Tensor, x: Tensor, last: Tensor, low: Tensor, high: Tensor):
        excess, slope = log_tail_ratio(x, mass, mu, sigma, weights, tail_of)
        low, high = torch.where(excess < 0, x, low), torch.where(excess > 0, x, high)
        rounding = 2 * _EPS * (x.abs() + narrowest)
        is_open = is_open & (excess.abs() > _TOLERANCE) & (high - low > 2 * rounding)
        change = -excess / slope
        change = change + change.sign() * rounding  # past the root, so that the bracket closes
        newton = (low < x + change) & (x + change < high) & (change.abs() <= 0.5 * last)
        change = torch.where(newton, change, 0.5 * (low - x) + 0.5 * (high - x))
        return n_steps + 1, is_open, torch.where(is_open, x + change, x), change.abs(), low, high

    x = ((weights * own).sum(dim=0) / weights.sum()).clamp(low, high)
    state = (torch.zeros((), dtype=torch.int64), low < high, x, high - low, low, high)
    return (sign * _repeated(goes_on, step, state)[2]).to(means)


def _repeated(goes_on: Callable, step: Callable, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """State after the steps of a loop, which stays one in an exported graph."""
    if torch.compiler.is_exporting():
        return while_loop(goes_on, step, state)
    while goes_on(*state):
        state = step(*state)
    return state


def mills_ratio(z: Tensor, coefficients: Sequence[Tensor]) -> Tensor:
    """``exp(z^2 / 2) P(N(0, 1) > z)`` for z >= 0, of float64, with a relative error below 3e-9."""
    t = 3 / (3 + z)  # falls from 1 to 0
    return t * polynomial(coefficients, 2 * t - 1)


def mills_polynomial() -> list[Tensor]:
    """Coefficients for :func:`mills_ratio`."""

    def over_t(x: np.ndarray) -> np.ndarray:
        t = (x + 1) / 2
        return special.erfcx((3 / t - 3) / math.sqrt(2)) / (2 * t)

    return interpolation(over_t, 12)
