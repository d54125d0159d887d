# SPDX-License-Identifier: BSD-3-Clause
"""Rows of arrays and frames, in chunks and in folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import gen_batches, indexable

from .._memory import rows_in_memory
from .._meta_estimators import weights_for

# Predictions that will be averaged are computed in chunks of about this many bytes: large ones, as
# every chunk reads all trees of a forest from memory again.
_CHUNK_BYTES = 2**27


def rows_at(X, index):
    """Rows of an array or a frame by a slice or by numbers."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def as_rows(X):
    """Return X in a form whose rows can be taken: a frame, an array or a sparse array."""
    (X,) = indexable(X)
    return X if hasattr(X, "shape") else np.asarray(X)


def in_chunks(predict: Callable, X, summarise: Callable) -> np.ndarray:
    """Return ``summarise(predict(X), rows)`` of chunks of rows, joined.

    Chunks are as large as a share of scikit-learn's ``working_memory`` allows.
    """
    first = predict(rows_at(X, slice(0, 1)))
    n_rows = min(rows_in_memory(first), max(1, _CHUNK_BYTES // first.nbytes))
    chunks = [
        summarise(predict(rows_at(X, rows)), rows) for rows in gen_batches(X.shape[0], n_rows)
    ]
    return np.concatenate(chunks)


def fits_on_folds(model, X, y, sample_weight, cv) -> Iterator[tuple[Any, np.ndarray]]:
    """Clones fitted without each fold in turn, with the indices of the rows in the fold."""
    for train, test in cv.split(X, y):
        weights = weights_for(model, None if sample_weight is None else sample_weight[train])
        yield clone(model).fit(rows_at(X, train), y[train], **weights), test
