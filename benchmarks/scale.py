# SPDX-License-Identifier: BSD-3-Clause
"""Large tables: what a teacher of 20 members and its Hydra+ student cost, and how the cost grows.

sizes     a made-up table of 20 columns in float64, all settings left to skdistill, for 10,000 and
          100,000 rows; beside them gradient boosting
growth    one epoch in batches of 256, in float32, for growing numbers of rows, columns, members and
          classes; slopes are those of a line through the logarithms of size and of seconds, and
          between the two largest sizes
example   one epoch with 100 columns, 50 members and 1,000 classes, the teacher asked again for each
          batch: what the fit of 100,000,000 such rows is computed from
parquet   500,000 rows, or --parquet-rows, of 20 columns in Parquet files of 100,000 each, made up
          in a temporary folder; five LightGBM models (HistGradientBoosting, where it is not
          installed) of bootstrap samples of the first 100,000 rows teach a Hydra+ student, which
          reads the files as batches, without noise, so that the teacher is asked once; two epochs

Every fit is in a process of its own, which has imported what it needs. Seconds are CPU seconds of
one thread; NLL is that of one Gaussian on 20,000 further rows. Memory is what a process holds at
its peak, less what it held with the table before; the student's is that of both fits. Of the part
"parquet" it is the peak of the process that fits teacher and student, what it has imported
included. --jobs fits run side by side.

    python benchmarks/scale.py
    python benchmarks/scale.py --parts growth example
    python benchmarks/scale.py --parts parquet --parquet-rows 10000000
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import (
    asked,
    in_new_process,
    made_up_table,
    one_thread,
    peak_mib,
    print_table,
    save,
)
from sklearn import config_context
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.metrics import gaussian_nll
from skdistill.settings import Runtime
from skdistill.streams import Batches
from skdistill.teachers import as_teacher

PARTS = ("sizes", "growth", "example", "parquet")
N_VALID = 20_000

# What was wanted.
CPU_SECONDS, TIMES_X, SLOPE = 30, 3, 1.1
PEAK_MIB_OF_FILES = 1024

# Rows of a Parquet file, and those, at most, that the boosted trees are fitted on.
FILE_ROWS = 100_000


class Setting(NamedTuple):
    """A table, and how a teacher and its student are fitted to it; a regression without classes."""

    n_rows: int
    n_columns: int = 20
    n_members: int = 20
    n_classes: int = 0
    dtype: str = "float64"
    teacher: dict[str, Any] = {}
    student: dict[str, Any] = {}
    working_memory: int = 1024


SHARED = {"runtime": Runtime(device="cpu"), "random_state": 0}
ONE_EPOCH = {"max_epochs": 1, "batch_size": 256}
BASE = Setting(20_000, dtype="float32", teacher=ONE_EPOCH, student=ONE_EPOCH)
OF_CLASSES = BASE._replace(n_rows=4_000, n_members=10)
WARM_UP = Setting(500, n_columns=10, n_members=2, teacher=ONE_EPOCH, student=ONE_EPOCH)  # imports


def table(setting: Setting, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A made-up table; classes are equal parts of the rows, in the order of the numbers."""
    X, y = made_up_table(setting.n_rows, setting.n_columns, seed, setting.dtype)
    if setting.n_classes:
        y = y.argsort().argsort() * setting.n_classes // len(y)
    return X, y


# Teacher and student ------------------------------------------------------------------------------


def pair(setting: Setting) -> dict[str, Any]:
    """What a teacher and its student cost, to be called in a new process."""
    one_thread()
    warnings.simplefilter("ignore", ConvergenceWarning)  # one epoch may be worse than a constant
    X, y = table(setting)
    first = WARM_UP._replace(n_classes=min(setting.n_classes, 10))
    fitted(first, *table(first))
    before = peak_mib()
    with config_context(working_memory=setting.working_memory):
        fits = fitted(setting, X, y)
    models = [fit["model"] for fit in fits]
    found = {
        **{name: getattr(setting, name) for name in ("n_rows", "n_columns", "n_members")},
        "n_classes": setting.n_classes,
        "epochs": [model.n_epochs_ for model in models],
        "cpu_seconds": [fit["cpu"] for fit in fits],
        "wall_seconds": [fit["wall"] for fit in fits],
        "x_mib": X.nbytes / 2**20,
        "growth_mib": [fit["peak_mib"] - before for fit in fits],
    }
    if not setting.n_classes:
        X, y = table(setting._replace(n_rows=N_VALID), seed=1)
        found["nll"] = [gaussian_nll(y, *model.predict(X, return_std=True)) for model in models]
    return found


def fitted(setting: Setting, X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """A teacher and its student, what each of them took, and the peak when it was done."""
    numbers = not setting.n_classes
    kind = BayesianEnsembleRegressor if numbers else BayesianEnsembleClassifier
    student = HydraPlusRegressor if numbers else HydraPlusClassifier
    teacher = kind(setting.n_members, **SHARED, **setting.teacher)
    return [
        stopwatch(teacher, X, y),
        stopwatch(student(FrozenEstimator(teacher), **SHARED, **setting.student), X, y),
    ]


def stopwatch(model, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """A model that is fitted here, its seconds of the CPU and on the clock, and the peak so far."""
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"model": model, "cpu": cpu, "wall": wall, "peak_mib": peak_mib()}


# Peers --------------------------------------------------------------------------------------------


def boosted_histograms():
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


def light_gbm():
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_jobs=1, verbose=-1, random_state=0)


