# SPDX-License-Identifier: BSD-3-Clause
"""Students of decision trees, and of models of several kinds, beside their teachers.

mixed      MixedModels([networks, Gaussian process, boosting]) on the first of the usual splits of
           sets of UCI; the process is of at most 1,000 samples
boosting   scikit-learn's HistGradientBoostingRegressor on california, a fifth of which is for
           testing

Students are Hydra+ with their defaults. The gap is the student's NLL less its teacher's, on test
samples, and the RMSE ratio the student's over the teacher's; rank is that of the epistemic part.
One sample is `predict` of the teacher, and the student's ONNX graphs with all outputs and with the
mean alone, in turn. Times are CPU seconds of one thread.

    python benchmarks/trees.py
    python benchmarks/trees.py --sets energy concrete wine
"""

from __future__ import annotations

import tempfile
import time
import warnings
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from _common import Among, asked, interleaved, measured, one_thread, print_table
from _datasets import OF_UCI, Fold, load_split, table
from predict import in_onnxruntime
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

import skdistill
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import epistemic_fidelity, mixture_nll
from skdistill.settings import Runtime
from skdistill.teachers import MixedModels, as_teacher

SETS = ("boston", "power-plant", "california")  # by default
N_ROUNDS, N_CALLS = 5, 20  # of predictions of one sample
N_QUICK = 80  # samples
GP_ROWS = 1000


class GaussianProcess(GaussianProcessRegressor):
    """Exact, of at most GP_ROWS samples; the teacher's members are found by the type."""

    def fit(self, X, y):
        if len(X) > GP_ROWS:
            rows = check_random_state(self.random_state).choice(len(X), GP_ROWS, replace=False)
            X, y = X[rows], y[rows]
        with warnings.catch_warnings():  # a length scale at its bound is an irrelevant column
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)


def load(name: str, quick: bool) -> Fold:
    """Standardised samples."""
    if name != "california":
        fold = load_split(name, 0)
    else:
        X, X_test, y, y_test = train_test_split(*table(name), test_size=0.2, random_state=0)
        scaler = StandardScaler().fit(X)
        X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
        fold = Fold(X, y, X_test, y_test)
    return Fold(*(part[:N_QUICK] for part in fold)) if quick else fold


def teacher_of(name: str, fold: Fold) -> Any:
    """An unfitted teacher of a set."""
    if name == "california":
        return as_teacher(HistGradientBoostingRegressor(random_state=0))
    kernel = ConstantKernel() * RBF(np.ones(fold.X_train.shape[1])) + WhiteKernel()
    kinds = [
        BayesianEnsembleRegressor(runtime=Runtime(device="cpu")),
        GaussianProcess(kernel, normalize_y=True, random_state=0),
        HistGradientBoostingRegressor(),
    ]
    return as_teacher(MixedModels(kinds, weights="oof")).set_params(estimator__random_state=0)


def run(unit: tuple[str], quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The row of results of a teacher and its student."""
    one_thread()
    (name,) = unit
    fold = load(name, quick)
    X, y = fold.X_test, fold.y_test
    start = time.process_time()
    teacher = teacher_of(name, fold).fit(fold.X_train, fold.y_train)
    teacher_seconds = time.process_time() - start
    few = {"max_epochs": 2} if quick else {}
    student = HydraPlusRegressor(FrozenEstimator(teacher), random_state=0, **few)
    student.set_params(runtime=Runtime(device="cpu")).fit(fold.X_train, fold.y_train)
    seconds = time.process_time() - start - teacher_seconds
    theirs, ours = (skdistill.predict_members(model, X) for model in (teacher, student))
    error, own_error = (root_mean_squared_error(y, one.predict(X)) for one in (teacher, student))
    parts = [found[..., 0].var(axis=1)[:, 0] for found in (theirs, ours)]
    has_spread = min(part.max() for part in parts) > 0  # one model alone has none to learn
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            "teacher_row": partial(teacher.predict, X[:1]),
            "graph_row": in_onnxruntime(student, folder, X[:1], "auto"),
            "mean_row": in_onnxruntime(student, folder, X[:1], ["mean"]),
        }
        rounds = interleaved(calls, N_ROUNDS, N_CALLS)
    row = {
        "set": name,
        "teacher": "boosting" if name == "california" else "mixed",
        "gap": mixture_nll(y, ours) - mixture_nll(y, theirs),
        "rmse_ratio": own_error / error,
        "rank": epistemic_fidelity(*parts).rank_correlation if has_spread else None,
        "teacher_seconds": teacher_seconds,
        "student_seconds": seconds,
        **{call: median(times) for call, times in rounds.items()},
    }
    return [row], []


def main() -> None:
    options = asked(__doc__, sets=Among(SETS, (*OF_UCI, "california")), jobs=1)

    def place(row: dict[str, Any]) -> tuple[int]:
        return (options.sets.index(row["set"]),)

    call = partial(run, quick=options.quick)
    rows = measured([(name,) for name in options.sets], call, options, [], place, place)
    print_table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
