# SPDX-License-Identifier: BSD-3-Clause
"""Large tables: what a teacher of 20 members and its Hydra+ student cost, and how the cost grows.

sizes     a made-up table of 20 columns in float64, all settings left to skdistill, for 10,000 and
          100,000 rows, with --million for 1,000,000 too; beside them gradient boosting, and at
          100,000 rows the settings of small tables (batches of 32, all epochs, float64)
cores     the same at the largest number of rows with n_jobs=2, in seconds on the clock
growth    one epoch in batches of 256, in float32, for growing numbers of rows, columns, members and
          classes; slopes are those of a line through the logarithms of size and of seconds, and
          between the two largest sizes
example   one epoch with 100 columns, 50 members and 1,000 classes, the teacher asked again for each
          batch: what the fit of 100,000,000 such rows is computed from
parquet   1,000,000 rows, or --parquet-rows, of 20 columns in Parquet files of 100,000 each, made up
          in a temporary folder; five LightGBM models (HistGradientBoosting, where it is not
          installed) of bootstrap samples of the first 100,000 rows teach a Hydra+ student, which
          reads the files as batches, without noise, so that the teacher is asked once; two epochs

Every fit is in a process of its own, which has imported what it needs. Seconds are CPU seconds of
one thread; NLL is that of one Gaussian on 20,000 further rows. Memory is what a process holds at
its peak, less what it held with the table before; the student's is that of both fits. With n_jobs=2
it is what the processes hold together, what they share counted once. Of the part "parquet" it is
the peak of the process that fits teacher and student, what it has imported included. LightGBM,
CatBoost and NGBoost take part where they are installed, up to the rows that take them two minutes.
--jobs fits run side by side, but for n_jobs=2, which runs alone.

Two cores take 25 minutes, most of which one of them spends on the settings of small tables.

    python benchmarks/scale.py --million
    python benchmarks/scale.py --parts growth example
    python benchmarks/scale.py --parts parquet --parquet-rows 10000000
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import (
    PeakOfProcesses,
    argument_parser,
    in_new_process,
    made_up_table,
    one_thread,
    peak_mib,
    print_table,
    record,
    write_json,
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

PARTS = ("sizes", "cores", "growth", "example", "parquet")
N_VALID = 20_000
MILLION = 1_000_000

# What was wanted.
WALL_SECONDS, PEAK_MIB, NLL, CPU_SECONDS, TIMES_X, SLOPE = 300, 1536, 0.01, 30, 3, 1.1
PEAK_MIB_OF_FILES = 1024

# Rows of a Parquet file, and those, at most, that the boosted trees are fitted on.
FILE_ROWS = 100_000


class Setting(NamedTuple):
    """A table, and how a teacher and its student are fitted to it.

    Without classes it is a regression. `repeats` fits are measured; seconds are their medians.
    """

    n_rows: int
    n_columns: int = 20
    n_members: int = 20
    n_classes: int = 0
    dtype: str = "float64"
    teacher: dict[str, Any] = {}
    student: dict[str, Any] = {}
    n_jobs: int = 1
    working_memory: int = 1024
    repeats: int = 1


ONE_EPOCH = {"max_epochs": 1, "batch_size": 256}
BASE = Setting(20_000, dtype="float32", teacher=ONE_EPOCH, student=ONE_EPOCH, repeats=3)
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
    torch.set_num_threads(setting.n_jobs)
    warnings.simplefilter("ignore", ConvergenceWarning)  # one epoch may be worse than a constant
    X, y = table(setting)
    first = WARM_UP._replace(n_classes=min(setting.n_classes, 10))
    fitted(first, *table(first))
    before = peak_mib()
    together = PeakOfProcesses()
    watched = together if setting.n_jobs > 1 else contextlib.nullcontext()
    with config_context(working_memory=setting.working_memory), watched:
        fits = [fitted(setting, X, y) for _ in range(setting.repeats)]
    models = [fit["model"] for fit in fits[0]]
    found = {
        **{name: getattr(setting, name) for name in ("n_rows", "n_columns", "n_members")},
        "n_classes": setting.n_classes,
        "epochs": [model.n_epochs_ for model in models],
        "cpu_seconds": medians(fits, "cpu"),
        "wall_seconds": medians(fits, "wall"),
        "x_mib": X.nbytes / 2**20,
        "growth_mib": [fit["peak_mib"] - before for fit in fits[0]],
        "peak_mib": peak_mib() if setting.n_jobs == 1 else together.mib,
    }
    if setting.n_jobs > 1:
        found["cpu_seconds"] = [None, None]  # those of worker processes are not known here
    if not setting.n_classes:
        X, y = table(setting._replace(n_rows=N_VALID), seed=1)
        found["nll"] = [gaussian_nll(y, *model.predict(X, return_std=True)) for model in models]
    return found


def medians(fits: list[list[dict[str, Any]]], clock: str) -> list[float]:
    """Median seconds of the teachers, and of the students."""
    return [median(fit[clock] for fit in same) for same in zip(*fits, strict=True)]


def fitted(setting: Setting, X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """A teacher and its student, what each of them took, and the peak when it was done."""
    numbers = not setting.n_classes
    kind = BayesianEnsembleRegressor if numbers else BayesianEnsembleClassifier
    student = HydraPlusRegressor if numbers else HydraPlusClassifier
    teacher = kind(setting.n_members, n_jobs=setting.n_jobs, **parameters(setting.teacher))
    return [
        stopwatch(teacher, X, y),
        stopwatch(student(FrozenEstimator(teacher), **parameters(setting.student)), X, y),
    ]


def parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator, given also its dtype."""
    runtime = Runtime(device="cpu", dtype=given.get("dtype", "auto"))
    own = {name: value for name, value in given.items() if name != "dtype"}
    return {"runtime": runtime, "random_state": 0, **own}


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


