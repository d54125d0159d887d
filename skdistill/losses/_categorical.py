# SPDX-License-Identifier: BSD-3-Clause
"""Losses of classes: networks give logits of shape (..., n, K), teachers log probabilities.

Members and heads stand on the axis before the samples: (..., M, n, K). A member's log probability
may be ``-inf``, a class that it rules out. A temperature T divides logits and log probabilities
before the softmax, and the loss is multiplied by T^2, so that its gradient keeps its scale.

Inside, classes stand before samples, (..., M, K, n), and if they are few so they do in memory: over
a last axis of few classes torch reduces several times as slowly, over one of many twice as fast.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ._loss import Pairs, at, computed_once, loss_with_gradient

_MANY = 64  # classes that are reduced faster where they lie side by side in memory
_LOG_ZERO = -1e3  # stands for log 0: finite, and its exponential is 0 in every dtype


class _Logits(NamedTuple):
    logits: Tensor


class Categories(_Logits):
    """Heads, given by logits (..., M, n, K); each form, (..., M, K, n), is computed once."""

    @computed_once
    def log_probs(self) -> Tensor:
        return _over_classes(torch.log_softmax, self.logits)

    @computed_once
    def probs(self) -> Tensor:
        return self.log_probs.exp()

    @computed_once
    def log_mean(self) -> Tensor:
        """Log of the mean probabilities, (..., 1, K, n)."""
        log_sum = _over_networks(torch.logsumexp, self.log_probs)
        return log_sum - math.log(self.logits.shape[-3])

    @computed_once
    def log_ratio(self) -> Tensor:
        """Log probabilities less those of the mean."""
        return self.log_probs - self.log_mean


class KnownCategories(Categories):
    """Members, given by their log probabilities (..., N, n, K) in the place of logits, likewise."""

    @computed_once
    def log_probs(self) -> Tensor:
        log_probs = self.logits.mT.clamp(min=_LOG_ZERO)  # 0 log 0 = 0
        return log_probs.contiguous() if log_probs.shape[-2] < _MANY else log_probs

    @computed_once
    def mean(self) -> Tensor:
        """Mean probabilities, (..., 1, K, n)."""
        return _over_networks(torch.mean, self.probs)

    @computed_once
    def log_mean(self) -> Tensor:
        # No gradient needs the log of what underflows here, and a sum of exponentials costs more.
        return self.mean.clamp_min(torch.finfo(self.mean.dtype).tiny).log_()

    @computed_once
    def information(self) -> Tensor:
        """Mutual information, (..., 1, 1, n)."""
        terms = self.log_ratio * self.probs
        return terms.sum((-3, -2), keepdim=True) / self.logits.shape[-3]


Heads = Tensor | Categories
Members = Tensor | KnownCategories


@loss_with_gradient
def cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the softmax of `logits` relative to classes or to distributions.

    Parameters
    ----------
    logits : Tensor of shape (..., n, K)
    target : Tensor of int64 of shape (..., n), or of floats of shape (..., n, K)
        Classes, counted from 0, or probabilities, which sum to one over the classes.

    Returns
    -------
    loss : Tensor of shape (..., n)
        In nats.
    """
    log_probs = _over_classes(torch.log_softmax, logits)
    gradient = log_probs.exp()  # softmax less target
    if target.is_floating_point():
        return -(target.mT * log_probs).sum(-2), gradient.sub_(target.mT).mT
    index = target.unsqueeze(-2).expand(*log_probs.shape[:-2], 1, -1)  # of each sample's class
    loss = -log_probs.gather(-2, index).squeeze(-2)
    return loss, gradient.scatter_(-2, index, -1.0, reduce="add").mT


@loss_with_gradient
def categorical_correctness(heads: Heads, target: Tensor) -> tuple[Tensor, Tensor]:
    """L1 of Hydra+ for classes: the heads' mean cross-entropy of the label (Hydra+, Eq 3)."""
    logits = _heads(heads).logits
    loss, gradient = cross_entropy.and_gradient(logits, target.unsqueeze(logits.ndim - 3))
    return loss.mean(-2), gradient.div_(logits.shape[-3])


