# SPDX-License-Identifier: BSD-3-Clause
"""Batch sizes and epochs: what batch_size="auto" and max_epochs="auto" were chosen from.

teacher  ensembles of 3 members, for batches of 32 to 256 samples and for all epochs of small tables
         (100 for numbers, 50 for classes), half and a quarter of them
student  Hydra+ of a default ensemble: as many epochs as by the rule, half and twice as many, and
         half and twice the batch; thirteen tables of 700 to 13,000 samples, five of them made up.
         On the Pareto front is what no other setting beats in seconds, rank and NLL gap alike
cost     a default ensemble and its Hydra+ by the number of samples, of 8 normal features

A fifth of the samples, the test part, is set aside; models are scored on a fifth of the others,
never on test samples. Features are standardised on the training samples, in float32. NLL is that of
one Gaussian with the predicted mean and variance, or of the label; a student's gap is its NLL less
its teacher's. Rank correlation and median ratio are those of its epistemic uncertainty against its
teacher's. Times are CPU seconds of one thread.

The folder that SKDISTILL_DATA names holds uci/california_housing.npz, uci/rf1_multitarget.npz (of
which the first target is taken) and tabular/house.npz (house 16H, the parts X_train and X_val of a
split). One core takes half an hour.

    python benchmarks/amounts.py
    python benchmarks/amounts.py --parts student cost --sets letter wine
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import le
from typing import Any, NamedTuple

import numpy as np
from _common import (
    argument_parser,
    arrays,
    made_up_table,
    one_thread,
    print_table,
    record,
    write_json,
)
from _datasets import load_tabular_classification, load_uci_regression
from sklearn.base import is_classifier
from sklearn.datasets import make_friedman1
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._training.trainer import batch_size_for
from skdistill.distillers._fit import _rows
from skdistill.metrics import epistemic_fidelity, gaussian_nll
from skdistill.settings import Runtime

N_MEMBERS = {"teacher": 3, "student": 20}
SHARE = 0.2  # of the rows for the test part, and of the others for validation
N_MADE_UP = 100_000

# Batch sizes by set. A fit of the made-up table in batches of 32 takes minutes for one student.
BATCH_SIZES = (32, 64, 128, 256)
TEACHER_SETS = {
    **dict.fromkeys(("power-plant", "california", "house", "protein"), BATCH_SIZES),
    **dict.fromkeys(("magic", "letter", "covtype20k", "adult"), BATCH_SIZES),
    "made up": (32, 256),
}
STUDENT_SETS = (
    *("smooth", "rough", "friedman", "grid", "wide"),
    *("concrete", "wine", "power-plant", "california", "rf1", "satimage", "magic", "letter"),
)
COSTS = (500, 2_000, 5_000, 10_000, 20_000, 100_000)
PARTS = ("teacher", "student", "cost")
QUICK_SETS, QUICK_ROWS = ("magic", "smooth"), 300


class Kind(NamedTuple):
    """Teacher and student of a task, and the teacher's epochs on small tables."""

    teacher: type
    student: type
    n_epochs: int


KINDS = {  # by whether it is a regression
    True: Kind(BayesianEnsembleRegressor, HydraPlusRegressor, 100),
    False: Kind(BayesianEnsembleClassifier, HydraPlusClassifier, 50),
}


class Rows(NamedTuple):
    """Rows to train on and rows to score on."""

    X: np.ndarray
    y: np.ndarray
    X_valid: np.ndarray
    y_valid: np.ndarray

    @property
    def is_regression(self) -> bool:
        return self.y.dtype.kind == "f"


# Data ---------------------------------------------------------------------------------------------


def smooth(n: int = 2_500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Eight normal features, of which two matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)


def rough() -> tuple[np.ndarray, np.ndarray]:
    """Five uniform features, and a target with steps along them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3_000, 5))
    steps = np.sign(X[:, 0] * X[:, 1]) + (X[:, 2] > 0.3)
    return X, steps + 0.3 * rng.standard_normal(3_000)


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Sixteen smooth functions of a grid in three dimensions, and another, without noise."""
    rng = np.random.default_rng(0)
    axes = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 51), np.linspace(0, 1, 26))
    places = np.stack(axes, axis=-1).reshape(-1, 3)[rng.permutation(9 * 51 * 26)[:11_000]]
    lines = places @ (rng.standard_normal((3, 14)) * [[3.0], [0.6], [0.6]])
    bent = np.tanh(lines + rng.standard_normal(14)) + 0.3 * lines
    X = np.column_stack([places[:, 0], bent, places[:, 0] ** 2])
    return X, places[:, 1] * (1 + 0.04 * places[:, 0])


