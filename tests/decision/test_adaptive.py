# SPDX-License-Identifier: BSD-3-Clause
"""Intervals for streams: the recursion by hand, and its bound on any sequence."""

from __future__ import annotations

import numpy as np
import pytest

from skdistill import BayesianEnsembleRegressor
from skdistill.decision import AdaptiveConformalRegressor, ConformalRegressor
from skdistill.metrics import interval_coverage, interval_score, interval_width


def stream(n, seed=0, scale=1.0):
    """Samples that a model takes for ones of variance 1."""
    rng = np.random.default_rng(seed)
    return np.ones((n, 2)), scale * rng.standard_normal(n)


def test_it_begins_as_split_conformal_prediction(regressor):
    X, y = stream(150)
    model = AdaptiveConformalRegressor(regressor, 0.8).fit(X, y)
    expected = ConformalRegressor(regressor).fit(X, y).predict_interval(X[:3], 0.8)
    np.testing.assert_allclose(model.predict_interval(X[:3]), expected)
    np.testing.assert_array_equal(model.scores_, np.abs(y))
    assert (model.n_seen_, model.n_missed_) == (0, 0)


def test_intervals_follow_the_recursion(regressor):
    X, _ = stream(9)
    model = AdaptiveConformalRegressor(regressor, 0.8, step_size=0.1).fit(X, np.arange(1.0, 10))
    np.testing.assert_allclose(model.predict_interval(X[:1]), [[-8, 8]])  # the 8th of 9
    model.partial_fit(X[:1], [8.5])  # a miss: .2 + .1 (.2 - 1)
    np.testing.assert_allclose(model.miscoverage_, 0.12)
    # Of 10 scores the one of rank ceil(.88 * 11) = 10.
    np.testing.assert_allclose(model.predict_interval(X[:1]), [[-9, 9]])
    model.partial_fit(X[:1], [-9.0])  # at the end of the interval: a hit
    np.testing.assert_allclose(model.miscoverage_, 0.14)
    assert (model.n_seen_, model.n_missed_) == (2, 1)
    np.testing.assert_allclose(model.scores_[-2:], [8.5, 9])


def test_intervals_may_be_infinite_or_empty(regressor):
    X, y = stream(30)
    model = AdaptiveConformalRegressor(regressor, 0.9, step_size=0.5).fit(X, y)
    model.partial_fit(X[:1], [1e9])
    assert model.miscoverage_ < 0
    assert np.isinf(model.predict_interval(X[:1])).all()
    model.partial_fit(X[:20], np.zeros(20))
    assert model.miscoverage_ > 0
    for _ in range(40):
        model.partial_fit(X[:1], [0.0])
        if model.miscoverage_ >= 1:
            break
    if model.miscoverage_ >= 1:
        np.testing.assert_array_equal(model.predict_interval(X[:1]), [[0, 0]])
        n_missed = model.n_missed_
        model.partial_fit(X[:1], [0.0])
        assert model.n_missed_ == n_missed + 1


def sequences(n):
    """Scores of the worst kinds."""
    rng = np.random.default_rng(0)
    return {
        "noise": rng.standard_normal(n),
        "growing": np.exp(np.arange(n) / 10),
        "shrinking": np.exp(-np.arange(n) / 10),
        "always the same": np.ones(n),
        "zero": np.zeros(n),
        "waves": 10 * np.sin(np.arange(n) / 50) * rng.standard_normal(n),
        "jumps": np.where(np.arange(n) % 100 < 50, 0.01, 100) * rng.standard_normal(n),
    }


@pytest.mark.parametrize("coverage", [0.5, 0.9])
@pytest.mark.parametrize("step_size", [0.01, 0.1, 0.7])
@pytest.mark.parametrize("name", sequences(1))
def test_share_of_misses_is_within_the_bound_on_any_sequence(regressor, name, step_size, coverage):
    n = 600
    model = AdaptiveConformalRegressor(regressor, coverage, step_size=step_size, max_scores=100)
    model.fit(*stream(50)).partial_fit(np.ones((n, 2)), sequences(n)[name])
    bound = (max(coverage, 1 - coverage) + step_size) / (n * step_size)  # Proposition 4.1
    assert abs(model.n_missed_ / n - (1 - coverage)) <= bound + 1e-12


def test_an_adversary_does_not_break_the_bound(regressor):
    """One who sees the interval, and misses it or hits it as is worse for the share so far."""
    model = AdaptiveConformalRegressor(regressor, 0.9, step_size=0.05).fit(*stream(50))
    one, n = np.ones((1, 2)), 500
    for _ in range(n):
        upper = model.predict_interval(one)[0, 1]
        misses = model.n_missed_ >= 0.1 * model.n_seen_ and np.isfinite(upper)
        model.partial_fit(one, [2 * upper + 1 if misses else 0.0])
    assert abs(model.n_missed_ / n - 0.1) <= (0.9 + 0.05) / (n * 0.05)


def test_batches_are_the_same_as_sample_by_sample(regressor):
    (X, y), (X_new, y_new) = stream(40), stream(200, seed=1, scale=3)
    whole = AdaptiveConformalRegressor(regressor, max_scores=60).fit(X, y)
    single = AdaptiveConformalRegressor(regressor, max_scores=60).fit(X, y)
    whole.partial_fit(X_new, y_new)
    for i in range(200):
        single.partial_fit(X_new[i : i + 1], y_new[i : i + 1])
    assert whole.miscoverage_ == single.miscoverage_
    np.testing.assert_array_equal(whole.scores_, np.abs(y_new[-60:]))
    np.testing.assert_array_equal(whole.predict_interval(X), single.predict_interval(X))
    assert AdaptiveConformalRegressor(regressor, max_scores=None).fit(X, y).partial_fit(
        X_new, y_new
    ).scores_.shape == (240,)


def test_coverage_recovers_from_a_change_that_plain_intervals_do_not_see(regressor):
    (X, y), (X_new, y_new) = stream(500), stream(2000, seed=1, scale=4)
    model = AdaptiveConformalRegressor(regressor).fit(X, y).partial_fit(X_new, y_new)
    upper = ConformalRegressor(regressor).fit(X, y).predict_interval(X_new)[:, 1]
    assert np.mean(np.abs(y_new) <= upper) < 0.5
    assert abs(model.n_missed_ / 2000 - 0.1) < 0.05


@pytest.mark.parametrize(
    "params", [{"coverage": 1.0}, {"step_size": 0}, {"max_scores": 0}, {"uncertainty": "x"}]
)
def test_what_is_wrong_is_named(regressor, params):
    with pytest.raises(ValueError, match=f"{next(iter(params))} must be"):
        AdaptiveConformalRegressor(regressor, **params).fit(*stream(30))


@pytest.mark.slow
def test_contract_of_scikit_learn(contract):
    ensemble = BayesianEnsembleRegressor(2, max_epochs=3, random_state=0)
    contract(AdaptiveConformalRegressor(ensemble))


def test_infinite_intervals_have_scores(regressor):
    """After a shift nothing is too far; the metrics know such intervals."""
    (X, y), (X_new, y_new) = stream(30), stream(60, seed=1, scale=1e6)
    model = AdaptiveConformalRegressor(regressor, step_size=0.5).fit(X, y)
    model.partial_fit(X_new[:3], y_new[:3])
    interval = model.predict_interval(X_new)
    assert np.isinf(interval).all()
    assert interval_coverage(y_new, interval) == 1
    assert interval_width(interval) == interval_score(y_new, interval, coverage=0.9) == np.inf
