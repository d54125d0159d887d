# SPDX-License-Identifier: BSD-3-Clause
"""A monitor of drift: p-values that may be looked at after every batch."""

import json
import os
from collections import deque
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._data.schema import read_table
from .._estimator.functions import predict_uncertainty
from .._estimator.unwrapping import innermost
from .._serialization.container import pack, read, unpack, write_atomically
from .._serialization.json import Decoder, Encoder
from .._utils.typing import ArrayLike, BaseEstimator, RandomStateLike
from .._utils.validation import FilePath, Number, Seed, errors_about
from .._utils.warnings import without_schema_warnings
from ..distributions import split_columns
from ._martingales import AT_A_TIME, Bag, Martingales, log_adjusted

_FORMAT = "skdistill drift monitor", "1"  # and its version

# Updates that are remembered, and samples of a reference at least.
_N_UPDATES, _LEAST_SAMPLES = 1000, 2

# Parts of the uncertainty that are watched; the other one is their difference.
_PARTS = ("epistemic", "total")


class DriftMonitor:
    r"""Monitor of drift between a reference and the batches that a model predicts for.

    It tests every feature, and the model's uncertainty; no labels are needed. The p-value is valid
    after every batch: if all samples are exchangeable with those of the reference, the probability
    that it is *ever* at most `alpha` is at most `alpha`, however long the stream and however small
    the reference.

    Parameters
    ----------
    student : estimator
        A fitted estimator of this package, a teacher as well, or a Pipeline, search,
        FrozenEstimator or TransformedTargetRegressor around one.
    X_reference : array-like of shape (n_samples, n_features)
        Samples like those that should come. The model must not have been fitted on them: it is
        surer of those that it has seen.
    alpha : float, default=0.01
        Level of `is_drift_` and `features_`.
    max_samples : int, default=10_000
        Samples of reference and stream that are kept to rank new ones among. When there are more,
        some drawn at random leave.
    random_state : int, RandomState instance or None, default=None
        Breaks ties, and draws what leaves.

    Attributes
    ----------
    columns_ : list of str
        What is watched: the model's features by name, "feature 0" and so on without names (none of
        images and series), and the parts of the uncertainty that it tells, "epistemic" and "total",
        with a number for each of several targets.
    p_value_ : float
        Of all columns together, the smallest that there has been.
    p_values_ : ndarray of shape (n_columns,)
        Of each column, adjusted for there being several: the probability that any column that has
        not drifted is in `features_` is at most `alpha`.
    is_drift_ : bool
    features_ : list of str
        Columns that have drifted. It may be empty where all of them together have.
    n_samples_ : int
        Samples of the stream so far.
    mean_ranks_ : ndarray of shape (n_columns,)
        Of the last batch: mean rank of its values among those before, from 0 to 1, above .5 where
        they are larger. Missing values are above all others.
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
    that of the mean over columns. ``p_value_`` is the inverse of that supremum; those of columns
    are of the closed test by means [3]_.

    Samples of a stream that depend on one another, as those of one day may, are not exchangeable:
    such dependence is found as drift. What has drifted joins the samples to rank among, and the
    p-value stays where it was: after an alarm make a new monitor with a new reference.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer. *Algorithmic Learning in a Random World*. 2005.
    .. [2] V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman. *Retrain or not
       retrain: conformal test martingales for change-point detection*. COPA, 2021.
    .. [3] V. Vovk, R. Wang. *E-values: calibration, combination and applications*. Annals of
       Statistics 49(3), 2021.

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
    >>> monitor.update(X[850:] + [0, 1]).features_
    ['feature 1']
    """

    def __init__(
        self,
        student: BaseEstimator,
        X_reference: ArrayLike,
        *,
        alpha: float = 0.01,
        max_samples: int = 10_000,
        random_state: RandomStateLike = None,
    ) -> None:
        Number(Real, 0, 1, closed="neither").check(alpha, "alpha")
        Number(Integral, _LEAST_SAMPLES).check(max_samples, "max_samples")
        Seed().check(random_state, "random_state")
        columns, values = _watched(student, X_reference, "X_reference")
        if values.shape[1] < _LEAST_SAMPLES:
            raise ValueError(
                f"X_reference must have at least {_LEAST_SAMPLES} samples, got {values.shape[1]}."
            )
        n_features = len(_feature_names(student))
        if n_features and np.isinf(values[:n_features]).all():
            raise ValueError("X_reference must have values that are not missing; all of them are.")
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        self.student = student
        self.alpha = alpha
        self.columns_ = columns
        self.history_: deque[tuple[int, float]] = deque(maxlen=_N_UPDATES)
        self._bag = Bag.of(values, max_samples, np.random.RandomState(seed))
        self._martingales = Martingales.start(len(values))
        # Suprema of the logarithms of the mean martingale, and of those of columns, adjusted.
        self._log_mean, self._log_adjusted = 0.0, np.zeros(len(values))

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
            self._log_adjusted = np.maximum(self._log_adjusted, log_adjusted(log_values))
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
    def p_values_(self) -> np.ndarray:
        return np.exp(-self._log_adjusted)

    @property
    def is_drift_(self) -> bool:
        return self.p_value_ <= self.alpha

    @property
    def features_(self) -> list[str]:
        return [self.columns_[i] for i in np.flatnonzero(self.p_values_ <= self.alpha)]

    def save(self, path: str | os.PathLike) -> None:
        """Write the state to a file, without the model, whole or not at all.

        Parameters
        ----------
        path : str or os.PathLike
            Such as ``"drift.safetensors"``. The file is safe to open, see
            :mod:`skdistill.persistence`, and holds values of at most `max_samples` samples.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        FilePath().check(path, "path")
        state = {
            "alpha": self.alpha,
            "features": _feature_names(self.student),
            "columns": self.columns_,
            "history": list(self.history_),
            "bag": vars(self._bag),
            "martingales": vars(self._martingales),
            "suprema": (self._log_mean, self._log_adjusted),
        }
        encoder = Encoder(_refuse)
        text = json.dumps(encoder.encode(state), separators=(",", ":"), allow_nan=False)
        write_atomically(Path(path), *pack(*_FORMAT, text, encoder.arrays))

    @classmethod
    def load(cls, path: str | os.PathLike, student: BaseEstimator) -> Self:
        """Return the monitor that :meth:`save` has written, which goes on where that one was.

        Parameters
        ----------
        path : str or os.PathLike
        student : estimator
            The same model, such as :func:`skdistill.load` returns.

        Returns
        -------
        monitor : DriftMonitor

        Raises
        ------
        ValueError
            If the file is damaged, no monitor, of another format version, or one of a model with
            other columns.
        OSError
            If it cannot be read.
        """
        FilePath().check(path, "path")
        try:
            text, arrays = unpack(read(Path(path)), *_FORMAT)
            state = Decoder(arrays, {}).decode_all(json.loads(text))
            monitor = cls.__new__(cls)
            monitor.student, monitor.alpha = student, state["alpha"]
            monitor.columns_ = state["columns"]
            monitor.history_ = deque(state["history"], maxlen=_N_UPDATES)
            monitor._bag = Bag(**state["bag"])
            monitor._martingales = Martingales(**state["martingales"])
            monitor._log_mean, monitor._log_adjusted = state["suprema"]
        except OSError:
            raise
        except Exception as error:  # of any kind: the file may say anything
            raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}.") from error
        if (names := _feature_names(student)) != state["features"]:
            raise ValueError(
                f"student must have the monitor's features, {state['features']}; got {names}."
            )
        return monitor


def _refuse(_: Encoder, value: object, place: str) -> Any:
    raise TypeError(f"{place} cannot be saved: it is a {type(value).__name__}.")


@without_schema_warnings()  # of drift, which is told
def _watched(student: BaseEstimator, X: ArrayLike, name: str) -> tuple[list[str], np.ndarray]:
    """Names and values, of shape (n_columns, n_samples), of features and parts of the uncertainty.

    Categories are codes; missing values and unknown categories are inf.
    """
    names = _feature_names(student)
    with errors_about(name):
        parts = predict_uncertainty(student, X)._asdict()
        known = {part: parts[part] for part in _PARTS if parts[part] is not None}
        uncertainties = split_columns(known)
        rows = np.empty((len(known["total"]), 0))
        if names:
            estimator, X, _ = innermost(student, X, "_input_schema")
            rows, _ = read_table(estimator, X, schema=estimator._input_schema)
    values = np.column_stack([rows, *uncertainties.values()]).T.astype(np.float64)
    return [*names, *uncertainties], np.nan_to_num(values, copy=False, nan=np.inf, posinf=np.inf)


def _feature_names(student: BaseEstimator) -> list[str]:
    """Names of the features that a fitted model has; none of those of images and series."""
    check_is_fitted(student)
    schema = innermost(student, None, "_input_schema", "monitoring.DriftMonitor")[0]._input_schema
    numbers = (f"feature {i}" for i in range(len(schema.dtypes)))
    return list(numbers if schema.names is None else map(str, schema.names))
