# SPDX-License-Identifier: BSD-3-Clause
"""The schema of the table that a model was fitted on, and the checks of other tables by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import betabinom

from .._utils.warnings import SchemaWarning, tells_of_schema, warn
from .columns import (
    OF_DATES,
    Columns,
    as_table,
    column_of,
    date_columns,
    holds_dates,
    line_that_converts,
    name_of_column,
    read_rows,
    values_of,
    with_columns,
)
from .conversions import in_words, numbers_of

# A column is warned of if more than this share of at least so many values is missing, unknown or
# outside the range, where the share in fit was less than half of it.
_SHARE, LEAST_SAMPLES = 0.1, 10

# Nor is a column warned of that samples like those of fit would have by chance this often.
_CHANCE = 1e-4

# Columns that a warning names at most.
_MOST_NAMED = 5

# Within what only float64 resolves, a value is in the range.
_ROUNDING = 4 * np.finfo(np.float32).eps

_DATE, _DURATION = "days since 1970-01-01", "days"

# How to make one of the other.
_FROM_DATES = {_DATE: "Add them to a date.", _DURATION: "Take a date from them."}

# How the names of dtypes begin, in lower case, of values that are numbers only if they can be read.
_OF_OBJECTS = (
    *("binary", "bytes", "cat", "dictionary", "enum", "large_", "null", "object", "str"),
    *("<u", ">u", "|s"),
)


@dataclass(frozen=True)
class Column:
    """What a column held in `fit`.

    Parameters
    ----------
    name : str or int
        Its name, or its number where columns have none.
    kind : {"number", "category", "boolean", "date", "duration"}
    dtype : str
        As the library of the table calls it.
    unit : str or None
        Of dates and durations, in which `range` is.
    range : tuple of float or None
        Smallest and largest value; None of categories, and where all values were missing.
    categories : tuple or None
        Those that are told apart, of the types that they had.
    share_missing : float
    share_unknown : float
        Of samples whose category no other sample has, or which is none of `categories`.
    """

    name: Any
    kind: str
    dtype: str
    unit: str | None
    range: tuple[float, float] | None
    categories: tuple | None
    share_missing: float
    share_unknown: float

    @property
    def category_types(self) -> str | None:
        """Names of the types of the categories; None where there are none."""
        if self.categories is None:
            return None
        return ", ".join(sorted({type(category).__name__ for category in self.categories}))


@dataclass(frozen=True, repr=False)
class Schema:
    """The columns of the table that a model was fitted on.

    Parameters
    ----------
    columns : tuple of Column
        One for each column, with `name`, `kind` ("number", "category", "boolean", "date" or
        "duration"), `dtype`, `unit` (of dates and durations), `range`, `categories`,
        `category_types`, `share_missing` and `share_unknown`, the share of samples whose category
        no other sample has, or is not told apart. What does not apply is None.
    n_samples : int
        Of `fit`, those of weight 0 included.

    See Also
    --------
    validate : Compare another table with the schema of a model.
    """

    columns: tuple[Column, ...]
    n_samples: int

    def __repr__(self) -> str:
        kinds = [column.kind for column in self.columns]
        counts = ", ".join(f"{kind}: {kinds.count(kind)}" for kind in dict.fromkeys(kinds))
        return f"Schema({counts}; n_samples={self.n_samples})"

    def to_list(self) -> list[dict[str, Any]]:
        """Return the columns as dicts of what JSON can hold.

        Returns
        -------
        columns : list of dict
        """
        return [
            {**_plain(asdict(column)), "category_types": column.category_types}
            for column in self.columns
        ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, eq=False)
class TableSummary:
    """What `fit` keeps of a table, beside names and categories, which others hold.

    Parameters
    ----------
    n_samples : int
    dtypes : list of str
    units : dict of int to str
        Those of dates and durations, by the number of the column.
    low, high : ndarray of shape (n_columns,)
        NaN for categories, and where all values are missing.
    n_missing, n_unknown : ndarray of int of shape (n_columns,)
        See :class:`Column`.
    """

    n_samples: int
    dtypes: list[str]
    units: dict[int, str]
    low: np.ndarray
    high: np.ndarray
    n_missing: np.ndarray
    n_unknown: np.ndarray

    @classmethod
    def of(cls, X: Any, rows: np.ndarray, columns: Columns | None) -> TableSummary:
        """Summarise a table, X, by the numbers that it was encoded as."""
        low = rows.min(axis=0).astype(np.float64)
        high = rows.max(axis=0).astype(np.float64)
        n_missing = np.zeros(rows.shape[1], dtype=np.int64)
        for column in np.flatnonzero(np.isnan(low)).tolist():
            missing = np.isnan(rows[:, column])
            n_missing[column] = missing.sum()
            held = np.array([np.nan]) if missing.all() else rows[~missing, column]
            low[column], high[column] = held.min(), held.max()
        n_unknown = np.zeros(rows.shape[1], dtype=np.int64)
        for column, known in ({} if columns is None else columns.categories).items():
            codes = rows[:, column]
            counts = np.bincount(codes[~np.isnan(codes)].astype(int), minlength=len(known))
            n_unknown[column] = counts[len(known) :].sum() + (counts[: len(known)] == 1).sum()
            low[column] = high[column] = np.nan
        given = X if hasattr(X, "dtype") or hasattr(X, "columns") else rows
        dtypes = dtypes_of(given)
        units = {column: _unit(given, column, dtypes[column]) for column in date_columns(given)}
        return cls(len(rows), dtypes, units, low, high, n_missing, n_unknown)

    def with_further(self, other: TableSummary) -> TableSummary:
        """Return the summary of this table and a further one."""
        return replace(
            self,
            n_samples=self.n_samples + other.n_samples,
            low=np.fmin(self.low, other.low),
            high=np.fmax(self.high, other.high),
            n_missing=self.n_missing + other.n_missing,
            n_unknown=self.n_unknown + other.n_unknown,
        )

    def with_limits(self, low: np.ndarray, high: np.ndarray, n_samples: int) -> TableSummary:
        """Return the summary of a table of more samples, with other smallest and largest values."""
        has_none = np.isnan(self.low)
        low, high = (np.where(has_none, np.nan, limit) for limit in (low, high))
        return replace(self, n_samples=max(n_samples, self.n_samples), low=low, high=high)

    def kind(self, column: int, columns: Columns | None) -> str:
        """Return the kind of a column."""
        if columns is not None and column in columns.categories:
            return "category"
        if column in self.units:
            return "date" if self.units[column] == _DATE else "duration"
        return "boolean" if self.dtypes[column].lower().startswith("bool") else "number"

    def schema(self, names: Any, columns: Columns | None) -> Schema:
        """Return the schema; `names` are those of the columns, or None."""
        found = []
        for number, dtype in enumerate(self.dtypes):
            low, high = float(self.low[number]), float(self.high[number])
            categories = None if columns is None else columns.categories.get(number)
            found.append(
                Column(
                    number if names is None else str(names[number]),
                    self.kind(number, columns),
                    dtype,
                    self.units.get(number),
                    None if np.isnan(low) else (low, high),
                    None if categories is None else tuple(categories),
                    float(self.n_missing[number] / self.n_samples),
                    float(self.n_unknown[number] / self.n_samples),
                )
            )
        return Schema(tuple(found), self.n_samples)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest values, with room for rounding to float32."""
        slack = _ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high))
        return self.low - slack, self.high + slack


