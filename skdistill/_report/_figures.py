# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of a report: which displays, of which data."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .. import displays
from ..metrics import UncertaintyProfile
from ._answers import LEVELS, Answers
from ._model_report import Picture

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
        title, draw = "Calibration of quantiles", _draw_quantiles
        text = (
            "Share of the samples at or below each predicted quantile; on the diagonal it is as "
            "predicted."
        )
    else:
        title, draw = "Reliability", _draw_reliability
        text = (
            "Accuracy by confidence; on the diagonal it is as predicted. Bars are the shares of "
            "the samples."
        )
    yield Picture("calibration", title, text, partial(draw, compared))
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
        is_first = role == "student"
        displays.ReliabilityDisplay.from_predictions(
            found.y,
            found.probabilities,
            labels=found.classes,
            name=role,
            ax=ax,
            plot_bars=is_first,
            ref_line=is_first,
            **_STYLES[role],
        )


def _draw_rejection(answers: dict[str, Answers], ax: Any) -> None:
    for role, found in answers.items():
        is_class = found.classes is not None
        order = found.total if found.total.ndim == 1 else found.total.mean(axis=1)
        displays.RejectionCurveDisplay.from_losses(
            found.losses,
            order,
            loss_name="error" if is_class else "squared error",
            name=role,
            ax=ax,
            plot_oracle=role == "student",
            plot_random=role == "student",
            **_STYLES[role],
        )


def of_agreement(answers: dict[str, Answers]) -> Iterator[Picture]:
    """Draw each part of the student's uncertainty against the teacher's, or the reference's."""
    others = [role for role in ("teacher", "reference") if role in answers]
    if not others:
        return
    whose = others[-1]
    for part in ("epistemic", "aleatoric", "total"):
        known = {role: getattr(found, part) for role, found in answers.items()}
        if any(values is None for values in known.values()):
            continue
        columns = {  # of the first target
            role: values if values.ndim == 1 else values[:, 0] for role, values in known.items()
        }
        display = displays.FidelityDisplay(
            student={part: columns["student"]},
            teacher={part: columns[others[0]]},
            reference={part: columns[whose]} if len(others) == 2 else None,
            measure=answers["student"].measure,
        )
        band = " The band holds nine in ten of the teacher's." if len(others) == 2 else ""
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
    return f"The student knows least around {where}: {times:.2g} times the mean of all samples."


def _draw_profiles(
    of_models: dict[str, UncertaintyProfile], name: str, part: str, unit: str, ax: Any
) -> None:
    for role, profile in of_models.items():
        data = profile._asdict() | {"unit": unit, "part": part}
        line = {} if profile.values.dtype.kind == "f" else {"linestyle": "none"}  # categories
        displays.UncertaintyProfileDisplay(**data, feature_name=name, name=role).plot(
            ax=ax, plot_mean=role == "student", **{**_STYLES[role], **line}
        )
