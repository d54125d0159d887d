# SPDX-License-Identifier: BSD-3-Clause
"""What a student costs, and the search for the cheapest one that is good enough."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.utils import indexable
from threadpoolctl import threadpool_limits

from .._estimator.unwrapping import innermost
from .._training.trainer import suited_threads
from .._utils.messages import name_of
from .._utils.typing import ArrayLike, BaseEstimator, Folds
from .._utils.validation import AnyOf, IsCallable, Number, OneOf
from .._utils.warnings import without_schema_warnings
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


def make_cost_scorer(cost: Callable[..., float], **kwargs: object) -> EstimatorScorer:
    """Make a scorer of a cost: its negative.

    Parameters
    ----------
    cost : callable
        ``cost(estimator, X, **kwargs)`` returning a number, smaller is better. A scorer can be
        pickled if this is a module-level function.
    **kwargs : dict

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
    IsCallable().check(cost, "cost")
    scorer = EstimatorScorer(_neg_cost, cost=cost, **kwargs)
    return scorer.set_score_request(sample_weight=False)


def _neg_cost(estimator, X, y, *, sample_weight, cost, **kwargs):
    return -float(cost(estimator, X, **kwargs))


COSTS: dict[str, Callable] = {"n_parameters": n_parameters, "flops": flops, "latency": latency}


def nondominated(costs: ArrayLike, scores: ArrayLike) -> np.ndarray:
    """Find the Pareto front: candidates that no other one beats in cost without a worse score.

    Indices go from the cheapest to the best; of equal candidates the first is there, and none whose
    cost or score is NaN.
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
        Of the candidates on the front, from the cheapest to the best.

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


@dataclass(kw_only=True)
class CheapestWithin:
    """Rule that chooses the cheapest candidate whose score is close to the best.

    It is given as ``refit=`` to scikit-learn's searches.

    Parameters
    ----------
    cost, score : str, default="neg_n_parameters" and "score"
        As in :func:`pareto_front`.
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
    >>> from skdistill.model_selection import CheapestWithin
    >>> results = {
    ...     "mean_test_score": [0.90, 0.89, 0.80],
    ...     "mean_test_neg_n_parameters": [-900.0, -200.0, -100.0],
    ... }
    >>> CheapestWithin(tolerance=0.02, unit="absolute")(results)
    1
    """

    cost: str = "neg_n_parameters"
    score: str = "score"
    tolerance: float = 1.0
    unit: str = "standard_error"

    def __post_init__(self):
        Number(Real, 0).check(self.tolerance, "tolerance")
        OneOf(("standard_error", "absolute", "relative")).check(self.unit, "unit")

    def __call__(self, cv_results) -> int:
        """Index of the chosen candidate in ``cv_results_``; of equally cheap ones, the best."""
        costs, scores = costs_and_scores(cv_results, self.cost, self.score)
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
        margin = self.tolerance * unit
        order = np.lexsort((-scores, costs))
        return int(next(i for i in order if known[i] and scores[i] >= scores[best] - margin))


class CheapestStudentSearchCV(GridSearchCV):
    """Grid search that refits the cheapest student whose score is close to the best.

    It is GridSearchCV with a cost beside the score and :class:`CheapestWithin` as the rule.

    Parameters
    ----------
    estimator, param_grid, scoring, n_jobs, cv, verbose, pre_dispatch, error_score
        As in :class:`~sklearn.model_selection.GridSearchCV`. Measure latencies with
        ``n_jobs=None``: parallel jobs slow each other down.
    return_train_score : bool, default=False
    cost : {"n_parameters", "flops", "latency"} or callable, default="n_parameters"
        The cost to keep small, see :func:`n_parameters`, :func:`flops` and :func:`latency`; or a
        function ``cost(estimator, X)``. ``cv_results_`` has its negative as ``neg_<name>``.
    tolerance, unit
        How much lower than the best the score may be, see :class:`CheapestWithin`.
    refit : bool or str, default=True
        Whether to fit the chosen student on all samples. With several scores, the name of the one
        that must be close to the best.

    Attributes
    ----------
    best_index_, best_score_, best_cost_, best_params_, best_estimator_
        Of the chosen candidate, not of the one with the best score; score and cost are means over
        the folds.
    cv_results_ : dict
        As in GridSearchCV with several metrics; one score is named "score".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.model_selection import CheapestStudentSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianEnsembleClassifier(2, max_epochs=100, random_state=0)
    >>> grid = {"module__hidden_units": [(50,), (10,)]}
    >>> search = CheapestStudentSearchCV(model, grid, tolerance=0.1, unit="absolute", cv=3)
    >>> search.fit(X, y).best_params_
    {'module__hidden_units': (10,)}
    >>> search.best_cost_
    166.0
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        param_grid: Mapping[str, Sequence[object]] | Sequence[Mapping[str, Sequence[object]]],
        *,
        scoring: object = None,
        cost: str | Callable[..., float] = "n_parameters",
        tolerance: float = 1.0,
        unit: str = "standard_error",
        n_jobs: int | None = None,
        refit: bool | str = True,
        cv: Folds = None,
        verbose: int | bool = 0,
        pre_dispatch: int | str | None = "2*n_jobs",
        error_score: float | str = np.nan,
        return_train_score: bool = False,
    ):
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.cost = cost
        self.tolerance = tolerance
        self.unit = unit

    @without_schema_warnings()
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: object) -> Self:
        """Search, and fit the chosen student on all samples.

        Parameters
        ----------
        X, y, **params : as in :meth:`sklearn.model_selection.GridSearchCV.fit`

        Returns
        -------
        self
        """
        if not callable(self.cost):
            AnyOf(OneOf(tuple(COSTS)), IsCallable()).check(self.cost, "cost")
        cost = self.cost if callable(self.cost) else COSTS[self.cost]
        cost_name = f"neg_{name_of(self.cost) if callable(self.cost) else self.cost}"
        scorers = self._named_scorers()
        score = self.refit if isinstance(self.refit, str) else "score"
        if score not in scorers:
            raise ValueError(
                f"refit must be the name of the score that matters, one of {sorted(scorers)}; got "
                f"{self.refit!r}."
            )
        rule = CheapestWithin(cost=cost_name, score=score, tolerance=self.tolerance, unit=self.unit)
        # The search runs on a copy with the cost among its metrics, so that the user's parameters
        # stay as they are.
        search = copy.copy(self)
        search.scoring = {**scorers, cost_name: make_cost_scorer(cost)}
        search.refit = rule if self.refit else False
        super(CheapestStudentSearchCV, search).fit(X, y, **params)
        own = self.get_params(deep=False)
        self.__dict__.update({k: v for k, v in vars(search).items() if k not in own})
        # GridSearchCV omits these with a callable `refit`.
        results = self.cv_results_
        if not self.refit:
            self.best_index_ = rule(results)
            self.best_params_ = results["params"][self.best_index_]
        costs, scores = costs_and_scores(results, rule.cost, rule.score)
        self.best_score_ = scores[self.best_index_]
        self.best_cost_ = float(costs[self.best_index_])
        self.multimetric_ = isinstance(self.refit, str)
        self.scorer_ = scorers if self.multimetric_ else scorers[rule.score]
        return self

    def _named_scorers(self) -> dict[str, Callable[..., float]]:
        """Scorers by name, a single one as "score"."""
        if isinstance(self.scoring, Mapping):
            return {name: get_scorer(scorer) for name, scorer in self.scoring.items()}
        if isinstance(self.scoring, (list, tuple, set)):
            return {name: get_scorer(name) for name in self.scoring}
        return {"score": check_scoring(self.estimator, self.scoring)}
