# SPDX-License-Identifier: BSD-3-Clause
"""Graphs in float32 predict as torch does, on real tables and on samples of other magnitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exported_models import MAGNITUDES, MODELS, outputs_for_graph, run
from numpy.testing import assert_allclose, assert_array_equal

from skdistill import BDistilBooster, GPEDDistiller
from skdistill.export import export_onnx
from skdistill.export._outputs import GraphOutputs
from skdistill.settings import Runtime

pytest.importorskip("onnxruntime")

# With those of test_export.py, in float64: each distribution and each way of making it. That of
# GPED's Dirichlet is made as that of the distiller.
ON_TABLES = [
    "distribution normal_inverse_wishart several numbers",
    "distribution dirichlet classes",
    "gped own numbers",
]
TABLES = {"numbers": "uci/rf1_multitarget", "classes": "tabular/pendigits"}


def standardised(data_dir, table: str, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """800 rows of a table, standardised by the half that models are fitted to, and targets."""
    with np.load(data_dir / f"{table}.npz") as data:
        X, y = data["X"].astype(float), data["Y" if "rf1" in table else "y"]
    rows = np.random.default_rng(0).permutation(len(X))[:800]
    fitted = X[rows[:400]]
    scale = fitted.std(0)
    return ((X[rows] - fitted.mean(0)) / np.where(scale > 0, scale, 1)).astype(dtype), y[rows]


def fitted_and_exported(name: str, X: np.ndarray, y: np.ndarray, path: Any) -> tuple[Any, Any]:
    """A model, and the module that is exported."""
    model = MODELS[name]().set_params(max_epochs=5)
    if not isinstance(model, BDistilBooster | GPEDDistiller):  # they compute in that of X
        model.set_params(runtime=Runtime(dtype=X.dtype.name))
    model.fit(X[:400], y[:400])
    options = outputs_for_graph(name, model)
    export_onnx(model, path, **options)
    return model, GraphOutputs(model, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ON_TABLES)
def test_float32_to_its_own_rounding(name, data_dir, tmp_path):
    """Where torch itself is further than 1e-5 from float64, the graph differs by as much, about.

    onnxruntime's tanh and exp round a few times more than torch's. Torch is the truth of what is
    infinite, and what is no number.
    """
    X, y = standardised(data_dir, TABLES[name.split()[-1]], np.float32)
    model, graph_outputs = fitted_and_exported(name, X, y, tmp_path / "model.onnx")
    torch32 = {}
    for magnitude in MAGNITUDES:
        rows = torch.tensor(X * np.float32(magnitude))
        found = run(tmp_path / "model.onnx", rows.numpy())
        torch32[magnitude] = dict(zip(graph_outputs.names, graph_outputs(rows), strict=True)), found
    graph_outputs.double()
    for magnitude, (expected, found) in torch32.items():
        rows = torch.tensor(X * np.float32(magnitude)).double()
        exact = dict(zip(graph_outputs.names, graph_outputs(rows), strict=True))
        for output, value in expected.items():
            if output == "label":
                same = found[output] == model.classes_[value]
                assert (same | ~np.isfinite(found["probabilities"]).all(1)).mean() > 0.99
                continue
            assert found[output].dtype == np.float32
            rounding = (value - exact[output]).abs()
            largest = rounding[rounding.isfinite()].max() if rounding.isfinite().any() else 0.0
            is_finite = value.isfinite().numpy()
            assert_array_equal(found[output][~is_finite], value.numpy()[~is_finite])
            assert_allclose(
                found[output][is_finite],
                value.numpy()[is_finite],
                rtol=1e-5,
                atol=16 * float(largest),
                err_msg=f"{output} at {magnitude}",
            )
