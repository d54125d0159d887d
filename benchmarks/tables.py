# SPDX-License-Identifier: BSD-3-Clause
"""Teachers on larger tables and their peers, on TabM's parts of them, and what TabM costs.

california  RMSE in 100,000 dollars, 13,209 rows to train on
house       RMSE in dollars, 14,581 rows
adult       log loss, 26,048 rows, in parts of our own of the standard training rows

Teachers have skdistill's defaults but for what their name says: "tuned" is
DeepEnsemble(tune="oob"), "mixed" MixedModels("auto"). A student, Hydra+, is that of the teacher
before it. Peers have the defaults of their library: "boosting" is scikit-learn's histogram gradient
boosting, RealMLP-TD and TabM-D are pytabkit's, which stop by a fifth of the training rows. One
whose library is not installed is left out, and a line says so (requirements/peers.txt has them).
Columns of numbers are given as they are, which estimators standardise, or with --columns quantiles
turned into normal ones by their quantiles, as TabM's authors do; columns of categories are one-hot.
Nothing was decided on test rows: --validation scores on the validation part. The published figures
are those of Gorishniy et al. (2025), means over seeds, whose settings were tuned for each table.

A teacher and its student, or a peer, are fitted in a process of their own, which has fitted a few
rows before. Seconds are CPU seconds of one thread, a student's without its teacher's. Memory is
what the process holds at its peak, less what it held when libraries and rows were there and nothing
was fitted; a student's is that of both fits.
Results are written after every fit. With --resume those in the file stay and what it lacks is
measured, ours anew where defaults have changed since; what was measured without memory is fitted
again for that alone, its scores and seconds stay.

"speed" is the time of a fit of TabM with its 32 members beside that of an ensemble of one network
of the same hidden units, both with their default amounts of training: CPU seconds of one thread, in
turn.

    python benchmarks/tables.py
    python benchmarks/tables.py --sets adult --teachers "TabM, full" --validation
    python benchmarks/tables.py --columns quantiles
    python benchmarks/tables.py --parts scores --teachers LightGBM TabM-D --resume
    python benchmarks/tables.py --parts speed
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from _common import (
    argument_parser,
    arrays,
    comparison,
    in_new_process,
    interleaved,
    made_up_table,
    one_thread,
    parameter,
    peak_mib,
    print_comparisons,
    print_table,
    record,
    resumed,
    versions,
    write_json,
)
from _defaults import changed
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.metrics import gaussian_nll
from skdistill.modules import TabM, n_parameters
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Runtime
from skdistill.teachers import MixedModels, as_teacher

PARTS = ("scores", "speed")

TEACHERS: dict[str, dict[str, Any]] = {
    "default": {},
    "tuned": {"inference": DeepEnsemble(tune="oob")},
    "TabM": {"module": TabM, "n_members": 32},
    "TabM, full": {"module": TabM, "n_members": 32, "module__mini": False},
}
OURS = (*TEACHERS, "mixed")


class Peer(NamedTuple):
    """Where a peer's estimators are, the start of their names, and what is no default of them."""

    package: str
    module: str
    name: str
    settings: dict[str, Any]


_PYTABKIT = {"device": "cpu", "n_threads": 1, "random_state": 0}
_CATBOOST = {"thread_count": 1, "verbose": 0, "allow_writing_files": False, "random_seed": 0}
PEERS = {
    "boosting": Peer(
        "scikit-learn", "sklearn.ensemble", "HistGradientBoosting", {"random_state": 0}
    ),
    "LightGBM": Peer(
        "lightgbm", "lightgbm", "LGBM", {"n_jobs": 1, "verbose": -1, "random_state": 0}
    ),
    "CatBoost": Peer("catboost", "catboost", "CatBoost", _CATBOOST),
    "RealMLP-TD": Peer("pytabkit", "pytabkit", "RealMLP_TD_", _PYTABKIT),
    "TabM-D": Peer("pytabkit", "pytabkit", "TabM_D_", _PYTABKIT),
}

WITH_STUDENT = ("default", "tuned", "mixed")

# By set: of an MLP, five of them, one with piecewise-linear embeddings, TabM, TabM-mini with them.
PUBLISHED_NAMES = ["MLP", "5 MLPs", "MLP, embeddings", "TabM", "mini, embeddings"]
PUBLISHED = {
    "california": (0.4948, 0.4880, 0.4491, 0.4414, 0.4275),
    "house": (31_117, 30_706, 30_401, 30_038, 29_976),
    "adult": (0.3162, 0.3120, 0.2995, 0.3077, 0.2828),
}

SHAPES = ((50, 50), (128, 128), (256, 256))
N_SPEED, N_ROUNDS, TWICE = 1600, 5, 2.0
N_FIRST = 200  # rows of the fit that comes before the one that is measured


