# SPDX-License-Identifier: BSD-3-Clause
"""False alarms and delays of skdistill.monitoring.DriftMonitor, beside tests at each look.

Samples have ten normal features of standard deviation 1 and correlation .3. The default student
predicts a number for them; it was fitted on 2,000. Each stream has a reference of its own, of 1,000
samples, and comes in batches of 100:

stationary  30 batches like the reference; an alarm at any of them is false
shifted     as many, and a feature is larger by a shift, in standard deviations, after the 10th;
            the delay is the number of samples from then on to the end of the batch of the alarm.
            Streams with a false alarm before are left out of it; one without any alarm has the
            delay inf.

The level is .01. The monitor watches two parts of the uncertainty. Beside it stand two-sample
Kolmogorov-Smirnov tests of the same two in a batch against the reference, with the distribution of
the statistic of scipy's ks_2samp(method="asymp"):

KS            Bonferroni's correction for the two parts at each look
KS, all looks Bonferroni's correction for all looks too, whose number must be known beforehand

No setting was chosen on these streams but the seed.

    python benchmarks/drift.py
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np
from _common import asked, print_table, save
from scipy.stats import kstwo

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, SchemaWarning
from skdistill.monitoring import DriftMonitor

N_FEATURES, CORRELATION = 10, 0.3
N_TRAINING, N_REFERENCE, BATCH = 2000, 1000, 100
N_BATCHES, CHANGE = 30, 10
LEVEL = 0.01
SHIFTS = (0.0, 2.0, 4.0, 1.0)  # in the order in which they are run
# Levels of the test of one part.
TESTS = {"KS": LEVEL / 2, "KS, all looks": LEVEL / 2 / N_BATCHES}
_EFFECTIVE = round(BATCH * N_REFERENCE / (BATCH + N_REFERENCE))
LIMITS = {name: kstwo.isf(level, _EFFECTIVE) for name, level in TESTS.items()}
CONTENDERS = ("DriftMonitor", *TESTS)


def samples(n: int, rng: np.random.Generator) -> np.ndarray:
    common = np.sqrt(CORRELATION) * rng.standard_normal((n, 1))
    return common + np.sqrt(1 - CORRELATION) * rng.standard_normal((n, N_FEATURES))


def fitted_student(n: int) -> HydraPlusRegressor:
    rng = np.random.default_rng(0)
    X = samples(n, rng)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + 0.3 * rng.standard_normal(n)
    teacher = BayesianEnsembleRegressor(random_state=0)
    return HydraPlusRegressor(teacher, random_state=0).fit(X, y)


def statistics(X: np.ndarray, reference: np.ndarray) -> list[float]:
    """Kolmogorov-Smirnov statistics of columns; those of `reference` are in ascending order."""
    found, steps = [], np.arange(len(X) + 1) / len(X)
    for values, others in zip(np.sort(X, axis=0).T, reference.T, strict=True):
        share = np.searchsorted(others, values) / len(others)
        found.append(max(np.max(steps[1:] - share), np.max(share - steps[:-1])))
    return found


def uncertainties(student: HydraPlusRegressor, X: np.ndarray) -> np.ndarray:
    """The epistemic and the total variance, as columns."""
    total, _, epistemic = student.predict_uncertainty(X)
    return np.stack([epistemic, total], axis=1)


def alarms(student: HydraPlusRegressor, shift: float, seed: int) -> dict[str, Any]:
    """Number of the batch of each contender's first alarm, None without; seconds of the monitor."""
    rng = np.random.default_rng([seed, round(100 * shift)])
    reference = samples(N_REFERENCE, rng)
    ordered = np.sort(uncertainties(student, reference), axis=0)
    monitor = DriftMonitor(student, reference, alpha=LEVEL, random_state=seed)
    moved, found, seconds = int(rng.integers(N_FEATURES)), defaultdict(lambda: None), 0.0
    for batch in range(N_BATCHES):
        X = samples(BATCH, rng)
        X[:, moved] += shift * (batch >= CHANGE)
        if found["DriftMonitor"] is None:
            start = time.process_time()
            monitor.update(X)
            seconds += time.process_time() - start
            if monitor.is_drift_:
                found["DriftMonitor"] = batch
        largest = max(statistics(uncertainties(student, X), ordered))
        for name in TESTS:
            if found[name] is None and largest >= LIMITS[name]:
                found[name] = batch
        if shift and all(found[name] is not None for name in CONTENDERS):
            break
    return {
        "first": {name: found[name] for name in CONTENDERS},
        "seconds_of_batch": seconds / (monitor.n_samples_ / BATCH),
    }


def summary(streams: list[dict[str, Any]], shift: float) -> list[dict[str, Any]]:
    rows = []
    for name in CONTENDERS:
        first = [stream["first"][name] for stream in streams]
        n_batches = CHANGE if shift else N_BATCHES
        n_false = sum(batch is not None and batch < n_batches for batch in first)
        row: dict[str, Any] = {
            "shift": shift,
            "contender": name,
            "streams": len(streams),
            "looks_before_change": n_batches,
            "false_alarms": n_false / len(streams),
        }
        if shift:
            late = [np.inf if b is None else BATCH * (b - CHANGE + 1) for b in first
                    if b is None or b >= CHANGE]  # fmt: skip
            row["missed"] = sum(np.isinf(late)) / len(streams)
            row["median_delay"] = _finite(median(late)) if late else None
            row["delay_of_nine_in_ten"] = (
                _finite(np.quantile(late, 0.9, method="higher")) if late else None
            )
        if name == "DriftMonitor":
            row["ms_of_batch"] = 1e3 * median(s["seconds_of_batch"] for s in streams)
        rows.append(row)
    return rows


def _finite(delay: float) -> float | None:
    return None if np.isinf(delay) else float(delay)


def main() -> None:
    options = asked(__doc__, streams=80, shifted=10)  # stationary, and of each shift
    n_stationary, n_shifted, n_training = options.streams, options.shifted, N_TRAINING
    if options.quick:
        n_stationary, n_shifted, n_training = 2, 2, 100
    warnings.simplefilter("ignore", SchemaWarning)  # of what is shifted
    student = fitted_student(n_training)
    results = []
    for shift in SHIFTS:
        n_streams = n_shifted if shift else n_stationary
        streams = []
        for seed in range(n_streams):
            streams.append(alarms(student, shift, seed))
            if (seed + 1) % 50 == 0 or seed + 1 == n_streams:
                print(f"shift {shift}: {seed + 1} of {n_streams} streams", flush=True)
                found = results + summary(streams, shift)
                save(options, level=LEVEL, batch=BATCH, results=found)
        results += summary(streams, shift)
    names = ["shift", "contender", "streams", "false_alarms", "missed", "median_delay"]
    names += ["delay_of_nine_in_ten", "ms_of_batch"]
    print_table(names, [[row.get(name) for name in names] for row in results])


if __name__ == "__main__":
    main()
