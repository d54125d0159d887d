# SPDX-License-Identifier: BSD-3-Clause
"""Tables of three libraries, in any form and with gaps, asked of models fitted on plain ones.

What a table means is written beside it, as the numbers that networks are to read. A model has to
say of the table what its networks say of these numbers, or to refuse it by a name.
"""

from __future__ import annotations

import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, note
from hypothesis import strategies as st

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    GPEDDistiller,
    HydraPlusClassifier,
)
from skdistill._utils.warnings import SchemaWarning

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N = 120
START, DAY = datetime(2020, 1, 1), timedelta(days=1)
TOWNS, COLOURS, GRADES = ["Aix", "Bern", "Cork"], ["blue", "red"], [1, 2, 3, 7]
CATEGORIES = {"town": TOWNS, "colour": COLOURS, "grade": GRADES}


def days_of(value):
    """Days from 1970 to a date, or in a duration."""
    if isinstance(value, timedelta):
        return value / DAY
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) / DAY


def training_values():
    rng = np.random.default_rng(0)
    seconds = rng.integers(0, 9 * 86_400, size=(2, N))
    return {
        "size": rng.uniform(-100, 100, N).round(3).tolist(),
        "count": rng.integers(0, 50, N).tolist(),
        "flag": (rng.random(N) < 0.5).tolist(),
        "town": rng.choice(TOWNS, N).tolist(),
        "colour": rng.choice(COLOURS, N).tolist(),
        "grade": rng.choice(GRADES, N).tolist(),
        "day": [START + timedelta(seconds=int(s)) for s in seconds[0]],
        "wait": [timedelta(seconds=int(s)) for s in seconds[1]],
    }


VALUES = training_values()

# Plain values at predict, by the column.
PLAIN = {
    "size": st.integers(-99 * 1024, 99 * 1024).map(lambda n: n / 1024),  # exact in any form
    "count": st.integers(0, 49),
    "flag": st.booleans(),
    "town": st.sampled_from([*TOWNS, "Oslo", "", "?"]),
    "colour": st.sampled_from([*COLOURS, "green"]),
    "grade": st.sampled_from([*GRADES, 4]),
    "day": st.integers(0, 9 * 86_400).map(lambda s: START + timedelta(seconds=s)),
    "wait": st.integers(0, 9 * 86_400).map(lambda s: timedelta(seconds=s)),
}


def number_of(name, value):
    """What networks are to read of a plain value."""
    if value is None:
        return np.nan
    if name in CATEGORIES:
        known = CATEGORIES[name]
        return float(known.index(value)) if value in known else np.nan
    return days_of(value) if name in ("day", "wait") else float(value)


# ------------------------------------------------------------------------------------------
# Forms of a column: how values are written, and the dtype in each library; None is its own choice
# ------------------------------------------------------------------------------------------


def text(value):
    return None if value is None else str(value)


def as_bytes(value):
    return None if value is None else str(value).encode()


def as_decimal(value):
    return None if value is None else Decimal(str(value))


def same(value):
    return value


FLOATS = {
    "double": (same, "float64", pl.Float64, pa.float64()),
    "single": (same, "float32", pl.Float32, pa.float32()),
    "nullable": (same, "Float64", pl.Float64, pa.float64()),
    "objects": (same, object, None, None),
    "text": (text, object, pl.String, pa.string()),
    "large text": (text, "string", pl.String, pa.large_string()),
    "decimal": (as_decimal, object, None, pa.decimal128(38, 20)),
    "categorical": (same, "category", None, None),
}
INTEGERS = {
    "small": (same, "Int8", pl.Int8, pa.int8()),
    "large": (same, "Int64", pl.Int64, pa.int64()),
    "unsigned": (same, "UInt16", pl.UInt16, pa.uint16()),
}
TEXTS = {
    "text": (same, object, pl.String, pa.string()),
    "large text": (same, "string", pl.String, pa.large_string()),
    "categorical": (same, "category", pl.Categorical, pa.dictionary(pa.int32(), pa.string())),
    "bytes": (as_bytes, object, pl.Binary, pa.binary()),
}
DATES = {
    "seconds": (same, "datetime64[s]", pl.Datetime("ms"), pa.timestamp("s")),
    "milliseconds": (same, "datetime64[ms]", pl.Datetime("ms"), pa.timestamp("ms")),
    "microseconds": (same, "datetime64[us]", pl.Datetime("us"), pa.timestamp("us")),
    "nanoseconds": (same, "datetime64[ns]", pl.Datetime("ns"), pa.timestamp("ns")),
    "zone": (
        lambda v: None if v is None else v.replace(tzinfo=UTC),
        "datetime64[us, UTC]",
        pl.Datetime("us", "UTC"),
        pa.timestamp("us", "UTC"),
    ),
    "objects": (same, object, None, None),
}
DURATIONS = {
    "seconds": (same, "timedelta64[s]", pl.Duration("ms"), pa.duration("s")),
    "milliseconds": (same, "timedelta64[ms]", pl.Duration("ms"), pa.duration("ms")),
    "microseconds": (same, "timedelta64[us]", pl.Duration("us"), pa.duration("us")),
    "nanoseconds": (same, "timedelta64[ns]", pl.Duration("ns"), pa.duration("ns")),
    "objects": (same, object, None, None),
}
FORMS = {
    "size": FLOATS,
    "count": {**FLOATS, **INTEGERS},
    "flag": {
        "boolean": (same, "boolean", pl.Boolean, pa.bool_()),
        "objects": (same, object, None, None),
        "text": (text, object, pl.String, pa.string()),
        "number": (lambda v: None if v is None else float(v), "float64", pl.Float64, pa.float64()),
    },
    "town": TEXTS,
    "colour": TEXTS,
    "grade": {**INTEGERS, **FLOATS},
    "day": DATES,
    "wait": DURATIONS,
}

