# SPDX-License-Identifier: BSD-3-Clause
"""Values as JSON, beside the arrays that it refers to.

Numbers, text, None and lists stand for themselves. Anything else is an object with one key, which
says what it is: ``{"tuple": [1, 2]}``, ``{"array": "network.0.weight"}``. Models and what they are
made of are ``{"object": [name, state]}``, see :mod:`._names`.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.compose import make_column_selector
from torch.overrides import TorchFunctionMode

from .._estimator import NetEstimator
from .._settings import Settings
from .._version import __version__
from ._names import NAMES, name_of

_LARGEST_TEXT = 2**24  # bytes of an array of text, such as labels

# How many calls of torch networks may take to build, in all, and for each array of each network:
# ten times what ours take.
_CALLS, _CALLS_PER_ARRAY = 1_000, 100


class Encoder:
    """Turns a model into JSON, and collects its arrays.

    Parameters
    ----------
    include_teacher : bool
        Whether distillers keep their teachers.

    Attributes
    ----------
    arrays : dict of str to ndarray
    """

    def __init__(self, include_teacher: bool):
        self.include_teacher = include_teacher
        self.arrays: dict[str, np.ndarray] = {}
        # By identity, as what is shared is stored once; with the array, so that ids are not reused.
        self._stored: dict[int, tuple[str, np.ndarray]] = {}

    def encode(self, value: Any, place: str = "") -> Any:
        """Return a value as JSON; `place` tells where it stands.

        Raises
        ------
        TypeError
            If it cannot be saved.
        """
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
        if kind is dict:
            return self._dict(value, place)
        if kind is slice:
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, (np.generic, np.ndarray, np.dtype)) or _is_scalar_type(value):
            return self._numpy(value, place)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if kind is np.random.RandomState:
            return {"random state": self.encode(value.get_state(), place)}
        if _has_state(kind) and (name := name_of(kind)) is not None:
            return {"object": [name, self.encode(self._state(value), place)]}
        if callable(value) and (name := name_of(value)) is not None:
            return {"name": name}
        raise TypeError(f"{place or 'model'} cannot be saved: {_advice(value)}")

    def _dict(self, value: dict, place: str) -> Any:
        if all(type(key) is str for key in value):
            return {"dict": {k: self.encode(v, _inside(place, k)) for k, v in value.items()}}
        return {"pairs": [self.encode(list(pair), place) for pair in value.items()]}

    def _numpy(self, value: Any, place: str) -> Any:
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
        if id(value) not in self._stored:
            name = place
            while name in self.arrays:
                name += "'"
            self.arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
            self._stored[id(value)] = name, value
        return {"array": self._stored[id(value)][0]}

    def _state(self, value: Any) -> dict[str, Any]:
        """What an object of a registered class is made of."""
        if is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, tuple):
            return value._asdict()  # type: ignore[attr-defined]
        if isinstance(value, Settings):
            return value.get_params(deep=False)
        if not isinstance(value, BaseEstimator):
            return vars(value)
        state = dict(value.__getstate__())
        state.pop("_skdistill_version", None)
        if isinstance(value, NetEstimator) and "teacher" in state and not self.include_teacher:
            state.pop("teacher_", None)
            state["teacher"] = value._kind if isinstance(value, MetaEstimatorMixin) else None
        return state


def _table_of(rows: list) -> dict[str, Any] | None:
    """Columns of a list of dicts that have the same keys, as a history does; None for others."""
    if not rows or not all(type(row) is dict and row for row in rows):
        return None
    keys = list(rows[0])
    if not all(type(key) is str for key in keys) or any(list(row) != keys for row in rows):
        return None
    return {key: _column([row[key] for row in rows]) for key in keys}


def _column(values: list) -> Any:
    """Return values as an array, if they are all of one type of numbers."""
    is_numeric = set(map(type, values)) in ({bool}, {int}, {float})
    array = np.array(values) if is_numeric else None
    return values if array is None or array.dtype.kind not in "bif" else array


def _inside(place: str, name: str) -> str:
    """Return the place of something inside another; weights stand beside their model."""
    return f"{place.removesuffix('_weights').removesuffix('/')}/{name}".removeprefix("/")


def _has_state(cls: type) -> bool:
    """Whether objects of a class are made of values; networks, say, are not."""
    kinds = (tuple, Settings, BaseEstimator, make_column_selector)
    return is_dataclass(cls) or issubclass(cls, kinds)


def _is_scalar_type(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, np.generic)


def _advice(value: Any) -> str:
    if callable(value) and hasattr(value, "__name__"):
        return (
            f"{value.__name__} has no name that load would know. Give it "
            "one, here and before load: skdistill.persistence.register(name, value)."
        )
    return (
        f"it is a {type(value).__module__}.{type(value).__qualname__}. Files hold models of "
        "skdistill, scikit-learn's scalers, imputers and encoders, arrays and plain values."
    )


class Decoder:
    """Turns JSON back into a model.

    Parameters
    ----------
    arrays : dict of str to ndarray
    """

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.used: set[str] = set()

    def decode(self, node: Any) -> Any:
        """Return what a piece of JSON stands for; raise an error of any kind if it is wrong."""
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        if kind not in _READERS:
            raise ValueError(f"what {kind!r} means is not known")
        return _READERS[kind](self, content)

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

    def table(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        columns = [self.decode(column) for column in content.values()]
        lists = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns]
        return [dict(zip(content, row, strict=True)) for row in zip(*lists, strict=True)]

    def named(self, name: str) -> Any:
        if name not in NAMES:
            raise ValueError(
                f"it needs {name!r}, which is not known. If that is yours, call "
                f"skdistill.persistence.register({name!r}, ...) first"
            )
        return NAMES[name]

    def object(self, content: list) -> Any:
        name, encoded = content
        cls, state = self.named(name), self.decode(encoded)
        if not (isinstance(cls, type) and _has_state(cls)):
            raise ValueError(f"{name!r} is nothing that could have a state")
        if is_dataclass(cls) or issubclass(cls, (tuple, Settings)):
            return cls(**state)
        if covered := [key for key in state if callable(getattr(cls, key, None))]:
            raise ValueError(f"it has values in place of the methods {covered} of {name}")
        model: Any = cls.__new__(cls)
        if issubclass(cls, NetEstimator):
            _restore(model, state)
        elif issubclass(cls, BaseEstimator):
            model.__setstate__(state)
        else:
            vars(model).update(state)
        return model


def _restore(model: NetEstimator, state: dict[str, Any]) -> None:
    """Give an estimator its state; refuse networks that are not those of the weights."""
    given = (p for p in inspect.signature(type(model)).parameters.values() if p.name not in state)
    newer = {p.name: p.default for p in given if p.default is not p.empty}
    weights = state.get("_weights", {})
    n_networks = state["_plan"].n_networks if weights else 1
    full = [array for array in weights.values() if array.size]
    if n_networks > max([1, len(full), *(size for array in full for size in array.shape)]):
        raise ValueError(f"it has no weights for {n_networks} networks")
    with _Budget(_CALLS + _CALLS_PER_ARRAY * len(weights) * n_networks):
        model.__setstate__({**state, **newer, "_skdistill_version": __version__})


class _Budget(TorchFunctionMode):
    """Stops what calls torch more often than building a file's networks takes."""

    def __init__(self, n_calls: int):
        super().__init__()
        self.n_calls = n_calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n_calls -= 1
        if self.n_calls < 0:
            raise ValueError("its networks have more layers than there are weights for")
        return func(*args, **(kwargs or {}))


def _dtype(text: str, kinds: str) -> np.dtype:
    """Return a dtype of some kinds."""
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
    "name": Decoder.named,
    "numpy": lambda self, content: _scalar_type(content),
    "object": Decoder.object,
    "pairs": lambda self, content: dict(self.decode(content)),
    "random state": lambda self, content: _random_state(self.decode(content)),
    "scalar": lambda self, content: _dtype(content[0], "biufU").type(self.decode(content[1])),
    "slice": lambda self, content: slice(*content),
    "table": Decoder.table,
    "tuple": lambda self, content: tuple(self.decode(content)),
}
