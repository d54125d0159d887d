# SPDX-License-Identifier: BSD-3-Clause
"""Saving: how long fitted models take to write and to read, and how large their files are.

Four models of the diabetes data (442 rows, 10 columns), with default networks and numbers of
epochs, so that their histories are as long as in use:

student     DistributionDistiller, of an ensemble of 20 networks
ensemble    BayesianEnsembleRegressor(n_members=20)
GPED        GPEDDistiller, of a Langevin chain
booster     BDistilBooster, of the ensemble

Each is written and read in four ways:

save            skdistill.save and load, without the teacher, which predicting does not need
with teacher    the same with include_teacher=True; an ensemble has none
pickle, joblib  dump and load; the teacher, where there is one, is in

save waits until the disk has the file (fsync), pickle and joblib do not. Beside CPU time, of one
thread, stands that of the wall clock, with such waits and whatever else the machine does. Ways take
turns, figures are medians over rounds.

Then the cold start, in new processes: one that imports what skdistill rests on, torch and
scikit-learn, which is the least; one that loads the student; and one that unpickles it.

    python benchmarks/persistence.py
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from _common import asked, interleaved, print_table, save
from sklearn.datasets import load_diabetes
from sklearn.frozen import FrozenEstimator

import skdistill
from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
)
from skdistill.samplers import SGLD
from skdistill.settings import Runtime

ROOT = Path(skdistill.__file__).parents[1]
TARGET_MS = 20  # of the student's save and of its load

COLD = {
    "torch and scikit-learn": "import torch, scipy.stats, sklearn.compose, sklearn.ensemble",
    "skdistill.load": "import skdistill; skdistill.load('student.save')",
    "unpickling": "import pickle; pickle.load(open('student.pickle', 'rb'))",
}


def fitted_models(quick: bool) -> dict[str, Any]:
    """The models by name."""
    X, y = load_diabetes(return_X_y=True)
    few = {"max_epochs": 2} if quick else {}
    settings = {"runtime": Runtime(device="cpu"), "random_state": 0}
    ensemble = BayesianEnsembleRegressor(20, **few, **settings).fit(X, y)
    teacher = FrozenEstimator(ensemble)
    chain = BayesianEnsembleRegressor(1, inference=SGLD(step_size=1e-4), **few, **settings)
    return {
        "student": DistributionDistiller(teacher, **few, **settings).fit(X, y),
        "ensemble": ensemble,
        "GPED": GPEDDistiller(chain, **settings).fit(X, y),
        "booster": BDistilBooster(teacher, **few, **settings).fit(X, y),
    }


def dump(model: Any, path: Path) -> None:
    with open(path, "wb") as file:
        pickle.dump(model, file)


def undump(path: Path) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def clocks() -> np.ndarray:
    """Seconds of CPU, that of finished child processes included, and of the wall clock."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + children.ru_utime + children.ru_stime
    return np.array([cpu, time.perf_counter()])


def medians(contenders: dict[str, Callable], n_rounds: int, **how) -> dict[str, list[float]]:
    """CPU and wall seconds of each contender."""
    seconds = interleaved(contenders, n_rounds, clock=clocks, **how)
    return {name: np.median(times, axis=0).tolist() for name, times in seconds.items()}


Ways = dict[str, tuple[Callable[[Any, Path], None], Callable[[Path], Any]]]


def ways_for(model: Any) -> Ways:
    """How a model is written and read, by the names of the ways."""
    ways: Ways = {"save": (skdistill.save, skdistill.load)}
    if hasattr(model, "teacher"):
        ways["with teacher"] = (partial(skdistill.save, include_teacher=True), skdistill.load)
    return {**ways, "pickle": (dump, undump), "joblib": (joblib.dump, joblib.load)}


def measured(name: str, model: Any, folder: Path, n_rounds: int) -> list[dict[str, Any]]:
    """Rows of the table for a model, one for each way."""
    ways = ways_for(model)
    paths = {way: folder / f"{name}.{way}" for way in ways}
    write = {way: partial(ways[way][0], model, paths[way]) for way in ways}
    writing = medians(write, n_rounds)
    read = {way: partial(ways[way][1], paths[way]) for way in ways}
    reading = medians(read, n_rounds)
    return [
        {
            "model": name,
            "way": way,
            "write_cpu_ms": 1e3 * writing[way][0],
            "write_wall_ms": 1e3 * writing[way][1],
            "read_cpu_ms": 1e3 * reading[way][0],
            "read_wall_ms": 1e3 * reading[way][1],
            "kilobytes": paths[way].stat().st_size / 1000,
        }
        for way in ways
    ]


def cold_starts(folder: Path, n_rounds: int, quick: bool) -> list[dict[str, Any]]:
    """CPU and wall seconds of new processes, but for the first, which may compile modules.

    In a quick run the first is all there is.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    calls = {
        name: partial(
            subprocess.run, [sys.executable, "-c", code], cwd=folder, env=environment, check=True
        )
        for name, code in COLD.items()
    }
    found = medians(calls, n_rounds, first_counts=quick).items()
    return [{"process": name, "cpu_s": cpu, "wall_s": wall} for name, (cpu, wall) in found]


def main() -> None:
    options = asked(__doc__, rounds=15, starts=3)  # of new processes
    n_rounds, n_starts = (2, 1) if options.quick else (options.rounds, options.starts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [
            row
            for name, model in fitted_models(options.quick).items()
            for row in measured(name, model, folder, n_rounds)
        ]
        cold = cold_starts(folder, n_starts, options.quick)
    times = ["write, CPU ms", "wall", "read, CPU ms", "wall"]
    header = ["model", "way", *times, "kB"]
    print_table(header, [list(row.values()) for row in results])
    print()
    print_table(["new process", "CPU s", "wall"], [list(row.values()) for row in cold])
    save(options, target_ms=TARGET_MS, persistence=results, cold_start=cold)


if __name__ == "__main__":
    main()
