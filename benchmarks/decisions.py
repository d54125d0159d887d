# SPDX-License-Identifier: BSD-3-Clause
"""What is promised of answers and of intervals, and what is kept of it.

A student of an ensemble of five is fitted on the training samples of a set, 800 at most. The other
samples of the set, 2,000 at most, are a population: held-out samples are drawn from it again and
again, with replacement, so that the truth is known. Parts:

abstention  SelectivePredictor with 1,000 held-out samples, 1,000 times for each kind of
            uncertainty. The risk to keep to, with probability .9, is half of the error rate in the
            population, or .9 of the mean squared error, with squared errors of ten times their
            mean at most. "broken" is the share of the draws whose risk in the population is larger,
            "plain" the same of the largest threshold with a small enough mean of held-out losses.
coverage    ConformalRegressor with 1,000 held-out samples and coverage .9, 30 times. Held-out
            samples are drawn with weights p, and those to come with weights q:
            drift  p = 1, q = exp(z), with z a random linear function of the features, of variance
                   1 and cut at -3 and 3, another one each time
            gap    The student has not seen the middle third along a feature, that with the largest
                   rank correlation with y. p = 1/4 and q = 1 there; p = 1 and q = 1/4 elsewhere
            tail   the same with the outer sixths
            Intervals are plain ones, and weighted by the known ratio q/p, or by one that is
            estimated from 1,000 samples to come: by logistic regression on the features
            ("logistic"), or on splines of them ("splines"). Coverage is that of samples to come,
            "infinite" the share of their intervals, and widths are medians over samples, in
            standard deviations of y.
stream      The samples in the order of a feature, the same. The student is fitted on a random half
            of the first half, the others there are held out, and the second half comes in batches
            of 20: coverage of plain intervals and of those of AdaptiveConformalRegressor, of all
            samples and of the worst block of 200.

The models have skdistill's defaults.

    python benchmarks/decisions.py
    python benchmarks/decisions.py --parts coverage --sets wine --resume
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import numpy as np
from _common import argument_parser, one_thread, print_table, record, write_json
from _datasets import load_tabular_classification, load_uci_regression
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer, StandardScaler
from sklearn.utils import get_tags

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.decision import (
    AdaptiveConformalRegressor,
    ConformalRegressor,
    SelectivePredictor,
)
from skdistill.distributions import Uncertainty
from skdistill.model_selection import GapSplit, TailSplit

CLASSES = ("magic", "satimage", "letter")
NUMBERS = ("boston", "concrete", "energy", "power-plant", "wine", "protein")
OF_ABSTENTION = (*CLASSES, "power-plant", "wine", "protein")
PARTS = ("abstention", "coverage", "stream")
KINDS = ("total", "aleatoric", "epistemic")
TRAINING, POPULATION, HELD_OUT, BATCH, BLOCK = 800, 2000, 1000, 20, 200
SHARE = {True: 0.5, False: 0.9}  # of the mean loss, of classes and of numbers, to keep to
MAX_LOSS = 10  # in units of the mean squared error
RARE = 0.25
COVERAGE = DELTA_KEPT = 0.9


def features(X: np.ndarray) -> np.ndarray:
    """Return samples without their numbers, see `Stored`."""
    return X[:, 1:]


RATIOS = {
    "logistic": make_pipeline(
        FunctionTransformer(features), StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "splines": make_pipeline(
        FunctionTransformer(features),
        StandardScaler(),
        SplineTransformer(knots="quantile", extrapolation="linear"),
        LogisticRegression(max_iter=1000),
    ),
}


class Stored(BaseEstimator):
    """A fitted model that predicts a population once; X has the numbers of samples before them."""

    def __init__(self, model, X):
        self.model = model
        self.X = X
        self.predictions_ = model.predict(X)
        self.parts_ = model.predict_uncertainty(X)

    def __sklearn_tags__(self):
        return get_tags(self.model)

    @property
    def classes_(self):
        return self.model.classes_

    def predict(self, X):
        return self.predictions_[X[:, 0].astype(int)]

    def predict_uncertainty(self, X):
        rows = X[:, 0].astype(int)
        parts = (part[rows] for part in self.parts_)
        return Uncertainty(*parts, measure=self.parts_.measure)


def stored(student, X: np.ndarray):
    """Return a frozen student's predictions for samples, and these with their numbers."""
    return FrozenEstimator(Stored(student, X)), np.column_stack([np.arange(len(X)), X])


