# SPDX-License-Identifier: BSD-3-Clause
"""What one model says of the samples, and what is scored of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from .. import metrics
from .._estimator.functions import predict_members, predict_quantiles, predict_uncertainty
from .._estimator.unwrapping import has_inside, has_members
from ..distributions import EmpiricalGaussian

# Quantiles of numbers: 0.05, 0.1, ..., 0.95, as displays draw them.
LEVELS = np.linspace(0.05, 0.95, 19)

# Groups of samples, each of which is left out once, for standard errors.
_N_GROUPS = 20


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
        return replace(found, quantiles=_quantiles(model, X, members), members=members)

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
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        of_rows = {
            name: values[index]
            for name, values in arrays.items()
            if values is not None and name not in ("classes", "measure")
        }
        return replace(self, **of_rows)


def _quantiles(model: BaseEstimator, X: ArrayLike, members: np.ndarray | None) -> np.ndarray | None:
    """Predict quantiles, with members where the model has no method for them."""
    if members is None or has_inside(model, "predict_quantiles"):
        return predict_quantiles(model, X, LEVELS)
    found = EmpiricalGaussian.from_members(members).quantile(LEVELS.tolist()).numpy()
    return found[:, 0] if found.shape[1] == 1 else found


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


def _rejection_ratio(a: Answers) -> float:
    return metrics.prediction_rejection_ratio(a.losses, _one_number_a_row(a.total, a.total.mean(0)))


_SCORE, _RANKING = "proper scores", "ranking of errors"
_RATIO = Quantity(_RANKING, "prediction rejection ratio", "", "higher", _rejection_ratio)
_ECE, _CLASSWISE = "expected calibration error", "classwise calibration error"

OF_CLASSES = [
    Quantity("accuracy", "accuracy", "", "higher", _by(accuracy_score, "point")),
    Quantity(_SCORE, "log loss", "nats", "lower", _by_class(log_loss)),
    Quantity(_SCORE, "Brier score", "", "lower", _by_class(metrics.brier_score)),
    Quantity("calibration", _ECE, "", "lower", _by_class(metrics.expected_calibration_error)),
    Quantity(
        *("calibration", _CLASSWISE, "", "lower"),
        _by_class(metrics.expected_calibration_error, classwise=True),
    ),
    Quantity(_RANKING, "AURC", "", "lower", lambda a: metrics.aurc(a.losses, a.total)),
    _RATIO,
]

OF_NUMBERS = [
    Quantity("accuracy", "RMSE", "units of y", "lower", _by(root_mean_squared_error, "point")),
    Quantity("accuracy", "R2", "", "higher", _by(r2_score, "point")),
    Quantity(
        _SCORE, "NLL of one Gaussian", "nats", "lower", _by(metrics.gaussian_nll, "point", "std")
    ),
    Quantity(
        *(_SCORE, "interval score, 90 %", "units of y", "lower"),
        lambda a: metrics.interval_score(a.y, a.interval(0.9), coverage=0.9),
    ),
    Quantity(
        *("calibration", "calibration error of quantiles", "", "lower"),
        _by(metrics.regression_calibration_error, "quantiles", quantiles=LEVELS),
    ),
    Quantity("calibration", "coverage of 50 % intervals", "", "near 0.5", _coverage(0.5)),
    Quantity("calibration", "coverage of 90 % intervals", "", "near 0.9", _coverage(0.9)),
    Quantity(
        *("calibration", "width of 90 % intervals", "units of y", ""),
        lambda a: metrics.interval_width(a.interval(0.9)),
    ),
    Quantity(_RANKING, "AUSE", "", "lower", _by(metrics.ause, "point", "std")),
    _RATIO,
]

# Of regressors that have members.
OF_MEMBERS = [
    Quantity(
        _SCORE, "NLL of the members' mixture", "nats", "lower", _by(metrics.mixture_nll, "members")
    ),
    Quantity(_SCORE, "CRPS", "units of y", "lower", _by(metrics.crps, "members")),
]


def left_out(n_rows: int) -> list[np.ndarray]:
    """Samples that remain when each of some random groups is left out."""
    groups = np.random.default_rng(0).permutation(n_rows) % min(_N_GROUPS, n_rows)
    return [np.flatnonzero(groups != group) for group in np.unique(groups)]


def jackknife_error(values: np.ndarray) -> float:
    """Standard error by the delete-a-group jackknife, of values without each of the groups."""
    return float(np.sqrt((len(values) - 1) * np.var(values)))
