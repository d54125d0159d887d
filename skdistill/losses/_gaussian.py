# SPDX-License-Identifier: BSD-3-Clause
"""Losses of Gaussians, given as a mean and a variance of shape (..., n, t).

Values are summed over the t targets. Members and heads stand on the axis before the rows:
(..., M, n, t).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..distributions import Gaussian
from ._heads import Pairs, at


def gaussian_nll(prediction: Gaussian, y: Tensor, beta: float = 0.0) -> Tensor:
    """Negative log-likelihood of `y` under a Gaussian, or its beta-NLL.

    Parameters
    ----------
    prediction : Gaussian of shape (..., n, t)
        Predicted mean and variance.
    y : Tensor of shape (..., n, t)
        Targets.
    beta : float, default=0.0
        Exponent of the variance by which each row is weighted: 0 is the likelihood itself, 1
        weights the errors of the mean as squared error does.

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    mean, variance = prediction
    loss = 0.5 * (torch.log(variance) + (y - mean).square() / variance)
    if beta:
        loss = variance.detach() ** beta * loss  # beta-NLL, Eq 5
    return loss.sum(-1)


def gaussian_nll_and_gradient(
    outputs: Tensor, y: Tensor, beta: float = 0.0, min_variance: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """:func:`gaussian_nll` of a network's outputs, with its gradient in closed form.

    Parameters
    ----------
    outputs : Tensor of shape (..., n, 2 t)
        The means, then as many raw variances, see ``Gaussian.from_outputs``.
    y : Tensor of shape (..., n, t)
    beta : float, default=0.0
    min_variance : float, default=1e-6

    Returns
    -------
    loss : Tensor of shape (..., n)
    gradient : Tensor of shape (..., n, 2 t)
        Of the sum of the losses, with respect to the outputs.

    Notes
    -----
    Written so that small tensors take few calls, and few numbers of Python, which cost as much as
    a call each.
    """
    mean, raw = outputs.chunk(2, dim=-1)
    variance = softplus(raw).add_(min_variance)
    error = mean - y
    scale = 0.5 * variance**beta if beta else torch.full_like(variance, 0.5)  # constant, [2] Eq 5
    slope = scale / variance
    z_squared = (error * error).div_(variance)
    d_mean = (error + error).mul_(slope)
    # d/d variance = scale / variance (1 - z^2), and d variance / d raw = sigmoid(raw)
    d_raw = slope.addcmul_(slope, z_squared, value=-1).mul_(raw.sigmoid())
    loss = variance.log_().add_(z_squared).mul_(scale)
    return loss.sum(-1), torch.cat((d_mean, d_raw), dim=-1)


def gaussian_cross_entropy(target: Gaussian, prediction: Gaussian) -> Tensor:
    """Kullback-Leibler divergence KL(target || prediction), up to the target's entropy.

    Parameters
    ----------
    target, prediction : Gaussian of shape (..., n, t)

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    mean, variance = prediction
    squared = target.variance + (target.mean - mean).square()
    return 0.5 * (squared / variance + torch.log(variance)).sum(-1)


def moments(members: Gaussian) -> tuple[Gaussian, Tensor]:
    """Gaussian with the mean and the variance of the mixture of members, and the epistemic part.

    Parameters
    ----------
    members : Gaussian of shape (..., M, n, t)

    Returns
    -------
    aggregate : Gaussian of shape (..., n, t)
        Mean and total variance, mean variance + variance of the means (with 1/M).
    epistemic : Tensor of shape (..., n, t)
        The variance of the means.
    """
    epistemic, mean = torch.var_mean(members.mean, dim=-3, correction=0)
    return Gaussian(mean, members.variance.mean(-3) + epistemic), epistemic


def correctness(heads: Gaussian, y: Tensor) -> Tensor:
    """L1 of Hydra+: the heads' mean negative log-likelihood of the label (Hydra+, Eq 4).

    Parameters
    ----------
    heads : Gaussian of shape (..., M, n, t)
    y : Tensor of shape (..., n, t)

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    return gaussian_nll(heads, y.unsqueeze(-3)).mean(-2)


def aggregation(members: Gaussian, heads: Gaussian) -> Tensor:
    """L2 of Hydra+: KL between the aggregates of members and heads (Hydra+, Eq 6).

    Parameters
    ----------
    members : Gaussian of shape (..., N, n, t)
    heads : Gaussian of shape (..., M, n, t)

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    return gaussian_cross_entropy(moments(members)[0], moments(heads)[0])


def individuality(members: Gaussian, heads: Gaussian, pairs: Pairs | None = None) -> Tensor:
    """L3 of Hydra+: mean KL between each member and its head (Hydra+, Eq 8).

    Parameters
    ----------
    members : Gaussian of shape (..., N, n, t)
    heads : Gaussian of shape (..., M, n, t)
    pairs : pair of Tensor, default=None
        Which member goes with which head, see :func:`pairing`; None pairs them in order, N = M.

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    members, heads = (
        Gaussian(*(at(value, index) for value in group))
        for group, index in zip((members, heads), pairs or (None, None), strict=True)
    )
    return gaussian_cross_entropy(members, heads).mean(-2)


def residual_mismatch(
    members: Gaussian, heads: Gaussian, pairs: Pairs | None = None, floor: float = 1e-4
) -> Tensor:
    """Squared distance between the residuals of paired members and heads, in epistemic units.

    A residual is a mean less the mean over members (heads): what one network says that the others
    do not. L3 weighs residuals by 1/variance, so that where noise dominates they are never
    learnt; here the yardstick is the teacher's own epistemic variance. Ours, not the paper's.

    Parameters
    ----------
    members : Gaussian of shape (..., N, n, t)
        On standardised targets.
    heads : Gaussian of shape (..., M, n, t)
    pairs : pair of Tensor, default=None
        As in :func:`individuality`.
    floor : float, default=1e-4
        Added to the epistemic variance in the denominator.

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    epistemic, mean = torch.var_mean(members.mean, dim=-3, correction=0, keepdim=True)
    member_index, head_index = pairs or (None, None)
    teacher = at(members.mean - mean, member_index)
    student = at(heads.mean - heads.mean.mean(-3, keepdim=True), head_index)
    return ((student - teacher).square() / (epistemic + floor)).mean(-3).sum(-1)


def spread_mismatch(members: Gaussian, heads: Gaussian, floor: float = 1e-5) -> Tensor:
    """Squared difference between the log epistemic variances of members and heads.

    Ours, not the paper's: it keeps the scale of the epistemic part, which L2 and L3 lose.

    Parameters
    ----------
    members : Gaussian of shape (..., N, n, t)
        On standardised targets.
    heads : Gaussian of shape (..., M, n, t)
    floor : float, default=1e-5
        Added to both variances.

    Returns
    -------
    loss : Tensor of shape (..., n)
    """
    teacher, student = (torch.var(g.mean, dim=-3, correction=0) for g in (members, heads))
    return (torch.log(student + floor) - torch.log(teacher + floor)).square().sum(-1)
