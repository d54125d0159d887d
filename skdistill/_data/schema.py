# SPDX-License-Identifier: BSD-3-Clause
"""The schema of the table that a model was fitted on, and the checks of other tables by it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.stats import betabinom
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_array, check_X_y
from sklearn.utils.validation import validate_data

from .._utils.warnings import SchemaWarning, tells_of_schema, warn
from .checks import refuse_masked
from .columns import (
    CHECKS,
    OF_DATES,
    Columns,
    as_table,
    column_of,
    date_columns,
    feature_names_of,
    holds_dates,
    name_of_column,
    values_of,
    with_columns,
    with_days,
)
from .conversions import in_words, number_of

_SHARE, LEAST_SAMPLES = 0.1, 10  # of values missing, unknown or outside; values; doc/design.rst
_CHANCE = 1e-4  # probability, for samples like those of fit, below which a column is warned of
_MOST_NAMED = 5  # columns that a warning names
_ROUNDING = 4 * np.finfo(np.float32).eps  # by which values may be outside the range, relative

_DATE, _DURATION = "days since 1970-01-01", "days"

# How to make one of the other.
_FROM_DATES = {_DATE: "Add them to a date.", _DURATION: "Take a date from them."}

# Names of dtypes of numbers: of NumPy, and of polars and those of pandas with missing values.
_NUMPY, _NULLABLE = re.compile(r"bool|u?(int|float)\d+"), re.compile(r"[Bb]oolean|U?(Int|Float)\d+")
_SMALL = 4096  # values of a frame that is read at once, and not column by column

# How the names of dtypes begin, in lower case, of values that are numbers only if they can be read.
_OF_OBJECTS = (
    *("binary", "bytes", "cat", "dictionary", "enum", "large_", "null", "object", "str"),
    *("<u", ">u", "|s"),
)


@dataclass(frozen=True)
class Column:
    """What a column held in `fit`, see :class:`Schema`."""

    name: Any  # or its number where columns have none
    kind: str
    dtype: str  # as the library of the table calls it
    unit: str | None
    range: tuple[float, float] | None
    categories: tuple | None
    share_missing: float
    share_unknown: float

    @property
    def category_types(self) -> str | None:
        """Names of the types of the categories; None where there are none."""
        names = {type(category).__name__ for category in self.categories or ()}
        return None if self.categories is None else ", ".join(sorted(names))


@dataclass(frozen=True, repr=False)
class Schema:
    """Schema of the table that a model was fitted to: type, range and categories of each column.

    Parameters
    ----------
    columns : tuple of Column
        One for each column, with `name`, `kind` ("number", "category", "boolean", "date" or
        "duration"), `dtype`, `unit` (of dates and durations, in which `range` is), `range`, the
        smallest and largest value, `categories` that are told apart, of the types that they had,
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

    def to_list(self) -> list[dict[str, object]]:
        """Return the columns as dicts of what JSON can hold.

        Returns
        -------
        columns : list of dict
        """
        return [
            {**_as_json(asdict(column)), "category_types": column.category_types}
            for column in self.columns
        ]


