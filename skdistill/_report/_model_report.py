# SPDX-License-Identifier: BSD-3-Clause
"""A report as values: a frame, or a page, of what was measured once."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._estimator.predicting import as_frame
from .._serialization.container import write_atomically
from .._utils.validation import FilePath


@dataclass(frozen=True)
class Measurement:
    """One quantity, of each model for which it is known."""

    section: str
    quantity: str
    values: dict[str, float]  # by the role of the model, "student", "teacher" or "reference"
    unit: str = ""
    better: str = ""  # "lower", "higher", or what it should be near
    # Standard errors, due to the choice of the samples: of the "student", and of the "difference"
    # of student and teacher.
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def difference(self) -> float | None:
        """Student less teacher; None if one of them is not known."""
        if {"student", "teacher"} <= self.values.keys():
            return self.values["student"] - self.values["teacher"]
        return None


@dataclass(frozen=True)
class Picture:
    """One picture, drawn only when it is asked for."""

    section: str
    title: str
    text: str  # what is to be seen, for those who do not see the picture, too
    draw: Callable[[Any], Any]  # takes matplotlib's axes


@dataclass(frozen=True, eq=False, repr=False)
class ModelReport:
    """What :func:`skdistill.report` has measured, as a table or as a page."""

    title: str  # name of the model
    summary: str  # what it was held against, in a sentence
    facts: dict[str, str]  # of the samples, models, versions and machine
    measurements: list[Measurement]
    pictures: list[Picture]
    notes: list[str]  # what could not be measured, and why

    def __repr__(self) -> str:
        return f"<ModelReport of {self.title} on {self.facts['rows']} samples>"

    def to_frame(self) -> Any:
        """Return all numbers as a table, with a row for each quantity."""
        rows = self.measurements
        text = {
            name: np.array([getattr(row, name) for row in rows], dtype=object)
            for name in ("section", "quantity", "unit", "better")
        }
        numbers = {
            "student": [row.values.get("student") for row in rows],
            "student_error": [row.errors.get("student") for row in rows],
            "teacher": [row.values.get("teacher") for row in rows],
            "difference": [row.difference for row in rows],
            "difference_error": [row.errors.get("difference") for row in rows],
            "reference": [row.values.get("reference") for row in rows],
        }
        columns = {name: np.array(found, dtype=float) for name, found in numbers.items()}
        return as_frame({**text, **columns}, None)

    def to_html(self) -> str:
        """Return the report as a page that needs nothing else: no file, no network, no script."""
        from ._page import html_of

        return html_of(self, whole=True)

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file, such as ``"report.html"``, whole or not at all."""
        FilePath().check(path, "path")
        write_atomically(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        """Body of the page, for notebooks."""
        from ._page import html_of

        return html_of(self, whole=False)
