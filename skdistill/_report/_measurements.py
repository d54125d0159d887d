# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of a report: of each model, and of one model beside another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from .. import metrics
from .._data.columns import column_of
from .._estimator.functions import predict_members, predict_quantiles, predict_uncertainty
from .._estimator.unwrapping import has_inside, has_members, innermost
from .._utils.typing import ArrayLike, BaseEstimator
from ..distributions import EmpiricalGaussian
from ..metrics import UncertaintyProfile, fidelity, uncertainty_profile
from ..model_selection import flops, latency, n_parameters
from ..persistence import save
from ._model_report import Measurement

# Quantiles of numbers: 0.05, 0.1, ..., 0.95, as displays draw them.
LEVELS = np.linspace(0.05, 0.95, 19)

# Groups of samples, each of which is left out once, for standard errors.
_N_GROUPS = 20

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
        errors = {}
        if "student" in without:
            errors["student"] = jackknife_error(without["student"])
        if len(without) == 2:
            errors["difference"] = jackknife_error(without["student"] - without["teacher"])
        section, name, unit, better, _ = quantity
        yield Measurement(section, name, values, unit, better, errors)


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


def disagreement(halves: Mapping[str, Any] | None) -> Iterator[Measurement]:
    """Tell how two fits to halves of a table disagree, by what they state."""
    if halves is None:
        return
    lower, upper = halves["ratio"][:-1], halves["ratio"][-1]
    for quantity, value, better in [
        ("coverage of 90 % intervals of the difference", halves["coverage"], "near 0.9"),
        ("stated variance / squared difference", halves["overall"], "near 1"),
        ("the same, least of the four lower fifths", lower.min(), "near 1"),
        ("the same, largest of the four lower fifths", lower.max(), "near 1"),
        ("the same, fifth with the largest variance", upper, "near 1"),
        ("rank correlation of the two", halves["rank"], "higher"),
    ]:
        yield Measurement("halves", quantity, {"student": float(value)}, "", better)


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
            part, _, measure = key.partition("_")
            if measure in _FIDELITY:
                name, better = _FIDELITY[measure]
                name = name.format(part=part, other=other)
                yield Measurement("fidelity", name, values, "", better)
            elif key in _GAPS and other == "reference":  # the teacher's stand beside the scores
                name, unit = _GAPS[key]
                yield Measurement("fidelity", f"{name} less the {other}'s", values, unit, "lower")


