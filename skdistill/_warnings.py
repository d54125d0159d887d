# SPDX-License-Identifier: BSD-3-Clause
"""Warnings that name the user's line, however deep in the library they are given."""

from __future__ import annotations

import sys
import warnings

_LIBRARIES = frozenset(
    {"contextlib", "copy", "functools", "joblib", "pickle"}
    | {"skdistill", "sklearn", "skops", "skorch", "torch"}
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the first caller outside of libraries has done."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
