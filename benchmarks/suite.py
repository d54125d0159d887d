# SPDX-License-Identifier: BSD-3-Clause
"""The suite that judges defaults: one run, one verdict for each criterion.

A default changes only with the table that this script prints. Ours are the teacher
(BayesianEnsembleRegressor or -Classifier), and of this fitted teacher hydra (Hydra+) and
distribution (DistributionDistiller), all with their defaults. They are judged by

scores  likelihood, CRPS, error, coverage of 90 % intervals, calibration error; the class whose mean
        probability is furthest from its frequency, in standard errors (in_the_large) and as their
        ratio; AUROC of the epistemic part for test samples moved by 4 deviations in one feature
        (far_one) and by 8 in all (far_all), and the mean top probability where all are moved by 100
        (far_top); how students follow the teacher; CPU seconds of a fit, a student's without its
        teacher's, and of predicting all test samples. Tables: 40 of PMLB, six of UCI with their
        first usual split, and six larger ones. At most 2,000 training samples, two thirds of the
        others, and at most 2,000 test samples, drawn with a fixed seed; three splits of tables with
        at most 300 samples. y has mean 0 and deviation 1
halves, truth  as in epistemic.py, fits to 500 and 400 samples
gap, tail      as in unseen.py, two features of each set of UCI, at most 500 training samples

Each criterion is compared with --against, the stored run, table by table: "better" or "worse" is a
mean difference of more than twice its standard error over tables, all else "same". --set changes
parameters of the teacher, so that candidates for a default can be compared with the stored ones.

Peers have scores alone and are measured once, with --peers; their rows are taken from the stored
run. All are scikit-learn's or their library's defaults with one thread: GP is exact, with a length
scale for each feature and noise, of tables with at most 1,000 training samples; forest has the
variance of its out-of-bag residuals; CatBoost of numbers has the loss RMSEWithUncertainty. HGB,
LightGBM and the linear models (Ridge, LogisticRegression) predict no variance of numbers.

    python benchmarks/suite.py --output build/judge.json          # `make judge`: 25 min, two cores
    python benchmarks/suite.py --fast --output build/judge.json   # `make judge-fast`: 5 min
    python benchmarks/suite.py --models teacher --set max_epochs=80 --output build/longer.json
    python benchmarks/suite.py --resume --peers                   # renew what is stored
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import _defaults
import epistemic
import fidelity
import numpy as np
import scale
import uci
import unseen
from _common import (
    RESULTS,
    argument_parser,
    interleaved,
    one_thread,
    parameter,
    print_table,
    record,
    resumed,
    versions,
    write_json,
)
from _datasets import SUITE, load_uci_regression
from joblib import Parallel, delayed
from scipy.stats import norm, rankdata
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, mean_pinball_loss, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from unseen import Fold

from skdistill import predict_quantiles, predict_uncertainty
from skdistill.metrics import expected_calibration_error, gaussian_nll, interval_coverage
from skdistill.model_selection import unseen_scores

NUMBERS = (*SUITE["regression"], *unseen.OF_UCI, "california", "house")
CLASSES = (*SUITE["classification"], "adult", "covtype20k", "letter", "magic")
LEFT_OUT = ("wine", "satimage")  # of halves, for time
SETS = {
    "scores": (*NUMBERS, *CLASSES),
    "halves": tuple(set_ for set_ in epistemic.PROTOCOLS["halves"] if set_ not in LEFT_OUT),
    "truth": ("sine", "product", "plane"),
    "gap": unseen.OF_UCI,
    "tail": unseen.OF_UCI,
}
FAST = {
    "scores": (
        *("bodyfat", "chscase_geyser1", "esl", "fri_c0_500_10", "machine_cpu", "concrete"),
        *("crx", "german", "glass", "heart_c", "titanic", "vowel"),
    ),
    "halves": ("pollen", "boston", "german"),
    "truth": ("sine",),
    "gap": ("boston",),
    "tail": ("boston",),
}
MOST, FEW, N_SPLITS_OF_FEW = 2000, 300, 3  # samples of a part; of a table with several splits
N = {"halves": 500, "truth": 400}
MOST_OF_GAPS, N_COLUMNS = 500, 2
FAR = {"far_one": "one by 4", "far_all": "all by 8", "far_top": "all by 100"}  # of unseen.MOVED
N_ROUNDS = 3  # of predictions
ENDS, LEVELS = (0.05, 0.95), tuple((np.arange(100) + 0.5) / 100)  # of intervals, of the CRPS

PLACE = ("protocol", "set", "case", "model")
Row = dict[str, Any]


# Models -------------------------------------------------------------------------------------------

MODELS = ("teacher", "hydra", "distribution")
FAMILIES = {False: "gaussian", True: "dirichlet"}  # as the distribution is called elsewhere


PEERS = {  # and the packages that have them
    **{"GP": "scikit-learn", "forest": "scikit-learn", "NGBoost": "ngboost"},
    **{"CatBoost": "catboost", "LightGBM": "lightgbm"},
    **{"HGB": "scikit-learn", "linear": "scikit-learn"},
}
WHO = (*MODELS, *PEERS)


def is_able(name: str, of: str, n: int) -> bool:
    """Whether a peer takes such targets, and so many samples."""
    if name not in ("GP", "NGBoost"):
        return True
    return of in NUMBERS and (name == "NGBoost" or n <= unseen.GP_ROWS)


def peer(name: str, are_classes: bool, n_features: int) -> Any:
    """One that is not fitted."""
    if name == "GP":
        return make_pipeline(StandardScaler(), uci.gaussian_process(RBF, n_features, 0))
    if name == "forest":
        kind = RandomForestClassifier if are_classes else RandomForestRegressor
        return kind(oob_score=not are_classes, random_state=0)
    if name == "NGBoost":
        return scale.ng_boost()
    if name == "CatBoost":
        from catboost import CatBoostClassifier, CatBoostRegressor

        own = {"thread_count": 1, "verbose": 0, "allow_writing_files": False, "random_seed": 0}
        if are_classes:
            return CatBoostClassifier(**own)
        return CatBoostRegressor(loss_function="RMSEWithUncertainty", **own)
    if name == "LightGBM":
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMClassifier if are_classes else LGBMRegressor
        return kind(n_jobs=1, verbose=-1, random_state=0)
    if name == "HGB":
        kind = HistGradientBoostingClassifier if are_classes else HistGradientBoostingRegressor
        return kind(random_state=0)
    linear = LogisticRegression(max_iter=1000) if are_classes else Ridge()
    return make_pipeline(StandardScaler(), linear)


def mean_and_std(name: str, model: Any, fold: Fold) -> tuple[np.ndarray, np.ndarray | None]:
    """What a peer predicts of numbers."""
    X = fold.X_held_out
    if name == "GP":
        return model.predict(X, return_std=True)
    if name == "NGBoost":
        return scale.of_ng_boost(model, X)
    if name == "CatBoost":
        return scale.of_cat_boost(model, X)
    std = None
    if name == "forest":
        std = np.full(len(X), root_mean_squared_error(fold.y_train, model.oob_prediction_))
    return model.predict(X), std


# Samples and scores -------------------------------------------------------------------------------


def fold_of(name: str, split: int) -> Fold:
    """Samples of a split; of UCI those of the first of the usual ones."""
    X, y = epistemic.table(name)
    order = np.random.default_rng(split).permutation(len(y))
    train, test = np.split(order, [2 * len(y) // 3])
    if name in unseen.OF_UCI:
        found = load_uci_regression(name)
        train, test = (
            order[np.isin(order, part[0])] for part in (found.train_indices, found.test_indices)
        )
    train, test = train[:MOST], test[:MOST]
    return Fold(X[train], y[train], X[test], y[test])


def of_numbers(y: np.ndarray, mean: np.ndarray, std: np.ndarray | None) -> Row:
    """Scores of a Gaussian, or of a mean alone."""
    found = {"rmse": root_mean_squared_error(y, mean)}
    if std is None:
        return found
    std = np.maximum(std, np.finfo(float).tiny ** 0.5)
    quantiles = mean[:, np.newaxis] + std[:, np.newaxis] * norm.ppf((*ENDS, *LEVELS))
    return found | {
        "nll": gaussian_nll(y, mean, std),
        "crps": crps(y, quantiles[:, 2:]),
        "coverage": interval_coverage(y, quantiles[:, :2]),
    }


def crps(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Of quantiles of LEVELS: twice the mean of their pinball losses."""
    columns = zip(quantiles.T, LEVELS, strict=True)
    return 2 * mean(mean_pinball_loss(y, column, alpha=level) for column, level in columns)


