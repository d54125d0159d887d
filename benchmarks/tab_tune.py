# SPDX-License-Identifier: BSD-3-Clause
"""TabTune and skdistill distil the same teachers, from the same folds.

TabTune (0.2.1; arXiv 2605.18654) distils tabular models into an MLP, or LightGBM, that learns from
mean predictions for samples left out of a fit. Its distiller is called as it is, with its defaults;
its pipeline of foundation models, for which weights and forty packages are wanted, is not loaded.

teachers  random forest and CatBoost with their defaults, as_teacher's members of them, and
          BayesianEnsembleClassifier or -Regressor with its defaults
students  "TabTune MLP" and "TabTune LightGBM" learn the mean of the out-of-fold predictions, five
          folds, and the labels; "T = 1" is without the temperature, 3 and adapted by default.
          "Hydra+, same folds" learns the members of these predictions. "Hydra+" is our default:
          it learns of the fitted teacher, and of noise around the samples

Splits are those of suite.py. AUC is that of the classes against the rest, "retained" the student's
as a share of the teacher's; of numbers it is R2 instead. TabTune predicts points of numbers, whose
CRPS is their absolute error; ours is that of a Gaussian of the predicted mean and variance. "rank"
and "ratio" compare the student's epistemic part with the teacher's on test samples (Spearman's
correlation, median ratio); TabTune has no such part. Seconds are CPU seconds of one thread: of a
fit, without teacher and folds, and of predicting one sample and all test samples.

Results are written after every teacher; --resume measures what the file lacks, and all anew where
defaults have changed since.

    pip install --no-deps -r requirements/peers.txt
    python benchmarks/tab_tune.py --resume
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
import types
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import _defaults
import epistemic
import numpy as np
import suite
from _common import (
    Among,
    asked,
    interleaved,
    print_table,
    record,
    resumed,
    versions,
    write_json,
)
from _datasets import Fold
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
    predict_uncertainty,
)
from skdistill.metrics import epistemic_fidelity
from skdistill.settings import Runtime
from skdistill.teachers import as_teacher, out_of_fold_members

SETS = ("german", "fri_c0_500_10")
TEACHERS = ("forest", "CatBoost", "ensemble")
OF_TABTUNE: dict[str, dict[str, Any]] = {
    "TabTune MLP": {"student": "mlp"},
    "TabTune MLP, T = 1": {"student": "mlp", "temperature": 1.0, "adaptive_temperature": False},
    "TabTune LightGBM": {"student": "lgbm"},
}
N_FOLDS, N_ROUNDS, N_CALLS = 5, 3, 20

Row = dict[str, Any]


def timed(fit: Any, *args: Any) -> tuple[Any, float]:
    """What a call returns, and its CPU seconds."""
    start = time.process_time()
    return fit(*args), time.process_time() - start


class OutOfFold:
    """A fitted teacher, as TabTune takes it, that predicts known means for its training samples."""

    tuning_strategy = "fitted"  # so that TabTune makes no folds of its own

    def __init__(self, name: str, known: np.ndarray):
        self.model_name, self.known = name, known

    def predict(self, X):
        return self.known

    predict_proba = predict


def tabtune_student(settings: Row, teacher: OutOfFold, fold: Fold) -> Any:
    """TabTune's student with these settings."""
    pipeline = types.ModuleType("tabtune.TabularPipeline.pipeline")
    pipeline.TabularPipeline = None  # fitted teachers need none
    sys.modules.setdefault(pipeline.__name__, pipeline)
    from tabtune.distillation import TabDistiller

    logging.getLogger("tabtune").setLevel(logging.ERROR)
    task = "classification" if fold.are_classes else "regression"
    distiller = TabDistiller([teacher], task_type=task, random_state=0, **settings)
    return distiller.fit(fold.X_train, fold.y_train)


def unfitted_teacher(who: str, are_classes: bool, params: Row) -> Any:
    if who != "ensemble":
        return as_teacher(suite.peer(who, are_classes, 0))
    kind = BayesianEnsembleClassifier if are_classes else BayesianEnsembleRegressor
    return kind(random_state=0, runtime=Runtime(device="cpu"), **params)


