# SPDX-License-Identifier: BSD-3-Clause
"""The quantities of a report: of each model, and of one model beside another."""

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
from .._estimator.functions import predict_members, predict_quantiles, predict_uncertainty
from .._estimator.unwrapping import has_inside, has_members, innermost
from .._utils.typing import ArrayLike, BaseEstimator
from ..distributions import EmpiricalGaussian
from ..metrics import fidelity
from ..model_selection import flops, latency, n_parameters
from ..persistence import save
from ._model_report import Measurement

LEVELS = np.linspace(0.05, 0.95, 19)  # of the predicted quantiles
_N_GROUPS = 20  # of samples, each of which is left out once, for standard errors
_BATCH = 256  # samples whose latency is measured, beside that of one sample


@dataclass(frozen=True)
class Predictions:
    """Predictions of one model, in arrays with an entry for each sample."""

    y: np.ndarray  # (n,) or (n, n_targets), the true labels or targets
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
    def of(cls, model: BaseEstimator, X: ArrayLike, y: np.ndarray) -> Predictions:
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
    def losses(self) -> np.ndarray:
        """Error of each sample, (n,): 0 or 1, or the squared one, in variances of each target."""
        if self.classes is not None:
            return np.asarray(self.y != self.point, dtype=float)
        return _mean_over_targets((self.y - self.point) ** 2, np.var(self.y, axis=0))

    @property
    def mean_total(self) -> np.ndarray:
        """Total uncertainty of each sample, (n,), a mean over targets in units of their means."""
        return _mean_over_targets(self.total, self.total.mean(0))

    def interval(self, coverage: float) -> np.ndarray:
        """Central interval whose ends are among the quantiles, (..., 2)."""
        ends = np.searchsorted(LEVELS, [(1 - coverage) / 2 - 1e-9, (1 + coverage) / 2 - 1e-9])
        return self.quantiles[..., ends]

    def subset(self, index: np.ndarray) -> Predictions:
        of_samples = {
            name: values[index]
            for name, values in vars(self).items()
            if values is not None and name not in ("classes", "measure")
        }
        return replace(self, **of_samples)


