# SPDX-License-Identifier: BSD-3-Clause
"""Elementary functions that ONNX lacks, made of those that it has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def log1p(x: Tensor) -> Tensor:
    """``log(1 + x)`` to rounding; -69 at -1."""
    return _log_sum(x, (1 + x).clamp(min=1e-30))


def _log_sum(x: Tensor, total: Tensor) -> Tensor:
    """Logarithm of the rounded sum ``1 + x``, and what the rounding took."""
    return total.log() + (x - (total - 1)) / total


def expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1`` to rounding."""
    power = x.exp()
    logarithm = power.log()
    is_near_zero = logarithm.abs() < 1
    exact = torch.where(is_near_zero & (logarithm != 0), logarithm, 1.0)
    near = torch.where(logarithm == 0, x, (power - 1) * (x / exact))
    return torch.where(is_near_zero, near, power - 1)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(x))`` of full relative accuracy far below zero."""
    power = (-x.abs()).exp()
    return x.relu() + _log_sum(power, 1 + power)


# ONNX has no log1p and expm1, and its softplus rounds small values to zero.
DECOMPOSITIONS: dict[Any, Any] = {
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.expm1.default: expm1,
    torch.ops.aten.softplus.default: softplus,
}
