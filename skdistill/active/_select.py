# SPDX-License-Identifier: BSD-3-Clause
"""Selection of the samples of a pool to label next."""

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import check_random_state

from .._estimator.functions import predict_members, predict_uncertainty
from .._training.stream import is_stream
from .._training.trainer import SEED_LIMIT
from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf, Seed
from ._features import GradientSketch
from ._greedy import batchbald, lcmd, margins, maxdet, mutual_information


class BatchQuery(BaseEstimator):
    """Query strategy with the method of those of scikit-activeml, which need not be installed.

    Parameters
    ----------
    estimator : estimator
        Unfitted: a clone is fitted to the labelled samples in each query.
    method : str, default="auto"
        See :func:`select_batch`.
    missing_label : object, default=numpy.nan
        What stands in y for a label that is not known.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    estimator_ : estimator
        That of the last query, fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.active import BatchQuery
    >>> X, y = load_iris(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) % 10 == 0, y, np.nan)
    >>> query = BatchQuery(BayesianEnsembleClassifier(3, max_epochs=5), random_state=0)
    >>> query.query(X, known, batch_size=4).shape
    (4,)
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        method: str = "auto",
        missing_label: object = np.nan,
        random_state: RandomStateLike = None,
    ):
        self.estimator = estimator
        self.method = method
        self.missing_label = missing_label
        self.random_state = random_state

    def query(
        self, X: Any, y: ArrayLike, candidates: ArrayLike | None = None, batch_size: int = 1
    ) -> np.ndarray:
        """Select samples whose labels to ask for.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Samples with and without labels.
        y : array-like of shape (n_samples,)
            Labels, and `missing_label` where there is none.
        candidates : array-like of int of shape (n_candidates,), or of samples, default=None
            Places in X of the samples to choose from, or such samples themselves, of shape
            (n_candidates, n_features); None is all without a label.
        batch_size : int, default=1

        Returns
        -------
        indices : ndarray of shape (batch_size,)
            Places in X; in `candidates`, if these are samples.

        Raises
        ------
        ValueError
            If y has another shape, no label is known, or there are fewer candidates than
            `batch_size`.
        """
        OneOf(METHODS).check(self.method, "method")
        X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
        if y.shape != (len(X),):
            raise ValueError(
                f"y must have shape ({len(X)},), a label for each sample of X, got {y.shape}."
            )
        missing = self.missing_label
        if isinstance(missing, float) and np.isnan(missing):
            is_known = np.array([label == label for label in y.tolist()], bool)
        else:
            is_known = np.array([not (v is missing or v == missing) for v in y.tolist()], bool)
        if not is_known.any():
            raise ValueError(f"y must hold a label that is not {missing!r}, got none.")
        X_train = rows_of(X, np.flatnonzero(is_known))
        y_train = np.array(y[is_known].tolist())  # of the dtype of the labels alone
        self.estimator_ = clone(self.estimator).fit(X_train, y_train)
        places = np.flatnonzero(~is_known) if candidates is None else candidates
        is_samples = np.ndim(places) > 1
        pool = places if is_samples else rows_of(X, np.asarray(places))
        found = select_batch(
            self.estimator_,
            pool,
            batch_size,
            X_train=X_train,
            method=self.method,
            random_state=self.random_state,
        )
        return found if is_samples else np.asarray(places)[found]


_GREEDY = {"lcmd": lcmd, "maxdet": maxdet}
METHODS = ("auto", *_GREEDY, "margin", "batchbald", "uncertainty")

# Size of the sketch, and bytes of the features of a pool above which they are fewer, in float16.
_N_FEATURES, _N_FEATURES_OF_MANY = 512, 128
_LARGE = 2**28

# Samples that "batchbald" chooses from, for each of the batch and at least.
_CANDIDATES_EACH, _FEWEST_CANDIDATES = 10, 2000


def select_batch(
    model: BaseEstimator,
    X_pool: Any,
    n: int,
    *,
    X_train: Any = None,
    method: str = "auto",
    n_features: int | None = None,
    max_candidates: int = 1_000_000,
    random_state: RandomStateLike = None,
) -> np.ndarray:
    """Select the samples of a pool to label next.

    Parameters
    ----------
    model : estimator
        Fitted to the samples that are labelled. For "lcmd" and "maxdet" what
        :func:`gradient_features` takes; for "margin" any classifier with ``predict_proba``; for
        "batchbald" and "uncertainty" whatever :func:`skdistill.predict_members` and
        :func:`skdistill.predict_uncertainty` take.
    X_pool : array-like, frame or iterable of batches, of shape (n_pool, n_features_in)
        Samples without labels. Memory maps, and batches ``X`` or ``(X, y)`` such as those of
        :class:`skdistill.streams.Batches`, are read piece by piece.
    n : int
        Number of samples to select.
    X_train : array-like, frame or iterable of batches, default=None
        The samples that are labelled, without which "lcmd" and "maxdet", which alone use it, may
        select samples like them.
    method : {"auto", "lcmd", "maxdet", "margin", "batchbald", "uncertainty"}, default="auto"
        How samples are selected, see Notes; "auto" is "margin" for classifiers, else "lcmd".
    n_features : int, default=None
        Size of the sketch of :func:`gradient_features`. None is 512, or 128 for more than 131,072
        samples, and for batches, whose number is not known before. More than 256 MiB of features
        are held in float16.
    max_candidates : int, default=1_000_000
        "lcmd" and "maxdet" draw so many samples of a larger pool, and select among them.
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
        unlike those labelled, and unlike each other, more of them where there are more samples.
    maxdet
        The largest variance of a Bayesian linear model of the gradient features, given the samples
        that are labelled or selected.
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
    Number(Integral, 1, others=(None,)).check(n_features, "n_features")
    Number(Integral, 1).check(max_candidates, "max_candidates")
    Seed().check(random_state, "random_state")
    rng = check_random_state(random_state)
    if max_candidates < n:
        raise ValueError(f"max_candidates must be at least n={n}, got {max_candidates}.")
    _check_size(n, length_of(X_pool, "X_pool"))
    if method == "auto":
        method = "margin" if is_classifier(model) else "lcmd"
    if method in _GREEDY:
        return _by_gradients(method, model, X_pool, n, X_train, n_features, max_candidates, rng)
    if method == "batchbald":
        return _by_batchbald(model, X_pool, n, rng)
    score = _score_of(model, method)
    scores = [score(piece) for piece in pieces(X_pool)]
    return _largest(np.concatenate(scores) if scores else np.empty(0), n)


