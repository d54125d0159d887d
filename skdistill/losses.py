# SPDX-License-Identifier: BSD-3-Clause
"""Losses: functions of a prediction and a target that return one value per row.

The engine weights the rows and averages; nothing is averaged over rows here. Gaussians are given
as a mean and a variance of shape (..., n, t), and values are summed over the t targets. Members
and heads stand on the axis before the rows: (..., M, n, t). Constants that do not depend on the
prediction are left out, as in the papers.

Equations of "Hydra+" are those of Ferianc & Rodrigues (2022), "Simple Regularisation for
Uncertainty-Aware Knowledge Distillation"; beta-NLL is from Seitzer et al. (2022), "On the Pitfalls
of Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .distributions import Gaussian

__all__ = [
    "aggregation",
    "correctness",
    "diversity",
    "gaussian_cross_entropy",
    "gaussian_nll",
    "individuality",
    "moments",
    "pairing",
    "residual_mismatch",
    "spread_mismatch",
]


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


Pairs = tuple[Tensor, Tensor]


def pairing(n_members: int, n_heads: int) -> tuple[Tensor, Tensor]:
    """Pairs of a member and the head that imitates it: member n goes to head n mod M.

    With more heads than members it is the other way round: head m imitates member m mod N.

    Parameters
    ----------
    n_members, n_heads : int

    Returns
    -------
    members, heads : Tensor of int64, both of shape (max(n_members, n_heads),)
    """
    pairs = torch.arange(max(n_members, n_heads))
    return pairs % n_members, pairs % n_heads


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
        Gaussian(*(_at(value, index) for value in group))
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
    teacher = _at(members.mean - mean, member_index)
    student = _at(heads.mean - heads.mean.mean(-3, keepdim=True), head_index)
    return ((student - teacher).square() / (epistemic + floor)).mean(-3).sum(-1)


def _at(values: Tensor, index: Tensor | None) -> Tensor:
    """Entries of the axis of members or heads; all of them for None."""
    return values if index is None else values.index_select(-3, index)


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


def diversity(weights: list[Tensor], reference: str = "mean", eps: float = 1e-8) -> Tensor:
    """L4 of Hydra+: how alike the heads' weights are (Hydra+, Eq 9).

    Summed over layers and heads as in Eq 9, but a mean over the units of a layer, so that its
    weight in the loss does not depend on their width: M for each layer of M identical heads.

    Parameters
    ----------
    weights : list of Tensor of shape (..., M, n_units, fan_in)
        One tensor for each layer of the heads.
    reference : {"mean", "pairwise"}, default="mean"
        What a unit's weights are compared with: the mean over heads (Eq 9), or the same unit of
        every other head. Eq 9 has a degenerate minimiser, one long head against M - 1 equal ones;
        the pairwise form has not.
    eps : float, default=1e-8
        Smallest norm in the cosine.

    Returns
    -------
    similarity : Tensor of shape (...)
    """
    mean_cosine = _cosine_to_mean if reference == "mean" else _cosine_to_others
    n_heads = weights[0].shape[-3]
    layers = torch.stack([mean_cosine(weight, eps).mean(-1) for weight in weights])
    return (n_heads * (1.0 + layers) / 2.0).sum(0)  # Eq 9


def _cosine_to_mean(weight: Tensor, eps: float) -> Tensor:
    """Mean over heads of each unit's cosine with the heads' mean, of shape (..., n_units)."""
    mean = weight.mean(-3, keepdim=True)
    return torch.cosine_similarity(mean, weight, dim=-1, eps=eps).mean(-2)


def _cosine_to_others(weight: Tensor, eps: float) -> Tensor:
    """Mean of each unit's cosine over the M (M - 1) pairs of heads, of shape (..., n_units)."""
    n_heads = weight.shape[-3]
    unit = weight / weight.norm(dim=-1, keepdim=True).clamp_min(eps)
    # |sum of unit vectors|^2 = sum of their |.|^2 + sum of the cosines of the pairs.
    pairs = unit.sum(-3).square().sum(-1) - unit.square().sum((-3, -1))
    return pairs / max(n_heads * (n_heads - 1), 1)
