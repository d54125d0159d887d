# SPDX-License-Identifier: BSD-3-Clause
"""A monitor of drift: p-values that may be looked at after every batch."""

from collections import deque
from numbers import Real
from typing import Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike, BaseEstimator, RandomStateLike
from .._utils.validation import Number, Seed, errors_about
from .._utils.warnings import without_schema_warnings
from ..distributions import split_columns
from ._martingales import AT_A_TIME, Bag, Martingales

_N_UPDATES, _LEAST_SAMPLES = 1000, 2  # updates in the history; samples of a reference, at least

# Parts of the uncertainty that are watched; the other one is their difference.
_PARTS = ("epistemic", "total")


class DriftMonitor:
    r"""Monitor of drift between a reference and the batches that a model predicts for.

    It tests the model's uncertainty; no labels are needed. The p-value is valid after every batch:
    if all samples are exchangeable with those of the reference, the probability that it is *ever*
    at most `alpha` is at most `alpha`, however long the stream and however small the reference.

    Parameters
    ----------
    student : estimator
        A fitted estimator of this package, a teacher as well, or a Pipeline, search,
        FrozenEstimator or TransformedTargetRegressor around one.
    X_reference : array-like of shape (n_samples, n_features)
        Samples like those that should come. The model must not have been fitted on them: it is
        surer of those that it has seen.
    alpha : float, default=0.01
        Level of `is_drift_`.
    random_state : int, RandomState instance or None, default=None
        Breaks ties.

    Attributes
    ----------
    columns_ : list of str
        What is watched: the parts of the uncertainty that the model tells, "epistemic" and "total",
        with a number for each of several targets.
    p_value_ : float
        Of all columns together, the smallest that there has been.
    is_drift_ : bool
    n_samples_ : int
        Samples of the stream so far.
    mean_ranks_ : ndarray of shape (n_columns,)
        Of the last batch: mean rank of its values among those before, from 0 to 1, above .5 where
        they are larger.
    history_ : deque of tuple of (int, float)
        `n_samples_` and `p_value_` after each of the last 1,000 updates.

    See Also
    --------
    skdistill.validate : Values of a table that are missing, unknown, or outside the range of fit.

    Notes
    -----
    A new sample is ranked among all before it, the reference and the stream, with ties at random.
    Such conformal p-values are independent and uniform if the samples are exchangeable [1]_, which
    ranks in a fixed reference are not. On each column a test martingale bets that they are not
    uniform [2]_: a mixture over times of change and over alternatives. By Ville's inequality its
    supremum is :math:`1/\alpha` or more with a probability of at most :math:`\alpha`, and so is
    that of the mean over columns. ``p_value_`` is the inverse of that supremum.

    Samples of a stream that depend on one another, as those of one day may, are not exchangeable:
    such dependence is found as drift. What has drifted joins the samples to rank among, and the
    p-value stays where it was: after an alarm make a new monitor with a new reference.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer. *Algorithmic Learning in a Random World*. 2005.
    .. [2] V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman. *Retrain or not
       retrain: conformal test martingales for change-point detection*. COPA, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.monitoring import DriftMonitor
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> model = BayesianEnsembleRegressor(2, max_epochs=2, random_state=0).fit(X[:300], X[:300, 0])
    >>> monitor = DriftMonitor(model, X[300:700], random_state=0)
    >>> monitor.update(X[700:850]).is_drift_
    False
    >>> monitor.update(X[850:] + 5).is_drift_
    True
    """

    def __init__(
        self,
        student: BaseEstimator,
        X_reference: ArrayLike,
        *,
        alpha: float = 0.01,
        random_state: RandomStateLike = None,
    ) -> None:
        Number(Real, 0, 1, closed="neither").check(alpha, "alpha")
        Seed().check(random_state, "random_state")
        check_is_fitted(student)
        columns, values = _watched(student, X_reference, "X_reference")
        if values.shape[1] < _LEAST_SAMPLES:
            raise ValueError(
                f"X_reference must have at least {_LEAST_SAMPLES} samples, got {values.shape[1]}."
            )
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        self.student = student
        self.alpha = alpha
        self.columns_ = columns
        self.history_: deque[tuple[int, float]] = deque(maxlen=_N_UPDATES)
        self._bag = Bag(values, np.random.RandomState(seed))
        self._martingales = Martingales(len(values))
        self._log_mean = 0.0  # supremum of the logarithm of the mean martingale

    def update(self, X: ArrayLike) -> Self:
        """Take a batch of the stream into account.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            With the columns of `fit`. One sample will do.

        Returns
        -------
        self : DriftMonitor

        Raises
        ------
        TypeError, ValueError
            If the model could not predict for X. The monitor is as before then.
        """
        _, values = _watched(self.student, X, "X")
        ranks, n_samples = np.empty_like(values), values.shape[1]
        for start in range(0, n_samples, AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            ranks[:, part] = self._bag.ranks(values[:, part])
            self._martingales.update(ranks[:, part])
            log_values = self._martingales.log_values()
            log_mean = float(np.logaddexp.reduce(log_values) - np.log(len(log_values)))
            self._log_mean = max(self._log_mean, log_mean)
        self.history_.append((self.n_samples_, self.p_value_))
        self.mean_ranks_ = ranks.mean(axis=1)
        return self

    @property
    def n_samples_(self) -> int:
        return self._martingales.n_samples

    @property
    def p_value_(self) -> float:
        return float(np.exp(-self._log_mean))

    @property
    def is_drift_(self) -> bool:
        return self.p_value_ <= self.alpha


@without_schema_warnings()  # of drift, which is told
def _watched(student: BaseEstimator, X: ArrayLike, name: str) -> tuple[list[str], np.ndarray]:
    """Names and values, (n_columns, n_samples), of the parts of the uncertainty."""
    with errors_about(name):
        parts = predict_uncertainty(student, X)._asdict()
    columns = split_columns({part: parts[part] for part in _PARTS if parts[part] is not None})
    return [*columns], np.stack([*columns.values()]).astype(np.float64)
