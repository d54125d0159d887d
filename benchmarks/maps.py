# SPDX-License-Identifier: BSD-3-Clause
"""Maps: ten million samples on disk, predicted by a student and by its peers.

A memory map of 10 features in float32, made up. Models are fitted to 5,000 such samples with their
defaults: an ensemble of 20 networks, its Hydra+ and its DistributionDistiller ("gaussian"),
LightGBM, CatBoost and a forest of 100 trees. All are on --threads threads.

student   streams.predict_batches: mean, both parts, their deviations and a 90 % interval, written
          as Parquet files
mean      `predict` of each model, in blocks of 65,536 samples, of which slow ones have a part

Seconds are those of the clock. Memory is what a new process, which has loaded the model, needs
beyond that at its peak; pages of the memory map, which the system may drop, are counted.

    python benchmarks/maps.py
    python benchmarks/maps.py --samples 100000000 --threads 16
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from _common import asked, in_new_process, made_up_table, peak_mib, print_table, save
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from skdistill import BayesianEnsembleRegressor, DistributionDistiller, HydraPlusRegressor
from skdistill.streams import predict_batches

N_FEATURES, BLOCK = 10, 65_536
SHARES = {"ensemble of 20": 0.02, "forest": 0.05}  # of the samples, of slow models


def models(n_rows: int, n_threads: int) -> dict[str, Any]:
    """Everything that predicts."""
    X, y = made_up_table(n_rows, N_FEATURES, dtype="float32")
    teacher = BayesianEnsembleRegressor(random_state=0).fit(X, y)
    students = {
        "Hydra+": HydraPlusRegressor(FrozenEstimator(teacher), random_state=0),
        "gaussian": DistributionDistiller(
            FrozenEstimator(teacher), family="gaussian", random_state=0
        ),
    }
    peers = {"forest": RandomForestRegressor(n_jobs=n_threads, random_state=0)}
    try:
        from catboost import CatBoostRegressor
        from lightgbm import LGBMRegressor

        peers["LightGBM"] = LGBMRegressor(n_jobs=n_threads, verbose=-1, random_state=0)
        peers["CatBoost"] = CatBoostRegressor(
            thread_count=n_threads, verbose=0, allow_writing_files=False, random_seed=0
        )
    except ModuleNotFoundError as error:
        print(f"Peers are left out: {error}")
    found = {name: model.fit(X, y) for name, model in {**students, **peers}.items()}
    return {"ensemble of 20": teacher, **found}


def write_map(path: str, n_rows: int) -> None:
    """Write samples block by block."""
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N_FEATURES))
    for start in range(0, n_rows, BLOCK):
        part = rows[start : start + BLOCK]
        part[:], _ = made_up_table(len(part), N_FEATURES, seed=start, dtype="float32")


def seconds_of(folder: str, name: str, n_rows: int, n_threads: int, is_all: bool) -> dict[str, Any]:
    """Seconds and memory of one model, in a process of its own."""
    import torch

    threadpool_limits(n_threads)
    torch.set_num_threads(n_threads)
    model = joblib.load(Path(folder, f"{name}.joblib"))
    X = np.load(Path(folder, "map.npy"), mmap_mode="r")[:n_rows]

    def means(rows: np.ndarray) -> None:
        for start in range(0, len(rows), BLOCK):
            model.predict(np.asarray(rows[start : start + BLOCK]))

    def everything(rows: np.ndarray) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as sink:
            predict_batches(model, rows, sink, batch_size=BLOCK)

    run: Callable[[np.ndarray], None] = everything if is_all else means
    run(X[:BLOCK])  # what is done once
    before, start, cpu = peak_mib(), time.perf_counter(), time.process_time()
    run(X)
    found = {"model": name, "outputs": "all" if is_all else "mean", "samples": len(X)}
    found |= {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}
    return found | {"per_second": len(X) / found["seconds"], "peak_mib": peak_mib() - before}


def main() -> None:
    options = asked(__doc__, samples=10_000_000, threads=2)
    n_fit, n_rows = (200, 2_000) if options.quick else (5_000, options.samples)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="skdistill-") as folder:
        found = models(n_fit, options.threads)
        for name, model in found.items():
            joblib.dump(model, Path(folder, f"{name}.joblib"))
        write_map(str(Path(folder, "map.npy")), n_rows)
        for name, is_all in [("Hydra+", True), ("gaussian", True), *((n, False) for n in found)]:
            n = int(n_rows * SHARES.get(name, 1))
            rows.append(in_new_process(seconds_of, folder, name, n, options.threads, is_all))
            save(options, maps=rows)
    header = ["model", "outputs", "samples", "s", "CPU s", "samples/s", "MiB"]
    print_table(header, [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
