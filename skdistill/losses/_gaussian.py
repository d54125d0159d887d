# SPDX-License-Identifier: BSD-3-Clause
"""Losses of Gaussians, given as a mean and a variance of shape (..., n, t).

Values are summed over the t targets. Members and heads stand on the axis before the samples:
(..., M, n, t). ``d_x`` stands for the gradient with respect to x.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..distributions import Gaussian
from ._loss import Loss, Pairs, at, computed_once, loss_with_gradient


class Mixture(Gaussian):
    """Members or heads, (..., M, n, t), with their mixture's moments, (..., 1, n, t), kept."""

    @computed_once
    def centre(self) -> Tensor:
        return self.mean.mean(-3, keepdim=True)

    @computed_once
    def residuals(self) -> Tensor:
        return self.mean - self.centre  # (..., M, n, t)

    @computed_once
    def epistemic(self) -> Tensor:
        return self.residuals.square().mean(-3, keepdim=True)

    @computed_once
    def aggregate(self) -> Gaussian:
        return Gaussian(self.centre, self.variance.mean(-3, keepdim=True) + self.epistemic)


def moments(members: Gaussian) -> tuple[Gaussian, Tensor]:
    """Gaussian (..., n, t) with the moments of the members' mixture, and its epistemic variance."""
    mixture = Mixture(*members)
    aggregate = Gaussian(*(value.squeeze(-3) for value in mixture.aggregate))
    return aggregate, mixture.epistemic.squeeze(-3)


def gradient_of_outputs(outputs: Tensor, gradient: Gaussian) -> Tensor:
    """Gradient in outputs, given that in what ``Gaussian.from_outputs`` reads from them."""
    raw = outputs.tensor_split(2, dim=-1)[1]
    return torch.cat((gradient.mean, gradient.variance * raw.sigmoid()), dim=-1)


@loss_with_gradient
def of_gaussian_outputs(
    outputs: Tensor, loss: Loss[..., Any], *arguments: object
) -> tuple[Tensor, Tensor]:
    """A loss of Gaussians, for the outputs that ``Gaussian.from_outputs`` reads as them."""
    value, gradient = loss.and_gradient(Gaussian.from_outputs(outputs), *arguments)
    return value, gradient_of_outputs(outputs, gradient)


