# SPDX-License-Identifier: BSD-3-Clause
"""The losses of distribution distillation, token by token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import losses
from .._base import Objective
from .._rules import value_at_epoch
from ..distributions import Dirichlet, EmpiricalCategorical
from ..losses import MemberStatistics


class TokenLoss(NamedTuple):
    """What a student learns of the members, and what it predicts.

    Attributes
    ----------
    target : callable
        Takes what is known of the members at N tokens, and the largest precision; gives what the
        loss compares the outputs with, (N, width).
    loss, loss_and_gradient : callable
        Take outputs (..., K) and targets (..., width).
    distribution : callable
        Makes a distribution over the tokens' probabilities of outputs (N, K).
    tells_parts : bool
        Whether that distribution knows how far the members disagree.
    smoothing : float
        What "auto" stands for.
    has_proxy : bool
        Whether it reads the largest precision.
    """

    target: Callable[[MemberStatistics, float], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    loss_and_gradient: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    # The plain form, Eq 6: what the divergences add to both sides is there to train well.
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


def _of_proxy(loss: Callable) -> Callable:
    """A loss of a mean and a precision, for both in one."""
    return lambda outputs, target: loss(outputs, target[..., :-1], target[..., -1])


def _of_concentrations(loss: Callable) -> Callable:
    """A loss of the proxy's concentrations, for its mean and precision in one."""
    return _of_proxy(
        lambda outputs, *proxy: loss(outputs, losses.proxy_concentrations(*proxy))  # Eq 17
    )


def _reverse_kl(outputs: Tensor, target: Tensor) -> Tensor:
    """The divergence over the sum of the proxy's concentrations."""
    loss = _of_concentrations(losses.dirichlet_reverse_kl)(outputs, target)
    return loss / (target[..., -1] + outputs.shape[-1])


def _reverse_kl_and_gradient(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    found = _of_concentrations(losses.dirichlet_reverse_kl_and_gradient)(outputs, target)
    total = target[..., -1] + outputs.shape[-1]
    return found[0] / total, found[1] / total.unsqueeze(-1)


TOKEN_LOSSES = {
    "reverse_kl": TokenLoss(_proxy, _reverse_kl, _reverse_kl_and_gradient),
    "reverse_kl_reference": TokenLoss(
        _proxy,
        _of_proxy(losses.dirichlet_reverse_kl_reference),
        _of_proxy(losses.dirichlet_reverse_kl_reference_and_gradient),
    ),
    "forward_kl": TokenLoss(
        _proxy,
        _of_concentrations(losses.dirichlet_forward_kl),
        _of_concentrations(losses.dirichlet_forward_kl_and_gradient),
    ),
    "nll": TokenLoss(
        lambda statistics, _: statistics.mean_log,
        partial(losses.dirichlet_nll, offset=0.0),
        partial(losses.dirichlet_nll_and_gradient, offset=0.0),
        smoothing=1e-3,
        has_proxy=False,
    ),
    "mixture": TokenLoss(
        lambda statistics, _: statistics.mean,
        losses.cross_entropy,
        losses.cross_entropy_and_gradient,
        distribution=lambda outputs: EmpiricalCategorical.from_logits(outputs.unsqueeze(0)),
        tells_parts=False,
        has_proxy=False,
    ),
}


class TokenObjective(Objective):
    """Mean over a row's tokens of the loss of each.

    Targets are what is to be learnt at each token, (1, n, T, width), and whether there is a token,
    (1, n, T): where there is none, neither outputs nor targets matter. Outputs are the logits of
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

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        answers, is_token = targets
        loss = self.kind.loss(self._logits(outputs, is_token), answers)
        return (self._share(is_token) * loss.masked_fill(is_token == 0, 0.0)).sum(-1)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        answers, is_token = targets
        loss, gradient = self.kind.loss_and_gradient(self._logits(outputs, is_token), answers)
        share, is_pad = self._share(is_token), is_token == 0
        gradient.masked_fill_(is_pad.unsqueeze(-1), 0.0)
        gradient.mul_((share / self.temperature).unsqueeze(-1))
        return (share * loss.masked_fill(is_pad, 0.0)).sum(-1), gradient.flatten(-2)

    def _logits(self, outputs: Tensor, is_token: Tensor) -> Tensor:
        """Logits (1, n, T, K) at the temperature."""
        return outputs.unflatten(-1, (is_token.shape[-1], -1)) / self.temperature

    def _share(self, is_token: Tensor) -> Tensor:
        """Factor of each token's loss in that of its row, (1, n, T)."""
        return is_token / is_token.sum(-1, keepdim=True) * self.temperature.square()
