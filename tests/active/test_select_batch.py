# SPDX-License-Identifier: BSD-3-Clause
"""Batches from pools of any form, and the strategy for scikit-activeml."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusRegressor,
)
from skdistill.active import BatchQuery, _select, gradient_features, select_batch
from skdistill.active._greedy import lcmd
from skdistill.active._select import sample

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"max_epochs": 3, "module__hidden_units": (6,), "random_state": 0}
rng = np.random.RandomState(0)
X = rng.normal(size=(300, 3))
NUMBERS, CLASSES = X[:, 0] - X[:, 1] ** 2, (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
X_TRAIN, X_POOL = X[:40], X[40:]
GREEDY = ["lcmd", "maxdet"]


@pytest.fixture(scope="module")
def student():
    teacher = BayesianEnsembleRegressor(3, **SMALL)
    return HydraPlusRegressor(teacher, **SMALL).fit(X_TRAIN, NUMBERS[:40])


@pytest.fixture(scope="module")
def classifier():
    return BayesianEnsembleClassifier(3, **SMALL).fit(X_TRAIN, CLASSES[:40])


class Pieces:
    """Batches of different sizes, with or without targets."""

    def __init__(self, X, with_y):
        self.X, self.with_y = X, with_y

    def __iter__(self):
        for part in np.split(self.X, [50, 51, 130]):
            yield (part, part[:, 0]) if self.with_y else part


def select(model, pool, n=20, **arguments):
    return select_batch(model, pool, n, **{"random_state": 0, "X_train": X_TRAIN, **arguments})


@pytest.mark.parametrize("method", [*GREEDY, "uncertainty"])
def test_pools_in_any_form_give_the_same_batch(student, method, tmp_path):
    arguments = {"method": method, "n_features": 64}
    expected = select(student, X_POOL, **arguments)
    assert len(set(expected.tolist())) == 20
    assert expected.dtype == np.int64
    assert 0 <= expected.min() <= expected.max() < len(X_POOL)
    np.save(tmp_path / "pool.npy", X_POOL)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    pools = [mapped, X_POOL.tolist(), Pieces(X_POOL, True), Pieces(X_POOL, False)]
    for pool in pools:
        np.testing.assert_array_equal(select(student, pool, **arguments), expected)


def test_frames_give_the_same_batch(student):
    pandas = pytest.importorskip("pandas")
    names = ["a", "b", "c"]
    train, pool = (pandas.DataFrame(part, columns=names) for part in (X_TRAIN, X_POOL))
    model = clone(student).fit(train, NUMBERS[:40])
    pool = pool.set_index(pool.index[::-1])
    found = select(model, pool, X_train=train)
    np.testing.assert_array_equal(found, select(student, X_POOL))


@pytest.mark.parametrize("method", ["margin", "batchbald", "uncertainty"])
def test_classes_in_any_form(classifier, method):
    expected = select(classifier, X_POOL, 10, method=method)
    assert len(set(expected.tolist())) == 10
    for pool in (Pieces(X_POOL, True), X_POOL.tolist()):
        np.testing.assert_array_equal(select(classifier, pool, 10, method=method), expected)


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
    both = gradient_features(student, X, 512, random_state=5)
    expected = lcmd(both[40:], 30, both[:40])
    np.testing.assert_array_equal(select(student, X_POOL, 30, random_state=rng), expected)


def test_seeds_decide(student):
    first, again = (select(student, X_POOL, n_features=4, random_state=1) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = select(student, X_POOL, n_features=4, random_state=2)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("method", GREEDY)
@pytest.mark.parametrize("n", [1, len(X_POOL)])
def test_one_and_all(student, method, n):
    found = select(student, X_POOL, n, method=method)
    assert len(set(found.tolist())) == n
    assert len(set(select(student, X_POOL, n, method=method, X_train=None).tolist())) == n


@pytest.mark.parametrize("empty", [[], X_TRAIN[:0], Pieces(X_TRAIN[:0], True)])
def test_no_labelled_samples_are_refused(student, empty):
    with pytest.raises(ValueError, match="X_train must have samples, or be None"):
        select(student, X_POOL, X_train=empty)


def test_labelled_samples_are_left_alone(student):
    """Copies of the labelled samples come last of a pool that holds them."""
    found = select(student, np.vstack([X_TRAIN, X_POOL]), 100)
    assert found.min() >= 40


def test_through_a_pipeline():
    student = DistributionDistiller(BayesianEnsembleRegressor(3, **SMALL), **SMALL)
    model = make_pipeline(StandardScaler(), student).fit(X_TRAIN, NUMBERS[:40])
    found = select(model, X_POOL)
    scaled = model[0].transform
    inside = select(model[-1], scaled(X_POOL), X_train=scaled(X_TRAIN))
    np.testing.assert_array_equal(found, inside)


@pytest.mark.parametrize("method", GREEDY)
def test_large_pools_are_drawn_from(student, method, monkeypatch):
    monkeypatch.setattr(_select, "_ROWS", 37)
    found = select(student, X_POOL, method=method, max_candidates=60)
    again = select(student, Pieces(X_POOL, False), method=method, max_candidates=60)
    assert len(set(found.tolist())) == len(set(again.tolist())) == 20
    assert found.max() > 60  # not the first ones only
    monkeypatch.setattr(_select, "_LARGE", 1)
    in_half = select(student, X_POOL, method=method, n_features=64)
    assert len(set(in_half.tolist())) == 20


def test_each_sample_is_drawn_as_often():
    values = np.arange(50)[:, None]
    counts, n_draws = np.zeros(50), 2000
    draws = np.random.RandomState(0)
    for _ in range(n_draws):
        places, found = sample(Pieces(np.repeat(values, 4, 0), False), identity, 20, 1, int, draws)
        assert len(set(places.tolist())) == 20
        np.testing.assert_array_equal(found[:, 0], places // 4)
        counts += np.bincount(found[:, 0], minlength=50)
    expected = n_draws * 20 / 50
    assert np.abs(counts - expected).max() < 5 * expected**0.5


def identity(X):
    return X


def test_errors_name_the_argument(student, classifier):
    for n, error in ((0, "n must be an integer >= 1"), (261, "n must be at most 260")):
        with pytest.raises(ValueError, match=error):
            select(student, X_POOL, n)
    for method in ("lcmd", "uncertainty"):
        with pytest.raises(ValueError, match="n must be at most 260"):
            select(student, Pieces(X_POOL, True), 261, method=method)
    with pytest.raises(ValueError, match=r"method must be one of .*Did you mean 'lcmd'"):
        select(student, X_POOL, method="lcmdd")
    with pytest.raises(ValueError, match="max_candidates must be at least n=20, got 10"):
        select(student, X_POOL, max_candidates=10)
    with pytest.raises(ValueError, match="n_features must be an integer >= 1"):
        select(student, X_POOL, n_features=0)
    with pytest.raises(TypeError, match='"margin" needs a classifier'):
        select(student, X_POOL, method="margin")
    with pytest.raises(TypeError, match='"batchbald" needs a classifier'):
        select(student, X_POOL, method="batchbald")
    with pytest.raises(TypeError, match="Ridge has no module_"):
        select(Ridge().fit(X_TRAIN, NUMBERS[:40]), X_POOL)
    for method in ("lcmd", "uncertainty"):
        with pytest.raises(TypeError, match="X_pool must be an array, a frame or an iterable"):
            select(student, 5, method=method)
    with pytest.raises(TypeError, match="X_train must be an array, a frame or an iterable"):
        select(student, X_POOL, X_train=5)
    one = BayesianEnsembleRegressor(1, **SMALL).fit(X_TRAIN, NUMBERS[:40])
    with pytest.raises(TypeError, match="tells its epistemic part"):
        select(one, X_POOL, method="uncertainty")


@pytest.mark.parametrize("missing", [np.nan, None, "?"])
def test_a_strategy_asks_for_samples_without_labels(missing):
    y = np.array([missing] * 300, dtype=object)
    y[:40] = np.array(["no", "yes", "maybe"])[CLASSES[:40]]
    strategy = BatchQuery(
        BayesianEnsembleClassifier(2, **SMALL), missing_label=missing, random_state=0
    )
    found = clone(strategy).query(X, y, batch_size=7)
    assert found.min() >= 40
    strategy.query(X, y)
    expected = select_batch(strategy.estimator_, X_POOL, 7)
    np.testing.assert_array_equal(found, 40 + expected)
    few = np.arange(100, 120)
    assert set(strategy.query(X, y, candidates=few, batch_size=7)) <= set(few.tolist())
    of_samples = strategy.query(X, y, candidates=X_POOL, batch_size=7)
    np.testing.assert_array_equal(of_samples, expected)


def test_a_strategy_for_numbers(student):
    y = np.where(np.arange(300) < 40, NUMBERS, np.nan)
    strategy = BatchQuery(clone(student), random_state=0)
    found = strategy.query(X, y, batch_size=20)
    expected = select(strategy.estimator_, X_POOL)
    np.testing.assert_array_equal(found, 40 + expected)
    with pytest.raises(ValueError, match="y must hold a label"):
        strategy.query(X, np.full(300, np.nan))
    with pytest.raises(ValueError, match=r"y must have shape \(300,\).* got \(299,\)"):
        strategy.query(X, y[1:])
    with pytest.raises(ValueError, match="method must be one of"):
        strategy.set_params(method="best").query(X, y)
