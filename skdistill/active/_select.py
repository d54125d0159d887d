# SPDX-License-Identifier: BSD-3-Clause
"""Selection of the samples of a pool to label next."""

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state

from .._estimator.functions import predict_members, predict_uncertainty
from .._training.trainer import SEED_LIMIT
from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf, Seed
from ._features import GradientSketch
from ._greedy import batchbald, lcmd, margins, mutual_information

METHODS = ("auto", "lcmd", "margin", "batchbald", "uncertainty")

_N_FEATURES, _N_FEATURES_OF_MANY = 512, 128  # of the sketch; fewer, in float16, for large pools
_LARGE = 2**28  # bytes of the features of a pool
_CANDIDATES_EACH, _FEWEST_CANDIDATES = 10, 2000  # of "batchbald", for each of the batch; at least
_ROWS = 65_536  # samples that are read of an array or a frame at a time


def select_batch(
    model: BaseEstimator,
    X_pool: Any,
    n: int,
    *,
    X_train: Any = None,
    method: str = "auto",
    max_candidates: int = 1_000_000,
    random_state: RandomStateLike = None,
) -> np.ndarray:
    """Select the samples of a pool to label next.

    Parameters
    ----------
    model : estimator
        Fitted to the samples that are labelled. For "lcmd" a student or ensemble of this package
        with fully connected layers, or a Pipeline, search or FrozenEstimator around one; for
        "margin" any classifier with ``predict_proba``; for "batchbald" and "uncertainty" whatever
        :func:`skdistill.predict_members` and :func:`skdistill.predict_uncertainty` take.
    X_pool : array-like or frame of shape (n_pool, n_features_in)
        Samples without labels. Memory maps are read piece by piece.
    n : int
        Number of samples to select.
    X_train : array-like or frame, default=None
        The samples that are labelled, without which "lcmd", which alone uses it, may select samples
        like them.
    method : {"auto", "lcmd", "margin", "batchbald", "uncertainty"}, default="auto"
        How samples are selected, see Notes; "auto" is "margin" for classifiers, else "lcmd".
    max_candidates : int, default=1_000_000
        "lcmd" draws so many samples of a larger pool, and selects among them.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    indices : ndarray of shape (n,)
        Distinct places in the pool, in the order of selection.

    Raises
    ------
    TypeError
        If the model does not predict what the method needs.
    ValueError
        If the pool has fewer than `n` samples, or an argument is invalid.

    Notes
    -----
    lcmd
        Largest cluster, maximum distance, of gradient features [1]_: samples in the pool that are
        unlike those labelled, and unlike each other, more of them where there are more samples. The
        features are random projections of the gradients of the predictions with respect to the
        weights, 512 of them, or 128 for more than 131,072 samples. More than 256 MiB are held in
        float16.
    margin
        The smallest difference between the two largest class probabilities.
    batchbald
        The batch whose labels tell most about which member is right [2]_, among the samples of the
        largest mutual information, ten for each one to select and at least 2,000. More than about
        ten samples are told apart by little but the draws.
    uncertainty
        The largest epistemic part, for comparison: for regression it is often worse than a random
        batch, since its samples are alike, and outliers.

    References
    ----------
    .. [1] Holzmüller, Zaverkin, Kästner & Steinwart (2023), "A Framework and Benchmark for Deep
           Batch Active Learning for Regression", JMLR 24.
    .. [2] Kirsch, van Amersfoort & Gal (2019), "BatchBALD: Efficient and Diverse Batch Acquisition
           for Deep Bayesian Active Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor, DistributionDistiller
    >>> from skdistill.active import select_batch
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X_train, y_train, X_pool = X[:100], y[:100], X[100:]
    >>> teacher = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> student = DistributionDistiller(teacher, max_epochs=5, random_state=0)
    >>> indices = select_batch(
    ...     student.fit(X_train, y_train), X_pool, 20, X_train=X_train, random_state=0
    ... )
    >>> X_pool[indices].shape
    (20, 10)
    """
    Number(Integral, 1).check(n, "n")
    OneOf(METHODS).check(method, "method")
    Number(Integral, 1).check(max_candidates, "max_candidates")
    Seed().check(random_state, "random_state")
    rng = check_random_state(random_state)
    if max_candidates < n:
        raise ValueError(f"max_candidates must be at least n={n}, got {max_candidates}.")
    X_pool = _as_table(X_pool, "X_pool")
    n_pool = len(X_pool)
    if n_pool < n:
        raise ValueError(f"n must be at most {n_pool}, the number of samples in X_pool; got {n}.")
    if method == "auto":
        method = "margin" if is_classifier(model) else "lcmd"
    if method == "lcmd":
        n_kept = min(n_pool, max_candidates)
        fits = 4 * n_kept * _N_FEATURES <= _LARGE
        n_features = _N_FEATURES if fits else _N_FEATURES_OF_MANY
        in_half = 4 * n_kept * n_features > _LARGE
        sketch = GradientSketch(model, n_features, int(rng.randint(SEED_LIMIT)), in_half)
        centres = None
        if X_train is not None:
            X_train = _as_table(X_train, "X_train")
            if not len(X_train):
                raise ValueError("X_train must have samples, or be None; got none.")
            _, centres = _sketched(sketch, X_train, max_candidates, np.float32, rng)
        dtype = np.float16 if in_half else np.float32
        places, features = _sketched(sketch, X_pool, max_candidates, dtype, rng)
        return places[lcmd(features, n, centres)]
    if method == "batchbald":
        return _by_batchbald(model, X_pool, n, rng)
    score = _score_of(model, method)
    return _largest(np.concatenate([score(piece) for _, piece in _pieces(X_pool)]), n)


