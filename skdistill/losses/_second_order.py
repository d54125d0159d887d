# SPDX-License-Identifier: BSD-3-Clause
"""Losses of students that predict a distribution over the members' parameters.

Equations are those of J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for
ensemble distribution distillation" (2020). The loss is the mean over members of the negative log
density of their parameters z (Eq 7); constants that do not depend on the student are left out.
But for a covariance of low rank it depends on the members through a few statistics, the target,
which is computed once. Members stand on the axis before the samples: (..., M, n, .).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..distributions import (
    Gaussian,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from ._categorical import Categories, Members, categorical_aggregation, information_mismatch
from ._gaussian import gaussian_cross_entropy, gradient_of_outputs
from ._loss import Loss, Term, loss_with_gradient, weighted_sum

_TINY = 1e-12  # keeps logarithms finite where members agree

# --- parameters of the members ----------------------------------------------------------------


def gaussian_parameters(members: Gaussian, min_variance: float = 1e-6) -> Tensor:
    """Means and raw variances of members on standardised targets: z (..., M, n, 2 t) of Eq 12.

    Variances less than twice the floor count as that, so that raw ones are finite.
    """
    variance = (members.variance - min_variance).clamp(min=min_variance)
    return torch.cat((members.mean, _inverse_softplus(variance)), dim=-1)


def relative_logits(members: Tensor, smoothing: float = 0.0, min_log_prob: float = -30.0) -> Tensor:
    """Logits of members less that of the last class: z (..., M, n, K - 1) of Eq 9.

    Members are logits or log probabilities. Smoothing mixes the uniform distribution into each:
    probabilities of zero would govern mean and variance of the logits.
    """
    log_probs = members.log_softmax(-1)
    if smoothing:
        uniform = log_probs.new_tensor(math.log(smoothing / members.shape[-1]))
        log_probs = torch.logaddexp(log_probs + math.log1p(-smoothing), uniform)
    log_probs = log_probs.clamp(min=min_log_prob)
    return log_probs[..., :-1] - log_probs[..., -1:]


# --- targets ----------------------------------------------------------------------------------


class PairedNormal(NamedTuple):
    """Normal distributions over pairs (z1, z2) of t numbers each, by regression of z1 on z2."""

    mean: Tensor  # (..., n, 2 t), of z1, then of z2
    variance: Tensor  # (..., n, 2 t), of z1 given z2, then of z2
    slope: Tensor  # (..., n, t), Cov(z1, z2) / Var z2


class NormalInverseGammaTarget(NamedTuple):
    """What the normal-inverse-gamma likelihood needs of members: (..., n, t)."""

    mean: Tensor  # of the means, each weighted by its precision
    harmonic: Tensor  # harmonic mean of the variances
    scatter: Tensor  # mean squared deviation of the means from `mean`, in units of the variances
    gap: Tensor  # mean log variance less the log of the harmonic mean, not negative


def normal_target(z: Tensor) -> Gaussian:
    """Mean and variance (with 1/M) of the members' parameters: the minimiser of Eq 7."""
    variance, mean = torch.var_mean(z, dim=-3, correction=0)
    return Gaussian(mean, variance)


def paired_normal_target(z: Tensor) -> PairedNormal:
    """Mean and covariance (with 1/M) of pairs of the members' parameters: the minimiser of Eq 7."""
    mean = z.mean(-3, keepdim=True)
    first, second = (z - mean).chunk(2, dim=-1)
    variance = second.square().mean(-3)
    tiny = torch.finfo(z.dtype).tiny  # where z2 does not vary the slope is 0
    slope = (first * second).mean(-3) / variance.clamp(min=tiny)
    conditional = (first - slope.unsqueeze(-3) * second).square().mean(-3)
    return PairedNormal(mean.squeeze(-3), torch.cat((conditional, variance), dim=-1), slope)


def normal_inverse_gamma_target(
    members: Gaussian, min_variance: float = 1e-6
) -> NormalInverseGammaTarget:
    """Statistics of members on standardised targets; variances are at least `min_variance`."""
    precision = members.variance.clamp(min=min_variance).reciprocal()
    mean_precision = precision.mean(-3, keepdim=True)
    relative = precision / mean_precision
    mean = (relative * members.mean).mean(-3, keepdim=True)
    scatter = ((members.mean - mean).square() * precision).mean(-3)
    gap = -relative.log().mean(-3)  # never negative, by Jensen's inequality
    return NormalInverseGammaTarget(
        mean.squeeze(-3), mean_precision.squeeze(-3).reciprocal(), scatter, gap.clamp(min=0)
    )


