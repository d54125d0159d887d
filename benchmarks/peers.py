# SPDX-License-Identifier: BSD-3-Clause
"""Teachers and students beside the models that people use, on the same splits, in one run.

Numbers: sets of UCI with the 20 splits of uci.py (protein has 5). Classes: seven sets with the
splits of fidelity.py, and adult as tables.py has it. Columns come standardised. All of ours have
their defaults, others what their library or paper has:

teacher, student    BayesianEnsembleRegressor or -Classifier, and its Hydra+
mixed, its student  as_teacher([networks, Gaussian process, boosting], weights="oof"), and its
                    Hydra+; boosting is scikit-learn's; there is no Gaussian process of classes
NGBoost             as in its paper a fifth of the training rows tells the number of trees, of at
                    most 2,000, then all rows are fitted; only for numbers
CatBoost            RMSEWithUncertainty, of at most 1,000 trees as many as a fifth of the training
                    rows tells, then all rows are fitted. Classes: its defaults
CatBoost, virtual   the same trees as ten virtual ensembles; only for numbers
GP, RBF             scikit-learn's Gaussian process, with a length scale for each column, and
                    WhiteKernel; of a training part of more than 1,500 rows, 1,500 drawn at random
GP, Matern          likewise, with Matern's kernel of nu = 1.5
HGB, LightGBM       five models of the quantiles .05, .25, .5, .75 and .95. Mean and variance are
                    those of teachers.QuantileModels, NLL and CRPS those of the Gaussian that has
                    them; intervals lie between the outer quantiles. Classes: one classifier
RealMLP, TabM       pytabkit's (TD and D), which predict means: NLL, CRPS and intervals are those of
                    a Gaussian with their mean squared residual on the fifth of the training rows
                    that tells them when to stop

Times are CPU seconds of one thread: of a fit (a student's without its teacher's), and of one row's
mean and spread, for which the models of a split take turns. Bytes are those of pickle.

A model whose library is not installed is left out, and a line says so. All libraries, into an
environment that has skdistill:

    pip install --no-deps -r requirements/peers.txt

Results are written after every split. With --resume those in the file stay, what it lacks is
measured, and models of ours anew where defaults have changed since; with --also results in the
files of other runs, on the same machine, are put beside them.
With --validation the last part of the training rows takes the place of the test rows.

    python benchmarks/peers.py
    python benchmarks/peers.py --sets boston energy --models NGBoost teacher student --splits 5
    python benchmarks/peers.py --models TabM --resume --also other.json
"""

from __future__ import annotations

import inspect
import logging
import pickle
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import _defaults
import fidelity
import numpy as np
import scale
import tables
import uci
from _common import (
    argument_parser,
    interleaved,
    one_thread,
    print_table,
    record,
    resumed,
    versions,
    write_json,
)
from fidelity import Rows
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.distributions import EmpiricalGaussian
from skdistill.metrics import crps, interval_coverage, mixture_nll
from skdistill.settings import Runtime
from skdistill.teachers import QuantileModels, as_teacher

OF_NUMBERS = ("boston", "concrete", "energy", "power-plant", "wine", "yacht", "kin8nm", "protein")
OF_CLASSES = (
    "digits", "spambase", "satimage", "pendigits", "magic", "letter", "covtype20k", "adult",
)  # fmt: skip
N_SPLITS = {"protein": 5, "magic": 2, "letter": 2, "covtype20k": 2, "adult": 1}  # of others:
N_SPLITS_OF_NUMBERS, N_SPLITS_OF_CLASSES = 20, 5

SHARE = 0.2  # of the training rows, for models that choose when to stop
PATIENCE = 50  # trees of NGBoost that may not improve
NGBOOST_TREES = 2000  # at most
FEWEST_CATBOOST_TREES = 20  # that ten virtual ensembles can be made of
GP_ROWS = 1500
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
N_ROUNDS, N_CALLS = 3, 5  # of predictions of one row
N_QUICK = 80  # rows

SCORES = {True: ("log_loss", "accuracy"), False: ("nll", "crps", "rmse", "coverage_90")}
LESS_IS_BETTER = ("nll", "crps", "rmse", "log_loss")
COSTS = ("fit_seconds", "row_seconds", "bytes")


# Contenders ---------------------------------------------------------------------------------------


