# SPDX-License-Identifier: BSD-3-Clause
"""Parameters: rules of accepted values, the errors for others, and objects that hold parameters.

A rule is any object with ``check(value, name)``, which raises a TypeError or ValueError that names
the parameter. Estimators and settings objects have a table of rules in their class attribute
`_parameter_table`, and :func:`check_parameters` applies them. scikit-learn's are private.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

_INTEGERS = (int, np.int32, np.int64)
_NUMBERS = (*_INTEGERS, float, np.float32)
# Numbers without an upper bound end here: float32 holds them, and float64 their powers.
LARGEST = 1e30

_PLAIN = (str, int, float, np.bool_)


def is_number(value: object, kind: type = Real) -> bool:
    """Tell whether NumPy and torch calculate with a value as with a Python number.

    Not so with integers beyond 64 bits, NumPy's smaller and unsigned numbers, tensors, fractions.
    """
    kinds = _INTEGERS if kind is Integral else _NUMBERS
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else bool(value == value)


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return a question that names what is spelt alike, to end an error message; or nothing."""
    names = [name for name in known if isinstance(name, str)]
    close = difflib.get_close_matches(given, names, n=1) if isinstance(given, str) else []
    return f" Did you mean {close[0]!r}?" if close else ""


class Rule(ABC):
    """Base of rules whose error message is "<name> must be <accepted>, got <value>.<hint>"."""

    @property
    @abstractmethod
    def accepted(self) -> str: ...

    @abstractmethod
    def accepts(self, value: object) -> bool: ...

    def error_type(self, value: object) -> type[Exception]:
        return ValueError

    def hint(self, value: object) -> str:
        return ""

    def check(self, value: object, name: str) -> None:
        if not self.accepts(value):
            message = f"{name} must be {self.accepted}, got {value!r}.{self.hint(value)}"
            raise self.error_type(value)(message)


@dataclass(frozen=True)
class Number(Rule):
    """A finite number from `low` to `high`, or one of `others`.

    `closed` tells which bounds are included: "both", "left", "right" or "neither".
    """

    kind: type
    low: float
    high: float = math.inf
    closed: str = "both"
    others: tuple = ()

    @property
    def accepted(self) -> str:
        kind = "an integer" if self.kind is Integral else "a number"
        left = "[" if self.closed in ("both", "left") else "("
        right = "]" if self.closed in ("both", "right") else ")"
        if self.high == math.inf:
            wanted = f"{kind} {'>=' if left == '[' else '>'} {self.low}"
        elif self.kind is Integral:
            wanted = f"{kind} from {self.low} to {self.high}"
        else:
            wanted = f"{kind} in {left}{self.low}, {self.high}{right}"
        return wanted + "".join(f", or {other!r}" for other in self.others)

    def accepts(self, value: Any) -> bool:
        if any(type(value) is type(other) and value == other for other in self.others):
            return True
        if not is_number(value, self.kind) or math.isinf(value):
            return False
        if self.kind is Real and abs(value) > LARGEST:
            return False
        is_above = value > self.low or (value == self.low and self.closed in ("both", "left"))
        is_below = value < self.high or (value == self.high and self.closed in ("both", "right"))
        return is_above and is_below

    def error_type(self, value: object) -> type[Exception]:
        return ValueError if is_number(value, self.kind) else TypeError

    def hint(self, value: Any) -> str:
        if is_number(value) and math.isinf(value):
            return " It must be finite."
        if is_number(value) and abs(value) > LARGEST:
            return f" It must be at most {LARGEST:g}."
        is_small_or_large = isinstance(value, (int, np.number)) and not isinstance(value, bool)
        if is_small_or_large and not is_number(value):
            return " Give a number of Python's own, of at most 64 bits."
        return did_you_mean(value, self.others)


class NumberOfJobs(Rule):
    """A number of tasks side by side, as joblib takes it."""

    accepted = "None, an integer >= 1, or -1 for all cores (-2 for all but one, and so on)"

    def accepts(self, value: object) -> bool:
        return value is None or (is_number(value, Integral) and value != 0)

    def error_type(self, value: object) -> type[Exception]:
        return ValueError if is_number(value) else TypeError


