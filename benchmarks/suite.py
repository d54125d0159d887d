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
gap, tail      the middle third, or the outer sixths, of the samples of UCI sorted by a feature are
        left out, for two features of a set; at most 500 training samples, a tenth held out

Each criterion is compared with --against, the stored run, table by table: "better" or "worse" is a
mean difference of more than twice its standard error over tables, all else "same". --set changes
parameters of the teacher, so that candidates for a default can be compared with the stored ones.

mixed is MixedModels("auto"), of which the teacher is a part; it and peers have scores alone and are
measured once, with --mixed and --peers; their rows are taken from the stored run. Peers are
scikit-learn's or their library's defaults with one thread: GP is exact, with a length scale for
each feature and noise, of tables with at most 1,000 training samples; forest has the variance of
its out-of-bag residuals; CatBoost of numbers has the loss RMSEWithUncertainty. HGB, LightGBM and
the linear models (Ridge, LogisticRegression) predict no variance of numbers.

    python benchmarks/suite.py --output build/judge.json          # `make judge`: 25 min, two cores
    python benchmarks/suite.py --fast --output build/judge.json   # `make judge-fast`: 5 min
    python benchmarks/suite.py --models teacher --set max_epochs=80 --output build/longer.json
    python benchmarks/suite.py --resume --peers --mixed           # renew what is stored
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
import numpy as np
from _common import (
    RESULTS,
    Among,
    asked,
    interleaved,
    measured,
    one_thread,
    print_table,
    resumed,
    versions,
)
from _datasets import OF_UCI, SUITE, Fold, load_uci_regression, table
from scipy.stats import norm, rankdata
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, mean_pinball_loss, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import predict_uncertainty
from skdistill.metrics import expected_calibration_error, fidelity, gaussian_nll, interval_coverage
from skdistill.model_selection import unseen_scores