def _check_size(n: int, n_pool: int | None) -> None:
    if n_pool is not None and n_pool < n:
        raise ValueError(f"n must be at most {n_pool}, the number of samples in X_pool; got {n}.")


def _by_gradients(
    method: str,
    model: BaseEstimator,
    X_pool: Any,
    n: int,
    X_train: Any,
    n_features: int | None,
    max_candidates: int,
    rng: np.random.RandomState,
) -> np.ndarray:
    n_pool = length_of(X_pool, "X_pool")
    n_kept = max_candidates if n_pool is None else min(n_pool, max_candidates)
    if n_features is None:
        fits = 4 * n_kept * _N_FEATURES <= _LARGE
        n_features = _N_FEATURES if fits else _N_FEATURES_OF_MANY
    in_half = 4 * n_kept * n_features > _LARGE
    describe = GradientSketch(model, n_features, int(rng.randint(SEED_LIMIT)), in_half)
    dtype = np.float16 if in_half else np.float32
    centres = None
    if X_train is not None:
        n_train = length_of(X_train, "X_train")
        n_centres = max_candidates if n_train is None else min(n_train, max_candidates)
        _, centres = sample(X_train, describe, n_centres, n_features, np.float32, rng)
        if not len(centres):
            raise ValueError("X_train must have samples, or be None; got none.")
    places, features = sample(X_pool, describe, n_kept, n_features, dtype, rng)
    _check_size(n, len(features))
    return places[_GREEDY[method](features, n, centres)]


