# SPDX-License-Identifier: BSD-3-Clause
"""Lossless conversion of values to those of a column in fit, and errors about what is none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from numbers import Number
from typing import Any

import numpy as np

_FEW = 3  # examples in an error
_BOOLEANS = {"False": 0.0, "True": 1.0}


def known_categories(
    values: Iterable[object], categories: list, refuse: Callable[[list], ValueError]
) -> dict[Any, Any]:
    """Find the categories that values stand for which are not equal to any.

    "1", b"1" and 1.0 stand for 1, b"Oslo" for "Oslo", and numbers in float32 for those in float64
    that they are rounded from. Text such as "01", which does not tell its number apart from others
    when it is written again, stands for itself. Values that are not among the keys are unknown.
    Those whose type is that of no category, and which cannot be converted to one, are refused:
    `refuse` takes them and returns an error.
    """
    aliases = _aliases(categories)
    kinds = {_kind(category) for category in categories}
    if all(number_of(category) is not None for category in categories):
        kinds.add("numbers")  # which text may be, too
    found, refused = {}, []
    for value in values:
        plain = _plain(value)
        rounded = _in_float32(plain) if isinstance(plain, float) else None
        forms = [form for form in (plain, rounded) if isinstance(form, Hashable)]
        category = next((aliases[v] for v in forms if v is not None and v in aliases), None)
        is_number = "numbers" in kinds and number_of(plain) is not None
        if category is not None:
            found[value] = category
        elif categories and not is_number and _kind(plain) not in kinds:
            refused.append(value)
    if refused:
        raise refuse(refused)
    return found


def texts_of(categories: list) -> dict[str, int]:
    """Return all text that stands for a category, with the position of the category."""
    positions = {category: position for position, category in enumerate(categories)}
    aliases = _aliases(categories).items()
    return {alias: positions[known] for alias, known in aliases if isinstance(alias, str)}


def _aliases(categories: list) -> dict[Any, Any]:
    """Categories by themselves and by what stands for them, and for no other one."""
    found: dict[Any, Any] = {}
    ambiguous = set()
    for category in categories:
        for alias in _renditions(category):
            if found.setdefault(alias, category) is not category:
                ambiguous.add(alias)
    found = {alias: category for alias, category in found.items() if alias not in ambiguous}
    return {**found, **{category: category for category in categories}}


def _renditions(category: object) -> list:
    """What a category is in other types."""
    number = number_of(category)
    if isinstance(category, str):
        if category in _BOOLEANS:
            return [bool(_BOOLEANS[category])]
        is_as_written = number is not None and category in _texts(number)
        return [number] if is_as_written else []
    if isinstance(category, (bool, np.bool_)):
        return [str(bool(category)), *_texts(float(category))]
    if number is None:
        return []
    texts = [str(category)] if isinstance(category, int) else _texts(number)
    rounded = _in_float32(number)
    return [*texts, *_texts(number), *([] if rounded is None else [rounded])]


def _in_float32(number: float) -> float | None:
    """Return a fraction as float32 rounds it; None for whole numbers, which are what they are."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    return None if rounded.is_integer() or not np.isfinite(rounded) else rounded


def _texts(number: float) -> list[str]:
    """How Python writes a number, with and without a decimal point."""
    return [repr(number), *([str(int(number))] if number.is_integer() else [])]


def number_of(value: Any, is_boolean: bool = False) -> float | None:
    """Return a value as a number, None if it is none."""
    value = _plain(value)
    if isinstance(value, str):
        if is_boolean and value in _BOOLEANS:
            return _BOOLEANS[value]
        if "_" in value:  # which Python reads, and tables do not mean
            return None
    elif not isinstance(value, Number) or isinstance(value, complex):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def _plain(value: object) -> Any:
    """Return a value as Python has it; bytes as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _kind(value: object) -> str:
    """Return the kind of a value, in words."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_, Number)):
        return "numbers"
    return type(value).__name__


def in_words(values: list) -> str:
    """Say of what kind values are, with the first few of them."""
    kind = _kind(_plain(values[0]))
    examples = list(dict.fromkeys(map(repr, (v for v in values if _kind(_plain(v)) == kind))))
    return f"{kind}, such as {', '.join(examples[:_FEW])}"