class GaussianProcess(GaussianProcessRegressor):
    """Exact, of at most GP_ROWS rows; one of more rows would take hours.

    It is a subclass since the teacher's members are found by the type.
    """

    def fit(self, X, y):
        if len(X) > GP_ROWS:
            rows = check_random_state(self.random_state).choice(len(X), GP_ROWS, replace=False)
            X, y = X[rows], y[rows]
        with warnings.catch_warnings():  # a length scale at its bound is an irrelevant column
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)


def processes(kernel: Callable[..., Any], rows: Rows, seed: int) -> GaussianProcess:
    """A process that is not fitted."""
    return uci.gaussian_process(kernel, rows.X_train.shape[1], seed, kind=GaussianProcess)


def networks(rows: Rows, seed: int):
    kind = BayesianEnsembleClassifier if rows.are_classes else BayesianEnsembleRegressor
    return kind(random_state=seed, runtime=Runtime(device="cpu")).fit(rows.X_train, rows.y_train)


def mixed(rows: Rows, seed: int):
    if rows.are_classes:
        kinds = [
            BayesianEnsembleClassifier(runtime=Runtime(device="cpu")),
            HistGradientBoostingClassifier(),
        ]
    else:
        kinds = [
            BayesianEnsembleRegressor(runtime=Runtime(device="cpu")),
            processes(RBF, rows, seed),
            HistGradientBoostingRegressor(),
        ]
    teacher = as_teacher(kinds, weights="oof").set_params(estimator__random_state=seed)
    return teacher.fit(rows.X_train, rows.y_train)


def student(rows: Rows, seed: int, teacher, **settings):
    """Hydra+ of a fitted teacher, or with `teacher_cv` of one that is not fitted."""
    kind = HydraPlusClassifier if rows.are_classes else HydraPlusRegressor
    teacher = teacher if "teacher_cv" in settings else FrozenEstimator(teacher)
    model = kind(teacher, random_state=seed, runtime=Runtime(device="cpu"), **settings)
    return model.fit(rows.X_train, rows.y_train)


def process(kernel: Callable[..., Any], rows: Rows, seed: int):
    return processes(kernel, rows, seed).fit(rows.X_train, rows.y_train)


def held_out(rows: Rows, seed: int) -> list[np.ndarray]:
    """Rows to learn from, rows that tell when to stop, and the targets of both."""
    stratify = rows.y_train if rows.are_classes else None
    return train_test_split(
        rows.X_train, rows.y_train, test_size=SHARE, random_state=seed, stratify=stratify
    )


def ngboost(rows: Rows, seed: int):
    X, X_stop, y, y_stop = held_out(rows, seed)
    model = scale.ng_boost().set_params(n_estimators=NGBOOST_TREES, random_state=seed)
    model.fit(X, y, X_val=X_stop, Y_val=y_stop, early_stopping_rounds=PATIENCE)
    # It counts from 0, and knows no best number where all trees were wanted.
    best = NGBOOST_TREES if model.best_val_loss_itr is None else model.best_val_loss_itr + 1
    model = scale.ng_boost().set_params(n_estimators=best, random_state=seed)
    model.n_trees_ = best  # scikit-learn tells by such a name that a model is fitted; it has none
    return model.fit(rows.X_train, rows.y_train)


def catboost(rows: Rows, seed: int):
    if rows.are_classes:
        from catboost import CatBoostClassifier

        model = CatBoostClassifier(
            thread_count=1, verbose=0, allow_writing_files=False, random_seed=seed
        )
        return model.fit(rows.X_train, rows.y_train)
    return OneGaussian(regressing_catboost(rows, seed)).fit(rows.X_train, rows.y_train)


def virtual_catboost(rows: Rows, seed: int):
    return regressing_catboost(rows, seed).fit(rows.X_train, rows.y_train)


def regressing_catboost(rows: Rows, seed: int):
    """A regressor that is not fitted, of as many trees as the rows held out tell."""
    X, X_stop, y, y_stop = held_out(rows, seed)
    model = scale.cat_boost().set_params(random_seed=seed)
    best = model.fit(X, y, eval_set=(X_stop, y_stop)).get_best_iteration() + 1
    n_trees = max(best, FEWEST_CATBOOST_TREES)
    return scale.cat_boost().set_params(random_seed=seed, iterations=n_trees)