def scores(model: Any, fold: Fold, is_ours: bool) -> Row:
    """What a teacher or a student predicts of test samples, and how long it takes."""
    X, y = fold.X_test, fold.y_test
    predict = model.predict_proba if fold.are_classes else model.predict
    found: Row = {
        key: median(interleaved({"": partial(predict, of)}, N_ROUNDS, n_calls)[""])
        for key, of, n_calls in (("one_seconds", X[:1], N_CALLS), ("all_seconds", X, 1))
    }
    predicted = np.asarray(predict(X), dtype=float)
    if fold.are_classes:
        of_second = predicted[:, 1] if predicted.shape[1] == 2 else predicted
        found["auc"] = roc_auc_score(y, of_second, multi_class="ovr")
        return found | {"log_loss": log_loss(y, predicted, labels=np.unique(fold.y_train))}
    found["r2"] = r2_score(y, predicted)
    if not is_ours:
        return found | {"crps": mean_absolute_error(y, predicted)}
    std = np.sqrt(predict_uncertainty(model, X).total)
    return found | {"crps": suite.of_numbers(y, predicted, std)["crps"]}


def run(name: str, who: str, models: list[str], quick: bool) -> Iterator[Row]:
    """A row for each of these models: a teacher and its students."""
    fold = suite.fold_of(name, 0)
    X, y, are_classes = fold.X_train, fold.y_train, fold.are_classes
    of_students = {"max_epochs": 2} if quick else {}
    of_teacher = {"n_members": 3, **of_students} if quick else {}
    unfitted = unfitted_teacher(who, are_classes, of_teacher)
    splitter = StratifiedKFold if are_classes else KFold
    folds = list(splitter(2 if quick else N_FOLDS, shuffle=True, random_state=0).split(X, y))
    members = out_of_fold_members(unfitted, X, y, cv=folds)
    known = members.mean(axis=1) if are_classes else members[..., 0].mean(axis=(1, 2))
    teacher, seconds = timed(clone(unfitted).fit, X, y)
    own = {"random_state": 0, "runtime": Runtime(device="cpu"), **of_students}
    hydra = HydraPlusClassifier if are_classes else HydraPlusRegressor
    fits = {
        **{
            student: partial(tabtune_student, settings, OutOfFold(who, known), fold)
            for student, settings in OF_TABTUNE.items()
        },
        "Hydra+, same folds": partial(hydra(**own).fit, X, y, member_predictions=members),
        "Hydra+": partial(hydra(FrozenEstimator(teacher), **own).fit, X, y),
    }
    of_teacher = scores(teacher, fold, is_ours=True)
    place = {"set": name, "teacher": who}
    yield place | {"model": "teacher", "fit_seconds": seconds, **of_teacher}
    of_parts = predict_uncertainty(teacher, fold.X_test).epistemic
    for student in (student for student in fits if student in models):
        model, seconds = timed(fits[student])
        found = scores(model, fold, is_ours=student not in OF_TABTUNE)
        key = "auc" if are_classes else "r2"
        found["retained"] = found[key] / of_teacher[key]
        if student not in OF_TABTUNE:
            own_part = predict_uncertainty(model, fold.X_test).epistemic
            found["rank"], found["ratio"], _ = epistemic_fidelity(of_parts, own_part)
        yield place | {"model": student, "fit_seconds": seconds, **found}


def identity(row: Row) -> tuple:
    """What there is one row of."""
    return row["set"], row["teacher"], row["model"]


def main() -> None:
    os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # TabTune gives LightGBM all cores
    sets = Among(list(SETS), [*suite.NUMBERS, *suite.CLASSES])
    options = asked(__doc__, sets=sets, teachers=list(TEACHERS), resume=False)
    names = ["teacher", *OF_TABTUNE, "Hydra+, same folds", "Hydra+"]
    if not find_spec("tabtune"):
        print("TabTune's students are left out: tabtune is not installed.")
        names = [name for name in names if name not in OF_TABTUNE]
    settings = {"quick": options.quick}
    found = resumed(options.output, settings) if options.resume else None
    rows = _defaults.kept(found) if found else []
    warnings.simplefilter("ignore")  # of quick runs, which have learnt nothing
    for name, who in itertools.product(options.sets, options.teachers):
        known = {identity(row) for row in rows if "older" not in row}
        todo = [
            model
            for model in names
            if (name, who, model) not in known and (name in suite.CLASSES or "T =" not in model)
        ]
        if todo:
            new = (
                {
                    key: epistemic.rounded(value)
                    for key, value in row.items()
                    if epistemic.is_known(value)
                }
                for row in run(name, who, todo, options.quick)
            )
            rows = list({identity(row): row for row in [*rows, *new]}.values())
            rows.sort(key=lambda row: (*identity(row)[:2], names.index(row["model"])))
            content = {"settings": settings, "results": rows}
            write_json(options.output, record(**content, versions=versions("tabtune")))
            print(name, who, flush=True)
    columns = list(dict.fromkeys(itertools.chain(*rows)))
    print_table(columns, [[*map(row.get, columns)] for row in rows])


if __name__ == "__main__":
    main()