def of_classes(y: np.ndarray, proba: np.ndarray, labels: np.ndarray) -> Row:
    """Scores of probabilities, and of their means beside the frequencies."""
    proba = np.asarray(proba, dtype=float)
    frequency = (y[:, np.newaxis] == labels).mean(axis=0)
    error = np.sqrt((proba * (1 - proba)).mean(axis=0) / len(y))
    off = np.abs(proba.mean(axis=0) - frequency) / np.maximum(error, 1e-12)
    worst = off.argmax()
    found = {
        "log_loss": log_loss(y, proba, labels=labels),
        "accuracy": accuracy_score(y, labels[proba.argmax(axis=1)]),
        "ece": expected_calibration_error(y, proba, labels=labels),
        "in_the_large": off[worst],
        "worst_class": str(labels[worst]),
    }
    if frequency[worst]:
        found["worst_ratio"] = proba[:, worst].mean() / frequency[worst]
    return found


def of_ours(model: Any, fold: Fold, name: str) -> Row:
    """Scores of a model with an epistemic part, which samples far away show."""
    X, y = fold.X_held_out, fold.y_held_out
    moved = dict(unseen.unlike(name, fold, ()))
    far = {key: unseen_scores(model, X, y, moved["moved", case].X) for key, case in FAR.items()}
    found = {key: far[key]["auroc_epistemic"] for key in ("far_one", "far_all")}
    if fold.rows.are_classes:
        found["far_top"] = far["far_top"]["unseen_top_probability"]
        return found | of_classes(y, model.predict_proba(X), model.classes_)
    found |= {key: far["far_one"][f"held_out_{key}"] for key in ("nll", "rmse", "coverage")}
    return found | {"crps": crps(y, predict_quantiles(model, X, LEVELS))}


