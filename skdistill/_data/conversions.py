# SPDX-License-Identifier: BSD-3-Clause
"""Lossless conversion of values to those of a column in fit, and errors about what is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Number
from typing import Any

import numpy as np

_FEW = 3  # examples in an error


def known_categories(
    values: Iterable[object], categories: list, refuse: Callable[[list], ValueError]
) -> dict[Any, Any]:
    """Find the categories that values stand for which are not equal to any: of the same text.

    Values that are not among the keys are unknown. Those whose type is that of no category are
    refused: `refuse` takes them and returns an error.
    """
    texts, kinds = texts_of(categories), {_kind(category) for category in categories}
    found = {value: categories[texts[text]] for value in values if (text := _text(value)) in texts}
    odd = [v for v in values if categories and v not in found and _kind(_plain(v)) not in kinds]
    if odd:
        raise refuse(odd)
    return found


def texts_of(categories: list) -> dict[str, int]:
    """Return the text of each category that has one, with its position; text stands for itself."""
    order = sorted(range(len(categories)), key=lambda k: isinstance(categories[k], str))
    found = {_text(categories[k]): k for k in order}
    return {text: position for text, position in found.items() if text is not None}


def _text(value: object) -> str | None:
    """How a value is written, whole numbers without a decimal point; None for other types."""
    value = _plain(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, (str, bool, int)) else None


def number_of(value: object, is_boolean: bool = False) -> float | None:
    """Return a value as a number, None if it is none."""
    value = _plain(value)
    if is_boolean and value in ("False", "True"):
        return float(value == "True")
    is_text = isinstance(value, str) and "_" not in value  # which Python reads: 1_000
    if not (is_text or (isinstance(value, Number) and not isinstance(value, complex))):
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # it is a number or text
    except (OverflowError, TypeError, ValueError):
        return None


def _plain(value: object) -> object:
    """Return a value as Python has it; bytes as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _kind(value: object) -> str:
    """Return the kind of a value, in words."""
    if isinstance(value, str):
        return "text"
    return "numbers" if isinstance(value, (bool, np.bool_, Number)) else type(value).__name__


def in_words(values: list) -> str:
    """Say of what kind values are, with the first few of them."""
    kind = _kind(_plain(values[0]))
    examples = list(dict.fromkeys(map(repr, (v for v in values if _kind(_plain(v)) == kind))))
    return f"{kind}, such as {', '.join(examples[:_FEW])}"
