# SPDX-License-Identifier: BSD-3-Clause
"""Warnings that name the user's line, however deep in the library they are given."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LIBRARIES = frozenset(
    {"contextlib", "copy", "functools", "imblearn", "joblib", "pickle"}
    | {"skdistill", "sklearn", "skops", "skorch", "torch"}
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the first caller outside of libraries has done."""
    n_frames = sum(1 for _ in _frames_of_libraries(sys._getframe(1)))
    warnings.warn(message, category, stacklevel=n_frames + 2)


def callers_of(kind: type) -> list[Any]:
    """Return the objects of a class whose methods have led here, the nearest one first.

    Looked at are the calls within libraries, up to the line of the user's. So an estimator finds
    the meta-estimators that it is fitted by, where these hide from it what the user should know.
    """
    found: list[Any] = []
    for frame in _frames_of_libraries(sys._getframe(1)):
        owner = frame.f_locals.get("self")
        if isinstance(owner, kind) and not any(owner is known for known in found):
            found.append(owner)
    return found


def _frames_of_libraries(frame: FrameType) -> Iterator[FrameType]:
    """Frames from this one outwards, as long as they are those of libraries, but for the last."""
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        yield frame
        frame = frame.f_back
