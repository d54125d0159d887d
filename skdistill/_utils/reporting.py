# SPDX-License-Identifier: BSD-3-Clause
"""What a fit tells of itself with ``verbose=1``: a line for each stage when it has ended.

Fits within such a fit, of a teacher say, are parts of its stages and print no lines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .messages import duration

# Name of the fit whose stages have lines; "" within another one that has, None outside of any.
_FIT: ContextVar[str | None] = ContextVar("_FIT", default=None)


@contextmanager
def reporting(name: str, verbose: int) -> Iterator[None]:
    """Run a fit, the stages of which have lines for ``verbose=1``."""
    outer = _FIT.get()
    token = _FIT.set((name if verbose >= 1 else None) if outer is None else "")
    try:
        yield
    finally:
        _FIT.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Run a stage of the fit, and tell how long it took unless it fails."""
    begin = time.monotonic()
    yield
    if fit := _FIT.get():
        print_line(f"{fit}: {name}: {duration(time.monotonic() - begin, 1)}")


def print_line(text: str) -> None:
    """Print a line at once: the log of a fit that runs elsewhere has it too."""
    print(text, flush=True)  # noqa: T201 -- the user asks for it by `verbose`
