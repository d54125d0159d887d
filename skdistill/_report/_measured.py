# SPDX-License-Identifier: BSD-3-Clause
"""Everything that a report tells of a model, measured in turn."""

import platform
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._data.checks import check_trainable, refuse_masked
from .._data.columns import names_of_columns
from .._estimator.unwrapping import final_step, has_inside, inside
from .._serialization.container import LIBRARIES
from .._utils.validation import errors_about
from ..displays import UNITS
from ._answers import Answers
from ._figures import of_agreement, of_profiles, of_scores
from ._measurements import agreement, costs, explained, parts_of_uncertainty, profiles, scores
from ._model_report import ModelReport

# Fewer samples say nothing of calibration, nor of groups of samples.
_LEAST_ROWS = 20


def measured(
    student: Any, X: ArrayLike, y: ArrayLike, teacher: Any, reference: Any, feature_names: Any
) -> ModelReport:
    notes: list[str] = []
    models = _models(student, teacher, reference, notes)
    y = _check_rows(student, X, y)
    names = _feature_names(X, feature_names)
    answers = {role: Answers.of(model, X, y) for role, model in models.items()}
    if np.shape(answers["student"].point) != y.shape:
        raise ValueError(
            f"y must have the shape of the student's predictions, "
            f"{np.shape(answers['student'].point)}, got {y.shape}."
        )
    part = answers["student"].least_known[0]
    unit = UNITS[answers["student"].measure] if y.ndim == 1 else "relative to its mean"
    found = profiles(answers, X, names) if names else {}
    if not names:
        notes.append(
            "Where the model knows least is told for tables only, samples of one dimension."
        )
    found_all = [
        *scores(answers, notes),
        *explained(found, part),
        *parts_of_uncertainty(answers),
        *agreement(models, X, y),
        *costs(models, X, notes),
    ]
    measurements = [measurement for measurement in found_all if measurement.values]
    pictures = [*of_scores(answers), *of_profiles(found, part, unit), *of_agreement(answers)]
    kinds = {role: type(final_step(model)[0]).__name__ for role, model in models.items()}
    summary = f"Measured on {len(y):,} samples"
    if "teacher" in kinds:
        summary += f", beside its teacher, {kinds['teacher']}"
    if "reference" in kinds:
        summary += f", and a reference, {kinds['reference']}"
    facts = _facts(models, X, y)
    return ModelReport(kinds["student"], f"{summary}.", facts, measurements, pictures, notes)


def _models(student: Any, teacher: Any, reference: Any, notes: list[str]) -> dict[str, Any]:
    """Models by their roles, each of which predicts an uncertainty."""
    if not (is_classifier(student) or is_regressor(student)):
        raise TypeError(
            "student must be a fitted classifier or regressor that predicts its uncertainty, got "
            f"{type(student).__name__}."
        )
    own = _own_teacher(student) if teacher is None else None
    if teacher is None and own is None:
        notes.append("There is no teacher to compare with: the model holds none.")
    given = {"student": student, "teacher": teacher if own is None else own, "reference": reference}
    models = {role: model for role, model in given.items() if model is not None}
    for role, model in models.items():
        if not hasattr(model, "fit") or not has_inside(model, "predict_uncertainty"):
            raise TypeError(
                f"{role} must be a fitted model with predict_uncertainty, alone or in a Pipeline, "
                f"search or TransformedTargetRegressor, got {type(model).__name__}; "
                "skdistill.teachers.as_teacher makes one of other models."
            )
        check_is_fitted(model)
        if is_classifier(model) != is_classifier(student):
            kinds = "a classifier", "a regressor"
            raise ValueError(
                f"{role} must be {kinds[is_regressor(student)]} as the student is, got "
                f"{type(model).__name__}."
            )
    return models


def _own_teacher(model: BaseEstimator) -> BaseEstimator | None:
    """The teacher that a student holds, with the steps of a Pipeline before it; None without."""
    if hasattr(model, "teacher_"):
        return model.teacher_ if has_inside(model.teacher_, "predict_uncertainty") else None
    inner = inside(model, fitted=True)
    teacher = None if inner is None else _own_teacher(inner)
    if teacher is not None and isinstance(model, Pipeline):
        return Pipeline([*model.steps[:-1], ("teacher", teacher)])
    return teacher


def _check_rows(student: BaseEstimator, X: ArrayLike, y: Any) -> np.ndarray:
    """Return y as an array that goes with X and with the student."""
    with errors_about("X and y"):
        check_consistent_length(X, y)
    refuse_masked(y, "y")
    if is_regressor(student):
        kind = np.asarray(y).dtype
        if kind.kind not in "biufO" or any(isinstance(value, str) for value in np.ravel(y)):
            raise ValueError(f"y must be real numbers, as the student predicts, got {kind}.")
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        check_trainable(y, y.dtype, "y")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if len(y) < _LEAST_ROWS:
        raise ValueError(f"X must have at least {_LEAST_ROWS} samples for a report, got {len(y)}.")
    if is_classifier(student):
        unknown = set(y.tolist()) - set(student.classes_.tolist())
        if unknown:
            raise ValueError(
                f"y must hold classes that the student knows, {student.classes_.tolist()}, got "
                f"{sorted(unknown, key=repr)[:5]}."
            )
    return y


def _feature_names(X: ArrayLike, given: Any) -> list[str]:
    """Names of the columns of X; none for samples that are no table."""
    if len(np.shape(X)) != 2:
        return []
    n_columns = np.shape(X)[1]
    if given is None:
        given = names_of_columns(X) or [f"feature {i}" for i in range(n_columns)]
    names = [str(name) for name in given]
    if len(names) != n_columns or len(set(names)) != n_columns:
        raise ValueError(
            f"feature_names must hold {n_columns} different names, one for each column of X, got "
            f"{len(set(names))} in {len(names)}."
        )
    return names


def _facts(models: dict[str, BaseEstimator], X: ArrayLike, y: np.ndarray) -> dict[str, str]:
    shape = " × ".join(f"{size:,}" for size in np.shape(X)[1:])
    about = {
        "rows": f"{len(y):,}",
        "columns" if len(np.shape(X)) == 2 else "shape of a sample": shape,
    }
    if y.ndim == 2:
        about["targets"] = (
            f"{y.shape[1]:,}; numbers are means over them, pictures of single samples "
        )
        about["targets"] += "show the first"
    for role, model in models.items():  # as its author wrote it, in one line of bounded length
        text = " ".join(repr(model).split())
        about[role] = text if len(text) <= 300 else text[:299] + "…"
    return {
        **about,
        "date": date.today().isoformat(),
        "machine": f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name, version in LIBRARIES.items()),
    }
