# SPDX-License-Identifier: BSD-3-Clause
"""Teachers on larger tables, on the parts that TabM was measured on, and what TabM costs.

california  RMSE in 100,000 dollars, 13,209 rows to train on
house       RMSE in dollars, 14,581 rows
adult       log loss, 26,048 rows, in parts of our own of the standard training rows

Teachers have skdistill's defaults but for what their name says: "tuned" is
DeepEnsemble(tune="oob"), "mixed" as_teacher("auto"), "boosting" scikit-learn's histogram gradient
boosting with its defaults. A student, Hydra+, is that of the teacher before it. Columns of numbers
are given as they are, which estimators standardise, or with --columns quantiles turned into normal
ones by their quantiles, as TabM's authors do; columns of categories are one-hot. Nothing was
decided on test rows: --validation scores on the validation part. The published figures are those of
Gorishniy et al. (2025), means over seeds, whose settings were tuned for each table.

"speed" is the time of a fit of TabM with its 32 members beside that of an ensemble of one network
of the same hidden units, both with their default amounts of training: CPU seconds of one thread, in
turn.

    python benchmarks/tables.py
    python benchmarks/tables.py --sets adult --teachers "TabM, full" --validation
    python benchmarks/tables.py --columns quantiles
    python benchmarks/tables.py --parts speed
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from _common import (
    argument_parser,
    arrays,
    comparison,
    interleaved,
    made_up_table,
    one_thread,
    parameter,
    print_comparisons,
    print_table,
    record,
    write_json,
)
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
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
from skdistill.teachers import as_teacher

PARTS = ("scores", "speed")

TEACHERS: dict[str, dict[str, Any]] = {
    "default": {},
    "tuned": {"inference": DeepEnsemble(tune="oob")},
    "TabM": {"module": TabM, "n_members": 32},
    "TabM, full": {"module": TabM, "n_members": 32, "module__mini": False},
}
OTHERS = ("boosting", "mixed")

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
    if name in OTHERS:
        if name == "boosting":
            trees = HistGradientBoostingClassifier if are_classes else HistGradientBoostingRegressor
            return trees(random_state=0)
        task = "classification" if are_classes else "regression"
        return as_teacher("auto", task=task).set_params(estimator__random_state=0)
    kind = BayesianEnsembleClassifier if are_classes else BayesianEnsembleRegressor
    settings = {**TEACHERS[name], **more}
    return kind(random_state=0, runtime=Runtime(device="cpu"), **settings)


def run(rows: Rows, options) -> dict[str, dict[str, float]]:
    """What each teacher scores on a table, and what its fit costs."""
    results = {}
    for name in options.teachers:
        model = unfitted(name, rows.are_classes, options.teacher_param)
        results[name] = fitted_and_scored(model, rows)
        if name in WITH_STUDENT:
            student = HydraPlusClassifier if rows.are_classes else HydraPlusRegressor
            model = student(FrozenEstimator(model), random_state=0, runtime=Runtime(device="cpu"))
            results[f"{name}, student"] = fitted_and_scored(model, rows)
    return results


def fitted_and_scored(model, rows: Rows) -> dict[str, float]:
    """What a model scores, and what its fit costs, without that of a fitted teacher."""
    start = time.process_time()
    model.fit(rows.X_train, rows.y_train)
    found = {"cpu_seconds": time.process_time() - start, **scored(model, rows)}
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
    rows = []
    for name, found in results.get("scores", {}).items():
        for teacher, row in found.items():
            numbers = [row.get(key) for key in ("rmse", "nll", "log_loss", "accuracy")]
            rows.append([name, teacher, *numbers, row["cpu_seconds"], *PUBLISHED[name]])
    if rows:
        header = ["set", "teacher", "RMSE", "NLL", "log loss", "accuracy", "CPU s"]
        print_table([*header, *(f"published: {name}" for name in PUBLISHED_NAMES)], rows)
    if "speed" in results:
        print_comparisons(results["speed"])


def main() -> None:
    parser, names = argument_parser(__doc__, "tables"), [*TEACHERS, *OTHERS]
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--teachers", nargs="+", default=names, choices=names)
    parser.add_argument("--validation", action="store_true", help="score on the validation part")
    parser.add_argument("--columns", default="raw", choices=["raw", "quantiles"])
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    options.teacher_param = dict(options.teacher_param)
    if options.quick:
        options.sets = ["california"]
        options.teacher_param |= {"max_epochs": 1}
    one_thread()
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, Any] = {}
    if "speed" in options.parts:
        results["speed"] = speed(options)
    for name in options.sets if "scores" in options.parts else ():
        rows = load(name, options.validation, options.columns)
        if options.quick:
            rows = Rows(*(part[:300] for part in rows))
        results.setdefault("scores", {})[name] = run(rows, options)
        write_json(options.output, record(settings=settings, results=results))
    write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
