# SPDX-License-Identifier: BSD-3-Clause
"""Graphs in onnxruntime give what the estimators' own methods give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from exported_models import (
    LEVELS,
    MAGNITUDES,
    MODELS,
    assert_same,
    classes,
    data_of,
    numbers,
    outputs_for_graph,
    predicted,
    run,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skdistill import (
    DistributionDistiller,
    GPEDDistiller,
    SequenceDistributionDistiller,
    export_onnx,
    predict_uncertainty,
)
from skdistill.export import export_program
from skdistill.export._graph import TRANSLATIONS
from skdistill.export._outputs import GraphOutputs
from skdistill.modules import FunctionDraws, PiecewiseLinear
from skdistill.settings import Runtime

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")


def dtype_of(name: str) -> type:
    # onnxruntime has no convolutions and LSTMs in float64.
    return np.float32 if {"images", "series"} & set(name.split()) else np.float64


def hold_to_the_methods(model: Any, X: np.ndarray, outputs_of: Callable) -> None:
    """Hold outputs against the model's methods, for samples of all magnitudes and for one."""
    for magnitude in MAGNITUDES:
        rows = X[:20] * X.dtype.type(magnitude)
        try:
            expected = predicted(model, rows, set(outputs_of(rows[:1])))
        except ValueError:  # the model says that it overflows
            assert magnitude == 1e30
            continue
        assert_same(outputs_of(rows), expected)
    assert_same(outputs_of(X[:1]), predicted(model, X[:1], set(outputs_of(X[:1]))))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # rounds that find no weak learner
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_methods(name):
    """As torch computes them, before they become a graph."""
    X, y = data_of(name, dtype_of(name))
    model = MODELS[name]().fit(X, y)
    quantiles = None if name.endswith("classes") else LEVELS
    outputs = GraphOutputs(model, quantiles=quantiles, outputs="all")

    def outputs_of(rows: np.ndarray) -> dict[str, np.ndarray]:
        with torch.no_grad():
            found = [output.numpy() for output in outputs(torch.tensor(rows))]
        named = dict(zip(outputs.names, found, strict=True))
        return named | ({"label": model.classes_[named["label"]]} if "label" in named else {})

    hold_to_the_methods(model, X, outputs_of)


# With those of test_tables.py, in float32: each kind of network, of distribution and of outputs.
# Classes by several heads are as those of ensembles; all of these are calibrated.
GRAPHS = [
    "ensemble numbers",
    "ensemble images classes",
    "ensemble series classes",
    "distribution gauss_head classes",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_give_what_the_methods_do(name, tmp_path):
    X, y = data_of(name, dtype_of(name))
    model = MODELS[name]().fit(X, y)
    path = tmp_path / "model.onnx"
    export_onnx(model, path, **outputs_for_graph(name, model))
    hold_to_the_methods(model, X, lambda rows: run(path, rows))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gped own numbers", {"expectation_total", "expectation_is_likely"}),
        ("gped own classes", {"expectation_total", "expectation_variance"}),
        ("gped classes", {"expectation_share"}),
    ],
)
def test_outputs_have_the_names_of_further_expectations(name, wanted):
    model = MODELS[name]().set_params(max_epochs=1).fit(*data_of(name))
    names = GraphOutputs(model).names
    assert {name for name in names if name.startswith("expectation")} == wanted


@pytest.mark.parametrize("export", [export_onnx, export_program])
def test_a_missing_folder_is_found_before_anything_is_made(export, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.export, "export", None)
    model = classes(max_epochs=1).fit(*data_of("ensemble classes"))
    with pytest.raises(FileNotFoundError, match="There is no such folder"):
        export(model, tmp_path / "missing" / "model")


@pytest.mark.slow
@pytest.mark.filterwarnings("error::FutureWarning")  # of torch, of its own use of pytrees
def test_a_default_student_is_small_and_says_what_it_is_but_not_where_from(tmp_path, caplog):
    X, y = data_of("ensemble numbers", np.float32)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    student = DistributionDistiller(
        LinearRegression(),
        family="normal_inverse_gamma",
        max_epochs=1,
        runtime=Runtime(device="cpu"),
    )
    path = tmp_path / "model.onnx"
    export_onnx(student.fit(frame, y), path, [0.1])
    assert "torchvision" not in caplog.text
    assert path.stat().st_size <= 200_000
    facts = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert json.loads(facts["feature_names"]) == ["a", "b", "c"]
    assert json.loads(facts["quantiles"]) == [0.1]
    assert facts["estimator"] == "DistributionDistiller"
    assert b".py" not in path.read_bytes()


