# SPDX-License-Identifier: BSD-3-Clause
"""The lines that `verbose` prints: plain text, whole lines, at once."""

from __future__ import annotations

# From so many seconds on a time is told in minutes, and from so many in hours.
_FROM_MINUTES, _FROM_HOURS = 120, 7200


def print_line(text: str) -> None:
    """Print a line at once, so that the log of a fit that runs elsewhere has it too."""
    print(text, flush=True)  # noqa: T201 -- the user asks for it by `verbose`


def time_left(seconds: float, n_done: float, n_left: float) -> str:
    """Tell how long the rest takes, if `n_done` of its parts took so many seconds."""
    left = seconds / n_done * n_left
    if left < _FROM_MINUTES:
        return f"{left:.0f} s left"
    return f"{left / 60:.0f} min left" if left < _FROM_HOURS else f"{left / 3600:.1f} h left"
