# SPDX-License-Identifier: BSD-3-Clause
"""What a student of posterior expectations minimises."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._base import Objective
from ..expectations import Expectation
from ._gped_estimates import pooled, targets_of


class ExpectationObjective(Objective):
    """Sum of the expectations' losses; the target is (..., n, n_outputs), the outputs are too.

    Parameters
    ----------
    expectations : sequence of Expectation
    columns : sequence of slice
        Place of each among the outputs.
    """

    def __init__(self, expectations: Sequence[Expectation], columns: Sequence[slice]):
        super().__init__()
        self.expectations = expectations
        self.columns = columns

    def _target(self, targets: tuple[Tensor, ...]) -> Tensor:
        return targets[0]

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target = self._target(targets)
        total, gradient = outputs.new_zeros(outputs.shape[:-1]), torch.empty_like(outputs)
        for expectation, columns in zip(self.expectations, self.columns, strict=True):
            loss, slope = expectation.loss_and_gradient(outputs[..., columns], target[..., columns])
            total.add_(loss, alpha=expectation.weight)
            torch.mul(slope, expectation.weight, out=gradient[..., columns])
        return total, gradient


class ReplayObjective(ExpectationObjective):
    """The same for members that are stored: targets hold g of each, (..., n, S, sum of n_values).

    Parameters
    ----------
    expectations, columns
        As in :class:`ExpectationObjective`.
    estimates : sequence of {"online", "stochastic"}
        Of each expectation: the mean over members, which the running mean converges to, or one
        member, another for every row. Where rows are dealt in a new order in every epoch this is
        a draw; where they are not, all members have their turn.
    n_values : list of int
        How many values each g gives.
    """

    is_online: Tensor
    offset: Tensor

    def __init__(self, expectations, columns, estimates: Sequence[str], n_values: list[int]):
        super().__init__(expectations, columns)
        self.n_values = n_values
        online = torch.tensor([estimate == "online" for estimate in estimates])
        self.all_online = bool(online.all())
        self.register_buffer("is_online", online.repeat_interleave(torch.tensor(n_values)))
        self.register_buffer("offset", torch.zeros((), dtype=torch.int64))

    def begin_epoch(self, epoch: int) -> None:
        self.offset.fill_(epoch)

    def _target(self, targets: tuple[Tensor, ...]) -> Tensor:
        members = targets[0]
        mean = pooled(
            self.expectations, members.movedim(-2, 0).split(self.n_values, dim=-1)
        )  # Eq 4
        if not self.all_online:
            n_rows, n_members, n_values = members.shape[-3:]
            turn = (torch.arange(n_rows, device=members.device) + self.offset) % n_members
            turn = turn.view(-1, 1, 1).expand(*members.shape[:-2], 1, n_values)
            one = members.gather(-2, turn).squeeze(-2)  # U_s, Eq 9
            mean = torch.where(self.is_online, mean, one)
        return targets_of(self.expectations, self.n_values, mean)
