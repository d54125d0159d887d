# SPDX-License-Identifier: BSD-3-Clause
"""A report as values: a frame, or a page, of what was measured once."""

import base64
import io
import os
from collections.abc import Callable, Iterator
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

        def base64_of(picture: Picture) -> str:
            """Return a PNG, not in pyplot's list of figures."""
            try:
                from matplotlib import rc_context
                from matplotlib.figure import Figure
            except ImportError as error:
                wanted = "ModelReport.to_html needs matplotlib: pip install skdistill[plot]"
                raise ImportError(wanted) from error
            with rc_context(rc={"font.size": 10.0}):  # whatever style the user's session has
                figure, content = Figure(_SIZE, layout="constrained"), io.BytesIO()
                picture.draw(figure.subplots())
                figure.savefig(content, format="png", dpi=_DPI)
            return base64.b64encode(content.getvalue()).decode()

        templates = Environment(loader=PackageLoader("skdistill", "_report"), autoescape=True)
        chapters = [
            _chapter(self, heading, about, sections)
            for heading, about, sections in _CHAPTERS
            if any(measurement.section in sections for measurement in self.measurements)
        ]
        return templates.get_template("page.html").render(
            report=self,
            whole=whole,
            tiles=list(_tiles(self.measurements)),
            chapters=chapters,
            picture_size=[round(inches * _PAGE_DPI) for inches in _SIZE],
            base64_of=base64_of,
        )


# Chapters of the page, what they are about, and the sections of measurements and pictures in them.
_CHAPTERS = [
    (
        "Accuracy and proper scores",
        "A proper score judges the whole predicted distribution; no other prediction than the true "
        "distribution has a better expected one.",
        ("accuracy", "proper scores"),
    ),
    (
        "Calibration",
        "Of what is predicted with some probability, should so much come true?",
        ("calibration",),
    ),
    (
        "Ranking of errors",
        "Samples are ordered by their total uncertainty. The rejection ratio is 1 if the most "
        "uncertain samples are those with the largest errors, 0 for a random order.",
        ("ranking of errors",),
    ),
    (
        "Parts of the uncertainty",
        "Aleatoric uncertainty is noise in the data; epistemic is what the model does not know, "
        "and more samples reduce.",
        ("uncertainty",),
    ),
    (
        "Disagreement of two halves",
        "Two clones were fitted to disjoint samples, and predicted others. If the epistemic "
        "variance is right, the squared difference of their means is the sum of the two, on "
        "average. The bias that both share is not seen.",
        ("halves",),
    ),
    (
        "Fidelity",
        "Agreement of the student's uncertainty with that of the others, sample by sample. With a "
        "reference, a larger ensemble, the teacher's own number is what a perfect imitation would "
        "reach.",
        ("fidelity",),
    ),
    (
        "Cost and latency",
        "Latencies are medians of calls of predict on this machine, validation of X included.",
        ("cost", "latency"),
    ),
]

# At the top of the page: labels, and the quantities of which the first that is known stands there.
_OF_EPISTEMIC = "rank correlation of the epistemic part with the {}'s"
_TILES = [
    ("Accuracy", ["accuracy"]),
    ("RMSE", ["RMSE"]),
    ("Log loss, nats", ["log loss"]),
    ("NLL, nats", ["NLL of one Gaussian"]),
    ("Calibration error", ["expected calibration error"]),
    ("90 % intervals cover", ["coverage of 90 % intervals"]),
    ("Epistemic rank correlation", list(map(_OF_EPISTEMIC.format, ("teacher", "reference")))),
    ("Parameters", ["parameters"]),
    ("Latency of one sample", ["predict one sample, one thread"]),
]

# Columns that compare; costs and latencies by their ratio.
_RATIO, _DIFFERENCE = "student / teacher", "student − teacher"

_SIZE, _DPI, _PAGE_DPI = (4.6, 3.7), 160, 96  # inches; pixels an inch of a picture, of the page


def _tiles(measurements: list[Measurement]) -> Iterator[tuple[str, str, str]]:
    """Label, value and what it is beside, of the numbers that matter most."""
    found = {m.quantity: m for m in measurements if "student" in m.values}
    for label, names in _TILES:
        known = [found[name] for name in names if name in found]
        if not known:
            continue
        values, unit = known[0].values, known[0].unit
        text, error = _text_of(values["student"], unit), known[0].errors.get("student")
        if known[0].section == "fidelity":
            yield label, text, "with " + known[0].quantity.partition(" with ")[2]
        elif known[0].quantity.startswith("coverage"):
            yield label, f"{100 * values['student']:.1f} %", "should be 90 %"
        elif "teacher" in values:
            yield label, text, f"teacher {_text_of(values['teacher'], unit)}"
        else:
            yield label, text, "" if error is None else f"± {error:.2g}"


def _chapter(report: Any, heading: str, about: str, sections: tuple[str, ...]) -> dict[str, object]:
    """Texts and pictures of a chapter, whose table has a row for each measurement."""
    found = [m for m in report.measurements if m.section in sections]
    roles = ("student", "teacher", "reference")
    columns = [role for role in roles if any(role in m.values for m in found)]
    if "fidelity" not in sections and any(m.difference is not None for m in found):
        columns.insert(2, _RATIO if "cost" in sections else _DIFFERENCE)
    rows = []
    for m in found:
        better = f"{m.better} is better" if m.better in ("lower", "higher") else m.better
        unit = "" if m.unit in ("s", "bytes") else m.unit
        about_row = ", ".join(filter(None, (unit, better)))
        cells = [_cell(m, column) for column in columns]
        rows.append({"quantity": m.quantity, "about": about_row, "cells": cells})
    pictures = [picture for picture in report.pictures if picture.section in sections]
    texts = {"heading": heading, "about": about}
    return {**texts, "columns": columns, "rows": rows, "pictures": pictures}


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
