# SPDX-License-Identifier: BSD-3-Clause
"""What a student costs, and the choice of the cheapest one that is good enough."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import indexable
from threadpoolctl import threadpool_limits

from .._estimator.unwrapping import innermost
from .._training.trainer import suited_threads
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import Number, OneOf
from ..modules import count_flop
from ..modules import n_parameters as n_parameters_of_module


def n_parameters(estimator: BaseEstimator, X: object = None) -> int:
    """Count the parameters of a fitted estimator's networks.

    Parameters
    ----------
    estimator : estimator
        A fitted skdistill estimator, or a Pipeline, search, FrozenEstimator or
        TransformedTargetRegressor around one.
    X : None
        Ignored; other costs need samples.

    Returns
    -------
    n_parameters : int
        Without buffers, such as the scale of the targets.

    Raises
    ------
    TypeError
        If no estimator with networks is found inside.
    """
    model, _, _ = innermost(estimator, None, "module_", "model_selection.n_parameters")
    return n_parameters_of_module(model.module_)


def flops(estimator: BaseEstimator, X: ArrayLike) -> int:
    """Count the floating-point operations that predicting one sample takes.

    Parameters
    ----------
    estimator : estimator
        As in :func:`n_parameters`.
    X : array-like of shape (n_samples, n_features)
        Only the shape of its first sample matters.

    Returns
    -------
    flops : int
        As torch's ``FlopCounterMode`` counts: additions and multiplications of matrix products and
        convolutions, of all members or heads.
    """
    model, rows, _ = innermost(estimator, _first_rows(X, 1), "module_", "model_selection.flops")
    if np.ndim(rows) < 2:
        raise ValueError(f"X must have samples and features, got shape {np.shape(X)}.")
    return count_flop(model.module_, np.shape(rows)[1:])


def latency(estimator: Any, X: ArrayLike, *, batch_size: int = 1, n_repeats: int = 30) -> float:
    """Measure how long predicting a batch of samples takes, on one thread.

    Parameters
    ----------
    estimator : estimator
        Any fitted estimator with ``predict``.
    X : array-like of shape (n_samples, n_features)
        Samples to predict, repeated if there are fewer than `batch_size`.
    batch_size : int, default=1
    n_repeats : int, default=30
        Number of timed calls, after one to warm up.

    Returns
    -------
    latency : float
        Median time of a call of ``predict`` in seconds, checks of X and other steps of a Pipeline
        included.
    """
    Number(Integral, 1).check(batch_size, "batch_size")
    Number(Integral, 1).check(n_repeats, "n_repeats")
    rows = _first_rows(X, batch_size)
    times = []
    with suited_threads(0.0, n_threads=1), threadpool_limits(1):
        estimator.predict(rows)
        for _ in range(n_repeats):
            start = time.perf_counter()
            estimator.predict(rows)
            times.append(time.perf_counter() - start)
    return float(np.median(times))


def _first_rows(X, n_rows: int):
    """The first samples, repeated from the start if there are fewer."""
    if not np.ndim(X):
        raise TypeError(f"X must be an array-like or a frame of samples, got {X!r}.")
    (X,) = indexable(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if not X.shape[0]:
        raise ValueError(f"X must have at least one sample, got shape {X.shape}.")
    index = np.arange(n_rows) % X.shape[0]
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


@dataclass(kw_only=True)
class CheapestWithin:
    """Rule that chooses the cheapest candidate whose score is close to the best.

    It is given as ``refit=`` to scikit-learn's searches, with a scorer of the cost among their
    metrics.

    Parameters
    ----------
    cost : str, default="neg_n_parameters"
        Name of a cost among the search's metrics, greater is better; or of another column of
        ``cv_results_`` that is better when smaller, such as "mean_score_time".
    score : str, default="score"
        Name of a metric of the search; "score" is that of a search with one metric.
    tolerance : float, default=1.0
        Largest difference between the best mean score and the chosen one, in units of `unit`.
    unit : {"standard_error", "absolute", "relative"}, default="standard_error"
        The best candidate's standard error over the folds [1]_; one; or the absolute value of the
        best mean score.

    References
    ----------
    .. [1] Breiman, Friedman, Olshen, Stone (1984), "Classification and Regression Trees", section
       3.4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.model_selection import CheapestWithin, n_parameters
    >>> search = GridSearchCV(
    ...     BayesianEnsembleClassifier(2, max_epochs=100, random_state=0),
    ...     {"module__hidden_units": [(50,), (10,)]},
    ...     scoring={
    ...         "score": "accuracy",
    ...         "neg_n_parameters": lambda model, X, y: -n_parameters(model),
    ...     },
    ...     refit=CheapestWithin(tolerance=0.1, unit="absolute"),
    ...     cv=3,
    ... )
    >>> search.fit(*load_iris(return_X_y=True)).best_params_
    {'module__hidden_units': (10,)}
    """

    cost: str = "neg_n_parameters"
    score: str = "score"
    tolerance: float = 1.0
    unit: str = "standard_error"

    def __post_init__(self):
        Number(Real, 0).check(self.tolerance, "tolerance")
        OneOf(("standard_error", "absolute", "relative")).check(self.unit, "unit")

    def __call__(self, cv_results: Mapping) -> int:
        """Index of the chosen candidate in ``cv_results_``; of equally cheap ones, the best."""
        scores = _column(cv_results, f"mean_test_{self.score}", self.score)
        if f"mean_test_{self.cost}" in cv_results:
            costs = -np.asarray(cv_results[f"mean_test_{self.cost}"], dtype=float)
        else:
            costs = _column(cv_results, self.cost, self.cost)
        known = ~(np.isnan(costs) | np.isnan(scores))
        if not known.any():
            raise ValueError(f"No candidate has both a {self.score} and a cost, {self.cost}.")
        best = int(np.argmax(np.where(known, scores, -np.inf)))
        unit = 1.0 if self.unit == "absolute" else abs(scores[best])
        if self.unit == "standard_error":
            of_score = [name for name in cv_results if name.endswith(f"_test_{self.score}")]
            folds = [cv_results[name][best] for name in of_score if name.startswith("split")]
            if len(folds) < 2:
                raise ValueError(
                    f"unit='standard_error' needs two folds or more, got {len(folds)}. Use another "
                    "unit, or more folds."
                )
            unit = float(np.std(folds, ddof=1) / np.sqrt(len(folds)))
        order = np.lexsort((-scores, costs))
        is_close = known & (scores >= scores[best] - self.tolerance * unit)
        return int(next(i for i in order if is_close[i]))


def _column(cv_results: Mapping, column: str, name: str) -> np.ndarray:
    if column not in cv_results:
        known = sorted(key.removeprefix("mean_test_") for key in cv_results if "mean_" in key)
        raise ValueError(f"cv_results has no metric or column {name!r}; it has {known}.")
    return np.asarray(cv_results[column], dtype=float)
