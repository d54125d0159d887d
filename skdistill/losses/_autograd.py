# SPDX-License-Identifier: BSD-3-Clause
"""Losses with a gradient in closed form, as autograd sees them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LossAndGradient = Callable[..., tuple[Tensor, Tensor]]


class ClosedForm(torch.autograd.Function):
    """A loss whose gradient is known in closed form, for autograd."""

    @staticmethod
    def forward(ctx, and_gradient: LossAndGradient, outputs: Tensor, *target) -> Tensor:
        loss, gradient = and_gradient(outputs, *target)
        ctx.save_for_backward(gradient)
        ctx.n_others = len(target)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, d_loss: Tensor):
        (gradient,) = ctx.saved_tensors
        return None, gradient * d_loss.unsqueeze(-1), *[None] * ctx.n_others
