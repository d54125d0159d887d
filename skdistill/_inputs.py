# SPDX-License-Identifier: BSD-3-Clause
"""How a fit prepares the columns of X for networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ._standardisation import Moments, standardisation
from .modules import InputEncoder

# Columns whose mean is within so many standard deviations of 0, and whose standard deviation is
# as near to 1, are standardised already: a scaler stands before the estimator.
_NEAR = 0.01


@dataclass(frozen=True, eq=False)
class InputEncoding:
    """What :class:`skdistill.modules.InputEncoder` is made of, as a fit has found it.

    Parameters
    ----------
    loc, scale : ndarray of shape (n_columns,)
    n_categories : ndarray of int of shape (n_columns,)
    has_indicator : ndarray of bool of shape (n_columns,)
    edges : tuple of ndarray, default=()
    """

    loc: np.ndarray
    scale: np.ndarray
    n_categories: np.ndarray
    has_indicator: np.ndarray
    edges: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(
        cls,
        X: np.ndarray,
        weight: np.ndarray | None,
        *,
        normalize: bool = True,
        n_categories: np.ndarray | None = None,
    ) -> InputEncoding | None:
        """Find the encoding of columns, or None where rows can be taken as they are.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Missing values are NaN.
        weight : ndarray of shape (n,) or None
        normalize : bool, default=True
            Whether to standardise numbers.
        n_categories : ndarray of int of shape (n_columns,), default=None
            As of an InputEncoder; None is no categorical columns.
        """
        is_missing = np.isnan(X.sum(axis=0))
        if is_missing.any():
            is_missing = np.isnan(X).any(axis=0)
        loc, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if normalize:
            loc, scale = _standardisation(X, weight, is_missing)
        n_categories = np.zeros(X.shape[1], dtype=int) if n_categories is None else n_categories
        is_number = n_categories == 0
        loc, scale = np.where(is_number, loc, 0.0), np.where(is_number, scale, 1.0)
        found = cls(loc, scale, n_categories, is_missing & is_number)
        return None if found._is_identity else found

    @classmethod
    def of_moments(cls, moments: Moments) -> InputEncoding | None:
        """Find the encoding of numbers whose moments are known."""
        loc, scale = moments.standardisation()
        none = np.zeros(len(loc), dtype=int)
        found = cls(loc, scale, none, none.astype(bool))
        return None if found._is_identity else found

    @property
    def _is_identity(self) -> bool:
        is_near = (np.abs(self.loc) <= _NEAR * self.scale) & (np.abs(self.scale - 1) <= _NEAR)
        return bool(is_near.all()) and not (self.n_categories.any() or self.has_indicator.any())

    @property
    def n_inputs(self) -> int:
        """Number of inputs of a network."""
        return self._encoder().n_inputs

    def module(self, dtype: torch.dtype) -> InputEncoder:
        """Return the module that encodes rows."""
        return self._encoder().to(dtype)

    def _encoder(self) -> InputEncoder:
        arrays = self.loc, self.scale, self.n_categories, self.has_indicator
        return InputEncoder(*arrays, self.edges)


def encoding_for(estimator: Any, X: np.ndarray, weight: np.ndarray | None) -> InputEncoding | None:
    """Return the encoding that an estimator's parameters ask for; None for no table."""
    if X.ndim != 2 or not hasattr(estimator, "normalize_X"):
        return None
    columns = estimator._columns
    n_categories = None if columns is None else columns.n_categories
    return InputEncoding.of(X, weight, normalize=estimator.normalize_X, n_categories=n_categories)


def _standardisation(
    X: np.ndarray, weight: np.ndarray | None, is_missing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of what columns hold; 0 and 1 where they hold nothing."""
    loc, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if not is_missing.all():
        loc[~is_missing], scale[~is_missing] = standardisation(X[:, ~is_missing], weight)
    for column in np.flatnonzero(is_missing):
        held = ~np.isnan(X[:, column])
        if held.any() and (weight is None or weight[held].any()):
            of_held = None if weight is None else weight[held]
            found = standardisation(X[held, column][:, None], of_held)
            loc[column], scale[column] = (float(values[0]) for values in found)
    return loc, scale
