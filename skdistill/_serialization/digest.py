# SPDX-License-Identifier: BSD-3-Clause
"""Digests of parameters and data, which identify a fit.

They depend on contents alone, not on addresses or the order of sets, so that they are the same in
another process. Objects whose contents cannot be read raise an error.
"""

import copyreg
import dis
import functools
import hashlib
import platform
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import packages_distributions, version
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from .._utils.settings import SettingsRule
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

    The contents of functions and classes are their code and the values that it refers to; those of
    an installed library are identified by name and version. What cannot be read raises a TypeError.
    """
    return _Digester().of(value).hex()


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
            read = _KINDS.get(type(value), _class if isinstance(value, type) else _pickled)
            self.known[key] = hashlib.sha256(read(self, value)).digest(), value
            del self.depth[key]
        return self.known[key][0]

    def all(self, kind: str, values: Iterable[object]) -> bytes:
        return kind.encode() + b":" + b"".join(map(self.of, values))


# --- contents by the kind of value ------------------------------------------------------------


def _plain(digester: _Digester, value: object) -> bytes:
    return f"{type(value).__name__} {value!r}".encode()


def _sequence(digester: _Digester, value: Iterable[object]) -> bytes:
    return digester.all(type(value).__name__, value)


def _set(digester: _Digester, value: Iterable[object]) -> bytes:
    return b"set " + b"".join(sorted(map(digester.of, value)))


def _dict(digester: _Digester, value: dict[object, object]) -> bytes:
    pairs = (digester.of(key) + digester.of(item) for key, item in value.items())
    return b"dict " + b"".join(sorted(pairs))


def _array(digester: _Digester, value: np.ndarray) -> bytes:
    contents = value.tolist() if value.dtype.hasobject else value.tobytes()
    return digester.all("array", (repr(value.dtype), value.shape, contents))


def _tensor(digester: _Digester, value: torch.Tensor) -> bytes:
    if value.layout is not torch.strided or value.is_quantized:
        raise TypeError(f"{value.layout} tensors cannot be read")
    data = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
    contents = data.view(torch.uint8).numpy().tobytes()
    kind = str(value.dtype), tuple(value.shape), value.requires_grad
    return digester.all("tensor", (*kind, contents))


def _pickled(digester: _Digester, value: object) -> bytes:
    """Contents of any object as pickle reads them; of an estimator that is cloned, parameters."""
    if hasattr(value, "get_params") and not digester.with_learnt:
        if _is_own_clone(value):
            return _Digester(with_learnt=True).of(value)
        return digester.all("parameters", (type(value), _unlearnt(value)))
    if name := _name_in_library(value):
        return _plain(digester, name)
    reduce = copyreg.dispatch_table.get(type(value))
    reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
    if not isinstance(reduced, str):
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if digester.with_learnt and isinstance(state, dict):  # a history tells times, which vary
            state = {name: item for name, item in state.items() if name != "_history"}
        contents = (make, arguments, state, list(items or ()), list(pairs or ()))
        return digester.all("object", (type(value), *contents))
    if name := _name_in_library(value, reduced):
        return _plain(digester, name)
    if hasattr(value, "__wrapped__"):
        return digester.all("wrapper", (type(value), value.__wrapped__))
    raise TypeError(f"{value!r} has only a name")


def _function(digester: _Digester, value: types.FunctionType) -> bytes:
    if name := _name_in_library(value):
        return _plain(digester, name)
    names = _globals_of(value.__code__) & value.__globals__.keys()
    context = value.__defaults__, value.__kwdefaults__, value.__closure__, vars(value)
    used = {name: value.__globals__[name] for name in sorted(names)}
    imported = [_imported(*names, value.__globals__) for names in _imports_of(value.__code__)]
    parts = value.__module__, value.__qualname__, value.__code__, context, used, imported
    return digester.all("function", parts)


def _globals_of(code: types.CodeType) -> set[str]:
    """Global names that code refers to."""
    loads = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
    names = {step.argval for step in dis.get_instructions(code) if step.opname in loads}
    return names.union(*map(_globals_of, _inner(code)))


def _imports_of(code: types.CodeType) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """Level, names and module of each import statement in code."""
    steps = list(dis.get_instructions(code))
    for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            yield level.argval, names.argval or (), step.argval
    for inner in _inner(code):
        yield from _imports_of(inner)


def _inner(code: types.CodeType) -> list[types.CodeType]:
    """Code of the functions that code defines."""
    return [item for item in code.co_consts if isinstance(item, types.CodeType)]


def _imported(level: int, names: tuple[str, ...], module: str, context: dict) -> Any:
    """Return the module that an import statement gives; None if there is none."""
    try:
        return __import__(module, context, None, names, level)
    except ModuleNotFoundError:
        return None


def _code(digester: _Digester, value: types.CodeType) -> bytes:
    names = value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
    counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags
    steps = value.co_code, value.co_exceptiontable
    return digester.all("code", (*steps, value.co_consts, names, counts))


def _cell(digester: _Digester, value: types.CellType) -> bytes:
    try:
        return digester.all("cell", (value.cell_contents,))
    except ValueError:  # a name that is not assigned yet
        return b"empty cell"


# Names that Python adds to the namespace of a class.
_ADDED = frozenset(
    {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__"}
    | {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
    | {"__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__"}
    | {"__slotnames__"}  # added when an instance is pickled or copied
)


def _class(digester: _Digester, value: type) -> bytes:
    if name := _name_in_library(value):
        return _plain(digester, name)
    namespace = {name: item for name, item in vars(value).items() if name not in _ADDED}
    names = value.__module__, value.__qualname__
    return digester.all("class", (names, type(value), value.__bases__, namespace))


def _module(digester: _Digester, value: types.ModuleType) -> bytes:
    if (installed := _version_of(value.__name__)) is not None:
        return _plain(digester, f"{value.__name__} {installed}")
    file = getattr(value, "__file__", None)
    if file is None:
        raise TypeError(f"{value!r} has no file")
    # What the file imports is not in its bytes.
    names = {k: v for k, v in vars(value).items() if not (k.startswith("__") and k.endswith("__"))}
    return digester.all("module", (value.__name__, Path(file).read_bytes(), names))


def _by_attributes(*names: str) -> Callable[[_Digester, Any], bytes]:
    def read(digester: _Digester, value: object) -> bytes:
        contents = (getattr(value, name) for name in names)
        return digester.all(type(value).__name__, contents)

    return read


_KINDS: dict[type, Callable[[_Digester, Any], bytes]] = {
    **dict.fromkeys((type(None), bool, int, float, complex, str, bytes, type(...)), _plain),
    **dict.fromkeys((tuple, list), _sequence),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((dict, types.MappingProxyType), _dict),
    **dict.fromkeys((np.ndarray, np.memmap), _array),
    **dict.fromkeys((torch.Tensor, torch.nn.Parameter), _tensor),
    types.FunctionType: _function,
    types.CodeType: _code,
    types.CellType: _cell,
    types.ModuleType: _module,
    property: _by_attributes("fget", "fset", "fdel"),
    staticmethod: _by_attributes("__func__"),
    classmethod: _by_attributes("__func__"),
    functools.cached_property: _by_attributes("func", "attrname"),
    types.MemberDescriptorType: _by_attributes("__name__"),
    types.GetSetDescriptorType: _by_attributes("__name__"),
}


# --- values of libraries ----------------------------------------------------------------------


def _name_in_library(value: object, name: str | None = None) -> str | None:
    """Name and version of a library's value; None for other values."""
    module = getattr(value, "__module__", None)
    name = name or getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        return None
    if (installed := _version_of(module)) is None:
        return None
    try:
        found = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):  # defined inside of a function
        return None
    return f"{module}.{name} {installed}" if found is value else None


def _version_of(module: str) -> str | None:
    """Version of the library that a module belongs to; None for the user's code."""
    return _version_of_library(module.partition(".")[0])


@functools.cache
def _version_of_library(top: str) -> str | None:
    """Version of a library by the name of its module; None for what is no library."""
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return ""  # that of Python and ours are among the digests
    module = sys.modules.get(top)
    if {"site-packages", "dist-packages"}.isdisjoint(
        Path(getattr(module, "__file__", None) or "").parts
    ):
        return None
    if known := getattr(module, "__version__", None):
        return str(known)
    return " ".join(version(name) for name in packages_distributions().get(top, ())) or None
