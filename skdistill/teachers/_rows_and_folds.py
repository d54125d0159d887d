# SPDX-License-Identifier: BSD-3-Clause
"""Rows of arrays and frames, in chunks and in folds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import gen_batches, indexable

from .._data.columns import as_table
from .._estimator.unwrapping import weights_for
from .._utils.messages import print_line, time_left
from .._utils.process import rows_in_memory
from .._utils.validation import Number

# Predictions that will be averaged are computed in chunks of about this many bytes: large ones, as
# every chunk reads all trees of a forest from memory again.
_CHUNK_BYTES = 2**27


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
    chunks = [
        summarise(predict(rows_at(X, rows)), rows) for rows in gen_batches(X.shape[0], n_rows)
    ]
    return np.concatenate(chunks)


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


def read_out_of_fold(
    model, X, y, weight, folds, read: Callable, name: str, verbose: int = 0
) -> np.ndarray:
    """Return ``read(fitted, rows)`` for every sample, by the clone that has not seen its fold.

    `name` is what to call the folds in errors, and in the lines that `verbose` prints. It is a
    ValueError if a sample is in no fold or in several, or if clones have different numbers of
    members.
    """
    counts = np.zeros(len(y), dtype=int)
    found: np.ndarray | None = None
    begin, n_folds = time.monotonic(), folds.get_n_splits(X, y)
    fits = fits_on_folds(model, X, y, weight, folds)
    for number, (fitted, rows) in enumerate(fits, 1):
        first = read(fitted, rows_at(X, rows[:1]))
        if found is None:
            found = np.empty((len(y), *first.shape[1:]), dtype=first.dtype)
        for portion in gen_batches(len(rows), rows_in_memory(first)):
            predicted = read(fitted, rows_at(X, rows[portion]))
            if predicted.shape[1:] != found.shape[1:]:
                raise ValueError(
                    "teacher must have as many members in every fold, got predictions of shapes "
                    f"{predicted.shape[1:]} and {found.shape[1:]}."
                )
            found[rows[portion]] = predicted
        counts[rows] += 1
        if verbose:
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
        return check_cv(cv, y, classifier=are_classes)
    Number(Integral, 2).check(cv, name)
    splitter = StratifiedKFold if are_classes else KFold
    return splitter(cv, shuffle=True, random_state=random_state)
