# SPDX-License-Identifier: BSD-3-Clause
"""Losses of a Dirichlet over class probabilities: networks give outputs z of shape (..., n, K).

The concentrations are ``alpha = exp(z) + offset``, as :meth:`Dirichlet.from_outputs` reads them;
offset 1 goes with the proxy target, offset 0 is the plain form. Equations are those of M. Ryabinin,
A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many Classes with Proxy
Targets" (2021), whose Eqs 11, 13 and 14 lack ln before Gamma. The targets are the members' mean
probabilities with their mutual information (the moments), the precision of a Dirichlet about the
mean (the proxy), or their mean log probabilities (the likelihood).

Samples are taken a few at a time, so that forty thousand classes need no more memory than the
results.
"""

import math
from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch import Tensor

from .._utils.special import digamma_excess
from ..distributions import Dirichlet
from ._loss import Term, loss_with_gradient

# How these were chosen: see doc/design.rst.
_LOG_PRECISIONS = (math.log(1e-2), math.log(1e8))  # limits while the information is matched
_LOG_LEAST = -600.0  # of a concentration there: its inverse square is finite in float64

# B_2k, k = 1 to 3, of Stirling's series: from 4 on, three terms leave out less than float32 rounds.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42)
_SHIFT = 4
_FEW = 2**9  # elements for which torch's own functions take no longer than the series
_FAR = 1e3  # from here on, one term leaves out a share of 1e-10

_CHUNK = {"cpu": 2**15}  # elements of one temporary: 128 KiB, several fit the cache
_CHUNK_ELSEWHERE = 2**22
_PROXY_EPS = torch.finfo(torch.float32).eps  # added to the denominator of Eq 17, as released

_ROUNDING = 1e-3  # of a concentration at most, where those of a sample are equal


# --- targets, made of the predictions of members ----------------------------------------------


class MemberStatistics:
    """Means (..., n, K) of the probabilities, and of their logarithms, of members added one by one.

    Logits are divided by the temperature. Smoothing is the weight of the uniform distribution that
    is mixed into every member; the paper has 1e-3 for the log-likelihood and 0 for the proxy. Use
    it for members that give probabilities of zero: without it these count as the smallest normal
    number, and the precision becomes tiny.
    """

    mean: Tensor
    mean_log: Tensor

    def __init__(self, temperature: float | Tensor = 1.0, smoothing: float = 0.0) -> None:
        self.temperature = temperature
        self.smoothing = smoothing
        self.n_members = 0

    def add(self, member: Tensor) -> Self:
        """Add the logits or log probabilities (..., n, K) of a member."""
        return self.add_together(member.unsqueeze(-3))

    def add_together(self, members: Tensor) -> Self:
        """Add several members, (..., S, n, K), in groups that fit the cache."""
        members = members.detach()
        first = members.select(-3, 0)
        if self.n_members == 0:
            self.mean, self.mean_log = torch.zeros_like(first), torch.zeros_like(first)
        for rows in _row_blocks(first):
            n_members = self.n_members
            for group in members[..., rows, :].split(_affordable(first[..., rows, :]), dim=-3):
                n_members += group.shape[-3]
                share = group.shape[-3] / n_members
                softened = _softened(group, self.temperature, self.smoothing)
                for total, t in zip((self.mean, self.mean_log), softened, strict=True):
                    # A single member is its own mean: no need to compute it.
                    mean = t.squeeze(-3) if t.shape[-3] == 1 else t.mean(-3)
                    total[..., rows, :].lerp_(mean, share)
        self.n_members += members.shape[-3]
        return self


def proxy_precision(mean: Tensor, mean_log: Tensor, max_precision: float = math.inf) -> Tensor:
    """Precision of the Dirichlet that is as wide as an ensemble (Eq 17).

    It estimates the precision of the Dirichlet that the members were drawn from, by Stirling's
    approximation: too low for a precision that is not large beside K.

    Parameters
    ----------
    mean, mean_log : Tensor of shape (..., n, K)
        See ``MemberStatistics``.
    max_precision : float, default=inf
        Upper limit. Without it, identical members give ``(K - 1) / 1.2e-7``.

    Returns
    -------
    precision : Tensor of shape (..., n)
        Not negative.
    """
    terms = _finite(mean.log()).sub_(mean_log).mul_(mean)
    divergence = terms.sum(-1).clamp_(min=0)  # mean KL(mean || member)
    denominator = divergence.mul_(2).add_(_PROXY_EPS)
    return denominator.reciprocal_().mul_(mean.shape[-1] - 1).clamp_(max=max_precision)  # Eq 17


