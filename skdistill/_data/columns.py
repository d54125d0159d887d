# SPDX-License-Identifier: BSD-3-Clause
"""The columns of X: which of them hold categories or dates, and how missing values are read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from .._utils.validation import OneOf, errors_about
from .._utils.warnings import warn
from .conversions import in_words, known_categories, number_of

_MOST_CATEGORIES = 255  # of a column, the most frequent ones; others are read as missing

# What files can hold as categories.
_KINDS_OF_CATEGORIES = (str, bool, int, float, np.bool_, np.integer, np.floating, tuple)

_SHARE_OF_NUMBERS = 0.9  # of the values of text that is nearly numeric
_LEAST_VALUES, _SHARE_OF_NAMES = 20, 0.5  # values, share of different ones, of names or free text

# How the names of dtypes begin, of pandas and polars, whose columns hold categories or text.
_OF_CATEGORIES = ("cat", "dictionary", "enum", "large_string", "object", "str")

# How the names of dtypes of dates and durations begin, of NumPy, pandas, polars and Arrow.
OF_DATES = ("date", "duration", "period", "timedelta", "timestamp")

_DURATIONS = (np.timedelta64, timedelta)
_DATES = (date, np.datetime64, *_DURATIONS)

CHECKS: dict[str, Any] = {"dtype": (np.float64, np.float32), "order": "C", "allow_nd": True}


class CategoricalFeaturesRule:
    """Rule of `categorical_features`; that its columns exist is seen with X."""

    def check(self, value: object, name: str) -> None:
        if value is None or (isinstance(value, str) and value == "from_dtype"):
            return
        with errors_about(name):
            n_axes = np.asarray(value, dtype=object).ndim
        if n_axes != 1 or np.ma.is_masked(value):
            raise ValueError(
                f"{name} must be 'from_dtype', None, or a list of names or numbers of columns, or "
                f"a mask; got {value!r}."
            )


COLUMN_PARAMETERS = {
    "normalize": OneOf((True, False, "X", "y")),
    "categorical_features": CategoricalFeaturesRule(),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold categories, as `fit` has found them.

    Samples become numbers: of a categorical column the code of its category, which is its place
    among them, and NaN for one that is not known.

    `categories` are those of each categorical column, by its number; `others` those beyond the most
    frequent ones, and names that one sample has. Networks read these as missing, and files do not
    hold them; teachers are asked about them as they are.
    """

    n_columns: int
    categories: dict[int, list]
    others: dict[int, list] = field(
        default_factory=dict, compare=False, repr=False, metadata={"is_saved": False}
    )

    @classmethod
    def of(cls, X: Any, categorical_features: Any) -> Columns | None:
        """Find the categories in X; None if no column holds any."""
        if categorical_features is None:
            return None
        is_found = isinstance(categorical_features, str)
        kept, others, odd = {}, {}, []
        with errors_about("categorical_features"):
            for number in _categorical_columns(X, categorical_features):
                column, name = column_of(X, number), name_of_column(X, number)
                counts = Counter(value for value in values_of(column) if value is not None)
                if is_found and (held := _odd_text(column, counts)):
                    odd.append(f"{name!r} holds {held}")
                found = [value for value, _ in counts.most_common()]
                _refuse_kinds(found, name)
                n_kept = len(counts)
                if _are_names(counts):  # of these a model learns by those that two samples have
                    n_kept = max(1, sum(count > 1 for count in counts.values()))
                n_kept = min(n_kept, _MOST_CATEGORIES)
                kept[number] = sorted(found[:n_kept], key=_order)
                others[number] = found[n_kept:]
        if odd:
            warn(
                f"X has columns that are no features as they are: {'; '.join(odd)}. Convert them "
                "(dates: pandas.to_datetime), leave them out, or make them categorical or floats."
            )
        return cls(np.shape(X)[1], kept, others) if kept else None

    def grown(self, X: ArrayLike) -> Columns:
        """Return the columns with the categories of further samples; the codes of others stay."""
        if np.ndim(X) != 2 or np.shape(X)[1] != self.n_columns:
            return self  # the check that follows says what is wrong
        kept, others = {}, {}
        for number in self.categories:
            known = self._in_training(number)
            new = {*values_of(column_of(X, number))} - {None, *known}
            _refuse_kinds(list(new), name_of_column(X, number))
            known = [*known, *sorted(new, key=_order)]
            kept[number], others[number] = known[:_MOST_CATEGORIES], known[_MOST_CATEGORIES:]
        return replace(self, categories=kept, others=others)

    @property
    def text(self) -> list[int]:
        """Numbers of the columns with a category that is no number."""
        known = self.categories.items()
        return [k for k, own in known if not all(isinstance(category, Real) for category in own)]

    @property
    def n_categories(self) -> np.ndarray:
        """How many each column has, (n_columns,); 0 for numbers."""
        return np.array([len(self.categories.get(k, ())) for k in range(self.n_columns)])

    def encode(self, X: Any, is_training: bool = False) -> np.ndarray:
        """Return samples as numbers, (n, n_columns); those to train on with the `others` too."""
        if len(np.shape(X)) != 2 or np.shape(X)[1] != self.n_columns:
            return X  # the check that follows says what is wrong
        numeric = [column for column in range(self.n_columns) if column not in self.categories]
        settings: dict[str, Any] = {"dtype": CHECKS["dtype"], "ensure_all_finite": "allow-nan"}
        numbers = np.zeros((len(X), 0), dtype=np.float32)
        if numeric:
            numbers = check_array(column_of(X, numeric), input_name="X", **settings)
        out = np.empty((len(X), self.n_columns), dtype=numbers.dtype)
        out[:, numeric] = numbers
        for column in self.categories:
            out[:, column] = self.codes(X, column, values_of(column_of(X, column)), is_training)
        return out

    def encode_floats(self, X: np.ndarray) -> np.ndarray:
        """Return what :meth:`encode` does, for finite floats of shape (n, n_columns)."""
        out = X.copy()
        for column in self.categories:
            out[:, column] = self.codes(X, column, X[:, column].tolist())
        return out

    def codes(
        self, X: ArrayLike, column: int, values: list, is_training: bool = False
    ) -> list[float]:
        """Return codes of a column's values, NaN if missing or unknown; refuse other types."""
        known = self._in_training(column) if is_training else self.categories[column]
        codes: dict[Any, float] = {category: code for code, category in enumerate(known)}

        def refusal(values: list) -> ValueError:
            kind = "text" if known and isinstance(known[0], str) else "numbers"
            categories = in_words(known) if known else "all of them missing"
            return ValueError(
                f"Column {name_of_column(X, column)!r} of X must hold categories as in fit, "
                f"{categories}; got {in_words(values)}. Convert it to {kind}."
            )

        try:
            others = set(values) - codes.keys() - {None}
        except TypeError:  # a value has no hash
            unhashable = [value for value in values if type(value).__hash__ is None] or values
            raise refusal(unhashable) from None
        if others:
            found = known_categories(others, self._in_training(column), refusal)
            codes |= {value: codes.get(found.get(value), np.nan) for value in others}
        return [codes.get(value, np.nan) for value in values]

    def _in_training(self, column: int) -> list:
        return [*self.categories[column], *self.others.get(column, [])]

    def decode(self, rows: np.ndarray, like: Any) -> Any:
        """Return encoded samples as a table like another, which `fit` was given."""
        columns: list[Any] = list(rows.T)
        for column in self.categories:
            code_of = dict(enumerate(self._in_training(column)))
            values = [code_of.get(code) for code in rows[:, column].tolist()]
            columns[column] = np.array(values, dtype=object)
        for column in date_columns(like):
            columns[column] = _dates_like(columns[column].astype(float), column_of(like, column))
        if not hasattr(like, "columns"):
            table = np.empty(rows.shape, dtype=object)
            for column, values in enumerate(columns):
                table[:, column] = values
            dtype = np.asarray(like).dtype
            return table.astype(dtype if dtype.kind in "mMO" else float)
        for column in self.categories.keys() - set(date_columns(like)):
            series, values = column_of(like, column), columns[column]
            kind: Any = series.dtype
            if hasattr(kind, "categories") and hasattr(series, "iloc"):
                # A batch of a stream may have fewer categories than another.
                held = {value for value in values if value is not None}
                kind = kind if held <= set(kind.categories) else "category"
            values = values if hasattr(series, "iloc") else values.tolist()
            columns[column] = type(series)(values, dtype=kind)
        return type(like)(dict(zip(like.columns, columns, strict=True)))


