# SPDX-License-Identifier: BSD-3-Clause
"""A graph is served in an environment of its own, where there are numpy and onnxruntime only."""

from __future__ import annotations

import csv
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from skdistill import BayesianEnsembleClassifier, export_onnx
from skdistill.settings import Runtime

SCRIPT = Path(__file__).parents[2] / "examples" / "serve_with_onnxruntime.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a new environment; what it needs comes from where our pip finds packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    found = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    wanted = [f"{name}=={version(name)}" for name in ("numpy", "onnxruntime")]
    pip = [sys.executable, "-m", "pip", "--python", found, "install", "--quiet", "--no-compile"]
    install = subprocess.run([*pip, *wanted], capture_output=True, text=True)
    if "NewConnectionError" in install.stderr or "ProxyError" in install.stderr:
        pytest.skip("pip reaches no packages")
    assert install.returncode == 0, install.stderr
    return found


@pytest.mark.slow
def test_the_example_serves_a_graph_without_torch(python, tmp_path):
    pytest.importorskip("onnxruntime")
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    model = BayesianEnsembleClassifier(
        3, max_epochs=5, runtime=Runtime(device="cpu"), random_state=0
    ).fit(X, y)
    export_onnx(model, tmp_path / "graph.onnx")
    np.save(tmp_path / "rows.npy", X)
    command = [python, "-I", SCRIPT, tmp_path / "graph.onnx", tmp_path / "rows.npy"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    header, *rows = csv.reader(text.splitlines(), delimiter="\t")
    found = dict(zip(header, np.array(rows, float).T, strict=True))
    np.testing.assert_array_equal(found["label"], model.predict(X))
    proba = np.stack([found[f"probabilities_{k}"] for k in range(3)], axis=1)
    np.testing.assert_allclose(proba, model.predict_proba(X), rtol=1e-4, atol=1e-7)
    parts = model.predict_uncertainty(X)
    for name in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(found[name], getattr(parts, name), rtol=1e-3, atol=1e-6)
    without = subprocess.run([python, "-I", "-c", "import torch"], capture_output=True, text=True)
    assert "No module named 'torch'" in without.stderr
