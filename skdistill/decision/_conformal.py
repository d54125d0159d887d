# SPDX-License-Identifier: BSD-3-Clause
"""Conformal intervals that are scaled by the predicted uncertainty."""

from numbers import Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, is_regressor
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf
from .._utils.warnings import without_schema_warnings
from ._held_out import PARTS, HeldOutEstimator


class ConformalRegressor(RegressorMixin, HeldOutEstimator):
    r"""Conformal regressor: intervals with guaranteed marginal coverage.

    Split conformal prediction [1]_ calibrates the width of the intervals by the errors of held-out
    samples over their predicted standard deviations.

    Parameters
    ----------
    estimator : estimator
        Regressor of one target that :func:`skdistill.predict_uncertainty` takes. In a
        :class:`~sklearn.frozen.FrozenEstimator` it stays as it is, and all samples of `fit` are
        held-out samples.
    uncertainty : {"total", "aleatoric", "epistemic"} or None, default="total"
        Half widths of intervals are multiples of the square root of this variance; with None they
        are all the same.
    held_out : float, default=0.3
        Share of the samples of `fit` to hold out from the fit of the estimator, in (0, 1).
    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    scores_ : ndarray of shape (n_held_out,)
        Errors of the held-out samples over their scale, increasing.
    n_features_in_ : int

    See Also
    --------
    skdistill.metrics.interval_coverage : Coverage of intervals.

    Notes
    -----
    The half width, in units of the scale, is the score of rank
    :math:`\lceil \text{coverage} \cdot (n + 1) \rceil` of :math:`n` held-out samples. With fewer
    samples than this rank intervals are infinite.

    References
    ----------
    .. [1] J. Lei, M. G'Sell, A. Rinaldo, R. Tibshirani, L. Wasserman. "Distribution-Free Predictive
       Inference for Regression". Journal of the American Statistical Association 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.decision import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ensemble = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0)
    >>> model = ConformalRegressor(ensemble, random_state=0).fit(X[:400], y[:400])
    >>> model.predict_interval(X[400:], coverage=0.8).shape
    (42, 2)
    """

    _parameter_table = {
        **HeldOutEstimator._parameter_table,
        "uncertainty": OneOf((*PARTS, None)),
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        uncertainty: str | None = "total",
        held_out: float = 0.3,
        random_state: RandomStateLike = None,
    ):
        self.estimator = estimator
        self.uncertainty = uncertainty
        self.held_out = held_out
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the estimator unless it is frozen, and score the held-out samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : ConformalRegressor

        Raises
        ------
        TypeError
            If the estimator is no regressor, or has no uncertainty to predict.
        ValueError
            If a parameter is invalid.
        """
        X, y = self._fit_estimator(X, y)
        if not is_regressor(self.estimator_):
            raise TypeError(f"estimator must be a regressor, got {self.estimator!r}.")
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self.scores_ = np.sort(np.abs(y - self.predict(X)) / self._scale(X))
        return self

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
        n = len(self.scores_)
        rank = int(np.ceil(coverage * (n + 1) * (1 - 1e-12)))  # less what rounding may add
        quantile = self.scores_[rank - 1] if rank <= n else np.inf
        mean, half_width = self.predict(X), quantile * self._scale(X)
        return np.stack([mean - half_width, mean + half_width], axis=-1)

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
