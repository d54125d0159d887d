# SPDX-License-Identifier: BSD-3-Clause
"""What is measured on the columns of an array of rows."""

from __future__ import annotations

import numpy as np

__all__ = ["standardisation"]


def standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; `constant` for constant columns."""
    values = values.astype(np.float64)
    loc = np.average(values, axis=0, weights=weight)
    largest = np.abs(values - loc).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # or else squares might over- or underflow
    scale = unit * np.sqrt(np.average(((values - loc) / unit) ** 2, axis=0, weights=weight))
    is_constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(loc)
    return loc, np.where(is_constant, constant, scale)