@dataclass(frozen=True)
class OneOf(Rule):
    """One of a few values."""

    values: tuple

    @property
    def accepted(self) -> str:
        return f"one of {list(self.values)}" if len(self.values) > 1 else repr(self.values[0])

    def accepts(self, value: object) -> bool:
        is_plain = isinstance(value, _PLAIN)  # a tensor may equal an option
        return any(value is option or (is_plain and value == option) for option in self.values)

    def hint(self, value: object) -> str:
        return did_you_mean(value, self.values)


class AnyOf(Rule):
    """A value that at least one of several rules accepts."""

    def __init__(self, *rules: Rule):
        self.rules = rules

    @property
    def accepted(self) -> str:
        return " or ".join(rule.accepted for rule in self.rules)

    def accepts(self, value: object) -> bool:
        return any(rule.accepts(value) for rule in self.rules)

    def error_type(self, value: object) -> type[Exception]:
        kinds = {rule.error_type(value) for rule in self.rules}
        return ValueError if ValueError in kinds else TypeError


class IsCallable(Rule):
    """A function, or another object that can be called."""

    accepted = "callable"

    def accepts(self, value: object) -> bool:
        return callable(value)

    def error_type(self, value: object) -> type[Exception]:
        return TypeError


@dataclass(frozen=True)
class FilePath(Rule):
    """The path of a file, or None if it is `optional`."""

    optional: bool = False

    @property
    def accepted(self) -> str:
        return "the path of a file" + (" or None" if self.optional else "")

    def accepts(self, value: object) -> bool:
        is_path = isinstance(value, str) or hasattr(value, "__fspath__")
        return is_path or (self.optional and value is None)

    def error_type(self, value: object) -> type[Exception]:
        return TypeError


class Interval(Rule):
    """Seconds, or a number of epochs such as "10 epochs"."""

    accepted = 'a number of seconds >= 0, or "<n> epochs"'

    def accepts(self, value: Any) -> bool:
        return Number(Real, 0).accepts(value) or epochs_in(value) is not None


def epochs_in(interval: object) -> int | None:
    """Return the number in "10 epochs"; None for anything else."""
    number, _, unit = interval.partition(" ") if isinstance(interval, str) else ("", "", "")
    is_valid = unit in ("epoch", "epochs") and number.isdecimal() and int(number) > 0
    return int(number) if is_valid else None


class Seed(Rule):
    """What scikit-learn's ``check_random_state`` takes."""

    accepted = "None, an integer from 0 to 2**32 - 1 or a numpy RandomState"

    def accepts(self, value: object) -> bool:
        if isinstance(value, (int, np.integer)):
            return bool(0 <= value < 2**32)
        return value is None or value is np.random or isinstance(value, np.random.RandomState)


class ClassWeight:
    """Weights of classes: a dict of numbers that are not negative, "balanced" or None."""

    def check(self, value: object, name: str) -> None:
        if value is None or (isinstance(value, str) and value == "balanced"):
            return
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a dict, 'balanced' or None, got {value!r}.")
        for label, weight in value.items():
            Number(Real, 0).check(weight, f"{name}[{label!r}]")


@dataclass(frozen=True)
class Schedule(Rule):
    """A number, or (number, first_epoch, last_epoch) for one that changes between two epochs.

    `positive` forbids zero. The value in an epoch is :func:`value_at_epoch`.
    """

    positive: bool = False

    @property
    def accepted(self) -> str:
        number = "a positive number" if self.positive else "a number that is not negative"
        return (
            f"{number}, or a tuple of one with first_epoch and last_epoch, "
            "0 <= first_epoch < last_epoch"
        )

    def accepts(self, value: Any) -> bool:
        is_schedule = isinstance(value, (tuple, list)) and len(value) == 3
        number, first, last = value if is_schedule else (value, 0, 1)
        return (
            Number(Real, 0, closed="neither" if self.positive else "both").accepts(number)
            and all(map(is_number, (first, last)))
            and 0 <= first < last
        )

    def hint(self, value: object) -> str:
        return Number(Real, 0).hint(value)


