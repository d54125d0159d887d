# SPDX-License-Identifier: BSD-3-Clause
"""Models that learn in context (TabPFN, TabICL), their students, and our ensemble beside them.

Nothing is stored in results/: the weights of these models have not been at hand. Whoever has them
measures with one command,

    pip install tabpfn                        # and its weights, see its documentation
    python benchmarks/foundation.py --model tabpfn --param device=cuda
    python benchmarks/foundation.py --model tabicl --sets magic california --context 5000 --resume

or any classifier and regressor with scikit-learn's interface:

    python benchmarks/foundation.py --model sklearn.neighbors:KNeighborsClassifier \\
        --regressor sklearn.linear_model:BayesianRidge

model              the model, with at most --context training samples in its context
student            Hydra+ of it, with defaults and teacher_cv=--folds: about each training sample
                   answers a model whose context does not hold it
in-sample student  Hydra+ of the same model with all samples in its context
ensemble           skdistill's default ensemble, fitted on the same samples

All are scored on at most --test test samples; the model is asked about --batch samples at a time.
AUC is that of one class against the rest. NLL is that of a Gaussian with the model's mean and
variance, which is what a student learns; CRPS is that of the model's quantiles where it predicts
them, else of its Gaussian, and of the mixture of members for our models. Gaps are what a student
scores less the model. Times are seconds on the clock with as many threads as each model takes:
of a fit (a student's with its teacher's and all answers), and of predictions of one sample and of
1,000. Memory is the most that the process held during fit and scores, and that torch allocated on
the GPU. Students and ensemble run on the CPU.

With --resume sets of the file that are complete stay. With --validation the last part of the
training samples takes the place of the test samples.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean, median
from typing import Any

import _defaults
import fidelity
import numpy as np
import tables
import torch
from _common import (
    PeakOfProcesses,
    argument_parser,
    interleaved,
    parameter,
    print_table,
    record,
    resumed,
    write_json,
)
from fidelity import Rows
from scipy.integrate import trapezoid
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, root_mean_squared_error

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
    predict_members,
    predict_uncertainty,
)
from skdistill.metrics import crps, mixture_nll
from skdistill.settings import Runtime
from skdistill.teachers import Teacher, as_teacher
from skdistill.teachers._predictive import predicted_quantiles
from skdistill.teachers._rows_and_folds import in_batches

KNOWN = {
    "tabpfn": ("tabpfn:TabPFNClassifier", "tabpfn:TabPFNRegressor"),
    "tabicl": ("tabicl:TabICLClassifier", "tabicl:TabICLRegressor"),
}
OF_CLASSES = ("spambase", "satimage", "pendigits", "magic", "adult")  # at most ten classes
OF_NUMBERS = ("boston", "concrete", "energy", "wine", "power-plant", "california")
QUICK = ("spambase", "boston")

MODELS = ("model", "student", "in-sample student", "ensemble")
OURS = MODELS[1:]
SCORES = {True: ("auc", "log_loss", "accuracy"), False: ("crps", "nll", "rmse")}
COSTS = ("fit_seconds", "row_seconds", "thousand_seconds", "peak_mib", "gpu_peak_mib")
N_ROUNDS, N_MANY, N_TRIED, N_QUICK = 3, 1000, 100, 80

# Settings that have to be the same for results to stand in one file.
SAME = ("model", "regressor", "param", "regressor_param", "context", "test", "folds", "gpu")


def class_at(path: str) -> Callable[..., Any]:
    """The class that ``module:Class`` names; the script ends if there is none."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0]
        raise SystemExit(f"{path} cannot be imported ({error}): pip install {package}") from error


def unfitted(rows: Rows, options: Any) -> Teacher:
    """The model as a teacher, for samples of this kind."""
    path = options.model if rows.are_classes else options.regressor
    params = options.param if rows.are_classes else options.param | options.regressor_param
    return as_teacher(class_at(path)(**params), batch_size=options.batch)