def fit_ours(unit: Unit, fold: Fold, params: Row, of_students: Row) -> Iterator[Row]:
    """A row for each of ours."""
    models: dict[str, tuple[Any, float]] = {}
    for name in ("teacher", *(name for name in unit.models if name != "teacher")):
        key = FAMILIES[fold.rows.are_classes] if name == "distribution" else name
        args = (params,) if name == "teacher" else (of_students, models["teacher"][0])
        models[name] = unseen.timed(unseen.CONTENDERS[key].fit, fold, *args)
    X = fold.X_held_out
    calls = {name: partial(predict_uncertainty, model, X) for name, (model, _) in models.items()}
    seconds = interleaved(calls, N_ROUNDS)
    for name in unit.models:
        model, fit_seconds = models[name]
        found = of_ours(model, fold, unit.set)
        if name != "teacher":
            kept = fidelity.scored(models["teacher"][0], model, None, fold.rows)
            found |= {
                "nll_gap": kept["nll_gap"],
                "rank": kept["rank_student_to_teacher"],
                "ratio": kept["ratio_student_to_teacher"],
            }
        took = {"fit_seconds": fit_seconds, "predict_seconds": median(seconds[name])}
        yield {"model": name, **took, **found}


def fit_peer(name: str, fold: Fold) -> Row:
    are_classes, (_, n_features) = fold.rows.are_classes, fold.X_train.shape
    model = peer(name, are_classes, n_features)
    model, fit_seconds = unseen.timed(model.fit, fold.X_train, fold.y_train)
    X, y = fold.X_held_out, fold.y_held_out
    predict = model.predict_proba if are_classes else model.predict
    (seconds,) = interleaved({name: partial(predict, X)}, N_ROUNDS).values()
    if are_classes:
        found = of_classes(y, model.predict_proba(X), model.classes_)
    else:
        found = of_numbers(y, *mean_and_std(name, model, fold))
    return {"model": name, "fit_seconds": fit_seconds, "predict_seconds": median(seconds), **found}


# One unit of work ---------------------------------------------------------------------------------


class Unit(NamedTuple):
    """Models on one fold of a table: ours together, or a peer."""

    protocol: str
    set: str
    case: str
    models: tuple[str, ...]