def _as_json(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_as_json(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, eq=False)
class InputSchema:
    """What `fit` has learned of X; images and series, which are no tables, have two fields alone.

    Arrays have one value for each column; for the counts see :class:`Column`.
    """

    columns: Columns | None  # those that hold categories; None where none are looked for
    names: np.ndarray | None  # of the features, if X has some
    dtypes: list[str] = field(default_factory=list)
    n_samples: int = 0
    units: dict[int, str] = field(default_factory=dict)  # of dates and durations, by column
    low: np.ndarray = field(default_factory=lambda: np.empty(0))  # NaN for categories, and
    high: np.ndarray = field(default_factory=lambda: np.empty(0))  # where all values are missing
    n_missing: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_unknown: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls, X: object, rows: np.ndarray, columns: Columns | None, names: np.ndarray | None
    ) -> InputSchema:
        """Summarise X by the numbers that it was encoded as."""
        if rows.ndim != 2:
            return cls(columns, names)
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
        return cls(columns, names, dtypes, len(rows), units, low, high, n_missing, n_unknown)

    def __getstate__(self) -> dict[str, Any]:
        return {own.name: getattr(self, own.name) for own in fields(self)}  # nothing that is cached

    @property
    def is_table(self) -> bool:
        """Whether X is one."""
        return bool(self.dtypes)

    @property
    def categories(self) -> dict[int, list]:
        """Categories of each column that holds some, by its number."""
        return {} if self.columns is None else self.columns.categories

    @property
    def text(self) -> list[int]:
        """Numbers of the columns with a category that is no number."""
        return [] if self.columns is None else self.columns.text

    def grown(self, X: ArrayLike) -> InputSchema:
        """Return the schema with the categories of further samples; the codes of others stay."""
        return self if self.columns is None else replace(self, columns=self.columns.grown(X))

    def with_further(self, X: ArrayLike, rows: np.ndarray) -> InputSchema:
        """Return the schema of this table and a further one."""
        other = InputSchema.of(as_table(X), rows, self.columns, self.names)
        return replace(
            self,
            n_samples=self.n_samples + other.n_samples,
            low=np.fmin(self.low, other.low),
            high=np.fmax(self.high, other.high),
            n_missing=self.n_missing + other.n_missing,
            n_unknown=self.n_unknown + other.n_unknown,
        )

    def with_limits(self, low: np.ndarray, high: np.ndarray, n_samples: int) -> InputSchema:
        """Return the schema of a table of more samples, with other smallest and largest values."""
        if not self.is_table:
            return self
        has_none = np.isnan(self.low)
        low, high = (np.where(has_none, np.nan, limit) for limit in (low, high))
        return replace(self, n_samples=max(n_samples, self.n_samples), low=low, high=high)

    def kind(self, column: int) -> str:
        """Return the kind of a column."""
        if column in self.categories:
            return "category"
        if column in self.units:
            return "date" if self.units[column] == _DATE else "duration"
        return "boolean" if self.dtypes[column].lower().startswith("bool") else "number"

    def described(self) -> Schema:
        """Return the public description of the columns."""
        found = []
        for k, dtype in enumerate(self.dtypes):
            name = k if self.names is None else str(self.names[k])
            low, high = float(self.low[k]), float(self.high[k])
            limits = None if np.isnan(low) else (low, high)
            categories = tuple(self.categories[k]) if k in self.categories else None
            shares = [
                float(counts[k] / self.n_samples) for counts in (self.n_missing, self.n_unknown)
            ]
            facts = name, self.kind(k), dtype, self.units.get(k), limits, categories
            found.append(Column(*facts, *shares))
        return Schema(tuple(found), self.n_samples)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest values, with room for rounding to float32."""
        slack = _ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high))
        return self.low - slack, self.high + slack

    @cached_property
    def _plan(self) -> _Plan | None:
        """How frames like that of fit are encoded; None where some column has to be converted."""
        dtypes: list[Any] = [np.dtype(d) if _NUMPY.fullmatch(d) else d for d in self.dtypes]
        numbers = [d for column, d in enumerate(dtypes) if column not in self.categories]
        are_numpy = [isinstance(d, np.dtype) for d in numbers]
        are_plain = all(
            is_one or _NULLABLE.fullmatch(d) for is_one, d in zip(are_numpy, numbers, strict=True)
        )
        if self.names is None or self.units or not are_plain:
            return None
        dtype: Any = np.result_type(*numbers) if numbers and all(are_numpy) else np.float64
        dtype = dtype if dtype in CHECKS["dtype"] else np.float64  # as `check_array` has it
        known = self.categories.items()
        codes = {column: {v: float(code) for code, v in enumerate(own)} for column, own in known}
        return _Plan(self.names.tolist(), dtypes, dtype if numbers else np.float32, codes)

    def encoded(self, X: Any) -> np.ndarray | None:
        """Encode a frame with the names and dtypes of fit, one lookup a category; None for others.

        Others, and missing, unknown and infinite values, are read by :func:`read_table`.
        """
        plan, is_pandas = self._plan, hasattr(X, "iloc")
        if plan is None or not (is_pandas or hasattr(X, "get_columns")) or not len(X):
            return None
        kinds = X.dtypes.tolist() if is_pandas else dtypes_of(X)
        if kinds != plan.dtypes or list(X.columns) != plan.names:
            return None
        try:
            if not plan.codes:
                rows = np.ascontiguousarray(X.to_numpy(), plan.dtype)
            else:
                rows, is_small = np.empty(X.shape, plan.dtype), is_pandas and X.size <= _SMALL
                columns = X.to_numpy(dtype=object).T.tolist() if is_small else range(X.shape[1])
                for column, values in enumerate(columns):
                    values = values if is_small else column_of(X, column)
                    if column in plan.codes:
                        held = values if is_small else np.asarray(values, dtype=object).tolist()
                        values = list(map(plan.codes[column].__getitem__, held))
                    rows[:, column] = values
        except (KeyError, TypeError, ValueError):  # of a value that is no number, or not known
            return None
        return rows if math.isfinite(np.vdot(rows, rows)) else None


class _Plan(NamedTuple):
    names: list[str]
    dtypes: list[Any]  # of the columns; the name of a dtype of pandas equals it
    dtype: Any  # of the encoded samples
    codes: dict[int, dict[Any, float]]  # of each category, by its column


def dtypes_of(X: Any) -> list[str]:
    """Names of the dtypes of columns."""
    if hasattr(X, "columns"):
        return [str(dtype) for dtype in X.dtypes]
    return [str(X.dtype)] * X.shape[1]


def _unit(X: object, column: int, dtype: str) -> str:
    """Return the unit of a column of dates or durations."""
    kind = dtype.lower()
    if kind == "object":
        values = (value for value in values_of(column_of(X, column)) if value is not None)
        kind = type(next(values)).__name__
    return _DURATION if kind.startswith(("duration", "timedelta")) else _DATE


def read_table(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike = "no_validation",
    *,
    schema: InputSchema | None = None,
    **settings: Any,
) -> tuple[Any, InputSchema]:
    """Check X, and y if it is given, as ``validate_data`` of scikit-learn does; return numbers.

    Beside them is the schema: that of `fit`, or None to find it. Values are converted to those of
    `fit` where nothing is lost, and without y, which is in prediction, one warning tells of columns
    that are suspicious. They may be missing, NaN, in tables of an estimator with
    ``normalize=True``.
    """
    is_alone = isinstance(y, str) and y == "no_validation"
    _refuse_others(X)
    X = as_table(X)
    if is_alone and schema is not None and (rows := schema.encoded(X)) is not None:
        warn_of_shares(schema, X, rows)
        return rows, schema
    like = table_like_fit(schema, X) if schema is not None and schema.is_table else None
    if schema is not None and like is not None:  # or the check that follows says what is wrong
        found = {column: numbers_in(schema, like, column) for column in to_convert(schema, like)}
        numbers = {column: values for column, values in found.items() if values is not None}
        X = with_columns(like, numbers) if numbers else X
    refuse_masked(y, "y")
    table, may_lack = with_days(X), estimator.normalize in (True, "X")
    settings = {**CHECKS, **settings, "ensure_all_finite": "allow-nan" if may_lack else True}
    if schema is None:
        columns = Columns.of(table, estimator.categorical_features)
    else:
        columns = schema.columns
    if columns is None or y is None:  # which scikit-learn knows what to say of
        found = validate_data(estimator, table, y, reset=schema is None, **settings)
    else:
        validate_data(estimator, table, reset=schema is None, skip_check_array=True)
        table = columns.encode(table, is_training=not is_alone)
        found = check_array(table, **settings) if is_alone else check_X_y(table, y, **settings)
    rows = found if is_alone else found[0]
    if may_lack and rows.ndim != 2:
        assert_all_finite(rows, input_name="X")
    if schema is None:
        schema = InputSchema.of(X, rows, columns, feature_names_of(estimator))
    elif is_alone:
        warn_of_shares(schema, X, rows)
    return found, schema


def _refuse_others(X: Any) -> None:
    """Raise an error for what is no table, in words that say what is one, or is sparse."""
    if issparse(X):  # which the first layer would make dense: memory that is the user's to spend
        gigabytes = np.prod(X.shape, dtype=float) * np.dtype(float).itemsize / 1e9
        raise TypeError(
            f"X must be dense, got a sparse {type(X).__name__} of shape {X.shape}. X.toarray() is "
            f"dense, and takes {gigabytes:.2g} GB. If that is too much, reduce the columns first, "
            "make_pipeline(TruncatedSVD(50), model), or give fit dense samples batch by batch, see "
            "skdistill.streams."
        )
    is_records = isinstance(X, (list, tuple)) and isinstance((*X, None)[0], Mapping)
    if X is None or is_records or isinstance(X, (str, bytes, Mapping, Set, Iterator)):
        raise TypeError(
            "X must be an array, a frame, or a list of lists of values, got "
            f"{type(X).__name__}{' of dicts' * is_records}. pandas.DataFrame(X) makes a frame "
            "of a dict of columns, or of records."
        )
    if hasattr(X, "to_frame") and len(X.shape) == 1:
        raise ValueError(
            f"X: Expected 2D array, got 1D array instead, a {type(X).__name__}. Reshape your "
            "data: frame.iloc[[0]], or frame[[0]] in polars, is a frame of one sample."
        )


def table_like_fit(schema: InputSchema, X: Any) -> Any:
    """Return X, or an array of it, if it has the number and names of the columns of fit."""
    if isinstance(X, (list, tuple)):
        try:
            array = np.asarray(X)
            X = np.array(X, dtype=object) if array.dtype.kind in "SU" else array
        except ValueError:
            return None
    if not (hasattr(X, "iloc") or hasattr(X, "schema") or isinstance(X, np.ndarray)):
        return None
    if len(np.shape(X)) != 2 or X.shape[1] != len(schema.dtypes):
        return None
    names = schema.names
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        return None
    return X


def to_convert(schema: InputSchema, X: ArrayLike) -> Iterator[int]:
    """Columns that may not hold what they did in fit: numbers, dates, or categories."""
    for column, dtype in enumerate(dtypes_of(X)):
        had_dates = column in schema.units
        if column in schema.categories:
            is_other = not had_dates and holds_dates(column_of(X, column))
        else:
            is_other = had_dates or dtype.lower().startswith((*_OF_OBJECTS, *OF_DATES))
        if is_other:
            yield column


def numbers_in(schema: InputSchema, X: ArrayLike, column: int) -> np.ndarray | None:
    """Read a column of numbers or dates, without loss; None if it is to be read as it is."""
    values = column_of(X, column)
    unit, name = schema.units.get(column), name_of_column(X, column)
    kind = schema.kind(column)
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

    def refusal(values: list) -> ValueError:
        return ValueError(
            f"Column {name!r} of X must hold {wanted} as in fit, of {schema.dtypes[column]}; "
            f"got {in_words(values)}. Convert it to {wanted}."
        )

    is_boolean, dates = kind == "boolean", unit is not None
    numbers = [math.nan if v is None else number_of(v, is_boolean) for v in found]
    pairs = zip(found, numbers, strict=True)
    if refused := [v for v, n in pairs if n is None or (dates and v is not None)]:
        raise refusal(refused)
    return np.array(numbers, dtype=np.float64)


class Shift(NamedTuple):
    """How the values of a column differ from those of fit; `reasons` say what is suspicious."""

    n_missing: int
    n_unknown: int
    n_outside: int
    reasons: tuple[str, ...]


def shift_of(schema: InputSchema, X: ArrayLike, values: np.ndarray, column: int) -> Shift:
    """Compare encoded values of a column with those of fit; X is the table as it was given."""
    n = len(values)
    name = f"column {column}" if schema.names is None else repr(str(schema.names[column]))
    low, high = (limits[column] for limits in schema.limits)
    n_missing, n_unknown = int(np.isnan(values).sum()), 0
    n_outside = int(np.count_nonzero(values < low) + np.count_nonzero(values > high))
    is_category = schema.kind(column) == "category"
    if n_missing and is_category:
        n_unknown = n_missing
        n_missing = sum(value is None for value in values_of(column_of(as_table(X), column)))
        n_unknown -= n_missing
    reasons = []
    if _is_suspicious(n_missing, n, schema.n_missing[column], schema.n_samples):
        reasons.append(
            f"{n_missing} of {n} values of {name} are missing, "
            f"{schema.n_missing[column]} of {schema.n_samples} were in fit"
        )
    knew_most = 2 * schema.n_unknown[column] < schema.n_samples
    none_known = 0 < n_unknown == n - n_missing and n_unknown >= LEAST_SAMPLES and knew_most
    if none_known or _is_suspicious(n_unknown, n, schema.n_unknown[column], schema.n_samples):
        reasons.append(
            f"{n_unknown} of {n} values of {name} are unknown categories, "
            f"{'none was' if none_known else 'which were not'} in fit"
        )
    # Of two samples of one distribution, the range of the first has two places beyond it.
    if _is_suspicious(n_outside, n, 1, schema.n_samples - 1, had=0):
        limits = schema.low[column], schema.high[column]
        reasons.append(
            f"{n_outside} of {n} values of {name} are outside the range of fit, "
            f"{range_in_words(limits, schema.units.get(column))}"
        )
    return Shift(n_missing, n_unknown, n_outside, tuple(reasons))


def _is_suspicious(count: int, n: int, count_in_fit: int, n_in_fit: int, had: int | None = None):
    """Tell whether a share is far larger than in fit, and not by chance."""
    share_in_fit = (count_in_fit if had is None else had) / max(n_in_fit, 1)
    if n < LEAST_SAMPLES or count <= _SHARE * n or share_in_fit >= count / n / 2:
        return False
    a, b = count_in_fit + 1, max(n_in_fit - count_in_fit + 1, 1)
    return bool(betabinom.sf(count - 1, n, a, b) < _CHANCE)


def warn_of_shares(schema: InputSchema, X: ArrayLike, rows: np.ndarray) -> None:
    """Warn, once, of all columns of samples to predict that are suspicious."""
    if len(rows) < LEAST_SAMPLES or rows.ndim != 2 or not schema.is_table:
        return
    low, high = schema.limits
    n_far = np.count_nonzero(rows < low) + np.count_nonzero(rows > high)
    n_missing = 0 if rows is X else np.count_nonzero(np.isnan(rows))
    if max(n_far, n_missing) <= _SHARE * len(rows) or not tells_of_schema():
        return
    shifts = (shift_of(schema, X, rows[:, column], column) for column in range(rows.shape[1]))
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


def range_in_words(limits: tuple[float, float], unit: str | None) -> str:
    """Say from where to where the values of a column are."""
    low, high = limits
    if unit == _DATE:
        first, last = (np.datetime64(0, "s") + np.timedelta64(int(d * 86_400), "s") for d in limits)
        is_whole = all(float(days).is_integer() for days in limits)
        return " to ".join(str(day.astype("M8[D]") if is_whole else day) for day in (first, last))
    return f"{low:.6g} to {high:.6g}{'' if unit is None else ' days'}"
