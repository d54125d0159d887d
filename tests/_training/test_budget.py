# SPDX-License-Identifier: BSD-3-Clause
"""Fits hold to `max_time`, by a clock of these tests: no test waits, or depends on the machine."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from skorch.callbacks import Callback

from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill._engine import TimeLimit
from skdistill._training import trainer
from skdistill.samplers import SGHMC, SGLD, DeepEnsemble
from skdistill.settings import Runtime

X, Y = make_regression(64, 3, random_state=0)
SMALL = {
    "max_epochs": 8,
    "batch_size": 16,  # four minibatches an epoch
    "module__hidden_units": (4,),
    "module__embeddings": None,
    "random_state": 0,
}
ONE_BLOCK = {"inference": DeepEnsemble(calibrate=None), "distance_aware": False}
CLOCK = SimpleNamespace(seconds=0.0)


def ensemble(n_members=2, **params):
    return BayesianEnsembleRegressor(n_members, **{**SMALL, **ONE_BLOCK, **params})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Seconds that pass only as the tests say."""
    CLOCK.seconds = 1000.0
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: CLOCK.seconds))
    return CLOCK


class Passing(Callback):
    """Lets a number of seconds pass at the beginning of each epoch."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def on_epoch_begin(self, net, **kwargs):
        CLOCK.seconds += self.seconds


class PassingInBatches(Callback):
    """Lets a number of seconds pass in each training step."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def on_batch_end(self, net, training=False, **kwargs):
        CLOCK.seconds += self.seconds * training


def rates(model):
    return np.array([row["event_lr"] for row in model.history_])


def cosine(progress):
    return 0.5 * (1 + np.cos(np.pi * np.asarray(progress)))


def kept_for_later(seconds):
    """What an ensemble without random functions keeps for what follows training."""
    return 0.03 * seconds


# ------------------------------------------------------------------------------------------
# One training
# ------------------------------------------------------------------------------------------


def test_training_ends_when_the_time_is_up(clock):
    model = ensemble(max_time=6.0, callbacks=[Passing(1.0)]).fit(X, Y)
    # 6 - .18 seconds are left; the sixth epoch begins when one of its minibatches may be trained.
    assert [row["epoch"] for row in model.history_] == [1, 2, 3, 4, 5, 6]
    assert model.n_epochs_ == 6
    assert clock.seconds == 1006.0


def test_the_learning_rate_follows_the_time_where_that_is_further_than_the_epochs(clock):
    model = ensemble(max_time=5.0, callbacks=[Passing(1.0)]).fit(X, Y)
    left = 5.0 - kept_for_later(5.0)
    shares = [1 / left, 2 / left, 3 / left, 4 / left, 1.0]
    # The last minibatch of the first epoch is trained a second after training has begun.
    np.testing.assert_allclose(rates(model), 0.01 * cosine(shares), rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD", "RMSprop"])
def test_an_epoch_ends_within_with_the_least_learning_rate(clock, optimizer):
    # A minibatch takes an eighth of a second: there is time for 23, five epochs and three more.
    passing = PassingInBatches(0.125)
    model = ensemble(optimizer=optimizer, max_time=2.9, callbacks=[passing]).fit(X, Y)
    left = 2.9 - kept_for_later(2.9)
    n_steps = math.ceil(left / 0.125)
    assert (n_steps, len(model.history_)) == (23, 6)
    assert rates(model)[-1] == pytest.approx(0.01 * cosine(0.125 * (n_steps - 1) / left))
    assert rates(model)[-1] < 1e-4


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_steps_on_flat_buffers_have_the_learning_rate_of_the_moment(clock, optimizer):
    """Without a callback that listens to batches, as with one."""
    slow = ensemble(optimizer=optimizer, max_time=3.0, callbacks=[PassingInBatches(0.125)])
    slow.fit(X, Y)
    passed = iter(np.arange(1, 1000))
    clock.seconds = 1000.0
    flat = ensemble(optimizer=optimizer, max_time=3.0)
    real = TimeLimit.batches

    def batches(self, net, rows):
        for batch in real(self, net, rows):
            yield batch
            clock.seconds = 1000.0 + 0.125 * next(passed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeLimit, "batches", batches)
        flat.fit(X, Y)
    assert flat.net_.engine_ == "closed_form"
    assert slow.net_.engine_ != "closed_form"
    np.testing.assert_allclose(rates(flat), rates(slow))
    np.testing.assert_allclose(flat.predict(X), slow.predict(X), rtol=1e-3, atol=1e-3)


def test_too_little_time_trains_a_minibatch_and_warns(clock):
    model = ensemble(max_time=1e-3, callbacks=[PassingInBatches(1.0)])
    with pytest.warns(ConvergenceWarning, match="max_time was too short.* the first epoch"):
        model.fit(X, Y)
    assert len(model.history_) == 1
    assert clock.seconds == 1001.0
    assert rates(model) == pytest.approx(0.01)  # it learns something
    assert np.isfinite(model.predict(X)).all()


# ------------------------------------------------------------------------------------------
# Several trainings
# ------------------------------------------------------------------------------------------


def test_blocks_share_the_time(clock):
    model = ensemble(4, runtime=Runtime(member_block=2), max_time=10.0, callbacks=[Passing(1.0)])
    model.fit(X, Y)
    assert [row["members"] for row in model.history_] == [[0, 1]] * 5 + [[2, 3]] * 5
    assert model.n_epochs_ == 5


def test_a_student_shares_the_time_with_its_teacher(clock):
    passing = [Passing(1.0)]
    teacher = ensemble(callbacks=passing)
    student = HydraPlusRegressor(teacher, callbacks=passing, max_time=10.0, **SMALL).fit(X, Y)
    assert student.teacher_.max_time == 5.0
    assert student.teacher_.n_epochs_ == 5
    assert teacher.max_time is None
    assert student.n_epochs_ == 5
    assert clock.seconds == 1010.0


def test_rounds_share_the_time(clock):
    passing = [Passing(1.0)]
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    settings = {**SMALL, "n_rounds": 3, "max_time": 12.0, "callbacks": passing}
    booster = BDistilBooster(teacher, **settings).fit(X, Y)
    first = [row["epoch"] for row in booster.history_ if row["round"] == 1]
    assert first == [1, 2, 3, 4]
    assert booster.n_epochs_ >= 4
    assert clock.seconds <= 1012.0


def test_a_stream_has_a_limit(clock):
    class Batches:
        def __iter__(self):
            return iter([(X[:32], Y[:32]), (X[32:], Y[32:])])

    model = ensemble(max_time=4.0, callbacks=[Passing(1.0)]).fit(Batches())
    assert model.n_epochs_ == 4


# ------------------------------------------------------------------------------------------
# The parameter
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", [SGLD(), SGHMC()])
def test_chains_refuse_it(inference):
    message = rf"max_time must be None with inference={type(inference).__name__}\(\.\.\.\).*got 5"
    with pytest.raises(ValueError, match=message):
        ensemble(inference=inference, max_time=5).fit(X, Y)
    with pytest.raises(ValueError, match=r"max_time must be None beside chains.*Got 5"):
        GPEDDistiller(ensemble(inference=inference), max_time=5).fit(X, Y)