def dtypes_of(X: Any) -> list[str]:
    """Names of the dtypes of columns."""
    if hasattr(X, "columns"):
        return [str(dtype) for dtype in X.dtypes]
    return [str(X.dtype)] * X.shape[1]


def _unit(X: Any, column: int, dtype: str) -> str:
    """Return the unit of a column of dates or durations."""
    kind = dtype.lower()
    if kind == "object":
        values = (value for value in values_of(column_of(X, column)) if value is not None)
        kind = type(next(values)).__name__
    return _DURATION if kind.startswith(("duration", "timedelta")) else _DATE


# --- reading


def read_table(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **settings: Any
) -> Any:
    """Read X, and y if it is given, as :func:`read_rows` does, by the schema of the estimator.

    ``reset=True`` finds it, as the attribute `_summary`. Else values are converted to those of
    `fit` where nothing is lost, and without y, which is in prediction, one warning tells of columns
    that are suspicious.
    """
    X = as_table(X)
    is_alone = isinstance(y, str) and y == "no_validation"
    if reset:
        estimator._summary = None
    elif estimator._summary is not None:
        X = _converted(estimator, X)
    found = read_rows(estimator, X, y, reset=reset, **settings)
    rows = found if is_alone else found[0]
    if reset:
        if rows.ndim == 2:
            estimator._summary = TableSummary.of(X, rows, estimator._columns)
    elif is_alone:
        warn_of_shares(estimator, X, rows)
    return found


