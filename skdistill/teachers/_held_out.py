# SPDX-License-Identifier: BSD-3-Clause
"""What samples that a model has not seen tell of it: its residual variance and epistemic scale.

The variance between the trees of a forest is several times the variance of their mean, and that of
CatBoost's virtual ensembles a hundredth of it. Models of disjoint samples are independent, so that
the squared difference of their means estimates the sum of their variances, whatever the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.linear_model import ARDRegression, BayesianRidge, GammaRegressor
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import gen_batches, indexable

from .._data.checks import check_weights
from .._data.columns import as_table
from .._estimator.unwrapping import (
    final_step,
    has_members,
    is_prefitted,
    is_search,
    reseeded_clone,
    weights_for,
)
from .._utils.messages import time_left
from .._utils.moments import standardisation
from .._utils.process import rows_in_memory
from .._utils.reporting import print_line
from .._utils.validation import Number
from .._utils.warnings import warn
from ._members import group_moments

# See doc/design.rst.
_CHUNK_BYTES = 2**27  # of the predictions that are computed at a time, to be averaged
_N_FOLDS = 5
_LEAST_STD = 1e-3  # of predictions without a residual variance, in standard deviations of y
# Their members are drawn from a posterior distribution.
_EXACT = (GaussianProcessClassifier, GaussianProcessRegressor, BayesianRidge, ARDRegression)
# See doc/design.rst.
_LEAST_SAMPLES, _ERROR = 40, 0.35  # samples; standard error of the logarithm of the factor
_OF_THIRDS = 1.3  # factor of models of thirds of the samples over that of models of all
_SMALLEST, _LARGEST = 1e-4, 1e4  # limits of the factor
_PENALTY, _SHARES = 0.2, (1e-2, 5.0)  # ridge penalty of the power; limits of variance / mean
_LEAST_ALEATORIC = 0.05  # share of a sample's total variance


def rows_at(X, index):
    """Rows of an array or a frame by a slice or by numbers."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def as_rows(X):
    """Return X in a form whose rows can be taken: a frame, an array or a sparse array."""
    (X,) = indexable(as_table(X))
    return X if hasattr(X, "shape") else np.asarray(X)


def in_batches(predict: Callable, X, batch_size: int | None) -> np.ndarray:
    """Return ``predict(X)``, computed for at most `batch_size` samples at a time."""
    if batch_size is None or X.shape[0] <= batch_size:
        return predict(X)
    batches = gen_batches(X.shape[0], batch_size)
    return np.concatenate([predict(rows_at(X, rows)) for rows in batches])


