# SPDX-License-Identifier: BSD-3-Clause
"""Files of C give what the estimators' own methods give."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from exported_models import LEVELS, MODELS, assert_same, classes, data_of, numbers, predicted
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.export import export_c
from skdistill.export._c import _helper
from skdistill.export._outputs import GraphOutputs
from skdistill.modules import FunctionDraws, PiecewiseLinear
from skdistill.settings import Runtime

TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double, torch.int64: ctypes.c_int}
CC = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler, cc or gcc")


def library_of(source: Path) -> ctypes.CDLL:
    flags = ["-std=c99", "-O3", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    library = source.with_suffix(".so")
    subprocess.run([str(CC), *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def in_c(model: Any, folder: Path, **kwargs: Any) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Write and compile a model; the result maps samples to outputs by name."""
    path = folder / "model.c"
    export_c(model, path, name="model", **kwargs)
    graph_outputs = GraphOutputs(model, **kwargs)
    described = [*zip(graph_outputs.names, graph_outputs.examples, strict=True)]
    fields: list[tuple[str, Any]] = []
    for name, example in described:
        kind: Any = TYPES[example.dtype]
        for size in reversed(example.shape[1:]):
            kind *= size
        fields.append((name, kind))
    struct = type("Output", (ctypes.Structure,), {"_fields_": fields})
    function = library_of(path).model_predict

    def outputs_of(X: np.ndarray) -> dict[str, np.ndarray]:
        found: dict[str, list] = {name: [] for name in graph_outputs.names}
        for sample in X.astype(float):
            output = struct()
            function(sample.ctypes.data_as(ctypes.c_void_p), ctypes.byref(output))
            for name, example in described:
                found[name].append(np.array(getattr(output, name), example.numpy().dtype))
        arrays = {name: np.stack(values) for name, values in found.items()}
        return arrays | ({"label": model.classes_[arrays["label"]]} if "label" in arrays else {})

    return outputs_of


# Each kind of student, of network and of distribution.
STUDENTS = [
    "hydra several numbers",
    "hydra calibrated classes",
    "distribution normal_inverse_wishart several numbers",
    "distribution gauss_head classes",
    "gped own numbers",
    "booster gru classes",
    "ensemble series classes",
]


@needs_compiler
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # rounds that find no weak learner
@pytest.mark.parametrize("name", STUDENTS)
def test_outputs_are_those_of_the_methods(name, tmp_path):
    X, y = data_of(name)
    model = MODELS[name]().fit(X, y)
    closed = "interval" in GraphOutputs(model).names
    outputs_of = in_c(model, tmp_path, **({"quantiles": LEVELS} if closed else {}))
    for magnitude in (1, 1e-30, 1e-3, 1e3):
        rows = X[:20] * magnitude
        found = outputs_of(rows)
        expected = predicted(model, rows, set(found))
        assert_same(found, {name: expected[name] for name in found})


@needs_compiler
@pytest.mark.parametrize(
    "activation",
    ["tanh", pytest.param("gelu", marks=pytest.mark.slow)],
)
def test_a_default_student_in_float32(activation, tmp_path):
    """Its random functions are computed in float64."""
    X, y = data_of("hydra numbers", np.float32)
    model = numbers(HydraPlusRegressor, module__hidden_units=(32, 20))
    model.set_params(module__activation=activation).fit(X, y)
    rows = np.concatenate([X[:20], X[:20] * 30, X[:20] * 1e6]).astype(np.float32)
    rows[::7, 1] = np.nan
    found = in_c(model, tmp_path)(rows)
    expected = predicted(model, rows, set(found))
    assert_same(found, {name: expected[name] for name in found})


@needs_compiler
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # samples far off, unknown categories
@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_tables_with_functions_categories_and_missing_values(kind, tmp_path):
    """Numbers are themselves, text is its position; others are unknown, as NaN is."""
    rng = np.random.default_rng(0)
    known = np.array([3.0, 7.5, 40.0])
    X = np.column_stack([rng.normal(size=(200, 3)), known[rng.integers(3, size=200)]])
    X[::7, 1] = np.nan
    y = X[:, 0] + np.sin(X[:, 2]) + (X[:, 3] == 7.5)
    rows = np.concatenate([X[:40], X[:40] * [9, 50, 1e4, 1]])
    rows[::5, 0] = rows[::9, 3] = np.nan
    rows[::8, 3] = -1

    def table(values: np.ndarray) -> Any:
        if kind == "numbers":
            return values
        frame = pd.DataFrame(values, columns=["a", "??/", "*/ int b;", "c"])
        return frame.assign(c=frame["c"].map(lambda value: f"/* {value:05}"))

    model = numbers(
        categorical_features=[3],
        module__embeddings=PiecewiseLinear(),
        runtime=Runtime(device="cpu", dtype="float64"),
    ).fit(table(X), y)
    assert isinstance(model.module_.functions, FunctionDraws)
    assert model.module_.inputs.n_bins
    given = rows.copy()
    if kind == "text":
        positions = {category: k for k, category in enumerate(sorted(known))}
        given[:, 3] = [positions.get(category, -1) for category in rows[:, 3]]
    found = in_c(model, tmp_path)(given)
    expected = predicted(model, table(rows), set(found))
    assert_same(found, {name: expected[name] for name in found})
    text = (tmp_path / "model.c").read_text()
    listed = "one of [3.0, 7.5, 40.0]" if kind == "numbers" else 'x[2] "* / int b;"'
    assert listed in text