@loss_with_gradient
def categorical_aggregation(
    heads: Heads, members: Members, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """L2 of Hydra+ for classes: cross-entropy between mean probabilities (Hydra+, Eq 5)."""
    heads, members = _heads(heads), _members(members)
    if temperature != 1:
        heads = Categories(heads.logits / temperature)
        target = _over_networks(
            torch.mean, _over_classes(torch.softmax, members.logits, temperature)
        )
    else:
        target = members.mean
    loss = (target * heads.log_mean).sum((-3, -2)).mul_(-(temperature**2))  # Eq 5
    # With q the heads' mean, d z_m = T / M (p_m <target, p_m / q> - target p_m / q).
    share = heads.log_ratio.exp().mul_(target)
    gradient = (heads.probs * share.sum(-2, keepdim=True)).sub_(share)
    return loss, gradient.mul_(temperature / heads.logits.shape[-3]).mT


@loss_with_gradient
def categorical_individuality(
    heads: Heads, members: Members, pairs: Pairs | None = None, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """L3 of Hydra+ for classes: mean cross-entropy of each member and its head (Hydra+, Eq 7).

    `pairs` are those of ``pairing``; None pairs members and heads in order, N = M.
    """
    member_index, head_index = pairs or (None, None)
    logits, members = _heads(heads).logits, _members(members)
    log_probs = at(_over_classes(torch.log_softmax, logits, temperature), head_index)
    targets = at(_over_classes(torch.softmax, members.logits, temperature), member_index)
    share = temperature / log_probs.shape[-3]
    loss = (targets * log_probs).sum((-3, -2)).mul_(-temperature * share)  # Eq 7
    gradient = log_probs.exp_().sub_(targets).mul_(share).mT  # T / pairs (softmax - target)
    if head_index is not None:
        gradient = torch.zeros_like(logits).index_add_(-3, head_index, gradient)
    return loss, gradient


@loss_with_gradient
def information_mismatch(
    heads: Heads, members: Members, floor: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Squared difference between the log mutual informations of members and of heads.

    Ours, not the paper's: it keeps the scale of the epistemic part, which L2 and L3 lose.
    """
    heads, members = _heads(heads), _members(members)
    terms = heads.log_ratio * heads.probs
    divergences = terms.sum(-2, keepdim=True)  # of the heads from their mean, (..., M, 1, n)
    student = divergences.mean(-3, keepdim=True).add_(floor)
    error = torch.log(student / (members.information + floor))
    # d information = sum_m p_m (log (p_m / q) - divergence_m) d z_m / M, with q the heads' mean
    gradient = terms.addcmul_(heads.probs, divergences, value=-1)
    gradient.mul_((error / student).mul_(2 / heads.logits.shape[-3]))
    return error.square().sum((-3, -2)), gradient.mT


# --- parts of the above. Classes stand before samples from here on -------------------------------


def _heads(heads: Heads) -> Categories:
    return Categories(heads) if isinstance(heads, Tensor) else heads


def _members(members: Members) -> KnownCategories:
    return KnownCategories(members) if isinstance(members, Tensor) else members


def _over_classes(
    function: Callable[[Tensor, int], Tensor], logits: Tensor, temperature: float = 1.0
) -> Tensor:
    """A softmax, or its logarithm, as (..., K, n), of logits (..., n, K) at a temperature."""
    logits = logits if temperature == 1 else logits / temperature
    if logits.shape[-1] < _MANY:
        return function(logits.mT, -2)
    return function(logits, -1).mT


def _over_networks(function: Callable[..., Tensor], values: Tensor) -> Tensor:
    """Reduce (..., M, K, n) to (..., 1, K, n), in the order that the values have in memory."""
    if values.shape[-2] < _MANY:
        return function(values, -3, keepdim=True)
    return function(values.mT, -3, keepdim=True).mT
