# SPDX-License-Identifier: BSD-3-Clause
"""Warnings that name the user's line, however deep in the library they are given."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

_LIBRARIES = frozenset(
    {"contextlib", "copy", "functools", "imblearn", "joblib", "pickle"}
    | {"skdistill", "sklearn", "skops", "skorch", "torch"}
)

_is_silent = ContextVar("_is_silent", default=False)

# What has been warned of in the fit that runs, and in those within it; None outside of fits.
_given: ContextVar[set[tuple[str, type]] | None] = ContextVar("_given", default=None)


class SchemaWarning(UserWarning):
    """Warning that X differs from the table of fit: missing, unknown or out-of-range values.

    Parameters
    ----------
    message : str
    """

    def __init__(self, message: str):
        super().__init__(message)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the first caller outside of libraries has done."""
    given = _given.get()
    if given is not None:
        if (message, category) in given:
            return
        given.add((message, category))
    n_frames = sum(1 for _ in _frames_of_libraries(sys._getframe(1)))
    warnings.warn(message, category, stacklevel=n_frames + 2)


@contextlib.contextmanager
def each_warning_once() -> Iterator[None]:
    """Give each warning once: the fits within a fit, of a teacher say, are not to repeat them."""
    before = _given.set(set() if _given.get() is None else _given.get())
    try:
        yield
    finally:
        _given.reset(before)


def calls_of(kind: type, method: str) -> list[dict[str, Any]]:
    """Local variables of the calls of a class's method that have led here, within libraries."""
    return [
        frame.f_locals
        for frame in _frames_of_libraries(sys._getframe(1))
        if frame.f_code.co_name == method and isinstance(frame.f_locals.get("self"), kind)
    ]


@contextlib.contextmanager
def without_schema_warnings() -> Iterator[None]:
    """Say nothing, in this thread, of samples that are not the user's, or far from fit."""
    before = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(before)


def tells_of_schema() -> bool:
    """Whether samples to predict that are unlike those of fit are warned of."""
    return not _is_silent.get()


def _frames_of_libraries(frame: FrameType) -> Iterator[FrameType]:
    """Frames from this one outwards, as long as they are those of libraries, but for the last."""
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        yield frame
        frame = frame.f_back
