# SPDX-License-Identifier: BSD-3-Clause
"""A bound on what one row can do to the training of all others."""

from __future__ import annotations

from torch import Tensor


def log_tailed_clip(loss: Tensor, gradient: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Loss that grows as its logarithm from a limit on: ``limit (1 + ln(loss / limit))``.

    A network's outputs for a row far from all others move a long way with each step, and a
    likelihood grows with their square, or exponentially: one such row outweighs all others by many
    orders of magnitude until the network recovers. Below the limit nothing changes. The gradient,
    (..., n, p), is that with respect to the outputs.
    """
    excess = (loss / limit).clamp(min=1.0)
    return loss.clamp(max=limit) + limit * excess.log(), gradient / excess.unsqueeze(-1)
