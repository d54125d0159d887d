# SPDX-License-Identifier: BSD-3-Clause
"""Targets of a Dirichlet over class probabilities, made of the members' predictions.

They are the members' mean probabilities with their mutual information (the moments), the precision
of a Dirichlet about the mean (the proxy), or their mean log probabilities (the likelihood).
Equations are those of Ryabinin et al. (2021), see :mod:`._dirichlet`.

Samples are taken a few at a time, so that forty thousand classes need no more memory than the
results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

_CHUNK = {"cpu": 2**15}  # elements of one temporary: 128 KiB, several fit the cache
_CHUNK_ELSEWHERE = 2**22
_PROXY_EPS = torch.finfo(torch.float32).eps  # added to the denominator of Eq 17, as released

# Largest tolerated rounding error of a concentration, where those of a sample are equal. Losses and
# gradients are small differences of numbers of that size: with more they would be noise.
_ROUNDING = 1e-3


class MemberStatistics:
    """Means (..., n, K) of the probabilities, and of their logarithms, of members added one by one.

    Members' logits are divided by the temperature before the softmax. Smoothing is the weight of
    the uniform distribution, which is mixed into every member; the paper has 1e-3 for the
    log-likelihood and 0 for the proxy. Use it for members that give probabilities of zero: without
    it these count as the smallest normal number, and the precision becomes tiny.
    """

    mean: Tensor
    mean_log: Tensor

    def __init__(self, temperature: float | Tensor = 1.0, smoothing: float = 0.0) -> None:
        self.temperature = temperature
        self.smoothing = smoothing
        self.n_members = 0

    def add(self, member: Tensor) -> MemberStatistics:
        """Add the logits or log probabilities (..., n, K) of a member."""
        return self.add_together(member.unsqueeze(-3))

    def add_together(self, members: Tensor) -> MemberStatistics:
        """Add several members, (..., S, n, K), in groups that fit the cache."""
        members = members.detach()
        first = members.select(-3, 0)
        if self.n_members == 0:
            self.mean, self.mean_log = torch.zeros_like(first), torch.zeros_like(first)
        for rows in row_blocks(first):
            n_members = self.n_members
            for group in members[..., rows, :].split(_affordable(first[..., rows, :]), dim=-3):
                n_members += group.shape[-3]
                share = group.shape[-3] / n_members
                softened = _softened(group, self.temperature, self.smoothing)
                # A single member is its own mean: no need to compute it.
                means = (t.squeeze(-3) if t.shape[-3] == 1 else t.mean(-3) for t in softened)
                self.mean[..., rows, :].lerp_(next(means), share)
                self.mean_log[..., rows, :].lerp_(next(means), share)
        self.n_members += members.shape[-3]
        return self


def proxy_precision(mean: Tensor, mean_log: Tensor, max_precision: float = math.inf) -> Tensor:
    """Precision of the Dirichlet that is as wide as an ensemble (Eq 17).

    It estimates the precision of the Dirichlet that the members were drawn from, by Stirling's
    approximation: too low for a precision that is not large beside K.

    Parameters
    ----------
    mean, mean_log : Tensor of shape (..., n, K)
        Mean probabilities of the members, and mean log probabilities.
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

    It is 8,400 for each class in float32; in float64 there is practically no limit.
    """
    return n_classes * _ROUNDING / torch.finfo(dtype).eps


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
    max_precision : float, default=inf
        See :func:`proxy_precision`.
    temperature, smoothing : float, default=1.0 and 0.0
        See ``MemberStatistics``.

    Returns
    -------
    mean : Tensor of shape (..., n, K)
    precision : Tensor of shape (..., n)
    """
    first = members.select(-3, 0)
    mean, precision = torch.empty_like(first), first.new_empty(first.shape[:-1])
    for rows in row_blocks(first):
        statistics = MemberStatistics(temperature, smoothing).add_together(members[..., rows, :])
        mean[..., rows, :] = statistics.mean
        precision[..., rows] = proxy_precision(statistics.mean, statistics.mean_log, max_precision)
    return mean, precision


def information_target(
    members: Tensor, temperature: float | Tensor = 1.0, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mean (..., n, K) and mutual information (..., n), in nats, of members (..., S, n, K).

    The mutual information is the epistemic part of the entropy, the mean divergence of the members
    from their mean. It is finite where a member gives a class no probability.
    """
    first = members.select(-3, 0)
    mean, information = torch.empty_like(first), first.new_empty(first.shape[:-1])
    for rows in row_blocks(first):
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
    """How many tensors like this one are taken at a time, at least one."""
    return max(1, _CHUNK.get(values.device.type, _CHUNK_ELSEWHERE) // max(1, values.numel()))


def row_blocks(values: Tensor) -> Iterator[slice]:
    """Slices of the samples of (..., n, K), of as many as are taken at a time."""
    n_rows = values.shape[-2]
    size = _affordable(values[..., :1, :])
    return (slice(start, start + size) for start in range(0, n_rows, size))