PEERS = {"HistGradientBoosting": boosted_histograms, "LightGBM": light_gbm}


def peer(name: str, n_rows: int) -> dict[str, Any]:
    """What a peer costs, to be called in a new process."""
    X, y = table(Setting(n_rows))
    stopwatch(PEERS[name](), X[:500], y[:500])  # imports
    before = peak_mib()
    fit = stopwatch(PEERS[name](), X, y)
    X_valid, y_valid = table(Setting(N_VALID), seed=1)
    return {
        "peer": name,
        "n_rows": n_rows,
        "cpu_seconds": fit["cpu"],
        "x_mib": X.nbytes / 2**20,
        "growth_mib": fit["peak_mib"] - before,
        "rmse": root_mean_squared_error(y_valid, fit["model"].predict(X_valid)),
    }


def is_there(name: str) -> bool:
    """Whether a peer is installed; if not, say so."""
    try:
        PEERS[name]()
    except ModuleNotFoundError as error:
        print(f"{name} is left out: {error}")
        return False
    return True


# Parquet files ------------------------------------------------------------------------------------


def parquet(n_rows: int) -> dict[str, Any]:
    """What a student costs whose rows are in files, and what its teacher took to ask."""
    name = "LightGBM" if is_there("LightGBM") else "HistGradientBoosting"
    with tempfile.TemporaryDirectory(prefix="skdistill-") as folder:
        in_new_process(write_files, folder, n_rows)
        return in_new_process(of_files, folder, name)


def write_files(folder: str, n_rows: int) -> None:
    """Write a made-up table in float32 as Parquet files, one after the other."""
    import pandas as pd

    for number, start in enumerate(range(0, n_rows, FILE_ROWS)):
        X, y = made_up_table(min(FILE_ROWS, n_rows - start), seed=number, dtype="float32")
        frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(y=y)
        frame.to_parquet(Path(folder) / f"part-{number:05}.parquet", index=False)


def of_files(folder: str, name: str) -> dict[str, Any]:
    """A student of a few peers, each fitted to the first file, and of all rows."""
    import pyarrow.dataset

    one_thread()
    warnings.simplefilter("ignore", ConvergenceWarning)
    files = pyarrow.dataset.dataset(folder, format="parquet")
    batches = Batches(files, target="y")
    X, y = next(iter(Batches(files, target="y", batch_size=FILE_ROWS)))
    teacher = as_teacher(BaggingRegressor(PEERS[name](), 5, random_state=0)).fit(X, y)
    student = HydraPlusRegressor(
        FrozenEstimator(teacher),
        transfer=None,
        max_epochs=2,
        runtime=Runtime(device="cpu"),
        random_state=0,
    )
    fit = stopwatch(student, batches, None)
    n_rows = files.count_rows()
    X_valid, y_valid = made_up_table(N_VALID, seed=n_rows, dtype="float32")
    X_valid = type(X)(X_valid, columns=X.columns)
    return {
        "teacher": f"5 x {name}",
        "n_rows": n_rows,
        "epochs": student.n_epochs_,
        "cpu_seconds": fit["cpu"],
        "wall_seconds": fit["wall"],
        "rows_per_second": n_rows * student.n_epochs_ / fit["wall"],
        "peak_mib": fit["peak_mib"],
        "nll": gaussian_nll(y_valid, *student.predict(X_valid, return_std=True)),
    }


# Parts --------------------------------------------------------------------------------------------

# By what grows, settings.
AXES = {
    "n_rows": [BASE._replace(n_rows=n) for n in (20_000, 60_000, 200_000)],
    "n_columns": [BASE._replace(n_columns=d) for d in (20, 200, 2_000)],
    "n_members": [BASE._replace(n_members=m) for m in (5, 20, 80)],
    "n_classes": [OF_CLASSES._replace(n_classes=k) for k in (10, 100, 1_000)],
}
QUICK_AXES = {"n_rows": [BASE._replace(n_rows=n) for n in (100, 200)]}
EXAMPLE = BASE._replace(
    n_rows=2_000, n_columns=100, n_members=50, n_classes=1_000, working_memory=64
)
QUICK_EXAMPLE = EXAMPLE._replace(n_rows=300, n_members=3, n_classes=20)


def side_by_side(n_jobs: int, calls: Sequence[tuple[Callable, tuple]]) -> list[dict[str, Any]]:
    """What functions return, each called in a process of its own, `n_jobs` of them at once."""
    with ThreadPoolExecutor(n_jobs) as threads:
        return list(threads.map(lambda call: in_new_process(call[0], *call[1]), calls))


