# SPDX-License-Identifier: BSD-3-Clause
"""What one model says of the rows, and what is scored of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from .._estimator.functions import predict_members, predict_quantiles, predict_uncertainty
from .._estimator.unwrapping import has_inside, has_members
from ..distributions import EmpiricalGaussian, Uncertainty
from ..metrics import (
    aurc,
    ause,
    brier_score,
    crps,
    expected_calibration_error,
    gaussian_nll,
    interval_coverage,
    interval_score,
    interval_width,
    mixture_nll,
    prediction_rejection_ratio,
    regression_calibration_error,
)

# Quantiles of numbers: 0.05, 0.1, ..., 0.95, as displays draw them.
LEVELS = np.linspace(0.05, 0.95, 19)

# Groups of rows, each of which is left out once, for standard errors.
_N_GROUPS = 20


@dataclass(frozen=True)
class Answers:
    """Predictions of one model for the rows; all of them arrays with a row for each.

    Parameters
    ----------
    y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        What is true of the rows.
    point : ndarray of the shape of `y`
        Predicted labels, or means.
    total : ndarray of the shape of `y`
        Total uncertainty.
    aleatoric, epistemic : ndarray of the shape of `y` or None
        Its parts.
    probabilities : ndarray of shape (n_samples, n_classes) or None
        Of a classifier.
    quantiles : ndarray of shape (n_samples, n_levels) or (n_samples, n_targets, n_levels) or None
        Of a regressor, at ``LEVELS``.
    members : ndarray of shape (n_samples, n_members, n_targets, 2) or None
        Of a regressor that has members.
    classes : ndarray of shape (n_classes,) or None
        Labels of the columns of `probabilities`.
    measure : str
        Of the uncertainty.
    """

    y: np.ndarray
    point: np.ndarray
    total: np.ndarray
    aleatoric: np.ndarray | None
    epistemic: np.ndarray | None
    # Known where they are asked for: "| Any" spares a check that they are not None.
    probabilities: np.ndarray | Any
    quantiles: np.ndarray | Any
    members: np.ndarray | Any
    classes: np.ndarray | None
    measure: str

    @classmethod
    def of(cls, model: Any, X: Any, y: np.ndarray) -> Answers:
        """Predict the rows with a model."""
        total, aleatoric, epistemic = uncertainty = predict_uncertainty(model, X)
        found: dict[str, Any] = {
            "y": y,
            "point": np.asarray(model.predict(X)),
            "measure": uncertainty.measure,
        }
        found |= {"total": total, "aleatoric": aleatoric, "epistemic": epistemic}
        if is_classifier(model):
            of_kind: dict[str, Any] = {
                "probabilities": model.predict_proba(X),
                "classes": model.classes_,
            }
            return cls(**found, **of_kind, quantiles=None, members=None)
        members = predict_members(model, X) if has_members(model) else None
        quantiles = _quantiles(model, X, members)
        return cls(**found, quantiles=quantiles, members=members, probabilities=None, classes=None)

    @property
    def uncertainty(self) -> Uncertainty:
        return Uncertainty(self.total, self.aleatoric, self.epistemic, self.measure)

    @property
    def losses(self) -> np.ndarray:
        """Error of each row, (n,): 0 or 1, or the squared one, in variances of each target."""
        if self.classes is not None:
            return np.asarray(self.y != self.point, dtype=float)
        return _one_number_a_row((self.y - self.point) ** 2, np.var(self.y, axis=0))

    @property
    def least_known(self) -> tuple[str, np.ndarray]:
        """The epistemic part of each row, (n,), or the total where it is not known; and which."""
        part = "total" if self.epistemic is None else "epistemic"
        values = np.asarray(getattr(self, part))
        return part, _one_number_a_row(values, values.mean(axis=0))

    def interval(self, coverage: float) -> np.ndarray:
        """Central interval whose ends are among the quantiles, (..., 2)."""
        ends = np.searchsorted(LEVELS, [(1 - coverage) / 2 - 1e-9, (1 + coverage) / 2 - 1e-9])
        return self.quantiles[..., ends]

    def rows(self, index: np.ndarray) -> Answers:
        """Those for some of the rows."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        whole = {"classes", "measure"}
        return replace(
            self,
            **{
                name: values[index]
                for name, values in arrays.items()
                if values is not None and name not in whole
            },
        )