def try_out(model: Teacher, rows: Rows) -> None:
    """Fit a few samples; the script ends if the model cannot, which lacks its weights, say."""
    try:
        model.fit(rows.X_train[:N_TRIED], rows.y_train[:N_TRIED]).predict(rows.X_test[:1])
    except Exception as error:  # of any kind, as packages of others raise it
        kind = type(model.estimator)
        raise SystemExit(
            f"{kind.__name__} cannot be fitted: {type(error).__name__}: {error}\n"
            f"If its weights are missing, get them as the documentation of "
            f"{kind.__module__.partition('.')[0]} says, or name a file, such as "
            "--param model_path=classifier.ckpt --regressor-param model_path=regressor.ckpt"
        ) from error


def load(name: str, split: int, options: Any) -> Rows:
    """Samples of a split, at most as many as fit the context and are to be scored."""
    if name == "adult":
        rows = Rows(**tables.load(name, options.validation)._asdict())
    else:
        rows = fidelity.load(name, split, options.validation)
    if options.quick:
        rows = Rows(*(part[:N_QUICK] for part in rows))
    rng = np.random.default_rng(split)
    train = np.sort(rng.permutation(len(rows.X_train))[: options.context])
    test = np.sort(rng.permutation(len(rows.X_test))[: options.test])
    return Rows(rows.X_train[train], rows.X_test[test], rows.y_train[train], rows.y_test[test])


def scored(model: Any, rows: Rows) -> dict[str, float]:
    """SCORES on the test samples."""
    X, y = rows.X_test, rows.y_test
    if rows.are_classes:
        proba, labels = model.predict_proba(X), model.classes_
        column = proba[:, 1] if proba.shape[1] == 2 else proba
        return {
            "log_loss": log_loss(y, proba, labels=labels),
            "accuracy": accuracy_score(y, labels[proba.argmax(axis=1)]),
            "auc": roc_auc_score(y, column, multi_class="ovr", labels=labels),
        }
    members = predict_members(model, X)
    own = crps_of_quantiles(model, X, y) if isinstance(model, Teacher) else None
    return {
        "nll": mixture_nll(y, members),
        "crps": crps(y, members) if own is None else own,
        "rmse": root_mean_squared_error(y, members[:, :, 0, 0].mean(axis=1)),
    }


def student(rows: Rows, seed: int, teacher: Teacher, **settings: Any) -> Any:
    """Hydra+ of a fitted teacher, or with `teacher_cv` of one that is not fitted."""
    kind = HydraPlusClassifier if rows.are_classes else HydraPlusRegressor
    teacher = teacher if settings else FrozenEstimator(teacher)
    model = kind(teacher, random_state=seed, runtime=Runtime(device="cpu"), **settings)
    return model.fit(rows.X_train, rows.y_train)


def ensemble(rows: Rows, seed: int) -> Any:
    kind = BayesianEnsembleClassifier if rows.are_classes else BayesianEnsembleRegressor
    model = kind(random_state=seed, runtime=Runtime(device="cpu"))
    return model.fit(rows.X_train, rows.y_train)


def answer(model: Any) -> Callable[[np.ndarray], Any]:
    """What predicts probabilities, or the parts of the variance."""
    return model.predict_proba if is_classifier(model) else partial(predict_uncertainty, model)


def crps_of_quantiles(teacher: Teacher, X: np.ndarray, y: np.ndarray) -> float | None:
    """CRPS of the quantiles that the model predicts, by the trapezoidal rule; None without."""
    model = teacher.estimator_
    found = predicted_quantiles(model, X[:1])
    if found is None:
        return None
    order, levels = np.argsort(found[1]), np.sort(found[1])
    quantiles = in_batches(lambda rows: predicted_quantiles(model, rows)[0], X, teacher.batch_size)
    gaps = y[:, None] - quantiles[:, order]
    losses = np.maximum(levels * gaps, (levels - 1) * gaps).mean(axis=0)
    return 2 * float(trapezoid([0, *losses, 0], [0, *levels, 1]))