def by_size(settings: Sequence[Setting], n_jobs: int) -> dict[str, Any]:
    """Fits by default, and peers."""
    pairs = [(pair, (setting,)) for setting in settings]
    peers = [(peer, (name, s.n_rows)) for name in filter(is_there, PEERS) for s in settings]
    found = side_by_side(n_jobs, [*pairs, *peers])
    return {"pairs": found[: len(pairs)], "peers": found[len(pairs) :]}


def growth(axes: dict[str, list[Setting]], n_jobs: int) -> dict[str, Any]:
    """Fits by what grows, and the slopes of their seconds."""
    calls = [(pair, (setting,)) for settings in axes.values() for setting in settings]
    found = iter(side_by_side(n_jobs, calls))
    by_axis = {axis: [next(found) for _ in settings] for axis, settings in axes.items()}
    return {axis: {"fits": fits, **slopes(axis, fits)} for axis, fits in by_axis.items()}


def slopes(axis: str, fits: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Slopes of the seconds of teachers and students by what grows, in logarithms."""
    sizes = np.log([fit[axis] for fit in fits])
    seconds = np.log([fit["cpu_seconds"] for fit in fits])
    return {
        "slopes": np.polyfit(sizes, seconds, 1)[0].tolist(),
        "last_slopes": np.polyfit(sizes[-2:], seconds[-2:], 1)[0].tolist(),
    }


# Results ------------------------------------------------------------------------------------------


def targets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What was wanted, of the parts that were measured, beside what was measured."""
    rows = []

    def want(target: str, value: float, high: float) -> None:
        rows.append({"target": target, "value": value, "high": high, "reached": value <= high})

    if "sizes" in found:
        last = found["sizes"]["pairs"][-1]
        setting = f"{last['n_rows']:,} rows"
        want(f"CPU seconds of both, {setting}", sum(last["cpu_seconds"]), CPU_SECONDS)
        share = last["growth_mib"][1] / last["x_mib"]
        want(f"memory beyond X, in multiples of X, {setting}", share, TIMES_X)
    if "parquet" in found:
        row = found["parquet"]
        setting = f"{row['n_rows']:,} rows of Parquet"
        want(f"MiB at the peak, {setting}", row["peak_mib"], PEAK_MIB_OF_FILES)
    for axis, grown in found.get("growth", {}).items():
        for model, slope in zip(("teacher", "student"), grown["slopes"], strict=True):
            want(f"slope by {axis[2:]}, {model}", slope, SLOPE)
    return rows


def report(found: dict[str, Any]) -> None:
    of_sizes = found.get("sizes", {"pairs": [], "peers": []})
    fits = {"sizes": of_sizes["pairs"]}
    fits |= {f"by {axis[2:]}": grown["fits"] for axis, grown in found.get("growth", {}).items()}
    fits |= {part: [found[part]] for part in ("example",) if part in found}
    print_table(
        ["fit", "rows", "columns", "members", "classes", "epochs", "CPU s, teacher", "student"]
        + ["s on the clock", "MiB of X", "teacher", "both", "NLL, teacher", "student"],
        [
            [part, row["n_rows"], row["n_columns"], row["n_members"], row["n_classes"] or None]
            + ["{}, {}".format(*row["epochs"]), *row["cpu_seconds"], sum(row["wall_seconds"])]
            + [row["x_mib"], *row["growth_mib"], *row.get("nll", ())]
            for part, rows in fits.items()
            for row in rows
        ],
    )
    print()
    keys = ("peer", "n_rows", "cpu_seconds", "growth_mib", "rmse")
    peers = [[row[key] for key in keys] for row in of_sizes["peers"]]
    print_table(["peer", "rows", "CPU s", "MiB", "RMSE"], peers)
    print()
    if "parquet" in found:
        row = found["parquet"]
        keys = ("teacher", "n_rows", "epochs", "cpu_seconds", "wall_seconds", "rows_per_second")
        header = ["teacher, Parquet", "rows", "epochs", "CPU s", "s on the clock", "rows/s", "MiB"]
        values = [*(row[key] for key in keys), row["peak_mib"], row["nll"]]
        print_table([*header, "NLL"], [values])
        print()
    keys = ("target", "value", "high", "reached")
    rows = [[row[key] for key in keys] for row in targets(found)]
    print_table(["target", "measured", "at most", "reached"], rows)


def main() -> None:
    options = asked(__doc__, parts=PARTS, parquet_rows=500_000, jobs=2)
    sizes = [100, 200] if options.quick else [10_000, 100_000]
    start = BASE._replace(n_members=3) if options.quick else Setting(0)
    tables = [start._replace(n_rows=n_rows) for n_rows in sizes]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sizes": lambda: by_size(tables, options.jobs),
        "growth": lambda: growth(QUICK_AXES if options.quick else AXES, options.jobs),
        "example": lambda: in_new_process(pair, QUICK_EXAMPLE if options.quick else EXAMPLE),
        "parquet": lambda: parquet(150 if options.quick else options.parquet_rows),
    }
    found: dict[str, Any] = {}
    for part in options.parts:
        found[part] = parts[part]()
        save(options, **found, targets=targets(found))
    report(found)


if __name__ == "__main__":
    main()
