# SPDX-License-Identifier: BSD-3-Clause
"""Whether a distiller is a classifier or a regressor: as its teacher is."""

from __future__ import annotations

from typing import Any

from ..._estimator.unwrapping import tags_of


def kind_of(teacher: Any) -> str | None:
    """Return "classifier" or "regressor" for a teacher, or for such a name; None for others."""
    if isinstance(teacher, str):
        return teacher if teacher in ("classifier", "regressor") else None
    if isinstance(teacher, type) or not hasattr(teacher, "get_params"):
        return None
    try:
        kind = tags_of(teacher).estimator_type
    except AttributeError:  # it has parameters but no tags: no estimator
        return None
    return kind if kind in ("classifier", "regressor") else None


def _kind(distiller: Any) -> str | None:
    """Kind of a distiller: that of its teacher, and after `fit` that of the fitted student."""
    fitted = "_plan" in vars(distiller)
    return distiller._plan.task.kind if fitted else kind_of(distiller.teacher)


kind_as_teacher = property(_kind)


def check_kind(teacher: Any, member_predictions: Any) -> None:
    """Raise TypeError unless it is a teacher, ValueError for a name without predictions."""
    if kind_of(teacher) is None:
        raise TypeError(
            "teacher must be a classifier or a regressor, or, with member_predictions, "
            "'classifier' or 'regressor'; skdistill.teachers.as_teacher makes one of a list of "
            f"fitted models, or of a torch module. Got {teacher!r}."
        )
    if isinstance(teacher, str) and member_predictions is None:
        raise ValueError(
            f"teacher={teacher!r} goes with member_predictions, which are None; without "
            "them teacher must be an estimator."
        )
