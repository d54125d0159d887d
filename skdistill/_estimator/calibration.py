# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of predicted distributions on samples that were not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from torch import Tensor

from ..distributions import Distribution, EmpiricalGaussian

# How these were chosen: see doc/design.rst.
_LEAST = 1e-30  # of an epistemic part
_LOG_LEAST = math.log(_LEAST)
_LOG_LEAST_PROBABILITY = math.log(torch.finfo(torch.float64).tiny)
_TEMPERATURES = (0.01, 100.0)  # limits of a temperature
_TOLERANCE = 1e-12  # change of the loss at which a temperature has converged
_CONVERGED, _MOST_ROUNDS = 1e-5, 30  # relative change in the last round; rounds at most
_PRIOR_OF_BIAS = 0.4  # standard deviation of a class's bias, a priori, in logits

# What a distribution loses by each of the labels, (n, t) of targets or (n, 1) of classes.
Loss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Temperature:
    """A temperature: multiplies the aleatoric variance of numbers, or divides members' logits.

    Then `spread` multiplies the epistemic part of numbers, and `bias` is added to members' log
    probabilities (vector scaling: Guo, Pleiss, Sun & Weinberger, 2017). Several targets have one of
    each, and each class a bias. Members for numbers may be of two kinds, those that `are_smooth`
    and others, of the weights `of_smooth` and one minus it; the `spread` is that within each kind.
    """

    temperature: Any = 1.0
    spread: Any = 1.0
    bias: tuple[float, ...] = ()
    are_smooth: tuple[bool, ...] = ()
    of_smooth: float = 0.5

    @property
    def weights(self) -> Tensor:
        """Weights of members of two kinds, (S,), whose sum is 1."""
        kinds = np.array([np.logical_not(self.are_smooth), self.are_smooth], dtype=float)
        weights = (1 - self.of_smooth, self.of_smooth) / kinds.sum(1)
        return torch.from_numpy(weights @ kinds)

    def __call__(self, distribution: Any) -> Any:
        """Return the calibrated distribution, of the same kind."""
        found = distribution.tempered(self.temperature)
        if self.are_smooth:
            return found.pooled(self.are_smooth, self.of_smooth, self.spread)
        if self.spread != 1.0:
            found = found.widened(self.spread)
        return found.displaced(torch.tensor(self.bias, dtype=torch.float64)) if self.bias else found


@dataclass(frozen=True)
class Calibration:
    """What turns a student's distribution into a calibrated one.

    The members' densities, or probabilities, are raised to the power ``1 / temperature``, as by a
    :class:`Temperature`. The epistemic part, e before that, becomes ``scale * e ** power``: exactly
    for numbers, and nearly for classes, whose spread is multiplied so that it would if it were
    small. Several targets have one of each. Variances of numbers are in units of their variance in
    training if `normalize` covers it.
    """

    scale: Any = 1.0
    power: Any = 1.0
    temperature: Any = 1.0

    def __call__(self, distribution: Any) -> Any:
        """Return the calibrated distribution, of the same kind."""
        tempered = distribution.tempered(self.temperature)
        before, after = (d.uncertainty().epistemic for d in (distribution, tempered))
        like = {"dtype": before.dtype, "device": before.device}
        scale, power = (torch.as_tensor(v, **like) for v in (self.scale, self.power))
        return tempered.widened(scale * before.clamp(min=_LEAST) ** power / after.clamp(min=_LEAST))


@dataclass(frozen=True)
class ApproximationError:
    """A student's error in its teacher's mean, which is added to the epistemic part.

    It is the mean square for each target, in units of their variance in training. Where a student
    has members, whose spread is no epistemic part, it is added to their variances.
    """

    variance: tuple[float, ...]

    def __call__(self, distribution: Any) -> Any:
        """Return the distribution with this part, of the same kind."""
        error = torch.tensor(self.variance)
        has_members = isinstance(distribution, EmpiricalGaussian)
        if has_members and distribution.mean_variance is None:  # which GPED predicts
            variances = distribution.variances
            return replace(distribution, variances=variances + error.to(variances))
        return distribution.with_mean_variance(error)


def fit_temperature(
    distribution: Distribution, y: Tensor, weight: Tensor, loss: Loss | None = None
) -> Temperature:
    """Fit the temperature of the least loss: of the CRPS of targets, or the log loss of labels.

    `distribution` predicts n samples that were not trained on, in float64; `y` are their targets
    (n, t), or codes of classes, int64 (n,). The logarithm of the temperature of labels has a
    standard normal prior, so that classes that are never mistaken do not lead to extremes.
    """
    share = (weight / weight.sum()).unsqueeze(-1)
    is_numeric = y.is_floating_point()
    found = Temperature(plain(torch.ones(y.shape[1] if is_numeric else 1)))
    prior = 0.0 if is_numeric else 1 / len(y)  # log(temperature)**2 / 2 in the sum of losses
    return _with_temperature(found, distribution, y, share, prior, loss or crps_or_log_loss)


