# SPDX-License-Identifier: BSD-3-Clause
"""What a student costs, scorers of it, and the best scores for what they cost."""

import time
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import indexable
from threadpoolctl import threadpool_limits

from .._estimator.unwrapping import innermost
from .._training.trainer import suited_threads
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import Number
from ..metrics import EstimatorScorer
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
        As in :func:`n_parameters`, which raises the same errors.
    X : array-like of shape (n_samples, n_features)
        Samples; only the shape of the first one matters.

    Returns
    -------
    flops : int
        As torch's ``FlopCounterMode`` counts: additions and multiplications of matrix products and
        convolutions, of all members or heads, and nothing else.
    """
    model, rows, _ = innermost(estimator, _first_rows(X, 1), "module_", "model_selection.flops")
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
        Samples of one call.
    n_repeats : int, default=30
        Number of timed calls, after one to warm up.

    Returns
    -------
    latency : float
        Median time of a call of ``predict`` in seconds. It includes the checks of X and the other
        steps of a Pipeline.
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
    (X,) = indexable(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    index = np.arange(n_rows) % X.shape[0]
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def make_cost_scorer(cost: Callable[..., float], **kwargs: object) -> EstimatorScorer:
    """Make a scorer of a cost: its negative.

    Parameters
    ----------
    cost : callable
        ``cost(estimator, X, **kwargs)`` returning a number, smaller is better. A scorer can be
        pickled if this is a module-level function.
    **kwargs : dict
        Further keywords of `cost`.

    Returns
    -------
    scorer : EstimatorScorer
        Greater is better. It needs no y, and ignores sample weights.

    Examples
    --------
    >>> from skdistill.model_selection import latency, make_cost_scorer
    >>> make_cost_scorer(latency, batch_size=256)
    EstimatorScorer(neg_cost, cost=latency, batch_size=256)
    """
    scorer = EstimatorScorer(_neg_cost, cost=cost, **kwargs)
    return scorer.set_score_request(sample_weight=False)


def _neg_cost(estimator, X, y, *, sample_weight, cost, **kwargs):
    return -float(cost(estimator, X, **kwargs))


COSTS: dict[str, Callable] = {"n_parameters": n_parameters, "flops": flops, "latency": latency}


def nondominated(costs: ArrayLike, scores: ArrayLike) -> np.ndarray:
    """Find the Pareto front: candidates that no other one beats in cost without a worse score.

    Small costs and large scores are good. The indices go from the cheapest to the best; of equal
    candidates the first is there, and none whose cost or score is NaN.
    """
    costs, scores = np.asarray(costs, dtype=float), np.asarray(scores, dtype=float)
    if costs.shape != scores.shape or costs.ndim != 1:
        raise ValueError(
            "costs and scores must have the same shape (n_candidates,), got "
            f"{costs.shape} and {scores.shape}."
        )
    order = np.lexsort((-scores, costs))
    order = order[~np.isnan(costs[order]) & ~np.isnan(scores[order])]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(scores[order])[:-1]])
    return order[scores[order] > best_before[: len(order)]]


def pareto_front(
    cv_results: Mapping[str, object], *, cost: str = "neg_n_parameters", score: str = "score"
) -> np.ndarray:
    """Find the candidates of a search that are best for what they cost.

    Parameters
    ----------
    cv_results : dict
        The ``cv_results_`` of a fitted search.
    cost : str, default="neg_n_parameters"
        Name of a cost among the search's metrics, greater is better; or of another column that is
        better when smaller, such as "mean_score_time".
    score : str, default="score"
        Name of a metric of the search; "score" is that of a search with one metric.

    Returns
    -------
    indices : ndarray of shape (n_front,)
        Indices of the candidates on the front, from the cheapest to the best.

    Raises
    ------
    ValueError
        If `cv_results` has no such columns.

    Examples
    --------
    >>> from skdistill.model_selection import pareto_front
    >>> results = {"mean_score_time": [3, 1, 2, 4], "mean_test_score": [0.9, 0.5, 0.8, 0.7]}
    >>> pareto_front(results, cost="mean_score_time")
    array([1, 2, 0])
    """
    return nondominated(*costs_and_scores(cv_results, cost, score))


def costs_and_scores(cv_results: Mapping, cost: str, score: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost, smaller is better, and mean score, greater is better, of each candidate."""
    scores = _column(cv_results, f"mean_test_{score}", score)
    if f"mean_test_{cost}" in cv_results:
        return -np.asarray(cv_results[f"mean_test_{cost}"]), scores
    return _column(cv_results, cost, cost), scores


def _column(cv_results: Mapping, column: str, name: str) -> np.ndarray:
    if column not in cv_results:
        known = sorted(key.removeprefix("mean_test_") for key in cv_results if "mean_" in key)
        raise ValueError(f"cv_results has no metric or column {name!r}; it has {known}.")
    return np.asarray(cv_results[column], dtype=float)
