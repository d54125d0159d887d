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
unperturbed, bagging  the teacher with DeepEnsemble(bootstrap=False), (bootstrap=True)
dropout   MC dropout
sgld      a Markov chain by SGLD
gp        exact Gaussian process with a length scale for each feature and white noise, standardised
          features, at most 1,000 training samples: not beyond
trees     trees of a random forest of scikit-learn
forest    the same as a teacher, on the scale of halves
catboost  ten virtual ensembles of CatBoost, if installed

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

import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import _defaults
import fidelity
import numpy as np
import unseen
from _common import argument_parser, arrays, one_thread, print_table, record, versions, write_json
from _datasets import SUITE, UCI_REGRESSION, load_uci_regression
from fidelity import Rows
from joblib import Parallel, delayed
from sklearn.base import is_classifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from unseen import Contender, Fold

from skdistill import predict_members, predict_uncertainty
from skdistill.metrics import crps, epistemic_calibration
from skdistill.model_selection import unseen_scores
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.teachers import as_teacher

N_TEST, TIMES_FOR_LIMIT, SEED = 1000, 12, 0
PLACE = ("protocol", "set", "n", "model")

OF_UCI = ("power-plant", "protein", "california", "concrete", "energy", "boston", "wine")
OF_SUITE = (
    *("pol", "puma8nh", "pollen", "houses", "bng_lowbwt", "2dplanes"),
    *("fri_c0_500_10", "pm10", "esl"),
)
OF_CLASSES = (
    *("magic", "satimage", "cmc", "german", "twonorm", "wine_quality_white"),
    *("led7", "car", "splice"),
)
OF_CURVE = ("power-plant", "protein", "california", *OF_SUITE[:6])


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
    "halves": (*OF_UCI, *OF_SUITE, *OF_CLASSES),
    "truth": tuple(TRUTHS),
    "curve": OF_CURVE,
}
SETS = tuple(dict.fromkeys(name for names in PROTOCOLS.values() for name in names))
# Sizes by protocol, where none are given.
SIZES = {"halves": (100, 500, 2000, 10_000), "truth": (100, 400, 2000), "curve": (400,)}


def forest(fold: Fold, params: dict[str, Any], scale: str | None = "halves") -> Any:
    kind = RandomForestClassifier if fold.rows.are_classes else RandomForestRegressor
    teacher = as_teacher(kind(random_state=0), epistemic_scale=scale)
    return teacher.fit(fold.X_train, fold.y_train)


def inferred(inference: Any) -> Callable[..., Any]:
    return partial(unseen.networks, inference=inference)


CONTENDERS = {
    **{name: unseen.CONTENDERS[name] for name in ("teacher", "hydra", "gaussian", "dirichlet")},
    "plain": unseen.CONTENDERS["plain"],
    "unperturbed": Contender(inferred(DeepEnsemble(bootstrap=False))),
    "bagging": Contender(inferred(DeepEnsemble(bootstrap=True))),
    "dropout": Contender(inferred(MCDropout())),
    "sgld": Contender(inferred(SGLD())),
    "gp": unseen.CONTENDERS["gp"],
    "trees": Contender(partial(forest, scale=None), package="scikit-learn"),
    "forest": Contender(forest, package="scikit-learn"),
    "catboost": unseen.CONTENDERS["catboost"],
}
OURS = tuple(name for name, found in CONTENDERS.items() if found.package == "skdistill")


# Samples ------------------------------------------------------------------------------------------


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All samples of a table; numbers have mean 0 and deviation 1."""
    if name in UCI_REGRESSION:
        found = load_uci_regression(name)
        X, y = found.data, found.target
    elif kinds := [kind for kind, names in SUITE.items() if name in names]:
        X, y = arrays(f"suite/{kinds[0]}_{name}", "X y")
    else:
        X, y = fidelity.table(name)
    if not Rows(X, X, y, y).are_classes:
        y = (y - y.mean()) / y.std()
    return X.astype(float), y


def folds(protocol: str, name: str, n: int) -> list[Fold]:
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
    X, y = table(name)
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
    X, y = fold.X_held_out, fold.y_held_out
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
    classes = np.unique(np.concatenate([parts[0].y_held_out, *(part.y_train for part in parts)]))
    pairs = zip(models, parts, strict=True)
    first, *others = (predicted(model, fold, classes) for model, fold in pairs)
    if protocol == "truth":
        found = {"squared_error": float(first.squared_error.mean())}
        return found | calibration(first.squared_error, first.epistemic)
    (other,) = others
    if protocol == "halves":
        held_out = parts[0].X_held_out, parts[0].y_held_out
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


def run(
    unit: Unit, params: dict[str, Any], of_students: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Rows of the models of a unit, and what those that failed say."""
    one_thread()
    parts = folds(unit.protocol, unit.set, unit.n)
    rows, failures, teachers = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound is an irrelevant feature
        seconds_of_teachers = -time.process_time()
        if any(CONTENDERS[name].teacher for name in unit.models):
            teachers = [CONTENDERS["teacher"].fit(part, params) for part in parts]
        seconds_of_teachers += time.process_time()
        for name in unit.models:
            place = dict(zip(PLACE, (unit.protocol, unit.set, unit.n, name), strict=True))
            try:
                start = time.process_time()
                if name == "teacher" and teachers:
                    models = teachers
                elif CONTENDERS[name].teacher:
                    pairs = zip(parts, teachers, strict=True)
                    models = [CONTENDERS[name].fit(part, of_students, one) for part, one in pairs]
                else:
                    models = [CONTENDERS[name].fit(part, params) for part in parts]
                seconds = time.process_time() - start
                seconds += seconds_of_teachers if models is teachers else 0.0
                found = scores(unit.protocol, models, parts)
            except (ValueError, TypeError, RuntimeError) as error:
                failures.append({**place, "error": str(error)})
                continue
            sizes = {"n_train": len(parts[0].X_train), "fit_seconds": seconds}
            found = {key: unseen.rounded(value) for key, value in {**sizes, **found}.items()}
            rows.append(place | {k: v for k, v in found.items() if unseen.is_known(v)})
    return rows, failures