# Forms that must be answered, not refused.
PLAIN_FORMS = {"double", "single", "large", "boolean", "text", "categorical", "microseconds"}
PLAIN_FORMS |= {"seconds", "milliseconds", "nanoseconds", "nullable", "zone"}
LIBRARIES = ("pandas", "polars", "pyarrow")
ASKED = (*LIBRARIES, "numpy")


def column(library, values, form):
    write, *dtypes = form
    values = [write(value) for value in values]
    if library == "numpy":
        return values
    dtype = dtypes[LIBRARIES.index(library)]
    if library == "pandas":
        return pd.Series(values, dtype=dtype)
    if library == "polars":
        return pl.Series(values, dtype=dtype, strict=False)
    return pa.array(values, type=dtype)


def table(library, columns):
    if library == "pyarrow":
        return pa.table(columns)
    if library == "numpy":
        found = np.empty((len(next(iter(columns.values()))), len(columns)), dtype=object)
        for number, values in enumerate(columns.values()):
            found[:, number] = values
        return found
    return (pd if library == "pandas" else pl).DataFrame(columns)


# ------------------------------------------------------------------------------------------
# Values that a column cannot hold: an answer would be a wrong number
# ------------------------------------------------------------------------------------------

WRONG = {
    "size": ["?", "1_000", date(2020, 1, 1), timedelta(1), [1.0], float("inf"), 10**400],
    "count": ["many", "1,5", date(2020, 1, 1), {"a": 1}, -float("inf")],
    "flag": ["yes", "no", date(2020, 1, 1)],
    "town": [3, 2.5, date(2020, 1, 1), ["Aix"], True],
    "colour": [3, date(2020, 1, 1)],
    "grade": ["seven", date(2020, 1, 1), [1]],
    "day": [18_262.0, "2020-01-01", timedelta(1), "soon", True],
    "wait": [1.0, "1 day", date(2020, 1, 1)],
}


def spoilt(library, values, wrong):
    """A column of which a value, or all of them, is wrong; None where the library has no such."""
    try:
        if library == "numpy":
            return values
        if library == "pandas":
            return pd.Series(values, dtype=object)
        if library == "polars":
            return pl.Series(values, dtype=None if all(v is wrong for v in values) else pl.Object)
        found = pa.array(values)
    except (TypeError, ValueError, OverflowError, pa.ArrowInvalid, pl.exceptions.PolarsError):
        return None
    return found if wrong in found.to_pylist() else None  # Arrow makes dates of numbers


# ------------------------------------------------------------------------------------------
# Models
# ------------------------------------------------------------------------------------------

_SMALL = {"max_epochs": 3, "module__hidden_units": (6,), "random_state": 0}
_CATEGORICAL = {"categorical_features": list(CATEGORIES)}
MODELS = {
    "ensemble": lambda: BayesianEnsembleRegressor(3, **_SMALL, **_CATEGORICAL),
    "classes": lambda: HydraPlusClassifier(
        BayesianEnsembleClassifier(3, **_SMALL, **_CATEGORICAL), **_SMALL, **_CATEGORICAL
    ),
    "gped": lambda: GPEDDistiller(
        BayesianEnsembleRegressor(3, **_SMALL, **_CATEGORICAL), **_SMALL, **_CATEGORICAL
    ),
}
_NATIVE = {
    **{"size": "double", "count": "large", "flag": "boolean", "town": "text"},
    **{"colour": "categorical", "grade": "large", "day": "microseconds", "wait": "seconds"},
}