def costs(models: dict[str, Any], X: ArrayLike, notes: list[str]) -> Iterator[Measurement]:
    """Measure what each model costs, as far as it can be known."""
    of_networks = {role: model for role, model in models.items() if has_inside(model, "module_")}
    if others := " and ".join(f"the {role}" for role in models if role not in of_networks):
        notes.append(
            f"Parameters, operations and training time are those of networks, not {others}'s."
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


@dataclass(frozen=True)
class Answers:
    """Predictions of one model for the rows; all of them arrays with a row for each."""

    y: np.ndarray  # (n,) or (n, n_targets): what is true of the samples
    point: np.ndarray  # of the shape of y: predicted labels, or means
    total: np.ndarray  # of the shape of y, as the parts
    aleatoric: np.ndarray | None
    epistemic: np.ndarray | None
    measure: str  # of the uncertainty
    # Known where they are asked for: "| Any" spares a check that they are not None.
    probabilities: np.ndarray | Any = None  # (n, n_classes), of a classifier
    classes: np.ndarray | None = None  # labels of the columns of `probabilities`
    quantiles: np.ndarray | Any = None  # (n, n_levels) or (n, n_targets, n_levels), at LEVELS
    members: np.ndarray | Any = None  # (n, n_members, n_targets, 2), of those that have members

    @classmethod
    def of(cls, model: BaseEstimator, X: ArrayLike, y: np.ndarray) -> Answers:
        total, aleatoric, epistemic = uncertainty = predict_uncertainty(model, X)
        point = np.asarray(model.predict(X))
        found = cls(y, point, total, aleatoric, epistemic, uncertainty.measure)
        if is_classifier(model):
            return replace(found, probabilities=model.predict_proba(X), classes=model.classes_)
        members = predict_members(model, X) if has_members(model) else None
        if members is None or has_inside(model, "predict_quantiles"):
            quantiles = predict_quantiles(model, X, LEVELS)
        else:  # of a model without a method for quantiles
            quantiles = EmpiricalGaussian.from_members(members).quantile(LEVELS.tolist()).numpy()
            quantiles = quantiles[:, 0] if quantiles.shape[1] == 1 else quantiles
        return replace(found, quantiles=quantiles, members=members)

    @property
    def std(self) -> np.ndarray:
        """Total standard deviations of a regressor."""
        return np.sqrt(self.total)

    @property
    def losses(self) -> np.ndarray:
        """Error of each sample, (n,): 0 or 1, or the squared one, in variances of each target."""
        if self.classes is not None:
            return np.asarray(self.y != self.point, dtype=float)
        return _one_number_a_row((self.y - self.point) ** 2, np.var(self.y, axis=0))

    @property
    def least_known(self) -> tuple[str, np.ndarray]:
        """Epistemic part of each sample, (n,), or the total where it is not known; and which."""
        part = "total" if self.epistemic is None else "epistemic"
        values = np.asarray(getattr(self, part))
        return part, _one_number_a_row(values, values.mean(axis=0))

    def interval(self, coverage: float) -> np.ndarray:
        """Central interval whose ends are among the quantiles, (..., 2)."""
        ends = np.searchsorted(LEVELS, [(1 - coverage) / 2 - 1e-9, (1 + coverage) / 2 - 1e-9])
        return self.quantiles[..., ends]

    def rows(self, index: np.ndarray) -> Answers:
        of_rows = {
            name: values[index]
            for name, values in vars(self).items()
            if values is not None and name not in ("classes", "measure")
        }
        return replace(self, **of_rows)


def _one_number_a_row(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Mean over targets, each in units of its scale; of one target the values as they are."""
    if values.ndim == 1:
        return values
    return np.mean(values / np.where(scale > 0, scale, 1), axis=1)


class Quantity(NamedTuple):
    """A number that is computed of a model's answers."""

    section: str
    name: str
    unit: str
    better: str
    compute: Callable[[Answers], float]


def _by(metric: Callable[..., float], *names: str, **kwargs: object) -> Callable[[Answers], float]:
    """Metric of y and of the answers of these names."""
    return lambda a: metric(a.y, *(getattr(a, name) for name in names), **kwargs)


def _by_class(metric: Callable[..., float], **kwargs: object) -> Callable[[Answers], float]:
    return lambda a: metric(a.y, a.probabilities, labels=a.classes, **kwargs)


def _coverage(share: float) -> Callable[[Answers], float]:
    return lambda a: metrics.interval_coverage(a.y, a.interval(share))


def _interval_score(a: Answers) -> float:
    return metrics.interval_score(a.y, a.interval(0.9), coverage=0.9)


def _width(a: Answers) -> float:
    return metrics.interval_width(a.interval(0.9))


def _rejection_ratio(a: Answers) -> float:
    return metrics.prediction_rejection_ratio(a.losses, _one_number_a_row(a.total, a.total.mean(0)))


_SCORE, _RANKING, _OF_Y = "proper scores", "ranking of errors", "units of y"
_gaussian_nll = _by(metrics.gaussian_nll, "point", "std")
_mixture_nll = _by(metrics.mixture_nll, "members")
_ece = _by_class(metrics.expected_calibration_error)
_classwise_ece = _by_class(metrics.expected_calibration_error, classwise=True)
_quantile_error = _by(metrics.regression_calibration_error, "quantiles", quantiles=LEVELS)
_RATIO = Quantity(_RANKING, "prediction rejection ratio", "", "higher", _rejection_ratio)

OF_CLASSES = [
    Quantity("accuracy", "accuracy", "", "higher", _by(accuracy_score, "point")),
    Quantity(_SCORE, "log loss", "nats", "lower", _by_class(log_loss)),
    Quantity(_SCORE, "Brier score", "", "lower", _by_class(metrics.brier_score)),
    Quantity("calibration", "expected calibration error", "", "lower", _ece),
    Quantity("calibration", "classwise calibration error", "", "lower", _classwise_ece),
    Quantity(_RANKING, "AURC", "", "lower", lambda a: metrics.aurc(a.losses, a.total)),
    _RATIO,
]

OF_NUMBERS = [
    Quantity("accuracy", "RMSE", _OF_Y, "lower", _by(root_mean_squared_error, "point")),
    Quantity("accuracy", "R2", "", "higher", _by(r2_score, "point")),
    Quantity(_SCORE, "NLL of one Gaussian", "nats", "lower", _gaussian_nll),
    Quantity(_SCORE, "interval score, 90 %", _OF_Y, "lower", _interval_score),
    Quantity("calibration", "calibration error of quantiles", "", "lower", _quantile_error),
    Quantity("calibration", "coverage of 50 % intervals", "", "near 0.5", _coverage(0.5)),
    Quantity("calibration", "coverage of 90 % intervals", "", "near 0.9", _coverage(0.9)),
    Quantity("calibration", "width of 90 % intervals", _OF_Y, "", _width),
    Quantity(_RANKING, "AUSE", "", "lower", _by(metrics.ause, "point", "std")),
    _RATIO,
]

# Of regressors that have members.
OF_MEMBERS = [
    Quantity(_SCORE, "NLL of the members' mixture", "nats", "lower", _mixture_nll),
    Quantity(_SCORE, "CRPS", _OF_Y, "lower", _by(metrics.crps, "members")),
]


def left_out(n_rows: int) -> list[np.ndarray]:
    """Samples that remain when each of some random groups is left out."""
    groups = np.random.default_rng(0).permutation(n_rows) % min(_N_GROUPS, n_rows)
    return [np.flatnonzero(groups != group) for group in np.unique(groups)]


def jackknife_error(values: np.ndarray) -> float:
    """Standard error by the delete-a-group jackknife, of values without each of the groups."""
    return float(np.sqrt((len(values) - 1) * np.var(values)))