def value_at_epoch(
    setting: Any, epoch: int, start: float | None = None, end: float | None = None
) -> float:
    """Value of a :class:`Schedule` in an epoch: its number, or linear from `start` to `end`."""
    if isinstance(setting, Real):
        return float(setting)
    number, first, last = setting
    start, end = (number if value is None else value for value in (start, end))
    share = min(max((epoch - first) / (last - first), 0.0), 1.0)
    return start + share * (end - start)


def check_parameters(owner: Any, prefix: str = "") -> None:
    """Check the attributes in an object's `_parameter_table`; errors put `prefix` before names."""
    for name, rule in owner._parameter_table.items():
        rule.check(getattr(owner, name), f"{prefix}{name}")


@contextlib.contextmanager
def errors_about(names: str) -> Iterator[None]:
    """Turn errors of libraries into a TypeError or ValueError that names arguments ("X and y")."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError, AssertionError) as error:
        is_named = any(re.search(rf"\b{name}\b", str(error)) for name in names.split(" and "))
        if is_named and isinstance(error, (TypeError, ValueError)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{names}: {error}") from error


# --- objects that hold parameters


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
                f"be set; got {value!r}.{advice_on(owner, key)}"
            )


def advice_on(owner: Any, name: str, known: Iterable[str] = ()) -> str:
    """Advice on a parameter that does not exist: the object that has it, or one spelt alike."""
    group, delimiter, inner = name.partition("__")
    group, inner = (group, inner) if delimiter else ("", name)
    ways = [
        f"{parameter}={kind.__name__}({inner}=...)"
        for parameter, rule in owner._parameter_table.items()
        for kind in getattr(rule, "objects", ())
        if group in ("", parameter) and inner in kind._defaults()
    ]
    if ways:
        return f" Give {' or '.join(ways)} instead."
    known = [*known]
    return did_you_mean(name, [f"{one}__{inner}" for one in known] if delimiter else known)


class Settings(BaseEstimator):
    """Base of objects that hold nothing but parameters.

    The constructor of a subclass assigns its parameters, unchanged, to attributes of the same
    names; they are checked against `_parameter_table` on use. scikit-learn copies the object, and a
    grid search over an estimator with the parameter ``transfer`` reaches the object's parameter
    ``scale`` as ``transfer__scale``.
    """

    _parameter_table: dict[str, Any] = {}  # rule of each parameter
    _of_defaults: ClassVar[object] = None  # what stands for an object with the defaults

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
            None stands for the defaults, and anything else for the first parameter. False stays.

        Returns
        -------
        settings : Settings
        """
        kind: Any = cls  # which takes parameters
        if isinstance(given, Settings) or given is False:
            return given
        is_name = isinstance(given, str) and given == cls._of_defaults
        return kind() if given is cls._of_defaults or is_name else kind(given)

    def _check_as(self, name: str) -> None:
        """Raise a TypeError or ValueError for a parameter of this, given as `name`, if wrong."""
        check_parameters(self, f"{name}__")

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
    """Rule of a parameter that is an object of `kinds` with parameters, or stands for one.

    Without a rule of `others`, other values are checked by whoever reads them. Parameters of the
    object that the estimator does not read, `unread`, must have their default.
    """

    def __init__(
        self,
        kinds: type[Settings] | tuple[type[Settings], ...],
        others: Rule | None = None,
        unread: tuple[str, ...] = (),
    ):
        self.objects = kinds if isinstance(kinds, tuple) else (kinds,)
        self.others, self.unread = others, unread

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, self.objects):
            if self.others is not None and not self.others.accepts(value):
                shown = " or ".join(f"{kind.__name__}(...)" for kind in self.objects)
                module = self.objects[0].__module__.partition("._")[0]
                raise self.others.error_type(value)(
                    f"{name} must be {self.others.accepted}, or a {shown} of "
                    f"{module}, an object and not its class; got {value!r}."
                    f"{self.others.hint(value)}"
                )
            return
        value._check_as(name)
        for parameter in self.unread:
            given, default = getattr(value, parameter), value._defaults()[parameter]
            if given != default:
                raise ValueError(
                    f"{name}__{parameter} must be {default!r} for this estimator, which does not "
                    f"read it; got {given!r}."
                )