def fit_bias(
    found: Temperature, distribution: Distribution, y: Tensor, weight: Tensor
) -> Temperature:
    """Fit the bias of each class: that of the least log loss of the labels at this temperature.

    A temperature above 1 moves probability from frequent to rare classes, which the biases move
    back: of one member, the mean probability of a class nears its frequency. They have a normal
    prior, as few labels tell little.
    """
    share = (weight / weight.sum()).unsqueeze(-1)
    tempered: Any = found(distribution)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        bias = torch.from_numpy(values).requires_grad_()
        losses = share * negative_log_likelihood(tempered.displaced(bias), y)
        total = losses.sum() + bias.square().sum() / (2 * _PRIOR_OF_BIAS**2 * len(y))
        (gradient,) = torch.autograd.grad(total, bias)
        return total.item(), gradient.numpy()

    start = np.zeros(tempered.mean.shape[1])
    best = minimize(loss, start, jac=True, method="L-BFGS-B", tol=_TOLERANCE).x
    return replace(found, bias=tuple(best.tolist()))


def fit_calibration(student: BaseEstimator, members: Any, y: Tensor, weight: Tensor) -> Calibration:
    """Fit the calibration of a student, by its predictions and those of its teacher's members.

    The map is the line through the logarithms of its epistemic part and of the members', by least
    squares, with a slope that is not negative; samples where either is 0 do not count. The
    temperature is that of the least CRPS or log loss. The two are fitted in turn: for numbers the
    first round is exact, as the map does not depend on the temperature. `y` is as for
    :func:`fit_temperature`.
    """
    share = (weight / weight.sum()).unsqueeze(-1)
    goal = _logarithm(members)
    found = Calibration(*[plain(torch.ones(goal.shape[1]))] * 3)
    for _ in range(_MOST_ROUNDS):
        before = found
        mapped = _with_map(found, student, goal, share)
        found = _with_temperature(mapped, student, y, share, 0.0, crps_or_log_loss)
        if np.allclose(astuple(found), astuple(before), rtol=_CONVERGED):
            break
    return found


def _with_map(
    found: Calibration, student: BaseEstimator, goal: Tensor, share: Tensor
) -> Calibration:
    """Move scale and power towards the line: all the way where the epistemic part has them."""
    own = _logarithm(student)
    missing = goal - _logarithm(found(student))
    share = share * ((goal > _LOG_LEAST) & (own > _LOG_LEAST))
    share = share / share.sum(0).clamp(min=_LEAST)
    centre = (share * own).sum(0)
    variance = (share * (own - centre).square()).sum(0)
    covariance = (share * (own - centre) * missing).sum(0)
    power = torch.as_tensor(found.power, dtype=torch.float64)
    rise = torch.where(variance > _LEAST, covariance / variance, 0.0).clamp(min=-power)
    factor = ((share * missing).sum(0) - rise * centre).exp()
    scale = torch.as_tensor(found.scale, dtype=torch.float64) * factor
    return replace(found, scale=plain(scale), power=plain(power + rise))


def _with_temperature(
    found: Any, student: BaseEstimator, y: Tensor, share: Tensor, prior: float, loss_of: Loss
) -> Any:
    """Take the temperature of the least loss of the labels, all else of a calibration as it is."""

    def tempered(logarithm: np.ndarray) -> Any:
        return replace(found, temperature=plain(torch.from_numpy(logarithm).exp()))

    def loss(logarithm: np.ndarray) -> float:
        losses = share * loss_of(tempered(logarithm)(student), y)
        return losses.sum().item() + prior / 2 * float(logarithm @ logarithm)

    start = np.log(np.atleast_1d(found.temperature))
    limits = [tuple(np.log(_TEMPERATURES))] * len(start)
    return tempered(minimize(loss, start, bounds=limits, tol=_TOLERANCE).x)


def negative_log_likelihood(distribution: Any, y: Tensor) -> Tensor:
    """Of targets, (n, t), or labels, (n, 1), in nats; least probability for what is ruled out."""
    losses = -distribution.log_prob(y).reshape(len(y), -1)
    return losses if y.is_floating_point() else losses.clamp(max=-_LOG_LEAST_PROBABILITY)


def crps_or_log_loss(student: BaseEstimator, y: Tensor) -> Tensor:
    """CRPS of the Gaussian with the mean and variance of y, (n, t), or log loss of classes, (n, 1).

    The CRPS is Eq 21 of T. Gneiting and A. E. Raftery, "Strictly Proper Scoring Rules, Prediction,
    and Estimation" (2007), with its sign changed.
    """
    if not y.is_floating_point():
        return negative_log_likelihood(student, y)
    std = student.variance.sqrt()
    z = (y - student.mean) / std
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return std * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def _logarithm(distribution: Distribution) -> Tensor:
    """Logarithm of the epistemic part, (n, t), or (n, 1) for classes."""
    epistemic = distribution.uncertainty().epistemic
    return epistemic.reshape(len(epistemic), -1).clamp(min=_LEAST).log()


def plain(values: Tensor) -> float | tuple[float, ...]:
    """Return one number as such, several as a tuple."""
    return values.item() if len(values) == 1 else tuple(values.tolist())
