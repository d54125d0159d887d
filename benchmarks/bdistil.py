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

average HistGradientBoosting on five tables of numbers and five of classes, at most 2,000 training
        rows, random fifths held out. Beside the booster stand plain averages of as many networks,
        distilled one by one, and single networks that cost as much as 1, 2, 4 and 7 rounds. From
        round 2 on the booster's accuracy, or R2, should be at or above the average's within a
        standard error over tables and seeds, and its distance from the teacher after seven rounds
        at most .8 of the average's: the root mean squared difference of means, or of centred
        logits, whose average is taken there. The Kullback-Leibler divergence, for which
        probabilities are averaged, is printed beside it. Not in the default parts.
mnist   the same for a convolutional network of 10,000 images of MNIST, and a residual one of these
        with half as many pixels a side, and learners of the same kind with a quarter of the
        channels. With --validation the next 10,000 training images take the place of the test
        images; settings were chosen so. Not in the default parts:

    python benchmarks/bdistil.py
    python benchmarks/bdistil.py --parts average --output benchmarks/results/bdistil_average.json
    python benchmarks/bdistil.py --parts mnist --output benchmarks/results/bdistil_mnist.json
    python benchmarks/bdistil.py --parts toys --seeds 2 --booster-param search__gamma=0.1
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    argument_parser,
    comparison,
    interleaved,
    one_thread,
    parameter,
    print_comparisons,
    print_table,
    record,
    write_json,
)
from _datasets import load_tabular_classification, load_uci_regression
from mnist import load as load_images
from sklearn.base import is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleClassifier, BDistilBooster
from skdistill.datasets import make_cube, make_ellipsoid
from skdistill.model_selection import flops
from skdistill.modules import ConvNet, Recurrent, ResNet, count_flop, stack
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


def judged(target: str, value: float, limit: float, at_most: bool = True) -> dict[str, Any]:
    """A line of the table of targets."""
    reached = bool(value <= limit if at_most else value >= limit)
    return {"target": target, "value": float(value), "limit": limit, "reached": reached}


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
            judged(f"{name}: behind the average, less a standard error", behind, 0.0),
            judged(f"{name}: behind the oracle at the end", oracle - last, 0.015),
            judged(f"{name}: behind the teacher at the end", teacher - last, 0.01),
            judged(f"{name}: share of the teacher's operations", share, 0.4),
            judged(f"{name}: operations of connections", overhead, 0.05),
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
    data = load_tabular_classification(name)
    X, y = data.data.astype(np.float32), data.target
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
        "targets": [judged(f"{name}: behind the teacher", reference - scores[-1], 0.01)],
        "times": [
            comparison(setting, seconds, "teacher", ours="first round", at_least=FASTER[name]),
            comparison(setting, seconds, "teacher", ours="all rounds"),
        ],
    }


# Averages -----------------------------------------------------------------------------------------

NUMBERS = ("boston", "concrete", "energy", "wine", "power-plant")
CLASSES = ("spambase", "satimage", "pendigits", "letter", "magic")
AVERAGE_ROWS = 2000
AVERAGE_SETTINGS: dict[str, Any] = {"max_epochs": 100}
ORACLE_ROUNDS = (1, 2, 4, 7)
LEAST_PROBABILITY = 1e-6


def held_out(name: str, seed: int, n_rows: int) -> tuple[np.ndarray, ...]:
    """Scaled training and test rows of a table, and their targets."""
    of_numbers = name in NUMBERS
    data = (load_uci_regression if of_numbers else load_tabular_classification)(name)
    y = data.target if of_numbers else np.unique(data.target, return_inverse=True)[1]
    X, X_test, y, y_test = train_test_split(
        data.data, y, test_size=0.2, random_state=seed, stratify=None if of_numbers else y
    )
    X, y = X[:n_rows], y[:n_rows]
    scaler = StandardScaler().fit(X)
    if of_numbers:
        mean, std = y.mean(), y.std()
        y, y_test = (y - mean) / std, (y_test - mean) / std
    return scaler.transform(X), y, scaler.transform(X_test), y_test


