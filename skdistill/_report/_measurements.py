# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of a report: of each model, and of one model beside another."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._data.columns import column_of
from .._estimator.unwrapping import has_inside, innermost
from .._utils.typing import ArrayLike, BaseEstimator
from ..metrics import UncertaintyProfile, fidelity, uncertainty_profile
from ..model_selection import flops, latency, n_parameters
from ..persistence import save
from ._answers import OF_CLASSES, OF_MEMBERS, OF_NUMBERS, Answers, jackknife_error, left_out
from ._model_report import Measurement

# Rows of a batch whose latency is measured, beside that of one row.
_BATCH = 256

# How one model follows another: what metrics.fidelity finds, in words.
_FIDELITY = {
    "rank_correlation": ("rank correlation of the {part} part with the {other}'s", "higher"),
    "median_ratio": ("median ratio of the {part} part to the {other}'s", "near 1"),
}
_GAPS = {  # and their units
    "nll_gap": ("NLL", "nats"),
    "rmse_gap": ("RMSE", "units of y"),
    "error_gap": ("share of wrong labels", ""),
}


def scores(answers: dict[str, Answers], notes: list[str]) -> Iterator[Measurement]:
    """Measure how well each model predicts, with standard errors."""
    of_student = answers["student"]
    quantities = OF_NUMBERS if of_student.classes is None else OF_CLASSES
    if any(found.members is not None for found in answers.values()):
        quantities = [*quantities, *OF_MEMBERS]
    rows = left_out(len(of_student.y))
    parts = {role: [found.rows(index) for index in rows] for role, found in answers.items()}
    for quantity in quantities:
        needs_members = quantity in OF_MEMBERS
        able = [r for r, found in answers.items() if not needs_members or found.members is not None]
        try:
            values = {role: float(quantity.compute(answers[role])) for role in able}
            without = {
                role: np.array([quantity.compute(part) for part in parts[role]])
                for role in able
                if role != "reference"
            }
        except ImportError as error:  # of what an optional package computes
            notes.append(f"{quantity.name} is left out: {error}.")
            continue
        errors = {"student": without["student"]} if "student" in without else {}
        if len(without) == 2:
            errors["difference"] = without["student"] - without["teacher"]
        yield Measurement(
            quantity.section,
            quantity.name,
            values,
            quantity.unit,
            quantity.better,
            {name: jackknife_error(found) for name, found in errors.items()},
        )


def parts_of_uncertainty(answers: dict[str, Answers]) -> Iterator[Measurement]:
    """Measure how large the parts of each model's uncertainty are."""
    able = {role: found for role, found in answers.items() if found.epistemic is not None}
    is_entropy = answers["student"].measure == "entropy"
    for part in ("total", "aleatoric", "epistemic"):
        known = able if part != "total" else answers
        means = {role: float(np.mean(getattr(found, part))) for role, found in known.items()}
        if is_entropy:
            yield Measurement("uncertainty", f"mean {part} entropy", means, "nats")
        else:
            roots = {role: value**0.5 for role, value in means.items()}
            name = f"root of the mean {part} variance"
            yield Measurement("uncertainty", name, roots, "units of y")
    shares = {
        role: float(np.mean(np.asarray(found.epistemic))) / float(np.mean(found.total))
        for role, found in able.items()
    }
    yield Measurement("uncertainty", "epistemic share of the mean", shares)


def agreement(models: dict[str, Any], X: ArrayLike, y: np.ndarray) -> Iterator[Measurement]:
    """Measure how the student follows the teacher, and both the reference."""
    student, teacher, reference = map(models.get, ("student", "teacher", "reference"))
    if teacher is None and reference is None:
        return
    if teacher is None:
        table = {"student_to_reference": fidelity(reference, student, X, y)["student_to_teacher"]}
    else:
        table = fidelity(teacher, student, X, y, reference=reference).columns
    for other in ("teacher", "reference"):
        columns = {
            role: table[f"{role}_to_{other}"] for role in models if f"{role}_to_{other}" in table
        }
        for key in next(iter(columns.values()), {}):
            values = {role: column[key] for role, column in columns.items() if key in column}
            yield from _of_pair(other, key, values)


def _of_pair(other: str, key: str, values: dict[str, float]) -> Iterator[Measurement]:
    """Say one of the numbers that metrics.fidelity finds, if the report has it."""
    part, _, measure = key.partition("_")
    if measure in _FIDELITY:
        text, better = _FIDELITY[measure]
        yield Measurement("fidelity", text.format(part=part, other=other), values, "", better)
    elif key in _GAPS and other == "reference":  # the teacher's stand beside the scores
        name, unit = _GAPS[key]
        yield Measurement("fidelity", f"{name} less the {other}'s", values, unit, "lower")


def costs(models: dict[str, Any], X: ArrayLike, notes: list[str]) -> Iterator[Measurement]:
    """Measure what each model costs, as far as it can be known."""
    of_networks = {role: model for role, model in models.items() if has_inside(model, "module_")}
    others = [f"the {role}" for role in models if role not in of_networks]
    if others:
        who = " and ".join(others)
        notes.append(
            f"Parameters, operations and training time are those of networks, not {who}'s."
        )
    quantities: list[tuple[str, str, Callable[[Any], float | None]]] = [
        ("parameters", "", n_parameters),
        ("floating-point operations for a sample", "", lambda model: flops(model, X)),
        ("training of the networks, without teachers", "s", _training_seconds),
    ]
    for name, unit, measure in quantities:
        values = {role: measure(model) for role, model in of_networks.items()}
        yield Measurement("cost", name, _known(values), unit, "lower")
    sizes = {role: _saved_bytes(model, role, notes) for role, model in models.items()}
    yield Measurement("cost", "saved, without teachers", _known(sizes), "bytes", "lower")
    for size in (1, _BATCH):
        name = "one sample" if size == 1 else f"a batch of {size} samples"
        times = {role: latency(model, X, batch_size=size) for role, model in models.items()}
        yield Measurement("latency", f"predict {name}, one thread", times, "s", "lower")


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {role: float(value) for role, value in values.items() if value is not None}


def _saved_bytes(model: BaseEstimator, role: str, notes: list[str]) -> int | None:
    """Size of the file that :func:`skdistill.save` writes; None, and a note, if it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        try:
            save(model, path)
        except TypeError as error:
            notes.append(f"The {role} has no size in a file: {error}")
            return None
        return os.path.getsize(path)


def _training_seconds(model: BaseEstimator) -> float | None:
    """Seconds that all epochs of the networks took; None if the model's history does not tell."""
    history = innermost(model, None, "history_", "report")[0].history_
    seconds = [epoch["dur"] for epoch in history if "dur" in epoch]
    return sum(seconds) if seconds else None


def profiles(
    answers: dict[str, Answers], X: ArrayLike, names: list[str]
) -> dict[str, dict[str, UncertaintyProfile]]:
    """``profiles[feature][role]``: what depends on each feature, the strongest first."""
    found = {
        name: {
            role: uncertainty_profile(given.least_known[1], column_of(X, number))
            for role, given in answers.items()
        }
        for number, name in enumerate(names)
    }
    by_share = sorted(found, key=lambda name: -found[name]["student"].explained)
    return {name: found[name] for name in by_share}


def explained(found: dict[str, dict[str, UncertaintyProfile]], part: str) -> Iterator[Measurement]:
    """Measure what each column explains of the uncertainty."""
    for name, of_models in found.items():
        values = {role: profile.explained for role, profile in of_models.items()}
        quantity = f"{part} part explained by {name}"
        yield Measurement("where it knows least", quantity, values)
