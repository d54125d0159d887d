# SPDX-License-Identifier: BSD-3-Clause
"""What the parameters of estimators may be, and those of their parts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, check_scalar

from ._settings import check_kind
from ._version import __version__
from ._warnings import warn

_PLAIN = (str, int, float, np.bool_)


class Number(NamedTuple):
    """A number between bounds, or one of `others`; `closed` says which bounds are allowed."""

    kind: type
    low: float | None = None
    high: float | None = None
    closed: str = "both"
    others: tuple = ()

    def check(self, value: Any, name: str) -> None:
        if any(type(value) is type(other) and value == other for other in self.others):
            return
        alternatives = "".join(f", or {other!r}" for other in self.others)
        kind = "an integer" if self.kind is Integral else "a number"
        check_kind(value, self.kind, f"{name} must be {kind}{alternatives}")
        if value in (np.inf, -np.inf):
            raise ValueError(f"{name} must be finite{alternatives}, got {value!r}.")
        check_scalar(
            value,
            name,
            self.kind,
            min_val=self.low,
            max_val=self.high,
            include_boundaries=self.closed,
        )


class OneOf(NamedTuple):
    """One of a few values."""

    values: tuple

    def check(self, value: Any, name: str) -> None:
        is_plain = isinstance(value, _PLAIN)  # a tensor may be equal, and be no such value
        if not any(value is option or (is_plain and value == option) for option in self.values):
            raise ValueError(f"{name} must be one of {list(self.values)}, got {value!r}.")


class Seed:
    """None, a seed, or numpy's generator."""

    def check(self, value: Any, name: str) -> None:
        try:
            check_random_state(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{name} must be None, an integer from 0 to 2**32 - 1 or a numpy RandomState, got "
                f"{value!r}."
            ) from error


class ClassWeight:
    """Weights of classes: a dict of numbers that are not negative, "balanced" or None."""

    def check(self, value: Any, name: str) -> None:
        if value is None or (isinstance(value, str) and value == "balanced"):
            return
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a dict, 'balanced' or None, got {value!r}.")
        for label, weight in value.items():
            Number(Real, 0).check(weight, f"{name}[{label!r}]")


@contextlib.contextmanager
def errors_about(names: str) -> Iterator[None]:
    """Make what libraries raise about arguments a TypeError or ValueError that names one of them.

    Parameters
    ----------
    names : str
        Such as "X and y".
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError, AssertionError) as error:
        is_named = any(re.search(rf"\b{name}\b", str(error)) for name in names.split(" and "))
        if is_named and isinstance(error, (TypeError, ValueError)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{names}: {error}") from error


class DunderParameters(BaseEstimator):
    """Estimator that also takes parameters of its parts, as ``<part>__<name>``.

    They are attributes like any other parameter, and ``get_params``, ``set_params`` and ``clone``
    know them.
    """

    _dunder_prefixes = ("module", "optimizer", "callbacks")

    def _dunder_params(self) -> dict[str, Any]:
        """Parameters given as ``module__...`` and the like."""
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        return {name: value for name, value in vars(self).items() if name.startswith(prefixes)}

    def _params_of(self, prefix: str) -> dict[str, Any]:
        start = f"{prefix}__"
        return {
            name.removeprefix(start): value
            for name, value in self._dunder_params().items()
            if name.startswith(start)
        }

    def _set_extra_params(self, params: dict[str, Any]) -> None:
        """Store the keyword arguments of the constructor; unknown ones are reported by fit."""
        self.__dict__.update(params)
        unknown = [name for name in params if name.split("__")[0] not in self._dunder_prefixes]
        if unknown:
            self._unknown_params = unknown

    def _refuse_unknown_parameters(self) -> None:
        if unknown := getattr(self, "_unknown_params", ()):
            raise TypeError(
                f"{type(self).__name__} got unknown parameters {sorted(unknown)}; it takes "
                f"{self._get_param_names()}, and parameters of its parts as "
                f"{[f'{prefix}__<name>' for prefix in self._dunder_prefixes]}."
            )

    def get_params(self, deep=True):
        unknown = {name: getattr(self, name) for name in getattr(self, "_unknown_params", ())}
        return {**super().get_params(deep=deep), **self._dunder_params(), **unknown}

    def set_params(self, **params):
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        dunder = {name: value for name, value in params.items() if name.startswith(prefixes)}
        super().set_params(**{k: v for k, v in params.items() if k not in dunder})
        self.__dict__.update(dunder)
        return self

    def __getstate__(self):
        return {**super().__getstate__(), "_skdistill_version": __version__}

    def __setstate__(self, state):
        state = dict(state)
        _warn_of_other_version(type(self).__name__, state.pop("_skdistill_version", None))
        super().__setstate__(state)


def _warn_of_other_version(estimator: str, version: str | None) -> None:
    """Warn unless `version`, which pickled an estimator, is the one that loads it."""
    if version == __version__:
        return
    writer = "an older version, which noted no number" if version is None else version
    warn(
        f"{estimator} was pickled by skdistill {writer} and is loaded by {__version__}: its "
        "predictions may be wrong, or fail. Load it with the version that pickled it, or fit it "
        "anew.",
    )