def measured(name: str, split: int, options: Any) -> Iterator[dict[str, Any]]:
    """A row of results for each of MODELS."""
    rows = load(name, split, options)
    model = unfitted(rows, options)
    try_out(model, rows)
    fits = {
        "model": lambda: model.fit(rows.X_train, rows.y_train),
        "student": lambda: student(rows, split, clone(model), teacher_cv=options.folds),
        "in-sample student": lambda: student(rows, split, model),
        "ensemble": lambda: ensemble(rows, split),
    }
    has_gpu, models, found = torch.cuda.is_available(), {}, {}
    for key, fit in fits.items():
        if has_gpu:
            torch.cuda.reset_peak_memory_stats()
        with PeakOfProcesses() as peak:
            start = time.perf_counter()
            models[key] = fit()
            seconds = time.perf_counter() - start
            scores = scored(models[key], rows)
        found[key] = {
            **scores,
            "fit_seconds": seconds,
            "peak_mib": peak.mib,
            "gpu_peak_mib": torch.cuda.max_memory_allocated() / 2**20 if has_gpu else None,
        }
        if "student" in key:
            found[key]["gap"] = {k: scores[k] - found["model"][k] for k in scores}
    many = rows.X_test[np.arange(N_MANY) % len(rows.X_test)]
    for cost, X in (("row_seconds", many[:1]), ("thousand_seconds", many)):
        calls = {key: partial(answer(models[key]), X) for key in MODELS}
        times = interleaved(calls, N_ROUNDS, clock=time.perf_counter)
        for key in MODELS:
            found[key][cost] = median(times[key])
    sizes = {"n_context": len(rows.X_train), "n_test": len(rows.X_test)}
    for key in MODELS:
        yield {"set": name, "split": split, "model": key, **sizes, **found[key]}


def report(results: list[dict[str, Any]]) -> None:
    """Print means over splits, of classes and of numbers."""
    for are_classes, names in ((True, OF_CLASSES), (False, OF_NUMBERS)):
        columns, table = [*SCORES[are_classes], *COSTS], []
        for name, model in ((name, model) for name in names for model in MODELS):
            rows = [row for row in results if (row["set"], row["model"]) == (name, model)]
            gaps = [row["gap"] for row in rows if "gap" in row]
            if rows:
                values = [mean_of(rows, column) for column in columns]
                table.append([name, model, *values, *(mean_of(gaps, k) for k in columns[:3])])
        if table:
            print_table(["set", "model", *columns, *(f"{k} gap" for k in columns[:3])], table)


def mean_of(rows: list[dict[str, Any]], name: str) -> float | None:
    """Mean over splits; None where nothing was measured."""
    values = [row[name] for row in rows]
    return mean(values) if values and None not in values else None


def main() -> None:
    parser = argument_parser(__doc__, "foundation")
    sets = OF_CLASSES + OF_NUMBERS
    parser.add_argument("--model", required=True, help="tabpfn, tabicl or module:Classifier")
    parser.add_argument("--regressor", help="module:Regressor; without one no set of numbers")
    parser.add_argument("--param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--regressor-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--sets", nargs="+", default=list(sets), choices=sets)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--context", type=int, default=10_000, help="training samples at most")
    parser.add_argument("--test", type=int, default=5_000, help="test samples at most")
    parser.add_argument("--batch", type=int, default=1000, help="samples asked at a time")
    parser.add_argument("--folds", type=int, default=5, help="of the student's teacher_cv")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    options = parser.parse_args()
    options.model, regressor = KNOWN.get(options.model, (options.model, None))
    options.regressor = options.regressor or regressor
    options.param, options.regressor_param = dict(options.param), dict(options.regressor_param)
    if options.quick:
        options.sets = [name for name in options.sets if name in QUICK]
        options.splits, options.folds = 1, 2
    if not options.regressor:
        options.sets = [name for name in options.sets if name in OF_CLASSES]
    warnings.simplefilter("ignore")
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume")}
    settings["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    same = {name: settings[name] for name in ("validation", "quick", *SAME)}
    found = resumed(options.output, same) if options.resume else None
    results = [] if found is None else _defaults.kept(found, OURS)
    for unit in ((name, split) for name in options.sets for split in range(options.splits)):
        known = [row for row in results if (row["set"], row["split"]) == unit]
        if {row["model"] for row in known if "older" not in row} == {*MODELS}:
            print(f"{unit[0]}, split {unit[1]}: nothing to do", flush=True)
            continue
        results = [row for row in results if row not in known] + [*measured(*unit, options)]
        print(f"{unit[0]}, split {unit[1]}: measured", flush=True)
        write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
