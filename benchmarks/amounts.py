# SPDX-License-Identifier: BSD-3-Clause
"""Batch sizes and epochs: what batch_size="auto" and max_epochs="auto" were chosen from.

teacher  ensembles of 3 members, for batches of 32 to 256 rows and for all epochs of small tables
         (100 for numbers, 50 for classes), half and a quarter of them
student  Hydra+ of an ensemble of 10 members that was trained by the rule

A fifth of the rows, the test part, is set aside; models are scored on a fifth of the others, never
on test rows. Inputs are standardised on the training rows, in float32; nine tables, of 6,900 to
100,000 training rows. NLL is that of one Gaussian with the predicted mean and variance, or of the
label; a student's gap is its NLL less its teacher's. Rank correlation and median ratio are those of
its epistemic uncertainty against its teacher's. Times are CPU seconds of one thread.

The folder that SKDISTILL_DATA names holds uci/california_housing.npz and tabular/house.npz (house
16H, the parts X_train and X_val of a split). One core takes ten minutes.

    python benchmarks/amounts.py
    python benchmarks/amounts.py --sets letter protein
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
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
from sklearn.base import is_classifier
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
from skdistill._training import batch_size_for
from skdistill.datasets import fetch_tabular_classification, fetch_uci_regression
from skdistill.metrics import epistemic_fidelity, gaussian_nll

N_MEMBERS = {"teacher": 3, "student": 10}
LEAST_EPOCHS_OF_STUDENTS = 50  # of "auto", on small tables
SHARE = 0.2  # of the rows for the test part, and of the others for validation
N_MADE_UP = 100_000

# Batch sizes by set. A fit of the made-up table in batches of 32 takes minutes for one student.
BATCH_SIZES = (32, 64, 128, 256)
TEACHER_SETS = {
    **dict.fromkeys(("power-plant", "california", "house", "protein"), BATCH_SIZES),
    **dict.fromkeys(("magic", "letter", "covtype20k", "adult"), BATCH_SIZES),
    "made up": (32, 256),
}
STUDENT_SETS = {
    **dict.fromkeys(("california", "letter"), BATCH_SIZES),
    "protein": (32, 128, 256),
    "made up": (256,),
}
QUICK_SETS, QUICK_ROWS = ("magic", "protein"), 300


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


def outside_of_test(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets of a set, without its test part."""
    if name == "made up":
        return made_up_table(round(N_MADE_UP / (1 - SHARE)))
    if name in ("power-plant", "protein"):
        found = fetch_uci_regression(name)
        rows = found.train_indices[0]
        return found.data[rows], found.target[rows]
    if name == "house":
        X_train, X_valid, y_train, y_valid = arrays("tabular/house", "X_train X_val y_train y_val")
        return np.vstack([X_train, X_valid]), np.hstack([y_train, y_valid])
    if name == "california":
        X, y = arrays("uci/california_housing", "X y")
    else:
        found = fetch_tabular_classification(name)
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
        "batch_size": batch_size_for(model.batch_size, len(rows.X)),
        "epochs": model.n_epochs_,
        "nll": float(nll),
        "error": float(error),
        "cpu_seconds": seconds,
    }


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
    new = partial(kind.teacher, N_MEMBERS["teacher"], device="cpu", random_state=0)
    return compared(new, partial(fitted, rows=rows), TEACHER_SETS[name], kind.n_epochs)


def students(name: str, rows: Rows) -> list[dict[str, Any]]:
    """Scores of students of one ensemble, which is trained by the rule."""
    kind = KINDS[rows.is_regression]
    teacher = kind.teacher(N_MEMBERS["student"], device="cpu", random_state=0)
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

    new = partial(kind.student, FrozenEstimator(teacher), device="cpu", random_state=0)
    return compared(new, score, STUDENT_SETS[name], LEAST_EPOCHS_OF_STUDENTS)


# Results ------------------------------------------------------------------------------------------


def report(results: dict[str, dict[str, Any]]) -> None:
    header = ["set", "rows", "model", "batch", "epochs", "auto", "NLL", "error", "CPU s"]
    print_table(
        [*header, "NLL gap", "rank", "ratio"],
        [
            [name, found["rows"], model[:-1], row["batch_size"], row["epochs"]]
            + ["yes" if row["auto"] else None]
            + [row.get(key) for key in ("nll", "error", "cpu_seconds")]
            + [row.get(key) for key in ("nll_gap", "rank_correlation", "median_ratio")]
            for name, found in results.items()
            for model in ("teachers", "students")
            for row in found.get(model, [])
        ],
    )


def main() -> None:
    parser = argument_parser(__doc__, "amounts")
    parser.add_argument("--sets", nargs="+", default=list(TEACHER_SETS), choices=TEACHER_SETS)
    options = parser.parse_args()
    one_thread()
    settings = {"quick": options.quick, "members": N_MEMBERS, "share_for_validation": SHARE}
    results: dict[str, dict[str, Any]] = {}
    for name in QUICK_SETS if options.quick else options.sets:
        rows = load(name, QUICK_ROWS if options.quick else None)
        results[name] = {"rows": len(rows.X), "teachers": teachers(name, rows)}
        if name in STUDENT_SETS:
            results[name]["students"] = students(name, rows)
        write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
