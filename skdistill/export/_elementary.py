# SPDX-License-Identifier: BSD-3-Clause
"""Elementary functions that ONNX, or torch's exporter, lacks or rounds."""

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


def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Clamp to limits that keep x's precision: torch's exporter rounds limits to float32."""
    for limit, nearer in ((min, torch.maximum), (max, torch.minimum)):
        if limit is not None:
            x = nearer(x, torch.scalar_tensor(limit, dtype=x.dtype))
    return x


def square(x: Tensor) -> Tensor:
    """``x * x``, which is far faster than the power that torch's exporter makes of a square."""
    return x * x


def scalar_tensor(
    s: Any, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
) -> Any:
    """Translate a number to ONNX in its own precision: torch's exporter rounds it to float32."""
    from onnx.helper import make_tensor
    from onnxscript import opset18

    if isinstance(s, (bool, int, float)):
        return opset18.Constant(value=make_tensor("", int(dtype), [], [s]))
    return opset18.Cast(s, to=dtype)


# ONNX has no log1p and expm1, and its softplus rounds small values to zero.
DECOMPOSITIONS: dict[Any, Any] = {
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.expm1.default: expm1,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.clamp.default: clamp,
    torch.ops.aten.square.default: square,
}

TRANSLATIONS: dict[Any, Any] = {torch.ops.aten.scalar_tensor.default: scalar_tensor}
