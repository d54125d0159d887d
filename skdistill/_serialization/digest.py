# SPDX-License-Identifier: BSD-3-Clause
"""Digests of parameters and data, which identify a fit, in every process alike."""

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from inspect import Parameter
from typing import Any

import torch
from joblib.hashing import NumpyHasher
from sklearn.base import BaseEstimator

from .._utils.validation import SettingsRule
from .._version import __version__

# Libraries whose versions may change the results of a fit.
_LIBRARIES = ("numpy", "torch", "scikit-learn", "skorch")


def digests(estimator: object, data: dict[str, Any], ignored: Iterable[str] = ()) -> dict[str, str]:
    """Digests by name of class, parameters and data of a fit, and of each library's version.

    Parameters of parameters are called ``<parameter>__<name>``; those in `ignored` are left out, at
    any depth. A ValueError names what cannot be read, such as a lambda or an open file.
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
                f"{name} must be comparable with that of another process, as checkpoints need: "
                f"{error.args[0]}. Give another {name}, such as a function of a module in place of "
                "a lambda, or runtime__checkpoint=None."
            ) from error
    return found


def _parameters(owner: BaseEstimator, ignored: frozenset[str], prefix: str = "") -> Iterator:
    """Parameters by name, nested ones included; their owners by type and other attributes."""
    rules = getattr(owner, "_parameter_table", {})
    for name, value in owner.get_params(deep=False).items():
        if name in ignored:
            continue
        if isinstance(rule := rules.get(name), SettingsRule):
            kind = rule.objects[0]  # None stands for an object with its defaults, if it has them
            if value is not None or Parameter.empty not in kind._defaults().values():
                value = kind.of(value)
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
    """SHA-1 of a value's contents, in hexadecimal digits; a PicklingError for a lambda, say.

    The contents of functions and classes are their names.
    """
    return _Hasher("sha1", coerce_mmap=True).hash(value)


class _Hasher(NumpyHasher):
    """joblib's hashes, of tensors too, and of models without the times that training took."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, torch.Tensor):
            data = obj.detach().cpu().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
            obj = type(obj), str(obj.dtype), tuple(obj.shape), obj.requires_grad, data.numpy()
        elif isinstance(obj, BaseEstimator) and hasattr(obj, "_history"):
            state = obj.__getstate__()
            obj = type(obj), {name: state[name] for name in state if name != "_history"}
        elif isinstance(obj, frozenset):  # in an order that is the same in every process
            obj = frozenset, set(obj)
        super().save(obj)
