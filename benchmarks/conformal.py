# SPDX-License-Identifier: BSD-3-Clause
"""Intervals that hold y nine times in ten: as a student predicts them, and conformal ones.

A student of the default ensemble is fitted on three quarters of a split's training rows, 2,000 rows
at most in all. The others, the calibration rows, tell how wide intervals have to be (split
conformal prediction; Lei et al., 2018): an interval is the mean and, on both sides, a scale times
the quantile of the calibration rows' errors, each divided by its scale. The scale is

constant   1: the same width for all rows
total      the predicted standard deviation
epistemic  the square root of the epistemic variance

and "own" is the student's predict_interval, without calibration rows. Coverage is the share of test
rows whose y is inside, also among the third of the rows with the largest predicted standard
deviation; widths are means, in standard deviations of y. No setting was chosen.

    python benchmarks/conformal.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import asked, print_table, save
from _datasets import OF_UCI, load_split
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import interval_coverage

COVERAGE = 0.9
MOST_ROWS = 2000
SHARE = 0.25  # of the rows, for calibration


def half_width(errors: np.ndarray, coverage: float) -> float:
    """Quantile of the absolute errors of n rows that the next one stays below with `coverage`."""
    rank = int(np.ceil(coverage * (len(errors) + 1)))
    return float(np.sort(np.abs(errors))[rank - 1]) if rank <= len(errors) else np.inf


def predicted(student: HydraPlusRegressor, X: np.ndarray) -> tuple[np.ndarray, dict]:
    """Means, and scales by name."""
    mean, std = student.predict(X, return_std=True)
    epistemic = np.sqrt(student.predict_uncertainty(X).epistemic)
    return mean, {"constant": np.ones_like(std), "total": std, "epistemic": epistemic}


def conformal(
    student: HydraPlusRegressor, X_held: np.ndarray, y_held: np.ndarray, X: np.ndarray
) -> dict[str, np.ndarray]:
    """Intervals of rows by each scale, of shape (n, 2)."""
    mean_held, scales_held = predicted(student, X_held)
    mean, scales = predicted(student, X)
    intervals = {}
    for name, scale in scales.items():
        width = half_width((y_held - mean_held) / scales_held[name], COVERAGE)
        intervals[name] = np.stack([mean - width * scale, mean + width * scale], axis=-1)
    return intervals


def run_split(name: str, split: int, options) -> dict[str, Any]:
    """Scores of all intervals on the test rows of a split."""
    X, y, X_test, y_test = load_split(name, split)
    rows = np.random.default_rng(split).permutation(len(X))[: 100 if options.quick else MOST_ROWS]
    X, X_held, y, y_held = train_test_split(X[rows], y[rows], test_size=SHARE, random_state=split)
    settings = {"max_epochs": 2} if options.quick else {}
    teacher = BayesianEnsembleRegressor(random_state=split, **settings)
    student = HydraPlusRegressor(teacher, random_state=split, **settings)
    start = time.process_time()
    student.fit(X, y)
    seconds = time.process_time() - start
    own = {"own": student.predict_interval(X_test, COVERAGE)}
    std = student.predict(X_test, return_std=True)[1]
    unsure = std >= np.quantile(std, 2 / 3)
    return {
        "fit_seconds": seconds,
        "rows": len(X),
        "calibration_rows": len(X_held),
        **{
            scale: {
                "coverage": interval_coverage(y_test, interval),
                "coverage_of_unsure": interval_coverage(y_test[unsure], interval[unsure]),
                "width": np.ptp(interval, axis=1).mean() / y.std(),
            }
            for scale, interval in (own | conformal(student, X_held, y_held, X_test)).items()
        },
    }


def averages(splits: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over splits."""
    return {
        key: averages([split[key] for split in splits])
        if isinstance(value, dict)
        else float(np.mean([split[key] for split in splits]))
        for key, value in splits[0].items()
    }


def report(results: dict[str, dict]) -> None:
    print_table(
        ["set", "interval", "coverage", "of unsure rows", "width", "fit s"],
        [
            [name, scale, *scores.values(), found["fit_seconds"]]
            for name, found in results.items()
            for scale, scores in found.items()
            if isinstance(scores, dict)
        ],
    )


def main() -> None:
    options = asked(__doc__, sets=OF_UCI, splits=2)
    results = {}
    for name in options.sets:
        results[name] = averages([run_split(name, i, options) for i in range(options.splits)])
        report({name: results[name]})
        save(options, results=results)


if __name__ == "__main__":
    main()