class Rows(NamedTuple):
    """Rows to train on and rows to be judged on."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def are_classes(self) -> bool:
        return self.y_train.dtype.kind != "f"


def parts_of(name: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Columns of numbers, targets, and columns of categories, of each part of a table."""
    if name == "california":
        X, y = arrays("uci/california_housing", "X y")
        indices = arrays("uci/california_tabm_split", "train_idx val_idx test_idx")
        return {
            p: (X[i], y[i], None) for p, i in zip(("train", "val", "test"), indices, strict=True)
        }
    if name == "house":
        found = {p: arrays("tabular/house", f"X_{p} y_{p}") for p in ("train", "val", "test")}
        return {part: (X, y.astype(float), None) for part, (X, y) in found.items()}
    X, X_cat, y, is_train = arrays("tabular/adult", "X_num X_cat y is_train")
    rows = np.arange(len(y))
    test, known = rows[~is_train.astype(bool)], rows[is_train.astype(bool)]
    train, val = train_test_split(known, test_size=0.2, random_state=0, stratify=y[known])
    places = {"train": train, "val": val, "test": test}
    return {part: (X[i], y[i], X_cat[i]) for part, i in places.items()}


def load(name: str, validation: bool, columns: str = "raw") -> Rows:
    """Rows of a table, in float32, its columns encoded as the training part says."""
    parts = parts_of(name)
    X, y, categories = parts["train"]
    scaler = QuantileTransformer(
        output_distribution="normal",
        n_quantiles=max(min(len(X) // 30, 1000), 10),
        subsample=None,
        random_state=0,
    ).fit(X)
    encoder = None if categories is None else OneHotEncoder(handle_unknown="ignore").fit(categories)

    def encoded(X: np.ndarray, categories: np.ndarray | None) -> np.ndarray:
        parts = [scaler.transform(X) if columns == "quantiles" else X]
        if encoder is not None:
            parts.append(encoder.transform(categories).toarray())
        return np.hstack(parts).astype(np.float32)

    X_test, y_test, more = parts["val" if validation else "test"]
    return Rows(encoded(X, categories), y, encoded(X_test, more), y_test)


def scored(model, rows: Rows) -> dict[str, float]:
    """Accuracy and log loss, or RMSE and the NLL of one Gaussian for each row."""
    if rows.are_classes:
        proba = model.predict_proba(rows.X_test)
        return {
            "log_loss": log_loss(rows.y_test, proba, labels=model.classes_),
            "accuracy": accuracy_score(rows.y_test, model.predict(rows.X_test)),
        }
    mean = model.predict(rows.X_test)
    found = {"rmse": root_mean_squared_error(rows.y_test, mean)}
    if hasattr(model, "predict_uncertainty"):
        std = np.sqrt(model.predict_uncertainty(rows.X_test).total)
        found["nll"] = gaussian_nll(rows.y_test, mean, std)
    return found


def unfitted(name: str, are_classes: bool, more: dict[str, Any]):
    """The model of a name; `more` are further parameters of ensembles."""
    if name in PEERS:
        _, module, start, settings = PEERS[name]
        kind = f"{start}{'Classifier' if are_classes else 'Regressor'}"
        return getattr(importlib.import_module(module), kind)(**settings)
    if name == "mixed":
        task = "classification" if are_classes else "regression"
        return as_teacher(MixedModels("auto", task=task)).set_params(estimator__random_state=0)
    ensemble = BayesianEnsembleClassifier if are_classes else BayesianEnsembleRegressor
    settings = {**TEACHERS[name], **more}
    return ensemble(random_state=0, runtime=Runtime(device="cpu"), **settings)


def installed(names: Iterable[str]) -> list[str]:
    """Those whose package is there; of the others a line is printed."""
    there, found = versions(), []
    for name in names:
        if name in OURS or PEERS[name].package in there:
            found.append(name)
        else:
            print(f"{name} is left out: {PEERS[name].package} is not installed.")
    return found


def measured(name: str, rows: Rows, more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a teacher and its student, or a peer, score and cost; to be called in a new process."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
    unfitted(name, rows.are_classes, more)  # imports
    before = peak_mib()
    fitted_and_scored(name, Rows(*(part[:N_FIRST] for part in rows)), more)  # more of them
    found = fitted_and_scored(name, rows, more)
    return {key: row | {"peak_mib": row["peak_mib"] - before} for key, row in found.items()}


def fitted_and_scored(name: str, rows: Rows, more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A row of results for a model, and one for its student where it has one."""
    model = unfitted(name, rows.are_classes, more)
    found = {name: costs(model, rows) | scored(model, rows)}
    if name in WITH_STUDENT:
        kind = HydraPlusClassifier if rows.are_classes else HydraPlusRegressor
        student = kind(FrozenEstimator(model), random_state=0, runtime=Runtime(device="cpu"))
        found[f"{name}, student"] = costs(student, rows) | scored(student, rows)
    return found


def costs(model, rows: Rows) -> dict[str, float]:
    """What a fit costs, without that of a fitted teacher, and the peak of memory after it."""
    start = time.process_time()
    model.fit(rows.X_train, rows.y_train)
    found = {"cpu_seconds": time.process_time() - start, "peak_mib": peak_mib()}
    return found | (
        {"parameters": n_parameters(model.module_)} if hasattr(model, "module_") else {}
    )


def speed(options) -> list[dict[str, Any]]:
    """Fits of TabM beside those of one network."""
    X, y = made_up_table(200 if options.quick else N_SPEED, 13, dtype="float32")
    shared = {"random_state": 0, "runtime": Runtime(device="cpu"), "module__activation": "relu"}
    if options.quick:
        shared["max_epochs"] = 2
    rows = []
    for units in SHAPES[:1] if options.quick else SHAPES:
        settings = {**shared, "module__hidden_units": units}
        models = {"one network": BayesianEnsembleRegressor(1, **settings)}
        for name in ("TabM", "TabM, full"):
            models[name] = BayesianEnsembleRegressor(**{**settings, **TEACHERS[name]})
        calls = {name: lambda model=model: model.fit(X, y) for name, model in models.items()}
        seconds = interleaved(calls, 1 if options.quick else N_ROUNDS)
        rows += [
            comparison(str(units), seconds, "one network", ours=name, at_most=TWICE)
            for name in ("TabM", "TabM, full")
        ]
    return rows


def report(results: dict[str, Any]) -> None:
    columns = ("rmse", "nll", "log_loss", "accuracy", "cpu_seconds", "peak_mib")
    rows = [
        [name, teacher, *map(row.get, columns), *PUBLISHED[name]]
        for name, found in results.get("scores", {}).items()
        for teacher, row in found.items()
    ]
    if rows:
        header = ["set", "teacher", "RMSE", "NLL", "log loss", "accuracy", "CPU s", "MiB"]
        print_table([*header, *(f"published: {name}" for name in PUBLISHED_NAMES)], rows)
    if "speed" in results:
        print_comparisons(results["speed"])


def kept(options) -> dict[str, Any]:
    """Results in the file that is resumed; ours only if they were measured with these defaults."""
    same = ("quick", "validation", "columns", "teacher_param")
    found = resumed(options.output, {name: getattr(options, name) for name in same})
    if found is None:
        return {}
    if not changed(found):
        return found["results"]
    scores = found["results"].get("scores", {})
    theirs = {
        name: {key: row for key, row in of_set.items() if key in PEERS}
        for name, of_set in scores.items()
    }
    return {"scores": theirs}


def in_order(of_set: dict[str, Any]) -> dict[str, Any]:
    """Rows of a set in the order of teachers, each before its student, and then of peers."""
    names = [key for name in (*OURS, *PEERS) for key in (name, f"{name}, student")]
    return {name: of_set[name] for name in names if name in of_set}


def main() -> None:
    parser, names = argument_parser(__doc__, "tables"), [*OURS, *PEERS]
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--teachers", nargs="+", default=names, choices=names)
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--validation", action="store_true", help="score on the validation part")
    parser.add_argument("--columns", default="raw", choices=["raw", "quantiles"])
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    options.teacher_param = dict(options.teacher_param)
    if options.quick:
        options.sets = ["california"]
        options.teacher_param |= {"max_epochs": 1}
    one_thread()
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume")}
    results = kept(options) if options.resume else {}
    write = partial(write_json, options.output)
    if "speed" in options.parts and "speed" not in results:
        results["speed"] = speed(options)
        write(record(settings=settings, results=results))
    scores = results.setdefault("scores", {})
    teachers = installed(options.teachers) if "scores" in options.parts else []
    for name in options.sets if teachers else ():
        rows = load(name, options.validation, options.columns)
        if options.quick:
            rows = Rows(*(part[:300] for part in rows))
        for teacher in teachers:
            of_set = scores.setdefault(name, {})
            if "peak_mib" in of_set.get(teacher, {}):
                continue
            new = in_new_process(measured, teacher, rows, options.teacher_param)
            scores[name] = in_order(of_set | {k: row | of_set.get(k, {}) for k, row in new.items()})
            write(record(settings=settings, results=results))
            print(f"{name}: {teacher}", flush=True)
    report(results)


if __name__ == "__main__":
    main()
