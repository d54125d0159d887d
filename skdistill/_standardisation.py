# SPDX-License-Identifier: BSD-3-Clause
"""Mean and standard deviation of columns, and the precision that they need."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["resolves", "standardisation"]

# A dtype resolves a column if its rounding is below this share of the standard deviation.
_SHARE_OF_ROUNDING = 1e-4

_BLOCK = 2**20  # numbers that are taken at a time, in whole columns: 8 MiB in float64


def standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; `constant` for constant columns."""
    columns = values.reshape(len(values), math.prod(values.shape[1:]))
    width = max(1, _BLOCK // max(1, len(values)))
    starts = range(0, max(1, columns.shape[1]), width)
    blocks = [_standardisation(columns[:, i : i + width], weight, constant) for i in starts]
    loc, scale = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return loc.reshape(values.shape[1:]), scale.reshape(values.shape[1:])


def _standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`standardisation` of a few columns (n, d)."""
    values = values.astype(np.float64)
    loc = np.average(values, axis=0, weights=weight)
    loc = loc + np.average(
        values - loc, axis=0, weights=weight
    )  # corrects the rounding of a sum of large values
    largest = np.abs(values - loc).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # keeps squares from over- and underflow
    scale = unit * np.sqrt(np.average(((values - loc) / unit) ** 2, axis=0, weights=weight))
    is_constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(loc)
    return loc, np.where(is_constant, constant, scale)


def resolves(dtype, loc: np.ndarray, scale: np.ndarray) -> bool:
    """Tell whether a dtype resolves differences of a fraction of `scale` around `loc`.

    float32 does not where a column is far from 0 (dates, say). float64 counts as doing so always.
    """
    if dtype == np.float64:
        return True
    return bool((np.finfo(dtype).eps * np.abs(loc) <= _SHARE_OF_ROUNDING * scale).all())
