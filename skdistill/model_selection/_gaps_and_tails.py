# SPDX-License-Identifier: BSD-3-Clause
"""Folds whose test samples lie where the training samples do not."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import indexable

from .._data.columns import column_of, names_of_columns, values_of
from .._utils.validation import Number


@dataclass
class _SplitByFeature(BaseCrossValidator, ABC):
    """A splitter with one fold per numeric feature, which sorts the samples."""

    features: Any = "auto"
    _: KW_ONLY
    min_values: int = 10

    def __post_init__(self):
        Number(Integral, 1).check(self.min_values, "min_values")
        is_text = isinstance(self.features, str)
        if (is_text and self.features != "auto") or (not is_text and np.ndim(self.features) != 1):
            raise ValueError(
                f"features must be 'auto' or a list of names or numbers, got {self.features!r}."
            )

    def _iter_test_masks(self, X=None, y=None, groups=None) -> Iterator[np.ndarray]:
        """Masks of the test samples of each fold, of which `split` makes increasing indices."""
        for number, column in self._columns(X).items():
            test = self._test_mask(column)
            if not test.any():
                raise ValueError(
                    f"{type(self).__name__} has no test samples for feature {number} of X: too few "
                    f"of its {np.count_nonzero(~np.isnan(column))} values differ."
                )
            yield test

    def get_n_splits(self, X: Any = None, y: object = None, groups: object = None) -> int:
        """Return the number of folds: one for each feature of X that samples are sorted by.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
        y, groups : object
            Ignored.

        Returns
        -------
        n_splits : int
        """
        if X is None:
            raise ValueError("X must be given: there is one fold for each of its features.")
        return len(self._columns(X))

    def get_features(self, X: ArrayLike) -> list:
        """Return the feature of each fold.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)

        Returns
        -------
        features : list
            Names of the columns of a frame, numbers of those of an array.
        """
        names = list(X.columns) if hasattr(X, "columns") else None
        return [number if names is None else names[number] for number in self._columns(X)]

    def _columns(self, X: ArrayLike) -> dict[int, np.ndarray]:
        """Numbers and float values of the columns that samples are sorted by."""
        (X,) = indexable(X)
        if len(np.shape(X)) != 2:
            raise ValueError(f"X must have samples and features, got shape {np.shape(X)}.")
        n_features, is_auto = np.shape(X)[1], isinstance(self.features, str)
        chosen = range(n_features) if is_auto else self._numbers(X, n_features)
        columns = {j: _as_floats(X, j) for j in chosen}
        texts = [j for j, column in columns.items() if column is None]
        if texts and not is_auto:
            raise ValueError(f"features must hold numbers, but those at {texts} do not.")
        known = {j: column for j, column in columns.items() if column is not None}
        if not is_auto:
            return known
        n_values = {j: len(np.unique(column[~np.isnan(column)])) for j, column in known.items()}
        found = (j for j in known if n_values[j] > self.min_values)
        return {j: known[j] for j in found if self._test_mask(known[j]).any()}

    def _numbers(self, X: ArrayLike, n_features: int) -> list[int]:
        """Numbers of the columns that `features` names."""
        places = {name: j for j, name in enumerate(names_of_columns(X) or ())}
        found = [places.get(feature, feature) for feature in self.features]
        for given, j in zip(self.features, found, strict=True):
            if not isinstance(j, Integral) or not -n_features <= int(j) < n_features:
                raise ValueError(
                    f"features must name columns of X, which has {n_features}; got {given!r}."
                )
        return [int(j) % n_features for j in found]

    def _test_mask(self, column: np.ndarray) -> np.ndarray:
        """Mask of the test samples, among which equal values stay together."""
        known = ~np.isnan(column)
        _, group, counts = np.unique(column[known], return_inverse=True, return_counts=True)
        mask = known.copy()
        mask[known] = self._are_tested(np.cumsum(counts) - (counts + 1) / 2, counts)[group]
        return mask

    @abstractmethod
    def _are_tested(self, ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Tell which values are for the test, by their mean ranks, from 0, and their counts."""


def _as_floats(X: Any, number: int) -> np.ndarray | None:
    """Values of a column, NaN where they are missing; None if they are not numbers."""
    if issparse(X):
        return np.asarray(X[:, [number]].toarray(), dtype=float).ravel()
    column = column_of(X, number)
    if str(column.dtype) == "category":
        return None
    values = np.asarray(column)
    if values.dtype.kind in "iuf":
        return values.astype(float)
    known = values_of(column)
    if all(value is None or isinstance(value, Real) for value in known):
        return np.array([np.nan if value is None else float(value) for value in known])
    return None


@dataclass
class GapSplit(_SplitByFeature):
    r"""Cross-validator that leaves out the middle third along each feature.

    Fold :math:`j` sorts the :math:`n` samples by feature :math:`j`. Its test samples are those of
    ranks :math:`\lfloor n/3 \rfloor` to :math:`\lfloor 2n/3 \rfloor - 1`, counted from 0; the
    others are for training [1]_. A model should be uncertain of samples in the gap.

    Parameters
    ----------
    features : "auto" or array-like of int or str, default="auto"
        Features to sort by, a fold for each. "auto" takes all numeric ones with more than
        `min_values` distinct values; text and categories are skipped. A list names columns of a
        frame, or numbers those of X, and takes them whatever their number of values.
    min_values : int, default=10
        With ``features="auto"``, a feature of at most this number of distinct values has no fold.

    See Also
    --------
    unseen_scores : Scores a model on the samples of such a fold.
    sklearn.model_selection.LeaveOneGroupOut : With a categorical feature, or y, as `groups`, leaves
        out one category after the other.

    Notes
    -----
    Samples whose feature is missing are for training in its fold, and do not count in :math:`n`.
    Samples of equal value are on one side, that of their mean rank; a value that more samples have
    than the gap has ranks is for training. A feature without a value in the gap has no fold with
    ``features="auto"``, and is an error in a list.

    References
    ----------
    .. [1] A. Foong, Y. Li, J. Hernandez-Lobato, R. Turner. "'In-Between' Uncertainty in Bayesian
       Neural Networks". ICML Workshop on Uncertainty and Robustness in Deep Learning 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.model_selection import GapSplit
    >>> X = np.column_stack([np.arange(12), np.zeros(12)])
    >>> splitter = GapSplit()
    >>> splitter.get_features(X)
    [0]
    >>> for train, test in splitter.split(X):
    ...     print(train, test)
    [ 0  1  2  3  8  9 10 11] [4 5 6 7]
    """

    def _are_tested(self, ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
        n = counts.sum()
        low, high = n // 3, 2 * n // 3
        return (ranks >= low) & (ranks < high) & (counts <= high - low)


@dataclass
class TailSplit(_SplitByFeature):
    r"""Cross-validator that leaves out the outer sixths along each feature.

    Fold :math:`j` sorts the :math:`n` samples by feature :math:`j`. Its test samples are the first
    and the last :math:`\lfloor n/6 \rfloor`; the others are for training. A model has to
    extrapolate to them, and should be uncertain.

    Parameters
    ----------
    features, min_values : as in :class:`GapSplit`

    See Also
    --------
    GapSplit : Leaves out the middle; missing values, and equal ones, are as there.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.model_selection import TailSplit
    >>> X = np.arange(12)[:, np.newaxis]
    >>> for train, test in TailSplit().split(X):
    ...     print(train, test)
    [2 3 4 5 6 7 8 9] [ 0  1 10 11]
    """

    def _are_tested(self, ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
        n = counts.sum()
        return (ranks < n // 6) | (ranks > n - 1 - n // 6)
