# SPDX-License-Identifier: BSD-3-Clause
"""Teachers, students and data for both tasks, which test files cannot import from one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.samplers import DeepEnsemble


class Counting:
    """Counts the fits of ensembles, those of copies too."""

    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        Counting.n_fits += 1
        return super().fit(X, y, sample_weight)


class CountingClassifier(Counting, BayesianEnsembleClassifier):
    pass


class CountingRegressor(Counting, BayesianEnsembleRegressor):
    pass


AS_THEY_ARE = {"random_state": 0, "normalize": "y"}


@dataclass(frozen=True)
class Task:
    """Small estimators for classification or regression, and 60 samples of three columns.

    They take samples as they are, so that what the engine deals can be held against X.
    """

    Ensemble: type
    Student: type
    CountingEnsemble: type
    X: np.ndarray
    y: np.ndarray

    @property
    def is_classification(self) -> bool:
        return self.Student is HydraPlusClassifier

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.y

    def ensemble(self, **params: Any):
        """A plain ensemble, not calibrated: after five epochs its errors are no noise."""
        settings = {"max_epochs": 5, "module__hidden_units": (8,), **AS_THEY_ARE}
        settings["inference"] = DeepEnsemble(calibrate=None, bootstrap=False)
        return self.Ensemble(**{"n_members": 3, **settings, **params})

    def counting_ensemble(self):
        """A teacher whose fits are counted from now on, as ``n_fits``."""
        Counting.n_fits = 0
        return self.CountingEnsemble(2, max_epochs=2, module__hidden_units=(4,))

    def student(self, teacher, **params: Any):
        # The members' predictions as they are, too.
        settings = {"max_epochs": 5, "module__hidden_units": (8,), "ddof": 0, **AS_THEY_ARE}
        return self.Student(teacher, **{**settings, **params})


def rows_and_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, 4.0 + X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="session")
def regression() -> Task:
    return Task(
        BayesianEnsembleRegressor, HydraPlusRegressor, CountingRegressor, *rows_and_numbers()
    )


@pytest.fixture(scope="session")
def classification() -> Task:
    X, numbers = rows_and_numbers()
    y = np.array(["elm", "ash", "oak"])[np.digitize(numbers, [3.0, 5.0])]
    return Task(BayesianEnsembleClassifier, HydraPlusClassifier, CountingClassifier, X, y)


@pytest.fixture(scope="session", params=["classification", "regression"])
def task(request, classification, regression) -> Task:
    return {"classification": classification, "regression": regression}[request.param]


@pytest.fixture(scope="session")
def frozen(task):
    """A fitted teacher of three members."""
    return FrozenEstimator(task.ensemble(max_epochs=20).fit(*task.data))


@pytest.fixture(scope="session")
def further():
    """Samples without labels."""
    return np.random.default_rng(1).normal(size=(25, 3))
