# SPDX-License-Identifier: BSD-3-Clause
"""Teachers decomposed into seven small networks by B-DISTIL: accuracy against cost.

toys    ellipsoid and cube (B-DISTIL, Section 5.1): a network of three layers of 256 units becomes
        seven small ones. Beside the booster's accuracy after each round stands that of as many
        networks distilled one by one whose probabilities are averaged, and that of single networks
        which cost as much. The booster should be at or above the average within a standard error
        of the seeds from round 2 on, within 1.5 % of the single network and within 1 % of the
        teacher after seven rounds, at 40 % or less of its operations; connections should add less
        than 5 % to a learner's operations.
tables  HistGradientBoosting on letter and magic, with random fifths as test rows. Seven rounds
        should come within 1 % of the teacher, and the first answer for a single row at least 15
        times as fast on letter, and no slower on magic: CPU seconds of one thread, taken in turn,
        ratios are medians over rounds.
series  daily and sports activities (UCI DSA, 19 classes), in the folder SKDISTILL_DATA, the last
        two of eight people held out: a GRU of 64 units is decomposed for early prediction, compared
        at half, three quarters and all of the time, with a network of the same cost that learns the
        labels at every time step (E-RNN). At the end of the series it should come within .5 % of
        its teacher, on average over seeds of all three.

    python benchmarks/bdistil.py
    python benchmarks/bdistil.py --parts toys --seeds 5
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from _common import asked, comparison, interleaved, print_comparisons, print_table, save, stored
from _common import target as judged
from _datasets import table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleClassifier, BDistilBooster
from skdistill.datasets import make_cube, make_ellipsoid
from skdistill.modules import Recurrent
from skdistill.settings import Connection, WeakLearnerSearch

N_ROUNDS = 7
FIRST_SEED = 5  # of the toys; their settings were chosen on those before it


def booster_of(teacher, seed: int, **params) -> BDistilBooster:
    """Unfitted booster, whose parameters of connections and of the search have nested names."""
    groups = {"connection": Connection(), "search": WeakLearnerSearch()}
    return BDistilBooster(teacher, random_state=seed, **groups).set_params(**params)


def distilled(teacher, X: np.ndarray, y: np.ndarray, seed: int, **params) -> BDistilBooster:
    """Booster of a fitted teacher."""
    return booster_of(FrozenEstimator(teacher), seed, **params).fit(X, y)


# Toys ---------------------------------------------------------------------------------------------

TOYS = {"ellipsoid": make_ellipsoid, "cube": make_cube}
N_ROWS, N_TEST = 180_000, 10_000
TEACHER_UNITS = (256, 256, 256)
TOY_SETTINGS: dict[str, dict[str, Any]] = {
    "ellipsoid": {"module__hidden_units": (20, 20)},
    "cube": {
        "module__hidden_units": (64, 64),
        "connection__head_layers": 2,
        "search__gamma": 3.0,
    },
}
COMMON = {
    "module__embeddings": None,  # the paper's networks have none
    "connection__connect": "always",
    "search__max_search": 6,
    "batch_size": 256,
    "max_epochs": 2,
}


def flop_of_mlp(*widths: int) -> float:
    """Operations of a perceptron for one row, as they are counted for learners."""
    return 2.0 * sum(a * b for a, b in itertools.pairwise(widths))


def widest(flop: float, cost: Callable[[int], float]) -> int:
    """Largest width with which a network costs at most so much."""
    return max(itertools.takewhile(lambda width: cost(width) <= flop, itertools.count(1)))


def layers_for(flop: float, n_features: int, n_classes: int) -> tuple[int, int]:
    """Widths of two hidden layers with which a perceptron costs at most so much."""
    return 2 * (widest(flop, lambda n: flop_of_mlp(n_features, n, n, n_classes)),)


def run_toy(name: str, seed: int, changes: dict[str, Any], n_rows: int) -> dict[str, Any]:
    """Accuracies of one seed: the teacher's, and round by round those of the others."""
    X, y = TOYS[name](n_rows + N_TEST, random_state=seed)
    X = X.astype(np.float32)
    X, y, X_test, y_test = X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]
    teacher = BayesianEnsembleClassifier(
        1, module__hidden_units=TEACHER_UNITS, max_epochs=2, batch_size=256, lr=2e-3
    )
    teacher.set_params(module__embeddings=None, random_state=seed).fit(X, y)
    settings = {**TOY_SETTINGS[name], **COMMON, **changes}
    booster = distilled(teacher, X, y, seed, **settings)
    alone = {**settings, "n_rounds": 1}
    singles = [distilled(teacher, X, y, 100 * seed + t, **alone) for t in range(N_ROUNDS)]
    probas = np.cumsum([single.predict_proba(X_test) for single in singles], axis=0)
    n_classes = len(booster.classes_)
    flop = booster.rounds_[0].flop
    alone["module__hidden_units"] = layers_for(N_ROUNDS * flop, X.shape[1], n_classes)
    oracle = distilled(teacher, X, y, seed, **alone)
    total = sum(found.flop for found in booster.rounds_)
    return {
        "teacher": teacher.score(X_test, y_test),
        "booster": booster.staged_score(X_test, y_test).tolist(),
        "average": (probas.argmax(-1) == y_test).mean(axis=1).tolist(),
        "oracle": oracle.score(X_test, y_test),
        "share_of_flop": total / flop_of_mlp(X.shape[1], *TEACHER_UNITS, n_classes),
        "overhead": max(found.connection_flop / found.flop for found in booster.rounds_),
        "searches": [found.n_searches for found in booster.rounds_],
        "connections": [found.n_connections for found in booster.rounds_],
    }


