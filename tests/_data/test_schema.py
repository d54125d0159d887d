# SPDX-License-Identifier: BSD-3-Clause
"""The schema of a fitted model, and other tables that are held against it."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
    SchemaWarning,
    validate,
)
from skdistill._data.columns import as_table
from skdistill._data.schema import InputSchema, read_table

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
N = 200
random = np.random.default_rng(0)
CODES = random.integers(1, 4, N)
TABLE = pd.DataFrame(
    {
        "area": random.uniform(20, 200, N),
        "town": random.choice(["Oslo", "Rome"], N),
        "code": pd.Categorical(CODES),
        "new": random.random(N) > 0.5,
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 300, N), "D"),
    }
)
TABLE.loc[::50, "area"] = np.nan
y = TABLE["area"].fillna(100).to_numpy() + random.normal(size=N)
LIBRARIES = {
    "pandas": lambda table: table,
    "polars": lambda table: pl.DataFrame({name: as_polars(table[name]) for name in table}),
    "pyarrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
}

ensemble = partial(BayesianEnsembleRegressor, 2, **SMALL)


def as_polars(column):
    values = [None if value is None or value != value else value for value in column.tolist()]
    return pl.Series(values, strict=False)


@pytest.fixture(scope="module")
def model():
    return ensemble().fit(TABLE, y)


@pytest.fixture(scope="module")
def expected(model):
    return model.predict(TABLE)


@pytest.fixture(autouse=True)
def only_expected_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SchemaWarning)
        yield


# --- What a schema tells ----------------------------------------------------------------------


def test_schema_tells_what_columns_held(model):
    schema = model.schema_
    area, town, code, new, day = schema.columns
    assert [column.name for column in schema.columns] == list(TABLE)
    kinds = ["number", "category", "category", "boolean", "date"]
    assert [column.kind for column in schema.columns] == kinds
    assert [column.dtype for column in schema.columns] == [str(dtype) for dtype in TABLE.dtypes]
    assert area.range == (TABLE["area"].min(), TABLE["area"].max())
    assert area.share_missing == 4 / N
    assert town.share_missing == 0
    assert (town.categories, town.category_types) == (("Oslo", "Rome"), "str")
    assert (code.categories, code.category_types) == ((1, 2, 3), "int")
    assert town.range is None
    assert area.categories is None
    assert area.category_types is None
    assert new.range == (0, 1)
    assert day.unit == "days since 1970-01-01"
    first = TABLE["day"].min() - pd.Timestamp(0)
    assert day.range[0] == first / pd.Timedelta("1D")
    shown = "Schema(number: 1, category: 2, boolean: 1, date: 1; n_samples=200)"
    assert repr(schema) == shown
    with pytest.raises(dataclasses.FrozenInstanceError):
        area.kind = "category"


def test_categories_that_only_one_sample_has_count_as_unknown():
    towns = [*"abc", *["d"] * 97]
    (column,) = ensemble().fit(pd.DataFrame({"town": towns}), np.arange(100)).schema_.columns
    assert column.share_unknown == 0.03


TEACHER = ensemble()
STUDENTS = {
    "ensemble": TEACHER,
    "classifier": BayesianEnsembleClassifier(2, **SMALL),
    "hydra": HydraPlusRegressor(TEACHER, **SMALL),
    "distribution": DistributionDistiller(TEACHER, **SMALL),
    "gped": GPEDDistiller(TEACHER, **SMALL),
    "booster": BDistilBooster(TEACHER, n_rounds=2, max_epochs=2, random_state=0),
}


@pytest.mark.parametrize("name", STUDENTS)
def test_all_estimators_of_tables_have_one(name):
    X = pd.DataFrame({"x": np.linspace(0, 1, 60), "town": ["a", "b"] * 30})
    target = np.arange(60) % 2 if name == "classifier" else X["x"]
    estimator = clone(STUDENTS[name])
    assert not hasattr(estimator, "schema_")
    parameters = set(estimator.get_params())
    estimator.fit(X, target)
    assert set(estimator.get_params()) == parameters
    assert [column.kind for column in estimator.schema_.columns] == ["number", "category"]
    with pytest.warns(SchemaWarning, match="60 of 60 values of 'town' are unknown categories"):
        estimator.predict(X.assign(town="c"))
    with pytest.warns(SchemaWarning, match="60 of 60 values of 'x' are missing"):
        estimator.predict(X.assign(x=np.nan))
    assert not hasattr(clone(estimator), "schema_")


class Batches:
    def __iter__(self):
        for low in (0, 10, 20):
            X = pd.DataFrame({"x": np.linspace(low, low + 10, 40), "town": ["a", "b"] * 20})
            yield X, X["x"].to_numpy()


def test_the_range_of_batches_is_that_of_all():
    estimator = ensemble().fit(Batches())
    number, town = estimator.schema_.columns
    assert (number.range, town.range) == ((0, 30), None)
    assert estimator.schema_.n_samples == 120
    estimator.predict(pd.DataFrame({"x": np.linspace(0, 30, 30), "town": "a"}))


def test_partial_fit_extends_the_range():
    X = np.linspace(0, 30, 90)[:, None]
    teacher = FrozenEstimator(ensemble().fit(X, X[:, 0]))
    student = HydraPlusRegressor(teacher, **SMALL)
    for part in (slice(0, 30), slice(30, 60), slice(60, 90)):
        student.partial_fit(X[part], X[part, 0])
    assert student.schema_.columns[0].range == (0, 30)
    assert student.schema_.n_samples == 90


# --- Conversions ------------------------------------------------------------------------------

CONVERSIONS = {
    "whole numbers as text": {"code": [str(code) for code in CODES]},
    "whole numbers as floats": {"code": CODES.astype(float)},
    "whole numbers in bytes": {"code": [str(code).encode() for code in CODES]},
    "text in bytes": {"town": [town.encode() for town in TABLE["town"]]},
    "categorical text": {"town": pd.Categorical(TABLE["town"])},
    "booleans as text": {"new": TABLE["new"].astype(str)},
    "numbers as text": {"area": [None if a != a else repr(a) for a in TABLE["area"]]},
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("change", CONVERSIONS)
def test_values_are_converted_without_loss(change, library, model, expected):
    table = LIBRARIES[library](TABLE.assign(**CONVERSIONS[change]))
    np.testing.assert_array_equal(model.predict(table), expected)
    np.testing.assert_allclose(model.predict(table[:1]), expected[:1], rtol=1e-6)
    found = validate(model, table)
    assert set(found["verdict"]) <= {"ok", "converted"}


# --- Errors -----------------------------------------------------------------------------------

REFUSED = {
    "words for numbers of categories": (
        {"code": "abc"},
        r"'code'.*categories as in fit, numbers, such as 1, 2, 3; got text, such as 'abc'.*"
        "Convert it to numbers",
    ),
    "numbers for words": (
        {"town": 1},
        r"'town'.*in fit, text, such as 'Oslo', 'Rome'; got numbers, such as 1.*"
        "Convert it to text",
    ),
    "lists": ({"town": [["Oslo"]] * N}, r"'town'.*got list, such as \['Oslo'\]"),
    "words for numbers": (
        {"area": ["?"] + ["3.5"] * (N - 1)},
        r"'area'.*must hold numbers as in fit, of float64; got text, such as '\?'.*to numbers",
    ),
    "numbers for dates": (
        {"day": 3.0},
        r"'day'.*must hold dates as in fit, of datetime.*got numbers, such as 3.0.*to dates",
    ),
    "dates for categories": (
        {"code": pd.Timestamp("2020-01-01")},
        r"'code'.*must hold categories as in fit; got dates",
    ),
    "durations for booleans": (
        {"new": pd.Timedelta(1, "D")},
        r"'new'.*must hold booleans.*durations",
    ),
}


@pytest.mark.parametrize("n", [1, N])
@pytest.mark.parametrize("change", REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(change, n, model):
    given, message = REFUSED[change]
    table = TABLE.assign(**given)[:n]
    with pytest.raises(ValueError, match=message):
        model.predict(table)
    found = validate(model, table).set_index("name")
    (name,) = given
    assert list(found.index[found["verdict"] == "refused"]) == [name]
    assert pd.isna(found.loc[name, "n_missing"])
    with pytest.raises(ValueError, match=f"Column '{name}'"):
        raise ValueError(found.loc[name, "message"])


# --- Warnings ---------------------------------------------------------------------------------

SUSPICIOUS = {
    "missing": (
        {"area": np.nan},
        "200 of 200 values of 'area' are missing, 4 of 200 were in fit",
    ),
    "unknown": (
        {"town": "Bern"},
        "200 of 200 values of 'town' are unknown categories, none was in fit",
    ),
    "some unknown": (
        {"town": np.where(np.arange(N) < 30, "Bern", TABLE["town"])},
        "30 of 200 values of 'town' are unknown categories, which were not in fit",
    ),
    "outside": (
        {"area": TABLE["area"] + 50},
        r"values of 'area' are outside the range of fit, 20\.\d+ to 199\.\d+",
    ),
    "later": (
        {"day": TABLE["day"] + pd.Timedelta("400D")},
        "200 of 200 values of 'day' are outside the range of fit, 2020-01-01 to 2020-10-2",
    ),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("change", SUSPICIOUS)
def test_suspicious_columns_are_warned_of_once(change, library, model):
    given, message = SUSPICIOUS[change]
    table = LIBRARIES[library](TABLE.assign(**given))
    for predict in (
        model.predict,
        model.predict_uncertainty,
        model.predict_interval,
        partial(skdistill.predict_uncertainty, model),
    ):
        with pytest.warns(SchemaWarning, match=message) as caught:
            predict(table)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    found = validate(model, table).set_index("name")
    (name,) = given
    assert list(found.index[found["verdict"] == "suspicious"]) == [name]


@pytest.mark.parametrize("n_fit", [20, 60, 300])
@pytest.mark.parametrize("n", [10, 40, 1000])
def test_samples_like_those_of_fit_are_not_warned_of(n_fit, n):
    """Nor where ranges are narrow and categories rare by chance."""
    generator = np.random.default_rng(n)

    def table(n):
        values = pd.DataFrame(generator.standard_t(3, size=(n, 5))).add_prefix("x")
        values[generator.random((n, 5)) < 0.05] = np.nan
        return values.assign(word=[f"w{k}" for k in generator.geometric(0.1, n)])

    estimator = ensemble(max_epochs=1).fit(X := table(n_fit), np.arange(n_fit))
    for _ in range(20):
        estimator.predict(table(n))
    estimator.predict(X)


def test_fit_does_not_warn():
    """Transfer samples, folds and the samples for a calibration may lie outside."""
    teacher = ensemble()
    X = TABLE[["area", "town"]]
    far = X.assign(area=X["area"] + 300)
    HydraPlusRegressor(teacher, transfer="mixup", **SMALL).fit(X, y, X_transfer=far)
    by_area = X.assign(area=np.arange(N))
    HydraPlusRegressor(teacher, teacher_cv=KFold(3), **SMALL).fit(by_area, y)
    fitted = FrozenEstimator(ensemble().fit(X, y))
    DistributionDistiller(fitted, **SMALL).fit(far, y)


# --- validate ---------------------------------------------------------------------------------


def test_validate_has_a_row_for_each_column(model):
    table = TABLE.assign(town="Bern", code=CODES.astype(str), area="x")
    found = validate(model, table)
    assert list(found["name"]) == list(TABLE)
    assert list(found["kind"]) == [column.kind for column in model.schema_.columns]
    assert list(found["verdict"]) == ["refused", "suspicious", "converted", "ok", "ok"]
    assert found["n_unknown"].tolist()[1:] == [N, 0, 0, 0]
    assert found["n_missing"].isna().tolist() == [True, False, False, False, False]
    assert found["fitted"][1].endswith(": 'Oslo', 'Rome'")
    assert found["given"][1].endswith(": 'Bern'")
    assert found["fitted"][4].endswith(": 2020-01-01 to " + str(TABLE["day"].max().date()))
    with pytest.raises(ValueError, match="Column 'area'"):
        model.predict(table)


# --- Frames like that of fit are encoded by lookups ------------------------------------------


PLAIN = TABLE.drop(columns="day").assign(area=np.linspace(20, 200, N), whole=CODES)
FRAMES = {
    "numbers": PLAIN[["area", "whole"]],
    "numbers in float32": PLAIN[["area", "new"]].astype({"area": np.float32}),
    "whole numbers": PLAIN[["whole"]],
    "numbers with a mask": PLAIN[["area", "whole"]].astype({"area": "Float64", "whole": "Int64"}),
    "text alone": PLAIN[["town", "code"]],
    "text beside numbers": PLAIN,
    "text as objects": PLAIN.astype({"town": object, "area": np.float32})[["town", "area"]],
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_encoded_by_lookups_as_they_are_by_checks(monkeypatch, name, library):
    frame = LIBRARIES[library](FRAMES[name])
    model = ensemble().fit(frame, y)
    schema = model._input_schema
    for part in (frame[:1], frame):  # a small frame is read at once, a large one by columns
        monkeypatch.setattr("skdistill._data.schema._SMALL", 4 * len(part) - 4 * (len(part) > 1))
        found = schema.encoded(as_table(part))
        with monkeypatch.context() as only_checks:
            only_checks.setattr(InputSchema, "encoded", lambda *_: None)
            expected, _ = read_table(model, part, schema=schema)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_lookups_leave_all_else_to_the_checks():
    schema = ensemble().fit(PLAIN, y)._input_schema
    assert schema.encoded(PLAIN[:3]) is not None
    others = [
        PLAIN[:0],
        PLAIN[:3].to_numpy(),
        PLAIN[PLAIN.columns[::-1]],
        PLAIN.rename(columns={"town": "city"}),
        PLAIN.astype({"whole": float}),
        PLAIN[:3].assign(town="Bern"),
        PLAIN[:3].assign(area=np.nan),
        PLAIN[:3].assign(area=np.inf),
    ]
    assert all(schema.encoded(other) is None for other in others)
    assert ensemble().fit(TABLE, y)._input_schema.encoded(TABLE) is None  # which has dates
