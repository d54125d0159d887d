# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks of skorch and of ours, and who may end training."""

from __future__ import annotations

import contextlib
import math
import signal
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from skorch import callbacks as skorch_callbacks
from skorch.callbacks import Callback
from skorch.utils import noop
from small_stacks import (
    BATCH,
    EPOCHS,
    LR,
    N,
    assert_same_weights,
    batch_normalised,
    data,
    ensemble,
    plain_member,
    trained_stack,
)
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._engine import DivergenceGuard, MemberEarlyStopping, TaskPerEpoch
from skdistill._engine._callbacks import asks_to_stop
from skdistill.samplers import DeepEnsemble
from skdistill.settings import EarlyStopping, Optimizer

# --- callbacks of skorch and of users --------------------------------------------------------


class BatchCounter(Callback):
    def __init__(self):
        self.training = self.validation = 0

    def on_batch_end(self, net, training=None, **kwargs):
        self.training += training
        self.validation += not training


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_callback_that_listens_to_batches_hears_each_and_changes_nothing(early_stopping):
    X, y = data()
    counter = BatchCounter()
    heard = ensemble(
        callbacks=[counter], inference=DeepEnsemble(early_stopping=early_stopping)
    ).fit(X, y)
    assert_same_weights(
        heard, ensemble(inference=DeepEnsemble(early_stopping=early_stopping)).fit(X, y), atol=1e-9
    )
    n_train = N - math.ceil(0.1 * N) if early_stopping else N
    assert counter.training == EPOCHS * math.ceil(n_train / BATCH)
    assert counter.validation == (EPOCHS if early_stopping else 0)
    heard_per_epoch = (counter.training + counter.validation) / EPOCHS
    assert [len(row["batches"]) for row in heard.history_] == [heard_per_epoch] * EPOCHS


def test_history_holds_losses_durations_and_learning_rates():
    X, y = data()
    fitted = ensemble(inference=DeepEnsemble(early_stopping=True)).fit(X, y)
    assert [row["epoch"] for row in fitted.history_] == list(range(1, EPOCHS + 1))
    for name in ("train_loss", "valid_loss", "dur"):
        assert all(math.isfinite(row[name]) for row in fitted.history_)
    best = np.minimum.accumulate([row["train_loss"] for row in fitted.history_])
    assert_array_equal(
        [row["train_loss_best"] for row in fitted.history_], np.diff(best, prepend=np.inf) < 0
    )
    cosine = LR * (1 + np.cos(np.pi * np.arange(EPOCHS) / EPOCHS)) / 2
    assert_allclose([row["event_lr"] for row in fitted.history_], cosine, rtol=1e-12)
    assert fitted.net_.history[:, "train_loss"] == [row["train_loss"] for row in fitted.history_]


@pytest.mark.parametrize("load_best", [False, True])
def test_skorchs_early_stopping_ends_training_without_a_word(load_best):
    X, y = data()
    stopping = skorch_callbacks.EarlyStopping(
        monitor="train_loss", patience=3, threshold=10.0, sink=noop, load_best=load_best
    )
    fitted = ensemble(callbacks=[stopping]).fit(X, y)
    assert len(fitted.history_) == 4  # no epoch is better than the first by 1000 %
    same = ensemble(max_epochs=4, optimizer=Optimizer(lr_schedule=None)).fit(X, y)
    stopped = ensemble(callbacks=[stopping], optimizer=Optimizer(lr_schedule=None)).fit(X, y)
    if load_best:
        same = ensemble(max_epochs=1, optimizer=Optimizer(lr_schedule=None)).fit(X, y)
    assert_same_weights(stopped, same)