NUMBERS = (*SUITE["regression"], *OF_UCI, "california", "house")
CLASSES = (*SUITE["classification"], "adult", "covtype20k", "letter", "magic")
LEFT_OUT = ("wine", "satimage")  # of halves, for time
SETS = {
    "scores": (*NUMBERS, *CLASSES),
    "halves": tuple(set_ for set_ in epistemic.PROTOCOLS["halves"] if set_ not in LEFT_OUT),
    "truth": ("sine", "product", "plane"),
    "gap": OF_UCI,
    "tail": OF_UCI,
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
MOST_OF_GAPS, MOST_OUT_OF_GAPS, HELD_OUT, N_COLUMNS = 500, 1000, 0.1, 2
FAR = {"far_one": 4, "far_all": 8, "far_top": 100}  # deviations, in one feature or in all
N_ROUNDS = 3  # of predictions
ENDS, LEVELS = (0.05, 0.95), tuple((np.arange(100) + 0.5) / 100)  # of intervals, of the CRPS

PLACE = ("protocol", "set", "case", "model")
Row = dict[str, Any]
# What this script finds tells whether other results are older.
RESTS_ON = ("ensemble", "hydra ", "distribution ")


# Models -------------------------------------------------------------------------------------------

MODELS = ("teacher", "hydra", "distribution")
OURS = (*MODELS, "mixed")
FAMILIES = {False: "gaussian", True: "dirichlet"}  # as the distribution is called elsewhere


PEERS = {  # and the packages that have them
    **{"GP": "scikit-learn", "forest": "scikit-learn", "NGBoost": "ngboost"},
    **{"CatBoost": "catboost", "LightGBM": "lightgbm"},
    **{"HGB": "scikit-learn", "linear": "scikit-learn"},
}
WHO = (*OURS, *PEERS)


def is_able(name: str, of: str, n: int) -> bool:
    """Whether a peer takes such targets, and so many samples."""
    if name not in ("GP", "NGBoost"):
        return True
    return of in NUMBERS and (name == "NGBoost" or n <= epistemic.GP_ROWS)


def peer(name: str, are_classes: bool, n_features: int) -> Any:
    """One that is not fitted."""
    if name == "GP":
        return make_pipeline(StandardScaler(), epistemic.exact_process(n_features))
    if name == "forest":
        kind = RandomForestClassifier if are_classes else RandomForestRegressor
        return kind(oob_score=not are_classes, random_state=0)
    if name == "NGBoost":
        from ngboost import NGBRegressor

        return NGBRegressor(verbose=False, random_state=0)
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
    X = fold.X_test
    if name == "GP":
        return model.predict(X, return_std=True)
    if name == "NGBoost":
        found = model.pred_dist(X).params
        return found["loc"], found["scale"]
    if name == "CatBoost":
        mean, variance = model.predict(X, prediction_type="RMSEWithUncertainty").T
        return mean, np.sqrt(variance)
    std = None
    if name == "forest":
        std = np.full(len(X), root_mean_squared_error(fold.y_train, model.oob_prediction_))
    return model.predict(X), std


# Samples and scores -------------------------------------------------------------------------------


def fold_of(name: str, split: int) -> Fold:
    """Samples of a split; of UCI those of the first of the usual ones."""
    X, y = epistemic.standardised(name)
    order = np.random.default_rng(split).permutation(len(y))
    train, test = np.split(order, [2 * len(y) // 3])
    if name in OF_UCI:
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


def is_left_out(protocol: str, column: np.ndarray) -> np.ndarray:
    """Which samples are in the middle third of a column, or in its outer sixths."""
    n, ranks = len(column), rankdata(column) - 1
    if protocol == "tail":
        return (ranks < n // 6) | (ranks > n - 1 - n // 6)
    _, group, counts = np.unique(column, return_inverse=True, return_counts=True)
    low, high = n // 3, 2 * n // 3
    return (ranks >= low) & (ranks < high) & (counts[group] <= high - low)


def gap_of(protocol: str, name: str, case: str) -> tuple[Fold, np.ndarray, np.ndarray]:
    """Samples outside of a gap or tails, and those inside."""
    X, y = table(name)
    is_inside = is_left_out(protocol, X[:, int(case.split()[-1])])
    train, inside = np.flatnonzero(~is_inside), np.flatnonzero(is_inside)
    train = np.random.default_rng(0).permutation(train)
    held_out, train = np.split(train, [math.ceil(HELD_OUT * len(train))])
    held_out, train = np.sort(held_out[:MOST_OUT_OF_GAPS]), np.sort(train[:MOST_OF_GAPS])
    inside = np.sort(np.random.default_rng(1).permutation(inside)[:MOST_OUT_OF_GAPS])
    return Fold(X[train], y[train], X[held_out], y[held_out]), X[inside], y[inside]


def of_ours(model: Any, fold: Fold) -> Row:
    """Scores of a model with an epistemic part, which samples far away show."""
    X, y, scale = fold.X_test, fold.y_test, np.std(fold.X_train, axis=0)
    rng = np.random.default_rng(0)
    rng.permuted(X, axis=0)  # stored results began with such draws
    is_chosen = rng.choice(np.flatnonzero(scale), len(X))[:, np.newaxis] == np.arange(X.shape[1])
    far = {}
    for key, distance in FAR.items():
        moved = X + distance * scale
        moved = np.where(is_chosen, moved, X) if key == "far_one" else moved
        far[key] = unseen_scores(model, X, y, moved)
    found = {key: far[key]["auroc_epistemic"] for key in ("far_one", "far_all")}
    if fold.are_classes:
        found["far_top"] = far["far_top"]["unseen_top_probability"]
        return found | of_classes(y, model.predict_proba(X), model.classes_)
    found |= {key: far["far_one"][f"held_out_{key}"] for key in ("nll", "rmse", "coverage")}
    quantiles = np.asarray(model.predict_distribution(X).quantile(list(LEVELS)))
    return found | {"crps": crps(y, quantiles.reshape(len(y), -1))}


def of_networks(names: tuple[str, ...], fold: Fold, *settings: Any) -> Iterator[Row]:
    """A row for each of ours."""
    of_teacher = names != ("mixed",)
    fits = epistemic.fits(("teacher",) * of_teacher + names, [fold], *settings)
    models = {name: (model, seconds) for name, (model,), seconds in fits}
    X, y = fold.X_test, fold.y_test
    calls = {name: partial(predict_uncertainty, model, X) for name, (model, _) in models.items()}
    predict_seconds = interleaved(calls, N_ROUNDS)
    for name in names:
        model, seconds = models[name]
        row = {"model": name, "fit_seconds": seconds, **of_ours(model, fold)}
        row["predict_seconds"] = median(predict_seconds[name])
        if name not in ("teacher", "mixed"):
            kept = fidelity(models["teacher"][0], model, X, y)["student_to_teacher"]
            row["nll_gap"] = kept["nll_gap"]
            row["rank"] = kept["epistemic_rank_correlation"]
            row["ratio"] = kept["epistemic_median_ratio"]
        yield row


def of_peer(name: str, fold: Fold) -> Row:
    model = peer(name, fold.are_classes, fold.X_train.shape[1])
    start = time.process_time()
    model.fit(fold.X_train, fold.y_train)
    row = {"model": name, "fit_seconds": time.process_time() - start}
    X, y = fold.X_test, fold.y_test
    predict = model.predict_proba if fold.are_classes else model.predict
    (seconds,) = interleaved({name: partial(predict, X)}, N_ROUNDS).values()
    row["predict_seconds"] = median(seconds)
    if fold.are_classes:
        return row | of_classes(y, model.predict_proba(X), model.classes_)
    return row | of_numbers(y, *mean_and_std(name, model, fold))


# One unit of work ---------------------------------------------------------------------------------


class Unit(NamedTuple):
    """Models on one fold of a table: ours together, or the mixed one, or a peer."""

    protocol: str
    set: str
    case: str
    models: tuple[str, ...]


def run(unit: Unit, quick: bool, teacher: Row) -> tuple[list[Row], list[Row]]:
    """Rows of the models of a unit, or why they failed; `teacher` are its parameters."""
    one_thread()
    protocol, name, case, models = unit
    family = FAMILIES[name in (*CLASSES, *epistemic.OF_CLASSES)]
    names = tuple(family if model == "distribution" else model for model in models)
    settings = quick, teacher
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound is an irrelevant feature
        try:
            if protocol in N:
                folds = epistemic.folds_of(protocol, name, 40 if quick else N[protocol])
                for model, fitted, _ in epistemic.fits(names, folds, *settings):
                    rows.append({"model": model, **epistemic.scores(protocol, fitted, folds)})
            elif protocol in ("gap", "tail"):
                folds, inside = [(found := gap_of(protocol, name, case))[0]], found[1:]
                held_out = folds[0].X_test, folds[0].y_test
                for model, (fitted,), _ in epistemic.fits(names, folds, *settings):
                    rows.append({"model": model, **unseen_scores(fitted, *held_out, *inside)})
            else:
                folds = [fold_of(name, int(case))]
                is_peer = names[0] in PEERS
                found = (
                    [of_peer(names[0], *folds)]
                    if is_peer
                    else of_networks(names, *folds, *settings)
                )
                rows += ({**row, "n_test": len(folds[0].X_test)} for row in found)
        except (ValueError, TypeError, RuntimeError) as error:
            return [], [{**unit._asdict(), "error": str(error)}]
    found = []
    for row in rows:
        model = "distribution" if row["model"] == family else row["model"]
        found.append({**dict(zip(PLACE, unit, strict=True)), "model": model})
        row["n_train"] = len(folds[0].X_train)
        for key in (*KEPT, *CRITERIA[protocol]):
            if epistemic.is_known(value := row.get(key, np.nan)):
                found[-1][key] = epistemic.rounded(value)
    return found, []


def units(options, done: set[tuple]) -> Iterator[Unit]:
    """What is to be measured and not done."""
    ours = [name for name in options.models if name in MODELS]
    for protocol, names in (FAST if options.fast else SETS).items():
        if protocol not in options.protocols:
            continue
        for name in (name for name in names if name in options.sets):
            cases, peers = [""], []
            if protocol in ("gap", "tail"):
                parts = enumerate(np.asarray(table(name)[0]).T)
                columns = [
                    number
                    for number, column in parts
                    if len(np.unique(column)) > 10 and is_left_out("gap", column).any()
                ]
                places = np.linspace(
                    0, len(columns) - 1, min(1 if options.fast else N_COLUMNS, len(columns))
                )
                cases = [f"column {columns[int(place)]}" for place in places.round()]
            elif protocol == "scores":
                n = len(table(name)[1])
                cases = [str(split) for split in range(N_SPLITS_OF_FEW if n <= FEW else 1)]
                peers = [who for who in options.models if who not in MODELS]
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
    for which in found[model]:
        losses = {name: mean(map(loss, of[which])) for name, of in found.items() if which in of}
        for name, rank in zip(losses, rankdata(list(losses.values())), strict=True):
            ranks[name].append(float(rank))
        peers = [name for name in PEERS if name in losses]
        if best := min(peers, key=losses.__getitem__, default=None):
            gaps[which] = losses[model] - losses[best], best
    return Field(
        {name: mean(places) for name, places in ranks.items() if places},
        {name: places.count(1.0) for name, places in ranks.items()},
        dict(sorted(gaps.items(), key=lambda item: -item[1][0])),
    )


def places(rows: list[Row]) -> list[list[Any]]:
    """By score the number of tables, and mean ranks and wins; peers' are those beside a teacher."""
    found = []
    for heading in RANKED:
        fields = {model: field(rows, model, heading) for model in OURS}
        ranks = {model: of.ranks.get(model) for model, of in fields.items()}
        wins = {model: of.wins[model] for model, of in fields.items() if of.ranks}
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


def place(row: Row) -> tuple:
    """Rows stand by protocol, table, case and model, whatever was done first."""
    protocol, name = row["protocol"], row["set"]
    which = list(SETS).index(protocol), SETS[protocol].index(name)
    return *which, row["case"], WHO.index(row["model"])


def read(path: Path) -> list[Row]:
    """Rows of a file, none where there is none."""
    return json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []


def main() -> None:
    names = list(dict.fromkeys(name for names in SETS.values() for name in names))
    options = asked(
        __doc__, sets=names, protocols=list(SETS), models=Among(list(MODELS), WHO), peers=False,
        mixed=False, fast=False, set={}, against=str(RESULTS / "suite.json"), jobs=2, resume=False,
    )  # fmt: skip
    if options.quick:
        options.jobs = 1
    there = versions()
    more = [*["mixed"] * options.mixed, *(PEERS if options.peers else ())]
    options.models = list(dict.fromkeys([*options.models, *more]))
    for name in [name for name in options.models if name in PEERS]:
        if PEERS[name] not in there:
            print(f"{name} is left out: {PEERS[name]} is not installed.")
            options.models.remove(name)
    before = read(Path(options.against))
    now = [row for row in before if row["model"] not in MODELS]
    settings = {"quick": options.quick, "set": options.set}
    done: set[tuple] = set()
    if options.resume and (found := resumed(options.output, settings)):
        now = _defaults.replaced(now, _defaults.kept(found, OURS), identity)
        done = {identity(row) for row in now if "older" not in row}
    todo = list(units(options, done))
    call = partial(run, quick=options.quick, teacher=options.set)
    report(measured(todo, call, options, now, identity, place), before)


if __name__ == "__main__":
    main()
