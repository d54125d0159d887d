# SPDX-License-Identifier: BSD-3-Clause
"""What the parameters of estimators may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_scalar


class Number(NamedTuple):
    """A number between bounds, or one of `others`; `closed` says which bounds are allowed."""

    kind: type
    low: float | None = None
    high: float | None = None
    closed: str = "both"
    others: tuple = ()

    def check(self, value: Any, name: str) -> None:
        if any(type(value) is type(other) and value == other for other in self.others):
            return
        alternatives = "".join(f", or {other!r}" for other in self.others)
        if isinstance(value, bool) or not isinstance(value, self.kind) or value != value:
            kind = "an integer" if self.kind is Integral else "a number"
            raise TypeError(f"{name} must be {kind}{alternatives}, got {value!r}.")
        if value in (np.inf, -np.inf):
            raise ValueError(f"{name} must be finite{alternatives}, got {value!r}.")
        check_scalar(
            value,
            name,
            self.kind,
            min_val=self.low,
            max_val=self.high,
            include_boundaries=self.closed,
        )


class OneOf(NamedTuple):
    """One of a few values."""

    values: tuple

    def check(self, value: Any, name: str) -> None:
        if not any(value is option or value == option for option in self.values):
            raise ValueError(f"{name} must be one of {list(self.values)}, got {value!r}.")


class ClassWeight:
    """Weights of classes: a dict of numbers that are not negative, "balanced" or None."""

    def check(self, value: Any, name: str) -> None:
        if value is None or (isinstance(value, str) and value == "balanced"):
            return
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a dict, 'balanced' or None, got {value!r}.")
        for label, weight in value.items():
            Number(Real, 0).check(weight, f"{name}[{label!r}]")
