# SPDX-License-Identifier: BSD-3-Clause
"""Settings objects of the pure torch layer, which scikit-learn can clone and search over.

What counts as a number is said here too, for these and for everything else.
"""

from __future__ import annotations

import inspect
import math
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["Settings", "check_kind", "is_number"]

_INTEGERS = (int, np.int32, np.int64)
_NUMBERS = (*_INTEGERS, float, np.float32)


def is_number(value: Any, kind: type = Real) -> bool:
    """Tell whether NumPy and torch calculate with a value as with a Python number.

    They do not with integers beyond 64 bits, with NumPy's smaller integers and floats, which
    overflow, with its unsigned integers, with tensors and with fractions.

    Parameters
    ----------
    value : object
    kind : {numbers.Real, numbers.Integral}, default=Real
        Whether the number must be whole.

    Returns
    -------
    is_number : bool
        False also for booleans and NaN.
    """
    kinds = _INTEGERS if kind is Integral else _NUMBERS
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else bool(value == value)


def check_kind(value: Any, kind: type, wanted: str) -> None:
    """Raise TypeError unless a value is a number of a kind; `wanted` is how the message begins."""
    if is_number(value, kind):
        return
    is_small_or_large = isinstance(value, (int, np.number)) and not isinstance(value, bool)
    hint = " Give a number of Python's own, of at most 64 bits." if is_small_or_large else ""
    raise TypeError(f"{wanted}, got {value!r}.{hint}")


class Settings:
    """Base of objects that hold parameters and nothing else.

    The constructor of a subclass takes named parameters and assigns each, as it is, to the
    attribute of its name; whether it makes sense is checked where it is used. Then
    ``sklearn.base.clone`` copies the object, and a grid search over an estimator that holds it as
    ``transfer`` reaches its parameter ``scale`` as ``transfer__scale``.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Names of the parameters, each with its default."""
        parameters = inspect.signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add the parameters of parameters that have some, as
            ``<parameter>__<name>``.

        Returns
        -------
        params : dict
        """
        params = {name: getattr(self, name) for name in self._defaults()}
        if deep:
            for name, value in list(params.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    params.update({f"{name}__{k}": v for k, v in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Settings:
        """Set parameters by name.

        Parameters
        ----------
        **params
            ``<parameter>``, or ``<parameter>__<name>`` for a parameter of a parameter.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no parameter of such a name.
        """
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, delimiter, inner = key.partition("__")
            if name not in self._defaults():
                raise ValueError(
                    f"Invalid parameter {name!r} for {self!r}. Valid parameters are: "
                    f"{list(self._defaults())}."
                )
            if delimiter:
                nested.setdefault(name, {})[inner] = value
            else:
                setattr(self, name, value)
        for name, inner_params in nested.items():
            getattr(self, name).set_params(**inner_params)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self._defaults().items()
            if repr(getattr(self, name)) != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_number(
        self, name: str, low: float, high: float = math.inf, *, open_low: bool = False
    ) -> None:
        """Raise unless a parameter is a finite number from `low` (or above it) to `high`."""
        value = getattr(self, name)
        start = f"{type(self).__name__}: {name} must be a finite number"
        if not isinstance(value, float):  # NaN is, and within no bounds
            check_kind(value, Real, start)
        number = float(value)
        is_above = number > low if open_low else number >= low
        if not (is_above and number <= high and math.isfinite(number)):
            bounds = f"above {low}" if open_low else f"of at least {low}"
            bounds += f" and at most {high}" if math.isfinite(high) else ""
            raise ValueError(f"{start} {bounds}, got {value!r}.")