def as_table(X: Any, name: str = "X") -> Any:
    """Return X as an array or a frame of pandas or polars, in which missing values are marked."""
    library = type(X).__module__.partition(".")[0]
    if library == "polars" and hasattr(X, "collect"):
        raise TypeError(
            f"{name} must be in memory, got a polars LazyFrame. Give {name}.collect(), or batches "
            "of it, see skdistill.streams.Batches."
        )
    if library == "pyarrow" and hasattr(X, "to_pandas"):
        return X.to_pandas(date_as_object=False)
    if isinstance(X, np.ma.MaskedArray):
        is_plain = X.dtype.kind in "biu" and np.ma.is_masked(X)
        missing = {"O": None, "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}
        X = X.astype(float) if is_plain else X
        return X.filled(missing.get(X.dtype.kind, np.nan)) if np.ma.is_masked(X) else X.data
    return X


def with_days(X: ArrayLike) -> Any:
    """Return a table with dates and durations as days, in float64; dates count from 1970."""
    days = {column: _days_in(X, column) for column in date_columns(X)}
    return with_columns(X, days) if days else X


def with_columns(X: Any, values: dict[int, np.ndarray]) -> Any:
    """Return a table with other numbers in some columns."""
    if not hasattr(X, "columns"):
        X = np.asarray(X)
        if len(values) == X.shape[1]:
            return np.column_stack([values[column] for column in range(X.shape[1])])
        X = X.astype(object)
        for column, numbers in values.items():
            X[:, column] = numbers
        return X
    if hasattr(X, "iloc"):
        X = X.copy(deep=False)
        for column, numbers in values.items():
            X.isetitem(column, numbers)
        return X
    named = ((X.columns[column], numbers) for column, numbers in values.items())
    return X.with_columns(type(column_of(X, 0))(name, numbers) for name, numbers in named)


def date_columns(X: Any) -> list[int]:
    """Numbers of the columns that hold dates or durations."""
    is_array = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "mMO"
    if not (is_array or _is_frame(X)):
        return []
    return [column for column in range(np.shape(X)[1]) if holds_dates(column_of(X, column))]


def holds_dates(column: Any) -> bool:
    """Whether a column is of dates or durations; objects are if all of them are dates."""
    kind = str(column.dtype).lower()
    if kind != "object":
        return kind.startswith(OF_DATES)
    held = (value for value in values_of(column) if value is not None)
    first = next(held, None)
    return isinstance(first, _DATES) and all(isinstance(value, _DATES) for value in held)


def _days_in(X: ArrayLike, number: int) -> np.ndarray:
    """Dates or durations of a column as days."""
    column = column_of(X, number)
    if hasattr(column.dtype, "tz"):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = np.asarray(column)
    if values.dtype.kind not in "mM":
        found = values_of(column)
        if len({isinstance(value, _DURATIONS) for value in found if value is not None}) > 1:
            raise ValueError(
                f"Column {name_of_column(X, number)!r} of X must hold dates, or durations; got "
                "both."
            )
        return np.array([np.nan if value is None else _days_of(value) for value in found])
    since = values - np.datetime64(0, "D") if values.dtype.kind == "M" else values
    return since / np.timedelta64(1, "D")


def _days_of(value: Any) -> float:
    """Days of a date or duration that Python, pandas or NumPy has."""
    value = value.to_timestamp() if hasattr(value, "to_timestamp") else value  # of a period
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    is_duration = isinstance(value, _DURATIONS)
    since = np.timedelta64(value) if is_duration else np.datetime64(value) - np.datetime64(0, "D")
    return float(since / np.timedelta64(1, "D"))


def _dates_like(days: np.ndarray, column: Any) -> Any:
    """Return days as dates or durations of the dtype of a column."""
    kind = str(column.dtype).lower()
    values = values_of(column) if kind == "object" else []
    first = next((value for value in values if value is not None), None)
    is_duration = isinstance(first, _DURATIONS)
    is_duration |= kind.startswith(("timedelta", "duration"))
    if kind in ("date", "datetime64[d]") or kind.startswith(("date32", "period")):
        days = np.round(days)
    microseconds = np.round(days * 86_400e6)
    counts = np.where(np.isnan(days), np.iinfo(np.int64).min, microseconds).astype(np.int64)
    dates = counts.view("m8[us]" if is_duration else "M8[us]")
    if kind == "object":
        return dates.astype(object)
    if isinstance(column, np.ndarray):
        return dates.astype(column.dtype)
    if hasattr(column, "iloc"):
        series = type(column)(dates)
        if hasattr(column.dtype, "tz"):
            series = series.dt.tz_localize("UTC").dt.tz_convert(column.dtype.tz)
        return series.astype(column.dtype)
    return type(column)(dates).cast(column.dtype)


def _categorical_columns(X: Any, wanted: object) -> list[int]:
    """Numbers of the columns that a parameter names."""
    if isinstance(wanted, str):
        # Columns that are categorical or text; of objects, one of which is text.
        numbers = []
        for number in range(len(X.columns) if _is_frame(X) else 0):
            held = column_of(X, number)
            kind = str(held.dtype).lower()
            of_texts = kind == "object" and any(isinstance(v, str) for v in values_of(held))
            if of_texts or kind.startswith(_OF_CATEGORIES):
                numbers.append(number)
        return numbers
    names, shape = names_of_columns(X), np.shape(X)
    if len(shape) < 2:
        return []  # the check that follows says what is wrong
    n_columns = shape[1]
    given = np.asarray(wanted, dtype=object).tolist()
    if len(given) == n_columns and all(isinstance(item, (bool, np.bool_)) for item in given):
        return np.flatnonzero(given).tolist()
    places = {name: column for column, name in enumerate(names or ())}
    found = [places.get(item, item) for item in given]
    for item, column in zip(given, found, strict=True):
        is_number = isinstance(column, Integral) and not isinstance(column, bool)
        if not (is_number and -n_columns <= column < n_columns):
            raise ValueError(
                "categorical_features must be names or numbers of columns of X, or a mask of "
                f"{n_columns} booleans; got {item!r}, and X has "
                f"{n_columns if names is None else names}."
            )
    return sorted({int(column) % n_columns for column in found})


def _are_names(counts: Counter) -> bool:
    """Whether so many values differ that they are hardly categories."""
    n_values = counts.total()
    return n_values >= _LEAST_VALUES and len(counts) > _SHARE_OF_NAMES * n_values


def _order(category: object) -> tuple:
    return type(category).__name__, category


def _refuse_kinds(categories: list, name: object) -> None:
    """Raise a TypeError for categories that files cannot hold."""
    for category in categories:
        if not isinstance(category, _KINDS_OF_CATEGORIES):
            raise TypeError(
                "categorical_features must be columns of text, numbers or booleans; the categories "
                f"of column {name!r} of X are of {type(category).__name__}, such as {category!r}. "
                f"Make text of them, X[{name!r}].astype(str) in pandas; dates need not be "
                "categories."
            )


def _odd_text(column: Any, counts: Counter) -> str:
    """Say what a column of text holds that is hardly categories, if anything."""
    if str(column.dtype).lower().startswith(("cat", "dictionary", "enum")):
        return ""
    n_numbers = sum(count for v, count in counts.items() if number_of(str(v)) is not None)
    if counts.total() >= _LEAST_VALUES and n_numbers >= _SHARE_OF_NUMBERS * counts.total():
        return "numbers as text"
    return "dates, names or free text" if _are_names(counts) else ""


def _is_frame(X: Any) -> bool:
    """Whether X is a frame of pandas or polars."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "schema"))


def name_of_column(X: ArrayLike, number: int) -> Any:
    return X.columns[number] if hasattr(X, "columns") else number


def column_of(X: Any, number: int | list[int]) -> Any:
    """Return a column of a table; for a list of numbers, the table of these columns."""
    if hasattr(X, "iloc"):
        return X.iloc[:, number]
    return X[:, number] if hasattr(X, "schema") else np.asarray(X)[:, number]


def names_of_columns(X: ArrayLike) -> list | None:
    """Return the names of the columns of a frame; None for arrays."""
    return list(X.columns) if hasattr(X, "columns") else None


def feature_names_of(model: BaseEstimator) -> np.ndarray | None:
    """Return the names of the features that a model was fitted on, if they had some."""
    return getattr(model, "feature_names_in_", None)


def values_of(column: Any) -> list:
    """Values of a column as Python has them; None for missing ones."""
    values = np.asarray(column, dtype=object).tolist()
    if isinstance(column, np.ndarray):
        # NaN and NaT differ from themselves; pandas' NA compares to nothing.
        return [
            None if value is None or type(value).__name__ == "NAType" or value != value else value
            for value in values
        ]
    missing = np.asarray(column.isna() if hasattr(column, "isna") else column.is_null()).tolist()
    return [
        None if lacks or value != value else value
        for value, lacks in zip(values, missing, strict=True)
    ]
