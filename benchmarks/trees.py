# SPDX-License-Identifier: BSD-3-Clause
"""Students of decision trees, and of models of several kinds, beside their teachers.

mixed      MixedModels([networks, Gaussian process, boosting]) on sets of UCI with
           the splits of uci.py; the process is of at most 1,500 samples
boosting   scikit-learn's HistGradientBoostingRegressor, and LightGBM where it is installed, on
           california with the split of tables.py
forest     a random forest of 500 trees as 20 members, on california

Students are Hydra+ with their defaults; "plain" is what students of ensembles have: bins of
quantiles and noise. The gap is the student's NLL less its teacher's, on test rows, and the RMSE
ratio the student's over the teacher's; rank is that of the epistemic part. One row is `predict` of
the teacher, and the student's ONNX graphs with all outputs and with the mean alone, in turn. Times
are CPU seconds of one thread. With --validation the last part of the training rows takes the place
of the test rows; settings were chosen so, never on test rows. With --resume rows in the file stay,
but for those that are measured anew since defaults changed.

    python benchmarks/trees.py
    python benchmarks/trees.py --sets concrete california --splits 1 --resume
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean, median
from typing import Any

import _defaults
import fidelity
import numpy as np
import tables
import uci
from _common import (
    argument_parser,
    interleaved,
    one_thread,
    print_table,
    record,
    resumed,
    write_json,
)
from fidelity import Rows
from predict import in_onnxruntime
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import root_mean_squared_error
from sklearn.utils import check_random_state

import skdistill
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import epistemic_fidelity, mixture_nll
from skdistill.modules import PiecewiseLinear
from skdistill.settings import Runtime
from skdistill.teachers import MixedModels, as_teacher
from skdistill.transfer import GaussianNoise

OF_MIXTURES = ("energy", "concrete", "boston", "power-plant", "wine")
SETS = ("california", *OF_MIXTURES)
N_SPLITS, N_TREES, N_MEMBERS = 2, 500, 20
N_ROUNDS, N_CALLS = 5, 20  # of predictions of one row
N_QUICK = 80  # rows
GP_ROWS = 1500

STUDENTS: dict[str, dict[str, Any]] = {
    "student": {},
    "plain": {
        "module__embeddings": PiecewiseLinear(),
        "transfer": GaussianNoise(correlated=True, categorical="auto"),
    },
}


class GaussianProcess(GaussianProcessRegressor):
    """Exact, of at most GP_ROWS rows; the teacher's members are found by the type."""

    def fit(self, X, y):
        if len(X) > GP_ROWS:
            rows = check_random_state(self.random_state).choice(len(X), GP_ROWS, replace=False)
            X, y = X[rows], y[rows]
        with warnings.catch_warnings():  # a length scale at its bound is an irrelevant column
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)


def mixed(rows: Rows, seed: int) -> Any:
    kinds = [
        BayesianEnsembleRegressor(runtime=Runtime(device="cpu")),
        uci.gaussian_process(RBF, rows.X_train.shape[1], seed, kind=GaussianProcess),
        HistGradientBoostingRegressor(),
    ]
    teacher = as_teacher(MixedModels(kinds, weights="oof")).set_params(estimator__random_state=seed)
    return teacher.fit(rows.X_train, rows.y_train)


def boosting(rows: Rows, seed: int) -> Any:
    teacher = as_teacher(HistGradientBoostingRegressor(random_state=seed))
    return teacher.fit(rows.X_train, rows.y_train)


def lightgbm(rows: Rows, seed: int) -> Any:
    from lightgbm import LGBMRegressor

    teacher = as_teacher(LGBMRegressor(n_jobs=1, verbose=-1, random_state=seed))
    return teacher.fit(rows.X_train, rows.y_train)


def forest(rows: Rows, seed: int, n_trees: int = N_TREES) -> Any:
    trees = RandomForestRegressor(n_trees, n_jobs=1, random_state=seed)
    return as_teacher(trees, max_members=N_MEMBERS).fit(rows.X_train, rows.y_train)


TEACHERS: dict[str, Callable[[Rows, int], Any]] = {
    "mixed": mixed,
    "boosting": boosting,
    "LightGBM": lightgbm,
    "forest": forest,
}


def load(name: str, split: int, options: Any) -> Rows:
    """Rows of a split; a few of them if it is only to be seen that all runs."""
    if name == "california":
        rows = Rows(**tables.load(name, options.validation)._asdict())
    else:
        rows = fidelity.load(name, split, options.validation)
    return Rows(*(part[:N_QUICK] for part in rows)) if options.quick else rows