def run(unit: Unit, params: Row, of_students: Row) -> tuple[list[Row], list[Row], float]:
    """Rows of the models of a unit, what those that failed say, and CPU seconds."""
    one_thread()
    start, failures = time.process_time(), []
    family = FAMILIES[unit.set in (*CLASSES, *epistemic.OF_CLASSES)]
    models = tuple(family if name == "distribution" else name for name in unit.models)
    settings = params, of_students
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound is an irrelevant feature
        if unit.protocol in N:
            of = epistemic.Unit(unit.protocol, unit.set, N[unit.protocol], models)
            rows, failures = epistemic.run(of, *settings)
        elif unit.protocol in ("gap", "tail"):
            of = unseen.Unit(unit.protocol, unit.set, unit.case, models, (unit.protocol,))
            done = unseen.run(of, MOST_OF_GAPS, *settings)
            rows, failures = done.rows, done.failures
        else:
            fold = fold_of(unit.set, int(unit.case))
            n = {"n_train": len(fold.X_train), "n_test": len(fold.X_held_out)}
            try:
                if unit.models[0] in PEERS:
                    rows = [fit_peer(unit.models[0], fold)]
                else:
                    rows = list(fit_ours(unit, fold, *settings))
            except (ValueError, RuntimeError) as error:
                rows, failures = [], [{"error": str(error)}]
            rows = [n | row for row in rows]
    place = dict(zip(PLACE, unit, strict=True))
    found = []
    for row in rows:
        name = "distribution" if row["model"] == family else row["model"]
        found.append({**place, "model": name})
        for key in (*KEPT, *CRITERIA[unit.protocol]):
            if unseen.is_known(value := row.get(key, np.nan)):
                found[-1][key] = unseen.rounded(value)
    return found, [place | failure for failure in failures], time.process_time() - start


