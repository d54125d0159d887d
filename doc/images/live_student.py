# SPDX-License-Identifier: BSD-3-Clause
"""Fit the students of the documentation's first page, which predict in the reader's browser.

python doc/images/live_student.py

It writes the students for doc/_static/live_student.js, and what they predict for the test of that
file, tests/live_student.npz.
"""

from __future__ import annotations

import argparse
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._method.random_functions import _NUGGET
from skdistill.datasets import make_spirals
from skdistill.distillers import _hydra
from skdistill.settings import Runtime

ROOT = Path(__file__).parents[2]
WIDTH = 2.0  # of the gap
CENTRES = np.linspace(-2, 2, 9)  # of the gap, one for each student of regression
SETTINGS: dict[str, Any] = {"runtime": Runtime(dtype="float32"), "random_state": 0}


def line_samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of a sine between -4 and 4, with noise that grows from left to right."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-4, 4, n))
    return x[:, None], np.sin(x) + (0.15 + 0.03 * x) * rng.normal(size=n)


def fitted_regressors(n: int) -> list[HydraPlusRegressor]:
    """Students of n samples less those in the gap, one for each place of it."""
    X, y = line_samples(n)
    teacher = BayesianEnsembleRegressor(10, **SETTINGS)
    small = {"heads": 4, "module__hidden_units": (8, 8), "max_epochs": 1000}
    students = []
    for centre in CENTRES:
        is_kept = np.abs(X[:, 0] - centre) > WIDTH / 2
        student = HydraPlusRegressor(teacher, **small, **SETTINGS)
        students.append(student.fit(X[is_kept], y[is_kept]))
    return students


def fitted_classifier(X: np.ndarray, y: np.ndarray) -> HydraPlusClassifier:
    """Student of classification in two dimensions."""
    teacher = BayesianEnsembleClassifier(6, **SETTINGS)
    small = {"module__hidden_units": (16, 16)}
    return HydraPlusClassifier(teacher, **small, **SETTINGS).fit(X, y)


# --- one file of them -----------------------------------------------------------------------------


def exported(student: Any) -> dict:
    """Return all that live_student.js predicts with: layers, heads, scales and functions.

    It takes students of Hydra+ of tables of numbers without missing ones, whose core is an MLP and
    whose heads are a layer each.
    """
    module = student.module_
    core, (head,) = module.network.core, module.network.heads
    if module.calibration is not None or not module.inputs.compresses:
        raise ValueError("student must have no calibration, and inputs that are standardised.")
    found = {
        "inputs": _inputs(module.inputs),
        "layers": [_layer(part) for part in core],
        "heads": {"weight": _packed(head.weight[0]), "bias": _packed(head.bias[0, :, 0])},
        "functions": _functions(module.functions),
    }
    if hasattr(student, "classes_"):
        return found | {"functions": found["functions"] | _draws(module.functions)}
    found |= {"loc": module.y_loc.item(), "scale": module.y_scale.item()}
    gain = {"largestLog": _hydra._LARGEST_LOG_GAIN, "shareKept": _hydra._SHARE_KEPT}
    return found | {"gain": gain if student._plan.has_gain else None}


def _layer(part: nn.Module) -> dict | str:
    """Weights (in, out) and biases (out,) of a layer, or the name of an activation."""
    if not list(part.parameters()):
        return type(part).__name__
    return {"weight": _packed(part.weight[0]), "bias": _packed(part.bias[0, 0])}


def _inputs(encoder: Any) -> dict:
    sources = np.arange(encoder.n_numbers) if encoder.sources is None else encoder.sources.numpy()
    return {
        "nNumbers": encoder.n_numbers,
        "sources": sources.tolist(),
        "starts": _packed(encoder.starts),
        "widths": _packed(encoder.widths),
    }


def _functions(functions: Any) -> dict:
    """What the variance of random functions is computed of.

    The inverse Cholesky factor of the kernel matrix of the m inducing points is its largest part,
    and is left out: the page decomposes the matrix itself.
    """
    factors, minus_half_squares = functions.inducing.chunk(2)
    gaps, n_columns = functions.gaps, len(functions.encoder.starts)
    return {
        "starts": _packed(functions.encoder.starts),
        "widths": _packed(functions.encoder.widths),
        "radius": functions.radius,
        "within": _packed(functions.within),
        "slope": _packed(functions.slope),
        "points": _packed((factors / (-2 * minus_half_squares)).T),
        "squares": _packed(-2 * minus_half_squares[:, 0]),
        "nugget": _NUGGET,
        "most": functions.most.item(),
        "gapColumns": gaps.columns.tolist(),
        "gapSlopes": _packed(gaps.slopes),
        "gapOffsets": _packed(gaps.offsets),
        "gapMost": _packed(gaps.most),
        "gapVariance": _packed(functions.unknown_variance[n_columns:]),
    }


def _draws(functions: Any) -> dict:
    """What draws of random functions, one for each head, are computed of."""
    n_columns = len(functions.encoder.starts)
    return {
        "frequencies": _packed(functions.frequencies.float()),
        "phases": _packed(functions.phases.float()),
        "weightsOfWaves": _packed(functions.weights_of_waves.float()),
        "weightsOfKernel": _packed(functions.weights_of_kernel.float()),
        "weightsOfGaps": _packed(functions.weights_of_unknown[n_columns:]),
    }


def _packed(tensor: Tensor) -> dict:
    """Shape and numbers of a tensor, as base64 of float32 or float64, little endian."""
    values = tensor.detach().numpy()
    kind = f"f{values.dtype.itemsize}"
    return {"shape": values.shape, kind: b64encode(values.astype(f"<{kind}").tobytes()).decode()}


# --- what they predict ----------------------------------------------------------------------------


def predictions(student: Any, X: np.ndarray) -> np.ndarray:
    """Mean or class probabilities, and total, aleatoric and epistemic part, as columns."""
    first = student.predict_proba(X) if hasattr(student, "classes_") else student.predict(X)
    return np.column_stack([first, *student.predict_uncertainty(X)])


def main() -> None:
    """Fit the students, and write them and what they predict."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT, help="where doc and tests are")
    options = parser.parse_args()
    X_line, y_line = line_samples(280)
    X_plane, y_plane = make_spirals(210, random_state=0)
    regressors = fitted_regressors(len(X_line))
    classifier = fitted_classifier(X_plane, y_plane)
    content = {
        "line": {
            "x": X_line[:, 0].round(2).tolist(),
            "y": y_line.round(2).tolist(),
            "gapWidth": WIDTH,
            "gapCentres": CENTRES.tolist(),
            "students": [exported(student) for student in regressors],
        },
        "plane": {
            "X": X_plane.round(2).tolist(),
            "y": y_plane.tolist(),
            "student": exported(classifier),
        },
    }
    text = json.dumps(content, separators=(",", ":"))
    (options.folder / "doc" / "_static" / "live_students_fitted.js").write_text(
        f"// Written by doc/images/live_student.py.\nwindow.liveStudentsFitted = {text};\n",
        encoding="utf-8",
    )
    rng = np.random.default_rng(1)
    X_line, X_plane = rng.uniform(-8, 8, (25, 1)), rng.uniform(-14, 14, (200, 2))
    np.savez_compressed(
        options.folder / "tests" / "live_student.npz",
        X_line=X_line,
        line=np.stack([predictions(student, X_line) for student in regressors]),
        X_plane=X_plane,
        plane=predictions(classifier, X_plane),
    )


if __name__ == "__main__":
    main()
