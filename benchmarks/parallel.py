# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of members side by side: one job against two, in processes, threads, dask and ray.

cores       20 members of the default regressor on rows of 20 columns: one job, two processes (loky)
            and two threads; 100 epochs, of 20,000 rows 40
clusters    40 members on one worker and on two, of dask and of ray, if they are installed. One
            worker of ray is one job in this process, as joblib asks no worker for one job. What
            manages the workers runs on the same cores.

Every job has one thread. Times are seconds on the clock, contenders take turns, figures are medians
over rounds; workers have been started by a call that is not counted. On a machine that does
something else at the same time, two jobs gain less.

    python benchmarks/parallel.py
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import joblib
import numpy as np
from _common import (
    argument_parser,
    comparison,
    interleaved,
    one_thread,
    print_table,
    record,
    write_json,
)

from skdistill import BayesianEnsembleRegressor
from skdistill.settings import Runtime

SIZES = (500, 2_000, 5_000, 20_000)
N_FEATURES = 20
AT_LEAST = {500: 1.0, 2_000: 1.0, 5_000: 1.8, 20_000: 1.8}
ON_CLUSTERS = 1.6


def data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_FEATURES))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n_rows)


def fit(n_members: int, n_rows: int, n_epochs: int, **parallel: Any) -> None:
    """Fit an ensemble where ``joblib.parallel_config(**parallel)`` says."""
    model = BayesianEnsembleRegressor(
        n_members, max_epochs=n_epochs, runtime=Runtime(n_threads=1, device="cpu"), random_state=0
    )
    with joblib.parallel_config(**parallel):
        model.fit(*data(n_rows))


def on_cores(n_rows: int, n_epochs: int, n_rounds: int) -> list[dict[str, Any]]:
    """Two processes, and two threads, against one job."""
    run = partial(fit, 20, n_rows, n_epochs)
    contenders: dict[str, Callable] = {
        "one job": partial(run, n_jobs=1),
        "two processes": partial(run, n_jobs=2, backend="loky"),
        "two threads": partial(run, n_jobs=2, backend="threading"),
    }
    seconds = interleaved(contenders, n_rounds, clock=time.perf_counter)
    setting = f"{n_rows:,} rows, {n_epochs} epochs"
    return [
        comparison(setting, seconds, "one job", ours=name, at_least=AT_LEAST.get(n_rows, 1.0))
        for name in list(contenders)[1:]
    ]


@contextlib.contextmanager
def dask_backends() -> Iterator[list[dict[str, Any]]]:
    """What names one worker of dask, and two, for joblib."""
    from dask.distributed import Client, LocalCluster

    quiet = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with (
        LocalCluster(n_workers=1, **quiet) as one,
        LocalCluster(n_workers=2, **quiet) as two,
        Client(one, set_as_default=False) as first,
        Client(two, set_as_default=False) as second,
    ):
        yield [{"backend": "dask", "client": client} for client in (first, second)]


@contextlib.contextmanager
def ray_backends() -> Iterator[list[dict[str, Any]]]:
    """What names one worker of ray, and two, for joblib."""
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    try:
        yield [{"backend": "ray", "n_jobs": n_jobs} for n_jobs in (1, 2)]
    finally:
        ray.shutdown()


def on_cluster(library: str, n_rows: int, n_epochs: int, n_rounds: int) -> list[dict[str, Any]]:
    """Two workers against one; nothing where the library is not installed."""
    backends = {"dask": dask_backends, "ray": ray_backends}[library]
    run = partial(fit, 40, n_rows, n_epochs)
    try:
        with backends() as (one, two):
            contenders = {"one worker": partial(run, **one), "two workers": partial(run, **two)}
            seconds = interleaved(contenders, n_rounds, clock=time.perf_counter)
    except ModuleNotFoundError as error:
        print(f"{library} is left out: {error}")
        return []
    setting = f"{library}: 40 members, {n_rows:,} rows, {n_epochs} epochs"
    return [comparison(setting, seconds, "one worker", ours="two workers", at_least=ON_CLUSTERS)]


def main() -> None:
    parser = argument_parser(__doc__, "parallel")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    parser.add_argument(
        "--clusters", nargs="*", choices=("dask", "ray"), default=("dask", "ray"), help="to measure"
    )
    options = parser.parse_args()
    one_thread()
    cores, clusters = [], []
    for n_rows in SIZES[:1] if options.quick else SIZES:
        n_epochs = 1 if options.quick else min(100, 800_000 // n_rows)
        cores += on_cores(n_rows, n_epochs, 1 if options.quick else options.rounds)
    for library in options.clusters:
        sizes = (200, 1, 1) if options.quick else (5_000, 100, options.rounds)
        clusters += on_cluster(library, *sizes)
    print_table(
        ["setting", "ours", "s", "peer", "s", "times as fast", "target", "reached"],
        [
            [row[name] for name in ("setting", "ours", "ours_seconds", "peer", "peer_seconds")]
            + [row[name] for name in ("ratio", "target", "reached")]
            for row in cores + clusters
        ],
    )
    settings = {"quick": options.quick, "columns": N_FEATURES}
    write_json(options.output, record(settings=settings, cores=cores, clusters=clusters))


if __name__ == "__main__":
    main()
