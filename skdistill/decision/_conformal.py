# SPDX-License-Identifier: BSD-3-Clause
"""Conformal intervals: of samples like those of fit, shifted in a known way, or of a stream."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_regressor
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf, Rule, Seed
from .._utils.warnings import without_schema_warnings
from ._held_out import PARTS, HeldOutEstimator


class IntervalRegressor(RegressorMixin, HeldOutEstimator):
    """Base of regressors whose intervals are as wide as scores of held-out samples say.

    A score is an error over the square root of a predicted variance, or the error itself.
    """

    _parameter_table = {**HeldOutEstimator._parameter_table, "uncertainty": OneOf((*PARTS, None))}

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the mean with the estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return column_or_1d(self.estimator_.predict(X))

    def _scale(self, X: ArrayLike) -> np.ndarray | float:
        """Return what scores are divided by, of shape (n,)."""
        if self.uncertainty is None:
            return 1.0
        with without_schema_warnings():  # given when the mean was predicted
            scale = np.sqrt(self._uncertainty(X))
        if not (scale > 0).all():
            raise ValueError(
                f"uncertainty must be positive for every sample, or None; {self.uncertainty!r} is "
                f"0 for {np.sum(scale == 0)} of {len(scale)}."
            )
        return scale

    def _scores(self, X: ArrayLike, y: np.ndarray) -> np.ndarray:
        if not is_regressor(self.estimator_):
            raise TypeError(f"estimator must be a regressor, got {self.estimator!r}.")
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        return np.abs(y - self.predict(X)) / self._scale(X)

    def _interval(self, X: ArrayLike, quantile: np.ndarray | float) -> np.ndarray:
        """Return intervals (n, 2) whose half widths are quantiles of the scores."""
        mean, half_width = self.predict(X), quantile * self._scale(X)
        return np.stack([mean - half_width, mean + half_width], axis=-1)


class _Ratio(Rule):
    """A function, a classifier that predicts probabilities, or None."""

    accepted = "None, callable or a classifier with predict_proba"

    def accepts(self, value: object) -> bool:
        return value is None or callable(value) or hasattr(value, "predict_proba")

    def error_type(self, value: object) -> type[Exception]:
        return TypeError


class ConformalRegressor(IntervalRegressor):
    r"""Conformal regressor: intervals with guaranteed marginal coverage.

    Split conformal prediction [1]_ calibrates the width of the intervals by the errors of held-out
    samples over their predicted standard deviations. With `likelihood_ratio` the coverage holds
    under covariate shift too, where only the distribution of the features changes [2]_.

    Parameters
    ----------
    estimator : estimator
        Regressor of one target that :func:`skdistill.predict_uncertainty` takes. In a
        :class:`~sklearn.frozen.FrozenEstimator` it stays as it is, and all samples of `fit` are
        held-out samples.
    uncertainty : {"total", "aleatoric", "epistemic"} or None, default="total"
        Half widths of intervals are multiples of the square root of this variance; with None they
        are all the same.
    likelihood_ratio : callable, classifier or None, default=None
        How many times as likely samples are among those to come as among those of `fit`, up to a
        factor: a function ``likelihood_ratio(X)`` that returns it, of shape (n_samples,), or a
        classifier that estimates it, and learns to tell the `X_new` of `fit` from the held-out
        samples. None is for samples like those of `fit`.
    held_out : float, default=0.3
        Share of the samples of `fit` to hold out from the fit of the estimator, in (0, 1).
    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    classifier_ : classifier or None
        The fitted classifier, where `likelihood_ratio` is one.
    scores_ : ndarray of shape (n_held_out,)
        Errors of the held-out samples over their scale, increasing.
    weights_ : ndarray of shape (n_held_out,)
        Likelihood ratios in the order of `scores_`.
    n_effective_ : float
        Effective number of held-out samples, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`. Where it is
        small, few samples decide how wide intervals are.
    n_features_in_ : int

    See Also
    --------
    AdaptiveConformalRegressor : For streams that change in unknown ways.
    skdistill.metrics.interval_coverage : Coverage of intervals.

    Notes
    -----
    A new sample :math:`x` gets the smallest score up to which held-out samples have the weight

    .. math:: \sum_{i: s_i \le s} w_i \ge \text{coverage} \cdot \Bigl(\sum_i w_i + w(x)\Bigr)

    as its half width, in units of its scale. Without weights it is the score of rank
    :math:`\lceil \text{coverage} \cdot (n + 1) \rceil`. Where no score is large enough the interval
    is infinite: :math:`x` lies where there are too few held-out samples to tell.

    References
    ----------
    .. [1] J. Lei, M. G'Sell, A. Rinaldo, R. Tibshirani, L. Wasserman. "Distribution-Free Predictive
       Inference for Regression". Journal of the American Statistical Association 2018.
    .. [2] R. Tibshirani, R. Foygel Barber, E. Candès, A. Ramdas. "Conformal Prediction Under
       Covariate Shift". NeurIPS 2019, arXiv 1904.06019.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.decision import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> is_new = X[:, 2] > 0.03  # body mass index
    >>> ensemble = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0)
    >>> model = ConformalRegressor(ensemble, random_state=0).fit(X, y)
    >>> model.predict_interval(X[is_new], coverage=0.8).shape
    (116, 2)
    >>> shifted = ConformalRegressor(
    ...     ensemble, likelihood_ratio=LogisticRegression(C=100), random_state=0
    ... )
    >>> shifted.fit(X, y, X_new=X[is_new]).n_effective_ < len(shifted.scores_)
    True
    """

    _parameter_table = {
        **IntervalRegressor._parameter_table,
        "likelihood_ratio": _Ratio(),
        "random_state": Seed(),
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        uncertainty: str | None = "total",
        likelihood_ratio: Callable[[Any], ArrayLike] | BaseEstimator | None = None,
        held_out: float = 0.3,
        random_state: RandomStateLike = None,
    ):
        self.estimator = estimator
        self.uncertainty = uncertainty
        self.likelihood_ratio = likelihood_ratio
        self.held_out = held_out
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, X_new: ArrayLike | None = None) -> Self:
        """Fit the estimator unless it is frozen, and score the held-out samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_new : array-like of shape (n_new_samples, n_features), default=None
            Samples like those to come, without y; for a `likelihood_ratio` that is a classifier.

        Returns
        -------
        self : ConformalRegressor

        Raises
        ------
        TypeError
            If the estimator is no regressor, or has no uncertainty to predict.
        ValueError
            If a parameter is invalid, `X_new` is missing or of no use, or likelihood ratios are
            not numbers that are positive or 0, and not all 0.
        """
        X, y = self._fit_estimator(X, y, random_state=self.random_state)
        estimates = hasattr(self.likelihood_ratio, "predict_proba")
        if estimates is (X_new is None):
            raise ValueError(
                "X_new must be given if likelihood_ratio is a classifier, and then only, got "
                f"likelihood_ratio={self.likelihood_ratio!r}."
            )
        self.classifier_ = _told_apart(self.likelihood_ratio, X, X_new) if estimates else None
        scores = self._scores(X, y)
        order = np.argsort(scores)
        self.scores_, self.weights_ = scores[order], self._ratio(X)[order]
        total = self.weights_.sum()
        if not 0 < total < np.inf:
            raise ValueError(
                f"likelihood_ratio must have a positive finite sum over held-out samples, got "
                f"{total:g}."
            )
        self.n_effective_ = float(total**2 / np.square(self.weights_).sum())
        return self

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> np.ndarray:
        """Predict intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9
            Probability of y being inside, in (0, 1).

        Returns
        -------
        interval : ndarray of shape (n_samples, 2)
            Lower and upper ends; infinite where there are too few held-out samples.
        """
        check_is_fitted(self)
        Number(Real, 0, 1, closed="neither").check(coverage, "coverage")
        cumulated = np.cumsum(self.weights_)
        wanted = coverage * (cumulated[-1] + self._ratio(X))  # Tibshirani et al., Eq 7
        place = np.searchsorted(cumulated, wanted * (1 - 1e-12))  # less what rounding may add
        return self._interval(X, np.append(self.scores_, np.inf)[place])

    def _ratio(self, X: ArrayLike) -> np.ndarray:
        """Return likelihood ratios of samples, of shape (n,)."""
        n = np.shape(X)[0]
        if self.likelihood_ratio is None:
            return np.ones(n)
        if self.classifier_ is not None:
            new = self.classifier_.predict_proba(X)[:, 1]
            return new / np.maximum(1 - new, np.finfo(float).eps)
        ratio = np.asarray(self.likelihood_ratio(X), dtype=float)
        if ratio.shape != (n,) or not (ratio >= 0).all():
            raise ValueError(
                f"likelihood_ratio must return {n} numbers that are not negative, got shape "
                f"{ratio.shape} and {ratio[~(ratio >= 0)][:3]}."
            )
        return ratio


def _told_apart(classifier: BaseEstimator, X: Any, X_new: Any) -> BaseEstimator:
    """Fit a classifier to tell new samples, of class 1, from held-out ones."""
    if hasattr(X, "iloc"):
        import pandas

        both = pandas.concat([X, X_new], ignore_index=True)
    else:
        both = np.concatenate([X, np.asarray(X_new)])
    is_new = np.repeat([0, 1], [len(X), len(both) - len(X)])
    return clone(classifier).fit(both, is_new)


class AdaptiveConformalRegressor(IntervalRegressor):
    r"""Regressor whose intervals are widened after misses, and narrowed after hits.

    Adaptive conformal inference [1]_ for streams: once the true y of a sample is known, it is given
    to `partial_fit`. The share of misses then tends to ``1 - coverage`` for any sequence of
    samples, however they change.

    Parameters
    ----------
    estimator : estimator
        As for :class:`ConformalRegressor`; `partial_fit` does not change it.
    coverage : float, default=0.9
        Share of samples whose y is to be inside, in (0, 1).
    step_size : float, default=0.01
        How fast intervals follow, :math:`\gamma` in (0, 1): larger ones follow sooner, and vary
        more in width.
    max_scores : int, default=1000
        Number of the latest scores that say how wide intervals are; None for all.
    uncertainty : {"total", "aleatoric", "epistemic"} or None, default="total"
        As for :class:`ConformalRegressor`.
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
        X, y
            As for :meth:`fit`, which is called if the regressor is not fitted.

        Returns
        -------
        self : AdaptiveConformalRegressor
        """
        if not hasattr(self, "estimator_"):
            return self.fit(X, y)
        for score in self._scores(X, column_or_1d(y, warn=True)).tolist():
            missed = self.miscoverage_ >= 1 or score > self._quantile()
            self.miscoverage_ += self.step_size * (1 - self.coverage - missed)  # Eq 2
            self.n_seen_ += 1
            self.n_missed_ += int(missed)
            if len(self._latest) == self.max_scores:  # the oldest score makes place
                del self._sorted[bisect_left(self._sorted, self._latest[0])]
            self._latest.append(score)
            insort(self._sorted, score)
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
        check_is_fitted(self)
        return np.array(self._latest)

    def _quantile(self) -> float:
        """Half width of the next interval, in units of its scale."""
        n = len(self._sorted)
        rank = math.ceil((1 - self.miscoverage_) * (n + 1) * (1 - 1e-12))  # less rounding
        if self.miscoverage_ <= 0 or rank > n:
            return math.inf
        return self._sorted[rank - 1] if rank > 0 else 0.0