# --- members that stop, members that diverge -------------------------------------------------


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_members_stop_one_by_one_with_the_weights_they_would_have_alone(module):
    seeds = [1, 2, 3]
    together = MemberEarlyStopping(patience=3, tol=1e-3)
    net = trained_stack(seeds, [together], module)
    assert together.stopped_.all()
    assert len(set(together.best_epoch_.tolist())) > 1
    assert len(net.history) == together.best_epoch_.max() + 3
    for m, seed in enumerate(seeds):
        alone = MemberEarlyStopping(patience=3, tol=1e-3)
        own = trained_stack([seed], [alone], module)
        assert alone.best_epoch_.item() == together.best_epoch_[m].item()
        assert len(own.history) == alone.best_epoch_.item() + 3
        assert together.best_loss_[m].item() == pytest.approx(alone.best_loss_.item())
        alone_state = own.module_.state_dict()
        for name, value in net.module_.state_dict().items():
            torch.testing.assert_close(value[m], alone_state[name][0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_a_member_that_stopped_predicts_as_in_its_best_epoch(module):
    stopping = MemberEarlyStopping(patience=3, tol=1e-3)
    net = trained_stack([1, 2, 3], [stopping], module)
    X, y = (torch.tensor(a) for a in data(n=60))
    y = ((y - y.mean()) / y.std()).unsqueeze(1)
    with torch.no_grad():
        losses = (net.module_(X[30:].unsqueeze(0)) - y[30:]).square().sum(-1).mean(1)
    torch.testing.assert_close(losses, stopping.best_loss_.double(), rtol=1e-6, atol=0)


def follow(callback, validation_losses, constant=1.0):
    """Feed a callback losses (epochs, S) and weights that tell the epoch; return the net.

    `constant` is the loss of a constant prediction.
    """
    n_members = len(validation_losses[0])
    module = nn.ParameterDict({"w": torch.zeros(n_members, 2)})
    net = SimpleNamespace(n_members=n_members, module_=module, history=[], member_losses_={})
    net.constant_losses_ = torch.full((n_members,), float(constant))
    callback.on_train_begin(net)
    with contextlib.suppress(KeyboardInterrupt):
        for epoch, losses in enumerate(validation_losses, start=1):
            net.history.append({})
            net.member_losses_ = {"train": torch.tensor(losses), "valid": torch.tensor(losses)}
            module["w"].data.fill_(epoch)
            callback.on_epoch_end(net)
    callback.on_train_end(net)
    return net


def test_early_stopping_by_hand():
    losses = [  # member 0 improves throughout, 1 stops after epoch 3, 2 too and would improve later
        [5.0, 1.0, 2.0],
        [4.0, 2.0, 1.95],  # .05 is less than tol
        [3.0, 2.0, 2.1],
        [2.0, 0.1, 0.2],
        [1.0, 0.1, 0.1],
    ]
    stopping = MemberEarlyStopping(patience=2, tol=0.1)
    net = follow(stopping, losses)
    assert stopping.best_epoch_.tolist() == [5, 1, 1]
    assert stopping.best_loss_.tolist() == [1.0, 1.0, 2.0]
    assert stopping.stopped_.tolist() == [False, True, True]
    assert net.module_["w"][:, 0].tolist() == [5.0, 1.0, 1.0]


def spoil(stacked):
    """Give member 1 weights that explode and member 3 weights that are not numbers."""
    with torch.no_grad():
        for parameter in stacked.parameters():
            parameter[1] *= 1e4
            parameter[3] = math.nan


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_members_that_diverge_leave_the_others_alone(module):
    guard, healthy = DivergenceGuard(), DivergenceGuard()
    settings = {"epochs": 8, "optimizer": torch.optim.SGD, "lr": 0.1, "clip_norm": 10.0}
    module_settings = {"module": module, "valid": False, **settings}
    net = trained_stack([1, 2, 3, 4], [guard], edit=spoil, **module_settings)
    alone = trained_stack([1, 3], [healthy], **module_settings)
    assert guard.diverged_[[0, 2, 3]].tolist() == [False, False, True]
    assert not healthy.diverged_.any()
    assert len(net.history) == 8
    for name, value in net.module_.state_dict().items():
        expected = alone.module_.state_dict()[name]
        torch.testing.assert_close(value[[0, 2]], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("constant", "losses", "verdict"),
    [
        (1.0, [1.0, 0.5, 0.4], "fine"),
        (1.0, [1.5, 1.9], "fine"),  # within half of 1 + 1 of the constant's
        (1.0, [0.1, 2.1], "worse"),
        (1.0, [1.0, 2000.0], "worse"),
        (1.0, [1.0, 2002.0], "diverged"),  # a thousand times 1 + 1 above
        (-3.0, [-3.0, -1.1], "fine"),
        (-3.0, [-3.0, -0.9], "worse"),
        (-3.0, [-3.0, 3998.0], "diverged"),
        (-3.0, [-3.0, -1e9], "fine"),
        (1.0, [1.0, 1e9, 1.0], "fine"),  # a spike
        (1.0, [1e9] * 10 + [1.0], "fine"),  # the first is a new lowest loss, nine are not
        (1.0, [1e9] * 11 + [1.0], "diverged"),
        (1.0, [10.0 ** (20 - epoch) for epoch in range(21)], "fine"),  # a bad start, ever better
        (1.0, ([1e9] * 9 + [1.0]) * 3, "fine"),  # ten in a row count, not ten
        (1.0, [1.0, math.nan, 1.0], "diverged"),
        (1.0, [1.0, math.inf, 1.0], "diverged"),
        (1.0, [math.nan, 1.0], "diverged"),
        (1.0, [math.inf, 1.0], "diverged"),
    ],
)
def test_divergence_by_hand(constant, losses, verdict):
    guard = DivergenceGuard()
    follow(guard, [[loss, constant] for loss in losses], constant)
    assert guard.diverged_.tolist() == [verdict == "diverged", False]
    assert guard.worse_.tolist() == [verdict == "worse", False]


@pytest.mark.parametrize("epoch", [3, 12])
def test_a_guard_goes_on_from_its_state(epoch):
    losses = [[1e9, 1.0, 3.0]] * 15  # member 0 is given up after epoch 11
    guard, first, second = DivergenceGuard(), DivergenceGuard(), DivergenceGuard()
    follow(guard, losses)
    follow(first, losses[:epoch])
    second.on_train_begin(SimpleNamespace(n_members=3))
    second.load_state_dict(first.state_dict())
    net = follow(MemberEarlyStopping(99, 0.0), [[0.0] * 3])  # any net
    for row in losses[epoch:]:
        net.member_losses_["train"] = torch.tensor(row)
        second.on_epoch_end(net)
    second.on_train_end(net)
    assert guard.diverged_.tolist() == second.diverged_.tolist() == [True, False, False]
    assert guard.worse_.tolist() == second.worse_.tolist() == [False, False, True]


RATES = (1.0, 10.0, 1e3, 1e6, 1e30)


@pytest.mark.parametrize("lr", RATES)
@pytest.mark.parametrize("task", ["regressor", "classifier"])
def test_no_learning_rate_fails_in_silence(task, lr, tally):
    """Every fit raises the error that says why, warns, or has a bounded score.

    Numbers are predicted with at most twice the squared error of a constant: a network that is a
    little worse on 221 samples is no failure. Classes are no worse than a constant.
    """
    is_regressor = task == "regressor"
    X, y = (load_diabetes if is_regressor else load_iris)(return_X_y=True)
    X, y = X[::2] / X.std(0), y[::2]
    teacher = (BayesianEnsembleRegressor if is_regressor else BayesianEnsembleClassifier)(
        2, max_epochs=5, random_state=0
    )
    settings = {"lr": lr, "max_epochs": 10, "random_state": 0}
    least = -1.0 if is_regressor else 1 / 3
    for model in (
        clone(teacher).set_params(**settings, inference=DeepEnsemble(max_restarts=1)),
        clone(teacher).set_params(
            **settings, inference=DeepEnsemble(max_restarts=0), optimizer="SGD"
        ),
        (HydraPlusRegressor if is_regressor else HydraPlusClassifier)(teacher, **settings),
        DistributionDistiller(teacher, **settings),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error, score = "", math.nan
            try:
                score = model.fit(X, y).score(X, y)
            except ValueError as raised:
                error = str(raised)
        is_warned = any(w.category is ConvergenceWarning for w in caught)
        assert f"smaller lr than {lr}" in error or is_warned or score >= least
        tally("learning rates", 1)


class Poison(Callback):
    """Ruins the weights of the members that have stopped already."""

    def on_epoch_begin(self, net, **kwargs):
        (stopping,) = (cb for _, cb in net.callbacks_ if isinstance(cb, MemberEarlyStopping))
        self.stopped_early = bool(stopping.stopped_.any())
        with torch.no_grad():
            for parameter in net.module_.parameters():
                parameter[stopping.stopped_] = math.nan


def test_a_member_that_diverges_after_it_has_stopped_is_not_trained_anew():
    X, y = data()
    stopping = EarlyStopping(n_iter_no_change=2, tol=0.01, validation_fraction=0.4)
    settings = {"inference": DeepEnsemble(early_stopping=stopping), "max_epochs": 40, "lr": 0.1}
    clean = ensemble(**settings).fit(X, y)
    poison = Poison()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poisoned = ensemble(**settings, callbacks=[poison]).fit(X, y)
    assert poison.stopped_early  # while others went on
    assert_array_equal(poisoned.n_restarts_, 0)
    assert_array_equal(poisoned.best_epochs_, clean.best_epochs_)
    assert_same_weights(poisoned, clean)


# --- stopping by hand ------------------------------------------------------------------------


class StopAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise KeyboardInterrupt


def test_a_callback_may_end_training():
    X, y = data()
    fitted = ensemble(callbacks=[StopAt(3)], optimizer=Optimizer(lr_schedule=None)).fit(X, y)
    assert len(fitted.history_) == 3
    assert_same_weights(
        fitted, ensemble(max_epochs=3, optimizer=Optimizer(lr_schedule=None)).fit(X, y)
    )


class Task:
    """Stands for the context of scikit-learn's callbacks and counts what it is told."""

    def __init__(self, stop_at=None):
        self.begun = self.ended = 0
        self.stop_at = stop_at

    def subcontext(self, task_name):
        assert task_name == "epoch"
        return self

    def call_on_fit_task_begin(self, estimator):
        self.begun += 1

    def call_on_fit_task_end(self, estimator, reconstruction_attributes):
        assert reconstruction_attributes is None
        self.ended += 1
        return self.ended == self.stop_at


@pytest.mark.parametrize("stopped_by", ["nobody", "a skorch callback", "scikit-learn"])
def test_every_epoch_is_one_task_of_scikit_learns_callbacks(stopped_by):
    task = Task(stop_at=2 if stopped_by == "scikit-learn" else None)
    callbacks = [StopAt(2)] if stopped_by == "a skorch callback" else []
    net = trained_stack([1, 2], [*callbacks, TaskPerEpoch(task, None, {})], epochs=4)
    n_epochs = 4 if stopped_by == "nobody" else 2
    assert (task.begun, task.ended, len(net.history)) == (n_epochs, n_epochs, n_epochs)


class Busy(Callback):
    """Is at work when the signal arrives, and might ask to stop in each round."""

    def on_epoch_end(self, net, delay=0.0, **kwargs):
        signal.setitimer(signal.ITIMER_REAL, delay)
        for i in range(10**8):
            if str(i) == "":
                raise KeyboardInterrupt


def handler_in_python(signum, frame):
    raise KeyboardInterrupt


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer")
@pytest.mark.parametrize("handler", [signal.default_int_handler, handler_in_python])
def test_a_signal_at_any_moment_of_a_callback_is_no_wish_to_stop(handler):
    before = signal.signal(signal.SIGALRM, handler)  # pytest itself needs SIGINT
    try:
        for delay in np.random.RandomState(0).uniform(1e-5, 3e-3, 200):
            with pytest.raises(KeyboardInterrupt) as caught:
                Busy().on_epoch_end(None, delay)
            assert not asks_to_stop(caught.value)
    finally:
        signal.signal(signal.SIGALRM, before)
