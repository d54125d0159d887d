# SPDX-License-Identifier: BSD-3-Clause
"""Words of messages: names of objects, and times."""

from __future__ import annotations

_FROM_MINUTES, _FROM_HOURS = 120, 7200  # seconds from which on a time is told in these


def name_of(value: object) -> str:
    """Return the name of a class or function; of the class of another object that is called."""
    return getattr(value, "__name__", type(value).__name__)


def time_left(seconds: float, n_done: float, n_left: float) -> str:
    """Tell how long the rest takes, if `n_done` of its parts took so many seconds."""
    return f"{duration(seconds / n_done * n_left)} left"


def duration(seconds: float, n_decimals: int = 0) -> str:
    """Tell a time in seconds, with so many decimals, in minutes or in hours."""
    if seconds < _FROM_MINUTES:
        return f"{seconds:.{n_decimals}f} s"
    return f"{seconds / 60:.0f} min" if seconds < _FROM_HOURS else f"{seconds / 3600:.1f} h"