class OneGaussian(RegressorMixin, BaseEstimator):
    """CatBoost by its own mean and variance; of itself a teacher reads its virtual ensembles."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.model_ = clone(self.model).fit(X, y)
        return self

    def predict(self, X, return_std=False):
        mean, std = scale.of_cat_boost(self.model_, X)
        return (mean, std) if return_std else mean


def boosted_histograms(rows: Rows, seed: int):
    if rows.are_classes:
        model = HistGradientBoostingClassifier(random_state=seed)
        return model.fit(rows.X_train, rows.y_train)
    make = partial(HistGradientBoostingRegressor, loss="quantile", random_state=seed)
    models = QuantileModels([make(quantile=level) for level in LEVELS], LEVELS)
    return models.fit(rows.X_train, rows.y_train)


def lightgbm(rows: Rows, seed: int):
    if rows.are_classes:
        from lightgbm import LGBMClassifier

        model = LGBMClassifier(n_jobs=1, verbose=-1, random_state=seed)
        return model.fit(rows.X_train, rows.y_train)
    settings = {"objective": "quantile", "random_state": seed}
    models = [scale.light_gbm().set_params(alpha=level, **settings) for level in LEVELS]
    return QuantileModels(models, LEVELS).fit(rows.X_train, rows.y_train)


def pytabkit(name: str, rows: Rows, seed: int):
    from pytabkit.models.sklearn import sklearn_interfaces

    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
    kind = getattr(
        sklearn_interfaces, f"{name}_{'Classifier' if rows.are_classes else 'Regressor'}"
    )
    X, X_stop, y, y_stop = held_out(rows, seed)
    return kind(device="cpu", random_state=seed, n_threads=1).fit(X, y, X_stop, y_stop)


class Contender(NamedTuple):
    """How a model is fitted to rows with a seed, and to its teacher where it has one."""

    fit: Callable[..., Any]
    package: str = "skdistill"
    teacher: str | None = None
    of_classes: bool = True


CONTENDERS = {
    "teacher": Contender(networks),
    "student": Contender(student, teacher="teacher"),
    "mixed": Contender(mixed),
    "its student": Contender(student, teacher="mixed"),
    "NGBoost": Contender(ngboost, "ngboost", of_classes=False),
    "CatBoost": Contender(catboost, "catboost"),
    "CatBoost, virtual": Contender(virtual_catboost, "catboost", of_classes=False),
    "GP, RBF": Contender(partial(process, RBF), "scikit-learn", of_classes=False),
    "GP, Matern": Contender(partial(process, Matern), "scikit-learn", of_classes=False),
    "HGB": Contender(boosted_histograms, "scikit-learn"),
    "LightGBM": Contender(lightgbm, "lightgbm"),
    "RealMLP": Contender(partial(pytabkit, "RealMLP_TD"), "pytabkit"),
    "TabM": Contender(partial(pytabkit, "TabM_D"), "pytabkit"),
}
OURS = tuple(name for name, contender in CONTENDERS.items() if contender.package == "skdistill")


def installed(names: Iterable[str]) -> list[str]:
    """The contenders whose package is there; of the others a line is printed."""
    there = versions()
    for name in names:
        if CONTENDERS[name].package not in there:
            print(f"{name} is left out: {CONTENDERS[name].package} is not installed.")
    return [name for name in names if CONTENDERS[name].package in there]


# One split ----------------------------------------------------------------------------------------


def load(name: str, split: int, options) -> Rows:
    """Rows of a split; a few of them if it is only to be seen that all runs."""
    if name == "adult":
        rows = Rows(**tables.load(name, options.validation)._asdict())
    else:
        rows = fidelity.load(name, split, options.validation)
    return Rows(*(part[:N_QUICK] for part in rows)) if options.quick else rows


def run_split(name: str, split: int, wanted: Sequence[str], options) -> list[dict[str, Any]]:
    """A row of results for each contender that is wanted."""
    rows = load(name, split, options)
    wanted = [key for key in wanted if CONTENDERS[key].of_classes or not rows.are_classes]
    models: dict[str, tuple[Any, float]] = {}
    for key in wanted:
        fit(key, rows, split, models)
    one = {key: partial(answer(models[key][0]), rows.X_test[:1]) for key in wanted}
    seconds = interleaved(one, N_ROUNDS, N_CALLS)
    there = versions()
    return [
        {
            "set": name,
            "split": split,
            "model": key,
            "version": there[CONTENDERS[key].package],
            "n_rows": len(rows.X_train),
            **scored(models[key][0], rows, split),
            "fit_seconds": models[key][1],
            "row_seconds": median(seconds[key]),
            "bytes": len(pickle.dumps(models[key][0])),
        }
        for key in wanted
    ]


def fit(key: str, rows: Rows, seed: int, models: dict[str, tuple[Any, float]]) -> Any:
    """A contender's model, which with its CPU seconds is kept in `models`; its teacher's too."""
    if key not in models:
        contender = CONTENDERS[key]
        teachers = [fit(contender.teacher, rows, seed, models)] if contender.teacher else []
        start = time.process_time()
        model = contender.fit(rows, seed, *teachers)
        models[key] = model, time.process_time() - start
    return models[key][0]


def answer(model) -> Callable[[np.ndarray], Any]:
    """What predicts all that a model tells of rows: probabilities, or mean and spread."""
    if is_classifier(model):
        return model.predict_proba
    if hasattr(model, "pred_dist"):
        return model.pred_dist
    if "return_std" in inspect.signature(model.predict).parameters:
        return partial(model.predict, return_std=True)
    return getattr(model, "predict_uncertainty", model.predict)


def scored(model, rows: Rows, seed: int) -> dict[str, float]:
    """SCORES on the test rows."""
    X, y = rows.X_test, rows.y_test
    if rows.are_classes:
        proba = model.predict_proba(X)
        return {
            "log_loss": log_loss(y, proba, labels=model.classes_),
            "accuracy": accuracy_score(y, model.classes_[proba.argmax(axis=1)]),
        }
    # The rows held out tell the variance of models that predict none; others have their own.
    _, X_unseen, _, y_unseen = held_out(rows, seed)
    teacher = as_teacher(FrozenEstimator(model)).fit(X_unseen, y_unseen)
    members = skdistill.predict_members(teacher, X)  # (n, S, 1, 2)
    return {
        "nll": mixture_nll(y, members),
        "crps": crps(y, members),
        "rmse": root_mean_squared_error(y, members[:, :, 0, 0].mean(axis=1)),
        "coverage_90": interval_coverage(y, interval(model, members, X)),
    }


def interval(model, members: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Central 90 % intervals: of models of quantiles those that they predict."""
    if not isinstance(model, QuantileModels):
        return EmpiricalGaussian.from_members(members).interval(0.9)[:, 0].numpy()
    ends = [model.models_[i].predict(X) for i in (0, -1)]
    return np.sort(np.stack(ends, axis=1), axis=1)


