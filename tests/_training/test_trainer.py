# SPDX-License-Identifier: BSD-3-Clause
"""Weights of rows, the caller's generators, callbacks of skorch and of scikit-learn."""

from __future__ import annotations

import importlib.util
import signal
from collections import Counter
from functools import partial

import numpy as np
import pytest
import skorch
import torch
from sklearn.frozen import FrozenEstimator
from small_models import ensemble, student

from skdistill import (
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
)
from skdistill.samplers import DeepEnsemble

# ------------------------------------------------------------------------------------------
# Weights
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ensemble, student])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.eye(60)[0], "sample_weight must not be negative"),
        (np.zeros(60), "sample_weight must have at least one positive value"),
        (0.0, "sample_weight must have at least one positive value"),
        (-1.0, "sample_weight must not be negative"),
        (np.ones(59), r"sample_weight must have shape \(60,\), got \(59,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\), got \(60, 1\)"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
        (np.full(60, np.inf), "sample_weight contains infinity"),
    ],
)
def test_bad_weights_are_named(make, weight, message, data):
    with pytest.raises(ValueError, match=message):
        make().fit(*data, sample_weight=weight)


# ------------------------------------------------------------------------------------------
# The caller's generators and threads
# ------------------------------------------------------------------------------------------


def with_dropout(in_features, out_features, dropout=0.5):
    return torch.nn.Sequential(
        torch.nn.Linear(in_features, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, out_features)
    )


def dropout_ensemble(**params):
    return BayesianEnsembleRegressor(2, module=with_dropout, max_epochs=2, **params)


def dropout_student(**params):
    return HydraPlusRegressor(ensemble(), module=with_dropout, max_epochs=2, **params)


@pytest.mark.parametrize("make", [ensemble, student, dropout_ensemble, dropout_student])
def test_fit_leaves_the_callers_generators_and_threads(make, data):
    model = make().set_params(random_state=0)
    torch.manual_seed(5)
    np.random.seed(5)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.fit(*data).predict(data[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()


# ------------------------------------------------------------------------------------------
# skorch's callbacks and scikit-learn's
# ------------------------------------------------------------------------------------------


class PressesCtrlC(skorch.callbacks.Callback):
    """The user presses Ctrl-C while this callback is at work, at the end of the second epoch."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("make", [ensemble, student])
def test_ctrl_c_within_a_callback_is_no_wish_to_stop(make, data):
    before = signal.getsignal(signal.SIGINT)
    model = make(callbacks=[PressesCtrlC()])
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(model.history_) == 2
    assert model.predict(data[0]).shape == (60,)


has_callbacks = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None, reason="scikit-learn < 1.9"
)


class Tasks:
    """A scikit-learn callback that writes down the tasks, and may stop at an epoch."""

    max_propagation_depth = None

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.begun: list[tuple] = []
        self.ended: list[tuple] = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(self.path(context))

    def on_fit_task_end(self, estimator, context):
        self.ended.append(self.path(context))
        return context.task_name == "epoch" and context.task_id == self.stop_at

    @staticmethod
    def path(context):
        names = []
        while context is not None:
            names.insert(0, (context.estimator_name, context.task_name))
            context = context.parent
        return tuple(names)


def counted(tasks):
    assert Counter(tasks.begun) == Counter(tasks.ended)
    return Counter((path[-1][0], path[-1][1]) for path in tasks.begun)


@has_callbacks
def test_every_epoch_is_a_task(data):
    tasks = Tasks()
    ensemble().set_callbacks(tasks).fit(*data)
    name = "BayesianEnsembleRegressor"
    assert counted(tasks) == {(name, "fit"): 1, (name, "epoch"): 5}


@has_callbacks
@pytest.mark.parametrize("memory", [False, True])
def test_the_teachers_epochs_are_tasks_of_the_student(memory, data, tmp_path):
    tasks = Tasks()
    model = student(ensemble(max_epochs=3), memory=str(tmp_path) if memory else None)
    model.set_callbacks(tasks).fit(*data)
    counts = counted(tasks)
    fit, epoch = ("BayesianEnsembleRegressor", "fit"), ("BayesianEnsembleRegressor", "epoch")
    assert counts[fit] == 1
    assert counts[epoch] == 3
    assert counts["HydraPlusRegressor", "epoch"] == 5
    assert (("HydraPlusRegressor", "fit"), fit, epoch) in tasks.begun
    assert not hasattr(model.teacher_, "_skl_callbacks")


@has_callbacks
def test_a_callback_that_returns_true_stops(data):
    teacher = ensemble().set_callbacks(Tasks(stop_at=2)).fit(*data)
    assert len(teacher.history_) == 3
    model = student(FrozenEstimator(teacher)).set_callbacks(Tasks(stop_at=1)).fit(*data)
    assert len(model.history_) == 2
    assert model.predict(data[0]).shape == (60,)


def monitored(model, X, y, scoring, **fit_params):
    """Scores that scikit-learn's monitor has logged of epochs, and of the whole fit."""
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring=scoring)
    model.set_callbacks(monitor).fit(X, y, **fit_params)
    logged = monitor.get_logs().data
    of_task = {
        task: [row[scoring] for row in logged if row["task_name"] == task]
        for task in ("epoch", "fit")
    }
    return of_task["epoch"], of_task["fit"]


@has_callbacks
@pytest.mark.parametrize(
    "make", [partial(ensemble, inference=DeepEnsemble(calibrate=None)), student]
)
def test_scores_are_monitored_after_each_epoch(make, data):
    X, y = data
    model = make()
    scores, (last,) = monitored(model, X, y, "r2")
    assert len(scores) == 5
    assert scores[-1] == pytest.approx(last, rel=1e-9)
    assert last == pytest.approx(model.score(X, y), rel=1e-9)
    assert len(set(scores)) == 5
    silent = make().fit(X, y)  # to be watched changes nothing
    np.testing.assert_array_equal(model.predict(X), silent.predict(X))
