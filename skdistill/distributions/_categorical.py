# SPDX-License-Identifier: BSD-3-Clause
"""Distributions over class probabilities: of an ensemble's members, and of expectations known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._protocol import Calibratable, ClassDistribution
from ._shared import Uncertainty, row_chunks

_CHUNK = 2**15  # elements of one temporary: 128 KiB of float32, several fit the cache
_REGISTER = 16  # float32 numbers in the widest vector register
_LOG_ZERO = -1e3  # stands for log 0: finite, and its exponential is 0 in every dtype

# (1 + d) log(1 + d) - d = d^2 (1/2 - d/6 + d^2/12 - ...); for |d| < 0.05 nine terms err by 1e-13.
_SMALL = 0.05
_SERIES = [(-1) ** k / (k * (k - 1)) for k in range(2, 11)]


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class EmpiricalCategorical(ClassDistribution, Calibratable):
    """Members of equal weight, each of which predicts class probabilities for every sample.

    As a distribution over class probabilities it tells aleatoric from epistemic uncertainty;
    averaged over the members it is, per sample, the mixture ``1/S sum_s p_s``, which is the
    predictive distribution of an ensemble of classifiers.

    Parameters
    ----------
    log_probs : Tensor of shape (S, n, K)
        Log probabilities, in nats, that each of S members gives to K classes for n samples. Their
        exponentials sum to one over the classes; ``-inf`` is a class that a member rules out.
    """

    log_probs: Tensor

    def __post_init__(self) -> None:
        _check_axes("log_probs", self.log_probs, "(S, n, K)")

    @classmethod
    def from_logits(cls, logits: Tensor) -> EmpiricalCategorical:
        """Read network outputs as logits.

        Parameters
        ----------
        logits : Tensor of shape (S, n, K)

        Returns
        -------
        EmpiricalCategorical
        """
        _check_axes("logits", logits, "(S, n, K)")
        return cls(_log_softmax(logits))

    @classmethod
    def from_members(cls, members: Tensor | np.ndarray) -> EmpiricalCategorical:
        """Inverse of :attr:`members`.

        Parameters
        ----------
        members : Tensor or array of shape (n, S, K)
            Class probabilities, samples first. They may be zero. Sums over the classes that
            differ from one by rounding are normalised.

        Returns
        -------
        EmpiricalCategorical

        Raises
        ------
        ValueError
            If the shape is not (n, S, K), a probability is negative or NaN, or the probabilities
            do not sum to one over the classes (to half the digits of their dtype).
        """
        if not isinstance(members, Tensor):
            members = torch.from_numpy(np.array(members))
        _check_axes("members", members, "(n, S, K): samples, members, classes")
        members = members if members.is_floating_point() else members.double()
        sums = members.sum(-1, keepdim=True)
        tolerance = math.sqrt(torch.finfo(members.dtype).eps)
        if not ((members >= 0).all() and ((sums - 1).abs() <= tolerance).all()):
            raise ValueError(
                "members must be probabilities, not negative and with sums of one over the last "
                f"axis; got values from {members.min():.6g} and sums from {sums.min():.6g} to "
                f"{sums.max():.6g}."
            )
        return cls((members / sums).log().transpose(0, 1))

    def tempered(self, temperature: float) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(self.log_probs / temperature)

    def widened(self, factor: Tensor) -> EmpiricalCategorical:
        log_mean = self.log_mean
        deviations = factor.sqrt().unsqueeze(-1) * (self.log_probs - log_mean)
        return EmpiricalCategorical.from_logits(log_mean + deviations)

    def displaced(self, values: Tensor) -> EmpiricalCategorical:
        found = EmpiricalCategorical.from_logits(self.log_probs + values.to(self.log_probs))
        is_one = len(self.log_probs) == 1
        return EmpiricalCategorical(found.log_mean.unsqueeze(0)) if is_one else found

    @property
    def members(self) -> Tensor:
        """Class probabilities, samples first: a tensor of shape (n, S, K)."""
        return self.log_probs.exp().transpose(0, 1)

    @property
    def mean(self) -> Tensor:
        """Class probabilities of the mixture, of shape (n, K)."""
        return torch.cat([chunk.exp().mean(dim=0) for chunk in self._chunks()])

    @property
    def log_mean(self) -> Tensor:
        """Log probabilities of the mixture, of shape (n, K); finite where these underflow."""
        sums = torch.cat([chunk.logsumexp(dim=0) for chunk in self._chunks()])
        return sums - math.log(len(self.log_probs))

    @torch.no_grad()
    def uncertainty(self) -> Uncertainty:
        """Parts of the entropy of the mixture (Eq 1 of Hydra+, Ferianc & Rodrigues, 2022).

        The aleatoric part is the members' mean entropy; the epistemic part is the mutual
        information of class and member, the mean divergence of the members from the mixture,
        exactly zero where the members agree. No gradient passes through.
        """
        parts = [_mean_entropy_and_information(chunk) for chunk in self._chunks()]
        aleatoric, epistemic = (torch.cat(part) for part in zip(*parts, strict=True))
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="entropy")

    @property
    def expected_pairwise_kl(self) -> Tensor:
        """Mean divergence between two members drawn independently, of shape (n,), in nats.

        It is the epistemic part of :meth:`uncertainty` and :attr:`reverse_mutual_information`.
        """
        mutual_information: Tensor = self.uncertainty().epistemic
        return mutual_information + self.reverse_mutual_information

    @property
    @torch.no_grad()
    def reverse_mutual_information(self) -> Tensor:
        """Mean divergence of the mixture from the members, ``KL(mean || p)``, (n,), in nats.

        Never negative. A member's probability of zero counts as the exponential of -1000.
        """
        return torch.cat([_reverse_information(chunk) for chunk in self._chunks()])

    def _chunks(self) -> tuple[Tensor, ...]:
        """Members of some samples at a time, (S, samples, K), so that temporaries stay small."""
        n_members, _, n_classes = self.log_probs.shape
        return row_chunks(self.log_probs, _CHUNK // (n_members * n_classes), axis=1)


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class ExpectedCategorical(ClassDistribution):
    """Posterior expectations of class probabilities and of their entropy (Vadera et al., 2020).

    It is what a GPED student predicts; the parts of the uncertainty need nothing more.
    """

    log_mean: Tensor  # (n, K), of the expected class probabilities, the predictive distribution
    entropy: Tensor | None = None  # (n,), expected, in nats; None where it is not known

    @property
    def mean(self) -> Tensor:
        """Expected class probabilities, of shape (n, K)."""
        return self.log_mean.exp()

    def displaced(self, values: Tensor) -> ExpectedCategorical:
        # The expected entropy changes by the factor by which that of the predictive distribution
        # does, on average over the functions.
        found = EmpiricalCategorical.from_logits(self.log_mean + values.to(self.log_mean))
        entropy = self.entropy
        if entropy is not None:
            before = torch.special.entr(self.mean).sum(-1)
            least = torch.finfo(before.dtype).tiny
            entropy = entropy * found.uncertainty().aleatoric / before.clamp(min=least)
        return ExpectedCategorical(found.log_mean, entropy)

    @torch.no_grad()
    def uncertainty(self) -> Uncertainty:
        """Parts of the entropy of the predictive distribution (Eq 3).

        The aleatoric part is the expected entropy, at most the total. Where it is not known, both
        parts are None. No gradient passes through.
        """
        total = torch.special.entr(self.mean).sum(-1)
        if self.entropy is None:
            return Uncertainty(total, None, None, measure="entropy")
        aleatoric = torch.minimum(self.entropy, total)
        epistemic = total - aleatoric
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="entropy")


def _check_axes(name: str, values: Tensor, expected: str) -> None:
    if values.ndim != 3:
        raise ValueError(f"{name} must have shape {expected}; got {tuple(values.shape)}.")


def _log_softmax(logits: Tensor) -> Tensor:
    """Log of the softmax over the last axis; if that is short, torch's is several times as slow."""
    if logits.shape[-1] < _REGISTER:
        return logits.mT.log_softmax(-2).mT
    return logits.log_softmax(-1)


