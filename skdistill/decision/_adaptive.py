# SPDX-License-Identifier: BSD-3-Clause
"""Conformal intervals that follow a stream."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._utils.validation import Number
from ._conformal import IntervalRegressor


class AdaptiveConformalRegressor(IntervalRegressor):
    r"""Regressor whose intervals are widened after misses, and narrowed after hits.

    Adaptive conformal inference [1]_ for streams: once the true y of a sample is known, it is given
    to `partial_fit`. The share of misses then tends to ``1 - coverage`` for any sequence of
    samples, however they change.

    Parameters
    ----------
    estimator : estimator
        Regressor of one target that :func:`skdistill.predict_uncertainty` takes. In a
        :class:`~sklearn.frozen.FrozenEstimator` it stays as it is, and all samples of `fit` are
        held-out samples. `partial_fit` does not change it.
    coverage : float, default=0.9
        Share of samples whose y is to be inside, in (0, 1).
    step_size : float, default=0.01
        How fast intervals follow, :math:`\gamma` in (0, 1): larger ones follow sooner, and vary
        more in width.
    max_scores : int, default=1000
        Number of the latest scores that say how wide intervals are; None for all.
    uncertainty : {"total", "aleatoric", "epistemic"} or None, default="total"
        Half widths of intervals are multiples of the square root of this variance; with None of 1.
    held_out : float, default=0.3
        Share of the samples of `fit`, its last ones, to hold out from the fit of the estimator, in
        (0, 1).

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    miscoverage_ : float
        The :math:`\alpha_t` with which the next sample is predicted. At 0 or less intervals are
        infinite; at 1 or more they are empty.
    n_seen_ : int
        Number of samples that `partial_fit` has seen after `fit`.
    n_missed_ : int
        How many of these were outside of the intervals that were predicted for them.
    scores_ : ndarray of shape (n_scores,)
        Errors over their scale, as they came.
    n_features_in_ : int

    See Also
    --------
    ConformalRegressor : For samples that are all alike, or differ in a known way.

    Notes
    -----
    With :math:`\alpha = 1 - \text{coverage}` and :math:`\text{err}_t = 1` where :math:`y_t` was
    missed,

    .. math:: \alpha_{t+1} = \alpha_t + \gamma (\alpha - \text{err}_t),

    and intervals are those of split conformal prediction with the coverage
    :math:`1 - \alpha_t` (Eq 2 of [1]_). After :math:`T` samples, whatever they are, the share of
    misses is within :math:`(\max(\alpha, 1 - \alpha) + \gamma) / (T \gamma)` of :math:`\alpha`
    (Proposition 4.1). Both ends of an empty interval are the mean, and it counts as a miss.

    References
    ----------
    .. [1] I. Gibbs, E. Candès. "Adaptive Conformal Inference Under Distribution Shift". NeurIPS
       2021, arXiv 2106.00170.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.decision import AdaptiveConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ensemble = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0)
    >>> model = AdaptiveConformalRegressor(ensemble).fit(X[:300], y[:300])
    >>> for batch in np.split(np.arange(300, 440), 14):
    ...     interval = model.predict_interval(X[batch])
    ...     model = model.partial_fit(X[batch], y[batch])
    >>> model.n_seen_
    140
    """

    _parameter_table = {
        **IntervalRegressor._parameter_table,
        "coverage": Number(Real, 0, 1, closed="neither"),
        "step_size": Number(Real, 0, 1, closed="neither"),
        "max_scores": Number(Integral, 1, others=(None,)),
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        coverage: float = 0.9,
        *,
        step_size: float = 0.01,
        max_scores: int | None = 1000,
        uncertainty: str | None = "total",
        held_out: float = 0.3,
    ):
        self.estimator = estimator
        self.coverage = coverage
        self.step_size = step_size
        self.max_scores = max_scores
        self.uncertainty = uncertainty
        self.held_out = held_out

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the estimator unless it is frozen, and begin with the scores of held-out samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            In the order of time.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : AdaptiveConformalRegressor
            The fitted regressor.

        Raises
        ------
        TypeError
            If the estimator is no regressor, or has no uncertainty to predict.
        ValueError
            If a parameter is invalid.
        """
        X, y = self._fit_estimator(X, y, shuffle=False)
        self._latest = deque(self._scores(X, y).tolist(), self.max_scores)
        self._sorted = sorted(self._latest)
        self.miscoverage_ = 1 - self.coverage
        self.n_seen_ = self.n_missed_ = 0
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from samples, one after the other, whether intervals are wide enough.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            In the order of time.
        y : array-like of shape (n_samples,)
            Their true values.

        Returns
        -------
        self : AdaptiveConformalRegressor
            The same regressor; as :meth:`fit`, if it was not fitted.
        """
        if not hasattr(self, "estimator_"):
            return self.fit(X, y)
        for score in self._scores(X, column_or_1d(y, warn=True)).tolist():
            missed = self.miscoverage_ >= 1 or score > self._quantile()
            self.miscoverage_ += self.step_size * (1 - self.coverage - missed)  # Eq 2
            self.n_seen_ += 1
            self.n_missed_ += int(missed)
            self._add(score)
        return self

    def predict_interval(self, X: ArrayLike) -> np.ndarray:
        """Predict intervals with the coverage that the samples so far call for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        interval : ndarray of shape (n_samples, 2)
            Lower and upper ends.
        """
        check_is_fitted(self)
        return self._interval(X, self._quantile())

    @property
    def scores_(self) -> np.ndarray:
        """Errors over their scale, as they came."""
        check_is_fitted(self)
        return np.array(self._latest)

    def _quantile(self) -> float:
        """Half width of the next interval, in units of its scale."""
        n = len(self._sorted)
        rank = math.ceil((1 - self.miscoverage_) * (n + 1) * (1 - 1e-12))  # less rounding
        if self.miscoverage_ <= 0 or rank > n:
            return math.inf
        return self._sorted[rank - 1] if rank > 0 else 0.0

    def _add(self, score: float) -> None:
        """Take a score among the latest, in the place of the oldest where there are enough."""
        if len(self._latest) == self.max_scores:
            del self._sorted[bisect_left(self._sorted, self._latest[0])]
        self._latest.append(score)
        insort(self._sorted, score)
