# SPDX-License-Identifier: BSD-3-Clause
"""Whether a distiller is a classifier or a regressor: as its teacher is."""

from __future__ import annotations

from typing import Any

from sklearn.base import is_classifier, is_regressor

_KINDS = ("classifier", "regressor")


def kind_of(teacher: Any) -> str | None:
    """Return what a teacher is, "classifier" or "regressor"; None for what is no teacher."""
    if isinstance(teacher, str):
        return teacher if teacher in _KINDS else None
    if isinstance(teacher, type) or not hasattr(teacher, "get_params"):
        return None
    try:
        if is_classifier(teacher):
            return "classifier"
        return "regressor" if is_regressor(teacher) else None
    except AttributeError:  # parameters but no tags: no estimator of scikit-learn's kind
        return None


def _kind(self: Any) -> str | None:
    if "_plan" in vars(self):
        return self._plan.task.kind
    return kind_of(self.teacher)


# For the body of a class: what it is says its teacher, and after `fit` the task that it was.
kind_as_teacher = property(_kind)


def check_kind(teacher: Any, member_predictions: Any) -> None:
    """Raise TypeError for what is no teacher, ValueError for a mere name without predictions."""
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
