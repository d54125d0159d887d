# SPDX-License-Identifier: BSD-3-Clause
"""Settings objects of the pure torch layer, which scikit-learn can clone and search over."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from sklearn.base import BaseEstimator

from .validation import Rule, check_parameters


def part_of(params: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return the parameters that are given as ``<part>__<name>``, by name."""
    start = f"{part}__"
    own = (name for name in params if name.startswith(start))
    return {name.removeprefix(start): params[name] for name in own}


def check_nested(owner: object, params: Mapping[str, object]) -> None:
    """Raise a ValueError for ``<parameter>__<name>`` of a parameter that has no parameters."""
    for key in params:
        name, delimiter, _ = key.partition("__")
        if not (delimiter and hasattr(owner, name)):
            continue
        value = params.get(name, getattr(owner, name))
        if not hasattr(value, "set_params"):
            raise ValueError(
                f"{name} must be an object with parameters of its own, not a name, for {key!r} to "
                f"be set; got {value!r}.{advice_on(owner, *key.split('__', 1))}"
            )


def advice_on(owner: Any, name: str, inner: str) -> str:
    """Advice how to set ``<name>__<inner>`` where the parameter `name` is no object that has it."""
    known = {parameter for kind in _objects(owner, name) for parameter in kind._defaults()}
    for one in (inner, *difflib.get_close_matches(inner, sorted(known), n=1)):
        if found := objects_with(owner, name, one):
            return found
    # Objects of a parameter without a rule, such as teacher, may be anybody's.
    if name not in owner._parameter_table and name in owner.get_params(deep=False):
        return f" Give an object that has {inner!r}, as {name}=...({inner}=...), instead."
    return ""


def objects_with(owner: object, name: str, inner: str) -> str:
    """Advice which objects, given as the parameter `name`, have the parameter `inner`."""
    found = _ways_to_give(owner, name, inner)
    return f" Give {' or '.join(found)} instead." if found else ""


def _objects(owner: object, name: str) -> tuple[type[Settings], ...]:
    """Classes of the objects that may be given as a parameter, as far as its rule names them."""
    rule = getattr(owner, "_parameter_table", {}).get(name)
    return getattr(rule, "objects", ())


def _ways_to_give(owner: object, name: str, inner: str) -> list[str]:
    """Objects that have a parameter, or whose objects have it, as they are written."""
    found = []
    for kind in _objects(owner, name):
        is_own, groups = inner in kind._defaults(), kind._parameter_table
        further = itertools.chain(*(_ways_to_give(kind, group, inner) for group in groups))
        found += [f"{name}={kind.__name__}({w})" for w in ([f"{inner}=..."] if is_own else further)]
    return found


class Settings(BaseEstimator):
    """Base of objects that hold nothing but parameters.

    The constructor of a subclass assigns its parameters, unchanged, to attributes of the same
    names; they are checked against `_parameter_table` on use. scikit-learn copies the object, and a
    grid search over an estimator with the parameter ``transfer`` reaches the object's parameter
    ``scale`` as ``transfer__scale``.
    """

    _parameter_table: dict[str, Any] = {}  # rule of each parameter

    @classmethod
    @cache
    def _defaults(cls) -> dict[str, object]:
        """Names of the parameters, each with its default."""
        parameters = inspect.signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    @classmethod
    def of(cls, given: Any) -> Any:
        """Return the object that a parameter's value stands for.

        Parameters
        ----------
        given : object
            None stands for the defaults, and anything else for the first parameter.

        Returns
        -------
        settings : Settings
        """
        kind: Any = cls  # which takes parameters
        if isinstance(given, kind):
            return given
        return kind() if given is None else kind(given)

    def set_params(self, **params: object) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **params
            ``<parameter>``, or ``<parameter>__<name>`` for a parameter of a parameter.

        Returns
        -------
        self
        """
        check_nested(self, params)
        super().set_params(**params)
        return self

    def __repr__(self) -> str:  # in the constructor's order, and in one line
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self._defaults().items()
            if repr(getattr(self, name)) != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


class SettingsRule:
    """Rule of a parameter that is an object with parameters of its own, or stands for one.

    Without a rule of `others`, other values are checked by whoever reads them. Parameters of the
    object that the estimator does not read, `unread`, must have their default.
    """

    def __init__(
        self, kind: type[Settings], others: Rule | None = None, unread: tuple[str, ...] = ()
    ):
        self.objects, self.others, self.unread = (kind,), others, unread

    def check(self, value: object, name: str) -> None:
        (kind,) = self.objects
        if not isinstance(value, kind):
            if self.others is not None and not self.others.accepts(value):
                raise self.others.error_type(value)(
                    f"{name} must be {self.others.accepted}, or a {kind.__name__}(...) of "
                    f"{kind.__module__}, an object and not its class; got {value!r}."
                )
            return
        check_parameters(value, f"{name}__")
        for parameter in self.unread:
            given, default = getattr(value, parameter), kind._defaults()[parameter]
            if given != default:
                raise ValueError(
                    f"{name}__{parameter} must be {default!r} for this estimator, which does not "
                    f"read it; got {given!r}."
                )
