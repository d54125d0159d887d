# SPDX-License-Identifier: BSD-3-Clause
"""Warnings of first mistakes: samples unknown to a teacher, refits, samples left out of steps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)

SMALL = {"max_epochs": 1, "module__hidden_units": (4,)}

rng = np.random.default_rng(0)
UNITS = np.array([1.0, 10.0, 100.0])
X = rng.normal(size=(90, 3)) * UNITS + 5 * UNITS
Y = (X / UNITS).sum(axis=1) + 0.1 * rng.normal(size=90)
LABELS = np.array(["low", "high"])[(Y.mean() < Y).astype(int)]


def told(student, X, y, **fit_params) -> list[str]:
    """Warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ConvergenceWarning)  # one epoch
        student.fit(X, y, **fit_params)
    assert {one.filename for one in caught} <= {__file__}  # they name the user's line
    return [str(one.message) for one in caught]


def with_scaler(model, y):
    return FrozenEstimator(make_pipeline(StandardScaler(), model).fit(X, y))


NUMBERS = with_scaler(BayesianRidge(), Y)
CLASSES = [with_scaler(m, LABELS) for m in (LogisticRegression(), RandomForestClassifier(9))]
CASES = [
    (HydraPlusRegressor(NUMBERS, **SMALL), Y),
    (DistributionDistiller(NUMBERS, **SMALL), Y),
    *((HydraPlusClassifier(teacher, **SMALL), LABELS) for teacher in CLASSES),
]


@pytest.mark.parametrize(("student", "y"), CASES)
def test_a_fitted_teacher_with_a_scaler_inside_a_pipeline(student, y):
    message, *more = told(make_pipeline(StandardScaler(), student), X, y)
    assert "gets other samples than it was fitted on" in message
    assert "Have they been scaled, as by a Pipeline around the student" in message
    assert "teacher=FrozenEstimator(make_pipeline(scaler, model)" in message
    assert not more


@pytest.mark.parametrize(("student", "y"), CASES)
def test_rows_as_they_came_are_not_told_of(student, y):
    assert told(student, X, y) == []
    assert told(make_pipeline("passthrough", student), X, y) == []


def test_a_teacher_that_says_the_mean_is_told_of_and_one_of_rare_classes_is_not():
    mean = FrozenEstimator(DummyRegressor().fit(X, Y))
    (message,) = told(HydraPlusRegressor(mean, **SMALL), X, Y)
    assert "R2 of 0 " in message
    frequent = FrozenEstimator(DummyClassifier().fit(X, LABELS))
    (message,) = told(HydraPlusClassifier(frequent, **SMALL), X, LABELS)
    assert "accuracy of 0.5" in message
    rare = (np.arange(90) % 9 == 0) * (X[:, 0] > 5)
    # It says 0 always, but knows where ones are likelier than elsewhere.
    teacher = FrozenEstimator(LogisticRegression().fit(X[:, :1], rare))
    assert not teacher.predict(X[:, :1]).any()
    assert told(HydraPlusClassifier(teacher, **SMALL), X[:, :1], rare) == []


def test_a_fitted_teacher_that_is_fitted_anew_says_so_once():
    lines = BayesianRidge()
    student = HydraPlusRegressor(lines, **SMALL)
    assert told(student, X, Y) == []
    lines.fit(X, Y)
    (message,) = told(student, X, Y)
    assert "a fitted BayesianRidge, and a clone of it is fitted anew" in message
    assert "teacher=FrozenEstimator(teacher)" in message
    assert "search" not in message
    assert told(student.set_params(teacher=FrozenEstimator(lines)), X, Y) == []


def test_rows_that_a_pipeline_does_not_transform():
    student = HydraPlusRegressor(BayesianEnsembleRegressor(2, **SMALL), **SMALL)
    pipeline = make_pipeline(StandardScaler(), student)
    (message,) = told(pipeline, X, Y, hydraplusregressor__X_transfer=X)
    assert "X_transfer seems to have other units than X in most features" in message
    assert "transform_input=['X_transfer']" in message
    alone = make_pipeline("passthrough", student)
    assert told(alone, X, Y, hydraplusregressor__X_transfer=X) == []
    assert told(student, X, Y, X_transfer=X) == []
