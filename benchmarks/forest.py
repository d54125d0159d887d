# SPDX-License-Identifier: BSD-3-Clause
"""A random forest of 500 trees distilled into one small network: speed, accuracy, uncertainty.

The forest has scikit-learn's defaults. Its 500 trees become ten mixtures of 50, each of which has
a head in the student. Both see one-hot codes and standardised numbers. The student learns from the
training rows and from as many rows again, several times over, that MUNGE makes of them; it needs
no labels. The test part is adult's own, and a random fifth of covtype20k.

The times are of predict, of the models and of pipelines that encode the rows first, for all test
rows at once, for 1,000 and for one: CPU seconds of one thread, taken in turn, ratios are medians
over rounds. The student should be at least 50 times as fast, its accuracy at least 0.99 of the
forest's. The epistemic part is the mutual information of the ten mixtures, in nats.

With --validation a fifth of the training rows takes the place of the test rows; settings were
chosen so, never on test rows.

    python benchmarks/forest.py
    python benchmarks/forest.py --sets adult --validation --student-param max_epochs=5
"""

from __future__ import annotations

import pickle
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import (
    argument_parser,
    comparison,
    interleaved,
    mib,
    one_thread,
    parameter,
    print_comparisons,
    print_table,
    record,
    saved,
    write_json,
)
from _datasets import load_tabular_classification
from hydra import fidelity
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdistill import HydraPlusClassifier
from skdistill.metrics import expected_calibration_error
from skdistill.settings import HydraLoss
from skdistill.teachers import as_teacher
from skdistill.transfer import Munge

TREES, MIXTURES = 500, 10
FASTER, ACCURACY = 50, 0.99  # than the forest, of the forest's
SHARE = 0.2  # of the rows for a test part where none is given, and for validation

# How many columns each of the variables has that covtype20k holds as indicators, its last columns:
# wilderness areas and soil types.
INDICATORS = {"covtype20k": (4, 40)}

# How many rows MUNGE makes of each training row, and what was chosen for the student.
MUNGED = {"adult": 5, "covtype20k": 20}
COMMON: dict[str, Any] = {
    "loss": HydraLoss(member_weight=0.1, member_temperature=3.0, spread_weight=0.1),
    "transfer": None,
    "lr": 0.005,
    "batch_size": 128,
    "module__activation": "relu",
}
STUDENT: dict[str, dict[str, Any]] = {
    "adult": {**COMMON, "module__hidden_units": (64, 64), "max_epochs": 10},
    "covtype20k": {**COMMON, "module__hidden_units": (128, 96), "max_epochs": 30},
}


class Rows(NamedTuple):
    """Training and test rows: numbers, and the codes of categories in the last columns."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    codes: np.ndarray  # numbers of the columns of codes


def load(name: str, validation: bool) -> Rows:
    """Rows of a set, split alike every time."""
    data = load_tabular_classification(name)
    X, codes = with_codes(data.data, data.categorical, INDICATORS.get(name))
    draw = partial(train_test_split, test_size=SHARE, random_state=0)
    if data.is_train is None:
        X_train, X_test, y_train, y_test = draw(X, data.target, stratify=data.target)
    else:
        X_train, X_test, y_train, y_test = (
            a[rows] for a in (X, data.target) for rows in (data.is_train, ~data.is_train)
        )
    if validation:
        X_train, X_test, y_train, y_test = draw(X_train, y_train, stratify=y_train)
    return Rows(X_train, X_test, y_train, y_test, codes)


def with_codes(X: np.ndarray, categorical: np.ndarray, indicators: tuple[int, ...] | None):
    """Rows with a column of codes for each categorical variable, and the numbers of these."""
    if indicators is not None:
        n_numbers = int((~categorical).sum())
        groups = np.split(X[:, n_numbers:], np.cumsum(indicators)[:-1], axis=1)
        X = np.column_stack([X[:, :n_numbers], *(group.argmax(1) for group in groups)])
        categorical = np.arange(X.shape[1]) >= n_numbers
    return X.astype(np.float32), np.flatnonzero(categorical)


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


def fitted(name: str, rows: Rows, changes: dict[str, Any]) -> Models:
    """Both models, the student with its settings for this set and these changes."""
    start = time.process_time()
    encode = encoder(rows).fit(rows.X_train)
    X, y = encode.transform(rows.X_train), rows.y_train
    forest = RandomForestClassifier(TREES, random_state=0).fit(X, y)
    seconds = {"forest": time.process_time() - start}
    start = time.process_time()
    teacher = as_teacher(FrozenEstimator(forest), max_members=MIXTURES).fit(X, y)
    student = HydraPlusClassifier(FrozenEstimator(teacher), random_state=0)
    student.set_params(**{**STUDENT[name], **changes})
    student.fit(X, y, X_transfer=encode.transform(munged(rows, MUNGED[name])))
    seconds["student"] = time.process_time() - start
    return Models(encode, forest, teacher, student, seconds)


def run_set(name: str, rows: Rows, changes: dict[str, Any], n_rounds: int) -> dict[str, Any]:
    """Scores of forest and student, what the student kept of the forest, and their times."""
    encode, forest, teacher, student, seconds = fitted(name, rows, changes)
    X, y = encode.transform(rows.X_test), rows.y_test
    forest_size = {"parameters": n_nodes(forest), "mib": mib(pickle.dumps(forest))}
    student_size = {"parameters": student.n_parameters_, "mib": mib(saved(student.module_))}
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
        "fidelity": fidelity(*(model.predict_uncertainty(X) for model in (teacher, student))),
        "times": [
            *compared(f"{name}, models", models, X, n_rounds, at_least=FASTER),
            *compared(f"{name}, pipelines", pipelines, rows.X_test, n_rounds),
        ],
    }


def scores(model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    proba = model.predict_proba(X)
    return {
        "accuracy": model.score(X, y),
        "nll": log_loss(y, proba),
        "ece": expected_calibration_error(y, proba, labels=model.classes_),
    }


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


def report(results: dict[str, dict]) -> None:
    columns = ("accuracy", "nll", "ece", "parameters", "mib", "fit_seconds")
    print_table(
        ["set", "model", "accuracy", "NLL", "ECE", "parameters", "MiB", "fit s"],
        [
            [name, model, *(row[column] for column in columns)]
            for name, result in results.items()
            for model, row in result["scores"].items()
        ],
    )
    print()
    columns = ("rank_correlation", "median_ratio", "tv_total", "tv_aleatoric", "tv_epistemic")
    print_table(
        [
            "set",
            f"accuracy / forest's, >= {ACCURACY}",
            "reached",
            "rank of epistemic",
            *columns[1:],
        ],
        [
            [
                name,
                result["accuracy_ratio"],
                result["accuracy_reached"],
                *(result["fidelity"][column] for column in columns),
            ]
            for name, result in results.items()
        ],
    )
    print()
    print_comparisons([row for result in results.values() for row in result["times"]])


def main() -> None:
    parser = argument_parser(__doc__, "forest")
    parser.add_argument("--sets", nargs="+", default=list(STUDENT), choices=STUDENT)
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    one_thread()

    changes, n_rounds = dict(options.student_param), options.rounds
    if options.quick:
        changes, n_rounds = {**changes, "max_epochs": 1}, 1
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, dict] = {}
    for name in options.sets:
        rows = load(name, options.validation)
        if options.quick:
            rows = Rows(*(part[:500] for part in rows[:-1]), rows.codes)
        results[name] = run_set(name, rows, changes, n_rounds)
        write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
