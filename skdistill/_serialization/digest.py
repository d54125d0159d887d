# SPDX-License-Identifier: BSD-3-Clause
"""Digests of parameters and data, which identify a fit.

They depend on contents alone, not on addresses or the order of sets, so that they are the same in
another process. ``joblib.hash`` is not, for frozen sets, and takes no lambdas.
"""

import copyreg
import functools
import hashlib
import platform
import sys
import types
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from .._utils.validation import SettingsRule
from .._version import __version__

# Libraries whose versions may change the results of a fit.
_LIBRARIES = ("numpy", "torch", "scikit-learn", "skorch")


def digests(estimator: object, data: dict[str, Any], ignored: Iterable[str] = ()) -> dict[str, str]:
    """Digests by name of class, parameters and data of a fit, and of each library's version.

    Parameters of parameters are called ``<parameter>__<name>``; those in `ignored` are left out, at
    any depth. A ValueError names what cannot be read, such as an open file.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {"skdistill": __version__, "Python": python} | {n: version(n) for n in _LIBRARIES}
    values = {"the estimator": type(estimator)} | data
    values |= dict(_parameters(estimator, frozenset(ignored)))
    values |= {f"the version of {name}": value for name, value in versions.items()}
    found = {}
    for name, value in values.items():
        try:
            found[name] = digest(value)
        except Exception as error:  # of any kind: users' objects may define how they are copied
            raise ValueError(
                f"{name} cannot be compared with other values, as checkpoints need: {error}. Give "
                f"another {name}, or runtime__checkpoint=None."
            ) from error
    return found


def _parameters(owner: BaseEstimator, ignored: frozenset[str], prefix: str = "") -> Iterator:
    """Parameters by name, nested ones included; their owners by type and other attributes."""
    rules = getattr(owner, "_parameter_table", {})
    for name, value in owner.get_params(deep=False).items():
        if name in ignored:
            continue
        if isinstance(rule := rules.get(name), SettingsRule):
            value = rule.objects[0].of(value)  # None stands for an object with its defaults
        if isinstance(value, type) or not hasattr(value, "get_params") or _is_own_clone(value):
            yield prefix + name, value
            continue
        yield from _parameters(value, ignored, f"{prefix}{name}__")
        known = value.get_params(deep=False)
        rest = {k: v for k, v in _unlearnt(value).items() if k not in known}
        yield prefix + name, (type(value), rest)


def _is_own_clone(value: object) -> bool:
    """Whether an estimator stays as it is when it is cloned, as a FrozenEstimator does."""
    clone = getattr(type(value), "__sklearn_clone__", None)
    return clone not in (None, BaseEstimator.__sklearn_clone__)


def _unlearnt(value: object) -> dict[str, object]:
    """Attributes of an object with parameters that it has not learnt."""
    is_cloned = hasattr(value, "fit")  # an estimator is, before its fit, which drops private ones
    return {
        name: item
        for name, item in vars(value).items()
        if not name.endswith("_") and not (is_cloned and name.startswith("_"))
    }


def digest(value: object) -> str:
    """SHA-256 of a value's contents, in hexadecimal digits.

    The contents of the user's functions and classes are their own code, without that of what it
    refers to by global names; those of a library are their names. What cannot be read raises a
    TypeError.
    """
    return _Digester().of(value).hex()


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))

# Names that Python adds to the namespace of a class.
_ADDED = frozenset(
    {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__"}
    | {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
    | {"__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__"}
    | {"__slotnames__"}  # added when an instance is pickled or copied
)

# Attributes that make up values of other types.
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    types.FunctionType: (
        *("__module__", "__qualname__", "__code__", "__defaults__", "__kwdefaults__"),
        *("__closure__", "__dict__"),
    ),
    types.CodeType: (
        *("co_code", "co_exceptiontable", "co_consts", "co_names", "co_varnames", "co_freevars"),
        *("co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags"),
    ),
    types.ModuleType: ("__name__",),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func", "attrname"),
    types.MemberDescriptorType: ("__name__",),
    types.GetSetDescriptorType: ("__name__",),
}


class _Digester:
    """Digests of values that may contain one another; with what estimators have learnt, or not."""

    def __init__(self, with_learnt: bool = False):
        self.with_learnt = with_learnt
        self.known: dict[int, tuple[bytes, Any]] = {}  # with the values, so that ids are not reused
        self.depth: dict[int, int] = {}  # of the values being digested

    def of(self, value: object) -> bytes:
        key = id(value)
        if key in self.depth:  # it contains itself
            return b"%d levels up" % (len(self.depth) - self.depth[key])
        if key not in self.known:
            self.depth[key] = len(self.depth)
            self.known[key] = hashlib.sha256(self.contents(value)).digest(), value
            del self.depth[key]
        return self.known[key][0]

    def contents(self, value: Any) -> bytes:
        """Name of the kind of a value, and digests of what it is made of."""
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}".encode()
        if kind in (set, frozenset):
            return b"set " + b"".join(sorted(map(self.of, value)))
        if kind in (dict, types.MappingProxyType):
            pairs = (self.of(key) + self.of(item) for key, item in value.items())
            return b"dict " + b"".join(sorted(pairs))
        if kind in (tuple, list):
            name, parts = kind.__name__, value
        elif kind in (np.ndarray, np.memmap):
            held = value.tolist() if value.dtype.hasobject else value.tobytes()
            name, parts = "array", (repr(value.dtype), value.shape, held)
        elif kind in (torch.Tensor, torch.nn.Parameter):
            if value.layout is not torch.strided or value.is_quantized:
                raise TypeError(f"{value.layout} tensors cannot be read")
            data = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
            about = str(value.dtype), tuple(value.shape), value.requires_grad
            name, parts = "tensor", (*about, data.view(torch.uint8).numpy().tobytes())
        elif kind is types.CellType:
            try:
                name, parts = "cell", (value.cell_contents,)
            except ValueError:  # a name that is not assigned yet
                return b"empty cell"
        elif library_name := _name_in_library(value):
            return library_name.encode()
        elif isinstance(value, type):
            names = value.__module__, value.__qualname__
            held = {name: item for name, item in vars(value).items() if name not in _ADDED}
            name, parts = "class", (names, kind, value.__bases__, held)
        elif kind in _ATTRIBUTES:
            name, parts = kind.__name__, [getattr(value, part) for part in _ATTRIBUTES[kind]]
        elif hasattr(value, "get_params") and not self.with_learnt:
            if _is_own_clone(value):
                return _Digester(with_learnt=True).of(value)
            name, parts = "parameters", (kind, _unlearnt(value))
        else:
            return self.pickled(value)
        return name.encode() + b":" + b"".join(map(self.of, parts))

    def pickled(self, value: Any) -> bytes:
        """Contents of any other object as pickle reads them."""
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # it has only a name
            if name := _name_in_library(value, reduced):
                return name.encode()
            if not hasattr(value, "__wrapped__"):
                raise TypeError(f"{value!r} has only a name")
            parts = [type(value), value.__wrapped__]
        else:
            make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
            if self.with_learnt and isinstance(state, dict):  # a history tells times, which vary
                state = {name: item for name, item in state.items() if name != "_history"}
            parts = [type(value), make, arguments, state, list(items or ()), list(pairs or ())]
        return b"object:" + b"".join(map(self.of, parts))


def _name_in_library(value: object, name: str | None = None) -> str | None:
    """Name of a library's function or class; None for other values, and for the user's."""
    module = getattr(value, "__module__", None)
    name = name or getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        return None
    top = module.partition(".")[0]
    if top not in (*sys.stdlib_module_names, __name__.partition(".")[0]):
        file = Path(getattr(sys.modules.get(top), "__file__", None) or "")
        if {"site-packages", "dist-packages"}.isdisjoint(file.parts):
            return None
    try:
        found = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):  # defined inside of a function
        return None
    return f"{module}.{name}" if found is value else None
