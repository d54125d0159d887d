# SPDX-License-Identifier: BSD-3-Clause
"""Plain values as JSON, beside the arrays that it refers to.

Numbers, text, None and lists stand for themselves. Anything else is an object with one key, which
says what it is: ``{"tuple": [1, 2]}``, ``{"array": "network.0.weight"}``. What else a kind of file
may hold is up to those who write and read it: they bring encoders and decoders of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_LARGEST_TEXT = 2**24  # bytes of an array of text, such as labels
_LEAST_ROWS = 8  # samples from which on columns are arrays, which take about a hundred bytes each


class Encoder:
    """Turns values into JSON, and collects their `arrays`.

    `encode_other` takes it, a value that is not plain, and its place; it may raise a TypeError.
    """

    def __init__(self, encode_other: Callable[[Encoder, Any, str], Any]):
        self.encode_other = encode_other
        self.arrays: dict[str, np.ndarray] = {}
        # By identity, as what is shared is stored once; with the array, so that ids are not reused.
        self._stored: dict[int, tuple[str, np.ndarray]] = {}

    def encode(self, value: Any, place: str = "") -> Any:
        """Return a value as JSON, or raise a TypeError; `place` tells where it stands."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list and (table := _table_of(value)) is not None:
            return {"table": {k: self.encode(v, f"{place}/{k}") for k, v in table.items()}}
        if kind in (list, tuple):
            items = [self.encode(item, f"{place}/{i}") for i, item in enumerate(value)]
            return items if kind is list else {"tuple": items}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": {k: self.encode(v, _inside(place, k)) for k, v in value.items()}}
        if kind is dict:
            pairs = [
                [self.encode(k, place), self.encode(v, _inside(place, str(k)))]
                for k, v in value.items()
            ]
            return {"pairs": pairs}
        if kind is slice:
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, (np.generic, np.ndarray, np.dtype)) or _is_scalar_type(value):
            return self._numpy(value, place)
        if kind is np.random.RandomState:
            return {"random state": self.encode(value.get_state(), place)}
        return self.encode_other(self, value, place)

    def array(self, value: np.ndarray, place: str) -> str:
        """Keep an array, and return the name by which JSON refers to it."""
        if id(value) not in self._stored:
            name = place
            while name in self.arrays:
                name += "'"
            self.arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
            self._stored[id(value)] = name, value
        return self._stored[id(value)][0]

    def _numpy(self, value: Any, place: str) -> dict[str, object]:
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, type):
            return {"numpy": value.__name__}
        kind, dtype = value.dtype.kind, value.dtype.str
        if kind not in "biufUO" or (kind in "fiu" and value.dtype.itemsize > 8):
            raise TypeError(f"{place} cannot be saved: it is of {value.dtype}.")
        if isinstance(value, np.generic):
            return {"scalar": [dtype, self.encode(value.item(), place)]}
        if kind in "UO":
            _check_size_of_text(value.dtype, value.size)
            items = [
                self.encode(item, f"{place}/{i}") for i, item in enumerate(value.ravel().tolist())
            ]
            return {"items": [dtype, list(value.shape), items]}
        return {"array": self.array(value, place)}


def _table_of(rows: list) -> dict[str, object] | None:
    """Columns of a list of dicts that have the same keys, as a history does; None for others."""
    if len(rows) < _LEAST_ROWS or not all(type(row) is dict and row for row in rows):
        return None
    keys = list(rows[0])
    if not all(type(key) is str for key in keys) or any(list(row) != keys for row in rows):
        return None
    columns: dict[str, Any] = {key: [row[key] for row in rows] for key in keys}
    for key, values in columns.items():
        if set(map(type, values)) in ({bool}, {int}, {float}):  # all of one type of numbers
            array = np.array(values)
            columns[key] = array if array.dtype.kind in "bif" else values
    return columns


def _inside(place: str, name: str) -> str:
    """Return the place of something inside another; weights stand beside their model."""
    return f"{place.removesuffix('_weights').removesuffix('/')}/{name}".removeprefix("/")


def _is_scalar_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, np.generic)


class Decoder:
    """Turns JSON back into values; `others` are readers of what is not plain, by their key."""

    def __init__(
        self, arrays: dict[str, np.ndarray], others: dict[str, Callable[[Decoder, Any], Any]]
    ):
        self.arrays = arrays
        self.readers = _READERS | others
        self.used: set[str] = set()

    def decode_all(self, node: object) -> Any:
        """Return what JSON stands for, which has to make use of every array."""
        value = self.decode(node)
        if unknown := set(self.arrays) - self.used:
            raise ValueError(f"it has arrays that belong to nothing, such as {min(unknown)!r}")
        return value

    def decode(self, node: object) -> Any:
        """Return what a piece of JSON stands for; raise an error of any kind if it is wrong."""
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        if kind not in self.readers:
            raise ValueError(f"what {kind!r} means is not known")
        return self.readers[kind](self, content)

    def array(self, name: str) -> np.ndarray:
        self.used.add(name)
        return self.arrays[name]

    def items(self, content: list) -> np.ndarray:
        dtype, shape, items = content
        found = _dtype(dtype, "UO")
        _check_size_of_text(found, len(items))
        array = np.empty(len(items), dtype=found)
        for i, item in enumerate(items):
            array[i] = self.decode(item)
        return array.reshape(shape)

    def table(self, content: Mapping[str, object]) -> list[dict[str, object]]:
        columns = [self.decode(column) for column in content.values()]
        lists = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns]
        return [dict(zip(content, row, strict=True)) for row in zip(*lists, strict=True)]


def _dtype(text: str, kinds: str) -> np.dtype:
    dtype = np.dtype(text)
    if dtype.kind not in kinds:
        raise ValueError(f"{dtype} is none of the dtypes of kind {list(kinds)}")
    return dtype


def _check_size_of_text(dtype: np.dtype, n_items: int) -> None:
    """Refuse what would take much memory, whatever little text there is."""
    if dtype.kind == "U" and dtype.itemsize * n_items > _LARGEST_TEXT:
        raise ValueError(f"an array of {dtype} takes more than {_LARGEST_TEXT} bytes")


def _scalar_type(name: str) -> Any:
    found = getattr(np, name)
    if not _is_scalar_type(found):
        raise ValueError(f"numpy.{name} is no type of numbers")
    return found


def _random_state(state: Any) -> np.random.RandomState:
    generator = np.random.RandomState()
    generator.set_state(state)
    return generator


_READERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "array": Decoder.array,
    "dict": lambda self, content: {key: self.decode(item) for key, item in content.items()},
    "dtype": lambda self, content: _dtype(content, "biufUO"),
    "float": lambda self, content: float(content),
    "items": Decoder.items,
    "numpy": lambda self, content: _scalar_type(content),
    "pairs": lambda self, content: dict(self.decode(content)),
    "random state": lambda self, content: _random_state(self.decode(content)),
    "scalar": lambda self, content: _dtype(content[0], "biufU").type(self.decode(content[1])),
    "slice": lambda self, content: slice(*content),
    "table": Decoder.table,
    "tuple": lambda self, content: tuple(self.decode(content)),
}
