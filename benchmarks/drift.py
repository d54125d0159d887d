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

The level is .01. Beside the monitor, which watches the features and two parts of the uncertainty,
stand two-sample Kolmogorov-Smirnov tests of each feature of a batch against the reference, with the
distribution of the statistic of scipy's ks_2samp(method="asymp"):

KS            Bonferroni's correction for the ten features at each look
KS, all looks Bonferroni's correction for all looks too, whose number must be known beforehand
evidently     as the default of evidently 0.7 for at most 1,000 reference samples: a feature drifts
              where its p-value is below .05, with no correction; an alarm is any feature's
evidently, half  an alarm is its drift of the data set: half of the features drift

Its p-values are those of scipy's ks_2samp; the library itself needs pandas below 3, and is not
imported here.

No setting was chosen on these streams but the seed.

    python benchmarks/drift.py
"""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np
from _common import argument_parser, one_thread, print_table, record, write_json
from scipy.stats import kstwo

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.monitoring import DriftMonitor

N_FEATURES, CORRELATION = 10, 0.3
N_TRAINING, N_REFERENCE, BATCH = 2000, 1000, 100
N_BATCHES, CHANGE = 30, 10
LEVEL = 0.01
SHIFTS = (0.0, 0.5, 1.0, 0.25)  # in the order in which they are run
# Of tests of features: the level of one, and of how many the statistic has to be so large.
TESTS = {
    "KS": (LEVEL / N_FEATURES, 1),
    "KS, all looks": (LEVEL / N_FEATURES / N_BATCHES, 1),
    "evidently": (0.05, 1),
    "evidently, half": (0.05, N_FEATURES // 2),
}
_EFFECTIVE = round(BATCH * N_REFERENCE / (BATCH + N_REFERENCE))
LIMITS = {name: kstwo.isf(level, _EFFECTIVE) for name, (level, _) in TESTS.items()}
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


def alarms(student: HydraPlusRegressor, shift: float, seed: int) -> dict[str, Any]:
    """Number of the batch of each contender's first alarm, None without; features; seconds."""
    rng = np.random.default_rng([seed, round(100 * shift)])
    reference = samples(N_REFERENCE, rng)
    ordered = np.sort(reference, axis=0)
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
        descending = sorted(statistics(X, ordered), reverse=True)
        for name, (_, n_features) in TESTS.items():
            if found[name] is None and descending[n_features - 1] >= LIMITS[name]:
                found[name] = batch
        if shift and all(found[name] is not None for name in CONTENDERS):
            break
    names = [f"feature {moved}"] if shift else []
    wrong = [name for name in monitor.features_ if name.startswith("feature") and name not in names]
    return {
        "first": {name: found[name] for name in CONTENDERS},
        "wrong_features": wrong,
        "is_named": bool(names) and names[0] in monitor.features_,
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
            row["streams_with_wrong_features"] = sum(bool(s["wrong_features"]) for s in streams)
            row["streams_with_the_right_feature"] = sum(s["is_named"] for s in streams)
            row["ms_of_batch"] = 1e3 * median(s["seconds_of_batch"] for s in streams)
        rows.append(row)
    return rows


def _finite(delay: float) -> float | None:
    return None if np.isinf(delay) else float(delay)


def main() -> None:
    parser = argument_parser(__doc__, "drift")
    parser.add_argument("--streams", type=int, default=1000, help="stationary ones")
    parser.add_argument("--shifted", type=int, default=100, help="streams of each shift")
    options = parser.parse_args()
    n_stationary, n_shifted, n_training = options.streams, options.shifted, N_TRAINING
    if options.quick:
        n_stationary, n_shifted, n_training = 2, 2, 100
    one_thread()
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
                write_json(options.output, record(level=LEVEL, batch=BATCH, results=found))
        results += summary(streams, shift)
    names = ["shift", "contender", "streams", "false_alarms", "missed", "median_delay"]
    names += ["delay_of_nine_in_ten", "ms_of_batch"]
    print_table(names, [[row.get(name) for name in names] for row in results])


if __name__ == "__main__":
    main()
