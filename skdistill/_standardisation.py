# SPDX-License-Identifier: BSD-3-Clause
"""What is measured on the columns of an array of rows."""

from __future__ import annotations

import numpy as np

__all__ = ["resolves", "standardisation"]

# A dtype resolves a column if rounding costs less than this share of its standard deviation.
_SHARE_OF_ROUNDING = 1e-4


def standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; `constant` for constant columns."""
    values = values.astype(np.float64)
    loc = np.average(values, axis=0, weights=weight)
    loc = loc + np.average(values - loc, axis=0, weights=weight)  # a sum of large values rounds
    largest = np.abs(values - loc).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # or else squares might over- or underflow
    scale = unit * np.sqrt(np.average(((values - loc) / unit) ** 2, axis=0, weights=weight))
    is_constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(loc)
    return loc, np.where(is_constant, constant, scale)


def resolves(dtype, loc: np.ndarray, scale: np.ndarray) -> bool:
    """Tell whether a dtype tells numbers around `loc` apart that differ by parts of `scale`.

    float32 does not where a column is far from 0 (dates, say). float64 is the finest there is, and
    counts as one that does.
    """
    if dtype == np.float64:
        return True
    return bool((np.finfo(dtype).eps * np.abs(loc) <= _SHARE_OF_ROUNDING * scale).all())