def largest_precision(n_classes: int, dtype: torch.dtype) -> float:
    """Largest precision of a proxy of K classes whose losses and gradients a dtype can hold.

    It is 8,400 for each class in float32, and that of a student, 1e8, at most.
    """
    return min(n_classes * _ROUNDING / torch.finfo(dtype).eps, Dirichlet.max_precision)


def proxy_target(
    members: Tensor,
    max_precision: float = math.inf,
    temperature: float | Tensor = 1.0,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Mean and precision of the proxy of an ensemble (Eq 17).

    Parameters
    ----------
    members : Tensor of shape (..., S, n, K)
        Logits or log probabilities, ``-inf`` for what a member rules out.
    max_precision : as in :func:`proxy_precision`
    temperature, smoothing : float, default=1.0 and 0.0
        See ``MemberStatistics``.

    Returns
    -------
    mean : Tensor of shape (..., n, K)
    precision : Tensor of shape (..., n)
    """
    first = members.select(-3, 0)
    mean, precision = torch.empty_like(first), first.new_empty(first.shape[:-1])
    for rows in _row_blocks(first):
        statistics = MemberStatistics(temperature, smoothing).add_together(members[..., rows, :])
        mean[..., rows, :] = statistics.mean
        precision[..., rows] = proxy_precision(statistics.mean, statistics.mean_log, max_precision)
    return mean, precision


def information_target(
    members: Tensor, temperature: float | Tensor = 1.0, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mean (..., n, K) and mutual information (..., n), in nats, of members (..., S, n, K).

    The mutual information is the mean divergence of the members from their mean. It is finite
    where a member gives a class no probability.
    """
    first = members.select(-3, 0)
    mean, information = torch.empty_like(first), first.new_empty(first.shape[:-1])
    for rows in _row_blocks(first):
        probs, log_probs = _softened(members[..., rows, :].detach(), temperature, smoothing)
        mean[..., rows, :] = probs.mean(-3)
        log_ratio = log_probs.sub_(_finite(mean[..., rows, :].log()).unsqueeze(-3))
        information[..., rows] = log_ratio.mul_(probs).sum(-1).mean(-2).clamp_(min=0)
    return mean, information


def proxy_concentrations(mean: Tensor, precision: Tensor, offset: float = 1.0) -> Tensor:
    """Concentrations of the proxy: beta (Eq 17).

    Parameters
    ----------
    mean : Tensor of shape (..., n, K)
    precision : Tensor of shape (..., n)
    offset : float, default=1.0
        With 0, a mean probability of zero gives a concentration of zero, which no loss accepts.

    Returns
    -------
    concentrations : Tensor of shape (..., n, K)
    """
    return (mean * precision.unsqueeze(-1)).add_(offset)  # Eq 17


# --- losses -----------------------------------------------------------------------------------


@loss_with_gradient
def dirichlet_reverse_kl(
    outputs: Tensor, concentrations: Tensor, offset: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Divergence of the student's Dirichlet from the teacher's, ``KL(student || teacher)`` (Eq 14).

    Its minimiser has the teacher's concentrations. With many classes, memory stays low if
    these are made within the call and nothing else refers to them.

    Parameters
    ----------
    outputs, concentrations : Tensor of shape (..., n, K)
        Of the student; and of the teacher, such as those of its proxy: beta.
    offset : float, default=1.0
        Of the student.

    Returns
    -------
    loss : Tensor of shape (..., n)
        In nats.
    """

    def kernel(outputs: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        alpha, slope = _concentrations(outputs, offset)
        loss, gradient = _divergence(beta, alpha)  # Eq 14
        return loss, gradient.mul_(slope)

    return _by_rows(kernel, outputs, concentrations)


@loss_with_gradient
def dirichlet_reverse_kl_reference(
    outputs: Tensor, mean: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor]:
    """The reverse divergence as the paper's authors released it: Eq 18 over its precision.

    The reconstruction term, with the members' mean and a precision of ``precision + K``, and the
    divergence from the flat Dirichlet are both divided by that precision.
    """
    # Eq 18 over its beta_0 is the divergence from these concentrations, but for a constant.
    beta_0 = precision + mean.shape[-1]
    concentrations = proxy_concentrations(mean, beta_0)
    loss, gradient = dirichlet_reverse_kl.and_gradient(outputs, concentrations)
    return loss.div_(beta_0), gradient.div_(beta_0.unsqueeze(-1))


@loss_with_gradient
def dirichlet_forward_kl(
    outputs: Tensor, concentrations: Tensor, offset: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Divergence of the teacher's Dirichlet from the student's, ``KL(teacher || student)`` (Eq 13).

    With many classes its gradient is that of the improbable ones, as is that of the likelihood: the
    paper's authors could not train with either. With `offset` 1 it hardly trains with few classes:
    its slope in an output vanishes where the concentration comes near 1.

    Parameters
    ----------
    outputs, concentrations, offset : as in :func:`dirichlet_reverse_kl`

    Returns
    -------
    loss : Tensor of shape (..., n)
    """

    def kernel(outputs: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        alpha, slope = _concentrations(outputs, offset)
        loss, _ = _divergence(alpha, beta)  # Eq 13
        # Differences of nearly equal numbers: float64.
        gradient = alpha.double().digamma().sub_(beta.double().digamma())
        gradient.sub_(_total(alpha).digamma() - _total(beta).digamma()).mul_(slope)  # Eq 15
        return loss, gradient

    return _by_rows(kernel, outputs, concentrations)


@loss_with_gradient
def dirichlet_nll(outputs: Tensor, mean_log: Tensor, offset: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean negative log density of the members' probabilities (Eqs 7 and 11).

    Parameters
    ----------
    outputs, mean_log : Tensor of shape (..., n, K)
        Of the student; and the members' mean log probabilities, see ``MemberStatistics``.
    offset : float, default=1.0

    Returns
    -------
    loss : Tensor of shape (..., n)
    """

    def kernel(outputs: Tensor, mean_log: Tensor) -> tuple[Tensor, Tensor]:
        alpha, slope = _concentrations(outputs, offset)
        alpha = alpha.double()  # large numbers whose sum is small
        alpha_0 = _total(alpha)
        terms = alpha.lgamma().sub_((alpha - 1).mul_(mean_log))
        loss = _total(terms) - alpha_0.lgamma()  # Eq 11
        gradient = alpha.digamma_().sub_(alpha_0.digamma()).sub_(mean_log).mul_(slope)  # Eq 11
        return loss, gradient

    return _by_rows(kernel, outputs, mean_log)


@loss_with_gradient
def dirichlet_moments(
    outputs: Tensor,
    mean: Tensor,
    information: Tensor,
    weight: float = 0.1,
    floor: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    r"""Mean and mutual information of the members, each matched by a term of its own.

    With the mean :math:`\hat p` and the mutual information :math:`\hat I` of the student's plain
    Dirichlet, and those of the members, it is
    :math:`\operatorname{KL}(\bar p \,\|\, \hat p) + w (\sqrt{1 + e^2} - 1)`, where
    :math:`e = \ln \frac{\hat I + \varepsilon}{I + \varepsilon}`: half a square near 0. Ours, not
    the paper's: its minimiser is the Dirichlet whose epistemic part is that of the members, which
    that of the proxy misses by a factor of a few, and of ten where the members are sure. The
    precision is held between 1e-2 and 1e8 by a like term of its logarithm: members that agree, or
    that are each sure of one class, would make it infinite, or 0. The floor :math:`\varepsilon`, in
    nats, is above what float32 rounds.
    """

    def kernel(outputs: Tensor, mean: Tensor, information: Tensor) -> tuple[Tensor, Tensor]:
        log_precision = outputs.logsumexp(-1, keepdim=True)
        log_probs = outputs - log_precision
        divergence = torch.xlogy(mean, mean).sub_(log_probs * mean).sum(-1, keepdim=True)
        # The precision alone is limited. Were each output, one beyond its limit would be driven on
        # and on by an information that it no longer changes.
        within = log_precision.clamp(*_LOG_PRECISIONS)
        log_alpha = log_probs.double() + within
        student, slope = _information(log_alpha.clamp_(min=_LOG_LEAST).exp_())
        student = student + floor
        error = (student / (information + floor)).log()
        excess = log_precision - within
        error.masked_fill_(excess * error > 0, 0.0)  # it would lead farther away
        probs = log_probs.exp_()
        # Squares, but linear far from 0: a new network errs by powers of ten, all in one direction.
        size, size_of_excess = (1 + error.square()).sqrt(), (1 + excess.square()).sqrt()
        gradient = (probs - mean).addcmul_(probs, excess / size_of_excess, value=weight)
        gradient += slope.mul_(weight * error / (size * student))
        return divergence + weight * (size + size_of_excess - 2), gradient

    return _by_rows(kernel, outputs, mean, information.unsqueeze(-1))


def proxy_term(loss: str, mean: Tensor, precision: Tensor) -> Term:
    """Divergence of a student and a proxy; "reverse_kl" is over the sum of its concentrations."""
    if loss == "reverse_kl_reference":
        return Term(dirichlet_reverse_kl_reference, (mean, precision))
    if loss == "forward_kl":  # without the one: with it, its slope vanishes where e^z is small
        beta = proxy_concentrations(mean, precision, offset=0.0)
        return Term(dirichlet_forward_kl, (beta.clamp_(min=math.exp(Dirichlet.min_output)), 0.0))
    beta = proxy_concentrations(mean, precision)  # Eq 17
    return Term(dirichlet_reverse_kl, (beta,), weight=1 / (precision + mean.shape[-1]))


# --- parts of the above -----------------------------------------------------------------------


def _softened(
    members: Tensor, temperature: float | Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Probabilities and their logarithms, at the temperature and smoothed."""
    logits = (members - members.amax(-1, keepdim=True)).div_(temperature)
    probs = logits.exp()  # torch's softmax takes several times as long over few classes
    total = probs.sum(-1, keepdim=True)
    probs.div_(total)
    if smoothing:  # (1 - smoothing) (p - 1/K) + 1/K
        probs.mul_(1 - smoothing).add_(smoothing / members.shape[-1])
        return probs, probs.log()
    return probs, _finite(logits.sub_(total.log_()))


def _finite(log_probs: Tensor) -> Tensor:
    """Log probabilities, none less than that of the smallest normal number; in place."""
    return log_probs.clamp_(min=math.log(torch.finfo(log_probs.dtype).tiny))


def _affordable(values: Tensor) -> int:
    """How many tensors like this one are taken at a time."""
    return max(1, _CHUNK.get(values.device.type, _CHUNK_ELSEWHERE) // max(1, values.numel()))


def _row_blocks(values: Tensor) -> Iterator[slice]:
    """Slices of the samples of (..., n, K), of as many as are taken at a time."""
    n_rows = values.shape[-2]
    size = _affordable(values[..., :1, :])
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _concentrations(outputs: Tensor, offset: float) -> tuple[Tensor, Tensor]:
    """Concentrations of the student, and their slopes in the outputs."""
    slope = Dirichlet.limited(outputs).exp_()  # beyond the limits it leads back
    return slope + offset, slope  # Eq 6; with the offset of Sec. 3 the chain factor is still e^z


def _information(concentrations: Tensor) -> tuple[Tensor, Tensor]:
    """Mutual information (n, 1) of Dirichlets, and its gradient in ln alpha; in float64.

    With the mean p, ``I = sum p_k (g(alpha_k) - g(alpha_0))`` and ``g(x) = digamma(x + 1) - ln x``,
    of which ``x g'(x) = x trigamma(x + 1) - 1``.
    """
    alpha = concentrations.double()
    both = torch.cat((alpha, _total(alpha)), dim=-1)
    mean = alpha / both[..., -1:]
    excess = digamma_excess(both)
    share = excess[..., :-1] - excess[..., -1:]
    information = (mean * share).sum(-1, keepdim=True).clamp_(min=0)
    slope = torch.special.polygamma(1, both + 1).mul_(both)
    slope = slope[..., :-1] - slope[..., -1:]
    return information, slope.add_(share).sub_(information).mul_(mean)


def _total(values: Tensor) -> Tensor:
    """Sum over the classes, of shape (n, 1), as float64."""
    return values.sum(-1, keepdim=True, dtype=torch.float64)


def _by_rows(
    kernel: Callable[..., tuple[Tensor, Tensor]], outputs: Tensor, *targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss (..., n) and gradient (..., n, K), of a few samples at a time.

    The kernel takes outputs (n, K) and targets (n, .), and returns a loss (n, 1).
    """
    lead = outputs.shape[:-1]
    targets = tuple(t.expand(*lead, -1).reshape(-1, t.shape[-1]) for t in targets)
    flat = outputs.reshape(-1, outputs.shape[-1])
    loss, gradient = flat.new_empty(len(flat)), torch.empty_like(flat)
    for rows in _row_blocks(flat):
        values, gradient[rows] = kernel(flat[rows], *(t[rows].to(flat) for t in targets))
        loss[rows] = values.squeeze(-1)
    return loss.view(lead), gradient.view(outputs.shape)


def _divergence(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Divergence (n, 1) of a Dirichlet a from that of b, ``KL(a || b)``, and its gradient in a.

    It is the sum over the classes of the Bregman divergences of ln Gamma, less that of the
    precisions. These are as large as the concentrations, which may exceed the result by far. So
    ``x ln x - x`` is taken out of ln Gamma: its part is the divergence of the two means, times
    ``b_0``. What remains is no larger than the result. The part is a small difference: float64.
    """
    a_0, b_0 = _total(a), _total(b)
    scaled = a.double() * (b_0 / a_0)
    difference = scaled - b
    loss = _total((b / scaled).log_().mul_(b).add_(difference))
    rest, excess = _remainder(b, a)
    rest_0, excess_0 = _remainder(b_0, a_0)
    gradient = difference.div_(a).addcmul_(a - b, excess).sub_((a_0 - b_0) * excess_0)  # Eq 16
    return loss.add_(_total(rest)).sub_(rest_0).clamp_(min=0), gradient


def _remainder(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Bregman divergence of ``ln Gamma(x) - x ln x + x``, and ``trigamma(a) - 1 / a``.

    In float64, or for few elements, torch's functions in float64 are used, and Stirling's series
    for large numbers, of which the former are small differences.
    """
    if a.dtype == torch.float32 and a.numel() > _FEW:
        return _remainder_by_series(b, a)
    a, b = a.double(), b.double()
    near, w, is_far = a.clamp(max=_FAR), a.reciprocal(), a > _FAR
    slope = torch.where(is_far, -w * (w / 12 + 0.5), near.digamma() - near.log())
    trigamma = torch.special.polygamma(1, near)
    excess = torch.where(is_far, w.square() * (w / 6 + 0.5), trigamma - near.reciprocal())
    return _log_gamma_excess(b) - _log_gamma_excess(a) - (b - a) * slope, excess


def _log_gamma_excess(x: Tensor) -> Tensor:
    """``ln Gamma(x) - x ln x + x``."""
    near = x.clamp(max=_FAR)
    far = 0.5 * (2 * math.pi / x).log() + x.reciprocal() / 12
    return torch.where(x > _FAR, far, near.lgamma() - torch.xlogy(near, near) + near)


def _remainder_by_series(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`_remainder` by Stirling's series, to the rounding of float32.

    The recurrence of Gamma shifts both numbers up, b to y and a to x. With ``u = (y - x) / x``,
    Stirling's first term gives ``(u - ln(1 + u)) / 2``. A step of the recurrence, from t = a + i,
    adds ``u - ln(1 + u)`` with ``u = (b - a) / t``. No term is much larger than the result.
    """
    w, v = (a + _SHIFT).reciprocal_(), (b + _SHIFT).reciprocal_()  # 1 / x and 1 / y
    difference, least = b - a, torch.minimum(a, b)
    distance, sign = difference.abs(), difference.sign()
    u = difference * w
    # Logarithms by the smaller number: they keep their digits where u comes near -1.
    log = (distance / (least + _SHIFT)).log1p_().mul_(sign)  # ln(1 + u)
    # y ln(y / x) - b ln(b / a), by ln(y / b) - ln(x / a)
    shifted = torch.minimum(w, v).mul_(distance).div_(least).mul_(_SHIFT).log1p_()
    rest = (_SHIFT - 0.5) * log - shifted.mul_(sign).mul_(b)
    rest.add_(u, alpha=0.5)
    excess = torch.sub(0.5 * w, _SHIFT / a).mul_(w)
    w_squared, v_squared = w.square(), v.square()
    for k, bernoulli in enumerate(_BERNOULLI, start=1):
        slope = bernoulli / (2 * k)
        rest.add_(v - w, alpha=slope / (2 * k - 1)).addcmul_(u, w, value=slope)
        excess.add_(w.mul_(w_squared), alpha=bernoulli)
        v.mul_(v_squared)
    for i in range(_SHIFT):
        torch.add(a, i, out=w).reciprocal_()
        rest.addcmul_(difference, w)
        excess.addcmul_(w, w)
        torch.div(distance, torch.add(least, i, out=v), out=v)
        rest.addcmul_(v.log1p_(), sign, value=-1)
    return rest, excess
