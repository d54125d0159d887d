# SPDX-License-Identifier: BSD-3-Clause
"""The Pareto front of candidates: the best scores for what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def nondominated(costs: Any, scores: Any) -> np.ndarray:
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
    cv_results: Any, *, cost: Any = "neg_n_parameters", score: Any = "score"
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
