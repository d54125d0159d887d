# SPDX-License-Identifier: BSD-3-Clause
"""A report from start to end: check the models and samples, measure, and plan the figures."""

import platform
from collections.abc import Iterator
from datetime import date
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .. import displays
from .._data.checks import check_trainable, refuse_masked
from .._estimator.unwrapping import final_step, has_inside, inside
from .._serialization.container import LIBRARIES
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import errors_about
from ._measurements import (
    LEVELS,
    Predictions,
    agreement,
    costs,
    disagreement,
    parts_of_uncertainty,
    scores,
)
from ._model_report import ModelReport, Picture

_LEAST_ROWS = 20  # samples: fewer say nothing of calibration


def measured(
    student: Any, X: ArrayLike, y: Any, teacher: Any, reference: Any, halves: Any
) -> ModelReport:
    if not (halves is None or {"coverage", "ratio", "epistemic"} <= set(halves)):
        raise ValueError(
            "halves must be what skdistill.model_selection.disagreement_of_halves returns, got "
            f"{type(halves).__name__}."
        )
    notes: list[str] = []
    models = _models(student, teacher, reference, notes)
    y = _check_y(student, X, y)
    predictions = {role: Predictions.of(model, X, y) for role, model in models.items()}
    shape = np.shape(predictions["student"].point)
    if shape != y.shape:
        raise ValueError(
            f"y must have the shape of the student's predictions, {shape}, got {y.shape}."
        )
    found = [
        *scores(predictions, notes),
        *parts_of_uncertainty(predictions),
        *disagreement(halves),
        *agreement(models, X, y),
        *costs(models, X, notes),
    ]
    measurements = [measurement for measurement in found if measurement.values]
    kinds = {role: type(final_step(model)[0]).__name__ for role, model in models.items()}
    summary = f"Measured on {len(y):,} samples"
    if "teacher" in kinds:
        summary += f", beside its teacher, {kinds['teacher']}"
    if "reference" in kinds:
        summary += f", and a reference, {kinds['reference']}"
    size = " × ".join(f"{size:,}" for size in np.shape(X)[1:])
    facts = {"samples": f"{len(y):,}", "shape of a sample": size}
    if y.ndim == 2:
        shown = "numbers are means over them, pictures of single samples show the first"
        facts["targets"] = f"{y.shape[1]:,}; {shown}"
    for role, model in models.items():  # as its author wrote it, in one line of bounded length
        text = " ".join(repr(model).split())
        facts[role] = text if len(text) <= 300 else text[:299] + "…"
    facts["date"] = date.today().isoformat()
    machine = f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}"
    facts["machine"] = machine
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in LIBRARIES.items())
    pictures = list(_pictures(predictions, halves))
    return ModelReport(kinds["student"], f"{summary}.", facts, measurements, pictures, notes)


def _models(student: Any, teacher: Any, reference: Any, notes: list[str]) -> dict[str, Any]:
    """Models by their roles, each of which predicts an uncertainty."""
    if not (is_classifier(student) or is_regressor(student)):
        raise TypeError(
            "student must be a fitted classifier or regressor that predicts its uncertainty, got "
            f"{type(student).__name__}."
        )
    teacher = _own_teacher(student) if teacher is None else teacher
    if teacher is None:
        notes.append("There is no teacher to compare with: the model holds none.")
    given = {"student": student, "teacher": teacher, "reference": reference}
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


def _check_y(student: BaseEstimator, X: ArrayLike, y: Any) -> np.ndarray:
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
    if is_classifier(student) and (unknown := set(y.tolist()) - set(student.classes_.tolist())):
        raise ValueError(
            f"y must hold classes that the student knows, {student.classes_.tolist()}, got "
            f"{sorted(unknown, key=repr)[:5]}."
        )
    return y


def _pictures(predictions: dict[str, Predictions], halves: Any) -> Iterator[Picture]:
    """Plan the figures, each of which is drawn when the page is made."""
    student = predictions["student"]
    compared = {role: found for role, found in predictions.items() if role != "reference"}
    if student.classes is None:
        title, loss = "Calibration of quantiles", "squared error"
        text = "Share of the samples at or below each predicted quantile"
        pairs = {role: (found.y, found.quantiles) for role, found in compared.items()}
        draw = partial(displays.draw_quantiles, pairs, LEVELS)
    else:
        title, loss = "Reliability", "error"
        text = "Accuracy by confidence, the largest probability"
        pairs = {role: (p.y == p.point, p.probabilities) for role, p in compared.items()}
        draw = partial(displays.draw_reliability, pairs)
    yield Picture("calibration", title, f"{text}; on the diagonal it is as predicted.", draw)
    ranked = {role: (found.losses, found.mean_total) for role, found in compared.items()}
    yield Picture(
        "ranking of errors",
        "Error without the most uncertain samples",
        "The solid line falls to the left if uncertain samples are those with large errors, at "
        "best as the dashed one does, which knows the errors.",
        partial(displays.draw_rejection, ranked, loss),
    )
    if others := [role for role in ("teacher", "reference") if role in predictions]:
        whose, has_both = others[-1], len(others) == 2
        band = " The band holds nine in ten of the teacher's." if has_both else ""
        for part in ("epistemic", "aleatoric", "total"):
            known = {role: getattr(found, part) for role, found in predictions.items()}
            if any(values is None for values in known.values()):
                continue
            # Of the first target.
            columns = {role: {part: v if v.ndim == 1 else v[:, 0]} for role, v in known.items()}
            display = displays.FidelityDisplay(
                student=columns["student"],
                teacher=columns[others[0]],
                reference=columns[whose] if has_both else None,
                measure=student.measure,
            )
            text = (
                f"A point for each sample: the student's {part} uncertainty by the {whose}'s. On "
                f"the dashed line they are equal.{band}"
            )
            title = f"{part.capitalize()} part, sample by sample"
            yield Picture("fidelity", title, text, display.plot)
    if halves is not None:
        yield Picture(
            "halves",
            "Disagreement of two fits",
            "Mean squared difference of the two predictions by the sum of their epistemic "
            "variances, for ten groups of samples. On the dotted line they are equal.",
            partial(displays.draw_halves, halves),
        )
