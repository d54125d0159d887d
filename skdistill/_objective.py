# SPDX-License-Identifier: BSD-3-Clause
"""What a stack minimises."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Objective(nn.Module):
    """What a stack minimises: a loss for each row, and perhaps a penalty on the weights."""

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of every member and row, of shape (S, n)."""
        raise NotImplementedError

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, (S, n), and the gradient of their sum, of the shape of `outputs`.

        Autograd finds the gradient unless a subclass knows it in closed form. A row's loss must not
        depend on other rows' outputs.
        """
        with torch.enable_grad():
            outputs = outputs.detach().requires_grad_()
            losses = self(outputs, targets)
            (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        return losses.detach(), gradient

    def penalty(self, module: Any) -> Tensor | None:
        """Return what is added to each member's loss, of shape (S,), or None."""
        return None

    first_epoch = 0  # number of the epoch that training begins with

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for epoch number `epoch`, counted from 0."""
