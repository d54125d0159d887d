# SPDX-License-Identifier: BSD-3-Clause
"""Through scikit-learn's meta-estimators to the model at their end; rows, weights and folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches, indexable

from .._teaching import BaseSearchCV, weights_for

# Answers that are only to be averaged are read in chunks of about this many bytes: large ones, as
# every chunk fetches all trees of a forest from memory again.
_CHUNK_BYTES = 2**27


def inside(model):
    """Return the model in a Pipeline, search or FrozenEstimator; None in anything else."""
    if isinstance(model, Pipeline):
        return model[-1]
    if isinstance(model, BaseSearchCV):
        return getattr(model, "best_estimator_", model.estimator)
    return model.estimator if isinstance(model, FrozenEstimator) else None


def final_step(model, X=None):
    """Return the model at the end of Pipelines, searches and FrozenEstimators, and its X.

    Without X nothing is transformed, and nothing need be fitted.
    """
    while (inner := inside(model)) is not None:
        if X is not None and isinstance(model, Pipeline) and len(model) > 1:
            X = model[:-1].transform(X)
        model = inner
    return model, X


def has_members(model) -> bool:
    """Tell whether :func:`skdistill.predict_members` finds members in the model, once fitted."""
    model, _ = final_step(model)
    if isinstance(model, TransformedTargetRegressor):
        return has_members(model.regressor)
    return hasattr(model, "predict_members")


def is_prefitted(model) -> bool:
    """Tell whether a model, or one inside it, is fitted already and stays so when cloned.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    is_prefitted : bool
    """
    return model is not None and (clone(model) is model or is_prefitted(inside(model)))


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
    memory = min(_CHUNK_BYTES, int(get_config()["working_memory"] * 2**20))
    n_rows = max(1, memory // read(rows_at(X, slice(0, 1))).nbytes)
    chunks = [summarise(read(rows_at(X, rows)), rows) for rows in gen_batches(X.shape[0], n_rows)]
    return np.concatenate(chunks)


def fits_on_folds(model, X, y, sample_weight, cv) -> Iterator[tuple[Any, np.ndarray]]:
    """Clones fitted without the rows of each fold in turn, with the numbers of those rows."""
    for train, test in cv.split(X, y):
        weights = weights_for(model, None if sample_weight is None else sample_weight[train])
        yield clone(model).fit(rows_at(X, train), y[train], **weights), test
