# SPDX-License-Identifier: BSD-3-Clause
"""Batches from pools of any form."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
)
from skdistill._training.trainer import SEED_LIMIT
from skdistill.active import select_batch
from skdistill.active._select import GradientSketch, lcmd, margins

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"max_epochs": 3, "module__hidden_units": (6,), "random_state": 0}
rng = np.random.RandomState(0)
X = rng.normal(size=(300, 3))
NUMBERS, CLASSES = X[:, 0] - X[:, 1] ** 2, (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
X_TRAIN, X_POOL = X[:40], X[40:]


@pytest.fixture(scope="module")
def student():
    teacher = BayesianEnsembleRegressor(3, **SMALL)
    return HydraPlusRegressor(teacher, **SMALL).fit(X_TRAIN, NUMBERS[:40])


@pytest.fixture(scope="module")
def classifier():
    return BayesianEnsembleClassifier(3, **SMALL).fit(X_TRAIN, CLASSES[:40])


def select(model, pool, n=20, **arguments):
    return select_batch(model, pool, n, **{"random_state": 0, "X_train": X_TRAIN, **arguments})


def test_pools_in_any_form_give_the_same_batch(student, tmp_path):
    expected = select(student, X_POOL)
    assert len(set(expected.tolist())) == 20
    assert expected.dtype == np.int64
    assert 0 <= expected.min() <= expected.max() < len(X_POOL)
    np.save(tmp_path / "pool.npy", X_POOL)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    for pool in (mapped, X_POOL.tolist()):
        np.testing.assert_array_equal(select(student, pool), expected)


def test_classes_in_any_form(classifier):
    expected = select(classifier, X_POOL, 10)
    assert len(set(expected.tolist())) == 10
    found = select(classifier, X_POOL.tolist(), 10)
    np.testing.assert_array_equal(found, expected)


def test_defaults_are_those_of_the_kind(student, classifier):
    np.testing.assert_array_equal(select(student, X_POOL), select(student, X_POOL, method="lcmd"))
    two = np.sort(classifier.predict_proba(X_POOL), 1)[:, -2:]
    expected = np.argsort(two[:, 1] - two[:, 0], kind="stable")[:20]
    np.testing.assert_array_equal(select(classifier, X_POOL), expected)
    logistic = LogisticRegression().fit(X_TRAIN, CLASSES[:40])
    assert select(logistic, X_POOL, method="margin").shape == (20,)


def test_margins_by_hand():
    proba = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
    np.testing.assert_allclose(margins(proba), [0.2, 0.7, 0.0])


def test_batches_are_those_of_the_features(student):
    rng = np.random.RandomState(5)
    both = GradientSketch(student, 512, int(np.random.RandomState(5).randint(SEED_LIMIT)))(X)
    expected = lcmd(both[40:], 30, both[:40])
    np.testing.assert_array_equal(select(student, X_POOL, 30, random_state=rng), expected)


@pytest.mark.parametrize("empty", [[], X_TRAIN[:0]])
def test_no_labelled_samples_are_refused(student, empty):
    with pytest.raises(ValueError, match="X_train must have samples, or be None"):
        select(student, X_POOL, X_train=empty)
