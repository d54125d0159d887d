# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the makers of transfer sets, and how categorical columns are given."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._utils.settings import Settings
from .._utils.validation import check_parameters, did_you_mean, is_number

# Samples of shape (..., *sample), their index of shape (...), a generator on their device -> new
# samples.
Draw = Callable[[Tensor, Tensor, torch.Generator], Tensor]

# The columns that encode each categorical variable, such as [(3,), (5, 6, 7)].
Variables = list[tuple[int, ...]]


class TransferMaker(Settings, ABC):
    """Base of settings that make a transfer set by drawing new samples.

    The parameter `categorical`, where there is one, is a mask, ``n_features`` booleans, or a list
    of columns, by number or name; a tuple of numbers stands for columns that encode one variable,
    such as one-hot columns.

    Attributes
    ----------
    keeps_labels : bool
        Whether a drawn sample keeps the label of the sample that it is drawn from. If not, it has
        the teacher's predictions only.
    asks_teacher : bool
        Whether ``prepare`` takes the teacher as well, as :class:`Disagreement` does.
    """

    keeps_labels = False
    asks_teacher = False
    categorical: Any = None  # a parameter of makers that treat such columns differently
    base: Any = None  # a parameter of makers that choose among the samples of another

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a TypeError or ValueError unless the settings are valid and suit the samples.

        Parameters
        ----------
        shape : tuple of int
            Shape of the samples, (n, ...).
        """
        check_parameters(self, f"{type(self).__name__}: ")
        self._variables(shape)

    def changes(self, X: Tensor) -> bool:
        """Tell whether samples that are drawn differ from those that they are drawn from.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            The samples.

        Returns
        -------
        changes : bool
        """
        return True

    @abstractmethod
    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        """Return a function that draws new samples for these.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            The samples.
        weight : Tensor of shape (n,), default=None
            Sample weights.

        Returns
        -------
        draw : callable
            ``draw(rows, index, generator)`` takes some of the samples, ``rows = X[index]`` of shape
            (..., \\*X.shape[1:]), their `index`, of shape (...), and a ``torch.Generator`` on
            their device. It returns as many new samples in a new tensor. They depend on the state
            of the generator and on the shape of `index`.
        """

    def _variables(self, shape: tuple[int, ...]) -> Variables:
        """Columns of each categorical variable."""
        if self.categorical is None:
            return []
        if len(shape) != 2:
            raise ValueError(
                f"{type(self).__name__}: categorical must be None where samples have more than one "
                f"axis, got {self.categorical!r} with X of shape {tuple(shape)}."
            )
        variables = as_variables(self.categorical, shape[1])
        if variables is None:
            raise ValueError(
                f"{type(self).__name__}: categorical must be None, a mask of {shape[1]} booleans, "
                f"or a list of columns from 0 to {shape[1] - 1}, each of them once, with a tuple "
                "for columns that encode one variable (or names of columns, in a distiller that is "
                f"fitted on a frame); got {self.categorical!r}."
            )
        return variables

    def _variables_of(self, X: Tensor) -> Variables:
        """Columns of each categorical variable of some samples, (n, d)."""
        return self._variables(X.shape)

    def _is_categorical(self, X: Tensor) -> Tensor | None:
        """Tell which columns are categorical, (d,); None if there can be none."""
        if self.categorical is None:
            return None
        mask = torch.zeros(X.shape[1], dtype=torch.bool)
        mask[[column for variable in self._variables(X.shape) for column in variable]] = True
        return mask.to(X.device)

    def _variable_of_columns(self, X: Tensor) -> Tensor:
        """Variable of each column, (d,), identified by the first of its columns."""
        number = torch.arange(X.shape[1])
        for variable in self._variables(X.shape):
            number[list(variable)] = variable[0]
        return number.to(X.device)


def _has_items(value: object) -> bool:
    """Whether a value can be iterated over; an array of no axis has __iter__, which raises."""
    return isinstance(value, Iterable) and (not hasattr(value, "ndim") or value.ndim > 0)


def as_variables(categorical: Any, n_columns: int) -> Variables | None:
    """Read a mask of columns, or their numbers and tuples of numbers; None if it is neither."""
    if not _has_items(categorical) or isinstance(categorical, (str, bytes, Tensor, type)):
        return None
    items = list(categorical)
    if items and all(isinstance(item, (bool, np.bool_)) for item in items):
        return [(int(c),) for c in np.flatnonzero(items)] if len(items) == n_columns else None
    variables = [tuple(item) if _has_items(item) else (item,) for item in items]
    columns = [column for variable in variables for column in variable]
    if not all(is_number(column, Integral) for column in columns):
        return None
    is_valid = all(0 <= c < n_columns for c in columns) and len(set(columns)) == len(columns)
    return variables if is_valid and all(variables) else None


def numbered(maker: TransferMaker, names: Sequence[str] | np.ndarray | None) -> TransferMaker:
    """Return a maker with numbers of columns where `categorical` gives their names.

    `names` are those of all columns, None if they have none. Raises a ValueError for other names.
    """
    changed: dict[str, Any] = {}
    given = maker.categorical
    if isinstance(given, (list, tuple)) and any(map(_has_names, given)):
        changed["categorical"] = [_number_of(item, names, maker) for item in given]
    base = maker.base
    if isinstance(base, TransferMaker) and (of_base := numbered(base, names)) is not base:
        changed["base"] = of_base
    copied = copy.copy(maker).set_params(**changed) if changed else maker
    return cast("TransferMaker", copied)


def _has_names(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, tuple) and any(map(_has_names, item)))


def _number_of(item: object, names: Sequence[str] | np.ndarray | None, maker: TransferMaker) -> Any:
    """Return the number of a named column, those of a tuple of them, or what has a number."""
    if isinstance(item, tuple):
        return tuple(_number_of(one, names, maker) for one in item)
    if not isinstance(item, str):
        return item
    known = [] if names is None else list(names)
    if item not in known:
        has = f"X has {known}" if known else "X has no names: give a frame to fit, or numbers"
        raise ValueError(
            f"{type(maker).__name__}: categorical must be columns of X, got {item!r}, but {has}."
            f"{did_you_mean(item, known)}"
        )
    return known.index(item)


def per_row(index: Tensor, rows: Tensor) -> tuple[int, ...]:
    """Shape of one number for each sample, to go with the samples."""
    return (*index.shape, *[1] * (rows.ndim - index.ndim))