def cat_boost():
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        posterior_sampling=True,
        thread_count=1,
        verbose=0,
        allow_writing_files=False,
        random_seed=0,
    )


def ng_boost():
    from ngboost import NGBRegressor

    return NGBRegressor(verbose=False, random_state=0)


class Peer(NamedTuple):
    """How a peer is made, the rows of the largest table it is given, and what it predicts."""

    make: Callable[[], Any]
    most_rows: int
    mean_and_std: Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray | None]]


def mean_alone(model, X: np.ndarray) -> tuple[np.ndarray, None]:
    return model.predict(X), None


def of_cat_boost(model, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, variance = model.predict(X, prediction_type="RMSEWithUncertainty").T
    return mean, np.sqrt(variance)


def of_ng_boost(model, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = model.pred_dist(X).params
    return found["loc"], found["scale"]


PEERS = {
    "HistGradientBoosting": Peer(boosted_histograms, MILLION, mean_alone),
    "LightGBM": Peer(light_gbm, MILLION, mean_alone),
    "CatBoost, uncertainty": Peer(cat_boost, 100_000, of_cat_boost),
    "NGBoost": Peer(ng_boost, 10_000, of_ng_boost),
}


def peer(name: str, n_rows: int) -> dict[str, Any]:
    """What a peer costs, to be called in a new process."""
    X, y = table(Setting(n_rows))
    stopwatch(PEERS[name].make(), X[:500], y[:500])  # imports
    before = peak_mib()
    fit = stopwatch(PEERS[name].make(), X, y)
    X_valid, y_valid = table(Setting(N_VALID), seed=1)
    mean, std = PEERS[name].mean_and_std(fit["model"], X_valid)
    return {
        "peer": name,
        "n_rows": n_rows,
        "cpu_seconds": fit["cpu"],
        "x_mib": X.nbytes / 2**20,
        "growth_mib": fit["peak_mib"] - before,
        "rmse": root_mean_squared_error(y_valid, mean),
        "nll": None if std is None else gaussian_nll(y_valid, mean, std),
    }


def is_there(name: str) -> bool:
    """Whether a peer is installed; if not, say so."""
    try:
        PEERS[name].make()
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
    teacher = as_teacher(BaggingRegressor(PEERS[name].make(), 5, random_state=0)).fit(X, y)
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
QUICK_AXES = {"n_rows": [BASE._replace(n_rows=n, repeats=1) for n in (100, 200)]}
EXAMPLE = BASE._replace(
    n_rows=2_000, n_columns=100, n_members=50, n_classes=1_000, working_memory=64, repeats=1
)
QUICK_EXAMPLE = EXAMPLE._replace(n_rows=300, n_members=3, n_classes=20)

# The settings of small tables, which were those of all tables once.
OF_SMALL_TABLES = {
    "teacher": {"batch_size": 32, "max_epochs": 100, "dtype": "float64"},
    "student": {"batch_size": 32, "max_epochs": 50, "dtype": "float64"},
}


def side_by_side(n_jobs: int, calls: Sequence[tuple[Callable, tuple]]) -> list[dict[str, Any]]:
    """What functions return, each called in a process of its own, `n_jobs` of them at once."""
    with ThreadPoolExecutor(n_jobs) as threads:
        return list(threads.map(lambda call: in_new_process(call[0], *call[1]), calls))


def by_size(settings: Sequence[Setting], n_jobs: int) -> dict[str, Any]:
    """Fits by default, those of the second size with the settings of small tables, and peers."""
    before = settings[1]._replace(**OF_SMALL_TABLES)  # takes longest, hence comes first
    peers = [
        (name, n_rows)
        for name in filter(is_there, PEERS)
        for n_rows, *_ in settings
        if n_rows <= PEERS[name].most_rows
    ]
    pairs = [(pair, (setting,)) for setting in (before, *settings)]
    found = side_by_side(n_jobs, [*pairs, *((peer, each) for each in peers)])
    return {
        "of_small_tables": found[0],
        "pairs": found[1 : len(pairs)],
        "peers": found[len(pairs) :],
    }


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
        before, pairs = found["sizes"]["of_small_tables"], found["sizes"]["pairs"]
        same = next(row for row in pairs if row["n_rows"] == before["n_rows"])
        setting = f"{same['n_rows']:,} rows"
        want(f"CPU seconds of both, {setting}", sum(same["cpu_seconds"]), CPU_SECONDS)
        for i, model in enumerate(("teacher", "student")):
            gap = same["nll"][i] - before["nll"][i]
            want(f"NLL of the {model} less that of small tables' settings, {setting}", gap, NLL)
        last = pairs[-1]
        share = last["growth_mib"][1] / last["x_mib"]
        want(f"memory beyond X, in multiples of X, {last['n_rows']:,} rows", share, TIMES_X)
    if "cores" in found:
        row = found["cores"]
        setting = f"{row['n_rows']:,} rows, two cores"
        want(f"seconds of both on the clock, {setting}", sum(row["wall_seconds"]), WALL_SECONDS)
        want(f"MiB at the peak, {setting}", row["peak_mib"], PEAK_MIB)
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
    if "of_small_tables" in of_sizes:
        fits["settings of small tables"] = [of_sizes["of_small_tables"]]
    fits |= {f"by {axis[2:]}": grown["fits"] for axis, grown in found.get("growth", {}).items()}
    fits |= {part: [found[part]] for part in ("cores", "example") if part in found}
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
    keys = ("peer", "n_rows", "cpu_seconds", "growth_mib", "rmse", "nll")
    peers = [[row[key] for key in keys] for row in of_sizes["peers"]]
    print_table(["peer", "rows", "CPU s", "MiB", "RMSE", "NLL"], peers)
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
    parser = argument_parser(__doc__, "scale")
    parser.add_argument("--million", action="store_true", help="fit 1,000,000 rows too")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--parquet-rows", type=int, default=MILLION, help="rows in Parquet files")
    parser.add_argument("--jobs", type=int, default=2, help="fits side by side")
    options = parser.parse_args()
    one_thread()
    sizes = [100, 200] if options.quick else [10_000, 100_000]
    sizes += [MILLION] * options.million
    start = BASE._replace(n_members=3, repeats=1) if options.quick else Setting(0)
    tables = [start._replace(n_rows=n_rows) for n_rows in sizes]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sizes": lambda: by_size(tables, options.jobs),
        "cores": lambda: in_new_process(pair, tables[-1]._replace(n_jobs=2)),
        "growth": lambda: growth(QUICK_AXES if options.quick else AXES, options.jobs),
        "example": lambda: in_new_process(pair, QUICK_EXAMPLE if options.quick else EXAMPLE),
        "parquet": lambda: parquet(150 if options.quick else options.parquet_rows),
    }
    settings = {"quick": options.quick, "jobs": options.jobs, "rows": sizes}
    found: dict[str, Any] = {}
    for part in options.parts:
        found[part] = parts[part]()
        write_json(options.output, record(settings=settings, **found, targets=targets(found)))
    report(found)


if __name__ == "__main__":
    main()
