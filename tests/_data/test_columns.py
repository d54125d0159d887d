# SPDX-License-Identifier: BSD-3-Clause
"""Tables of any library: dates, gaps, masks, and text that is nearly numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, load, save
from skdistill.teachers import as_teacher

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
N = 60
NUMBERS = np.random.default_rng(0).normal(size=N)
y = np.arange(N) + NUMBERS

ensemble = partial(BayesianEnsembleRegressor, 2, **SMALL)
hydra = partial(HydraPlusRegressor, **SMALL)


# --- Dates ------------------------------------------------------------------------------------

DAYS = (np.datetime64("2020-01-01") + np.arange(N)).astype("M8[us]")
DAYS[::7] = np.datetime64("NaT")
OF_PANDAS = pd.Series(DAYS)
DATES = {
    "seconds": lambda: pd.DataFrame({"day": DAYS.astype("M8[s]"), "x": NUMBERS}),
    "nanoseconds": lambda: pd.DataFrame({"day": DAYS.astype("M8[ns]"), "x": NUMBERS}),
    "time zone": lambda: pd.DataFrame(
        {"day": OF_PANDAS.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"), "x": NUMBERS}
    ),
    "periods": lambda: pd.DataFrame({"day": OF_PANDAS.dt.to_period("D"), "x": NUMBERS}),
    "Python's": lambda: pd.DataFrame(
        {"day": pl.Series(DAYS).cast(pl.Date).to_list(), "x": NUMBERS}, dtype=object
    ).astype({"x": float}),
    "dates of polars": lambda: pl.DataFrame({"day": DAYS.astype("M8[D]"), "x": NUMBERS}),
    "pyarrow": lambda: pa.table({"day": pa.array(DAYS), "x": NUMBERS}),
}


@pytest.fixture(scope="module")
def days():
    """What tables of dates are read as: days since 1970, and NaN for NaT."""
    days = np.where(np.isnat(DAYS), np.nan, DAYS.astype("M8[D]").astype(float))
    return pd.DataFrame({"day": days, "x": NUMBERS})


@pytest.mark.parametrize("form", DATES)
def test_dates_are_days_in_every_form_and_unit(form, days):
    frame = DATES[form]()
    expected = ensemble().fit(days, y)
    np.testing.assert_array_equal(ensemble().fit(frame, y).predict(frame), expected.predict(days))
    with pytest.raises(
        ValueError, match="Column 'day' of X must hold numbers as in fit; got dates"
    ):
        expected.predict(frame)  # of which unit and origin its numbers are, nobody knows


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ns]", "m8[s]"])
def test_arrays_of_dates(dtype, days):
    counts = DAYS if dtype[0] == "M" else DAYS - np.datetime64(0, "D")
    X = counts[:, None].astype(dtype)
    expected = ensemble().fit(days[["day"]].to_numpy(), y).predict(days[["day"]].to_numpy())
    np.testing.assert_array_equal(ensemble().fit(X, y).predict(X), expected)
    seen = []

    class Spy(LinearRegression):
        def fit(self, X, y):
            return super().fit(np.nan_to_num(X.astype(float)), y)

        def predict(self, X):
            seen.append(X.dtype)
            return super().predict(np.nan_to_num(X.astype(float)))

    hydra(as_teacher(Spy())).fit(X, y)
    assert set(seen) == {np.dtype(dtype)}


# --- Other forms ------------------------------------------------------------------------------


def test_masked_values_are_missing():
    X = np.ma.array(np.column_stack([NUMBERS, y]), mask=np.arange(2 * N).reshape(N, 2) % 5 == 0)
    filled = X.filled(np.nan)
    model, expected = ensemble().fit(X, y), ensemble().fit(filled, y)
    np.testing.assert_array_equal(model.predict(X), expected.predict(filled))
    found, expected = (hydra(ensemble()).fit(rows, y).predict(rows) for rows in (X, filled))
    np.testing.assert_array_equal(found, expected)
    integers = np.ma.array(np.arange(N)[:, None], mask=np.arange(N)[:, None] == 3)
    assert np.isfinite(ensemble().fit(integers, y).predict(integers)).all()
    with pytest.raises(ValueError, match="y must be known for every sample"):
        ensemble().fit(filled, np.ma.array(y, mask=y > 50))
    with pytest.raises(ValueError, match="sample_weight must be known for every sample"):
        ensemble().fit(filled, y, sample_weight=np.ma.array(np.ones(N), mask=y > 50))


# --- Categories -------------------------------------------------------------------------------

NEARLY = [f"{value:.3f}" for value in NUMBERS[:-2]] + ["?", None]


SINCE = pd.date_range("2025-12-01", periods=N, freq="36h")


def test_one_warning_tells_of_all_columns():
    dates = SINCE.strftime("%Y-%m-%d %H:%M")
    frame = pd.DataFrame({"a": NEARLY, "b": dates, "c": [f"{i}, Oslo" for i in range(N)]})
    with pytest.warns(UserWarning, match="X has columns") as found:
        ensemble().fit(frame.assign(d=NUMBERS), y)
    (message,) = (str(warning.message) for warning in found if "X has" in str(warning.message))
    for name in frame:
        assert message.count(f"'{name}'") == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Categorical(pd.date_range("2020", periods=3)[np.arange(N) % 3]), "Timestamp"),
        (pd.cut(NUMBERS, 3), "Interval"),
        (pd.Categorical([b"a", b"b"] * 30), "bytes"),
    ],
)
def test_categories_that_cannot_be_saved_are_refused_by_fit(values, kind):
    with pytest.raises(TypeError, match=f"categories of column 'when' of X are of {kind}"):
        ensemble().fit(pd.DataFrame({"when": values}), y)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_teachers_are_asked_about_categories_beyond_the_most_frequent(make, tmp_path):
    towns = [f"town {k:03}" for k in range(300)]
    X = make({"x": np.arange(600.0), "town": np.resize(towns, 600)})
    encoder = OneHotEncoder(categories=[towns], handle_unknown="error", sparse_output=False)
    steps = make_column_transformer((encoder, ["town"]), remainder="passthrough")
    teacher = as_teacher(make_pipeline(steps, LinearRegression()))
    model = hydra(teacher).fit(X, np.arange(600.0), X_transfer=X[-20:])
    assert len(model.categories_[1]) == 255
    assert np.isfinite(model.predict(X)).all()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    columns = loaded._input_schema.columns
    assert not columns.others  # files hold the categories that predictions tell apart
