# SPDX-License-Identifier: BSD-3-Clause
"""What a distiller does with its teacher before it asks it anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.frozen import FrozenEstimator

from ._base import SEED_LIMIT

__all__ = ["as_teacher_rows", "fit_teacher", "seed_where_unset"]


def fit_teacher(teacher, X, y, sample_weight, task, student):
    """Fit a teacher as a task of its student, with the weights for the last step of a Pipeline."""
    is_fitted_before = isinstance(teacher, FrozenEstimator)
    with contextlib.nullcontext() if is_fitted_before else task.propagate_callback_context(teacher):
        task.call_on_fit_task_begin(estimator=student, X=X, y=y)
        teacher.fit(X, y, **_weights_for(teacher, sample_weight))
        task.call_on_fit_task_end(estimator=student, X=X, y=y)
    return teacher


def _weights_for(teacher, sample_weight) -> dict[str, Any]:
    """Weights by the name under which the teacher's fit takes them; nothing for None."""
    if sample_weight is None:
        return {}
    if hasattr(teacher, "steps") and not get_config()["enable_metadata_routing"]:
        return {f"{teacher.steps[-1][0]}__sample_weight": sample_weight}
    return {"sample_weight": sample_weight}


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
    """How to dress arrays for a teacher: as a frame, of X's kind, if it knows columns by name."""
    if names is None:
        return lambda rows: rows
    if not hasattr(X, "columns"):
        import pandas as pd  # the teacher has seen a frame, so there is a library of frames

        return lambda rows: pd.DataFrame(rows, columns=list(names))
    keyword = "schema" if type(X).__module__.startswith("polars") else "columns"
    return lambda rows: type(X)(rows, **{keyword: list(names)})
