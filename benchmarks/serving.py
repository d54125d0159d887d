# SPDX-License-Identifier: BSD-3-Clause
"""Serving: one row, and a hundred thousand, by a student, its exported forms and its teacher.

An ensemble of 10 networks for numbers, and one for classes, and the default student of each
(DistributionDistiller) predict all that they tell: the mean or the probabilities, and the total
uncertainty with its parts.

student, teacher    predict(X, return_std=True) or predict_proba(X), and predict_uncertainty(X)
program             the program of torch.export (export_program), called by torch
file                the graph of export_onnx, run by onnxruntime: session.run(None, {"X": X})
pipeline            a StandardScaler and the student in one graph
file, 2 threads     the same as file, on two threads of onnxruntime
C, C of the point   the C file of export_c, compiled by cc -O3, with all outputs, and without the
                    uncertainty

All but the last on one thread, in float32. The many rows go to graphs and programs in blocks of
4,000, whose activations fit the cache. Times are those of the wall clock, as two threads are among
the contenders; contenders take turns, figures are medians over rounds. How well the models predict
does not matter here; they are hardly trained.

    python benchmarks/serving.py
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from _common import asked, interleaved, print_table, save
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    export_onnx,
)
from skdistill.export import export_c, export_program
from skdistill.settings import Runtime

N_FEATURES = 8
N_MEMBERS = 10
BLOCK = 4000  # rows
TARGET_US, TARGET_ROWS = 15, 5e6  # of a file: microseconds for a row; rows a second, 2 threads


def inputs(n_rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES), dtype=np.float32)


def models(task: str) -> tuple[Any, Any]:
    """A student and its teacher, trained for an epoch."""
    X = inputs(256)
    y = X[:, 0] + np.sin(X[:, 1])
    kind = BayesianEnsembleRegressor
    if task == "classes":
        y, kind = np.digitize(y, [-1.0, 0.0, 1.0]), BayesianEnsembleClassifier
    settings = {"max_epochs": 1, "runtime": Runtime(device="cpu"), "random_state": 0}
    teacher = kind(N_MEMBERS, **settings).fit(X, y)
    return DistributionDistiller(FrozenEstimator(teacher), **settings).fit(X, y), teacher


def all_of(model: Any, X: np.ndarray) -> tuple[Any, Any]:
    """Point and uncertainty, by an estimator's methods."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X), model.predict_uncertainty(X)
    return model.predict(X, return_std=True), model.predict_uncertainty(X)


def session_of(model: Any, path: Path, n_threads: int = 1) -> onnxruntime.InferenceSession:
    """Export a model, and open the file in onnxruntime."""
    export_onnx(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = n_threads, 1
    return onnxruntime.InferenceSession(path, options)


def run_in_blocks(run: Callable[[Any], Any], X: Any) -> None:
    """Give rows to a graph or a program, block by block."""
    for start in range(0, len(X), BLOCK):
        run(X[start : start + BLOCK])


# The structs of all samples are kept, so that the compiler leaves nothing out.
_MANY = """
#include "student.c"
size_t size(void) { return sizeof(student_output); }
void many(const double *x, size_t n, student_output *y)
{
    for (size_t i = 0; i < n; i++) student_predict(x + i * STUDENT_N_INPUTS, y + i);
}
"""


def compiled(student: Any, folder: Path, outputs: Any = "auto") -> Callable[[Any], Any]:
    """Export a student to C, and compile it."""
    folder.mkdir()
    export_c(student, folder / "student.c", outputs=outputs)
    (folder / "many.c").write_text(_MANY, encoding="utf-8")
    command = "cc -std=c99 -O3 -fPIC -shared many.c -o many.so -lm"
    subprocess.run(command.split(), cwd=folder, check=True)
    library = ctypes.CDLL(folder / "many.so")
    library.size.restype = ctypes.c_size_t
    library.many.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

    def predict(X: np.ndarray) -> np.ndarray:
        found = np.empty((len(X), library.size()), dtype=np.uint8)
        rows = X.astype(np.float64)
        library.many(rows.ctypes.data, len(X), found.ctypes.data)
        return found

    return predict


def contenders(task: str, folder: Path) -> dict[str, tuple[Callable[[Any], Any], float | None]]:
    """What predicts rows, and the size of its file in kilobytes, if it has one."""
    student, teacher = models(task)
    pipeline = make_pipeline(StandardScaler().fit(inputs(256)), student)
    files = {name: folder / f"{name}.onnx" for name in ("file", "pipeline")}
    file, scaled = session_of(student, files["file"]), session_of(pipeline, files["pipeline"])
    on_two = session_of(student, folder / "two.onnx", n_threads=2)
    export_program(student, folder / "student.pt2")
    program = torch.export.load(folder / "student.pt2").module()

    def by(session: Any) -> Callable[[Any], Any]:
        return partial(run_in_blocks, lambda X: session.run(None, {"X": X}))

    def by_program(X: Any) -> None:
        with torch.inference_mode():
            run_in_blocks(program, torch.from_numpy(X))

    point = ["mean"] if task == "numbers" else ["probabilities"]
    kilobytes = {name: path.stat().st_size / 1000 for name, path in files.items()}
    return {
        "student": (partial(all_of, student), None),
        "program": (by_program, (folder / "student.pt2").stat().st_size / 1000),
        "file": (by(file), kilobytes["file"]),
        "pipeline": (by(scaled), kilobytes["pipeline"]),
        "file, 2 threads": (by(on_two), kilobytes["file"]),
        "C": (compiled(student, folder / "c"), None),
        "C of the point": (compiled(student, folder / "point", point), None),
        "teacher": (partial(all_of, teacher), None),
    }


def measured(task: str, n_rows: int, n_calls: int, n_rounds: int) -> list[dict[str, Any]]:
    """Rows of the table for a task: seconds of one row and of many, for each contender."""
    with tempfile.TemporaryDirectory() as folder:
        found = contenders(task, Path(folder))
    row, rows = inputs(1), inputs(n_rows)
    clock = time.perf_counter
    one = {name: partial(predict, row) for name, (predict, _) in found.items()}
    many = {name: partial(predict, rows) for name, (predict, _) in found.items()}
    of_one = interleaved(one, n_rounds, n_calls, clock)
    of_many = interleaved(many, n_rounds, clock=clock)
    return [
        {
            "task": task,
            "model": name,
            "one_row_us": 1e6 * median(of_one[name]),
            "rows_per_second": n_rows / median(of_many[name]),
            "rows": n_rows,
            "kilobytes": kilobytes,
        }
        for name, (_, kilobytes) in found.items()
    ]


def main() -> None:
    options = asked(__doc__, rounds=5)
    sizes = (300, 2, 1) if options.quick else (100_000, 300, options.rounds)
    results = [row for task in ("numbers", "classes") for row in measured(task, *sizes)]
    header = ["task", "model", "one row, us", "rows a second", "rows", "kB"]
    print_table(header, [list(row.values()) for row in results])
    targets = {"one_row_us": TARGET_US, "rows_per_second": TARGET_ROWS}
    save(options, targets=targets, serving=results)


if __name__ == "__main__":
    main()
