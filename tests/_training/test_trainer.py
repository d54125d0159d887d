# SPDX-License-Identifier: BSD-3-Clause
"""Weights of rows, the caller's generators, callbacks of skorch and of scikit-learn."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import skorch
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import ensemble, student

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill.ensembles import _blocks
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Runtime

ROOT = Path(__file__).parents[2]

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


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_number_weights_every_row(make, data):
    X, y = data
    expected = make().fit(X, y, sample_weight=np.full(len(X), 2.0)).predict(X)
    np.testing.assert_array_equal(make().fit(X, y, sample_weight=2.0).predict(X), expected)


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


def student_that_drops(**params):
    return student(**{"module__dropout": 0.5, **params})


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


@pytest.mark.parametrize("make", [dropout_ensemble, dropout_student, student_that_drops])
def test_dropout_is_on_in_fit_off_after_it_and_seeded(make, data):
    X, y = data
    first, second = (make(random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_array_equal(first.predict(X), first.predict(X))
    assert not first.module_.training
    without = make(random_state=0, module__dropout=0.0).fit(X, y)
    assert (first.predict(X) != without.predict(X)).all()


# ------------------------------------------------------------------------------------------
# skorch's callbacks and scikit-learn's
# ------------------------------------------------------------------------------------------


class Epochs(skorch.callbacks.Callback):
    """Counts epochs, and asks to end training after `last` of them."""

    def __init__(self, last=100):
        self.last = last

    def on_train_begin(self, net, **kwargs):
        self.seen = 0

    def on_epoch_end(self, net, **kwargs):
        self.seen += 1
        if self.seen == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("make", [ensemble, student])
def test_skorch_callbacks_see_epochs_and_may_stop(make, data):
    model = make(callbacks=[("epochs", Epochs())], callbacks__epochs__last=2)
    model.fit(*data)
    assert len(model.history_) == 2
    assert model.callbacks[0][1].seen == 2
    assert model.predict(data[0]).shape == (60,)


class Batches(skorch.callbacks.Callback):
    seen = 0

    def on_batch_end(self, net, batch, training, **kwargs):
        self.seen += 1


class StopsAtOnce(skorch.callbacks.Callback):
    def on_batch_end(self, net, batch, training, **kwargs):
        raise KeyboardInterrupt


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_stop_within_the_first_epoch_is_no_interruption(make, data):
    model = make(callbacks=[StopsAtOnce()])
    try:
        model.fit(*data)
    except KeyboardInterrupt:
        pytest.fail("a callback's wish to stop came out as Ctrl-C")
    assert model.predict(data[0]).shape == (60,)


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


@pytest.mark.parametrize("make", [ensemble, student])
def test_a_fit_within_a_thread_sets_no_signal_handler(make, data, monkeypatch):
    alone = make().fit(*data)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("a handler was set"))
    with ThreadPoolExecutor(1) as pool:
        model = pool.submit(make().fit, *data).result()
    np.testing.assert_array_equal(model.predict(data[0]), alone.predict(data[0]))


@pytest.mark.parametrize("make", [ensemble, student])
def test_skorch_callbacks_may_listen_to_batches(make, data):
    listener = Batches()
    model = make(callbacks=[listener], batch_size=25).fit(*data)
    assert listener.seen == 5 * 3
    silent = make(batch_size=25).fit(*data)
    np.testing.assert_allclose(model.predict(data[0]), silent.predict(data[0]), rtol=1e-9)


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
def test_every_block_of_members_has_its_epochs(data, monkeypatch):
    monkeypatch.setattr(_blocks, "block_size", lambda *arguments: 2)
    tasks = Tasks()
    model = ensemble(runtime=Runtime(device="cpu")).set_callbacks(tasks).fit(*data)
    assert counted(tasks)["BayesianEnsembleRegressor", "epoch"] == 10
    assert len(model.history_) == 10


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
@pytest.mark.parametrize("make_teacher", ["frozen", "pipeline"])
def test_tasks_of_other_teachers_are_complete(make_teacher, data):
    tasks = Tasks()
    if make_teacher == "frozen":
        teacher = FrozenEstimator(ensemble().fit(*data))
    else:
        teacher = make_pipeline(StandardScaler(), ensemble())
    student(teacher).set_callbacks(tasks).fit(*data)
    counts = counted(tasks)
    assert counts["HydraPlusRegressor", "epoch"] == 5
    assert counts["BayesianEnsembleRegressor", "epoch"] == (5 if make_teacher == "pipeline" else 0)


@has_callbacks
def test_tasks_nest_through_a_grid_search(data):
    tasks = Tasks()
    search = GridSearchCV(student(), {"lr": [0.01, 0.02]}, cv=2).set_callbacks(tasks)
    search.fit(*data)
    counts = counted(tasks)
    n_fits = 2 * 2 + 1
    assert counts["HydraPlusRegressor", "epoch"] == 5 * n_fits
    assert counts["BayesianEnsembleRegressor", "epoch"] == 5 * n_fits
    deepest = max(tasks.begun, key=len)
    assert deepest[0][0] == "GridSearchCV"
    assert deepest[-1] == ("BayesianEnsembleRegressor", "epoch")


@has_callbacks
def test_a_callback_that_returns_true_stops(data):
    teacher = ensemble().set_callbacks(Tasks(stop_at=2)).fit(*data)
    assert len(teacher.history_) == 3
    model = student(FrozenEstimator(teacher)).set_callbacks(Tasks(stop_at=1)).fit(*data)
    assert len(model.history_) == 2
    assert model.predict(data[0]).shape == (60,)


@has_callbacks
def test_a_stop_at_the_first_epoch_keeps_what_it_learnt(data):
    model = (
        ensemble(inference=DeepEnsemble(early_stopping=True))
        .set_callbacks(Tasks(stop_at=0))
        .fit(*data)
    )
    assert model.best_epochs_.tolist() == [1, 1, 1]


@has_callbacks
@pytest.mark.parametrize("search", [False, True])
def test_progress_bar_runs(search, data, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    model = student(max_epochs=2)
    if search:
        model = GridSearchCV(model, {"lr": [0.01]}, cv=2)
    model.set_callbacks(ProgressBar()).fit(*data)
    assert "HydraPlusRegressor" in capsys.readouterr().out
    assert clone(model).get_params()


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


@has_callbacks
def test_monitored_classes_are_the_users_and_so_are_columns_and_weights(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"[: X.shape[1]])).assign(kind=["u", "v"] * 30)
    labels = np.where(y > np.median(y), "high", "low")
    weight = np.linspace(0, 1, 60)
    model = BayesianEnsembleClassifier(
        3, max_epochs=4, inference=DeepEnsemble(calibrate=None), random_state=0
    )
    scores, (last,) = monitored(model, frame, labels, "accuracy", sample_weight=weight)
    assert len(scores) == 4
    assert scores[-1] == last == pytest.approx(model.score(frame, labels, weight))


@has_callbacks
@pytest.mark.parametrize(
    "inference", [SGLD(1e-5, burn_in=0), MCDropout(rate=0.3)], ids=["chains", "dropout"]
)
def test_samplers_are_monitored(inference, data):
    model = BayesianEnsembleRegressor(4, inference=inference, max_epochs=3, random_state=0)
    scores, _ = monitored(model, *data, "r2")
    assert len(scores) == 3
    assert np.isfinite(scores).all()


@has_callbacks
@pytest.mark.parametrize("make", [DistributionDistiller, GPEDDistiller, BDistilBooster])
def test_the_end_of_every_fit_is_monitored(make, data):
    model = make(FrozenEstimator(ensemble().fit(*data)), max_epochs=3, random_state=0)
    scores, (last,) = monitored(model, *data, "r2")
    assert last == pytest.approx(model.score(*data), rel=1e-9)
    assert len(scores) == (0 if make is BDistilBooster else 3)  # a round is no model yet


@has_callbacks
def test_a_pruned_student_is_monitored_to_its_end(data):
    model = student(pruning=GroupLasso(0.3, finetune_epochs=2))
    scores, (last,) = monitored(model, *data, "r2")
    assert len(scores) == 5 + 2
    assert scores[-1] == pytest.approx(last, rel=1e-9)


@pytest.mark.parametrize("make", [ensemble, student])
def test_the_history_is_that_of_skorch(make, data):
    model = make()
    assert not hasattr(model, "history_")
    model.fit(*data)
    losses = [row["train_loss"] for row in model.history_]
    assert model.history_[:, "train_loss"] == losses
    assert model.history_[-1, ("epoch", "train_loss")] == (5, losses[-1])
    again = pickle.loads(pickle.dumps(model))
    assert again.history_ == model.history_
    assert clone(model).fit(data[0][:30], data[1][:30]).history_[:, "epoch"] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_works_without_scikit_learns_callbacks():
    code = """
    import sys
    import sklearn.compose, sklearn.model_selection, sklearn.pipeline  # need them where they exist
    sys.modules["sklearn.callback"] = None
    from sklearn.datasets import make_regression
    from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
    X, y = make_regression(40, 3, random_state=0)
    teacher = BayesianEnsembleRegressor(2, max_epochs=2)
    assert not hasattr(teacher, "set_callbacks")
    model = HydraPlusRegressor(teacher, max_epochs=2).fit(X, y)
    assert len(model.history_) == 2
    print(model.predict(X).shape)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "(40,)"
