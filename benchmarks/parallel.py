# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of members side by side: one job against two, in processes and in threads.

20 members of the default regressor on samples of 20 features: one job, two processes (loky) and two
threads; 100 epochs, of 20,000 samples 10. Every job has one thread. Times are seconds on the clock,
contenders take turns, figures are medians over rounds; workers have been started by a call that is
not counted. On a machine that does something else at the same time, two jobs gain less.

    python benchmarks/parallel.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import joblib
from _common import asked, comparison, interleaved, made_up_table, print_comparisons, save

from skdistill import BayesianEnsembleRegressor
from skdistill.settings import Runtime

SIZES = {2_000: (100, 1.0), 20_000: (10, 1.8)}  # epochs, and how many times as fast at least


def fit(n_rows: int, n_epochs: int, **parallel: Any) -> None:
    """Fit an ensemble where ``joblib.parallel_config(**parallel)`` says."""
    model = BayesianEnsembleRegressor(
        20, max_epochs=n_epochs, runtime=Runtime(n_threads=1, device="cpu"), random_state=0
    )
    with joblib.parallel_config(**parallel):
        model.fit(*made_up_table(n_rows))


def on_cores(n_rows: int, n_epochs: int, at_least: float, n_rounds: int) -> list[dict[str, Any]]:
    """Two processes, and two threads, against one job."""
    run = partial(fit, n_rows, n_epochs)
    contenders: dict[str, Callable] = {
        "one job": partial(run, n_jobs=1),
        "two processes": partial(run, n_jobs=2, backend="loky"),
        "two threads": partial(run, n_jobs=2, backend="threading"),
    }
    seconds = interleaved(contenders, n_rounds, clock=time.perf_counter)
    setting = f"{n_rows:,} rows, {n_epochs} epochs"
    return [
        comparison(setting, seconds, "one job", ours=name, at_least=at_least)
        for name in list(contenders)[1:]
    ]


def main() -> None:
    options = asked(__doc__, rounds=2)
    cores = []
    for n_rows, (n_epochs, at_least) in SIZES.items():
        few = (300, 1, at_least, 1)
        cores += on_cores(*few if options.quick else (n_rows, n_epochs, at_least, options.rounds))
    print_comparisons(cores)
    save(options, cores=cores)


if __name__ == "__main__":
    main()
