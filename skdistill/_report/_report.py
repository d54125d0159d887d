# SPDX-License-Identifier: BSD-3-Clause
"""The report: measured once, then a frame or a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._archive import LIBRARIES
from .._files import write_atomically
from .._meta_estimators import final_step, has_inside, inside
from .._read_offs import as_frame
from .._rules import FilePath, errors_about
from ._answers import Answers
from ._figures import Picture, of_agreement, of_profiles, of_scores
from ._measurements import (
    Measurement,
    agreement,
    costs,
    explained,
    parts_of_uncertainty,
    profiles,
    scores,
)
from ._page import body, page, text_of

# Fewer rows say nothing of calibration, nor of groups of rows.
_LEAST_ROWS = 20

# What stands at the top of the page: what it is called there, and the quantities it may be; the
# first that was measured is taken.
_TILES = [
    ("Accuracy", ("accuracy",)),
    ("RMSE", ("RMSE",)),
    ("Log loss, nats", ("log loss",)),
    ("NLL, nats", ("NLL of one Gaussian",)),
    ("Calibration error", ("expected calibration error",)),
    ("90 % intervals cover", ("coverage of 90 % intervals",)),
    (
        "Epistemic rank correlation",
        (
            "rank correlation of the epistemic part with the teacher's",
            "rank correlation of the epistemic part with the reference's",
        ),
    ),
    ("Parameters", ("parameters",)),
    ("Latency of one row", ("predict one row, one thread",)),
]


@dataclass(frozen=True, eq=False, repr=False)
class ModelReport:
    """What :func:`report` has measured, as a table or as a page.

    Parameters
    ----------
    title : str
        Name of the model.
    summary : str
        What it was held against, in a sentence.
    facts : dict of str to str
        Of the rows, models, versions and machine.
    measurements : list of Measurement
        Each with `section`, `quantity`, `values` by the role of the model, `unit`, `better` and
        standard `errors`.
    pictures : list of Picture
        Each with `section`, `title`, `text` and ``draw(ax)``, which draws it on matplotlib's axes.
    notes : list of str
        What could not be measured, and why.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier, report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianEnsembleClassifier(3, max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> found = report(model, X[1::2], y[1::2])
    >>> found
    <ModelReport of BayesianEnsembleClassifier on 75 rows>
    >>> frame = found.to_frame()
    >>> bool(frame.loc[frame.quantity == "accuracy", "student"].item() > 0.8)
    True
    """

    title: str
    summary: str
    facts: dict[str, str]
    measurements: list[Measurement]
    pictures: list[Picture]
    notes: list[str]

    def __repr__(self) -> str:
        return f"<ModelReport of {self.title} on {self.facts['rows']} rows>"

    def to_frame(self):
        """Return all numbers as a table.

        Returns
        -------
        frame : DataFrame
            Of pandas, or of what ``sklearn.set_config(transform_output=...)`` names, with a row for
            each quantity and the columns ``section``, ``quantity``, ``unit``, ``better``,
            ``student``, ``student_error`` (its standard error), ``teacher``, ``difference``
            (student less teacher), ``difference_error`` and ``reference``. NaN is what is not
            known.
        """
        rows = self.measurements
        text = {
            name: np.array([getattr(row, name) for row in rows], dtype=object)
            for name in ("section", "quantity", "unit", "better")
        }
        differences = [row.difference for row in rows]
        return as_frame(
            {
                **text,
                "student": _column(row.values.get("student") for row in rows),
                "student_error": _column(row.errors.get("student") for row in rows),
                "teacher": _column(row.values.get("teacher") for row in rows),
                "difference": _column(differences),
                "difference_error": _column(row.errors.get("difference") for row in rows),
                "reference": _column(row.values.get("reference") for row in rows),
            },
            None,
        )

    def to_html(self) -> str:
        """Return the report as a page that needs nothing else: no file, no network, no script.

        Returns
        -------
        html : str
            A whole document.

        Raises
        ------
        ImportError
            If matplotlib is not installed: ``pip install skdistill[plot]``.
        """
        return page(f"{self.title}: report", self._repr_html_())

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file.

        Parameters
        ----------
        path : str or os.PathLike
            Of the file, such as ``"report.html"``. It is written whole or not at all.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        OSError
            If the file cannot be written.
        """
        FilePath().check(path, "path")
        write_atomically(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        """Body of the page, for notebooks."""
        about = (self.title, self.summary, self.facts, list(self._tiles()))
        return body(*about, self.measurements, self.pictures, self.notes)

    def _tiles(self) -> Iterator[tuple[str, str, str]]:
        """Label, value and what it is beside, of the numbers that matter most."""
        found = {measurement.quantity: measurement for measurement in self.measurements}
        for label, names in _TILES:
            known = [found[name] for name in names if "student" in found.get(name, _NONE).values]
            if known:
                yield label, *_value_and_context(known[0])


_NONE = Measurement("", "", {})


def _value_and_context(measurement: Measurement) -> tuple[str, str]:
    value, unit = measurement.values["student"], measurement.unit
    text = text_of(value, unit)
    if measurement.section == "fidelity":
        return text, measurement.quantity.partition(" with ")[2].join(["with ", ""])
    if measurement.quantity.startswith("coverage"):
        return f"{value:.1%}".replace("%", " %"), "should be 90 %"
    if "teacher" in measurement.values:
        return text, f"teacher {text_of(measurement.values['teacher'], unit)}"
    error = measurement.errors.get("student")
    return text, "" if error is None else f"± {error:.2g}"


def _column(values: Any) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def report(student, X, y, teacher=None, reference=None, *, feature_names=None) -> ModelReport:
    """Measure a fitted model on held-out rows, and make one page of it.

    The page has accuracy, proper scores, calibration, whether the uncertain rows are those with
    large errors, where the model knows least, how it follows its teacher, what it costs and how
    fast it is, with pictures. It opens offline, on a phone, and in a notebook.

    Where the model knows least is told by :func:`skdistill.metrics.uncertainty_profile`: for each
    column, the share of the variance of the ranks of the epistemic part (of the total, if the model
    cannot tell its parts) that lies between groups of rows with like values in it. The columns that
    explain most are drawn.

    Parameters
    ----------
    student : estimator
        Fitted classifier or regressor of this package, an ensemble as well, or a Pipeline, search,
        FrozenEstimator or TransformedTargetRegressor around one.
    X : array-like of shape (n_samples, ...)
        Rows, at least 20, that neither the student nor its teacher has seen; more tell more.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Labels or targets.
    teacher : estimator, default=None
        What the student is held against, likewise. None is the student's own `teacher_`, if it
        still has it: one that was loaded from a file has it no longer.
    reference : estimator, default=None
        An independent, larger ensemble of the teacher's kind, as in
        :func:`skdistill.metrics.fidelity`. The epistemic part of a teacher with few members is
        itself an estimate; how the teacher follows the reference is what a perfect imitation would
        reach, and a student above it knows the larger ensemble better than its teacher does.
    feature_names : array-like of str of shape (n_features,), default=None
        Names of the columns. None takes those of a DataFrame, and numbers else.

    Returns
    -------
    report : ModelReport
        With ``to_frame()``, ``to_html()`` and ``save(path)``; a notebook shows it.

    Raises
    ------
    TypeError
        If `student`, `teacher` or `reference` predicts no uncertainty.
    ValueError
        If there are too few rows, `y` does not go with `X` or with the student, or
        `feature_names` not with the columns.

    See Also
    --------
    skdistill.metrics.fidelity : More ways of comparing a student with its teacher.

    Notes
    -----
    Standard errors are by the jackknife that leaves out each twentieth of the rows in turn. They
    tell what other rows would change, and not what another fit would.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, report
    >>> X, y = load_diabetes(return_X_y=True)
    >>> teacher = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> student = HydraPlusRegressor(teacher, max_epochs=5, random_state=0).fit(X[:300], y[:300])
    >>> report(student, X[300:], y[300:])
    <ModelReport of HydraPlusRegressor on 142 rows>
    """
    notes: list[str] = []
    models = _models(student, teacher, reference, notes)
    y = _check_rows(student, X, y)
    names = _feature_names(X, feature_names)
    answers = {role: Answers.of(model, X, y) for role, model in models.items()}
    part, unit = answers["student"].least_known[0], _unit(answers["student"])
    found = profiles(answers, X, names) if names else {}
    if not names:
        notes.append("Where the model knows least is told for tables only, rows of one dimension.")
    measured = [
        *scores(answers, notes),
        *explained(found, part),
        *parts_of_uncertainty(answers),
        *agreement(models, X, y),
        *costs(models, X, notes),
    ]
    measurements = [measurement for measurement in measured if measurement.values]
    pictures = [*of_scores(answers), *of_profiles(found, part, unit), *of_agreement(answers)]
    title = type(final_step(student)[0]).__name__
    summary = _summary(models, len(y))
    return ModelReport(title, summary, _facts(models, X, y), measurements, pictures, notes)


def _unit(answers: Answers) -> str:
    """Unit of what is least known, a number a row."""
    if answers.total.ndim == 2:
        return "relative to its mean"
    return {"entropy": "nats", "variance": "squared units of y"}[answers.measure]


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


def _own_teacher(model: Any) -> Any:
    """The teacher that a student holds, with the steps of a Pipeline before it; None without."""
    if hasattr(model, "teacher_"):
        return model.teacher_ if has_inside(model.teacher_, "predict_uncertainty") else None
    inner = inside(model, fitted=True)
    teacher = None if inner is None else _own_teacher(inner)
    if teacher is not None and isinstance(model, Pipeline):
        return Pipeline([*model.steps[:-1], ("teacher", teacher)])
    return teacher


def _check_rows(student: Any, X: Any, y: Any) -> np.ndarray:
    """Return y as an array that goes with X and with the student."""
    with errors_about("X and y"):
        check_consistent_length(X, y)
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if len(y) < _LEAST_ROWS:
        raise ValueError(f"X must have at least {_LEAST_ROWS} rows for a report, got {len(y)}.")
    if is_classifier(student):
        unknown = set(y.tolist()) - set(student.classes_.tolist())
        if unknown:
            raise ValueError(
                f"y must hold classes that the student knows, {student.classes_.tolist()}, got "
                f"{sorted(unknown, key=repr)[:5]}."
            )
    return y


def _feature_names(X: Any, given: Any) -> list[str]:
    """Names of the columns of X; none for rows that are no table."""
    if len(np.shape(X)) != 2:
        return []
    n_columns = np.shape(X)[1]
    if given is None:
        given = getattr(X, "columns", [f"feature {i}" for i in range(n_columns)])
    names = [str(name) for name in given]
    if len(names) != n_columns or len(set(names)) != n_columns:
        raise ValueError(
            f"feature_names must hold {n_columns} different names, one for each column of X, got "
            f"{len(set(names))} in {len(names)}."
        )
    return names


def _summary(models: dict[str, Any], n_rows: int) -> str:
    names = {role: type(final_step(model)[0]).__name__ for role, model in models.items()}
    text = f"Measured on {n_rows:,} rows"
    if "teacher" in names:
        text += f", beside its teacher, {names['teacher']}"
    if "reference" in names:
        text += f", and a reference, {names['reference']}"
    return text + "."


def _facts(models: dict[str, Any], X: Any, y: np.ndarray) -> dict[str, str]:
    shape = " × ".join(f"{size:,}" for size in np.shape(X)[1:])
    about = {"rows": f"{len(y):,}", "columns" if len(np.shape(X)) == 2 else "shape of a row": shape}
    if y.ndim == 2:
        about["targets"] = f"{y.shape[1]:,}; numbers are means over them, pictures of single rows "
        about["targets"] += "show the first"
    about |= {role: _words_for(model) for role, model in models.items()}
    return {
        **about,
        "date": date.today().isoformat(),
        "machine": f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name, version in LIBRARIES.items()),
    }


def _words_for(model: Any) -> str:
    """A model as its author wrote it, in one line of bounded length."""
    text = " ".join(repr(model).split())
    return text if len(text) <= 300 else text[:299] + "…"