def normal_inverse_start(
    target: NormalInverseGammaTarget, weight: Tensor | None, n_groups: int
) -> Tensor:
    """Outputs (..., 2 t + 2 n_groups) of the best student that predicts the same for all samples.

    The targets of a group share nu and the degrees of freedom. Training starts from it: where noise
    variances are far from one, the likelihood is too steep elsewhere for Adam to recover.
    """
    mean, harmonic, scatter, gap = (statistic.double() for statistic in target)
    share = torch.ones(mean.shape[-2]).to(mean) if weight is None else weight.to(mean)
    share = (share / share.sum()).unsqueeze(-1)
    mean_precision = (share / harmonic).sum(-2)
    relative = 1 / (harmonic * mean_precision.unsqueeze(-2))
    centre = (share * relative * mean).sum(-2)
    square = (share * (scatter + (mean - centre.unsqueeze(-2)).square() / harmonic)).sum(-2)
    gap = (share * (gap - relative.log())).sum(-2)
    size = gap.shape[-1] // n_groups
    square, gap = (
        statistic.unflatten(-1, (n_groups, size)).mean(-1).clamp(min=_TINY)
        for statistic in (square, gap)
    )
    raw = _inverse_softplus((1 / mean_precision - 1e-6).clamp(min=1e-6))
    log_nu = (-square.log()).clamp(*NormalInverseGamma.output_limits)
    log_excess = (_half_of_gap(gap, size) - 0.5 * (size + 1)).log()
    return torch.cat((centre, raw, log_nu, log_excess), -1).to(target.mean)


def _half_of_gap(gap: Tensor, size: int) -> Tensor:
    """Most likely half of the degrees of freedom, within the limits of the outputs."""
    least = 0.5 * (size + 1)
    low, high = (least + math.exp(limit) for limit in NormalInverseGamma.output_limits)
    # Root of ln half - digamma(half) = gap, as in the likelihood of Gamma (Minka, 2002), taken for
    # several targets to first order in 1 / half.
    half = least * (3 - gap + ((gap - 3).square() + 24 * gap).sqrt()) / (12 * gap)
    half = half.clamp(low, high)
    for _ in range(5):  # Newton's method in 1 / half
        score = _multivariate(torch.digamma, half, size) / size - half.log() + gap
        slope = _multivariate(partial(torch.polygamma, 1), half, size) / size - 1 / half
        half = (half / (1 + score / (half * slope))).clamp(low, high)
    return half


# --- losses -----------------------------------------------------------------------------------