@cache
def fitted(library, name):
    columns = {k: column(library, VALUES[k], FORMS[k][form]) for k, form in _NATIVE.items()}
    y = np.array([number_of("size", v) / 50 for v in VALUES["size"]])
    y += np.array([GRADES.index(v) for v in VALUES["grade"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that three epochs are few
        return MODELS[name]().fit(table(library, columns), y > 2 if name == "classes" else y)


def expected(model, numbers):
    """What the networks say of numbers."""
    with torch.inference_mode():
        found = model.module_.distribution(torch.tensor(numbers))
        return found.mean.numpy(), found.uncertainty().total.numpy()


def said(model, given):
    """What a model says of a table, and what it warns of; None if it refuses it by a name."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        try:
            found = model.predict_distribution(given)
        except (TypeError, ValueError) as error:
            note(f"refused: {type(error).__name__}: {error}")
            names = [*map(repr, VALUES), "X", "feature names", "columns"]
            if not any(name in str(error) for name in names):
                raise AssertionError(f"{type(error).__name__} names nothing: {error}") from error
            return None
    is_warned = any(issubclass(w.category, SchemaWarning) for w in warned)
    return found.mean.numpy(), found.uncertainty().total.numpy(), is_warned


@st.composite
def logical_columns(draw):
    """Plain values of each column, with gaps, as many as there are samples."""
    n = draw(st.one_of(st.integers(1, 5), st.integers(10, 25)), label="n")
    found = {}
    for name, values in PLAIN.items():
        lacks = draw(st.sampled_from([0, 0, 0, 1, 2]), label=f"gaps of {name}")
        one = values if lacks == 0 else st.none() if lacks == 2 else st.none() | values
        found[name] = draw(st.lists(one, min_size=n, max_size=n), label=name)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_a_table_in_any_form_means_what_is_written_beside_it(name, library, data, tally):
    tally("fuzzed frames")
    model, values = fitted(library, name), data.draw(logical_columns())
    forms = {k: data.draw(st.sampled_from(sorted(FORMS[k])), label=f"form of {k}") for k in values}
    asked = data.draw(st.sampled_from(ASKED), label="asked in")
    columns = {k: column(asked, values[k], FORMS[k][forms[k]]) for k in values}
    numbers = np.array([[number_of(k, v) for v in values[k]] for k in values]).T
    found = said(model, table(asked, columns))
    if found is None:
        is_plain = asked != "numpy" and set(forms.values()) <= PLAIN_FORMS
        assert not is_plain, "a plain table is refused"
        return
    *found, is_warned = found
    for what, is_said, is_meant in zip(
        ("mean", "total"), found, expected(model, numbers), strict=True
    ):
        np.testing.assert_allclose(is_said, is_meant, rtol=1e-5, atol=1e-7, err_msg=what)
    if len(numbers) >= 10 and (np.isnan(numbers).mean(axis=0) >= 0.6).any():
        assert is_warned, "most of a column is not known, and nothing was said"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_what_a_column_cannot_hold_is_refused_by_its_name(name, library, data, tally):
    tally("fuzzed frames")
    model, values = fitted(library, name), data.draw(logical_columns())
    asked = data.draw(st.sampled_from(ASKED), label="asked in")
    columns = {k: column(asked, values[k], FORMS[k][_NATIVE[k]]) for k in values}
    where = data.draw(st.sampled_from(sorted(WRONG)), label="where")
    wrong = data.draw(st.sampled_from(WRONG[where]), label="wrong")
    row = data.draw(st.none() | st.integers(0, len(values[where]) - 1), label="row")
    held = [wrong if row in (None, at) else v for at, v in enumerate(values[where])]
    made = spoilt(asked, held, wrong)
    if made is None:
        return
    given = table(asked, {**columns, where: made})
    assert said(model, given) is None, "a wrong number in silence"
    found = skdistill.validate(model, given)
    assert found["verdict"][list(VALUES).index(where)] == "refused", found


# What is done to whole tables.
SHUFFLES = {
    "swapped": lambda names: [names[1], names[0], *names[2:]],
    "reversed": lambda names: names[::-1],
    "without the last": lambda names: names[:-1],
    "without the first": lambda names: names[1:],
    "with one more": lambda names: [*names, "more"],
    "with another name": lambda names: ["Size", *names[1:]],
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_tables_of_other_columns_are_refused(name, library, data, tally):
    tally("fuzzed frames")
    model, values = fitted(library, name), data.draw(logical_columns())
    asked = data.draw(st.sampled_from(LIBRARIES), label="asked in")
    columns = {k: column(asked, values[k], FORMS[k][_NATIVE[k]]) for k in values}
    columns |= {"more": columns["count"], "Size": columns["size"]}
    shuffled = SHUFFLES[data.draw(st.sampled_from(sorted(SHUFFLES)), label="how")](list(values))
    given = table(asked, {k: columns[k] for k in shuffled})
    assert said(model, given) is None, "other columns are answered"
    if asked == "polars":
        assert said(model, given.lazy()) is None