# Tables -------------------------------------------------------------------------------------------


def by_model(results: list[dict[str, Any]], are_classes: bool) -> dict[tuple[str, str], list[dict]]:
    """Rows by set and model, in the order of OF_NUMBERS or OF_CLASSES, and of CONTENDERS."""
    found: dict[tuple[str, str], list[dict]] = {
        (name, model): []
        for name in (OF_CLASSES if are_classes else OF_NUMBERS)
        for model in CONTENDERS
    }
    for row in sorted(results, key=lambda row: row["split"]):
        if (row["set"], row["model"]) in found:
            found[row["set"], row["model"]].append(row)
    return {key: rows for key, rows in found.items() if rows}


def mean_and_error(rows: list[dict[str, Any]], score: str) -> tuple[float, float | None]:
    """Mean over splits, and its standard error if there are several."""
    values = [row[score] for row in rows]
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return mean(values), error


def verdict(ours: list[dict], theirs: list[dict], score: str) -> str | None:
    """Whether ours wins, ties or loses on the splits of a set that both have, at least two.

    It wins or loses where the mean of the differences is more than twice its standard error.
    """
    other = {row["split"]: row[score] for row in theirs}
    gaps = [row[score] - other[row["split"]] for row in ours if row["split"] in other]
    if len(gaps) < 2:
        return None
    limit = 2 * stdev(gaps) / len(gaps) ** 0.5
    gap = mean(gaps) if score in LESS_IS_BETTER else -mean(gaps)
    return "tie" if abs(gap) <= limit else "win" if gap < 0 else "loss"