@loss_with_gradient
def gaussian_nll(
    outputs: Tensor,
    y: Tensor,
    beta: float = 0.0,
    min_variance: float = 1e-6,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of `y` under a Gaussian, or its beta-NLL.

    Parameters
    ----------
    outputs : Tensor of shape (..., n, 2 t)
        The means, then as many raw variances, see ``Gaussian.from_outputs``.
    y : Tensor of shape (..., n, t)
        Targets.
    beta : float, default=0.0
        Exponent of the variance by which each sample is weighted: 0 is the likelihood itself, 1
        weights the errors of the mean as squared error does.
    min_variance : float, default=1e-6
    noise : Tensor of shape (..., n, t), default=None
        Standard normal numbers z. The gradient in the mean is that for targets ``y + s z``, where s
        is the predicted standard deviation; the loss, and the gradient in the variance, are those
        for `y`. Of members with different z, means differ as draws from a posterior do
        ("randomise, then optimise", Bardsley et al., 2014).

    Returns
    -------
    loss : Tensor of shape (..., n)

    Notes
    -----
    Few calls of torch, as these dominate the time of small tensors; an operand that is a number of
    Python costs as much as one.
    """
    mean, raw = outputs.chunk(2, dim=-1)
    variance = softplus(raw).add_(min_variance)
    scale = variance**beta if beta else torch.ones_like(variance)  # constant, Eq 5
    half_slope = scale / (variance + variance)
    error = mean - y
    half_d_mean = error * half_slope
    half_square = error.mul_(half_d_mean)  # scale error^2 / (2 variance)
    # d_variance = scale (1 - error^2 / variance) / (2 variance), d variance = sigmoid(raw) d raw
    d_raw = torch.addcdiv(half_slope, half_square, variance, value=-1).mul_(raw.sigmoid())
    if noise is not None:  # scale (mean - y - s z) / (2 variance)
        half_d_mean.addcmul_(variance.sqrt().mul_(half_slope), noise, value=-1)
    loss = half_square.addcmul_(scale, variance.log_(), value=0.5)
    return loss.sum(-1), torch.cat((half_d_mean.add_(half_d_mean), d_raw), dim=-1)


@loss_with_gradient
def gaussian_cross_entropy(prediction: Gaussian, target: Gaussian) -> tuple[Tensor, Gaussian]:
    """Kullback-Leibler divergence KL(target || prediction), up to the target's entropy."""
    losses, gradient = _cross_entropies(prediction, target)
    return losses.sum(-1), gradient


def _cross_entropies(
    prediction: Gaussian, target: Gaussian, share: float = 1.0
) -> tuple[Tensor, Gaussian]:
    """`share` of each target's cross-entropy, (..., n, t), and the gradient of their sum.

    Numbers of Python are given as factors of a call: as operands they cost as much as one.
    """
    mean, variance = prediction
    error = mean - target.mean
    half_precision = (variance * (2 / share)).reciprocal_()  # all from here on times the share
    half_ratio = torch.addcmul(target.variance, error, error).mul_(half_precision)
    losses = torch.add(half_ratio, variance.log(), alpha=0.5 * share)
    # d_mean = error / variance, d_variance = (1 - ratio) / (2 variance)
    d_variance = torch.addcmul(half_precision, half_precision, half_ratio, value=-2 / share)
    return losses, Gaussian((error + error).mul_(half_precision), d_variance)


@loss_with_gradient
def correctness(heads: Gaussian, y: Tensor) -> tuple[Tensor, Gaussian]:
    """L1 of Hydra+: the heads' mean negative log-likelihood of the label (Hydra+, Eq 4)."""
    label = Gaussian(y.unsqueeze(-3), y.new_zeros(()))  # what is known has no variance
    losses, gradient = _cross_entropies(heads, label, 1 / heads.mean.shape[-3])
    return losses.sum((-3, -1)), gradient


@loss_with_gradient
def aggregation(heads: Mixture, members: Mixture) -> tuple[Tensor, Gaussian]:
    """L2 of Hydra+: KL between the aggregates of members and heads (Hydra+, Eq 6)."""
    n_heads = heads.mean.shape[-3]
    losses, gradient = _cross_entropies(heads.aggregate, members.aggregate, 1 / n_heads)
    # d centre = sum_m d mean_m / M, d variance = sum_m (d variance_m + 2 residual_m d mean_m) / M
    d_mean = torch.addcmul(gradient.mean, gradient.variance, heads.residuals, value=2)
    d_variance = gradient.variance.expand_as(d_mean)
    return losses.sum((-3, -1)).mul_(n_heads), Gaussian(d_mean, d_variance)


@loss_with_gradient
def individuality(
    heads: Gaussian, members: Gaussian, pairs: Pairs | None = None
) -> tuple[Tensor, Gaussian]:
    """L3 of Hydra+: mean KL between each member and its head (Hydra+, Eq 8).

    `pairs` are those of ``pairing``; None pairs members and heads in order, N = M.
    """
    member_index, head_index = pairs or (None, None)
    targets = Gaussian(*(at(value, member_index) for value in members))
    paired = Gaussian(*(at(value, head_index) for value in heads))
    n_heads, n_pairs = heads.mean.shape[-3], paired.mean.shape[-3]
    losses, gradient = _cross_entropies(paired, targets, 1 / n_pairs)
    gradient = Gaussian(*(_sum_at(value, head_index, n_heads) for value in gradient))
    return losses.sum((-3, -1)), gradient


@loss_with_gradient
def residual_mismatch(
    heads: Mixture, members: Mixture, pairs: Pairs | None = None, floor: float = 1e-4
) -> tuple[Tensor, Gaussian]:
    """Squared distance between the residuals of paired members and heads, in epistemic units.

    L3 weighs residuals by 1/variance, so that where noise dominates they are never learnt; here the
    unit is the teacher's own epistemic variance, plus a floor. Ours, not the paper's.
    """
    member_index, head_index = pairs or (None, None)
    error = at(heads.residuals, head_index) - at(members.residuals, member_index)
    slope = error / (members.epistemic + floor).mul_(error.shape[-3])
    d_mean = _sum_at(slope + slope, head_index, heads.mean.shape[-3])
    if head_index is not None:  # in order the errors, and with them the slopes, sum to zero
        d_mean = d_mean - d_mean.mean(-3, keepdim=True)  # d residual_m = d mean_m - mean d mean_k
    return (slope * error).sum((-3, -1)), Gaussian(d_mean, torch.zeros_like(d_mean))


def spread_error(
    heads: Mixture, members: Mixture, log_gain: Tensor | None = None, floor: float = 1e-5
) -> Tensor:
    """Log of the heads' epistemic variance, times a gain, less that of the members: (..., n, t)."""
    error = ((heads.epistemic + floor) / (members.epistemic + floor)).squeeze(-3).log_()
    return error if log_gain is None else error + log_gain


@loss_with_gradient
def spread_mismatch(
    heads: Mixture, members: Mixture, log_gain: Tensor | None = None, floor: float = 1e-5
) -> tuple[Tensor, Gaussian]:
    """Squared difference between the log epistemic variances of members and heads.

    Ours, not the paper's: it keeps the scale of the epistemic part, which L2 and L3 lose. The slope
    in the logarithm of the gain, (..., n, t), is twice ``spread_error``.
    """
    error = spread_error(heads, members, log_gain, floor)
    # d_epistemic = 2 error / epistemic, d epistemic = sum_m 2 residual_m d mean_m / M
    slope = error.unsqueeze(-3) / (heads.epistemic + floor)
    d_mean = slope.mul_(4 / heads.mean.shape[-3]) * heads.residuals
    return error.square().sum(-1), Gaussian(d_mean, torch.zeros_like(d_mean))


def _sum_at(values: Tensor, index: Tensor | None, n_heads: int) -> Tensor:
    """For each head the sum over its pairs, as gradients of what :func:`at` gives are summed."""
    if index is None:
        return values
    sums = values.new_zeros(*values.shape[:-3], n_heads, *values.shape[-2:])
    return sums.index_add_(-3, index, values)
