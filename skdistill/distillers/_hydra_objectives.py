# SPDX-License-Identifier: BSD-3-Clause
"""The losses of Hydra+, for numbers and for classes (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .. import losses
from .._base import Objective
from .._rules import value_at_epoch
from ..distributions import Gaussian

# Weights of the two spread-matching terms for numbers, for `spread_weight=1`.
_RESIDUAL_WEIGHT = 0.5
_SPREAD_WEIGHT = 0.25

# A term's weight, its function without and with gradient, and their arguments.
Term = tuple[float | Tensor, Callable, Callable, tuple]


class HydraObjective(Objective):
    """The loss of Hydra+ (Eq 10) with a term that matches spreads; subclasses know the terms.

    Targets are the teacher's members (S, n, N, ...), the labels (S, n, ...), and whether a row has
    a label (S, n). Outputs are the heads', (S, M, n, ...).

    Parameters
    ----------
    settings : HydraPlus
        Whose weights of the terms to use.
    n_members, n_heads : int
    """

    member_index: Tensor
    head_index: Tensor
    diversity_weight: Tensor
    spread_weight: Tensor

    def __init__(self, settings, n_members: int, n_heads: int):
        super().__init__()
        self.settings = settings
        self.in_order = n_members == n_heads
        member_index, head_index = losses.pairing(n_members, n_heads)
        self.register_buffer("member_index", member_index)
        self.register_buffer("head_index", head_index)
        self.register_buffer("diversity_weight", torch.zeros(()))
        self.register_buffer("spread_weight", torch.zeros(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        settings = self.settings
        self.diversity_weight.fill_(value_at_epoch(settings.diversity_weight, epoch, start=0.0))
        # Means first: in early epochs the steep gradients of the spread would drown theirs.
        share = min(1.0, (epoch + 1) / settings.n_epochs_)
        self.spread_weight.fill_(settings.spread_weight * share)

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        total = torch.zeros_like(targets[-1])
        for weight, loss, _, arguments in self._terms(self._heads(outputs), *targets):
            total = total + weight * loss(*arguments)
        return total

    def _heads(self, outputs: Tensor) -> Any:
        """What the terms take for heads."""
        return outputs

    def _terms(self, heads: Any, answers: Tensor, y: Tensor, labelled: Tensor) -> Iterator[Term]:
        """Terms whose weight is not zero."""
        raise NotImplementedError

    def _paired(self, members: Any, heads: Any) -> tuple[Any, ...]:
        """Arguments of the terms that compare a member with its head."""
        pairs = () if self.in_order else ((self.member_index, self.head_index),)
        return members, heads, *pairs

    def penalty(self, module: Any) -> Tensor | None:
        if self.settings.diversity_weight == 0:
            return None
        weights = module.network.head_weights()
        return self.diversity_weight * losses.diversity(weights, self.settings.diversity)  # L4


def _add(total: Tensor, more: Tensor, weight: float | Tensor) -> None:
    """Add `more` times `weight`, in one call."""
    if isinstance(weight, Tensor):
        total.addcmul_(more, weight)
    else:
        total.add_(more, alpha=weight)


class GaussianHydraObjective(HydraObjective):
    """The loss for numbers: members (S, n, N, t, 2), labels (S, n, t), outputs (S, M, n, 2 t)."""

    def _heads(self, outputs: Tensor) -> Gaussian:
        return Gaussian.from_outputs(outputs)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        heads = losses.Mixture(*Gaussian.from_outputs(outputs))
        total = torch.zeros_like(targets[-1])
        d_mean, d_variance = torch.zeros_like(heads.mean), torch.zeros_like(heads.mean)
        for weight, _, loss_and_gradient, arguments in self._terms(heads, *targets):
            loss, gradient = loss_and_gradient(*arguments)
            _add(total, loss, weight)
            _add(d_mean, gradient.mean, weight)
            _add(d_variance, gradient.variance, weight)
        return total, losses.gradient_of_outputs(outputs, Gaussian(d_mean, d_variance))

    def _terms(self, heads: Gaussian, answers: Tensor, y: Tensor, labelled: Tensor):
        members = losses.Mixture(*answers.transpose(-4, -3).unbind(-1))  # (S, N, n, t)
        settings = self.settings
        alpha, beta = float(settings.alpha), float(settings.beta)
        both, paired = (members, heads), self._paired(members, heads)
        L1 = _labelled_correctness, _labelled_correctness_and_gradient
        L2 = losses.aggregation, losses.aggregation_and_gradient
        L3 = losses.individuality, losses.individuality_and_gradient
        residual = losses.residual_mismatch, losses.residual_mismatch_and_gradient
        spread = losses.spread_mismatch, losses.spread_mismatch_and_gradient
        if alpha < 1:
            yield 1 - alpha, *L1, (heads, y, labelled)
        if alpha > 0 and beta < 1:
            yield alpha * (1 - beta), *L2, both
        if alpha > 0 and beta > 0:
            yield alpha * beta, *L3, paired
        if settings.spread_weight > 0:
            yield _RESIDUAL_WEIGHT * self.spread_weight, *residual, paired
            yield _SPREAD_WEIGHT * self.spread_weight, *spread, both


class CategoricalHydraObjective(HydraObjective):
    """The loss for classes: members' log probabilities (S, n, N, K), codes (S, n), logits
    (S, M, n, K).
    """

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        total, d_outputs = torch.zeros_like(targets[-1]), torch.zeros_like(outputs)
        for weight, _, loss_and_gradient, arguments in self._terms(outputs, *targets):
            loss, gradient = loss_and_gradient(*arguments)
            total.add_(loss * weight)
            d_outputs.add_(gradient * weight)
        return total, d_outputs

    def _terms(self, heads: Tensor, answers: Tensor, y: Tensor, labelled: Tensor):
        members = answers.transpose(-3, -2)  # (S, N, n, K)
        settings = self.settings
        alpha, beta = settings.alpha, settings.beta
        L1 = _labelled_class, _labelled_class_and_gradient
        L2 = losses.categorical_aggregation, losses.categorical_aggregation_and_gradient
        L3 = losses.categorical_individuality, losses.categorical_individuality_and_gradient
        spread = losses.information_mismatch, losses.information_mismatch_and_gradient
        pairs = None if self.in_order else (self.member_index, self.head_index)
        if alpha < 1:
            yield 1 - alpha, *L1, (heads, y, labelled)
        if alpha > 0 and beta < 1:
            yield alpha * (1 - beta), *L2, (members, heads, settings.aggregate_temperature)
        if alpha > 0 and beta > 0:
            yield alpha * beta, *L3, (members, heads, pairs, settings.member_temperature)
        if settings.spread_weight > 0:
            yield self.spread_weight, *spread, (members, heads)


def _labelled_correctness(heads: Gaussian, y: Tensor, labelled: Tensor) -> Tensor:
    """L1 of the rows that have a label, 0 for the others."""
    return labelled * losses.correctness(heads, y)


def _labelled_correctness_and_gradient(
    heads: Gaussian, y: Tensor, labelled: Tensor
) -> tuple[Tensor, Gaussian]:
    loss, gradient = losses.correctness_and_gradient(heads, y)
    share = labelled.unsqueeze(-2).unsqueeze(-1)
    return labelled * loss, Gaussian(share * gradient.mean, share * gradient.variance)


def _labelled_class(heads: Tensor, codes: Tensor, labelled: Tensor) -> Tensor:
    return labelled * losses.categorical_correctness(heads, codes)


def _labelled_class_and_gradient(
    heads: Tensor, codes: Tensor, labelled: Tensor
) -> tuple[Tensor, Tensor]:
    return losses.categorical_correctness_and_gradient(heads, codes, labelled)
