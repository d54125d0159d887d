# SPDX-License-Identifier: BSD-3-Clause
"""Active learning: a student that chooses what to label next, against a random choice.

A fifth of a table, 10,000 samples at most, is for testing, the rest is the pool. 256 of its samples
are labelled at random, or an eighth of a small pool; then as many again as are labelled, or
--batch, until 2,048, or --labels, or half of the pool are. The student that chooses is the one that
is scored: RMSE, or log loss, in the mean over all numbers of labels but the first, which is the
same for all methods. A ratio below 1 is better than the random choice with the same seed.

    python benchmarks/active.py                                   # all tables, three seeds
    python benchmarks/active.py --sets house letter --seeds 10 --methods lcmd uncertainty
    python benchmarks/active.py --parts pool                      # a pool of a million alone

What there is to gain on these tables, by the network and the LCMD of the paper's authors instead of
a student (needs bmdal_reg, see requirements/peers.txt; for numbers only):

    python benchmarks/active.py --network bmdal_reg --parts tables --seeds 2 \
        --output benchmarks/results/active_bmdal.json
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from _common import (
    argument_parser,
    arrays,
    in_new_process,
    made_up_table,
    one_thread,
    parameter,
    peak_mib,
    print_table,
    record,
    write_json,
)
from _datasets import load_tabular_classification, load_uci_regression
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.active import select_batch

# "friedman1" is the "fried" of the paper on LCMD.
REGRESSION = ("concrete", "energy", "power-plant", "protein", "california", "house")
REGRESSION += ("river-flow", "friedman1")
CLASSES = ("letter", "pendigits", "satimage", "spambase", "magic", "adult")
METHODS = {"regression": ("lcmd",), "classes": ("margin",)}

START, END = 256, 2048
TEST_ROWS = 10_000


def table(name: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Inputs, targets and numbers of the categorical columns."""
    if name == "california":
        return *arrays("uci/california_housing", "X y"), []
    if name == "house":
        parts = arrays("tabular/house", "X_train X_val X_test y_train y_val y_test")
        return np.concatenate(parts[:3]), np.concatenate(parts[3:]), []
    if name == "river-flow":
        X, Y = arrays("uci/rf1_multitarget", "X Y")
        known = np.isfinite(X).all(axis=1)
        return X[known], Y[known, 0], []
    if name == "friedman1":
        return *make_friedman1(40_768, noise=1.0, random_state=0), []
    if name in CLASSES:
        data = load_tabular_classification(name)
        return data.data, data.target, np.flatnonzero(data.categorical).tolist()
    data = load_uci_regression(name)
    return data.data, data.target, []


def fitted(X, y, categorical, seed: int, options):
    """Return a cheap teacher's student, or the network of bmdal_reg."""
    if options.network == "bmdal_reg":
        from bmdal_reg.nn_interface import NNRegressor

        network = NNRegressor(seed=seed, device="cpu")
        network.fit(X, y)
        return network
    is_numeric = y.dtype.kind == "f"
    teacher = BayesianEnsembleRegressor if is_numeric else BayesianEnsembleClassifier
    student = HydraPlusRegressor if is_numeric else HydraPlusClassifier
    shared = {"max_epochs": options.max_epochs, "categorical_features": categorical or None}
    shared |= {"random_state": seed, **dict(options.param)}
    return student(teacher(options.members, **shared), **shared).fit(X, y)


def loss(model, X, y) -> float:
    """RMSE, or log loss of all classes; one without labels has probability zero, clipped."""
    if y.dtype.kind == "f":
        return root_mean_squared_error(y, model.predict(X).ravel())
    proba = np.full((len(X), y.max() + 1), 0.0)
    proba[:, model.classes_] = model.predict_proba(X)
    proba = np.clip(proba, 1e-6, None)
    return log_loss(y, proba / proba.sum(1, keepdims=True), labels=range(y.max() + 1))


