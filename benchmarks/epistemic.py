# SPDX-License-Identifier: BSD-3-Clause
"""Is the epistemic part what more samples would remove? Halves, known truth and learning curves.

halves  two fits to disjoint samples, n each: the squared difference of their means on at most 1,000
        others against the sum of their epistemic variances. Tables of numbers, with y of deviation
        1, and of classes, with squared distances of mean probabilities and variances of members'
truth   a fit to n samples of each of six known functions of normal features: the squared error of
        its mean, without noise, on 1,000 others against its epistemic variance
curve   a fit to n samples and one to 12 n, or what the table has: the error of the latter stands
        for what remains. Its ratio to the aleatoric part of the former, and that of the epistemic
        part to what the latter removes

Small tables have fewer samples in each half; "n_train" tells how many.

teacher   BayesianEnsembleRegressor or -Classifier
hydra     its Hydra+; gaussian, dirichlet: its DistributionDistiller of this family
plain     a plain deep ensemble: the teacher without embeddings, calibration and perturbations
gp        exact Gaussian process with a length scale for each feature and white noise, standardised
          features, at most 1,000 training samples: not beyond
unperturbed, bagging  the teacher with DeepEnsemble(bootstrap=False), (bootstrap=True)
dropout   MC dropout
sgld      a Markov chain by SGLD
trees     trees of a random forest of scikit-learn
forest    the same as a teacher, on the scale of halves
virtual   CatBoost's virtual ensembles, with their own variance; classes have none
catboost  CatBoost as a teacher, on the scale of halves
mixed     MixedModels("auto"): the teacher, trees, and of numbers a GP or logistic regression

Models have their defaults and random_state=0. Scores are those of
skdistill.metrics.epistemic_calibration: `cover` is the share within 90 % intervals, `low` and
`high` the least and the largest ratio of stated to seen in the four lower fifths, `top` that of the
upper fifth. Results are written after every fit of a teacher with its students; with --resume those
in the file stay, what it lacks is measured, and models of ours anew where defaults have changed
since.

    python benchmarks/epistemic.py
    python benchmarks/epistemic.py --protocols halves --sets pol --models teacher gp --n 500
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import _defaults
import numpy as np
from _common import asked, measured, one_thread, print_table, resumed
from _datasets import Fold, table
from sklearn.base import is_classifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    predict_members,
    predict_uncertainty,
)
from skdistill.metrics import crps, epistemic_calibration
from skdistill.model_selection import unseen_scores
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Runtime
from skdistill.teachers import MixedModels, as_teacher

Row = dict[str, Any]
N_TEST, TIMES_FOR_LIMIT, SEED, GP_ROWS = 1000, 12, 0, 1000
PLACE = ("protocol", "set", "n", "model")
OF_NUMBERS = (
    *("power-plant", "protein", "california", "concrete", "energy", "boston", "wine"),
    *("pol", "puma8nh", "pollen", "houses", "bng_lowbwt", "2dplanes"),
    *("fri_c0_500_10", "pm10", "esl"),
)
OF_CLASSES = (
    *("magic", "satimage", "cmc", "german", "twonorm", "wine_quality_white"),
    *("led7", "car", "splice"),
)


class Truth(NamedTuple):
    """A known function of normal features, and the deviation of the noise."""

    n_features: int
    noise: float
    function: Callable[[np.ndarray], np.ndarray]


TRUTHS = {
    "sine": Truth(1, 0.3, lambda X: np.sin(2 * X[:, 0])),
    "product": Truth(6, 1.0, lambda X: X[:, 0] * X[:, 1] + X[:, 2]),
    "steps": Truth(3, 0.5, lambda X: np.sign(X[:, 0]) + np.sign(X[:, 1] - 0.5)),
    "plane": Truth(8, 1.0, lambda X: X @ np.linspace(-1, 1, 8)),
    "smooth 3": Truth(3, 0.2, lambda X: np.sin(X[:, 0] + X[:, 1]) + np.cos(X[:, 2])),
    "smooth 5": Truth(5, 0.02, lambda X: np.tanh(X[:, :3].sum(1)) + 0.3 * X[:, 3] * X[:, 4]),
}
PROTOCOLS = {
    "halves": (*OF_NUMBERS, *OF_CLASSES),
    "truth": tuple(TRUTHS),
    "curve": (*OF_NUMBERS[:3], *OF_NUMBERS[7:13]),
}
SETS = tuple(dict.fromkeys(name for names in PROTOCOLS.values() for name in names))
SIZES = {"halves": (500,), "truth": (100, 400, 2000), "curve": (400,)}  # where none is given


# Models -------------------------------------------------------------------------------------------


def networks(fold: Fold, params: Row, **settings: Any) -> Any:
    kind = BayesianEnsembleClassifier if fold.are_classes else BayesianEnsembleRegressor
    model = kind(random_state=0, runtime=Runtime(device="cpu")).set_params(**params, **settings)
    return model.fit(fold.X_train, fold.y_train)


def student(fold: Fold, params: Row, teacher: Any, family: str | None = None) -> Any:
    model = FrozenEstimator(teacher)
    if family:
        model = DistributionDistiller(model, family=family)
    else:
        model = (HydraPlusClassifier if fold.are_classes else HydraPlusRegressor)(model)
    model.set_params(random_state=0, runtime=Runtime(device="cpu"), **params)
    return model.fit(fold.X_train, fold.y_train)


def exact_process(n_features: int) -> GaussianProcessRegressor:
    """A process with a length scale for each feature, and with noise."""
    kernel = ConstantKernel() * RBF(np.ones(n_features)) + WhiteKernel()
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


def gaussian_process(fold: Fold, params: Row) -> Any:
    process = as_teacher(exact_process(fold.X_train.shape[1]))
    return make_pipeline(StandardScaler(), process).fit(fold.X_train, fold.y_train)


def forest(fold: Fold, params: Row, scale: str | None = "halves") -> Any:
    kind = RandomForestClassifier if fold.are_classes else RandomForestRegressor
    teacher = as_teacher(kind(random_state=0), epistemic_scale=scale)
    return teacher.fit(fold.X_train, fold.y_train)


def catboost(fold: Fold, params: Row, scale: str | None = "halves") -> Any:
    """Boosted trees with Langevin noise, as virtual ensembles need them."""
    import catboost

    settings = {"random_seed": 0, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    if fold.are_classes:
        model = catboost.CatBoostClassifier(**settings)
    else:
        settings |= {"loss_function": "RMSEWithUncertainty", "posterior_sampling": True}
        model = catboost.CatBoostRegressor(**settings)
    return as_teacher(model, epistemic_scale=scale).fit(fold.X_train, fold.y_train)


def mixed(fold: Fold, params: Row) -> Any:
    task = "classification" if fold.are_classes else "regression"
    return as_teacher(MixedModels("auto", task=task, random_state=0)).fit(
        fold.X_train, fold.y_train
    )


class Contender(NamedTuple):
    """How a model is fitted, whether it has the teacher, and whether it takes numbers, classes."""

    fit: Callable[..., Any]
    has_teacher: bool = False
    kinds: tuple[bool, ...] = (False, True)


PLAIN: Row = {
    "module__embeddings": None,
    "inference": DeepEnsemble(bootstrap=False, calibrate=None),
}
CONTENDERS = {
    "teacher": Contender(networks),
    "hydra": Contender(student, True),
    "gaussian": Contender(partial(student, family="gaussian"), True, kinds=(False,)),
    "dirichlet": Contender(partial(student, family="dirichlet"), True, kinds=(True,)),
    "plain": Contender(partial(networks, **PLAIN)),
    "unperturbed": Contender(partial(networks, inference=DeepEnsemble(bootstrap=False))),
    "bagging": Contender(partial(networks, inference=DeepEnsemble(bootstrap=True))),
    "dropout": Contender(partial(networks, inference=MCDropout())),
    "sgld": Contender(partial(networks, inference=SGLD())),
    "gp": Contender(gaussian_process, kinds=(False,)),
    "trees": Contender(partial(forest, scale=None)),
    "forest": Contender(forest),
    "virtual": Contender(partial(catboost, scale=None), kinds=(False,)),
    "catboost": Contender(catboost),
    "mixed": Contender(mixed),
}
FOREIGN = ("gp", "trees", "forest", "virtual", "catboost")
OURS = tuple(name for name in CONTENDERS if name not in FOREIGN)


def fits(
    names: tuple[str, ...],
    folds: list[Fold],
    quick: bool,
    of_teacher: Row | None = None,
) -> Iterator[tuple[str, list[Any], float]]:
    """Models of each name, one for each fold, and CPU seconds, a student's without its teacher's.

    `of_teacher` are parameters that are not the defaults.
    """
    few = {"max_epochs": 2} if quick else {}
    params = {**few, **({"n_members": 3} if quick else {}), **(of_teacher or {})}
    known: dict[str, tuple[list[Any], float]] = {}
    with_teacher = any(CONTENDERS[name].has_teacher for name in names)
    for name in dict.fromkeys([*["teacher"] * with_teacher, *names]):
        contender, start = CONTENDERS[name], time.process_time()
        if contender.has_teacher:
            pairs = zip(folds, known["teacher"][0], strict=True)
            models = [contender.fit(fold, few, teacher) for fold, teacher in pairs]
        else:
            models = [contender.fit(fold, params) for fold in folds]
        known[name] = models, time.process_time() - start
    yield from ((name, *known[name]) for name in names)


# Samples ------------------------------------------------------------------------------------------


def standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All samples of a table; numbers have mean 0 and deviation 1."""
    X, y = table(name)
    return X, (y - y.mean()) / y.std() if y.dtype.kind == "f" else y


