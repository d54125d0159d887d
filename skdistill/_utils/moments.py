# SPDX-License-Identifier: BSD-3-Clause
"""Mean and standard deviation of columns, and the precision that they need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_PIECE = 2**18  # values of a table that are taken at a time, see doc/design.rst
_SHARE_OF_ROUNDING = 1e-4  # of the standard deviation of a column that its dtype resolves


def standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; `constant` for constant columns."""
    moments = Moments()
    for part in pieces(values):
        moments.add(values[part], None if weight is None else weight[part])
    return moments.standardisation(constant)


def correlation(
    values: np.ndarray, weight: np.ndarray | None, loc: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Weighted correlations (d, d) of columns of these moments; 0 where `scale` is 0."""
    n_columns = values.shape[1]
    total, products = 0.0, np.zeros((n_columns, n_columns))
    unit = np.where(scale > 0, scale, np.inf)
    for part in pieces(values):
        standardised = (values[part] - loc) / unit
        weights = np.ones(len(standardised)) if weight is None else weight[part]
        products += standardised.T @ (weights[:, None] * standardised)
        total += weights.sum()
    return products / total


def pieces(values: np.ndarray) -> Iterator[slice]:
    """Slices of the rows of a table (n, ...): little memory for arithmetic in float64."""
    size = max(1, _PIECE // max(1, values[:1].size))
    for start in range(0, len(values), size):
        yield slice(start, start + size)


class Moments:
    """Weighted mean and standard deviation of columns whose samples come in pieces.

    Pieces are merged as by T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the
    sample variance", The American Statistician 37 (1983), Eqs 2.1.
    """

    def __init__(self) -> None:
        self.total = 0.0  # of the weights
        self.loc = self.scale = np.zeros(())  # mean and standard deviation

    def add(self, values: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Add samples, of shape (n, ...), with weights of shape (n,)."""
        total = float(len(values) if weight is None else weight.sum())
        if total == 0:
            return
        values = values.astype(np.float64)
        loc = np.average(values, axis=0, weights=weight)
        # Corrects the rounding of a sum of large values.
        loc = loc + np.average(values - loc, axis=0, weights=weight)
        largest = np.abs(values - loc).max(axis=0)
        unit = np.where(largest > 0, largest, 1.0)  # keeps squares from over- and underflow
        squares = ((values - loc) / unit) ** 2
        scale = unit * np.sqrt(np.average(squares, axis=0, weights=weight))
        self.total += total
        share = total / self.total
        distance = loc - self.loc
        self.loc = self.loc + share * distance  # Eq 2.1a
        within = np.hypot(np.sqrt(1 - share) * self.scale, np.sqrt(share) * scale)
        self.scale = np.hypot(within, np.sqrt(share * (1 - share)) * distance)  # Eq 2.1b

    def standardisation(self, constant: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation; `constant` for columns that are constant."""
        is_constant = self.scale <= 10 * np.finfo(np.float64).eps * np.abs(self.loc)
        return self.loc, np.where(is_constant, constant, self.scale)


def resolves(dtype, loc: np.ndarray, scale: np.ndarray) -> bool:
    """Tell whether a dtype resolves a fraction of `scale`: float32 does not far from 0."""
    if dtype == np.float64:
        return True
    return bool((np.finfo(dtype).eps * np.abs(loc) <= _SHARE_OF_ROUNDING * scale).all())
