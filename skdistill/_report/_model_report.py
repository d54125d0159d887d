# SPDX-License-Identifier: BSD-3-Clause
"""A report as values: a frame, or a page, of what was measured once."""

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
        return f"<ModelReport of {self.title} on {self.facts['samples']} samples>"

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
        return self._page(whole=True)

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file, such as ``"report.html"``, whole or not at all."""
        FilePath().check(path, "path")
        write_atomically(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        return self._page(whole=False)

    def _page(self, whole: bool) -> str:
        """The whole page, or its body with its style, which can stand in a notebook."""
        from jinja2 import Environment, PackageLoader  # not needed without a page

        from .. import displays

        templates = Environment(loader=PackageLoader("skdistill", "_report"), autoescape=True)
        return templates.get_template("page.html").render(
            report=self,
            whole=whole,
            chapter=self._chapter,
            picture_size=displays.PICTURE_SIZE,
            png_of=lambda picture: base64.b64encode(
                displays.png_of(picture.draw, "ModelReport.to_html")
            ).decode(),
        )

    def _chapter(self, sections: tuple[str, ...]) -> dict[str, Any]:
        """Pictures of sections, and their table, which has a row for each measurement."""
        found = [m for m in self.measurements if m.section in sections]
        roles = ("student", "teacher", "reference")
        columns = [role for role in roles if any(role in m.values for m in found)]
        if "fidelity" not in sections and any(m.difference is not None for m in found):
            columns.insert(2, _RATIO if "cost" in sections else _DIFFERENCE)
        rows = []
        for m in found:
            better = f"{m.better} is better" if m.better in ("lower", "higher") else m.better
            unit = "" if m.unit in ("s", "bytes") else m.unit
            about = ", ".join(filter(None, (unit, better)))
            cells = [_cell(m, column) for column in columns]
            rows.append({"quantity": m.quantity, "about": about, "cells": cells})
        pictures = [picture for picture in self.pictures if picture.section in sections]
        return {"columns": columns, "rows": rows, "pictures": pictures}


# Columns that compare; costs and latencies by their ratio.
_RATIO, _DIFFERENCE = "student / teacher", "student − teacher"


class _Cell(NamedTuple):
    text: str = "–"
    error: str = ""
    verdict: str = ""  # "better", "worse" or neither, where a difference is beyond chance


def _cell(measurement: Measurement, column: str) -> _Cell:
    values, difference = measurement.values, measurement.difference
    error = measurement.errors.get("difference" if column == _DIFFERENCE else column)
    about_error = "" if error is None else f"± {error:.2g}"
    if column in values:
        return _Cell(_text_of(values[column], measurement.unit), about_error)
    if column == _RATIO and difference is not None and values["teacher"]:
        return _Cell(f"{values['student'] / values['teacher']:.3g}")
    if column != _DIFFERENCE or difference is None:
        return _Cell()
    verdict = ""
    is_clear = error is not None and abs(difference) > 2 * error
    if is_clear and measurement.better in ("lower", "higher"):
        is_better = (difference < 0) == (measurement.better == "lower")
        verdict = "better" if is_better else "worse"
    return _Cell(f"{difference:+.2g}".replace("-", "−"), about_error, verdict)


def _text_of(value: float, unit: str) -> str:
    """Return a number with three digits; of seconds and bytes with a fitting unit."""
    if unit == "s":
        return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 1e3:,.3g} kB" if value < 1e6 else f"{value / 1e6:,.3g} MB"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")