def _by_batchbald(
    model: BaseEstimator, X_pool: Any, n: int, rng: np.random.RandomState
) -> np.ndarray:
    """Select among the samples of the largest mutual information, the only ones that are held."""
    if not is_classifier(model):
        raise TypeError(
            f'method="batchbald" needs a classifier with members, got {type(model).__name__}.'
        )
    n_kept, start = max(_CANDIDATES_EACH * n, _FEWEST_CANDIDATES), 0
    places, kept = np.empty(0, np.int64), np.empty((0, 1, len(model.classes_)))
    for piece in pieces(X_pool):
        found = predict_members(model, piece)
        kept = np.concatenate([kept, found]) if len(kept) else found
        places = np.concatenate([places, np.arange(start, start + len(found))])
        start += len(found)
        if len(kept) > n_kept:
            best = np.sort(_largest(mutual_information(kept), n_kept))
            places, kept = places[best], kept[best]
    _check_size(n, len(places))
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
                'method="uncertainty" needs a model that tells its epistemic part; that of '
                f"{type(model).__name__} is None. A student with several heads or a distribution "
                "family has one."
            )
        return found

    return epistemic


def _largest(scores: np.ndarray, n: int) -> np.ndarray:
    """Return the places of the largest scores, the largest first; of equal ones the first."""
    _check_size(n, len(scores))
    if scores.ndim == 2:  # targets in units of their mean
        means = scores.mean(0)
        scores = (scores / np.where(means > 0, means, 1)).sum(1)
    return np.argsort(-scores, kind="stable")[:n]


# Samples that are read of an array or a frame at a time.
_ROWS = 65_536


def pieces(X: Any) -> Iterator[Any]:
    """Iterate over an array, a frame, or the X of batches, in consecutive pieces."""
    if is_stream(X):
        for batch in X:
            piece = batch[0] if isinstance(batch, (tuple, list)) else batch
            if len(piece):
                yield piece
        return
    X = X if hasattr(X, "shape") else np.asarray(X)
    for start in range(0, len(X), _ROWS):
        yield rows_of(X, slice(start, start + _ROWS))


def rows_of(X: Any, places: Any) -> Any:
    """Return samples of an array or a frame of pandas or polars."""
    return X.iloc[places] if hasattr(X, "iloc") else X[places]


def length_of(X: Any, name: str) -> int | None:
    """Return how many samples there are; None for batches, before they are read."""
    if is_stream(X):
        return None
    if not hasattr(X, "__len__"):
        raise TypeError(
            f"{name} must be an array, a frame or an iterable of batches, got {type(X).__name__}."
        )
    return len(X)


def sample(
    X: Any,
    describe: Callable[[Any], np.ndarray],
    capacity: int,
    n_columns: int,
    dtype: DTypeLike,
    rng: np.random.RandomState,
) -> tuple[np.ndarray, np.ndarray]:
    """Places in X of all samples, (m,), or of `capacity` drawn of more; and what describes them.

    Each sample is drawn with the same probability, in one pass (Vitter, 1985, "Random Sampling with
    a Reservoir", Algorithm R).
    """
    places = np.empty(capacity, np.int64)
    values = np.empty((capacity, n_columns), dtype)  # takes memory as it is filled
    start = 0
    for piece in pieces(X):
        numbers = np.arange(start, start + len(piece))
        slots, start = numbers, start + len(piece)
        if start > capacity:
            draws = (rng.random_sample(len(piece)) * (numbers + 1)).astype(np.int64)
            slots = np.where(numbers < capacity, numbers, draws)
            # Of those that are drawn to the same place the last one stays.
            _, backwards = np.unique(slots[::-1], return_index=True)
            kept = np.sort(len(piece) - 1 - backwards)
            kept = kept[slots[kept] < capacity]
            piece, numbers, slots = rows_of(piece, kept), numbers[kept], slots[kept]
        if len(slots):
            values[slots], places[slots] = describe(piece), numbers
    n_kept = min(start, capacity)
    return places[:n_kept], values[:n_kept]