def add_to_summary(estimator: Any, X: Any, rows: np.ndarray) -> None:
    """Let the schema of an estimator tell of further rows that it is trained on."""
    if estimator._summary is not None:
        further = TableSummary.of(as_table(X), rows, estimator._columns)
        estimator._summary = estimator._summary.with_further(further)


def _converted(estimator: Any, X: Any) -> Any:
    """Return a table whose columns of numbers and dates are such; those of categories stay."""
    table = table_like_fit(estimator, X)
    if table is None:
        return X  # the check that follows says what is wrong
    numbers = {
        column: values
        for column in columns_to_convert(estimator, table)
        if (values := numbers_in(estimator, table, column)) is not None
    }
    return with_columns(table, numbers) if numbers else X


def table_like_fit(estimator: Any, X: Any) -> Any:
    """Return X, or an array of it, if it has the number and names of the columns of fit."""
    if isinstance(X, (list, tuple)):
        try:
            array = np.asarray(X)
            X = np.array(X, dtype=object) if array.dtype.kind in "SU" else array
        except ValueError:
            return None
    if not (hasattr(X, "iloc") or hasattr(X, "schema") or isinstance(X, np.ndarray)):
        return None
    if len(np.shape(X)) != 2 or X.shape[1] != len(estimator._summary.dtypes):
        return None
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        return None
    return X


def columns_to_convert(estimator: Any, X: Any) -> Iterator[int]:
    """Columns that may not hold what they did in fit: numbers, dates, or categories."""
    summary: TableSummary = estimator._summary
    encoded = () if estimator._columns is None else estimator._columns.categories
    for column, dtype in enumerate(dtypes_of(X)):
        had_dates = column in summary.units
        if column in encoded:
            is_other = not had_dates and holds_dates(column_of(X, column))
        else:
            is_other = had_dates or dtype.lower().startswith((*_OF_OBJECTS, *OF_DATES))
        if is_other:
            yield column


def numbers_in(estimator: Any, X: Any, column: int) -> np.ndarray | None:
    """Read a column of numbers or dates; None where :func:`read_rows` reads it as it is.

    Raises
    ------
    ValueError
        If it cannot be converted without loss.
    """
    summary: TableSummary = estimator._summary
    values = column_of(X, column)
    unit, name = summary.units.get(column), name_of_column(X, column)
    kind = summary.kind(column, estimator._columns)
    is_boolean = kind == "boolean"
    wanted = "categories" if kind == "category" else f"{kind}s"
    if holds_dates(values):
        given = _unit(X, column, str(values.dtype))
        if unit == given:
            return None
        raise ValueError(
            f"Column {name!r} of X must hold {wanted} as in fit; got "
            f"{'dates' if given == _DATE else 'durations'}, of {values.dtype}. "
            f"{_FROM_DATES.get(unit or '', f'Give the {wanted} that fit had.')}"
        )
    found = values_of(values)

    def refusal(value: Any, values: list) -> ValueError:
        line = line_that_converts(X, column, wanted, value)
        return ValueError(
            f"Column {name!r} of X must hold {wanted} as in fit, of {summary.dtypes[column]}; "
            f"got {in_words(values)}. {line}"
        )

    if unit is not None:
        held = [value for value in found if value is not None]
        if held:
            raise refusal(held[0], held)
        return np.full(len(found), np.nan)
    return numbers_of(found, is_boolean, refusal)


# --- shares


@dataclass(frozen=True)
class Shift:
    """How the values of a column differ from those of fit.

    Parameters
    ----------
    column : int
    n_missing, n_unknown, n_outside : int
    reasons : tuple of str
        What is suspicious about it; none if nothing is.
    """

    column: int
    n_missing: int
    n_unknown: int
    n_outside: int
    reasons: tuple[str, ...]