def centred_logits(proba: np.ndarray) -> np.ndarray:
    """Logits of which learners are taught."""
    logits = np.log(np.maximum(proba, LEAST_PROBABILITY))
    return logits - logits.mean(axis=-1, keepdims=True)


def rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.square(difference).mean()))


def follows(said: np.ndarray, wanted: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Score of means (n,) or probabilities (n, K), and how far they are from the teacher's."""
    if said.ndim == 1:
        return {"score": r2_score(y, said), "distance": rms(said - wanted)}
    logs = np.log(np.maximum(wanted, 1e-30)) - np.log(np.maximum(said, 1e-30))
    return {
        "score": float((said.argmax(1) == y).mean()),
        "distance": rms(centred_logits(said) - centred_logits(wanted)),
        "divergence": float((wanted * logs).sum(1).mean()),
    }


def average_of(said: np.ndarray, wanted: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The same of the average of predictions (T, n, ...); the distance is that of mean logits."""
    found = follows(said.mean(axis=0), wanted, y)
    if said.ndim == 3:
        found["distance"] = rms(centred_logits(said).mean(axis=0) - centred_logits(wanted))
    return found


def answers(model, X: np.ndarray) -> np.ndarray:
    """Means (n,), or probabilities (n, K)."""
    return model.predict(X) if is_regressor(model) else model.predict_proba(X)


def beside_averages(
    teacher,
    rows: tuple[np.ndarray, ...],
    seed: int,
    settings: dict[str, Any],
    resized: Callable[[float], dict[str, Any]],
) -> dict[str, Any]:
    """What a booster, averages and single networks say about held-out rows.

    `rows` are as those of `held_out`, and `resized` are the parameters of a learner that takes at
    most so many operations.
    """
    X, y, X_test, y_test = rows
    alone = {**settings, "n_rounds": 1}
    booster = distilled(teacher, X, y, seed, **settings)
    staged = booster.staged_predict if is_regressor(booster) else booster.staged_predict_proba
    singles = [distilled(teacher, X, y, 100 * seed + t, **alone) for t in range(N_ROUNDS)]
    said, wanted = np.stack([answers(one, X_test) for one in singles]), answers(teacher, X_test)
    costs, oracles = np.cumsum([found.flop for found in booster.rounds_]), {}
    for n_rounds in ORACLE_ROUNDS:
        size = resized(costs[min(n_rounds, len(costs)) - 1])
        oracle = distilled(teacher, X, y, seed, **{**alone, **size})
        oracles[n_rounds] = follows(answers(oracle, X_test), wanted, y_test)
    return {
        "seed": seed,
        "teacher": follows(wanted, wanted, y_test)["score"],
        "booster": padded([follows(stage, wanted, y_test) for stage in staged(X_test)]),
        "average": [average_of(said[: t + 1], wanted, y_test) for t in range(N_ROUNDS)],
        "oracle": oracles,
        "on_training_rows": [found.distance for found in booster.rounds_],
        "weights": [found.weight for found in booster.rounds_],
        "searches": [found.n_searches for found in booster.rounds_],
        "flop": costs.tolist(),
    }


def run_average(name: str, seed: int, changes: dict[str, Any], n_rows: int) -> dict[str, Any]:
    """The booster of a table's HistGradientBoosting beside averages."""
    rows = X, y, *_ = held_out(name, seed, n_rows)
    of_numbers = name in NUMBERS
    Teacher = HistGradientBoostingRegressor if of_numbers else HistGradientBoostingClassifier
    teacher = Teacher(random_state=0).fit(X, y)
    n_outputs = 2 if of_numbers else len(teacher.classes_)

    def resized(flop: float) -> dict[str, Any]:
        return {"module__hidden_units": layers_for(flop, X.shape[1], n_outputs)}

    settings = {**AVERAGE_SETTINGS, **changes}
    return {"set": name, **beside_averages(teacher, rows, seed, settings, resized)}


def summary_of_averages(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Curves of each table, means over its seeds, and what all are held against."""

    def curves(key: str, which: str) -> np.ndarray:
        return np.array([[row[key] for row in run[which]] for run in runs])

    difference = curves("score", "booster") - curves("score", "average")
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(runs))
    ratios = curves("distance", "booster") / curves("distance", "average")
    names = list(dict.fromkeys(run["set"] for run in runs))
    at = {name: [run["set"] == name for run in runs] for name in names}
    behind = float(-(difference.mean(axis=0) + error)[1:].min())
    judgement = [
        judged("behind the average, less a standard error", behind, 0.0),
        judged("distance after seven rounds, share of the average's", ratios[:, -1].mean(), 0.8),
    ]
    return {
        "difference": difference.mean(axis=0).tolist(),
        "standard_error": error.tolist(),
        "ratio": ratios.mean(axis=0).tolist(),
        "ratio_of": {name: ratios[at[name]].mean(axis=0).tolist() for name in names},
        "difference_of": {name: difference[at[name]].mean(axis=0).tolist() for name in names},
        "targets": judgement,
        "runs": runs,
    }


def report_averages(found: dict[str, Any]) -> None:
    columns = [str(t + 1) for t in range(N_ROUNDS)]
    rows = []
    for run in found["runs"]:
        for which in ("booster", "average"):
            for key in run[which][0]:
                values = [f"{row[key]:.4f}" for row in run[which]]
                rows.append([run["set"], str(run["seed"]), which, key, *values])
        for key in run["oracle"][1]:
            values = [run["oracle"].get(t + 1) for t in range(N_ROUNDS)]
            shown = ["" if row is None else f"{row[key]:.4f}" for row in values]
            rows.append([run["set"], str(run["seed"]), "oracle", key, *shown])
    print_table(["held-out rows, after round", "seed", "", "", *columns], rows)
    print()
    for key in ("difference", "standard_error", "ratio"):
        print(key, *(f"{value:+.4f}" for value in found[key]))
    print()


# Images -------------------------------------------------------------------------------------------

N_IMAGES, N_DIGITS = 10_000, 10
SIDES = {"convolutional": 28, "residual": 14}  # in pixels
IMAGE_NETWORKS: dict[str, Callable[[int], dict[str, Any]]] = {
    "convolutional": lambda width: {
        "module": ConvNet,
        "module__channels": (width, 2 * width),
        "module__hidden_units": (4 * width,),
    },
    "residual": lambda width: {
        "module": ResNet,
        "module__blocks": (1, 1),
        "module__channels": (width, 2 * width),
    },
}
TEACHER_WIDTH, LEARNER_WIDTH = 16, 4
IMAGE_TEACHER: dict[str, Any] = {"lr": 1e-2, "batch_size": 64, "max_epochs": 10}
IMAGE_SETTINGS: dict[str, Any] = {"max_epochs": 5}


def reduced(images: np.ndarray, side: int) -> np.ndarray:
    """Images (n, side, side) whose pixels are means of squares of those of `images`."""
    size = images.shape[-1] // side
    return images.reshape(-1, side, size, side, size).mean((2, 4))


def flop_of_images(side: int, params: dict[str, Any]) -> int:
    """Operations of a network for one image, as they are counted for learners."""
    sizes = {key.removeprefix("module__"): value for key, value in params.items()}
    network = sizes.pop("module")((side, side), N_DIGITS, **sizes)
    return count_flop(stack([network]), (side, side))


def run_images(
    name: str, seed: int, changes: dict[str, Any], n_rows: int, validation: bool
) -> dict[str, Any]:
    """The booster of a network for images beside averages."""
    images, network, side = load_images(validation), IMAGE_NETWORKS[name], SIDES[name]
    X, X_test = (reduced(part, side) for part in (images.X_train[:n_rows], images.X_test))
    y, y_test = images.y_train[:n_rows], images.y_test
    n_epochs = {"max_epochs": changes["max_epochs"]} if "max_epochs" in changes else {}
    teacher = BayesianEnsembleClassifier(1, **network(TEACHER_WIDTH), **IMAGE_TEACHER)
    teacher.set_params(random_state=seed, **n_epochs).fit(X, y)

    def resized(flop: float) -> dict[str, Any]:
        return network(widest(flop, lambda width: flop_of_images(side, network(width))))

    settings = {**network(LEARNER_WIDTH), **IMAGE_SETTINGS, **changes}
    found = beside_averages(teacher, (X, y, X_test, y_test), seed, settings, resized)
    return {"set": name, **found, "teacher_flop": flops(teacher, X[:1])}


# Series -------------------------------------------------------------------------------------------

FILE = "timeseries/dsa19_25x45_f16.npz"
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
    with np.load(Path(os.environ["SKDISTILL_DATA"], FILE)) as content:
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
        "targets": [judged("DSA: behind the teacher at the end", behind["mean"], 0.005)],
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
    for result in results.values():
        if "runs" in result:
            report_averages(result)
    if curves:
        print_table(["accuracy after round", "", *columns], curves)
        print()
    for name, result in results.items():
        if "teacher" in result:
            print(f"{name}: teacher {result['teacher']:.4f}")
    for which in ("booster", "peer"):
        for row in results.get("series", {}).get(which, ()):
            print(f"series, {which}: {row}")
    print()
    rows = [row for result in results.values() for row in result["targets"]]
    keys = ("target", "value", "limit", "reached")
    print_table(["target", "value", "at most", "reached"], [[row[k] for k in keys] for row in rows])
    times = [row for result in results.values() for row in result.get("times", ())]
    if times:
        print()
        print_comparisons(times)


def main() -> None:
    parser = argument_parser(__doc__, "bdistil")
    parts = ("toys", "tables", "series")
    choices = [*parts, "average", "mnist"]
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=choices)
    parser.add_argument("--sets", nargs="+", default=[*NUMBERS, *CLASSES], help="for the averages")
    parser.add_argument("--seeds", type=int, default=5, help="of all but the tables")
    parser.add_argument("--validation", action="store_true", help="score on training images")
    parser.add_argument("--booster-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    one_thread()
    changes, n_rows, n_seeds = dict(options.booster_param), None, options.seeds
    if options.quick:
        changes, n_rows, n_seeds = {"max_epochs": 1, "search__max_search": 1, **changes}, 300, 1
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, dict] = {}

    def keep(name: str, result: dict[str, Any]) -> None:
        results[name] = result
        write_json(options.output, record(settings=settings, results=results))

    def keep_averages(name: str, runs: Iterable[dict[str, Any]]) -> None:
        known: list[dict[str, Any]] = []
        for run in runs:
            known.append(run)
            if len(known) > 1:  # a standard error needs two
                keep(name, summary_of_averages(known))

    if "toys" in options.parts:
        for name in TOYS:
            numbers = range(FIRST_SEED, FIRST_SEED + n_seeds)
            seeds = [run_toy(name, seed, changes, n_rows or N_ROWS) for seed in numbers]
            keep(name, summary_of_toy(name, seeds))
    if "tables" in options.parts:
        for name in FASTER:
            keep(name, run_table(name, changes, n_rows, n_rounds=1 if options.quick else 7))
    if "average" in options.parts:
        keep_averages(
            "average",
            (
                run_average(name, seed, changes, n_rows or AVERAGE_ROWS)
                for seed, name in itertools.product(range(n_seeds), options.sets)
            ),
        )
    if "mnist" in options.parts:
        keep_averages(
            "mnist",
            (
                run_images(name, seed, changes, n_rows or N_IMAGES, options.validation)
                for seed, name in itertools.product(range(n_seeds), IMAGE_NETWORKS)
            ),
        )
    if "series" in options.parts:
        numbers = range(n_seeds)
        keep("series", summary_of_series([run_series(changes, n_rows, s) for s in numbers]))
    report(results)


if __name__ == "__main__":
    main()