@pytest.mark.slow
@needs_compiler
def test_a_file_allocates_nothing_and_keeps_nothing(tmp_path):
    X, y = data_of("hydra classes", np.float32)
    export_c(classes().fit(X, y), tmp_path / "model.c", name="one")
    text = (tmp_path / "model.c").read_text()
    assert not re.search(r"\b(malloc|calloc|realloc|free|alloca)\b", text)
    assert set(re.findall("#include <(.*)>", text)) == {"math.h", "stdint.h", "string.h"}
    assert not re.search(r"^static (?!const|void)|^(?!static|void|typedef)\w+ \w+.*;", text, re.M)
    object_file = str(tmp_path / "model.o")
    subprocess.run([str(CC), "-c", str(tmp_path / "model.c"), "-o", object_file], check=True)
    listing = subprocess.run(["nm", object_file], capture_output=True, text=True, check=True)
    symbols = [line.split()[-2:] for line in listing.stdout.splitlines()]
    assert [name for kind, name in symbols if kind in "TDBC"] == ["one_predict"]
    of_compiler = {"memcpy", "memset", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    of_libm = {
        "exp",
        "expf",
        "expm1f",
        "log",
        "logf",
        "log1p",
        "log1pf",
        "sin",
        "sqrt",
        "sqrtf",
    } | {
        "fabs",
        "fabsf",
    }
    assert {name for kind, name in symbols if kind == "U"} <= of_compiler | of_libm
    # Declarations alone, as other files need them.
    (tmp_path / "main.c").write_text(
        '#define ONE_DECLARATIONS\n#include "model.c"\n'
        "int main(void) { double x[ONE_N_INPUTS] = {0}; one_output y; one_predict(x, &y);\n"
        "return y.probabilities[y.label] > 0 ? 0 : 1; }\n"
    )
    program = [str(CC), "-std=c99", "-Wall", "-Werror", "main.c", "model.o", "-lm", "-o", "main"]
    subprocess.run(program, check=True, cwd=tmp_path)
    subprocess.run([tmp_path / "main"], check=True)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_are_exact_to_rounding(dtype, tmp_path):
    helper = _helper("exp", dtype, "exponentials").replace("static ", "")
    head = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    (tmp_path / "exp.c").write_text(head + helper)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    most = 87.0 if dtype == torch.float32 else 708.0
    x = np.concatenate([np.linspace(-most, most, 10_001), [0, 1e-9]]).astype(kind)
    found = np.concatenate([x, np.array([np.nan, np.inf, -np.inf], kind)])
    library_of(tmp_path / "exp.c").exponentials(found.ctypes.data_as(ctypes.c_void_p), len(found))
    eps = np.finfo(kind).eps
    np.testing.assert_allclose(found[:-3], np.exp(x.astype(float)), rtol=4 * eps)
    assert np.isnan(found[-3])
    assert found[-2] > 1e38
    assert 0 <= found[-1] < 1e-37


@pytest.mark.slow
def test_what_has_no_c_is_refused(tmp_path):
    X, y = data_of("ensemble numbers")
    ensemble = BayesianEnsembleRegressor(2, max_epochs=1, runtime=Runtime(device="cpu")).fit(X, y)
    path = tmp_path / "model.c"
    for name in ("two words", "1st", "double", "é", "_own", 3):
        with pytest.raises(ValueError, match=r"name must be an identifier of C.* got "):
            export_c(ensemble, path, name=name)
    with pytest.raises(TypeError, match=r"export_c takes a fitted estimator.*; got Pipeline"):
        export_c(make_pipeline(StandardScaler(), ensemble), path)
    with pytest.raises(ValueError, match=r"model must predict by operations.*while_loop"):
        export_c(ensemble, path, quantiles=[0.5])
    with pytest.raises(ValueError, match="outputs must be"):
        export_c(ensemble, path, outputs=["median"])
    with pytest.raises(FileNotFoundError):
        export_c(ensemble, tmp_path / "none" / "model.c")
    assert not path.exists()
