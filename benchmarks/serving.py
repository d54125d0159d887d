# SPDX-License-Identifier: BSD-3-Clause
"""Serving: one row, and a hundred thousand, by a student, its ONNX file and its teacher.

An ensemble of 10 networks for numbers, and one for classes, and the default student of each
(DistributionDistiller) predict all that they tell: the mean or the probabilities, and the total
uncertainty with its parts. The file holds the student's graph (export_onnx), run by onnxruntime.

student, teacher    predict(X, return_std=True) or predict_proba(X), and predict_uncertainty(X)
file                session.run(None, {"X": X}), all outputs at once

On one thread, in float32. Times are CPU seconds a call, contenders take turns, figures are medians
over rounds. How well the models predict does not matter here; they are hardly trained.

    python benchmarks/serving.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from _common import argument_parser, interleaved, one_thread, print_table, record, write_json
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    export_onnx,
)

N_FEATURES = 8
N_MEMBERS = 10
TARGET_US, TARGET_ROWS = 15, 5e6  # of a file: microseconds for a row, and rows a second


def inputs(n_rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES), dtype=np.float32)


def models(task: str) -> tuple[Any, Any]:
    """A student and its teacher, trained for an epoch."""
    X = inputs(256)
    y = X[:, 0] + np.sin(X[:, 1])
    kind = BayesianEnsembleRegressor
    if task == "classes":
        y, kind = np.digitize(y, [-1.0, 0.0, 1.0]), BayesianEnsembleClassifier
    settings = {"max_epochs": 1, "device": "cpu", "random_state": 0}
    teacher = kind(N_MEMBERS, **settings).fit(X, y)
    return DistributionDistiller(FrozenEstimator(teacher), **settings).fit(X, y), teacher


def all_of(model: Any, X: np.ndarray) -> tuple[Any, Any]:
    """Point and uncertainty, by an estimator's methods."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X), model.predict_uncertainty(X)
    return model.predict(X, return_std=True), model.predict_uncertainty(X)


def session_of(path: Path) -> onnxruntime.InferenceSession:
    """A file in onnxruntime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def contenders(student: Any, teacher: Any, session: Any, n_rows: int) -> dict[str, Callable]:
    X = inputs(n_rows)
    return {
        "student": partial(all_of, student, X),
        "file": partial(session.run, None, {"X": X}),
        "teacher": partial(all_of, teacher, X),
    }


def measured(task: str, n_rows: int, n_calls: int, n_rounds: int) -> list[dict[str, Any]]:
    """Rows of the table for a task: seconds of one row and of many, for each contender."""
    student, teacher = models(task)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "student.onnx"
        export_onnx(student, path)
        session, size = session_of(path), path.stat().st_size
    one = interleaved(contenders(student, teacher, session, 1), n_rounds, n_calls)
    many = interleaved(contenders(student, teacher, session, n_rows), n_rounds)
    return [
        {
            "task": task,
            "model": name,
            "one_row_us": 1e6 * median(one[name]),
            "rows_per_second": n_rows / median(many[name]),
            "rows": n_rows,
            "kilobytes": size / 1000 if name == "file" else None,
        }
        for name in one
    ]


def main() -> None:
    parser = argument_parser(__doc__, "serving")
    parser.add_argument("--rounds", type=int, default=11, help="rounds to take medians over")
    options = parser.parse_args()
    one_thread()
    sizes = (300, 2, 1) if options.quick else (100_000, 300, options.rounds)
    results = [row for task in ("numbers", "classes") for row in measured(task, *sizes)]
    header = ["task", "model", "one row, us", "rows a second", "rows", "kB"]
    print_table(header, [list(row.values()) for row in results])
    targets = {"one_row_us": TARGET_US, "rows_per_second": TARGET_ROWS}
    settings = {"members": N_MEMBERS, "quick": options.quick, "targets": targets}
    write_json(options.output, record(settings=settings, serving=results))


if __name__ == "__main__":
    main()