def units(options, done: set[tuple]) -> Iterator[Unit]:
    """What is to be measured and not done."""
    ours = [name for name in options.models if name in MODELS]
    for protocol, names in (FAST if options.fast else SETS).items():
        if protocol not in options.protocols:
            continue
        for name in (name for name in names if name in options.sets):
            cases, peers = [""], []
            if protocol in ("gap", "tail"):
                n_columns = 1 if options.fast else N_COLUMNS
                cases = unseen.evenly(unseen.cases_of(protocol, name), n_columns)
            elif protocol == "scores":
                n = len(epistemic.table(name)[1])
                cases = [str(split) for split in range(N_SPLITS_OF_FEW if n <= FEW else 1)]
                peers = [who for who in options.models if who in PEERS]
                peers = [who for who in peers if is_able(who, name, min(2 * n // 3, MOST))]
            for case in cases:
                for group in (ours, *([peer] for peer in peers)):
                    models = tuple(m for m in group if (protocol, name, case, m) not in done)
                    if models:
                        yield Unit(protocol, name, case, models)


# Verdicts -----------------------------------------------------------------------------------------


def near(value: float) -> Callable[[float], float]:
    return lambda found: abs(found - value)


def near_one(ratio: float) -> float:
    return abs(math.log(max(ratio, 1e-3)))


# By protocol, the scores, and what of each is better the less it is.
MORE, NEAR_NINE = operator.neg, near(0.9)
OF_UNSEEN = {"auroc_epistemic": MORE, "unseen_nll": float, "unseen_coverage": NEAR_NINE}
CRITERIA: dict[str, dict[str, Callable[[float], float]]] = {
    "scores": {
        **dict.fromkeys(("nll", "crps", "rmse", "log_loss", "ece"), float),
        **{"accuracy": MORE, "coverage": NEAR_NINE, "in_the_large": lambda z: max(z - 2, 0.0)},
        **{"far_one": MORE, "far_all": MORE, "far_top": float},
        **{"nll_gap": float, "rank": MORE, "ratio": near_one},
        **{"fit_seconds": math.log, "predict_seconds": math.log},
    },
    "halves": {"cover": NEAR_NINE, **dict.fromkeys(("low", "high", "top", "ratio"), near_one)},
    "truth": {"squared_error": math.log, "cover": NEAR_NINE},
    "gap": OF_UNSEEN,
    "tail": OF_UNSEEN,
}
RANKED = {
    **{"NLL": "nll", "CRPS": "crps", "RMSE": "rmse"},
    **{"log loss": "log_loss", "accuracy": "accuracy"},
}
KEPT = ("n_train", "n_test", "worst_class", "worst_ratio")  # beside what is judged
LEAST_GAP = 0.0005  # that is told


def by_set(rows: list[Row], protocol: str, score: str, model: str) -> dict[str, list[float]]:
    """Values of a score by table, of all cases."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if (row["protocol"], row["model"]) == (protocol, model) and score in row:
            found.setdefault(row["set"], []).append(row[score])
    return found


def verdicts(now: list[Row], before: list[Row]) -> Iterator[list[Any]]:
    """Rows for people: what has become of the same models, tables and cases."""
    places = {identity(row) for row in before} & {identity(row) for row in now}
    parts = [[row for row in rows if identity(row) in places] for rows in (now, before)]
    for protocol, scores in CRITERIA.items():
        for (score, loss), model in itertools.product(scores.items(), MODELS):
            new, old = (by_set(rows, protocol, score, model) for rows in parts)
            changes = {
                name: mean(map(loss, new[name])) - mean(map(loss, old[name]))
                for name in new
                if name in old
            }
            if not changes:
                continue
            worst, change = max(changes, key=changes.__getitem__), mean(changes.values())
            error = stdev(changes.values()) / len(changes) ** 0.5 if len(changes) > 1 else None
            is_beyond = error is not None and abs(change) > 2 * error
            yield [
                *(protocol, score, model, len(changes)),
                *(mean(mean(found[name]) for name in changes) for found in (old, new)),
                *(change, error, f"{worst} {changes[worst]:+.3g}"),
                ("worse" if change > 0 else "better") if is_beyond else "same",
            ]


class Field(NamedTuple):
    """One of ours among the peers, by a score: what is of each model, and of each table."""

    ranks: dict[str, float]  # means over tables
    wins: dict[str, int]
    gaps: dict[str, tuple[float, str]]  # of a table, to the best peer and which this is


def field(rows: list[Row], model: str, heading: str) -> Field:
    """Ranks on each table are among the models that have it."""
    loss = CRITERIA["scores"][RANKED[heading]]
    found = {name: by_set(rows, "scores", RANKED[heading], name) for name in (model, *PEERS)}
    ranks: dict[str, list[float]] = {name: [] for name in found}
    gaps: dict[str, tuple[float, str]] = {}
    for table in found[model]:
        losses = {name: mean(map(loss, of[table])) for name, of in found.items() if table in of}
        for name, rank in zip(losses, rankdata(list(losses.values())), strict=True):
            ranks[name].append(float(rank))
        peers = [name for name in PEERS if name in losses]
        if best := min(peers, key=losses.__getitem__, default=None):
            gaps[table] = losses[model] - losses[best], best
    return Field(
        {name: mean(places) for name, places in ranks.items() if places},
        {name: places.count(1.0) for name, places in ranks.items()},
        dict(sorted(gaps.items(), key=lambda item: -item[1][0])),
    )


def places(rows: list[Row]) -> list[list[Any]]:
    """By score the number of tables, and mean ranks and wins; peers' are those beside a teacher."""
    found = []
    for heading in RANKED:
        fields = {model: field(rows, model, heading) for model in MODELS}
        ranks = {model: of.ranks.get(model) for model, of in fields.items()}
        wins = {model: of.wins[model] for model, of in fields.items()}
        ranks, wins = fields["teacher"].ranks | ranks, fields["teacher"].wins | wins
        cells = [ranks.get(name) and f"{ranks[name]:.2f} ({wins[name]})" for name in WHO]
        found.append([heading, len(fields["teacher"].gaps), *cells])
    return [row for row in found if row[1]]


def lost(rows: list[Row], model: str, heading: str) -> list[str]:
    """Tables where it is behind the best peer, by how much, and which peer this is."""
    gaps = field(rows, model, heading).gaps.items()
    return [f"{name} {gap:.3f} ({peer})" for name, (gap, peer) in gaps if gap > LEAST_GAP]


def report(now: list[Row], before: list[Row]) -> None:
    """Print verdicts, and places among peers."""
    now, before = ([row for row in rows if "older" not in row] for rows in (now, before))
    if rows := list(verdicts(now, before)):
        print("\nMeans over tables; the change is of what is better the less it is, by table")
        heading = "protocol score model tables before now change error worst verdict"
        print_table(heading.split(), rows)
    if rows := places(now):
        print("\nMean ranks among peers, and wins")
        print_table(["score", "tables", *WHO], rows)
    for heading in RANKED:
        if names := lost(now, "teacher", heading):
            print(f"teacher behind in {heading}: {', '.join(names)}")
    for model in MODELS:
        found = by_set(now, "scores", "in_the_large", model)
        beyond = [f"{name} {mean(of):.1f}" for name, of in found.items() if mean(of) > 2]
        if found:
            print(f"{model}: a class off by > 2 errors on {len(beyond)} of {len(found)}", *beyond)


# The run ------------------------------------------------------------------------------------------


def identity(row: Row) -> tuple:
    """What there is one row of."""
    return tuple(row[key] for key in PLACE)


def in_order(rows: list[Row]) -> list[Row]:
    """Rows by protocol, table, case and model, whatever was done first."""

    def place(row: Row) -> tuple:
        protocol, name = row["protocol"], row["set"]
        which = list(SETS).index(protocol), SETS[protocol].index(name)
        return *which, row["case"], WHO.index(row["model"])

    return sorted(rows, key=place)


def read(path: Path) -> list[Row]:
    """Rows of a file, none where there is none."""
    return json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []


def main() -> None:
    parser = argument_parser(__doc__, "suite")
    names = list(dict.fromkeys(name for names in SETS.values() for name in names))
    parser.add_argument("--sets", nargs="+", default=names, choices=names)
    parser.add_argument("--protocols", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=WHO)
    parser.add_argument("--peers", action="store_true", help="measure the peers, too")
    parser.add_argument("--fast", action="store_true", help="a few tables of each protocol")
    parser.add_argument("--set", nargs="+", default=[], metavar="K=V", help="of the teacher")
    parser.add_argument(
        "--against",
        type=Path,
        default=RESULTS / "suite.json",
        help="file to be compared with (default: %(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="fits side by side")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    options = parser.parse_args()
    if options.quick:
        options.jobs = 1
    unseen.set_folder()
    there = versions()
    options.models = list(dict.fromkeys([*options.models, *(PEERS if options.peers else ())]))
    for name in [name for name in options.models if name in PEERS]:
        if PEERS[name] not in there:
            print(f"{name} is left out: {PEERS[name]} is not installed.")
            options.models.remove(name)
    before, settings = read(options.against), {"quick": options.quick, "set": options.set}
    kept = {identity(row): row for row in before if row["model"] in PEERS}
    if options.resume and (found := resumed(options.output, settings)):
        kept |= {identity(row): row for row in _defaults.kept(found, MODELS)}
    done = {place for place, row in kept.items() if "older" not in row} if options.resume else set()
    params, of_students = unseen.settings_of(options.quick)
    params = params | dict(map(parameter, options.set))
    todo, failures, seconds = list(units(options, done)), [], 0.0
    start = time.perf_counter()
    calls = (delayed(run)(unit, params, of_students) for unit in todo)
    finished = Parallel(options.jobs, return_as="generator")(calls)
    for number, (unit, (rows, failed, of_unit)) in enumerate(zip(todo, finished, strict=True), 1):
        kept |= {identity(row): row for row in rows}
        failures += failed
        seconds += of_unit
        results = in_order(list(kept.values()))
        content = {"settings": settings, "failures": failures, "results": results}
        write_json(options.output, record(**content))
        minutes = (time.perf_counter() - start) / 60
        place = " ".join(filter(None, unit[:3])) + f": {', '.join(unit.models)}, {of_unit:.0f} s"
        print(f"[{number}/{len(todo)}, {minutes:.0f} min] {place}", flush=True)
        for failure in failed:
            print(f"    failed: {failure['error']}", flush=True)
    print(f"{seconds:.0f} CPU seconds")
    report(in_order(list(kept.values())), before)


if __name__ == "__main__":
    import suite  # what is cached is found by the name of a module in the processes of --jobs

    suite.main()
