# SPDX-License-Identifier: BSD-3-Clause
"""Rows in chunks and in folds, and the residual variance of regressors that predict none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import gen_batches, indexable

from .._data.checks import check_weights
from .._data.columns import as_table
from .._estimator.unwrapping import final_step, is_prefitted, is_search, weights_for
from .._utils.messages import time_left
from .._utils.moments import standardisation
from .._utils.process import rows_in_memory
from .._utils.reporting import as_parts, print_line
from .._utils.validation import Number
from ._members import group_moments

# See doc/design.rst.
_CHUNK_BYTES = 2**27  # of the predictions that are computed at a time, to be averaged
_N_FOLDS = 5
_LEAST_STD = 1e-3  # of predictions without a residual variance, in standard deviations of y


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
    """Return ``summarise(predict(X), rows)`` of chunks of samples, joined.

    Chunks are as large as a share of scikit-learn's ``working_memory`` allows.
    """
    first = predict(rows_at(X, slice(0, 1)))
    n_rows = min(rows_in_memory(first), max(1, _CHUNK_BYTES // first.nbytes))
    chunks = gen_batches(X.shape[0], n_rows)
    return np.concatenate([summarise(predict(rows_at(X, rows)), rows) for rows in chunks])


def fits_on_folds(model, X, y, sample_weight, cv) -> Iterator[tuple[Any, np.ndarray]]:
    """Clones fitted without each fold in turn, with the indices of the samples in the fold.

    They are fitted one after the other, or in as many processes as ``joblib.parallel_config`` says.
    """
    folds = list(cv.split(X, y))
    fits = (delayed(fitted_on)(model, X, y, sample_weight, train) for train, _ in folds)
    found = Parallel(return_as="generator")(fits)
    return zip(found, (test for _, test in folds), strict=True)


def fitted_on(model, X, y, sample_weight, rows: object = slice(None)):
    """Return a clone of a model fitted on some samples, or on all."""
    weights = weights_for(model, None if sample_weight is None else sample_weight[rows])
    return clone(model).fit(rows_at(X, rows), y[rows], **weights)


def _in_one_job(call: Callable, *arguments: object) -> Any:
    """Call while the next folds are fitted.

    joblib's threads serve one ``Parallel`` at a time: a forest that predicted by them would stop
    them, and the folds would never be done.
    """
    with parallel_config(n_jobs=1):
        return call(*arguments)


def read_out_of_fold(
    model, X, y, weight, folds, read: Callable, name: str, verbose: int = 0
) -> np.ndarray:
    """Return ``read(fitted, rows)`` for every sample, by the clone that has not seen its fold.

    `name` is what to call the folds in errors, and in the lines that ``verbose=2`` prints.
    """
    counts = np.zeros(len(y), dtype=int)
    found: np.ndarray | None = None
    begin, n_folds = time.monotonic(), folds.get_n_splits(X, y)
    fits = as_parts(fits_on_folds(model, X, y, weight, folds), n_folds)

    for number, (fitted, rows) in enumerate(fits, 1):
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


# --- residual variance ---------------------------------------------------------------------------


def residual_variance(
    estimator, fitted, read: Callable, X, y, sample_weight, batch_size: int | None = None
) -> np.ndarray:
    """Mean squared difference between y and predictions of models that have not seen the sample.

    `estimator` is the regressor unfitted, `fitted` the same as fitted on X and y, and `read` gives
    the moments (n, S, t, 3) of its members. The result, (t,), is in squared units of y, positive.
    Models predict at most `batch_size` samples at a time.
    """
    weight = check_weights(sample_weight, len(y))
    if is_prefitted(estimator):
        means = in_chunks(read, X, lambda moments, _: group_moments(moments, 1)[:, 0, :, 0])
    elif (unseen := _out_of_bag(final_step(fitted)[0], len(y))) is not None:
        means = in_chunks(read, X, lambda moments, rows: _mean_of(moments, unseen[rows]))
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


def _mean_of(moments: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Mean (n, t) of those members that have not seen the sample; NaN where there are none."""
    counts = unseen.sum(axis=1)[:, None]
    sums = np.einsum("nst,ns->nt", moments[..., 0], unseen)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
