# SPDX-License-Identifier: BSD-3-Clause
"""Special functions that torch, or graphs of ONNX, do not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

# Stirling's series of digamma(y): B_2k / 2k, for k = 1 to 8; from y = 8 on it leaves out 2e-16.
_SHIFT = 8
_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def digamma_excess(x: Tensor) -> Tensor:
    """``digamma(x + 1) - log x`` for x > 0, of full relative accuracy in float64.

    For large x it is about ``1 / 2x`` and the two terms cancel: the logarithms are combined first.
    """
    w = (x + _SHIFT).reciprocal_()
    square = w.square()
    series = square * _SERIES[-1]
    for coefficient in reversed(_SERIES[:-1]):
        series.add_(coefficient).mul_(square)
    # log y - 1/2y - series - log x, at y = x + 8
    excess = (_SHIFT / x).log1p_().sub_(w, alpha=0.5).sub_(series)
    # digamma(x + 1) = digamma(y) - sum 1 / (x + i) for i = 1 to 7, those of i and 8 - i together
    middle = x + _SHIFT // 2
    square = middle.square()
    pairs = (square - 1).reciprocal_()
    for i in (2, 3):
        pairs.add_((square - i**2).reciprocal_())
    return excess.sub_(pairs.mul_(middle), alpha=2).sub_(middle.reciprocal_())


def interpolation(exact: Callable[[np.ndarray], np.ndarray], degree: int) -> list[Tensor]:
    """Coefficients, highest first, of the polynomial through a function at Chebyshev's points."""
    nodes = np.polynomial.chebyshev.chebpts1(degree + 1)
    return [torch.tensor(row) for row in np.linalg.solve(np.vander(nodes), exact(nodes))]


def polynomial(coefficients: Sequence[Tensor], x: Tensor) -> Tensor:
    """Values at x by Horner's rule."""
    total = torch.zeros_like(x)
    for coefficient in coefficients:
        total = total * x + coefficient
    return total
