# SPDX-License-Identifier: BSD-3-Clause
"""DriftMonitor: no alarm without drift, and one for samples far from all others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import ensemble, student

from skdistill import BayesianEnsembleClassifier
from skdistill.modules import ConvNet
from skdistill.monitoring import DriftMonitor


def samples(n, seed, n_features=4):
    return np.random.default_rng(seed).normal(size=(n, n_features))


@pytest.fixture(scope="module")
def model():
    X = samples(200, 0)
    return student().fit(X, X[:, 0] - X[:, 1])


@pytest.fixture(scope="module")
def monitor_of(model):
    return lambda **settings: DriftMonitor(model, samples(300, 1), random_state=0, **settings)


@pytest.mark.slow
def test_no_alarm_without_drift(model):
    """Of 60 streams at level .1, with a small reference and ten looks each."""
    alarms = 0
    for seed in range(60):
        X = samples(350, [2, seed])
        monitor = DriftMonitor(model, X[:50], alpha=0.1, random_state=seed)
        alarms += max(monitor.update(part).is_drift_ for part in np.split(X[50:], 10))
    assert alarms <= 12  # a binomial of .1 exceeds it once in 200 times at most


def test_samples_far_off_are_drift(monitor_of):
    monitor = monitor_of()
    assert monitor.columns_ == ["epistemic", "total"]
    monitor.update(samples(500, 3))
    assert not monitor.is_drift_
    assert monitor.p_value_ > 0.1
    assert monitor.update(samples(400, 4) + [0, 0, 4, 0]).is_drift_
    assert monitor.mean_ranks_[0] > 0.6
    p_value = monitor.p_value_
    # Looking on does not undo it.
    assert monitor.update(samples(400, 5)).p_value_ <= p_value
    assert monitor.n_samples_ == 1300
    assert [n for n, _ in monitor.history_] == [500, 900, 1300]
    assert monitor.history_[1] == (900, p_value)


def test_uncertainty_tells_of_samples_far_from_all_others(model):
    """Two features that no longer go together have the ranks that they had, each of its own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 1)) + 0.1 * samples(900, 1)
    fitted = student(max_epochs=30).fit(X[:300], X[:, 0][:300])
    monitor = DriftMonitor(fitted, X[300:600], random_state=0)
    assert not monitor.update(X[600:]).is_drift_
    apart = rng.permuted(X[300:600], axis=0)
    assert monitor.update(apart).is_drift_
    assert monitor.mean_ranks_[0] > 0.8


def test_models_in_pipelines_and_classifiers(model):
    X = samples(300, 0)
    pipeline = make_pipeline(StandardScaler(), ensemble()).fit(X[:100], X[:100, 0])
    assert DriftMonitor(pipeline, X[100:]).columns_ == ["epistemic", "total"]
    images = np.random.default_rng(0).normal(size=(60, 1, 8, 8)).astype(np.float32)
    classifier = BayesianEnsembleClassifier(2, max_epochs=2, module=ConvNet, random_state=0)
    classifier.fit(images, np.arange(60) % 2)
    assert DriftMonitor(classifier, images).columns_ == ["epistemic", "total"]
    two = ensemble().fit(X[:, :2], X[:, 2:])
    found = DriftMonitor(two, X[:, :2]).columns_
    assert found == ["epistemic_0", "epistemic_1", "total_0", "total_1"]
    alone = ensemble(n_members=1).fit(X, X[:, 0])
    assert DriftMonitor(alone, X).columns_ == ["total"]


def test_an_unpickled_monitor_goes_on_bit_for_bit(monitor_of):
    monitor = monitor_of()
    monitor.update(samples(100, 3))
    loaded = pickle.loads(pickle.dumps(monitor))
    for seed in (4, 5):
        X = samples(300, seed) + [0, 0.2, 0, 0]
        found, expected = loaded.update(X), monitor.update(X)
        assert found.p_value_ == expected.p_value_
        np.testing.assert_array_equal(found.mean_ranks_, expected.mean_ranks_)
    assert list(loaded.history_) == list(monitor.history_)
