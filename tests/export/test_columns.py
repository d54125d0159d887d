# SPDX-License-Identifier: BSD-3-Clause
"""Graphs with an input for each column predict as the methods do for a frame."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exported_models import MODELS, classes, data_of, numbers
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from skdistill import DistributionDistiller, export_onnx, predict_uncertainty
from skdistill._data.conversions import texts_of
from skdistill.settings import Runtime

onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")

pytestmark = pytest.mark.filterwarnings("ignore")  # of unknown categories

DTYPES = {
    "tensor(string)": object,
    "tensor(double)": np.float64,
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(bool)": bool,
}
PARTS = ["std", "epistemic"]
EXACT = {"runtime": Runtime(device="cpu", dtype="float64")}


def flats(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table with columns of every kind, and rents."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"area": rng.uniform(20, 200, n), "rooms": rng.integers(1, 6, n)})
    X["town"] = rng.choice(["Oslo", "Rome", "Bern"], n)
    X["kind of flat"] = pd.Categorical(rng.choice(["loft", "", "nan"], n))
    X["floor"] = pd.Categorical(rng.integers(0, 4, n))
    X["has_lift"] = rng.random(n) > 0.5
    X["built"] = np.datetime64("1990-01-01") + rng.integers(0, 9000, n).astype("m8[D]")
    y = X["area"] * (1 + (X["town"] == "Oslo")) + 50 * X["floor"].astype(int)
    X.loc[::9, "area"] = np.nan
    X.loc[::7, "town"] = None
    return X, y.to_numpy()


def given(session: Any, X: pd.DataFrame) -> dict[str, np.ndarray]:
    """Columns as the inputs of a graph: dates as days, all others as they are."""
    days = (X["built"] - pd.Timestamp(0)) / pd.Timedelta(days=1) if "built" in X else None
    X = X if days is None else X.assign(built=days)
    return {i.name: X[[i.name]].to_numpy(DTYPES[i.type]) for i in session.get_inputs()}


def hold_to_the_methods(model: Any, session: Any, X: pd.DataFrame) -> None:
    found = session.run(["mean", *PARTS], given(session, X))
    parts = predict_uncertainty(model, X)
    expected = model.predict(X), parts.std().total, parts.epistemic
    for value, wanted, name in zip(found, expected, ["mean", *PARTS], strict=True):
        assert_allclose(value, wanted, rtol=1e-5, atol=1e-6 * found[1].max(), err_msg=name)


@pytest.fixture(scope="module")
def student() -> Any:
    return numbers(DistributionDistiller, **EXACT).fit(*flats(200))


@pytest.fixture(scope="module")
def session(student, tmp_path_factory) -> Any:
    path = tmp_path_factory.mktemp("columns") / "student.onnx"
    export_onnx(student, path, outputs=["mean", *PARTS], inputs="columns")
    return onnxruntime.InferenceSession(path)


def test_inputs_are_the_columns_by_name_and_text_is_strings(student, session):
    inputs = {i.name: i.type for i in session.get_inputs()}
    assert list(inputs) == list(student.feature_names_in_)
    of_text = {"town", "kind of flat"}
    assert {name for name, kind in inputs.items() if kind == "tensor(string)"} == of_text
    assert set(inputs.values()) == {"tensor(string)", "tensor(double)"}
    assert all(i.shape[1] == 1 for i in session.get_inputs())
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["schema"]) == student.schema_.to_list()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("town", ["Oslo", "Rome", "Bern"]),
        ("town", ["Bonn", "", None, np.nan, "oslo"]),
        ("kind of flat", ["loft", "", "nan", "house"]),
        ("floor", [0, 3, 7, np.nan]),
        ("area", [np.nan, 50.0, 1e4]),
        ("rooms", [np.nan, 2.0]),
        ("has_lift", [True, False]),
        ("built", [np.datetime64("1990-01-01"), np.datetime64("NaT")]),
    ],
)
def test_values_are_read_as_the_methods_read_them(column, values, student, session):
    X = flats(200)[0][: 3 * len(values)]
    hold_to_the_methods(student, session, X.assign(**{column: values * 3}))


@pytest.mark.slow
def test_classes_of_samples_with_text(tmp_path):
    X, y = flats(60)
    model = classes(DistributionDistiller, **EXACT).fit(X, np.where(y > y.mean(), "high", "low"))
    wanted = ["label", "probabilities"]
    export_onnx(model, tmp_path / "model.onnx", outputs=wanted, inputs="columns")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    label, probabilities = session.run(wanted, given(session, X))
    assert_array_equal(label, model.predict(X))
    assert_allclose(probabilities, model.predict_proba(X), rtol=1e-5)


def test_text_stands_for_categories_as_in_predict():
    assert texts_of(["a", "1"]) == {"a": 0, "1": 1}
    assert texts_of([1, "a", True + 1.5]) == {"1": 0, "a": 1, "2.5": 2}
    assert texts_of([1, "1"]) == {"1": 1}
    assert texts_of([(1, 2), "a"]) == {"a": 1}


# --- pipelines ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pipelines_that_encode_text(tmp_path):
    X, y = flats(80)
    X = X[["area", "rooms", "town", "kind of flat", "has_lift"]].fillna({"town": ""})
    imputer = SimpleImputer(missing_values="", strategy="most_frequent")
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["area", "rooms"]),
        (make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore")), ["town"]),
        (OrdinalEncoder(), ["kind of flat"]),
        remainder="passthrough",
    )
    model = make_pipeline(columns, numbers(DistributionDistiller, **EXACT)).fit(X, y)
    export_onnx(model, tmp_path / "model.onnx", inputs="columns")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    inputs = {i.name: i.type for i in session.get_inputs()}
    of_text = {"town": "tensor(string)", "kind of flat": "tensor(string)"}
    assert inputs == dict.fromkeys(X, "tensor(double)") | of_text
    hold_to_the_methods(model, session, X.assign(town=["Rome", "Bonn", "Oslo", ""] * 20))


# --- what is refused ------------------------------------------------------------------------------


def test_inputs_that_the_model_cannot_have_are_refused(student, tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match=r"inputs must be one of.*Did you mean 'columns'\?"):
        export_onnx(student, path, inputs="column")
    X, y = data_of("ensemble images classes", np.float32)
    images = MODELS["ensemble images classes"]().set_params(max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="inputs must be 'X' for a model of images"):
        export_onnx(images, path, inputs="columns")
    X, y = data_of("ensemble numbers")
    for name in ("mean", ""):
        frame = pd.DataFrame(X, columns=["a", name, "c"])
        model = numbers(max_epochs=1).fit(frame, y)
        with pytest.raises(ValueError, match=f"got '{name}'. Rename the column"):
            export_onnx(model, path, inputs="columns")
    assert not path.exists()