def run(name: str, seed: int, options) -> list[dict]:
    """Losses of a table by method and number of labels, from the same first labels."""
    X, y, categorical = table(name)
    is_numeric = name in REGRESSION
    y = y.astype(float) if is_numeric else np.unique(y, return_inverse=True)[1]
    n_test = min(TEST_ROWS, len(X) // 5)
    rows = train_test_split(X.astype(np.float32), y, test_size=n_test, random_state=seed)
    X, X_test, y, y_test = rows
    start = min(START, len(X) // 8) if not options.quick else 16
    end = min(options.labels, len(X) // 2) if not options.quick else 32
    order = np.random.RandomState(seed).permutation(len(X))
    first = fitted(X[order[:start]], y[order[:start]], categorical, seed, options)
    done = []
    for method in ("random", *(options.methods or METHODS[kind_of(name)])):
        labelled, model = order[:start], first
        while len(labelled) + (n := options.batch or len(labelled)) <= end:
            pool = np.setdiff1d(order, labelled)
            began = time.process_time()
            if method == "random":
                chosen = order[len(labelled) : len(labelled) + n]
            elif options.network == "bmdal_reg":
                chosen = pool[_lcmd_of_bmdal(model, n, X[labelled], y[labelled], X[pool])]
            else:
                arguments = {"X_train": X[labelled], "method": method, "random_state": seed}
                chosen = pool[select_batch(model, X[pool], n, **arguments)]
            seconds = time.process_time() - began
            labelled = np.concatenate([labelled, chosen])
            model = fitted(X[labelled], y[labelled], categorical, seed, options)
            row = {"set": name, "seed": seed, "method": method, "labels": len(labelled)}
            done.append({**row, "loss": loss(model, X_test, y_test), "seconds": seconds})
    return done


def _lcmd_of_bmdal(network, n: int, X_train, y_train, X_pool) -> np.ndarray:
    """Return `n` places of the pool: LCMD-TP on sketched gradients, the paper's choice."""
    from bmdal_reg.bmdal.algorithms import select_batch
    from bmdal_reg.bmdal.feature_data import TensorFeatureData

    def inputs(X):
        scaled = (torch.from_numpy(X) - network.means_) / (network.stds_ + 1e-30)
        return TensorFeatureData(5 * torch.tanh(0.2 * scaled))  # as `NNRegressor.predict` has them

    chosen, _ = select_batch(
        batch_size=n,
        models=[network.model_.get_single_model(0)],
        data={"train": inputs(X_train), "pool": inputs(X_pool)},
        y_train=torch.from_numpy(y_train).float().unsqueeze(1),
        base_kernel="grad",
        kernel_transforms=[("rp", [512])],
        selection_method="lcmd",
        sel_with_train=True,
    )
    return chosen.numpy()


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
    parser = argument_parser(__doc__ or "", "active")
    parser.add_argument("--sets", nargs="+", choices=REGRESSION + CLASSES, metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", help="instead of those of the kind of table")
    parser.add_argument("--batch", type=int, help="labels of a step, instead of as many again")
    parser.add_argument("--labels", type=int, default=END, help="in the end (default: %(default)s)")
    parser.add_argument("--network", choices=("student", "bmdal_reg"), default="student")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--max-epochs", type=int, default=50)
    parser.add_argument("--param", type=parameter, nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--parts", nargs="+", choices=("tables", "pool"), default=("tables", "pool")
    )
    parser.add_argument("--resume", action="store_true", help="go on from the file of output")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.members, options.max_epochs = 1, 2, 2
    one_thread()
    warnings.simplefilter("ignore")
    rows, pool = [], None
    if options.resume and options.output.exists():
        rows = json.loads(options.output.read_text(encoding="utf-8"))["rows"]
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume")}
    if "pool" in options.parts:
        pool = large_pool(*((20_000, 16, 100) if options.quick else (1_000_000, 256, 1000)))
    seen = {(r["set"], r["seed"]) for r in rows}
    names = options.sets or REGRESSION + (CLASSES if options.network == "student" else ())
    rows = [r for r in rows if r["set"] in names]
    units = [(name, seed) for seed in range(options.seeds) for name in names]
    for name, seed in units if "tables" in options.parts else ():
        if (name, seed) not in seen:
            rows += run(name, seed, options)
            write_json(options.output, record(settings=settings, rows=rows, finished=False))
            print(f"{name}, seed {seed}", flush=True)
    tables = summary(rows)
    content = {"settings": settings, "tables": tables, "overall": overall(tables), "pool": pool}
    write_json(options.output, record(**content, rows=rows, finished=True))
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
    if content["pool"]:
        print(json.dumps(content["pool"]))


if __name__ == "__main__":
    main()