def shift_of(estimator: Any, X: Any, values: np.ndarray, column: int) -> Shift:
    """Compare encoded values of a column with those of fit; X is the table as it was given."""
    summary: TableSummary = estimator._summary
    name, n = _name(estimator, column), len(values)
    low, high = (limits[column] for limits in summary.limits)
    n_missing, n_unknown = int(np.isnan(values).sum()), 0
    n_outside = int(np.count_nonzero(values < low) + np.count_nonzero(values > high))
    is_category = summary.kind(column, estimator._columns) == "category"
    if n_missing and is_category:
        n_unknown = n_missing
        n_missing = sum(value is None for value in values_of(column_of(as_table(X), column)))
        n_unknown -= n_missing
    reasons = []
    if _is_suspicious(n_missing, n, summary.n_missing[column], summary.n_samples):
        reasons.append(
            f"{n_missing} of {n} values of {name} are missing, "
            f"{summary.n_missing[column]} of {summary.n_samples} were in fit"
        )
    none_known = 0 < n_unknown == n - n_missing and n_unknown >= LEAST_SAMPLES
    if none_known or _is_suspicious(n_unknown, n, summary.n_unknown[column], summary.n_samples):
        reasons.append(
            f"{n_unknown} of {n} values of {name} are unknown categories, "
            f"{'none was' if none_known else 'which were not'} in fit"
        )
    # Of two samples of one distribution, the range of the first has two places beyond it.
    if _is_suspicious(n_outside, n, 1, summary.n_samples - 1, had=0):
        limits = summary.low[column], summary.high[column]
        reasons.append(
            f"{n_outside} of {n} values of {name} are outside the range of fit, "
            f"{range_in_words(limits, summary.units.get(column))}"
        )
    return Shift(column, n_missing, n_unknown, n_outside, tuple(reasons))


def _is_suspicious(count: int, n: int, count_in_fit: int, n_in_fit: int, had: int | None = None):
    """Tell whether a share is far larger than in fit, and not by chance.

    The chance is that of samples of the same distribution, with a uniform prior for its share.
    """
    share_in_fit = (count_in_fit if had is None else had) / max(n_in_fit, 1)
    if n < LEAST_SAMPLES or count <= _SHARE * n or share_in_fit >= count / n / 2:
        return False
    a, b = count_in_fit + 1, max(n_in_fit - count_in_fit + 1, 1)
    return bool(betabinom.sf(count - 1, n, a, b) < _CHANCE)


def warn_of_shares(estimator: Any, X: Any, rows: np.ndarray) -> None:
    """Warn, once, of all columns of rows to predict that are suspicious."""
    summary: TableSummary | None = estimator._summary
    if summary is None or rows.ndim != 2 or len(rows) < LEAST_SAMPLES:
        return
    low, high = summary.limits
    n_far = np.count_nonzero(rows < low) + np.count_nonzero(rows > high)
    n_missing = 0 if rows is X else np.count_nonzero(np.isnan(rows))
    if max(n_far, n_missing) <= _SHARE * len(rows) or not tells_of_schema():
        return
    shifts = (shift_of(estimator, X, rows[:, column], column) for column in range(rows.shape[1]))
    reasons = [reason for shift in shifts for reason in shift.reasons]
    if reasons:
        further = len(reasons) - _MOST_NAMED
        named = "; ".join(reasons[:_MOST_NAMED])
        more = f"; and so on for {further} more" if further > 0 else ""
        warn(
            f"X is unlike the table of fit: {named}{more}. skdistill.validate(model, X) shows all "
            "columns.",
            SchemaWarning,
        )


def _name(estimator: Any, column: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"column {column}" if names is None else repr(str(names[column]))


def range_in_words(limits: tuple[float, float], unit: str | None) -> str:
    """Say from where to where the values of a column are."""
    low, high = limits
    if unit == _DATE:
        first, last = (np.datetime64(0, "s") + np.timedelta64(int(d * 86_400), "s") for d in limits)
        is_whole = all(float(days).is_integer() for days in limits)
        return " to ".join(str(day.astype("M8[D]") if is_whole else day) for day in (first, last))
    return f"{low:.6g} to {high:.6g}{'' if unit is None else ' days'}"