def measured(name: str, split: int, which: str, rows: Rows) -> Iterator[dict[str, Any]]:
    """A row of results for each student of a teacher."""
    start = time.process_time()
    teacher = TEACHERS[which](rows, split)
    teacher_seconds = time.process_time() - start
    X, y = rows.X_test, rows.y_test
    of_teacher = skdistill.predict_members(teacher, X)
    error = root_mean_squared_error(y, teacher.predict(X))
    for kind, settings in STUDENTS.items():
        start = time.process_time()
        student = HydraPlusRegressor(FrozenEstimator(teacher), random_state=split, **settings)
        student.set_params(runtime=Runtime(device="cpu")).fit(rows.X_train, rows.y_train)
        seconds = time.process_time() - start
        members = skdistill.predict_members(student, X)
        spread = [np.ptp(found[..., 0], axis=1).max() for found in (of_teacher, members)]
        parts = [epistemic(found) for found in (of_teacher, members)]
        yield {
            "set": name,
            "split": split,
            "teacher": which,
            "student": kind,
            "n_rows": len(rows.X_train),
            "teacher_nll": mixture_nll(y, of_teacher),
            "gap": mixture_nll(y, members) - mixture_nll(y, of_teacher),
            "teacher_rmse": error,
            "rmse_ratio": root_mean_squared_error(y, student.predict(X)) / error,
            # One model alone has no spread to learn.
            "rank": epistemic_fidelity(*parts).rank_correlation if min(spread) > 0 else None,
            "teacher_seconds": teacher_seconds,
            "student_seconds": seconds,
            **one_row(teacher, student, X),
        }


def epistemic(members: np.ndarray) -> np.ndarray:
    """Variance of the members' means (n, S, t, 2), (n,)."""
    found: np.ndarray = members[..., 0].var(axis=1)[:, 0]
    return found


def one_row(teacher: Any, student: Any, X: np.ndarray) -> dict[str, float]:
    """Seconds for one row."""
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            "teacher_row": partial(teacher.predict, X[:1]),
            "graph_row": in_onnxruntime(student, folder, X[:1], "auto"),
            "mean_row": in_onnxruntime(student, folder, X[:1], ["mean"]),
        }
        seconds = interleaved(calls, N_ROUNDS, N_CALLS)
    return {name: median(found) for name, found in seconds.items()}


def main() -> None:
    parser = argument_parser(__doc__, "trees")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="of sets of UCI")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--validation", action="store_true", help="score training rows held out")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    if options.quick:
        TEACHERS["forest"] = partial(forest, n_trees=N_MEMBERS)
        STUDENTS["student"] = {"max_epochs": 2}
        del STUDENTS["plain"]
    settings = {"validation": options.validation, "quick": options.quick}
    found = resumed(options.output, settings) if options.resume else None
    results = [] if found is None else _defaults.kept(found)
    known = {identity(row) for row in results if "older" not in row}
    for name in options.sets:
        is_uci = name in OF_MIXTURES
        for split in range(1 if options.quick or not is_uci else options.splits):
            rows = load(name, split, options)
            for which in ("mixed",) if is_uci else ("boosting", "LightGBM", "forest"):
                if (name, split, which) in known:
                    continue
                try:
                    new = list(measured(name, split, which, rows))
                except ImportError:
                    print(f"{which} is left out: it is not installed.")
                    continue
                results = sorted(_defaults.replaced(results, new, identity), key=place)
                write_json(options.output, record(settings=settings, results=results))
    print_table(
        ["set", "teacher", "student", "gap", "ratio", "rank", "s", "/ graph", "/ mean alone"],
        [
            [*key, *(mean_of(found, name) for name in ("gap", "rmse_ratio", "rank")),
             mean_of(found, "student_seconds"),
             *(times_as_fast(found, graph) for graph in ("graph_row", "mean_row"))]
            for key, found in grouped(results).items()
        ],
    )  # fmt: skip


def identity(row: dict[str, Any]) -> tuple[str, int, str]:
    """What is measured at once: a teacher and its students."""
    return row["set"], row["split"], row["teacher"]


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    """Where a row belongs among results."""
    return SETS.index(row["set"]), row["split"], list(TEACHERS).index(row["teacher"])


def times_as_fast(rows: list[dict[str, Any]], graph: str) -> float | None:
    """Mean over splits of the teacher's time for one row over a graph's, where it is known."""
    if not all(graph in row for row in rows):
        return None
    return mean(row["teacher_row"] / row[graph] for row in rows)


def grouped(results: list[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Rows of all splits by set, teacher and student."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in results:
        found.setdefault((row["set"], row["teacher"], row["student"]), []).append(row)
    return found


def mean_of(rows: list[dict[str, Any]], name: str) -> float | None:
    """Mean over splits; None where there is nothing to measure."""
    values = [row[name] for row in rows]
    return None if None in values else mean(values)


if __name__ == "__main__":
    main()
