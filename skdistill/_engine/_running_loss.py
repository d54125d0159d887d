# SPDX-License-Identifier: BSD-3-Clause
"""The loss of each member over an epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from .._method.objective import Objective
from ._rows import Batch


class RunningLoss:
    """Adds up the losses of an epoch's samples, each under the weights before its own step.

    With an objective, the losses of a constant prediction, outputs of zero, are added up too.
    """

    def __init__(self, objective: Objective | None = None):
        self.objective = objective
        self.n_rows = 0
        self.sums: dict[int, Tensor] = {}  # over batches of the same size, of shape (S, size)
        self.constant_sums: list[Tensor] = []  # of each batch, of shape (S,)

    def add(self, step: dict[str, Tensor], batch: Batch) -> None:
        """Add what a step has returned for a batch."""
        losses = step["losses"]
        size = losses.shape[-1]
        if not size:  # the samples of the last minibatch were fewer than the ranks that share them
            return
        self.n_rows += size
        if size in self.sums:
            self.sums[size] += losses
        else:
            self.sums[size] = losses.clone()
        if self.objective is not None:
            self.constant_sums.append(_losses_of_zeros(self.objective, step, batch).sum(-1))

    def means(self) -> Tensor:
        """Return the mean over samples of each member's loss, of shape (S,)."""
        return torch.stack([total.sum(-1) for total in self.sums.values()]).sum(0) / self.n_rows

    def constant_means(self) -> Tensor:
        """Return the same of a constant prediction."""
        return torch.stack(self.constant_sums).sum(0) / self.n_rows


@torch.no_grad()
def _losses_of_zeros(objective: Objective, step: dict[str, Tensor], batch: Batch) -> Tensor:
    """Losses (S, n) of outputs of zero, a prediction that is the same for every sample."""
    _, (targets, weight) = batch
    outputs = torch.zeros_like(
        step["y_pred"], dtype=step["losses"].dtype, memory_format=torch.contiguous_format
    )
    return weighted(objective(outputs, targets), weight)


def weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Multiply the losses of samples, (S, n), by the samples' weights, if there are any."""
    return losses if weight is None else weight * losses
