# SPDX-License-Identifier: BSD-3-Clause
"""Distributions over the next token, learnt token by token (Ryabinin, Malinin & Gales, 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ... import losses
from ..._method.objective import Objective
from ..._method.plan import NetworkRecipe, Plan, TrainingBudget
from ..._utils.validation import value_at_epoch
from ...distributions import Dirichlet, EmpiricalCategorical
from ...losses import MemberStatistics, Term, tempered_sum
from ...modules import stack

# Precision of the proxy, at most, for each token of the vocabulary.
_PRECISION_PER_TOKEN = 1e3


class TokenLoss(NamedTuple):
    """A loss of a student, its targets, and the distribution that the student predicts.

    Attributes
    ----------
    target : callable
        Takes statistics of the members at N tokens, and the largest precision, to targets
        (N, width).
    term : callable
        Takes targets (..., width) to the loss of outputs (..., K).
    distribution : callable
        Takes outputs (N, K) to a distribution over the tokens' probabilities.
    tells_parts : bool
        Whether that distribution has an epistemic part.
    smoothing : float
        What "auto" stands for.
    has_proxy : bool
        Whether it reads the largest precision.
    """

    target: Callable[[MemberStatistics, float], Tensor]
    term: Callable[[Tensor], Term]
    # The plain form, Eq 6; the divergences add one to both sides only to train well.
    distribution: Callable[[Tensor], Any] = partial(Dirichlet.from_outputs, offset=0.0)
    tells_parts: bool = True
    smoothing: float = 0.0
    has_proxy: bool = True


def _proxy(statistics: MemberStatistics, max_precision: float) -> Tensor:
    """Mean and precision of the proxy, in one: of shape (N, K + 1)."""
    mean, mean_log = statistics.mean, statistics.mean_log
    cap = min(max_precision, losses.largest_precision(mean.shape[-1], mean.dtype))
    precision = losses.proxy_precision(mean, mean_log, cap)
    return torch.cat([mean, precision.unsqueeze(-1)], -1)


def _proxy_loss(name: str) -> TokenLoss:
    """A divergence from the proxy."""
    return TokenLoss(
        _proxy, lambda target: losses.proxy_term(name, target[..., :-1], target[..., -1])
    )


TOKEN_LOSSES = {
    "reverse_kl": _proxy_loss("reverse_kl"),
    "reverse_kl_reference": _proxy_loss("reverse_kl_reference"),
    "forward_kl": _proxy_loss("forward_kl"),
    "nll": TokenLoss(
        lambda statistics, _: statistics.mean_log,
        lambda target: Term(losses.dirichlet_nll, (target, 0.0)),
        smoothing=1e-3,
        has_proxy=False,
    ),
    "mixture": TokenLoss(
        lambda statistics, _: statistics.mean,
        lambda target: Term(losses.cross_entropy, (target,)),
        distribution=lambda outputs: EmpiricalCategorical.from_logits(outputs.unsqueeze(0)),
        tells_parts=False,
        has_proxy=False,
    ),
}


@dataclass(frozen=True)
class TokensPlan(Plan):
    """A network that predicts a distribution over the probabilities of the next token.

    Parameters
    ----------
    loss : str
        One of `TOKEN_LOSSES`.
    n_tokens : int
        Number of tokens that are predicted: K.
    n_source : int
        How many of a row's tokens are the source; 0 for a language model.
    n_target : int
        How many tokens of a row are predicted.
    n_members : int
        Number of members of the teacher.
    smoothing, max_precision, temperature
        See :class:`skdistill.SequenceDistributionDistiller`.
    """

    loss: str
    n_tokens: int
    n_source: int
    n_target: int
    n_members: int
    smoothing: float
    max_precision: Any
    temperature: Any

    task: Any = None  # neither numbers nor classes of rows

    @property
    def kind(self) -> TokenLoss:
        """The loss, its targets and the distribution that is predicted."""
        return TOKEN_LOSSES[self.loss]

    @property
    def tells_parts(self) -> bool:
        return self.kind.tells_parts and self.n_members > 1

    @property
    def n_outputs(self) -> int:
        return self.n_tokens * self.n_target

    @property
    def meaning_of_outputs(self) -> str:
        return f"logits of {self.n_tokens} tokens after each token of the target, side by side"

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        return stack([TokenRows(network, self.n_source) for network in recipe.build(seeds)])

    def wrap(self, network: Any, buffers: dict[str, Tensor]) -> Any:
        return network

    def objective(self, module: Any, training_budget: TrainingBudget) -> TokenObjective:
        return TokenObjective(self.kind, self.temperature)

    def target_of(self, statistics: MemberStatistics) -> Tensor:
        """Return the targets at some tokens, given the members' statistics there."""
        is_auto = self.max_precision == "auto"
        cap = _PRECISION_PER_TOKEN * self.n_tokens if is_auto else self.max_precision
        return self.kind.target(statistics, cap)


class TokenObjective(Objective):
    """Mean over a row's tokens of the loss of each.

    Targets are those at each token, (1, n, T, width), and whether there is a token, (1, n, T):
    where there is none, neither outputs nor targets matter. Outputs are the logits of
    all tokens side by side, (1, n, T * K). A temperature T divides them, as it does the members',
    and the loss is multiplied by T^2.

    Parameters
    ----------
    kind : TokenLoss
    temperature : float or tuple (temperature, first_epoch, last_epoch)
    """

    temperature: Tensor

    def __init__(self, kind: TokenLoss, temperature):
        super().__init__()
        self.kind = kind
        self.setting = temperature
        self.register_buffer("temperature", torch.ones(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self.temperature.fill_(value_at_epoch(self.setting, epoch, end=1.0))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, is_token = targets
        logits = outputs.unflatten(-1, (is_token.shape[-1], -1))  # (1, n, T, K)
        loss, gradient = tempered_sum([self.kind.term(target)], logits, self.temperature)
        share, is_pad = is_token / is_token.sum(-1, keepdim=True), is_token == 0
        gradient.masked_fill_(is_pad.unsqueeze(-1), 0.0).mul_(share.unsqueeze(-1))
        return (share * loss.masked_fill(is_pad, 0.0)).sum(-1), gradient.flatten(-2)


class TokenRows(nn.Module):
    """A network of tokens, as the engine takes networks: rows of numbers in, rows of numbers out.

    Parameters
    ----------
    network : nn.Module
        Gives logits (n, T, K).
    n_source : int
        How many of a row's tokens are the source; 0 where there is none. The others are the target
        with its begin token, the last of which is not read.
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
