# SPDX-License-Identifier: BSD-3-Clause
"""What is promised of answers, and what is kept of it.

A student of an ensemble of five is fitted on the training samples of a set, 800 at most. The other
samples of the set, 2,000 at most, are a population: held-out samples are drawn from it again and
again, with replacement, so that the truth is known:

abstention  SelectivePredictor with 1,000 held-out samples, 1,000 times for each kind of
            uncertainty. The risk to keep to, with probability .9, is half of the error rate in the
            population, or .9 of the mean squared error, with squared errors of ten times their
            mean at most. "broken" is the share of the draws whose risk in the population is larger,
            "plain" the same of the largest threshold with a small enough mean of held-out losses.

The models have skdistill's defaults.

    python benchmarks/decisions.py
    python benchmarks/decisions.py --sets wine
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from _common import asked, print_table, save
from _datasets import table
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.decision import SelectivePredictor
from skdistill.distributions import Uncertainty

CLASSES = ("magic", "letter")
SETS = (*CLASSES, "power-plant", "wine")
KINDS = ("total", "aleatoric", "epistemic")
TRAINING, POPULATION, HELD_OUT = 800, 2000, 1000
SHARE = {True: 0.5, False: 0.9}  # of the mean loss, of classes and of numbers, to keep to
MAX_LOSS = 10  # in units of the mean squared error
DELTA_KEPT = 0.9


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


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features, standardised, and targets in random order."""
    X, y = table(name)
    order = np.random.default_rng(0).permutation(len(y))[: TRAINING + POPULATION]
    return StandardScaler().fit_transform(X[order]).astype(np.float32), y[order]


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


# ------------------------------------------------------------------------------------------------


def main() -> None:
    options = asked(__doc__, sets=SETS)
    results: dict[str, dict] = {"abstention": {}}
    for name in options.sets:
        found = results["abstention"][name] = abstention(name, options)
        columns = list(found["total"])
        print_table(["set", "by", *columns], [[name, k, *found[k].values()] for k in KINDS])
        save(options, results=results)


if __name__ == "__main__":
    main()
