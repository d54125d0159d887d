# SPDX-License-Identifier: BSD-3-Clause
"""Distributions over the next token, learnt token by token (Ryabinin, Malinin & Gales, 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..._method.objective import Objective
from ..._method.plan import NetworkRecipe, Plan, TrainingBudget
from ..._utils.validation import value_at_epoch
from ...modules import DistributionStack, stack


@dataclass(frozen=True)
class TokensPlan(Plan):
    """A network that predicts a distribution over the probabilities of the next token."""

    family: Any  # that for tokens
    n_tokens: int  # that are predicted: K
    n_source: int  # how many of a sample's tokens are the source; 0 for a language model
    n_target: int  # how many tokens of a sample are predicted
    n_members: int  # of the teacher

    task: Any = None  # neither numbers nor classes of samples

    @property
    def tells_parts(self) -> bool:
        return self.family.tells_parts and self.n_members > 1

    @property
    def n_outputs(self) -> int:
        return self.n_tokens * self.n_target

    @property
    def meaning_of_outputs(self) -> str:
        return f"logits of {self.n_tokens} tokens after each token of the target, side by side"

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        return stack([TokenRows(network, self.n_source) for network in recipe.build(seeds)])

    def wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> Any:
        return network

    def objective(
        self, module: DistributionStack, training_budget: TrainingBudget
    ) -> TokenObjective:
        return TokenObjective(self.family)


class TokenObjective(Objective):
    """Mean over a sample's tokens of the loss of each.

    Targets are those at each token, (1, n, T, width), and whether there is a token, (1, n, T):
    where there is none, neither outputs nor targets matter. Outputs are the logits of
    all tokens side by side, (1, n, T * K). A temperature T divides them, as it does the members',
    and the loss is multiplied by T^2.
    """

    temperature: Tensor

    def __init__(self, family: Any):
        super().__init__()
        self.family = family
        self.register_buffer("temperature", torch.ones(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self.temperature.fill_(value_at_epoch(self.family.temperature, epoch, end=1.0))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, is_token = targets
        logits = outputs.unflatten(-1, (is_token.shape[-1], -1))  # (1, n, T, K)
        temperature = self.temperature
        loss, gradient = self.family._loss_of_tokens(logits / temperature, target)
        loss, gradient = loss * temperature**2, gradient.mul_(temperature)
        share, is_pad = is_token / is_token.sum(-1, keepdim=True), is_token == 0
        gradient.masked_fill_(is_pad.unsqueeze(-1), 0.0).mul_(share.unsqueeze(-1))
        return (share * loss.masked_fill(is_pad, 0.0)).sum(-1), gradient.flatten(-2)


class TokenRows(nn.Module):
    """A network of tokens as the engine takes networks: numbers in, numbers out.

    It gives logits (n, T, K). `n_source` of a sample's tokens are the source, or none; the others
    are the target with its begin token, the last of which is not read.
    """

    def __init__(self, network: nn.Module, n_source: int):
        super().__init__()
        self.network = network
        self.n_source = n_source

    def forward(self, rows: Tensor) -> Tensor:
        """Map tokens (n, S + 1 + T) to logits (n, T * K)."""
        tokens = rows.long()
        source, target_in = tokens[:, : self.n_source], tokens[:, self.n_source : -1]
        logits = self.network(source, target_in) if self.n_source else self.network(target_in)
        return logits.flatten(1)