@loss_with_gradient
def normal_nll(
    outputs: Tensor, target: Gaussian, min_variance: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Mean negative log density of the members' parameters, diagonal covariance (Eq 7).

    Given the moments of the members' Gaussians instead, it is the divergence KL(members' mixture ||
    student) of mixture distillation (Eq 6). Outputs are those of ``Gaussian.from_outputs``.
    """
    prediction = Gaussian.from_outputs(outputs, min_variance)
    loss, gradient = gaussian_cross_entropy.and_gradient(prediction, target)
    return loss, gradient_of_outputs(outputs, gradient)


@loss_with_gradient
def paired_normal_nll(
    outputs: Tensor, target: PairedNormal, min_variance: float = GaussianNormal.min_variance_of_z
) -> tuple[Tensor, Tensor]:
    """Mean negative log density of pairs of parameters, full covariance (Eqs 7 and 13)."""
    n_targets = target.slope.shape[-1]
    diagonal, slope = outputs[..., : 4 * n_targets], outputs[..., 4 * n_targets :]
    prediction = Gaussian.from_outputs(diagonal, min_variance)
    # z1 less slope (z2 - its predicted mean) has these moments, and is independent of z2.
    excess = slope - target.slope
    first, second = target.mean.expand_as(prediction.mean).chunk(2, dim=-1)
    conditional, variance = target.variance.expand_as(prediction.mean).chunk(2, dim=-1)
    error = second - prediction.mean[..., n_targets:]
    decorrelated = Gaussian(
        torch.cat((first - slope * error, second), dim=-1),
        torch.cat((conditional + excess.square() * variance, variance), dim=-1),
    )
    loss, gradient = gaussian_cross_entropy.and_gradient(prediction, decorrelated)
    # The gradient for the target's mean is the prediction's with the other sign, and that for its
    # variance 1 / (2 predicted variance).
    d_first, d_second = gradient.mean.chunk(2, dim=-1)
    d_slope = d_first * error + excess * variance / prediction.variance[..., :n_targets]
    d_mean = torch.cat((d_first, d_second - slope * d_first), dim=-1)
    d_diagonal = gradient_of_outputs(diagonal, Gaussian(d_mean, gradient.variance))
    return loss, torch.cat((d_diagonal, d_slope), dim=-1)


@loss_with_gradient
def matched_moments(
    outputs: Tensor,
    nll: Loss[..., Any],
    target: Gaussian | PairedNormal,
    precision: Tensor,
    min_variance: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    r"""Moments of the members' parameters, each matched by a term of its own.

    The likelihood of Eq 7 counts the student's errors of the mean as spread of the members: its
    variance at a sample is theirs plus the squared error, which is the larger of the two where
    members agree. Here the covariance alone follows Eq 7, by `nll`, as if the means were exact, and
    the means have :math:`\frac{1}{2} \sum_j \pi_j (\mu_j - \bar z_j)^2`, with a precision
    :math:`\pi` (..., n, 2 t). Both have the same minimiser.
    """
    mean = outputs[..., : precision.shape[-1]]
    loss, gradient = nll.and_gradient(outputs, target._replace(mean=mean), min_variance)
    error = mean - target.mean
    slope = error * precision
    gradient[..., : precision.shape[-1]] += slope
    return loss + 0.5 * (slope * error).sum(-1), gradient


@loss_with_gradient
def low_rank_normal_nll(outputs: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean negative log density of z, (..., M, n, p), diagonal plus low rank (Eqs 7 and 10)."""
    n_members, size = z.shape[-3], z.shape[-1]
    # In float64: where the diagonal vanishes, C is near singular.
    diagonal, columns = outputs.double().tensor_split([2 * size], dim=-1)
    mean, variance = Gaussian.from_outputs(diagonal)
    factor = columns.unflatten(-1, (-1, size))  # V^T, (..., n, r, p)
    scaled = factor / variance.unsqueeze(-2)
    # Woodbury: with C = I + V^T D^-1 V, the inverse of D + V V^T is D^-1 (I - V C^-1 V^T D^-1).
    core = scaled @ factor.mT
    core, failed = torch.linalg.cholesky_ex(
        core + torch.eye(core.shape[-1], dtype=core.dtype, device=core.device)
    )
    core = core.masked_fill(failed.view(*failed.shape, 1, 1) != 0, math.nan)  # training diverges
    log_det = variance.log().sum(-1) + 2 * core.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    error = z.movedim(-3, -2) - mean.unsqueeze(-2)  # (..., n, M, p)
    share = _solved(core, scaled @ error.mT).mT  # C^-1 V^T D^-1 error, (..., n, M, r)
    rest = error - share @ factor
    solved = rest / variance.unsqueeze(-2)  # the inverse times error
    # Both terms are positive: nothing cancels, as it would in error^T D^-1 error less a correction.
    square = (rest * solved).sum((-2, -1)) + share.square().sum((-2, -1))
    loss = 0.5 * (square / n_members + log_det)  # Eq 7

    gain = _solved(core, scaled)  # V^T times the inverse
    d_factor = gain - share.mT @ solved / n_members
    own = (1 - (gain * factor).sum(-2)) / variance  # diagonal of the inverse
    d_variance = 0.5 * (own - solved.square().mean(-2))
    d_diagonal = gradient_of_outputs(diagonal, Gaussian(-solved.mean(-2), d_variance))
    gradient = torch.cat((d_diagonal, d_factor.flatten(-2)), dim=-1)
    return loss.to(outputs.dtype), gradient.to(outputs.dtype)


def _solved(root: Tensor, values: Tensor) -> Tensor:
    """Return C^-1 values for C = L L^T with root L, by steps that a CUDA graph can hold."""
    half = torch.linalg.solve_triangular(root, values, upper=False)
    found: Tensor = torch.linalg.solve_triangular(root.mT, half, upper=True)
    return found


