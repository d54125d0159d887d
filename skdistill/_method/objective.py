# SPDX-License-Identifier: BSD-3-Clause
"""Objectives of stacks of networks."""

from torch import Tensor, nn

from ..losses import by_autograd, differentiable

LARGE_LOSS = 300.0  # nats per class or target, beyond which it is a logarithm; see doc/design.rst


class Objective(nn.Module):
    """The objective of a stack: a loss for each sample, and perhaps a penalty on the weights.

    Subclasses define `loss_and_gradient` or `forward`, from which the other is derived. A sample's
    loss must not depend on the outputs of other samples.
    """

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of every member and sample, of shape (S, n), for autograd."""
        return differentiable(self.loss_and_gradient, outputs, targets)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, (S, n), and the gradient of their sum, of the shape of `outputs`."""
        return by_autograd(self, outputs, targets)

    def penalty(self, module: nn.Module) -> Tensor | None:
        """Return what is added to each member's loss, of shape (S,), or None."""
        return None

    first_epoch = 0  # number of the epoch that training begins with

    def start_at(self, epoch: int) -> None:
        """Let the training begin with that number of an epoch."""
        self.first_epoch = epoch

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for epoch number `epoch`, counted from 0."""