def contests(results: list[dict[str, Any]], are_classes: bool) -> list[Contest]:
    """Each of ours against each peer with which it has a set in common, by all scores."""
    found = by_model(results, are_classes)
    names = dict.fromkeys(name for name, _ in found)
    rows = []
    for ours in OURS:
        for peer in (name for name in CONTENDERS if name not in OURS):
            pairs = {
                name: [found.get((name, model), []) for model in (ours, peer)] for name in names
            }
            by_score = {
                score: {name: verdict(*pair, score) for name, pair in pairs.items()}
                for score in SCORES[are_classes]
                if score != "coverage_90"
            }
            contest = Contest(ours, peer, by_score)
            if any(any(said.values()) for said in by_score.values()):
                rows.append(contest)
    return rows


class Contest(NamedTuple):
    """What one of ours wins, ties and loses against a peer: by score, the verdict on each set."""

    ours: str
    peer: str
    verdicts: dict[str, dict[str, str | None]]

    def counts(self) -> list[str]:
        """By score, the numbers of sets won, tied and lost, and which were lost."""
        return [self._count(said) for said in self.verdicts.values()]

    @staticmethod
    def _count(said: dict[str, str | None]) -> str:
        values = list(said.values())
        numbers = " / ".join(str(values.count(kind)) for kind in ("win", "tie", "loss"))
        lost = ", ".join(name for name, kind in said.items() if kind == "loss")
        return f"{numbers} ({lost})" if lost else numbers


def report(results: list[dict[str, Any]]) -> None:
    for are_classes in (False, True):
        scores = SCORES[are_classes]
        rows = [
            [*key, len(found), *(mean_and_error(found, s)[0] for s in (*scores, *COSTS))]
            for key, found in by_model(results, are_classes).items()
        ]
        if rows:
            print_table(["set", "model", "splits", *scores, "fit s", "row s", "bytes"], rows)
        if won := contests(results, are_classes):
            print("\nWins / ties / losses over sets (those lost)")
            table = [[contest.ours, contest.peer, *contest.counts()] for contest in won]
            print_table(["ours", "peer", *won[0].verdicts], table)


# The run ------------------------------------------------------------------------------------------


def kept(
    path: Path,
    settings: dict[str, Any],
    same: Sequence[str] = (),
    ours: Sequence[str] = OURS,
) -> list[dict[str, Any]]:
    """Rows of a file, if they can stand beside those of this run.

    Besides the machine and what is always asked, settings that `same` names have to be the same.
    """
    found = resumed(path, {name: settings[name] for name in ("validation", "quick", *same)})
    return [] if found is None else _defaults.kept(found, ours)


def joined(paths: list[Path], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of several files; of two of one model and split the first."""
    found: dict[tuple, dict[str, Any]] = {}
    for row in (row for path in paths for row in kept(path, settings)):
        found.setdefault(identity(row), row)
    return list(found.values())


def identity(row: dict[str, Any]) -> tuple:
    """What there is one row of."""
    return row["set"], row["split"], row["model"]


def n_splits(name: str) -> int:
    """How many splits of a set are run by default."""
    default = N_SPLITS_OF_CLASSES if name in OF_CLASSES else N_SPLITS_OF_NUMBERS
    return N_SPLITS.get(name, default)


def main() -> None:
    parser = argument_parser(__doc__, "peers")
    sets = OF_NUMBERS + OF_CLASSES
    parser.add_argument("--sets", nargs="+", default=list(sets), choices=sets)
    parser.add_argument("--models", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--splits", type=int, help="of every set at most (default: see above)")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument(
        "--also", nargs="+", default=[], type=Path, help="files of other runs, to be joined"
    )
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    options = parser.parse_args()
    if options.quick:
        options.sets, options.splits = options.sets[:1], 1
    one_thread()
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume", "also")}
    results = joined([options.output] * options.resume + options.also, settings)
    known = {identity(row) for row in results if "older" not in row}
    models = installed(options.models)
    for name in options.sets:
        for split in range(min(options.splits or n_splits(name), n_splits(name))):
            wanted = [model for model in models if (name, split, model) not in known]
            try:
                rows = run_split(name, split, wanted, options)
            except OSError as error:
                print(f"{name} is left out: {error}")
                break
            results = _defaults.replaced(results, rows, identity)
            print(f"{name}, split {split}: {', '.join(wanted) or 'nothing to do'}", flush=True)
            write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