@loss_with_gradient
def normal_inverse_nll(outputs: Tensor, target: NormalInverseGammaTarget) -> tuple[Tensor, Tensor]:
    """Mean negative log density of the members' means and diagonal covariances (Eqs 7 and 11).

    Outputs are those of a normal-inverse-gamma distribution for each target, (..., n, 4 t), or of a
    normal-inverse-Wishart, (..., n, 2 t + 2). With the harmonic mean s of the variances, ``half``
    the degrees of freedom and ``psi = 2 half s``, the loss of a distribution of t targets is
    ``(nu square - t ln nu) / 2 + ln Gamma_t(half) - t (half ln half - half) + half misfit``, where
    ``square`` is the mean of (member's mean - mean)^2 / variance, ``misfit``, which is not
    negative, that of s / variance - 1 - ln(s / variance), both summed over its targets, and
    ``Gamma_t`` is the multivariate Gamma function.
    """
    n_groups = outputs.shape[-1] // 2 - target.mean.shape[-1]
    # In float64: terms as large as half, up to e^6 and more, whose sum is small.
    size = target.mean.shape[-1] // n_groups
    gaussian, logarithms = outputs.double().tensor_split([2 * n_groups * size], dim=-1)
    centre, harmonic, scatter, gap = (statistic.double() for statistic in target)
    inside = logarithms.clamp(*NormalInverseGamma.output_limits)
    nu, excess = inside.exp().chunk(2, dim=-1)
    half = excess + 0.5 * (size + 1)
    mean, predicted = Gaussian.from_outputs(gaussian)
    ratio = predicted / harmonic

    error = (mean - centre) / harmonic
    square = (scatter + error * (mean - centre)).unflatten(-1, (n_groups, size)).sum(-1)
    misfit = (ratio - 1 - ratio.log() + gap).unflatten(-1, (n_groups, size)).sum(-1)
    log_gamma = _multivariate(torch.lgamma, half, size) - size * half * (half.log() - 1)
    loss = 0.5 * (nu * square - size * nu.log()) + log_gamma + half * misfit  # Eqs 7 and 11

    d_harmonic = half * (1 / harmonic - 1 / predicted)
    d_gaussian = gradient_of_outputs(gaussian, Gaussian(nu * error, d_harmonic))
    d_log_nu = 0.5 * (nu * square - size)
    d_half = _multivariate(torch.digamma, half, size) - size * half.log() + misfit
    d_logarithms = torch.cat((d_log_nu, excess * d_half), dim=-1)
    # Beyond a limit, a gradient that leads farther away is 0; one that leads back stays.
    d_logarithms = d_logarithms * (d_logarithms * (logarithms - inside) >= 0)
    gradient = torch.cat((d_gaussian, d_logarithms), dim=-1)
    return loss.sum(-1).to(outputs.dtype), gradient.to(outputs.dtype)


def _multivariate(function: Callable[[Tensor], Tensor], half: Tensor, size: int) -> Tensor:
    """Multivariate log Gamma function of `size` dimensions, or a derivative; no constants."""
    result = function(half)
    for i in range(1, size):
        result = result + function(half - 0.5 * i)
    return result


@loss_with_gradient
def logit_normal_moments(
    outputs: Tensor,
    members: Members,
    draws: Tensor,
    weight: float = 0.05,
    floor: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    r"""Mean and mutual information of the members, each matched by a term of its own.

    Draws :math:`z_s = \mu + \sigma \varepsilon_s` of the logits less that of the last class (Eqs 9
    and 10), with :math:`\varepsilon` (T, K - 1) the same for every sample, are heads: it is the
    cross-entropy of their mean relative to the members' mean, plus w times the squared difference
    of the log mutual informations. Ours, not the paper's: the likelihood weighs the logits of
    impossible classes, of which members differ most, as all others.
    """
    mean, variance = (part.unsqueeze(-3) for part in Gaussian.from_outputs(outputs))
    noise, std = draws.unsqueeze(-2), variance.sqrt()
    heads = Categories(pad(torch.addcmul(mean, std, noise), (0, 1)))
    terms = (
        Term(categorical_aggregation, (members,)),
        Term(information_mismatch, (members, floor), weight),
    )
    loss, gradient = weighted_sum(terms, heads)
    d_logits = gradient[..., :-1]
    d_variance = (d_logits * noise).sum(-3) / (2 * std.squeeze(-3))
    return loss, gradient_of_outputs(outputs, Gaussian(d_logits.sum(-3), d_variance))


# --- the supervised term ----------------------------------------------------------------------


def label_nll(
    student: GaussianNormal | NormalInverseGamma | NormalInverseWishart | LogitNormal, y: Tensor
) -> Tensor:
    """Negative log density of labels, (n, t) or classes of int64 (n,), in nats (Eqs 16 and 17)."""
    if y.dtype == torch.int64:
        # Not by `log_prob`, whose check of the codes would wait for a GPU at each step.
        # To mypy a student of numbers may have labels too, which are no integers then.
        return -student.log_mean.gather(-1, y.unsqueeze(-1)).squeeze(-1)  # type: ignore[union-attr]
    log_prob = student.log_prob(y)
    return -log_prob.view(len(log_prob), -1).sum(-1)


def _inverse_softplus(x: Tensor) -> Tensor:
    return x + torch.log(-torch.expm1(-x))