def _mean_over_targets(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Mean over targets, each in units of its scale; of one target the values as they are."""
    if values.ndim == 1:
        return values
    return np.mean(values / np.where(scale > 0, scale, 1), axis=1)


class Quantity(NamedTuple):
    """A number that is computed of a model's predictions, if it has those that it needs."""

    section: str
    name: str
    unit: str
    better: str
    compute: Callable[[Predictions], float]
    needs: str = "point"


def _calibration_error(p: Predictions, classwise: bool) -> float:
    error = metrics.expected_calibration_error
    return error(p.y, p.probabilities, labels=p.classes, classwise=classwise)


_SCORE, _RANKING, _OF_Y = "proper scores", "ranking of errors", "units of y"
# fmt: off
_RATIO = Quantity(_RANKING, "prediction rejection ratio", "", "higher",
                  lambda p: metrics.prediction_rejection_ratio(p.losses, p.mean_total))
CLASSIFICATION = [
    Quantity("accuracy", "accuracy", "", "higher", lambda p: accuracy_score(p.y, p.point)),
    Quantity(_SCORE, "log loss", "nats", "lower",
             lambda p: log_loss(p.y, p.probabilities, labels=p.classes)),
    Quantity(_SCORE, "Brier score", "", "lower",
             lambda p: ((p.probabilities - (p.y[:, None] == p.classes)) ** 2).sum(1).mean()),
    Quantity("calibration", "expected calibration error", "", "lower",
             lambda p: _calibration_error(p, classwise=False)),
    Quantity("calibration", "classwise calibration error", "", "lower",
             lambda p: _calibration_error(p, classwise=True)),
    Quantity(_RANKING, "AURC", "", "lower", lambda p: metrics.aurc(p.losses, p.total)),
    _RATIO,
]
REGRESSION = [
    Quantity("accuracy", "RMSE", _OF_Y, "lower", lambda p: root_mean_squared_error(p.y, p.point)),
    Quantity("accuracy", "R2", "", "higher", lambda p: r2_score(p.y, p.point)),
    Quantity(_SCORE, "NLL of one Gaussian", "nats", "lower",
             lambda p: metrics.gaussian_nll(p.y, p.point, np.sqrt(p.total))),
    Quantity(_SCORE, "NLL of the members' mixture", "nats", "lower",
             lambda p: metrics.mixture_nll(p.y, p.members), "members"),
    Quantity(_SCORE, "CRPS", _OF_Y, "lower", lambda p: metrics.crps(p.y, p.members), "members"),
    Quantity("calibration", "calibration error of quantiles", "", "lower",
             lambda p: metrics.regression_calibration_error(p.y, p.quantiles, LEVELS)),
    Quantity("calibration", "coverage of 50 % intervals", "", "near 0.5",
             lambda p: metrics.interval_coverage(p.y, p.interval(0.5))),
    Quantity("calibration", "coverage of 90 % intervals", "", "near 0.9",
             lambda p: metrics.interval_coverage(p.y, p.interval(0.9))),
    Quantity("calibration", "width of 90 % intervals", _OF_Y, "",
             lambda p: np.ptp(p.interval(0.9), axis=-1).mean()),
    Quantity(_RANKING, "AUSE", "", "lower",
             lambda p: metrics.ause(p.y, p.point, np.sqrt(p.total))),
    _RATIO,
]
# fmt: on


def scores(predictions: dict[str, Predictions], notes: list[str]) -> Iterator[Measurement]:
    """Measure how well each model predicts, with standard errors."""
    of_student = predictions["student"]
    indices = left_out(len(of_student.y))
    parts = {role: [p.subset(index) for index in indices] for role, p in predictions.items()}
    for quantity in REGRESSION if of_student.classes is None else CLASSIFICATION:
        section, name, unit, better, compute, needs = quantity
        able = {role: p for role, p in predictions.items() if getattr(p, needs) is not None}
        try:
            values = {role: float(compute(found)) for role, found in able.items()}
            without = {
                role: np.array([compute(part) for part in parts[role]])
                for role in able
                if role != "reference"
            }
        except ImportError as error:  # of what an optional package computes
            notes.append(f"{name} is left out: {error}.")
            continue
        errors = {}
        if "student" in without:
            errors["student"] = jackknife_error(without["student"])
        if len(without) == 2:
            errors["difference"] = jackknife_error(without["student"] - without["teacher"])
        yield Measurement(section, name, values, unit, better, errors)


def left_out(n_samples: int) -> list[np.ndarray]:
    """Samples that remain when each of some random groups is left out."""
    groups = np.random.default_rng(0).permutation(n_samples) % min(_N_GROUPS, n_samples)
    return [np.flatnonzero(groups != group) for group in np.unique(groups)]


def jackknife_error(values: np.ndarray) -> float:
    """Standard error by the delete-a-group jackknife, of values without each of the groups."""
    return float(np.sqrt((len(values) - 1) * np.var(values)))


def parts_of_uncertainty(predictions: dict[str, Predictions]) -> Iterator[Measurement]:
    """Measure how large the parts of each model's uncertainty are."""
    able = {role: found for role, found in predictions.items() if found.epistemic is not None}
    is_entropy = predictions["student"].measure == "entropy"
    for part in ("total", "aleatoric", "epistemic"):
        known = able if part != "total" else predictions
        means = {role: float(np.mean(getattr(found, part))) for role, found in known.items()}
        if is_entropy:
            yield Measurement("uncertainty", f"mean {part} entropy", means, "nats")
        else:
            roots = {role: value**0.5 for role, value in means.items()}
            name = f"root of the mean {part} variance"
            yield Measurement("uncertainty", name, roots, _OF_Y)
    shares = {
        role: float(np.mean(np.asarray(found.epistemic))) / float(np.mean(found.total))
        for role, found in able.items()
    }
    yield Measurement("uncertainty", "epistemic share of the mean", shares)


def disagreement(halves: Mapping[str, Any] | None) -> Iterator[Measurement]:
    """Compare the disagreement of two fits to halves of a table with their epistemic variances."""
    if halves is None:
        return
    lower, upper = halves["ratio"][:-1], halves["ratio"][-1]
    for quantity, value, better in [
        ("coverage of 90 % intervals of the difference", halves["coverage"], "near 0.9"),
        ("epistemic variance / squared difference", halves["overall"], "near 1"),
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
        table = fidelity(teacher, student, X, y, reference=reference)
    gaps = {"nll_gap": ("NLL", "nats"), "rmse_gap": ("RMSE", _OF_Y)}
    gaps["error_gap"] = ("share of wrong labels", "")
    for other in ("teacher", "reference"):
        columns = {
            role: table[f"{role}_to_{other}"] for role in models if f"{role}_to_{other}" in table
        }
        for key in next(iter(columns.values()), {}):
            values = {role: column[key] for role, column in columns.items() if key in column}
            part, _, measure = key.partition("_")
            if measure == "rank_correlation":
                name = f"rank correlation of the {part} part with the {other}'s"
                yield Measurement("fidelity", name, values, "", "higher")
            elif measure == "median_ratio":
                name = f"median ratio of the {part} part to the {other}'s"
                yield Measurement("fidelity", name, values, "", "near 1")
            elif key in gaps and other == "reference":  # the teacher's stand beside the scores
                name, unit = gaps[key]
                yield Measurement("fidelity", f"{name} less the {other}'s", values, unit, "lower")


def costs(models: dict[str, Any], X: ArrayLike, notes: list[str]) -> Iterator[Measurement]:
    """Measure what each model costs, as far as it can be known."""
    networks = {role: model for role, model in models.items() if has_inside(model, "module_")}
    if others := " and ".join(f"the {role}" for role in models if role not in networks):
        notes.append(
            f"Parameters, operations and training time are those of networks, not {others}'s."
        )

    def training_seconds(model: Any) -> float:
        """Seconds that all epochs of the networks took; NaN if the history does not tell."""
        history = innermost(model, None, "history_", "report")[0].history_
        return sum(epoch.get("dur", np.nan) for epoch in history)

    quantities: list[tuple[str, str, Callable[[Any], float]]] = [
        ("parameters", "", n_parameters),
        ("floating-point operations for a sample", "", lambda model: flops(model, X)),
        ("training of the networks, without teachers", "s", training_seconds),
    ]
    for name, unit, measure in quantities:
        values = {role: float(measure(model)) for role, model in networks.items()}
        known = {role: value for role, value in values.items() if not np.isnan(value)}
        yield Measurement("cost", name, known, unit, "lower")
    sizes = {}
    for role, model in models.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            try:
                save(model, path)
                sizes[role] = float(os.path.getsize(path))
            except TypeError as error:
                notes.append(f"The {role} has no size in a file: {error}")
    yield Measurement("cost", "saved, without teachers", sizes, "bytes", "lower")
    for size in (1, _BATCH):
        name = "one sample" if size == 1 else f"a batch of {size} samples"
        times = {role: latency(model, X, batch_size=size) for role, model in models.items()}
        yield Measurement("latency", f"predict {name}, one thread", times, "s", "lower")