@functools.cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features, standardised, and targets in random order."""
    data = (load_tabular_classification if name in CLASSES else load_uci_regression)(name)
    order = np.random.default_rng(0).permutation(len(data.target))[: TRAINING + POPULATION]
    X = StandardScaler().fit_transform(data.data[order]).astype(np.float32)
    return X, data.target[order]


def fitted(X: np.ndarray, y: np.ndarray, options):
    """Return a frozen student, of classes or numbers."""
    settings = {"random_state": 0, **({"max_epochs": 2} if options.quick else {})}
    teacher, student = BayesianEnsembleRegressor, HydraPlusRegressor
    if y.dtype.kind not in "f":
        teacher, student = BayesianEnsembleClassifier, HydraPlusClassifier
    return FrozenEstimator(student(teacher(5, **settings), **settings).fit(X, y))


def n_training(y: np.ndarray) -> int:
    """Return the number of training samples: at most half of all."""
    return min(TRAINING, len(y) // 2)


# Abstention ---------------------------------------------------------------------------------------


def plain_threshold(uncertainty: np.ndarray, losses: np.ndarray, max_risk: float) -> float:
    """Return the largest threshold below which the mean loss is small enough."""
    order = np.argsort(uncertainty)
    means = np.cumsum(losses[order]) / np.arange(1, len(losses) + 1)
    small = np.flatnonzero(means <= max_risk)
    return np.append(uncertainty[order], np.inf)[small[-1] + 1] if len(small) else -np.inf


def abstention(name: str, options) -> dict[str, Any]:
    X, y = load(name)
    n = n_training(y)
    student = fitted(X[:n], y[:n], options)
    y = y[n:]
    student, X = stored(student, X[n:])
    predicted = student.predict(X)
    losses = (y != predicted) if name in CLASSES else np.square(y - predicted)
    max_loss = None if name in CLASSES else MAX_LOSS * losses.mean()
    losses = np.minimum(losses, 1 if max_loss is None else max_loss)
    max_risk = SHARE[name in CLASSES] * losses.mean()
    found = {"max_risk": float(max_risk), "mean_loss": float(losses.mean()), "population": len(y)}
    for kind in KINDS:
        settings = {"max_loss": max_loss, "uncertainty": kind, "delta": 1 - DELTA_KEPT}
        model = SelectivePredictor(student, max_risk, **settings)
        uncertainty = student.predict_uncertainty(X)._asdict()[kind]
        draws = [
            one_draw(model, X, y, losses, uncertainty, np.random.default_rng(seed))
            for seed in range(20 if options.quick else 1000)
        ]
        broken, plain, answered, none = np.mean(draws, axis=0).tolist()
        found[kind] = {"broken": broken, "plain": plain, "answered": answered, "none": none}
    return found


def one_draw(model, X, y, losses, uncertainty, rng) -> tuple[float, ...]:
    """Whether two promises are broken, the share of the population answered, and if none is."""
    held_out = rng.integers(len(y), size=HELD_OUT)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No threshold")
        model.fit(X[held_out], y[held_out])
    thresholds = (
        model.threshold_,
        plain_threshold(uncertainty[held_out], losses[held_out], model.max_risk),
    )
    broken = [
        answered.any() and losses[answered].mean() > model.max_risk
        for answered in (uncertainty < threshold for threshold in thresholds)
    ]
    return *broken, (uncertainty < model.threshold_).mean(), model.coverage_ == 0


# Coverage -----------------------------------------------------------------------------------------


def feature_of(X: np.ndarray, y: np.ndarray) -> int:
    """Return the feature with the largest rank correlation with y, of more than ten values."""
    many = GapSplit().get_features(X)
    return max(many, key=lambda j: abs(spearmanr(X[:, j], y).statistic))


def coverage(name: str, protocol: str, options) -> dict[str, Any]:
    """Coverage and width of intervals by the way in which they are weighted."""
    X, y = load(name)
    is_rare = np.zeros(len(y), dtype=bool)
    if protocol in ("gap", "tail"):
        split = (GapSplit if protocol == "gap" else TailSplit)([feature_of(X, y)])
        is_rare[next(iter(split.split(X)))[1]] = True
    training = np.flatnonzero(~is_rare)[: n_training(y)]
    student = fitted(X[training], y[training], options)
    others = np.setdiff1d(np.arange(len(y)), training)
    y, is_rare, samples = y[others], is_rare[others], X[others]
    student, X = stored(student, samples)
    draws = []
    for seed in range(5 if options.quick else 30):
        rng = np.random.default_rng(seed)
        p = np.ones(len(y))
        if protocol == "drift":
            z = samples @ rng.standard_normal(samples.shape[1])
            q = np.exp(np.clip((z - z.mean()) / z.std(), -3, 3))
        else:
            p, q = np.where(is_rare, RARE, 1), np.where(is_rare, 1, RARE)
        draws.append(shifted(student, X, y, p / p.sum(), q / q.sum(), rng))
    return averages(draws)


def shifted(student, X, y, p, q, rng) -> dict[str, dict[str, float]]:
    """Scores of intervals of samples with probabilities q, of held-out samples with p."""
    held_out, new = (rng.choice(len(y), HELD_OUT, p=weights) for weights in (p, q))
    known = {"known": lambda samples: (q / p)[samples[:, 0].astype(int)]}
    found = {}
    for name, ratio in ({"plain": None} | known | RATIOS).items():
        model = ConformalRegressor(student, likelihood_ratio=ratio)
        X_new = X[new] if name in RATIOS else None
        interval = model.fit(X[held_out], y[held_out], X_new).predict_interval(X, COVERAGE)
        width = np.diff(interval)[:, 0]
        inside = (y >= interval[:, 0]) & (y <= interval[:, 1])
        found[name] = {
            "coverage": float(q @ inside),
            "infinite": float(q @ np.isinf(width)),
            "width": float(np.median(width[new]) / y.std()),
        }
    return found


def averages(draws: list[dict]) -> dict[str, Any]:
    """Means over draws."""
    return {
        name: {key: float(np.mean([draw[name][key] for draw in draws])) for key in values}
        for name, values in draws[0].items()
    }


# Streams ------------------------------------------------------------------------------------------


def stream(name: str, options) -> dict[str, Any]:
    """Coverage of all samples of a stream, and of the worst block, by method."""
    X, y = load(name)
    order = np.argsort(X[:, feature_of(X, y)], kind="stable")
    first, then = np.split(order, [len(y) // 2])
    first = np.random.default_rng(0).permutation(first)
    training, held_out = np.split(first, [n_training(first)])
    student = fitted(X[training], y[training], options)
    plain = ConformalRegressor(student).fit(X[held_out], y[held_out])
    adaptive = AdaptiveConformalRegressor(student, COVERAGE).fit(X[held_out], y[held_out])
    intervals = []
    for batch in np.split(then, np.arange(BATCH, len(then), BATCH)):
        intervals.append(adaptive.predict_interval(X[batch]))
        adaptive.partial_fit(X[batch], y[batch])
    found = {"plain": plain.predict_interval(X[then], COVERAGE), "adaptive": np.vstack(intervals)}
    blocks = np.split(np.arange(len(then)), np.arange(BLOCK, len(then) - BLOCK + 1, BLOCK))
    return {
        method: {
            "coverage": float((inside := (y[then] >= ends[:, 0]) & (y[then] <= ends[:, 1])).mean()),
            "worst_block": float(min(inside[block].mean() for block in blocks)),
            "infinite": float(np.isinf(ends).any(axis=1).mean()),
            "width": float(np.median(np.diff(ends)) / y.std()),
        }
        for method, ends in found.items()
    }


# ------------------------------------------------------------------------------------------------


def report(rows: list[list]) -> None:
    print_table(["part", "set", "by", *map(str, rows[0][3])], [[*row[:3], *row[4]] for row in rows])


def lines(part: str, name: str, found: dict[str, Any]) -> list[list]:
    scores = {key: value for key, value in found.items() if isinstance(value, dict)}
    return [[part, name, by, list(value), list(value.values())] for by, value in scores.items()]


def main() -> None:
    parser = argument_parser(__doc__, "decisions")
    sets = sorted({*OF_ABSTENTION, *NUMBERS})
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--resume", action="store_true", help="keep what the file has already")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore", skdistill.SchemaWarning)  # samples are far on purpose
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, dict] = {}
    if options.resume and options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))["results"]

    def keep(part: str, name: str, found: dict[str, Any]) -> None:
        results.setdefault(part, {})[name] = found
        report(lines(part, name, found))
        write_json(options.output, record(settings=settings, results=results))

    if "abstention" in options.parts:
        for name in filter(options.sets.__contains__, OF_ABSTENTION):
            keep("abstention", name, abstention(name, options))
    for name in filter(options.sets.__contains__, NUMBERS):
        if "coverage" in options.parts:
            for protocol in ("drift", "gap", "tail"):
                keep(protocol, name, coverage(name, protocol, options))
        if "stream" in options.parts:
            keep("stream", name, stream(name, options))


if __name__ == "__main__":
    main()
