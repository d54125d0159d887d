# SPDX-License-Identifier: BSD-3-Clause
"""Rows in the order of a value, where equal values are in no order."""

from __future__ import annotations

import numpy as np


def cumulate(by: np.ndarray, weights: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Share of the weight, and sums of weight * value over the total weight, smallest `by` first.

    Returns ``1 + len(values)`` arrays with one point for every group of rows with equal `by`,
    after a first point of zeros. The last point is 1 and the weighted means. The straight line
    between two points is the expectation over the orders in which the rows of a group could come.
    """
    _, group = np.unique(by, return_inverse=True)
    weighted = (weights, *(weights * value for value in values))
    sums = [np.append(0, np.cumsum(np.bincount(group, column))) for column in weighted]
    total = sums[0][-1]
    return tuple(column / total for column in sums)


def midranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weight below each value plus half of the weight at it: the average ranks, less 1/2."""
    _, group = np.unique(values, return_inverse=True)
    group_weights = np.bincount(group, weights)
    return (np.cumsum(group_weights) - group_weights / 2)[group]


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Median of the values, each repeated `weight` times: the mean of the middle two."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    half, slack = cumulative[-1] / 2, 1e-12  # against the rounding of fractional weights
    lower = np.searchsorted(cumulative, half * (1 - slack), side="left")
    upper = np.searchsorted(cumulative, half * (1 + slack), side="right")
    return float((values[order[lower]] + values[order[upper]]) / 2)
