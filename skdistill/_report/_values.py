# SPDX-License-Identifier: BSD-3-Clause
"""What a report is made of: numbers, and pictures that are drawn when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One quantity, of each model for which it is known.

    Parameters
    ----------
    section : str
        Of the report.
    quantity : str
    values : dict of str to float
        By the role of the model, "student", "teacher" or "reference".
    unit : str, default=""
    better : str, default=""
        "lower", "higher", or what it should be near; empty where neither is better.
    errors : dict of str to float, default={}
        Standard errors, due to the choice of the rows: of the "student", and of the "difference" of
        student and teacher.
    """

    section: str
    quantity: str
    values: dict[str, float]
    unit: str = ""
    better: str = ""
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def difference(self) -> float | None:
        """Student less teacher; None if one of them is not known."""
        if {"student", "teacher"} <= self.values.keys():
            return self.values["student"] - self.values["teacher"]
        return None


@dataclass(frozen=True)
class Picture:
    """One picture, drawn only when it is asked for.

    Parameters
    ----------
    section : str
        Of the report.
    title : str
    text : str
        What is to be seen, for those who do not see the picture, too.
    draw : callable
        ``draw(ax)`` draws it on matplotlib's axes.
    """

    section: str
    title: str
    text: str
    draw: Callable[[Any], Any]
