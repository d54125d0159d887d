# SPDX-License-Identifier: BSD-3-Clause
"""Batches from pools of any form."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
)
from skdistill._training.trainer import SEED_LIMIT
from skdistill.active import _select, select_batch
from skdistill.active._select import GradientSketch, lcmd

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


@pytest.mark.parametrize("method", ["lcmd", "uncertainty"])
def test_pools_in_any_form_give_the_same_batch(student, method, tmp_path):
    arguments = {"method": method}
    expected = select(student, X_POOL, **arguments)
    assert len(set(expected.tolist())) == 20
    assert expected.dtype == np.int64
    assert 0 <= expected.min() <= expected.max() < len(X_POOL)
    np.save(tmp_path / "pool.npy", X_POOL)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    for pool in (mapped, X_POOL.tolist()):
        np.testing.assert_array_equal(select(student, pool, **arguments), expected)


@pytest.mark.parametrize("method", ["margin", "batchbald", "uncertainty"])
def test_classes_in_any_form(classifier, method):
    expected = select(classifier, X_POOL, 10, method=method)
    assert len(set(expected.tolist())) == 10
    found = select(classifier, X_POOL.tolist(), 10, method=method)
    np.testing.assert_array_equal(found, expected)


def test_defaults_are_those_of_the_kind(student, classifier):
    np.testing.assert_array_equal(select(student, X_POOL), select(student, X_POOL, method="lcmd"))
    two = np.sort(classifier.predict_proba(X_POOL), 1)[:, -2:]
    expected = np.argsort(two[:, 1] - two[:, 0], kind="stable")[:20]
    np.testing.assert_array_equal(select(classifier, X_POOL), expected)
    logistic = LogisticRegression().fit(X_TRAIN, CLASSES[:40])
    assert select(logistic, X_POOL, method="margin").shape == (20,)


def test_uncertainty_is_the_largest_epistemic_part(student):
    expected = np.argsort(-student.predict_uncertainty(X_POOL).epistemic, kind="stable")[:5]
    np.testing.assert_array_equal(select(student, X_POOL, 5, method="uncertainty"), expected)
    both = np.c_[NUMBERS, 1000 * NUMBERS][:40]
    model = BayesianEnsembleRegressor(3, **SMALL).fit(X_TRAIN, both)
    epistemic = model.predict_uncertainty(X_POOL).epistemic
    expected = np.argsort(-(epistemic / epistemic.mean(0)).sum(1), kind="stable")[:5]
    np.testing.assert_array_equal(select(model, X_POOL, 5, method="uncertainty"), expected)


def test_batches_are_those_of_the_features(student):
    rng = np.random.RandomState(5)
    both = GradientSketch(student, 512, int(np.random.RandomState(5).randint(SEED_LIMIT)))(X)
    expected = lcmd(both[40:], 30, both[:40])
    np.testing.assert_array_equal(select(student, X_POOL, 30, random_state=rng), expected)


@pytest.mark.parametrize("empty", [[], X_TRAIN[:0]])
def test_no_labelled_samples_are_refused(student, empty):
    with pytest.raises(ValueError, match="X_train must have samples, or be None"):
        select(student, X_POOL, X_train=empty)


def test_large_pools_are_drawn_from(student, monkeypatch):
    whole = select(student, X_POOL)
    monkeypatch.setattr(_select, "_ROWS", 37)
    np.testing.assert_array_equal(select(student, X_POOL), whole)
    found = select(student, X_POOL, max_candidates=60)
    assert len(set(found.tolist())) == 20
    assert found.max() > 60  # not the first ones only
    monkeypatch.setattr(_select, "_LARGE", 1)
    assert len(set(select(student, X_POOL).tolist())) == 20


def test_errors_name_the_argument(student, classifier):
    for n, error in ((0, "n must be an integer >= 1"), (261, "n must be at most 260")):
        with pytest.raises(ValueError, match=error):
            select(student, X_POOL, n)
    with pytest.raises(ValueError, match=r"method must be one of .*Did you mean 'lcmd'"):
        select(student, X_POOL, method="lcmdd")
    with pytest.raises(ValueError, match="max_candidates must be at least n=20, got 10"):
        select(student, X_POOL, max_candidates=10)
    with pytest.raises(TypeError, match='"margin" needs a classifier'):
        select(student, X_POOL, method="margin")
    with pytest.raises(TypeError, match='"batchbald" needs a classifier'):
        select(student, X_POOL, method="batchbald")
    with pytest.raises(TypeError, match="Ridge has no module_"):
        select(Ridge().fit(X_TRAIN, NUMBERS[:40]), X_POOL)
    for method in ("lcmd", "uncertainty"):
        with pytest.raises(TypeError, match="X_pool must be an array or a frame"):
            select(student, 5, method=method)
    with pytest.raises(TypeError, match="X_train must be an array or a frame"):
        select(student, X_POOL, X_train=5)
    one = BayesianEnsembleRegressor(1, **SMALL).fit(X_TRAIN, NUMBERS[:40])
    with pytest.raises(TypeError, match="needs a model with an epistemic part"):
        select(one, X_POOL, method="uncertainty")