@pytest.mark.slow
def test_a_graph_has_what_its_outputs_need(tmp_path):
    X, y = data_of("hydra several numbers")
    model = MODELS["hydra several numbers"]().fit(X, y)
    for outputs in (["std", "mean"], ["mean"]):
        export_onnx(model, tmp_path / "model.onnx", outputs=outputs)
        found = run(tmp_path / "model.onnx", X)
        assert list(found) == sorted(outputs)
        expected = predicted(model, X, set(found))
        assert_same(found, {name: expected[name] for name in found})
        kept = onnx.load(tmp_path / "model.onnx").graph.initializer
        has_functions = any("functions" in part.name for part in kept)
        assert has_functions == (outputs != ["mean"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # unknown categories
def test_categories_are_read_as_the_methods_read_them(tmp_path):
    """Text is its position, which the schema in the file tells.

    Others are unknown, as NaN is, and so is a gap in a column that had one.
    """
    rng = np.random.default_rng(0)
    known, others = np.array([[3.0, 7.5, 40.0], [5.0, -1.0, np.nan]])
    column = known[rng.integers(3, size=200)]
    X = np.column_stack([rng.normal(size=(200, 2)), column])
    y = X[:, 0] + (column == 7.5)
    rows = np.column_stack([X[:6, :2], [*known, *others]])
    X[9, 0] = rows[5, 0] = np.nan

    def table(values: np.ndarray) -> pd.DataFrame:
        frame = pd.DataFrame(values, columns=["a", "b", "c"])
        return frame.assign(c=frame["c"].map(lambda value: f"is {value:05}"))

    model = numbers(categorical_features=[2], runtime=Runtime(device="cpu", dtype="float64"))
    model.fit(table(X), y)
    export_onnx(model, tmp_path / "model.onnx", outputs=["mean", "std", "epistemic"])
    given = rows.copy()
    given[:, 2] = [0, 1, 2, 3, -1, np.nan]
    facts = onnxruntime.InferenceSession(tmp_path / "model.onnx").get_modelmeta()
    assert json.loads(facts.custom_metadata_map["schema"]) == model.schema_.to_list()
    found = run(tmp_path / "model.onnx", given)
    expected = predicted(model, table(rows), set(found))
    assert_same(found, {name: expected[name] for name in found})
    assert expected["epistemic"][3:].mean() > 2 * expected["epistemic"][:3].mean()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # samples far off
def test_tables_with_functions_categories_and_missing_values(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(400, 3)), rng.integers(3, size=400)])
    X[::7, 1] = np.nan
    y = X[:, 0] + np.sin(X[:, 2]) + X[:, 3]
    model = numbers(
        categorical_features=[3],
        module__embeddings=PiecewiseLinear(),
        runtime=Runtime(device="cpu", dtype="float64"),
    ).fit(X, y)
    assert isinstance(model.module_.functions, FunctionDraws)
    assert model.module_.inputs.n_bins
    rows = np.concatenate([X, X * [9, 50, 1e4, 1]])  # far, too
    rows[::5, 0] = np.nan
    rows[::9, 3] = np.nan
    export_onnx(model, tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", rows)
    expected = predicted(model, rows, set(found))
    assert_same(found, {name: expected[name] for name in found})
    # Only the part of the triangle that is not zero is multiplied by.
    kept = [value.name for value in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert not [name for name in kept if name.endswith(("leading", "others"))]


# --- pipelines --------------------------------------------------------------------------------


def assert_pipeline(model: Any, X: Any, path: Path, atol: float = 0.0) -> set[str]:
    """Hold a graph against the methods, and return the names of its outputs."""
    export_onnx(model, path)
    found = run(path, np.asarray(X))
    expected = predict_uncertainty(model, X)
    for part in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(found[part], getattr(expected, part), rtol=1e-5, atol=atol)
    point = found["label"] if "label" in found else found["mean"]
    expected = model.predict(X)
    if "label" in found:
        np.testing.assert_array_equal(point, expected)
    else:
        np.testing.assert_allclose(point, expected, rtol=1e-5, atol=1e-6 * found["std"].max())
    return set(found)


@pytest.mark.slow
def test_scalers_and_imputers_go_into_the_graph(tmp_path):
    X, y = data_of("distribution full numbers")
    X[3, 1] = np.nan
    model = make_pipeline(
        SimpleImputer(), MinMaxScaler(), FrozenEstimator(numbers().fit(X[4:], y[4:]))
    )
    outputs = assert_pipeline(model.fit(X, y), X, tmp_path / "model.onnx")
    assert "interval" not in outputs  # of a mixture, whose quantiles are searched for


# --- elementary functions -----------------------------------------------------------------------


class Elementary(torch.nn.Module):
    """What the graphs have translations of their own for."""

    def forward(self, x: torch.Tensor, above: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Map numbers, and numbers above -1."""
        functions = torch.expm1, torch.nn.functional.softplus, torch.square
        limited = x.clamp(0.1), x.clamp(max=-0.1), x.clamp(-0.1, 0.1)
        return torch.log1p(above), *(function(x) for function in functions), *limited


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elementary_functions_are_exact_to_rounding(dtype):
    """As numpy computes their operators."""
    from onnx.reference import ReferenceEvaluator

    magnitudes = torch.logspace(-30, 1.9, 500, dtype=dtype)
    x = torch.cat([-magnitudes, torch.zeros(1, dtype=dtype), magnitudes])
    above = x[x > -1]
    program = torch.export.export(Elementary(), (x, above))
    exported = torch.onnx.export(program, custom_translation_table=TRANSLATIONS, verbose=False)
    session = ReferenceEvaluator(exported.model_proto)
    given = dict(zip(session.input_names, (x.numpy(), above.numpy()), strict=True))
    log1p, expm1, softplus, square, *limited = session.run(None, given)
    exact, tolerance = x.double().numpy(), 16 * torch.finfo(dtype).eps
    assert_allclose(log1p, np.log1p(above.double().numpy()), rtol=tolerance)
    assert_allclose(expm1, np.expm1(exact), rtol=tolerance)
    assert_allclose(softplus, np.logaddexp(0, exact), rtol=tolerance)
    assert_array_equal(square, x.square())
    for found, expected in zip(limited, Elementary()(x, above)[4:], strict=True):
        assert_array_equal(found, expected)  # the limits are not those of another precision


# --- what is refused, and what is needed ----------------------------------------------------------


@pytest.mark.slow
def test_what_the_model_cannot_tell_is_refused(tmp_path):
    X, y = data_of("ensemble numbers")
    path = tmp_path / "model.onnx"
    with pytest.raises(TypeError, match="LinearRegression"):
        export_onnx(LinearRegression().fit(X, y), path)
    with pytest.raises(TypeError, match=r"got TransformedTargetRegressor\. Give its regressor_"):
        export_onnx(TransformedTargetRegressor(numbers()).fit(X, y), path)
    ensemble = numbers(max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="quantiles must be numbers strictly between 0 and 1"):
        export_onnx(ensemble, path, quantiles=[0.0])
    classifier = classes(max_epochs=1).fit(*data_of("ensemble classes"))
    with pytest.raises(ValueError, match="quantiles must be numbers"):
        export_onnx(classifier, path, quantiles=[0.5])
    for given in ("interval", ["interval"], ["label", "mean"], [], 1):
        with pytest.raises(ValueError, match=r"outputs must be 'auto', 'all' or .*probabilities"):
            export_onnx(classifier, path, outputs=given)
    X, y = data_of("ensemble classes")
    beyond = np.where(y == y[0], np.uint64(2**63 + 1), np.uint64(1))
    with pytest.raises(
        ValueError, match=r"y must have labels of at most 92.*got 9223372036854775809"
    ):
        export_onnx(classes(max_epochs=1).fit(X, beyond), path)
    X, y = data_of("ensemble numbers")
    without_members = numbers(GPEDDistiller, max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="members"):
        export_onnx(without_members, path, outputs=["members"])
    assert not path.exists()


@pytest.mark.slow
def test_programs_predict_what_the_methods_do(tmp_path):
    name = "hydra classes"
    X, y = data_of(name)
    model = MODELS[name]().fit(X, y)
    path = tmp_path / "model.pt2"
    export_program(FrozenEstimator(model), path, outputs="all")
    files = {"outputs.json": ""}
    program = torch.export.load(path, extra_files=files).module()
    facts = json.loads(files["outputs.json"])
    for rows in (X[:1], X):
        found = dict(zip(facts["names"], program(torch.tensor(rows)), strict=True))
        parts = model.predict_uncertainty(rows)
        assert_allclose(found["epistemic"], parts.epistemic, rtol=1e-6, atol=1e-12)
        assert_array_equal(np.array(facts["labels"])[found["label"]], model.predict(rows))


@pytest.mark.parametrize("write", [export_onnx, export_program])
def test_models_of_sequences_are_not_exported(write, tmp_path):
    with pytest.raises(TypeError, match="no graph for models of sequences"):
        write(SequenceDistributionDistiller([]), tmp_path / "model")
