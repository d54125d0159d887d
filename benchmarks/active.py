# SPDX-License-Identifier: BSD-3-Clause
"""Active learning: a student that chooses what to label next, against a random choice.

A fifth of a table, 10,000 samples at most, is for testing, the rest is the pool. 256 of its samples
are labelled at random, or an eighth of a small pool; then as many again as are labelled, until
1,024, or --labels, or half of the pool are. The student that chooses is the one that
is scored: RMSE, or log loss, in the mean over all numbers of labels but the first, which is the
same for all methods. A ratio below 1 is better than the random choice with the same seed.

    python benchmarks/active.py                                   # all tables, one seed
    python benchmarks/active.py --sets house letter --seeds 10
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    asked,
    in_new_process,
    made_up_table,
    measured,
    one_thread,
    peak_mib,
    print_table,
    save,
)
from _datasets import load_tabular_classification, table
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.active import select_batch

REGRESSION = ("concrete", "energy", "protein", "california", "house", "river-flow")
CLASSES = ("letter", "satimage")
METHODS = {"regression": "lcmd", "classes": "margin"}

START, END = 256, 1024
TEST_ROWS = 10_000


def fitted(X: np.ndarray, y: np.ndarray, categorical: list[int], seed: int, options) -> Any:
    """The student of an ensemble, both with their defaults."""
    is_numeric = y.dtype.kind == "f"
    teacher = BayesianEnsembleRegressor if is_numeric else BayesianEnsembleClassifier
    student = HydraPlusRegressor if is_numeric else HydraPlusClassifier
    shared = {"categorical_features": categorical or None, "random_state": seed}
    if options.quick:
        shared["max_epochs"] = 2
    return student(teacher(2 if options.quick else 20, **shared), **shared).fit(X, y)


def loss(model, X, y) -> float:
    """RMSE, or log loss of all classes; one without labels has probability zero, clipped."""
    if y.dtype.kind == "f":
        return root_mean_squared_error(y, model.predict(X).ravel())
    proba = np.full((len(X), y.max() + 1), 0.0)
    proba[:, model.classes_] = model.predict_proba(X)
    proba = np.clip(proba, 1e-6, None)
    return log_loss(y, proba / proba.sum(1, keepdims=True), labels=range(y.max() + 1))


def run(unit: tuple[str, int], options) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Losses of a table by method and number of labels, from the same first labels."""
    one_thread()
    warnings.simplefilter("ignore")
    name, seed = unit
    X, y = table(name)
    categorical: list[int] = []
    if name in CLASSES:
        categorical = np.flatnonzero(load_tabular_classification(name).categorical).tolist()
    y = y.astype(float) if name in REGRESSION else np.unique(y, return_inverse=True)[1]
    n_test = min(TEST_ROWS, len(X) // 5)
    rows = train_test_split(X.astype(np.float32), y, test_size=n_test, random_state=seed)
    X, X_test, y, y_test = rows
    start = min(START, len(X) // 8) if not options.quick else 16
    end = min(options.labels, len(X) // 2) if not options.quick else 32
    order = np.random.RandomState(seed).permutation(len(X))
    first = fitted(X[order[:start]], y[order[:start]], categorical, seed, options)
    done = []
    for method in ("random", METHODS[kind_of(name)]):
        labelled, model = order[:start], first
        while 2 * (n := len(labelled)) <= end:
            pool = np.setdiff1d(order, labelled)
            if method == "random":
                chosen = order[n : 2 * n]
            else:
                arguments = {"X_train": X[labelled], "method": method, "random_state": seed}
                chosen = pool[select_batch(model, X[pool], n, **arguments)]
            labelled = np.concatenate([labelled, chosen])
            model = fitted(X[labelled], y[labelled], categorical, seed, options)
            row = {"set": name, "seed": seed, "method": method, "labels": len(labelled)}
            done.append({**row, "loss": loss(model, X_test, y_test)})
    return done, []


def kind_of(name: str) -> str:
    return "regression" if name in REGRESSION else "classes"


def summary(rows: list[dict]) -> list[dict]:
    """Mean log ratio to random by table and method, over numbers of labels and over seeds."""
    random = {
        (r["set"], r["seed"], r["labels"]): r["loss"] for r in rows if r["method"] == "random"
    }
    found = []
    for name, method in dict.fromkeys((r["set"], r["method"]) for r in rows):
        if method == "random":
            continue
        ours = [r for r in rows if (r["set"], r["method"]) == (name, method)]
        logs = {
            (r["seed"], r["labels"]): np.log(r["loss"] / random[name, r["seed"], r["labels"]])
            for r in ours
        }
        most = max(r["labels"] for r in ours)
        seeds = sorted({seed for seed, _ in logs})
        means = [np.mean([v for (s, _), v in logs.items() if s == seed]) for seed in seeds]
        last = [v for (_, labels), v in logs.items() if labels == most]
        found.append(
            {
                "set": name,
                "kind": kind_of(name),
                "method": method,
                "labels": most,
                "seeds": len(seeds),
                "mean_ratio": float(np.exp(np.mean(means))),
                "standard_error": float(np.std(means, ddof=1) / len(means) ** 0.5)
                if len(means) > 1
                else None,
                "last_ratio": float(np.exp(np.mean(last))),
            }
        )
    return found


def overall(tables: list[dict]) -> list[dict]:
    """Geometric means over tables."""
    found = []
    for kind, method in dict.fromkeys((t["kind"], t["method"]) for t in tables):
        of_it = [t for t in tables if (t["kind"], t["method"]) == (kind, method)]
        means = {
            name: float(np.exp(np.mean(np.log([t[name] for t in of_it]))))
            for name in ("mean_ratio", "last_ratio")
        }
        worse = [t["set"] for t in of_it if t["mean_ratio"] > 1]
        found.append(
            {"kind": kind, "method": method, "tables": len(of_it), **means, "worse_on": worse}
        )
    return found


def large_pool(n_pool: int, n: int, n_train: int) -> dict:
    """Seconds and memory of a selection from a memory map, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pool.npy")
        in_new_process(_write_pool, str(file), n_pool)
        return in_new_process(_select_from, str(file), n, n_train)


def _write_pool(file: str, n_pool: int) -> None:
    np.save(file, made_up_table(n_pool, dtype="float32")[0])


def _select_from(file: str, n: int, n_train: int) -> dict:
    one_thread()
    X, y = made_up_table(n_train, seed=1, dtype="float32")
    teacher = BayesianEnsembleRegressor(5, max_epochs=5, random_state=0)
    model = HydraPlusRegressor(teacher, max_epochs=5, random_state=0).fit(X, y)
    pool = np.load(file, mmap_mode="r")
    before, wall, cpu = peak_mib(), time.perf_counter(), time.process_time()
    chosen = select_batch(model, pool, n, X_train=X, random_state=0)
    return {
        "pool": len(pool),
        "labelled": n_train,
        "selected": len(np.unique(chosen)),
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "mib_before": before,
        "mib_peak": peak_mib(),
    }


def main() -> None:
    sets = [*REGRESSION, *CLASSES]
    options = asked(__doc__, sets=sets, seeds=1, labels=END, jobs=1)
    if options.quick:
        options.seeds = 1

    def place(row: dict[str, Any]) -> tuple:
        return row["seed"], sets.index(row["set"]), row["method"] != "random", row["labels"]

    units = [(name, seed) for seed in range(options.seeds) for name in options.sets]
    rows = measured(units, partial(run, options=options), options, [], place, place)
    pool = large_pool(*((20_000, 16, 100) if options.quick else (1_000_000, 256, 1000)))
    tables = summary(rows)
    content = {"tables": tables, "overall": overall(tables), "pool": pool}
    save(options, **content, results=rows)
    report(content)


def report(content: dict) -> None:
    """Print what was found."""
    header = ["set", "method", "labels", "seeds", "mean ratio", "s.e. of log", "last ratio"]
    names = ["set", "method", "labels", "seeds", "mean_ratio", "standard_error", "last_ratio"]
    print_table(header, [[t[name] for name in names] for t in content["tables"]])
    for one in content["overall"]:
        print(
            f"{one['method']} against random, {one['tables']} tables ({one['kind']}): loss times "
            f"{one['mean_ratio']:.3f} in the mean, {one['last_ratio']:.3f} at the last number of "
            f"labels; worse on {', '.join(one['worse_on']) or 'none'}"
        )
    print(json.dumps(content["pool"]))


if __name__ == "__main__":
    main()
