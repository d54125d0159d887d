# SPDX-License-Identifier: BSD-3-Clause
"""What the parameters of estimators may be."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from ._settings import check_kind

_PLAIN = (str, int, float, np.bool_)


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
        kind = "an integer" if self.kind is Integral else "a number"
        check_kind(value, self.kind, f"{name} must be {kind}{alternatives}")
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
        is_plain = isinstance(value, _PLAIN)  # a tensor may be equal, and be no such value
        if not any(value is option or (is_plain and value == option) for option in self.values):
            raise ValueError(f"{name} must be one of {list(self.values)}, got {value!r}.")


class Seed:
    """None, a seed, or numpy's generator."""

    def check(self, value: Any, name: str) -> None:
        try:
            check_random_state(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{name} must be None, an integer from 0 to 2**32 - 1 or a numpy RandomState, got "
                f"{value!r}."
            ) from error


class ClassWeight:
    """Weights of classes: a dict of numbers that are not negative, "balanced" or None."""

    def check(self, value: Any, name: str) -> None:
        if value is None or (isinstance(value, str) and value == "balanced"):
            return
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a dict, 'balanced' or None, got {value!r}.")
        for label, weight in value.items():
            Number(Real, 0).check(weight, f"{name}[{label!r}]")


@contextlib.contextmanager
def errors_about(names: str) -> Iterator[None]:
    """Make what libraries raise about arguments a TypeError or ValueError that names one of them.

    Parameters
    ----------
    names : str
        Such as "X and y".
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError, AssertionError) as error:
        is_named = any(re.search(rf"\b{name}\b", str(error)) for name in names.split(" and "))
        if is_named and isinstance(error, (TypeError, ValueError)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{names}: {error}") from error