def folds_of(protocol: str, name: str, n: int) -> list[Fold]:
    """Training samples of each fit, and the test samples that they share.

    The targets of the latter are values of the function where it is known.
    """
    rng = np.random.default_rng(SEED)
    if protocol == "truth":
        truth = TRUTHS[name]
        X = rng.normal(size=(n + N_TEST, truth.n_features))
        mean = truth.function(X)
        y = mean[:n] + truth.noise * rng.normal(size=n)
        return [Fold(X[:n], y, X[n:], mean[n:])]
    X, y = standardised(name)
    test, rest = np.split(rng.permutation(len(y)), [min(N_TEST, len(y) // 3)])
    if protocol == "halves":
        n = min(n, len(rest) // 2)
        parts = [rest[:n], rest[n : 2 * n]]
    else:
        parts = [rest[:n], rest[: TIMES_FOR_LIMIT * n]]
    return [Fold(X[part], y[part], X[test], y[test]) for part in parts]


# One unit of work ---------------------------------------------------------------------------------


class Unit(NamedTuple):
    """A teacher with its students, or another model, on one table and of one size."""

    protocol: str
    set: str
    n: int
    models: tuple[str, ...]


class Prediction(NamedTuple):
    """Mean (n, t) or (n, K), total and epistemic variance (n,), and the targets in columns."""

    mean: np.ndarray
    total: np.ndarray
    epistemic: np.ndarray
    y: np.ndarray

    @property
    def squared_error(self) -> np.ndarray:
        return np.square(self.mean - self.y).sum(axis=1)


def predicted(model: Any, fold: Fold, classes: np.ndarray) -> Prediction:
    X, y = fold.X_test, fold.y_test
    if not is_classifier(model):
        found = predict_uncertainty(model, X)
        mean = np.asarray(model.predict(X))[:, np.newaxis]
        return Prediction(mean, found.total, found.epistemic, y[:, np.newaxis])
    mean = np.zeros((len(X), len(classes)))  # a half may lack one
    mean[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    if hasattr(model, "predict_members"):
        variance = predict_members(model, X).var(axis=1, ddof=1).sum(axis=1)
    else:
        precision = model.predict_distribution(X).precision.numpy()
        variance = (mean * (1 - mean)).sum(axis=1) / (1 + precision)
    columns = (y[:, np.newaxis] == classes).astype(float)
    return Prediction(mean, 1 - np.square(mean).sum(axis=1), variance, columns)


def calibration(squared_error: np.ndarray, epistemic: np.ndarray) -> dict[str, float]:
    found = epistemic_calibration(squared_error, epistemic)
    lower = found.ratio[:-1]
    return {
        "cover": found.coverage,
        "low": float(lower.min()),
        "high": float(lower.max()),
        "top": float(found.ratio[-1]),
        "ratio": found.overall,
        "rank": found.rank,
    }


def scores(protocol: str, models: list[Any], parts: list[Fold]) -> dict[str, float]:
    """What a protocol says of the fits to its parts."""
    classes = np.unique(np.concatenate([parts[0].y_test, *(part.y_train for part in parts)]))
    pairs = zip(models, parts, strict=True)
    first, *others = (predicted(model, fold, classes) for model, fold in pairs)
    if protocol == "truth":
        found = {"squared_error": float(first.squared_error.mean())}
        return found | calibration(first.squared_error, first.epistemic)
    (other,) = others
    if protocol == "halves":
        held_out = parts[0].X_test, parts[0].y_test
        quality = unseen_scores(models[0], *held_out, *held_out)
        names = ("log_loss",) if is_classifier(models[0]) else ("rmse", "nll", "coverage")
        found = calibration(
            np.square(first.mean - other.mean).sum(axis=1), first.epistemic + other.epistemic
        )
        if not is_classifier(models[0]):
            gaussian = np.stack([first.mean, first.total[:, np.newaxis]], axis=-1)
            found["crps"] = crps(first.y, gaussian[:, np.newaxis])
        return found | {name: quality[f"held_out_{name}"] for name in names}
    error, limit = (float(one.squared_error.mean()) for one in (first, other))
    total, epistemic = float(first.total.mean()), float(first.epistemic.mean())
    return {
        "squared_error": error,
        "limit": limit,
        "n_limit": len(parts[1].X_train),
        "total": total,
        "epistemic": epistemic,
        "aleatoric_ratio": (total - epistemic) / limit,
        "epistemic_ratio": epistemic / (error - limit) if error > limit else np.nan,
    }


def run(unit: Unit, quick: bool) -> tuple[list[Row], list[Row]]:
    """Rows of the models of a unit, or why they failed."""
    one_thread()
    parts, rows = folds_of(*unit[:3]), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound is an irrelevant feature
        try:
            for name, models, seconds in fits(unit.models, parts, quick):
                row = {**unit._asdict(), "model": name, "n_train": len(parts[0].X_train)}
                del row["models"]
                row |= {"fit_seconds": seconds, **scores(unit.protocol, models, parts)}
                rows.append({k: rounded(v) for k, v in row.items() if is_known(v)})
        except (ValueError, TypeError, RuntimeError) as error:
            return [], [{**unit._asdict(), "error": str(error)}]
    return rows, []


def is_known(value: Any) -> bool:
    """Whether JSON has it: numbers are finite, text is what it is."""
    return not isinstance(value, float) or math.isfinite(value)


def rounded(value: Any) -> Any:
    """Numbers with as many digits as anybody reads."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


# The run ------------------------------------------------------------------------------------------


def units(options, done: set[tuple]) -> Iterator[Unit]:
    """What is to be measured and not done."""
    for protocol in options.protocols:
        for name in (name for name in PROTOCOLS[protocol] if name in options.sets):
            for n in [options.n] if options.n else SIZES[protocol]:
                largest = TIMES_FOR_LIMIT * n if protocol == "curve" else n
                groups: dict[str, list[str]] = {}
                for model in options.models:
                    contender = CONTENDERS[model]
                    is_able = (name in OF_CLASSES) in contender.kinds
                    is_able &= model != "gp" or largest <= GP_ROWS
                    if is_able and (protocol, name, n, model) not in done:
                        group = "teacher" if contender.has_teacher else model
                        groups.setdefault(group, []).append(model)
                yield from (Unit(protocol, name, n, tuple(group)) for group in groups.values())


def identity(row: Row) -> tuple:
    """What there is one row of."""
    return tuple(row[key] for key in PLACE)


def place(row: Row) -> list[int]:
    """Rows stand by protocol, set, size and model, whatever was done first."""
    orders = {"protocol": list(PROTOCOLS), "set": SETS, "model": list(CONTENDERS)}
    return [orders[key].index(row[key]) if key in orders else row[key] for key in PLACE]


def main() -> None:
    options = asked(
        __doc__, sets=SETS, protocols=list(PROTOCOLS), models=list(CONTENDERS), n=0, jobs=2,
        resume=False,
    )  # fmt: skip
    if options.quick:
        options.n, options.jobs = 40, 1
    found = resumed(options.output, {"quick": options.quick}) if options.resume else None
    rows = _defaults.kept(found, OURS) if found else []
    todo = list(units(options, {identity(row) for row in rows if "older" not in row}))
    rows = measured(todo, partial(run, quick=options.quick), options, rows, identity, place)
    for protocol in PROTOCOLS:
        of = [row for row in rows if row["protocol"] == protocol]
        names = list(dict.fromkeys(key for row in of for key in row))[1:]
        if of:
            print(f"\n{protocol}")
            print_table(names, [[row.get(name) for name in names] for row in of])


if __name__ == "__main__":
    main()
