# SPDX-License-Identifier: BSD-3-Clause
"""The losses of Hydra+, for numbers and for classes (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .. import losses
from .._base import Objective
from ..distributions import Gaussian
from ..losses import Term, weighted_sum
from ._ramps import value_on_ramp

# Weights of the two spread-matching terms for numbers, for `spread_weight=1`.
_RESIDUAL_WEIGHT = 0.5
_SPREAD_WEIGHT = 0.25


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
        self.diversity_weight.fill_(value_on_ramp(settings.diversity_weight, epoch, start=0.0))
        # Means first: in early epochs the steep gradients of the spread would drown theirs.
        share = min(1.0, (epoch + 1) / settings.n_epochs_)
        self.spread_weight.fill_(settings.spread_weight * share)

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """Which member goes with which head; None in order."""
        return None if self.in_order else (self.member_index, self.head_index)

    def penalty(self, module: Any) -> Tensor | None:
        if self.settings.diversity_weight == 0:
            return None
        weights = module.network.head_weights()
        return self.diversity_weight * losses.diversity(weights, self.settings.diversity)  # L4


class GaussianHydraObjective(HydraObjective):
    """The loss for numbers: members (S, n, N, t, 2), labels (S, n, t), outputs (S, M, n, 2 t)."""

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        heads = losses.Mixture(*Gaussian.from_outputs(outputs))
        loss, gradient = weighted_sum(self._terms(*targets), heads)
        return loss, losses.gradient_of_outputs(outputs, gradient)

    def _terms(self, answers: Tensor, y: Tensor, labelled: Tensor) -> Iterator[Term]:
        """Terms whose weight is not zero."""
        members = losses.Mixture(*answers.transpose(-4, -3).unbind(-1))  # (S, N, n, t)
        alpha, beta = float(self.settings.alpha), float(self.settings.beta)
        if alpha < 1:
            yield Term(losses.correctness, (y,), (1 - alpha) * labelled)  # L1
        if alpha > 0 and beta < 1:
            yield Term(losses.aggregation, (members,), alpha * (1 - beta))  # L2
        if alpha > 0 and beta > 0:
            yield Term(losses.individuality, (members, self.pairs), alpha * beta)  # L3
        if self.settings.spread_weight > 0:
            weight = self.spread_weight
            yield Term(losses.residual_mismatch, (members, self.pairs), _RESIDUAL_WEIGHT * weight)
            yield Term(losses.spread_mismatch, (members,), _SPREAD_WEIGHT * weight)


class CategoricalHydraObjective(HydraObjective):
    """The loss for classes: members' log probabilities (S, n, N, K), codes (S, n), logits
    (S, M, n, K).
    """

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        return weighted_sum(self._terms(*targets), outputs)

    def _terms(self, answers: Tensor, y: Tensor, labelled: Tensor) -> Iterator[Term]:
        """Terms whose weight is not zero."""
        members = answers.transpose(-3, -2)  # (S, N, n, K)
        settings = self.settings
        alpha, beta = float(settings.alpha), float(settings.beta)
        if alpha < 1:
            yield Term(losses.categorical_correctness, (y,), (1 - alpha) * labelled)  # L1
        if alpha > 0 and beta < 1:
            arguments: tuple = members, settings.aggregate_temperature
            yield Term(losses.categorical_aggregation, arguments, alpha * (1 - beta))  # L2
        if alpha > 0 and beta > 0:
            arguments = members, self.pairs, settings.member_temperature
            yield Term(losses.categorical_individuality, arguments, alpha * beta)  # L3
        if settings.spread_weight > 0:
            yield Term(losses.information_mismatch, (members,), self.spread_weight)