def _quantiles(model: Any, X: Any, members: np.ndarray | None) -> np.ndarray | None:
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


def _coverage(share: float, answers: Answers) -> float:
    return interval_coverage(answers.y, answers.interval(share))


_RANKING = [
    Quantity(
        "ranking of errors",
        "prediction rejection ratio",
        "",
        "higher",
        lambda a: prediction_rejection_ratio(a.losses, _one_number_a_row(a.total, a.total.mean(0))),
    ),
]

OF_CLASSES = [
    Quantity("accuracy", "accuracy", "", "higher", lambda a: accuracy_score(a.y, a.point)),
    Quantity(
        "proper scores",
        "log loss",
        "nats",
        "lower",
        lambda a: log_loss(a.y, a.probabilities, labels=a.classes),
    ),
    Quantity(
        "proper scores",
        "Brier score",
        "",
        "lower",
        lambda a: brier_score(a.y, a.probabilities, labels=a.classes),
    ),
    Quantity(
        "calibration",
        "expected calibration error",
        "",
        "lower",
        lambda a: expected_calibration_error(a.y, a.probabilities, labels=a.classes),
    ),
    Quantity(
        "calibration",
        "classwise calibration error",
        "",
        "lower",
        lambda a: expected_calibration_error(
            a.y, a.probabilities, labels=a.classes, classwise=True
        ),
    ),
    Quantity("ranking of errors", "AURC", "", "lower", lambda a: aurc(a.losses, a.total)),
    *_RANKING,
]

OF_NUMBERS = [
    Quantity(
        "accuracy", "RMSE", "units of y", "lower", lambda a: root_mean_squared_error(a.y, a.point)
    ),
    Quantity("accuracy", "R2", "", "higher", lambda a: r2_score(a.y, a.point)),
    Quantity(
        "proper scores",
        "NLL of one Gaussian",
        "nats",
        "lower",
        lambda a: gaussian_nll(a.y, a.point, np.sqrt(a.total)),
    ),
    Quantity(
        "proper scores",
        "interval score, 90 %",
        "units of y",
        "lower",
        lambda a: interval_score(a.y, a.interval(0.9), coverage=0.9),
    ),
    Quantity(
        "calibration",
        "calibration error of quantiles",
        "",
        "lower",
        lambda a: regression_calibration_error(a.y, a.quantiles, LEVELS),
    ),
    Quantity("calibration", "coverage of 50 % intervals", "", "near 0.5", partial(_coverage, 0.5)),
    Quantity("calibration", "coverage of 90 % intervals", "", "near 0.9", partial(_coverage, 0.9)),
    Quantity(
        "calibration",
        "width of 90 % intervals",
        "units of y",
        "",
        lambda a: interval_width(a.interval(0.9)),
    ),
    Quantity(
        "ranking of errors", "AUSE", "", "lower", lambda a: ause(a.y, a.point, np.sqrt(a.total))
    ),
    *_RANKING,
]

# Of regressors that have members.
OF_MEMBERS = [
    Quantity(
        "proper scores",
        "NLL of the members' mixture",
        "nats",
        "lower",
        lambda a: mixture_nll(a.y, a.members),
    ),
    Quantity("proper scores", "CRPS", "units of y", "lower", lambda a: crps(a.y, a.members)),
]


def left_out(n_rows: int) -> list[np.ndarray]:
    """Rows that remain when each of some random groups is left out."""
    groups = np.random.default_rng(0).permutation(n_rows) % min(_N_GROUPS, n_rows)
    return [np.flatnonzero(groups != group) for group in np.unique(groups)]


def jackknife_error(values: np.ndarray) -> float:
    """Standard error by the delete-a-group jackknife, of values without each of the groups."""
    return float(np.sqrt((len(values) - 1) * np.var(values)))