def in_chunks(predict: Callable, X, summarise: Callable) -> np.ndarray:
    """Return ``summarise(predict(X), rows)`` of chunks of samples that fit in memory, joined."""
    first = predict(rows_at(X, slice(0, 1)))
    n_rows = min(rows_in_memory(first), max(1, _CHUNK_BYTES // first.nbytes))
    chunks = gen_batches(X.shape[0], n_rows)
    return np.concatenate([summarise(predict(rows_at(X, rows)), rows) for rows in chunks])


def fits_on_folds(model, X, y, sample_weight, cv) -> Iterator[tuple[Any, np.ndarray]]:
    """Clones fitted without each fold in turn, by joblib, and the samples of the fold."""
    folds = list(cv.split(X, y))
    fits = (delayed(fitted_on)(model, X, y, sample_weight, train) for train, _ in folds)
    found = Parallel(return_as="generator")(fits)
    return zip(found, (test for _, test in folds), strict=True)


def fitted_on(model, X, y, sample_weight, rows: object = slice(None)):
    """Return a clone of a model fitted on some samples, or on all."""
    weights = weights_for(model, None if sample_weight is None else sample_weight[rows])
    return clone(model).fit(rows_at(X, rows), y[rows], **weights)


def _in_one_job(call: Callable, *arguments: object) -> Any:
    """Call while folds are fitted by joblib, whose threads serve one ``Parallel`` at a time."""
    with parallel_config(n_jobs=1):
        return call(*arguments)


def read_out_of_fold(
    model, X, y, weight, folds, read: Callable, name: str, verbose: int = 0
) -> np.ndarray:
    """Return ``read(fitted, rows)`` for every sample, by the clone that has not seen its fold."""
    counts = np.zeros(len(y), dtype=int)
    found: np.ndarray | None = None
    begin, n_folds = time.monotonic(), folds.get_n_splits(X, y)
    for number, (fitted, rows) in enumerate(fits_on_folds(model, X, y, weight, folds), 1):
        first = _in_one_job(read, fitted, rows_at(X, rows[:1]))
        if found is None:
            found = np.empty((len(y), *first.shape[1:]), dtype=first.dtype)
        for portion in gen_batches(len(rows), rows_in_memory(first)):
            predicted = _in_one_job(read, fitted, rows_at(X, rows[portion]))
            if predicted.shape[1:] != found.shape[1:]:
                raise ValueError(
                    "teacher must have as many members in every fold, got predictions of shapes "
                    f"{predicted.shape[1:]} and {found.shape[1:]}."
                )
            found[rows[portion]] = predicted
        counts[rows] += 1
        if verbose > 1:
            left = time_left(time.monotonic() - begin, number, n_folds - number)
            print_line(f"{name}: fold {number} of {n_folds}, {left}")
    if found is None or (counts != 1).any():
        raise ValueError(
            f"{name} must put every sample into one test fold; got {(counts == 0).sum()} samples "
            f"in none and {(counts > 1).sum()} in several."
        )
    return found


def folds_of(cv, y: np.ndarray, are_classes: bool, random_state, name: str):
    """Return a splitter from a number, shuffled, or from what scikit-learn takes as ``cv``."""
    if not isinstance(cv, Integral):
        cv = [*cv] if isinstance(cv, Iterable) else cv
        for fold in cv if isinstance(cv, list) else ():
            if not isinstance(fold, (tuple, list)) or [*map(np.ndim, fold)] != [1, 1]:
                raise TypeError(
                    f"{name} must be an iterable of pairs of train and test samples, got {fold!r} "
                    "among them."
                )
        return check_cv(cv, y, classifier=are_classes)
    Number(Integral, 2).check(cv, name)
    splitter = StratifiedKFold if are_classes else KFold
    return splitter(cv, shuffle=True, random_state=random_state)


def residual_variance(
    estimator, fitted, read: Callable, X, y, sample_weight, batch_size: int | None = None
) -> np.ndarray:
    """Mean squared residual (t,) of models not fitted to a sample; `read(X)` gives moments."""
    weight = check_weights(sample_weight, len(y))
    if is_prefitted(estimator):
        means = in_chunks(read, X, lambda moments, _: group_moments(moments, 1)[:, 0, :, 0])
    elif (unseen := _out_of_bag(final_step(fitted)[0], len(y))) is not None:

        def mean_of_unseen(moments: np.ndarray, rows: slice) -> np.ndarray:
            """Mean (n, t) of members that have not seen the sample; NaN where there are none."""
            counts = unseen[rows].sum(axis=1)[:, None]
            sums = np.einsum("nst,ns->nt", moments[..., 0], unseen[rows])
            return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)

        means = in_chunks(read, X, mean_of_unseen)
    else:
        tuned = fitted.best_estimator_ if is_search(fitted) else estimator
        means = np.empty((len(y), y.size // len(y)))
        folds = KFold(min(_N_FOLDS, max(2, len(y))), shuffle=True, random_state=0)
        for model, rows in fits_on_folds(tuned, X, y, weight, folds):
            found = _in_one_job(in_batches, model.predict, rows_at(X, rows), batch_size)
            means[rows] = np.reshape(found, (len(rows), -1))
    return mean_squared_residual(means, y.reshape(means.shape), weight)


def mean_squared_residual(means: np.ndarray, y: np.ndarray, weight) -> np.ndarray:
    """Weighted mean (t,) of the squared differences of y and `means`, (n, t), where these are."""
    targets = y.astype(np.float64)
    known = np.isfinite(means).all(axis=1)
    if weight is not None and not weight[known].any():
        raise ValueError(
            "sample_weight must be positive for a sample that a model has not seen when it was "
            "fitted, or the residual variance cannot be estimated; it is 0 for all of these."
        )
    squares = np.square(targets[known] - means[known])
    variance = np.average(squares, axis=0, weights=None if weight is None else weight[known])
    return np.maximum(variance, np.square(_LEAST_STD * standardisation(targets, weight)[1]))


def with_variance(moments: np.ndarray, residual: np.ndarray | None, scale) -> np.ndarray:
    """Means and variances (n, S, t, 2) from moments (n, S, t, 3).

    `residual` is the residual variance (t,), None where members predict all of their variance,
    which is then at least a share of that of the targets, whose standard deviations are `scale`.
    """
    members, share = moments[..., :2].copy(), moments[..., 2]
    if residual is not None:
        members[..., 1] += share * residual
    else:
        members[..., 1] = np.maximum(members[..., 1], np.square(_LEAST_STD * scale))
    return members


def _out_of_bag(model, n_rows: int) -> np.ndarray | None:
    """Which samples each member has not seen, (n, S); None if all have seen most of them."""
    if not hasattr(model, "estimators_samples_"):
        return None
    unseen = np.ones((n_rows, len(model.estimators_)), dtype=bool)
    for member, seen in enumerate(model.estimators_samples_):
        unseen[seen, member] = False
    return unseen if unseen.any(axis=1).mean() > 0.5 else None


@dataclass(frozen=True)
class EpistemicScale:
    """Factors ``factor * (v / reference) ** power`` of the stated epistemic variances v."""

    factor: np.ndarray  # (t,)
    power: np.ndarray | float = 0.0  # (t,)
    reference: np.ndarray | float = 1.0  # (t,), the mean of v of models of thirds
    of_one: np.ndarray | None = None  # epistemic variance (t,) of a model with one member

    def of_probabilities(self, members: np.ndarray) -> np.ndarray:
        """Scale the deviations of probabilities (n, S, K), as far as all stay positive."""
        gaps = members - members.mean(axis=1, keepdims=True)
        spread = np.square(gaps).mean(axis=1).sum(axis=-1, keepdims=True)
        return stretched(members, np.sqrt(self._at(spread, members.shape[1])))

    def of_moments(self, members: np.ndarray) -> np.ndarray:
        """Scale the deviations of means and variances (n, S, t, 2); each total stays if it can.

        One member becomes two.
        """
        if self.of_one is not None:
            own = members[..., 1]
            variance = np.minimum(self.of_one, (1 - _LEAST_ALEATORIC) * own)
            means = members[..., 0] + np.sqrt(variance) * np.array([[1.0], [-1.0]])
            return np.stack([means, np.repeat(own - variance, 2, axis=1)], axis=-1)
        mean, own = members.mean(axis=1, keepdims=True)[..., 0], members[..., 1].mean(axis=1)
        gaps = members[..., 0] - mean
        spread = np.square(gaps).mean(axis=1)
        scale = self._at(spread, members.shape[1])
        left = np.maximum(own + (1 - scale) * spread, _LEAST_ALEATORIC * (own + spread))
        lost, gained = np.minimum(left / own, 1), np.maximum(left - own, 0)
        variances = members[..., 1] * lost[:, None] + gained[:, None]
        found = np.stack([mean + np.sqrt(scale)[:, None] * gaps, variances], axis=-1)
        return found.astype(members.dtype, copy=False)

    def _at(self, spread: np.ndarray, n_members: int) -> np.ndarray:
        """Scale (n, t) of samples whose members' squared deviations have this mean (n, t)."""
        stated = spread * n_members / max(n_members - 1, 1)
        return self.factor * np.clip(stated / self.reference, *_SHARES) ** self.power


def stretched(members: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Multiply deviations of probabilities (n, S, K) by (n, 1), as far as all stay positive."""
    mean = members.mean(axis=1, keepdims=True)
    gaps = members - mean
    room = np.divide(mean, -gaps, out=np.full_like(gaps, np.inf), where=gaps < 0)
    most = np.maximum(room.min(axis=(1, 2), keepdims=True), 1)
    ratio = np.minimum(ratio[..., None], most)
    return np.maximum(mean + ratio * gaps, 0).astype(members.dtype, copy=False)


def has_own_scale(estimator: BaseEstimator) -> bool:
    """Tell whether a model keeps its scale: if it is fitted, an exact posterior, or of ours."""
    model, _ = final_step(estimator)
    while isinstance(model, TransformedTargetRegressor) and model.regressor is not None:
        model, _ = final_step(model.regressor)
    return is_prefitted(estimator) or isinstance(model, _EXACT) or has_members(estimator)


def measured_scale(
    estimator: BaseEstimator, fitted: Any, read: Callable, X, y: np.ndarray, weight
) -> EpistemicScale | None:
    """Compare the variance between models of disjoint samples to that which they state.

    Each third of the samples is predicted by the models of the two others. ``read(model, X)`` gives
    what members expect, (n, S, t). None for few samples, or where a model cannot be fitted; and of
    classifiers with one member, as a variance does not tell which classes it is of.
    """
    are_classes = is_classifier(estimator)
    if len(y) < _LEAST_SAMPLES or (are_classes and np.unique(y, return_counts=True)[1].min() < 3):
        return None
    splitter = (StratifiedKFold if are_classes else KFold)(3, shuffle=True, random_state=0)
    thirds = [rows for _, rows in splitter.split(np.zeros(len(y)), y)]
    again = fitted.best_estimator_ if is_search(fitted) else estimator
    has_one = read(fitted, rows_at(X, slice(0, 1))).shape[1] == 1
    if has_one and are_classes:
        return None

    def mean_and_variance(members: np.ndarray, _: slice) -> np.ndarray:
        """Of members (n, S, t), with ddof=1, as students read it: (n, t, 2)."""
        variance = members.var(axis=1, ddof=0 if has_one else 1)
        return np.stack([members.mean(axis=1), variance], axis=-1)

    def asked(model, rows) -> np.ndarray:
        return in_chunks(partial(read, model), rows_at(X, rows), mean_and_variance)

    try:
        # Models of the same initial weights would not be independent: each has seeds of its own.
        models = Parallel()(
            delayed(fitted_on)(reseeded_clone(again, number), X, y, weight, rows)
            for number, rows in enumerate(thirds)
        )
        one, other = (
            np.concatenate(
                [asked(models[number - gap], rows) for number, rows in enumerate(thirds)]
            )
            for gap in (1, 2)
        )
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            raise ValueError("It predicts values that are not finite.")
    except Exception as error:  # of any library; the fit on all samples has been right
        warn(
            f"{type(final_step(estimator)[0]).__name__} keeps its own scale of epistemic "
            "uncertainty, as it cannot be fitted on a third of the samples: give more of them, or "
            f"epistemic_scale=None. {type(error).__name__}: {error}"
        )
        return None
    seen, stated = np.square(one[..., 0] - other[..., 0]), one[..., 1] + other[..., 1]
    if are_classes:
        seen, stated = seen.sum(axis=1, keepdims=True), stated.sum(axis=1, keepdims=True)
    weights = None if weight is None else weight[np.concatenate(thirds)]
    if has_one:
        variance = np.average(seen, axis=0, weights=weights) / (2 * _OF_THIRDS)
        return EpistemicScale(np.ones(1), of_one=variance)
    laws = [_law(*pair, weights) for pair in zip(seen.T, stated.T, strict=True)]
    return EpistemicScale(*map(np.array, zip(*laws, strict=True)))


def _law(seen: np.ndarray, stated: np.ndarray, weights) -> tuple[float, float, float]:
    """Fit factor, power and reference: a Gamma regression of squared differences on stated sums."""
    level, mean = (np.average(of, weights=weights) for of in (seen, stated))
    if not (level > 0 and mean > 0):
        return 1.0, 0.0, 1.0
    share = np.clip(stated / mean, *_SHARES)
    ratio = np.maximum(seen / level / share, np.finfo(float).eps)  # it must be positive
    model = GammaRegressor(alpha=_PENALTY, max_iter=1_000)
    power = float(np.clip(model.fit(np.log(share)[:, None], ratio, weights).coef_[0], -1, 1))
    factor = level / np.average(stated * share**power, weights=weights) / _OF_THIRDS
    log = np.log(np.clip(factor, _SMALLEST, _LARGEST))
    return float(np.exp(log**3 / (log**2 + _ERROR**2))), power, mean / 2