def padded(curve: list[Any]) -> list[Any]:
    """A curve whose end stands for the rounds that were not found."""
    return curve + [curve[-1]] * (N_ROUNDS - len(curve))


def summary_of_toy(name: str, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and what they are held against."""
    booster = np.array([padded(seed["booster"]) for seed in seeds])
    average = np.array([seed["average"] for seed in seeds])
    teacher, oracle, share = (
        float(np.mean([seed[key] for seed in seeds]))
        for key in ("teacher", "oracle", "share_of_flop")
    )
    difference = booster - average
    error = difference.std(axis=0, ddof=min(1, len(seeds) - 1)) / np.sqrt(len(seeds))
    behind = float(-(difference.mean(axis=0) + error)[1:].min())
    last = float(booster[:, -1].mean())
    overhead = max(seed["overhead"] for seed in seeds)
    return {
        "booster": booster.mean(axis=0).tolist(),
        "average": average.mean(axis=0).tolist(),
        "standard_error": error.tolist(),
        "teacher": teacher,
        "oracle": oracle,
        "rounds": [len(seed["booster"]) for seed in seeds],
        "targets": [
            judged(f"{name}: behind the average, less a standard error", behind, high=0.0),
            judged(f"{name}: behind the oracle at the end", oracle - last, high=0.015),
            judged(f"{name}: behind the teacher at the end", teacher - last, high=0.01),
            judged(f"{name}: share of the teacher's operations", share, high=0.4),
            judged(f"{name}: operations of connections", overhead, high=0.05),
        ],
        "seeds": seeds,
    }


# Tables -------------------------------------------------------------------------------------------

FASTER = {"letter": 15, "magic": 1}
TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "letter": {"module__hidden_units": (128, 64), "transfer": "munge", "max_epochs": 20},
    "magic": {"module__hidden_units": (32, 32), "max_epochs": 20},
}


def run_table(name: str, changes: dict[str, Any], n_rows: int | None, n_rounds: int):
    """Accuracies of HistGradientBoosting and its booster, and times for a single row."""
    X, y = table(name)
    X = X.astype(np.float32)
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=n_rows, test_size=0.2, random_state=0, stratify=y
    )
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    teacher = HistGradientBoostingClassifier(random_state=0).fit(X, y)
    settings = {"batch_size": 128, **TABLE_SETTINGS[name], **changes}
    booster = distilled(teacher, X, y, 0, **settings)
    scores = booster.staged_score(X_test, y_test)
    reference = teacher.score(X_test, y_test)
    row = X_test[:1]
    contenders = {
        "first round": partial(booster.predict, row, max_rounds=1),
        "all rounds": partial(booster.predict, row),
        "teacher": partial(teacher.predict, row),
    }
    seconds = interleaved(contenders, n_rounds, n_calls=20)
    setting = f"{name}, 1 row"
    return {
        "teacher": reference,
        "booster": scores.tolist(),
        "searches": [found.n_searches for found in booster.rounds_],
        "targets": [judged(f"{name}: behind the teacher", reference - scores[-1], high=0.01)],
        "times": [
            comparison(setting, seconds, "teacher", ours="first round", at_least=FASTER[name]),
            comparison(setting, seconds, "teacher", ours="all rounds"),
        ],
    }


# Series -------------------------------------------------------------------------------------------

FILE = "timeseries/dsa19_25x45_f16"
SHARES_OF_TIME = (0.5, 0.75, 1.0)
SERIES_SETTINGS: dict[str, Any] = {
    "module": Recurrent,
    "module__cell": "gru",
    "module__hidden_units": (16,),
    "n_rounds": 3,
    "early": True,
    "connection__connect": "always",
    "batch_size": 64,
    "max_epochs": 10,
}


def run_series(changes: dict[str, Any], n_rows: int | None, seed: int) -> dict[str, Any]:
    """Accuracies at some times of a GRU's booster, and of one network that learns the labels."""
    with stored(FILE) as content:
        X, y, subject = (content[key] for key in ("X", "y", "subject"))
    people = np.unique(subject)
    is_test = np.isin(subject, people[-2:])
    X = X.astype(np.float32)
    X = (X - X[~is_test].mean(axis=(0, 1))) / X[~is_test].std(axis=(0, 1))
    X_test, y_test = X[is_test], y[is_test]
    X, y = X[~is_test][:: 1 if n_rows is None else 40], y[~is_test][:: 1 if n_rows is None else 40]
    teacher = BayesianEnsembleClassifier(
        1, module=Recurrent, module__cell="gru", module__hidden_units=(64,), batch_size=64
    )
    teacher.set_params(max_epochs=10 if n_rows is None else 1, lr=3e-3, random_state=seed)
    teacher.fit(X, y)
    settings = {**SERIES_SETTINGS, **changes}
    booster = distilled(teacher, X, y, seed, **settings)
    cost = sum(found.flop for found in booster.rounds_)
    labels = (y[:, None] == teacher.classes_).astype(np.float64)[:, None]
    width = widest(cost, partial(flop_of_gru, *X.shape[1:], len(teacher.classes_)))
    direct = {**settings, "n_rounds": 1, "module__hidden_units": (width,)}
    peer = booster_of("classifier", seed, **direct)
    peer.fit(X, y, member_predictions=labels)
    return {
        "teacher": teacher.score(X_test, y_test),
        "at_end": booster.score(X_test, y_test),
        "booster": early_scores(booster, X_test, y_test),
        "peer": early_scores(peer, X_test, y_test),
        "rounds": booster.n_rounds_,
        "flop": [cost, peer.rounds_[0].flop],
    }


def flop_of_gru(n_times: int, n_channels: int, n_classes: int, width: int) -> float:
    """Operations of a GRU for one series."""
    return 2.0 * (n_times * 3 * width * (n_channels + width) + width * n_classes)


def mean_and_error(values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean of what there is, and its standard error; None where there is too little."""
    known = [value for value in values if value is not None]
    error = float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
    return {"mean": float(np.mean(known)) if known else None, "error": error}


def summary_of_series(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, standard errors, and what the booster is held against."""

    def along(which: str) -> list[dict[str, Any]]:
        keys = ("accuracy", "share")
        return [
            {"time": at[0]["time"], **{key: mean_and_error(row[key] for row in at) for key in keys}}
            for at in zip(*(seed[which] for seed in seeds), strict=True)
        ]

    behind = mean_and_error(seed["teacher"] - seed["at_end"] for seed in seeds)
    return {
        "teacher": float(np.mean([seed["teacher"] for seed in seeds])),
        "behind": behind,
        "booster": along("booster"),
        "peer": along("peer"),
        "targets": [judged("DSA: behind the teacher at the end", behind["mean"], high=0.005)],
        "seeds": seeds,
    }


def early_scores(booster, X: np.ndarray, y: np.ndarray, threshold: float = 0.9) -> list[dict]:
    """Accuracy of the series that are predicted by some times, and their share."""
    labels, steps = booster.predict_early(X, threshold)
    found = []
    for share in SHARES_OF_TIME:
        done = steps <= round(share * X.shape[1])
        accuracy = float((labels == y)[done].mean()) if done.any() else None
        found.append({"time": share, "accuracy": accuracy, "share": float(done.mean())})
    return found


# All of it ----------------------------------------------------------------------------------------


def report(results: dict[str, dict]) -> None:
    columns = [str(t + 1) for t in range(N_ROUNDS)]
    curves = [
        [name, which, *(f"{score:.4f}" for score in result[which])]
        for name, result in results.items()
        if name != "series"
        for which in ("booster", "average")
        if which in result
    ]
    print_table(["accuracy after round", "", *columns], curves)
    for name, result in results.items():
        print(f"{name}: teacher {result['teacher']:.4f}")
    for which in ("booster", "peer"):
        for row in results.get("series", {}).get(which, ()):
            print(f"series, {which}: {row}")
    rows = [row for result in results.values() for row in result["targets"]]
    keys = ("target", "value", "high", "reached")
    print_table(["target", "value", "at most", "reached"], [[row[k] for k in keys] for row in rows])
    print_comparisons([row for result in results.values() for row in result.get("times", ())])


def main() -> None:
    options = asked(__doc__, parts=["toys", "tables", "series"], seeds=2)  # of all but the tables
    changes, n_rows, n_seeds = {}, None, options.seeds
    if options.quick:
        changes, n_rows, n_seeds = {"max_epochs": 1, "search__max_search": 1}, 300, 1
    results: dict[str, dict] = {}
    if "toys" in options.parts:
        for name in TOYS:
            numbers = range(FIRST_SEED, FIRST_SEED + n_seeds)
            seeds = [run_toy(name, seed, changes, n_rows or N_ROWS) for seed in numbers]
            results[name] = summary_of_toy(name, seeds)
            save(options, results=results)
    if "tables" in options.parts:
        for name in FASTER:
            results[name] = run_table(name, changes, n_rows, n_rounds=1 if options.quick else 7)
            save(options, results=results)
    if "series" in options.parts:
        numbers = range(n_seeds)
        results["series"] = summary_of_series([run_series(changes, n_rows, s) for s in numbers])
        save(options, results=results)
    report(results)


if __name__ == "__main__":
    main()