# The run ------------------------------------------------------------------------------------------


def is_able(name: str, protocol: str, of: str, n: int) -> bool:
    """Whether a model takes such targets, and so many samples."""
    largest = TIMES_FOR_LIMIT * n if protocol == "curve" else n
    is_small = name != "gp" or min(n, largest) <= unseen.GP_ROWS
    return (of in OF_CLASSES) in CONTENDERS[name].kinds and is_small


def units(options, done: set[tuple]) -> Iterator[Unit]:
    """What is to be measured and not done."""
    for protocol in options.protocols:
        for name in (name for name in PROTOCOLS[protocol] if name in options.sets):
            most = np.inf
            if protocol != "truth":
                try:
                    n_rows = len(table(name)[1])
                except (OSError, ImportError) as error:
                    print(f"{name} is left out: {error}")
                    continue
                most = (n_rows - min(N_TEST, n_rows // 3)) / 2
            sizes = sorted(options.n or SIZES[protocol])
            # the smallest of those that a table does not have stands for all of them
            larger = [n for n in sizes if n > most]
            for n in [n for n in sizes if n <= most] + larger[:1]:
                models = [
                    model
                    for model in options.models
                    if is_able(model, protocol, name, n) and (protocol, name, n, model) not in done
                ]
                groups: dict[str, list[str]] = {}
                for model in models:
                    groups.setdefault(CONTENDERS[model].teacher or model, []).append(model)
                yield from (Unit(protocol, name, n, tuple(group)) for group in groups.values())


def identity(row: dict[str, Any]) -> tuple:
    """What there is one row of."""
    return tuple(row[key] for key in PLACE)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by protocol, set, size and model, whatever was done first."""
    orders = {"protocol": list(PROTOCOLS), "set": SETS, "model": list(CONTENDERS)}

    def place(row: dict[str, Any]) -> list[int]:
        return [orders[k].index(row[k]) if k in orders else row[k] for k in PLACE]

    return sorted(rows, key=place)


def main() -> None:
    parser = argument_parser(__doc__, "epistemic")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=list(PROTOCOLS))
    parser.add_argument("--models", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--n", nargs="+", type=int, help="training samples of a fit")
    parser.add_argument("--jobs", type=int, default=2, help="fits side by side")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    options = parser.parse_args()
    if options.quick:
        options.n, options.jobs = [40], 1
    unseen.set_folder()
    there = versions()
    for name in [name for name in options.models if CONTENDERS[name].package not in there]:
        print(f"{name} is left out: {CONTENDERS[name].package} is not installed.")
        options.models.remove(name)
    results: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    if options.resume and options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
        if found["settings"]["quick"] != options.quick:
            raise SystemExit(f"{options.output} cannot be resumed: quick runs are no others.")
        results = _defaults.kept(found, OURS)
    todo = list(units(options, {identity(row) for row in results if "older" not in row}))
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume")}
    calls = (delayed(run)(unit, *unseen.settings_of(options.quick)) for unit in todo)
    start = time.perf_counter()
    done = Parallel(options.jobs, return_as="generator")(calls)
    for number, (unit, (rows, failed)) in enumerate(zip(todo, done, strict=True), 1):
        results = in_order(_defaults.replaced(results, rows, identity))
        failures += failed
        write_json(options.output, record(settings=settings, failures=failures, results=results))
        minutes = (time.perf_counter() - start) / 60
        place = f"{unit.protocol} {unit.set} {unit.n}: {', '.join(unit.models)}"
        print(f"[{number}/{len(todo)}, {minutes:.0f} min] {place}", flush=True)
        for failure in failed:
            print(f"    {failure['model']} failed: {failure['error']}", flush=True)
    report(results)


def report(results: list[dict[str, Any]]) -> None:
    """Print a table for each protocol."""
    for protocol in PROTOCOLS:
        rows = [row for row in results if row["protocol"] == protocol]
        names = list(dict.fromkeys(key for row in rows for key in row))[1:]
        if rows:
            print(f"\n{protocol}")
            print_table(names, [[row.get(name) for name in names] for row in rows])


if __name__ == "__main__":
    main()
