# SPDX-License-Identifier: BSD-3-Clause
"""Everything that a report tells of a model, measured in turn, and drawn."""

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
from .._data.columns import names_of_columns
from .._estimator.unwrapping import final_step, has_inside, inside
from .._serialization.container import LIBRARIES
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import errors_about
from ..metrics import UncertaintyProfile
from ._measurements import (
    LEVELS,
    Answers,
    agreement,
    costs,
    disagreement,
    explained,
    parts_of_uncertainty,
    profiles,
    scores,
)
from ._model_report import ModelReport, Picture

# Fewer samples say nothing of calibration, nor of groups of samples.
_LEAST_ROWS = 20


def measured(
    student: Any,
    X: ArrayLike,
    y: ArrayLike,
    teacher: Any,
    reference: Any,
    feature_names: Any,
    halves: Any,
) -> ModelReport:
    notes: list[str] = []
    if not (halves is None or {"coverage", "ratio", "stated"} <= set(halves)):
        raise ValueError(
            "halves must be what skdistill.model_selection.disagreement_of_halves returns, got "
            f"{type(halves).__name__}."
        )
    models = _models(student, teacher, reference, notes)
    y = _check_rows(student, X, y)
    names = _feature_names(X, feature_names)
    if not names:
        notes.append(
            "The uncertainty by feature is available for tables only, samples of one dimension."
        )
    answers = {role: Answers.of(model, X, y) for role, model in models.items()}
    if np.shape(answers["student"].point) != y.shape:
        raise ValueError(
            f"y must have the shape of the student's predictions, "
            f"{np.shape(answers['student'].point)}, got {y.shape}."
        )
    part = answers["student"].least_known[0]
    unit = displays.UNITS[answers["student"].measure] if y.ndim == 1 else "relative to its mean"
    found = profiles(answers, X, names)
    found_all = [
        *scores(answers, notes),
        *explained(found, part),
        *parts_of_uncertainty(answers),
        *disagreement(halves),
        *agreement(models, X, y),
        *costs(models, X, notes),
    ]
    measurements = [measurement for measurement in found_all if measurement.values]
    pictures = [*of_scores(answers), *of_profiles(found, part, unit), *of_agreement(answers)]
    pictures += of_halves(halves)
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
    of_sample = "columns" if len(np.shape(X)) == 2 else "shape of a sample"
    about = {"rows": f"{len(y):,}", of_sample: shape}
    if y.ndim == 2:
        shown = "numbers are means over them, pictures of single samples show the first"
        about["targets"] = f"{y.shape[1]:,}; {shown}"
    for role, model in models.items():  # as its author wrote it, in one line of bounded length
        text = " ".join(repr(model).split())
        about[role] = text if len(text) <= 300 else text[:299] + "…"
    return {
        **about,
        "date": date.today().isoformat(),
        "machine": f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name, version in LIBRARIES.items()),
    }


# Told apart by colour, from the palette of Okabe and Ito, and by the line.
_STYLES: dict[str, dict[str, Any]] = {
    "student": {"color": "#0072B2"},
    "teacher": {"color": "#D55E00", "linestyle": "-."},
    "reference": {"color": "#009E73", "linestyle": ":"},
}

# Most columns of X whose profiles are drawn.
_N_PROFILES = 4


def of_scores(answers: dict[str, Answers]) -> Iterator[Picture]:
    """Draw calibration, and what is gained by leaving out uncertain samples."""
    compared = {role: found for role, found in answers.items() if role != "reference"}
    if answers["student"].classes is None:
        yield Picture(
            "calibration",
            "Calibration of quantiles",
            "Share of the samples at or below each predicted quantile; on the diagonal it is as "
            "predicted.",
            partial(_draw_quantiles, compared),
        )
    else:
        yield Picture(
            "calibration",
            "Reliability",
            "Accuracy by confidence; on the diagonal it is as predicted. Bars are the shares of "
            "the samples.",
            partial(_draw_reliability, compared),
        )
    yield Picture(
        "ranking of errors",
        "Error without the most uncertain samples",
        "The solid line falls to the left if uncertain samples are those with large errors, at "
        "best as the dashed one does, which knows the errors.",
        partial(_draw_rejection, compared),
    )


