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

# Answers that are only to be averaged are read in chunks of about this many bytes: large ones, as
# every chunk fetches all trees of a forest from memory again.
_CHUNK_BYTES = 2**27


def rows_at(X, index):
    """Rows of an array or a frame by a slice or by numbers."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def as_rows(X):
    """Return X in a form whose rows can be taken: a frame, an array or a sparse array."""
    (X,) = indexable(X)
    return X if hasattr(X, "shape") else np.asarray(X)


def in_chunks(read: Callable, X, summarise: Callable) -> np.ndarray:
    """Read answers to X and keep what ``summarise(answers, rows)`` makes of them, row by row.

    As many rows are read at a time as fit a share of scikit-learn's ``working_memory``.
    """
    answer = read(rows_at(X, slice(0, 1)))
    n_rows = min(rows_in_memory(answer), max(1, _CHUNK_BYTES // answer.nbytes))
    chunks = [summarise(read(rows_at(X, rows)), rows) for rows in gen_batches(X.shape[0], n_rows)]
    return np.concatenate(chunks)


def fits_on_folds(model, X, y, sample_weight, cv) -> Iterator[tuple[Any, np.ndarray]]:
    """Clones fitted without the rows of each fold in turn, with the numbers of those rows."""
    for train, test in cv.split(X, y):
        weights = weights_for(model, None if sample_weight is None else sample_weight[train])
        yield clone(model).fit(rows_at(X, train), y[train], **weights), test
