# SPDX-License-Identifier: BSD-3-Clause
"""Settings that change with the epochs: a number, or a tuple (number, first_epoch, last_epoch)."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .._settings import is_number


class Ramp(NamedTuple):
    """What such a setting may be; `positive` forbids zero."""

    positive: bool = False

    def check(self, value: Any, name: str) -> None:
        is_ramp = isinstance(value, (tuple, list)) and len(value) == 3
        number, first, last = value if is_ramp else (value, 0, 1)
        if not (
            all(map(is_number, (number, first, last)))
            and 0 <= number < np.inf
            and not (self.positive and number == 0)
            and 0 <= first < last
        ):
            kind = "a positive number" if self.positive else "a number that is not negative"
            raise ValueError(
                f"{name} must be {kind}, or a tuple of one with first_epoch and last_epoch, "
                f"0 <= first_epoch < last_epoch; got {value!r}."
            )


def value_on_ramp(
    setting: Any, epoch: int, start: float | None = None, end: float | None = None
) -> float:
    """Value in an epoch, on a ramp from `start` to `end`; None is the setting's number."""
    if isinstance(setting, Real):
        return float(setting)
    number, first, last = setting
    start, end = (number if value is None else value for value in (start, end))
    share = min(max((epoch - first) / (last - first), 0.0), 1.0)
    return start + share * (end - start)
