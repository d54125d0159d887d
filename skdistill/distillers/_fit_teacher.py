# SPDX-License-Identifier: BSD-3-Clause
"""How a distiller fits its teacher, seeds it, and puts rows in the form that it expects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from .._base import SEED_LIMIT
from .._meta_estimators import weights_for


def fit_teacher(teacher, X, y, sample_weight, task, student):
    """Fit a teacher as a task of its student, with the weights for the last step of a Pipeline."""
    is_fitted_before = isinstance(teacher, FrozenEstimator)
    with contextlib.nullcontext() if is_fitted_before else task.propagate_callback_context(teacher):
        task.call_on_fit_task_begin(estimator=student, X=X, y=y)
        teacher.fit(X, y, **weights_for(teacher, sample_weight))
        task.call_on_fit_task_end(estimator=student, X=X, y=y)
    return teacher


def seed_where_unset(estimator, seed: int) -> None:
    """Give every ``random_state`` in an estimator that is None a seed drawn from `seed`."""
    draw = np.random.RandomState(seed)
    seeds = {
        name: int(draw.randint(SEED_LIMIT))
        for name, value in sorted(estimator.get_params(deep=True).items(), key=lambda p: p[0])
        if name.split("__")[-1] == "random_state" and value is None
    }
    estimator.set_params(**seeds)


def as_teacher_rows(X, names) -> Callable[[np.ndarray], Any]:
    """Return what puts an array into a frame, of X's kind, for a teacher that has named columns."""
    if names is None:
        return lambda rows: rows
    if not hasattr(X, "columns"):
        import pandas as pd  # the teacher has seen a frame, so there is a library of frames

        return lambda rows: pd.DataFrame(rows, columns=list(names))
    keyword = "schema" if type(X).__module__.startswith("polars") else "columns"
    return lambda rows: type(X)(rows, **{keyword: list(names)})
