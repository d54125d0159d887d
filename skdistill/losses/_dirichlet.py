# SPDX-License-Identifier: BSD-3-Clause
"""Losses of a Dirichlet over class probabilities: networks give outputs z of shape (..., n, K).

The concentrations are ``alpha = exp(z) + offset``, as :meth:`Dirichlet.from_outputs` reads them;
offset 1 goes with the proxy target, offset 0 is the plain form. Equations are those of M. Ryabinin,
A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many Classes with Proxy
Targets" (2021), whose Eqs 11, 13 and 14 lack ln before Gamma.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .._utils.special import digamma_excess
from ..distributions import Dirichlet
from ._dirichlet_targets import proxy_concentrations, row_blocks
from ._loss import Term, loss_with_gradient

# Logarithms of the precisions that a student is held between while its information is matched. At
# the first it is that of members that are each sure of one class, to a per cent; at the second far
# below what the loss tells from 0. Such members would drive the outputs beyond their limits.
_LOG_PRECISIONS = (math.log(1e-2), math.log(1e8))
_LOG_LEAST = -600.0  # of a concentration there: its inverse square is finite in float64

# B_2k, k = 1 to 3, of Stirling's series: from 4 on, three terms leave out less than float32 rounds.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42)
_SHIFT = 4
_FEW = 2**9  # elements for which torch's own functions take no longer than the series


@loss_with_gradient
def dirichlet_reverse_kl(
    outputs: Tensor, concentrations: Tensor, offset: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Divergence of the student's Dirichlet from the teacher's, ``KL(student || teacher)`` (Eq 14).

    Its minimiser has the teacher's concentrations. With many classes, memory stays low if
    these are made within the call and nothing else refers to them.

    Parameters
    ----------
    outputs : Tensor of shape (..., n, K)
    concentrations : Tensor of shape (..., n, K)
        Of the teacher, such as those of its proxy: beta.
    offset : float, default=1.0
        Of the student.

    Returns
    -------
    loss : Tensor of shape (..., n)
        In nats.
    """

    def kernel(outputs: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        alpha, slope = _concentrations(outputs, offset)
        alpha_0, beta_0 = _total(alpha), _total(beta)
        divergence, trigamma = _bregman(beta, alpha)
        divergence_0, trigamma_0 = _bregman(beta_0, alpha_0)
        loss = _total(divergence) - divergence_0  # Eq 14
        common = ((alpha_0 - beta_0) * trigamma_0).to(trigamma.dtype)
        gradient = (alpha - beta).mul(trigamma).sub_(common).mul_(slope)  # Eq 16
        return loss.clamp_(min=0), gradient

    return _by_rows(kernel, outputs, concentrations)


@loss_with_gradient
def dirichlet_reverse_kl_reference(
    outputs: Tensor, mean: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor]:
    """The reverse divergence as the paper's authors released it: Eq 18 over its precision.

    The reconstruction term, with the mean of the members and a precision of ``precision + K``, is
    joined by the divergence from the flat Dirichlet, and both are divided by that precision. Its
    minimiser is ``(precision + K) mean + 1``. The constant is such that the minimum is 0.
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
    paper's authors could not train with either.

    Parameters
    ----------
    outputs, concentrations, offset : as in :func:`dirichlet_reverse_kl`

    Returns
    -------
    loss : Tensor of shape (..., n)
        In nats.
    """

    def kernel(outputs: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        alpha, slope = _concentrations(outputs, offset)
        alpha_0, beta_0 = _total(alpha), _total(beta)
        divergence, _ = _bregman(alpha, beta)
        divergence_0, _ = _bregman(alpha_0, beta_0)
        loss = _total(divergence) - divergence_0  # Eq 13
        # Differences of nearly equal numbers: float64.
        gradient = alpha.double().digamma().sub_(beta.double().digamma())
        gradient.sub_(alpha_0.digamma() - beta_0.digamma()).mul_(slope)  # Eq 15
        return loss.clamp_(min=0), gradient

    return _by_rows(kernel, outputs, concentrations)


@loss_with_gradient
def dirichlet_nll(outputs: Tensor, mean_log: Tensor, offset: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean negative log density of the members' probabilities (Eqs 7 and 11).

    Parameters
    ----------
    outputs : Tensor of shape (..., n, K)
    mean_log : Tensor of shape (..., n, K)
        Mean log probabilities of the members, see ``MemberStatistics``.
    offset : float, default=1.0
        Of the student.

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
    """Divergence of a student's Dirichlet and a proxy, see :func:`proxy_target`.

    Of "reverse_kl", "reverse_kl_reference" and "forward_kl", the first is divided by the sum of the
    proxy's concentrations.
    """
    if loss == "reverse_kl_reference":
        return Term(dirichlet_reverse_kl_reference, (mean, precision))
    beta = proxy_concentrations(mean, precision)  # Eq 17
    if loss == "forward_kl":
        return Term(dirichlet_forward_kl, (beta,))
    return Term(dirichlet_reverse_kl, (beta,), weight=1 / (precision + mean.shape[-1]))


def _concentrations(outputs: Tensor, offset: float) -> tuple[Tensor, Tensor]:
    """Concentrations of the student, and their slopes in the outputs."""
    slope = outputs.clamp(*Dirichlet.output_limits).exp_()
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
    return values.sum(-1, keepdim=True).double()


def _by_rows(
    kernel: Callable[..., tuple[Tensor, Tensor]], outputs: Tensor, *targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss (..., n) and gradient (..., n, K), of a few samples at a time.

    The kernel takes outputs (n, K) and targets (n, .), and returns a loss (n, 1).
    """
    lead = outputs.shape[:-1]
    flat_targets = [t.expand(*lead, t.shape[-1]).reshape(-1, t.shape[-1]) for t in targets]
    flat = outputs.reshape(-1, outputs.shape[-1])
    loss, gradient = flat.new_empty(len(flat)), torch.empty_like(flat)
    for rows in row_blocks(flat):
        values, gradient[rows] = kernel(flat[rows], *(t[rows].to(flat) for t in flat_targets))
        loss[rows] = values.squeeze(-1)
    return loss.view(outputs.shape[:-1]), gradient.view(outputs.shape)


def _bregman(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Bregman divergence of ln Gamma, ``lnG(b) - lnG(a) - (b - a) digamma(a)``, and trigamma(a).

    The divergence of two Dirichlets is the sum of this over the classes, less this of the
    precisions. The two ``lnG`` are large compared with the result. In float64, or for few elements,
    torch's functions in float64 are used; else a series whose terms are no larger than the result.
    """
    if a.dtype == torch.float32 and a.numel() > _FEW:
        return _bregman_by_series(b, a)
    a, b = a.double(), b.double()
    tangent = a.lgamma() + (b - a) * a.digamma()
    return b.lgamma() - tangent, torch.special.polygamma(1, a)


def _bregman_by_series(b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`_bregman` by Stirling's series, to the rounding of float32.

    The recurrence of Gamma shifts both numbers up, b to y and a to x. With ``u = (y - x) / x``,
    Stirling's main part of the divergence is ``x ((1 + u) ln(1 + u) - u) + (u - ln(1 + u)) / 2``.
    A step of the recurrence, from t = a + i, adds ``u - ln(1 + u)`` with ``u = (b - a) / t``.
    """
    w, v = (a + _SHIFT).reciprocal_(), (b + _SHIFT).reciprocal_()  # 1 / x and 1 / y
    difference, least = b - a, torch.minimum(a, b)
    distance, sign = difference.abs(), difference.sign()
    u = difference * w
    # ln(1 + u) by the smaller number: it keeps its digits where u comes near -1.
    log = (distance / (least + _SHIFT)).log1p_().mul_(sign)
    divergence = (u + 1).mul_(log).sub_(u).div_(w)
    divergence.add_(torch.sub(u, log, out=log), alpha=0.5)
    trigamma = torch.addcmul(w, w, w, value=0.5)
    w_squared, v_squared = w.square(), v.square()
    for k, bernoulli in enumerate(_BERNOULLI, start=1):
        slope = bernoulli / (2 * k)
        divergence.add_(v - w, alpha=slope / (2 * k - 1)).addcmul_(u, w, value=slope)
        trigamma.add_(w.mul_(w_squared), alpha=bernoulli)
        v.mul_(v_squared)
    for i in range(_SHIFT):
        torch.add(a, i, out=w).reciprocal_()
        divergence.addcmul_(difference, w)
        trigamma.addcmul_(w, w)
        torch.div(distance, torch.add(least, i, out=v), out=v)
        divergence.addcmul_(v.log1p_(), sign, value=-1)
    return divergence, trigamma