def _mean_entropy_and_information(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean entropy of members (S, n, K), and their mutual information, both of shape (n,).

    The difference of two entropies would lose the information to rounding. It is the mean over
    members of ``KL(p || q) = sum_k q_k ((1 + d_k) log(1 + d_k) - d_k)``, where q is the members'
    mean and ``1 + d = p / q``; no term is negative, and d is exact for members that nearly agree.
    """
    log_probs = log_probs.mT.clamp(min=_LOG_ZERO).contiguous()  # (S, K, n)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-2).mean(dim=0)
    largest = log_probs.amax(dim=0)
    below = torch.expm1(log_probs - largest)  # p / largest p - 1, in [-1, 0]
    mean = below.mean(dim=0)
    divergences = _x_log_x_excess((below - mean) / (1 + mean)).mean(dim=0)
    return entropy, (largest.exp() * (1 + mean) * divergences).sum(dim=-2)


def _reverse_information(log_probs: Tensor) -> Tensor:
    """Mean divergence of the mixture of members (S, n, K) from them, of shape (n,).

    ``sum_k q_k (e_k - 1 - log e_k)`` with ``e = p / q`` and q the mixture has no negative term.
    """
    log_probs = log_probs.mT.clamp(min=_LOG_ZERO).contiguous()  # (S, K, n)
    log_mean = log_probs.logsumexp(dim=0) - math.log(len(log_probs))
    d = log_probs - log_mean
    return (d.expm1().sub_(d).clamp_(min=0).mean(dim=0) * log_mean.exp()).sum(dim=-2)


def _x_log_x_excess(d: Tensor) -> Tensor:
    """``(1 + d) log(1 + d) - d`` for d >= -1, never negative and of full relative accuracy.

    For small d it is about d^2/2 and the two terms cancel: there a series is summed instead.
    """
    series = torch.full_like(d, _SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        series.mul_(d).add_(coefficient)
    direct = (1 + d) * d.log1p().clamp_(min=_LOG_ZERO) - d
    return torch.where(d.abs() < _SMALL, series.mul_(d).mul_(d), direct)