def _as_table(X: Any, name: str) -> Any:
    if not hasattr(X, "__len__"):
        raise TypeError(f"{name} must be an array or a frame, got {type(X).__name__}.")
    return X if hasattr(X, "shape") else np.asarray(X)


def _pieces(X: Any, places: np.ndarray | None = None) -> Iterator[tuple[slice, Any]]:
    """Iterate over the samples at some places of an array or frame, or over all, some at a time."""
    n = len(X) if places is None else len(places)
    for start in range(0, n, _ROWS):
        part = slice(start, min(start + _ROWS, n))
        rows = part if places is None else places[part]
        yield part, X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _sketched(
    sketch: GradientSketch, X: Any, capacity: int, dtype: type, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Places in X of all samples, or of `capacity` drawn of more; and their features."""
    if len(X) > capacity:
        places = np.sort(rng.choice(len(X), capacity, replace=False))
    else:
        places = np.arange(len(X))
    features: np.ndarray = np.empty((len(places), sketch.n_features), dtype)
    for part, rows in _pieces(X, places):
        features[part] = sketch(rows)
    return places, features


def _by_batchbald(
    model: BaseEstimator, X_pool: Any, n: int, rng: np.random.RandomState
) -> np.ndarray:
    """Select among the samples of the largest mutual information, the only ones that are held."""
    if not is_classifier(model):
        raise TypeError(
            f'method="batchbald" needs a classifier with members, got {type(model).__name__}.'
        )
    n_kept = max(_CANDIDATES_EACH * n, _FEWEST_CANDIDATES)
    places, kept = np.empty(0, np.int64), np.empty((0, 1, len(model.classes_)))
    for part, piece in _pieces(X_pool):
        found = predict_members(model, piece)
        kept = np.concatenate([kept, found]) if len(kept) else found
        places = np.concatenate([places, np.arange(part.start, part.stop)])
        if len(kept) > n_kept:
            best = np.sort(_largest(mutual_information(kept), n_kept))
            places, kept = places[best], kept[best]
    return places[batchbald(kept, n, rng)]


def _score_of(model: BaseEstimator, method: str) -> Callable[[Any], np.ndarray]:
    """Return what maps samples to scores, (n,) or (n, t) for several targets."""
    if method == "margin":
        if not is_classifier(model) or not hasattr(model, "predict_proba"):
            raise TypeError(
                'method="margin" needs a classifier with predict_proba, got '
                f"{type(model).__name__}."
            )
        return lambda X: -margins(model.predict_proba(X))

    def epistemic(X: Any) -> np.ndarray:
        found = predict_uncertainty(model, X).epistemic
        if found is None:
            raise TypeError(
                'method="uncertainty" needs a model with an epistemic part; that of '
                f"{type(model).__name__} is None. A student with several heads or a distribution "
                "family has one."
            )
        return found

    return epistemic


def _largest(scores: np.ndarray, n: int) -> np.ndarray:
    """Return the places of the largest scores, the largest first; of equal ones the first."""
    if scores.ndim == 2:  # targets in units of their mean
        means = scores.mean(0)
        scores = (scores / np.where(means > 0, means, 1)).sum(1)
    return np.argsort(-scores, kind="stable")[:n]
