# SPDX-License-Identifier: BSD-3-Clause
"""A random forest of 500 trees distilled into one small network: speed, accuracy, uncertainty.

The forest has scikit-learn's defaults. Its 500 trees become ten mixtures of 50, each of which has
a head in the student. Both see one-hot codes and standardised numbers. The student learns from the
training rows and from five times as many that MUNGE makes of them; it needs no labels. The set is
adult, with its own test part.

The times are of predict, of the models and of pipelines that encode the rows first, for all test
rows at once, for 1,000 and for one: CPU seconds of one thread, taken in turn, ratios are medians
over rounds. The student should be at least 50 times as fast, its accuracy at least 0.99 of the
forest's. The epistemic part is the mutual information of the ten mixtures, in nats.

    python benchmarks/forest.py
"""

from __future__ import annotations

import pickle
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import (
    asked,
    comparison,
    fidelity_of_parts,
    interleaved,
    print_comparisons,
    print_table,
    save,
)
from _datasets import load_tabular_classification
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdistill import HydraPlusClassifier
from skdistill.metrics import expected_calibration_error
from skdistill.settings import HydraLoss
from skdistill.teachers import as_teacher
from skdistill.transfer import Munge

TREES, MIXTURES = 500, 10
FASTER, ACCURACY = 50, 0.99  # than the forest, of the forest's
MUNGED = 5  # rows that MUNGE makes of each training row
STUDENT: dict[str, Any] = {  # chosen on training rows
    "loss": HydraLoss(member_weight=0.1, member_temperature=3.0, spread_weight=0.1),
    "transfer": None,
    "lr": 0.005,
    "batch_size": 128,
    "module__activation": "relu",
    "module__hidden_units": (64, 64),
    "max_epochs": 10,
}


class Rows(NamedTuple):
    """Training and test rows: numbers, and the codes of categories in the last columns."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    codes: np.ndarray  # numbers of the columns of codes


def load() -> Rows:
    """Rows of adult."""
    data = load_tabular_classification("adult")
    X, parts = data.data.astype(np.float32), (data.is_train, ~data.is_train)
    X_train, X_test, y_train, y_test = (a[rows] for a in (X, data.target) for rows in parts)
    return Rows(X_train, X_test, y_train, y_test, np.flatnonzero(data.categorical))


def encoder(rows: Rows):
    """Standardised numbers and one-hot codes, in float32; a code that is new has none."""
    numbers = np.setdiff1d(np.arange(rows.X_train.shape[1]), rows.codes)
    one_hot = OneHotEncoder(sparse_output=False, dtype=np.float32, handle_unknown="ignore")
    return make_column_transformer((StandardScaler(), numbers), (one_hot, rows.codes))


def munged(rows: Rows, n_times: int) -> np.ndarray:
    """Rows made of the training rows, each of them `n_times`."""
    X = torch.from_numpy(rows.X_train)
    index = torch.arange(len(X)).repeat(n_times)
    draw = Munge(categorical=rows.codes).prepare(X)
    return draw(X[index], index, torch.Generator().manual_seed(0)).numpy()


# Forest and student -------------------------------------------------------------------------------


class Models(NamedTuple):
    """What is compared, what encodes rows for it, and the CPU seconds of the fits."""

    encode: Any
    forest: RandomForestClassifier
    teacher: Any  # the forest, its members mixtures of trees
    student: HydraPlusClassifier
    seconds: dict[str, float]


def fitted(rows: Rows, few: dict[str, Any]) -> Models:
    """Both models."""
    start = time.process_time()
    encode = encoder(rows).fit(rows.X_train)
    X, y = encode.transform(rows.X_train), rows.y_train
    forest = RandomForestClassifier(TREES, random_state=0).fit(X, y)
    seconds = {"forest": time.process_time() - start}
    start = time.process_time()
    teacher = as_teacher(FrozenEstimator(forest), max_members=MIXTURES).fit(X, y)
    student = HydraPlusClassifier(FrozenEstimator(teacher), random_state=0)
    student.set_params(**{**STUDENT, **few})
    student.fit(X, y, X_transfer=encode.transform(munged(rows, MUNGED)))
    seconds["student"] = time.process_time() - start
    return Models(encode, forest, teacher, student, seconds)


def run(rows: Rows, few: dict[str, Any], n_rounds: int) -> dict[str, Any]:
    """Scores of forest and student, what the student kept of the forest, and their times."""
    encode, forest, teacher, student, seconds = fitted(rows, few)
    X, y = encode.transform(rows.X_test), rows.y_test
    forest_size = {"parameters": n_nodes(forest), "mib": mib(pickle.dumps(forest))}
    student_size = {
        "parameters": student.n_parameters_,
        "mib": mib(pickle.dumps(student.module_.state_dict())),
    }
    scored = {
        "forest": {**scores(forest, X, y), **forest_size, "fit_seconds": seconds["forest"]},
        "student": {**scores(student, X, y), **student_size, "fit_seconds": seconds["student"]},
    }
    ratio = scored["student"]["accuracy"] / scored["forest"]["accuracy"]
    models = {"forest": forest, "student": student}
    pipelines = {which: make_pipeline(encode, model) for which, model in models.items()}
    return {
        "scores": scored,
        "accuracy_ratio": ratio,
        "accuracy_reached": ratio >= ACCURACY,
        "fidelity": fidelity_of_parts(
            *(model.predict_uncertainty(X) for model in (teacher, student))
        ),
        "times": [
            *compared("adult, models", models, X, n_rounds, at_least=FASTER),
            *compared("adult, pipelines", pipelines, rows.X_test, n_rounds),
        ],
    }


def scores(model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    proba = model.predict_proba(X)
    return {
        "accuracy": model.score(X, y),
        "nll": log_loss(y, proba),
        "ece": expected_calibration_error(y, proba, labels=model.classes_),
    }


def mib(content: bytes) -> float:
    return len(content) / 2**20


def n_nodes(forest: RandomForestClassifier) -> int:
    """Nodes of all trees: thresholds, or probabilities of the classes."""
    return sum(tree.tree_.node_count for tree in forest.estimators_)


def compared(what: str, models: dict, X: np.ndarray, n_rounds: int, at_least=None) -> list[dict]:
    """Times of `predict` for all rows, for 1,000 and for one."""
    found = []
    for n_rows, n_calls in ((len(X), 1), (1000, 5), (1, 50)):
        contenders = {name: partial(model.predict, X[:n_rows]) for name, model in models.items()}
        seconds = interleaved(contenders, n_rounds, n_calls)
        setting = f"{what}, {count(n_rows)}"
        found.append(comparison(setting, seconds, "forest", ours="student", at_least=at_least))
    return found


def count(n_rows: int) -> str:
    return "1 row" if n_rows == 1 else f"{n_rows} rows"


def main() -> None:
    options = asked(__doc__, rounds=5)
    rows, few, n_rounds = load(), {}, options.rounds
    if options.quick:
        rows = Rows(*(part[:500] for part in rows[:-1]), rows.codes)
        few, n_rounds = {"max_epochs": 1}, 1
    found = run(rows, few, n_rounds)
    columns = ("accuracy", "nll", "ece", "parameters", "mib", "fit_seconds")
    table = [[model, *map(row.get, columns)] for model, row in found["scores"].items()]
    print_table(["model", *columns], table)
    print_table(list(found["fidelity"]), [list(found["fidelity"].values())])
    print_comparisons(found["times"])
    save(options, results={"adult": found})


if __name__ == "__main__":
    main()
