# SPDX-License-Identifier: BSD-3-Clause
"""What a report is made of: numbers, and pictures that are drawn when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One quantity, of each model for which it is known."""

    section: str
    quantity: str
    values: dict[str, float]  # by the role of the model, "student", "teacher" or "reference"
    unit: str = ""
    better: str = ""  # "lower", "higher", or what it should be near
    # Standard errors, due to the choice of the rows: of the "student", and of the "difference" of
    # student and teacher.
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
