# SPDX-License-Identifier: BSD-3-Clause
"""Selection of samples in the way of scikit-activeml's query strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from .._utils.typing import RandomStateLike
from .._utils.validation import OneOf
from ._pool import rows_of
from ._select import METHODS, select_batch


class BatchQuery(BaseEstimator):
    """Query strategy with the method of those of scikit-activeml, which need not be installed.

    Parameters
    ----------
    estimator : estimator
        Unfitted: a clone is fitted to the labelled samples in each query.
    method : str, default="auto"
        See :func:`select_batch`.
    missing_label : object, default=numpy.nan
        What stands in y for a label that is not known.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    estimator_ : estimator
        That of the last query, fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.active import BatchQuery
    >>> X, y = load_iris(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) % 10 == 0, y, np.nan)
    >>> query = BatchQuery(BayesianEnsembleClassifier(3, max_epochs=5), random_state=0)
    >>> query.query(X, known, batch_size=4).shape
    (4,)
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        method: str = "auto",
        missing_label: object = np.nan,
        random_state: RandomStateLike = None,
    ):
        self.estimator = estimator
        self.method = method
        self.missing_label = missing_label
        self.random_state = random_state

    def query(
        self, X: Any, y: ArrayLike, candidates: ArrayLike | None = None, batch_size: int = 1
    ) -> np.ndarray:
        """Select samples whose labels to ask for.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Samples with and without labels.
        y : array-like of shape (n_samples,)
            Labels, and `missing_label` where there is none.
        candidates : array-like of int of shape (n_candidates,), or of samples, default=None
            Places in X of the samples to choose from, or such samples themselves, of shape
            (n_candidates, n_features); None is all without a label.
        batch_size : int, default=1

        Returns
        -------
        indices : ndarray of shape (batch_size,)
            Places in X; in `candidates`, if these are samples.

        Raises
        ------
        ValueError
            If y has another shape, no label is known, or there are fewer candidates than
            `batch_size`.
        """
        OneOf(METHODS).check(self.method, "method")
        X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
        if y.shape != (len(X),):
            raise ValueError(
                f"y must have shape ({len(X)},), a label for each sample of X, got {y.shape}."
            )
        is_known = ~self._is_missing(y)
        if not is_known.any():
            raise ValueError(f"y must hold a label that is not {self.missing_label!r}, got none.")
        X_train = rows_of(X, np.flatnonzero(is_known))
        y_train = np.array(y[is_known].tolist())  # of the dtype of the labels alone
        self.estimator_ = clone(self.estimator).fit(X_train, y_train)
        places = np.flatnonzero(~is_known) if candidates is None else candidates
        is_samples = np.ndim(places) > 1
        pool = places if is_samples else rows_of(X, np.asarray(places))
        found = select_batch(
            self.estimator_,
            pool,
            batch_size,
            X_train=X_train,
            method=self.method,
            random_state=self.random_state,
        )
        return found if is_samples else np.asarray(places)[found]

    def _is_missing(self, y: np.ndarray) -> np.ndarray:
        missing = self.missing_label
        if isinstance(missing, float) and np.isnan(missing):
            return np.array([label != label for label in y.tolist()], bool)
        return np.array([label is missing or label == missing for label in y.tolist()], bool)
