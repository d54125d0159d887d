# SPDX-License-Identifier: BSD-3-Clause
"""The lines that `verbose` prints: plain text, whole lines, at once."""

from __future__ import annotations

import math

# From so many seconds on a time is told in minutes, and from so many in hours.
_FROM_MINUTES, _FROM_HOURS = 120, 7200


def print_line(text: str) -> None:
    """Print a line at once, so that the log of a fit that runs elsewhere has it too."""
    print(text, flush=True)  # noqa: T201 -- the user asks for it by `verbose`


def name_of(value: object) -> str:
    """Return the name of a class or function; of the class of another object that is called."""
    return getattr(value, "__name__", type(value).__name__)


def time_left(seconds: float, n_done: float, n_left: float, at_most: float = math.inf) -> str:
    """Tell how long the rest takes, if `n_done` of its parts took so many seconds."""
    return f"{duration(min(seconds / n_done * n_left, at_most))} left"


def duration(seconds: float) -> str:
    """Tell a time in seconds, minutes or hours."""
    if seconds < _FROM_MINUTES:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _FROM_HOURS else f"{seconds / 3600:.1f} h"