def wide() -> tuple[np.ndarray, np.ndarray]:
    """A hundred features that are ten and noise."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((4_000, 10))
    X = hidden @ rng.standard_normal((10, 100)) + 0.5 * rng.standard_normal((4_000, 100))
    mean = np.tanh(hidden[:, 0]) + hidden[:, 1] * hidden[:, 2] / 2
    return X, mean + 0.2 * rng.standard_normal(4_000)


MADE_UP: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "smooth": smooth,
    "rough": rough,
    "friedman": partial(make_friedman1, 6_000, 20, noise=1.0, random_state=0),
    "grid": grid,
    "wide": wide,
}


def outside_of_test(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets of a set, without its test part."""
    if name == "made up":
        return made_up_table(round(N_MADE_UP / (1 - SHARE)))
    if name in MADE_UP:
        return MADE_UP[name]()
    if name in ("concrete", "wine", "power-plant", "protein"):
        found = load_uci_regression(name)
        rows = found.train_indices[0]
        return found.data[rows], found.target[rows]
    if name == "house":
        X_train, X_valid, y_train, y_valid = arrays("tabular/house", "X_train X_val y_train y_val")
        return np.vstack([X_train, X_valid]), np.hstack([y_train, y_valid])
    if name == "california":
        X, y = arrays("uci/california_housing", "X y")
    elif name == "rf1":
        X, targets = arrays("uci/rf1_multitarget", "X Y")
        y = targets[:, 0].astype(float)
    else:
        found = load_tabular_classification(name)
        X, y = found.data, found.target
    X, _, y, _ = train_test_split(X, y, test_size=SHARE, random_state=0)
    return X, y


def load(name: str, n_rows: int | None) -> Rows:
    """Standardised rows, the first `n_rows` of them."""
    X, y = (part[:n_rows] for part in outside_of_test(name))
    X, X_valid, y, y_valid = train_test_split(X, y, test_size=SHARE, random_state=1)
    scaler = StandardScaler().fit(X)
    X, X_valid = (scaler.transform(part).astype(np.float32) for part in (X, X_valid))
    return Rows(X, y, X_valid, y_valid)


# Fits ---------------------------------------------------------------------------------------------


def fitted(model, rows: Rows) -> dict[str, Any]:
    """How a model was trained that is fitted here, and its scores on validation rows."""
    start = time.process_time()
    model.fit(rows.X, rows.y)
    seconds = time.process_time() - start
    X, y = rows.X_valid, rows.y_valid
    if is_classifier(model):
        probabilities = model.predict_proba(X)
        nll = log_loss(y, probabilities, labels=model.classes_)
        error = 1 - accuracy_score(y, model.classes_[probabilities.argmax(1)])
    else:
        mean, std = model.predict(X, return_std=True)
        nll, error = gaussian_nll(y, mean, std), root_mean_squared_error(y, mean)
    return {
        "batch_size": size_of(model, len(rows.X)),
        "epochs": model.n_epochs_,
        "nll": float(nll),
        "error": float(error),
        "cpu_seconds": seconds,
    }


def size_of(model, n_rows: int) -> int:
    """Samples of a minibatch of an ensemble or of a student."""
    is_student = hasattr(model, "teacher_")
    batch_size_of = _rows._batch_size if is_student else batch_size_for
    size: int = batch_size_of(model.batch_size, n_rows)
    return size