def _draw_quantiles(answers: dict[str, Answers], ax: Any) -> None:
    for role, found in answers.items():
        displays.RegressionCalibrationDisplay.from_predictions(
            found.y, found.quantiles, LEVELS, name=role, ax=ax, **_STYLES[role]
        )


def _draw_reliability(answers: dict[str, Answers], ax: Any) -> None:
    for role, found in answers.items():
        displays.ReliabilityDisplay.from_predictions(
            found.y,
            found.probabilities,
            labels=found.classes,
            name=role,
            ax=ax,
            plot_bars=role == "student",
            ref_line=role == "student",
            **_STYLES[role],
        )


def _draw_rejection(answers: dict[str, Answers], ax: Any) -> None:
    for role, found in answers.items():
        displays.RejectionCurveDisplay.from_losses(
            found.losses,
            found.total if found.total.ndim == 1 else found.total.mean(axis=1),
            loss_name="squared error" if found.classes is None else "error",
            name=role,
            ax=ax,
            plot_oracle=role == "student",
            plot_random=role == "student",
            **_STYLES[role],
        )


def of_halves(halves: Any) -> Iterator[Picture]:
    """Draw the disagreement of two halves by what they state."""
    if halves is None:
        return
    yield Picture(
        "halves",
        "Disagreement of two fits",
        "Mean squared difference of the two predictions by the sum of their epistemic variances, "
        "for ten groups of samples. On the dashed line they disagree as they say.",
        partial(_draw_halves, halves),
    )


def _draw_halves(halves: Any, ax: Any) -> None:
    displays.EpistemicCalibrationDisplay.from_predictions(
        np.ravel(halves["squared_difference"]),
        np.ravel(halves["stated"]),
        name="student",
        ax=ax,
        **_STYLES["student"],
    )
    ax.set_ylabel("Squared difference")


def of_agreement(answers: dict[str, Answers]) -> Iterator[Picture]:
    """Draw each part of the student's uncertainty against the teacher's, or the reference's."""
    others = [role for role in ("teacher", "reference") if role in answers]
    if not others:
        return
    whose, has_both = others[-1], len(others) == 2
    for part in ("epistemic", "aleatoric", "total"):
        known = {role: getattr(found, part) for role, found in answers.items()}
        if any(values is None for values in known.values()):
            continue
        # Of the first target.
        columns = {role: v if v.ndim == 1 else v[:, 0] for role, v in known.items()}
        display = displays.FidelityDisplay(
            student={part: columns["student"]},
            teacher={part: columns[others[0]]},
            reference={part: columns[whose]} if has_both else None,
            measure=answers["student"].measure,
        )
        band = " The band holds nine in ten of the teacher's." if has_both else ""
        yield Picture(
            "fidelity",
            f"{part.capitalize()} part, sample by sample",
            f"A point for each sample: the student's {part} uncertainty by the {whose}'s. On the "
            f"dashed line they are equal.{band}",
            display.plot,
        )


def of_profiles(
    found: dict[str, dict[str, UncertaintyProfile]], part: str, unit: str
) -> Iterator[Picture]:
    """Draw the uncertainty by the columns that explain most of it."""
    for name, of_models in list(found.items())[:_N_PROFILES]:
        yield Picture(
            "where it knows least",
            f"By {name}",
            f"Mean {part} uncertainty of samples, grouped by {name}. {_peak(of_models['student'])}",
            partial(_draw_profiles, of_models, name, part, unit),
        )


def _peak(profile: UncertaintyProfile) -> str:
    """Say where a profile is highest."""
    at = int(np.argmax(profile.means))
    value = profile.values[at]
    is_missing = value is None or value != value
    where = "missing" if is_missing else f"{value:.3g}" if isinstance(value, float) else value
    times = profile.means[at] / np.average(profile.means, weights=profile.counts)
    return f"It is largest around {where}: {times:.2g} times the mean of all samples."


def _draw_profiles(
    of_models: dict[str, UncertaintyProfile], name: str, part: str, unit: str, ax: Any
) -> None:
    for role, profile in of_models.items():
        data = profile._asdict() | {"unit": unit, "part": part}
        line = {} if profile.values.dtype.kind == "f" else {"linestyle": "none"}  # categories
        displays.UncertaintyProfileDisplay(**data, feature_name=name, name=role).plot(
            ax=ax, plot_mean=role == "student", **{**_STYLES[role], **line}
        )