def compared(
    new: Callable, score: Callable, batch_sizes: tuple[int, ...], n_epochs: int
) -> list[dict[str, Any]]:
    """Scores of what `new` makes, trained by the rule and by settings around it.

    Settings are every batch size with `n_epochs`, and the largest with half and a quarter of them.
    """
    found = [{**score(new()), "auto": True}]
    fewer = [(batch_sizes[-1], n_epochs // part) for part in (2, 4)]
    for size, epochs in [*((size, n_epochs) for size in batch_sizes), *fewer]:
        if (size, epochs) != (found[0]["batch_size"], found[0]["epochs"]):
            model = new(batch_size=size, max_epochs=epochs)
            found.append({**score(model), "auto": False})
    return sorted(found, key=lambda row: (row["batch_size"], -row["epochs"]))


def teachers(name: str, rows: Rows) -> list[dict[str, Any]]:
    """Scores of ensembles."""
    kind = KINDS[rows.is_regression]
    new = partial(kind.teacher, N_MEMBERS["teacher"], runtime=Runtime(device="cpu"), random_state=0)
    return compared(new, partial(fitted, rows=rows), TEACHER_SETS[name], kind.n_epochs)


def students(name: str, rows: Rows) -> list[dict[str, Any]]:
    """Scores of students of one ensemble, which is trained by the rule."""
    kind = KINDS[rows.is_regression]
    teacher = kind.teacher(N_MEMBERS["student"], runtime=Runtime(device="cpu"), random_state=0)
    its_nll = fitted(teacher, rows)["nll"]
    epistemic = teacher.predict_uncertainty(rows.X_valid).epistemic

    def score(student) -> dict[str, Any]:
        row = fitted(student, rows)
        kept = epistemic_fidelity(epistemic, student.predict_uncertainty(rows.X_valid).epistemic)
        return {
            **row,
            "nll_gap": row["nll"] - its_nll,
            "rank_correlation": float(kept.rank_correlation),
            "median_ratio": float(kept.median_ratio),
        }

    new = partial(
        kind.student, FrozenEstimator(teacher), runtime=Runtime(device="cpu"), random_state=0
    )
    by_rule = new()
    found = [{**score(by_rule), "auto": True}]
    size, epochs = found[0]["batch_size"], found[0]["epochs"]
    settings = [(size, epochs // 2), (size, 2 * epochs), (size // 2, epochs), (2 * size, epochs)]
    for size, epochs in settings:
        found.append({**score(new(batch_size=size, max_epochs=epochs)), "auto": False})
    costs = [(r["cpu_seconds"], -r["rank_correlation"], r["nll_gap"]) for r in found]
    for row, own in zip(found, costs, strict=True):
        row["on_front"] = not any(other != own and all(map(le, other, own)) for other in costs)
    return sorted(found, key=lambda row: (row["batch_size"], -row["epochs"]))


def costs(n_rows: Sequence[int]) -> list[dict[str, Any]]:
    """CPU seconds of a teacher and of its student, by the number of samples."""
    found = []
    for n in n_rows:
        X, y = smooth(n)
        row: dict[str, Any] = {"rows": n}
        teacher: Any = BayesianEnsembleRegressor(N_MEMBERS["student"], random_state=0)
        student = HydraPlusRegressor(FrozenEstimator(teacher), random_state=0)
        for name, model in (("teacher", teacher), ("student", student)):
            start = time.process_time()
            model.fit(X, y)
            row |= {name: time.process_time() - start, f"{name}_epochs": model.n_epochs_}
        found.append(row)
    return found


# Results ------------------------------------------------------------------------------------------


def report(results: dict[str, dict[str, Any]]) -> None:
    header = ["set", "rows", "model", "batch", "epochs", "auto", "NLL", "error", "CPU s"]
    print_table(
        [*header, "NLL gap", "rank", "ratio", "front"],
        [
            [name, found["rows"], model[:-1], row["batch_size"], row["epochs"]]
            + ["yes" if row["auto"] else None]
            + [row.get(key) for key in ("nll", "error", "cpu_seconds")]
            + [row.get(key) for key in ("nll_gap", "rank_correlation", "median_ratio")]
            + ["yes" if row.get("on_front") else None]
            for name, found in results.items()
            for model in ("teachers", "students")
            for row in found.get(model, [])
        ],
    )


def main() -> None:
    parser = argument_parser(__doc__, "amounts")
    sets = list(dict.fromkeys([*TEACHER_SETS, *STUDENT_SETS]))
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    options = parser.parse_args()
    one_thread()
    settings = {"quick": options.quick, "members": N_MEMBERS, "share_for_validation": SHARE}
    results: dict[str, dict[str, Any]] = {}
    found = {"settings": settings, "results": results}
    if "cost" in options.parts:
        found["costs"] = costs([QUICK_ROWS] if options.quick else COSTS)
    for name in QUICK_SETS if options.quick else options.sets:
        rows = load(name, QUICK_ROWS if options.quick else None)
        results[name] = {"rows": len(rows.X)}
        if "teacher" in options.parts and name in TEACHER_SETS:
            results[name]["teachers"] = teachers(name, rows)
        if "student" in options.parts and name in STUDENT_SETS:
            results[name]["students"] = students(name, rows)
        write_json(options.output, record(**found))
    report(results)
    if "cost" in options.parts:
        header = ["rows", "teacher, CPU s", "student, CPU s", "both"]
        rows = [
            [n["rows"], n["teacher"], n["student"], n["teacher"] + n["student"]]
            for n in found["costs"]
        ]
        print_table(header, rows)


if __name__ == "__main__":
    main()
