# SPDX-License-Identifier: BSD-3-Clause
"""Fits hold to `max_time`, by a clock of these tests: no test waits, or depends on the machine."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback
from small_models import assert_same_weights

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)
from skdistill._engine import SavedTraining, TimeLimit
from skdistill._training import resume
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Checkpoint, Optimizer, Runtime

X, Y = make_regression(64, 3, random_state=0)
SMALL = {
    "max_epochs": 8,
    "batch_size": 16,  # four minibatches an epoch
    "module__hidden_units": (4,),
    "module__embeddings": None,
    "random_state": 0,
}
ONE_BLOCK = {"inference": DeepEnsemble(calibrate=None), "distance_aware": False}
CLOCK = SimpleNamespace(seconds=0.0, waited=0.0)  # of these without a processor


def ensemble(n_members=2, **params):
    return BayesianEnsembleRegressor(n_members, **{**SMALL, **ONE_BLOCK, **params})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Seconds that pass only as the tests say."""
    CLOCK.seconds, CLOCK.waited = 1000.0, 0.0
    clocks = {
        "monotonic": lambda: CLOCK.seconds,
        "thread_time": lambda: CLOCK.seconds - CLOCK.waited,
    }
    monkeypatch.setattr(resume, "time", SimpleNamespace(**clocks))
    return CLOCK


class Passing(Callback):
    """Lets a number of seconds pass at the beginning of each epoch."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def on_epoch_begin(self, net, **kwargs):
        CLOCK.seconds += self.seconds


class PassingInBatches(Callback):
    """Lets a number of seconds pass in each training step, some of them without a processor."""

    def __init__(self, seconds=1.0, share_waited=0.0):
        self.seconds, self.share_waited = seconds, share_waited

    def on_batch_end(self, net, training=False, **kwargs):
        CLOCK.seconds += self.seconds * training
        CLOCK.waited += self.share_waited * self.seconds * training


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


def test_the_learning_rate_follows_the_epochs_where_they_are_further(clock):
    model = ensemble(max_time=1e6, callbacks=[Passing(1e-3)]).fit(X, Y)
    np.testing.assert_allclose(rates(model), 0.01 * cosine(np.arange(8) / 8), rtol=1e-6)
    assert model.n_epochs_ == 8


def test_time_that_is_not_needed_changes_nothing(clock):
    limited, free = ensemble(max_time=1e6).fit(X, Y), ensemble().fit(X, Y)
    for a, b in zip(limited.predict(X), free.predict(X), strict=True):
        assert a == pytest.approx(b, rel=1e-4)


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


@pytest.mark.parametrize(("share_waited", "factor"), [(0.0, 1), (0.5, 2), (0.75, 4), (0.99, 4)])
def test_a_busy_machine_is_given_more_time_for_what_follows_training(clock, share_waited, factor):
    """What is kept is for a processor of its own; it is taken to be slower by 4 times at most."""
    passing = PassingInBatches(0.125, share_waited)
    ensemble(max_time=6.0, max_epochs=20, callbacks=[passing]).fit(X, Y)
    n_steps = math.ceil((6.0 - factor * kept_for_later(6.0)) / 0.125)
    assert clock.seconds == 1000.0 + 0.125 * n_steps


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


def test_a_constant_learning_rate_stays_constant(clock):
    passing = Passing(1.0)
    model = ensemble(optimizer=Optimizer(lr_schedule=None), max_time=4.0, callbacks=[passing]).fit(
        X, Y
    )
    assert model.n_epochs_ == 4
    assert "event_lr" not in model.history_[-1]


def test_weights_of_a_loss_change_with_the_time(clock, monkeypatch):
    from skdistill.distillers.hydra import _plan

    epochs, real = [], _plan.HydraObjective.begin_epoch

    def begin_epoch(self, epoch):
        epochs.append(epoch)
        real(self, epoch)

    monkeypatch.setattr(_plan.HydraObjective, "begin_epoch", begin_epoch)
    settings = {**SMALL, "callbacks": [PassingInBatches(0.25)], "max_time": 4.0}
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    HydraPlusRegressor(teacher, **settings).fit(X, Y)
    assert epochs[0] == 0
    assert max(epochs) == 7  # of eight, although four were trained
    assert set(epochs) == set(range(8))


def test_too_little_time_trains_a_minibatch_and_warns(clock):
    model = ensemble(max_time=1e-3, callbacks=[PassingInBatches(1.0)])
    with pytest.warns(ConvergenceWarning, match="max_time was too short.* the first epoch"):
        model.fit(X, Y)
    assert len(model.history_) == 1
    assert clock.seconds == 1001.0
    assert rates(model) == pytest.approx(0.01)  # it learns something
    assert np.isfinite(model.predict(X)).all()


def test_dropout_and_early_stopping_have_a_limit(clock):
    passing = [Passing(1.0)]
    dropout = ensemble(inference=MCDropout(0.2), max_time=4.0, callbacks=passing).fit(X, Y)
    assert dropout.n_epochs_ == 4
    early = ensemble(
        inference=DeepEnsemble(early_stopping=True), max_time=4.0, callbacks=passing
    ).fit(X, Y)
    assert early.n_epochs_ == 4
    assert early.best_epochs_.max() <= 4


# ------------------------------------------------------------------------------------------
# Several trainings
# ------------------------------------------------------------------------------------------


def test_blocks_share_the_time(clock):
    model = ensemble(4, runtime=Runtime(member_block=2), max_time=10.0, callbacks=[Passing(1.0)])
    model.fit(X, Y)
    assert [row["members"] for row in model.history_] == [[0, 1]] * 5 + [[2, 3]] * 5
    assert model.n_epochs_ == 5


def test_blocks_side_by_side_have_their_parts(clock):
    model = ensemble(6, runtime=Runtime(member_block=1, device="cpu"), n_jobs=2, max_time=12.0)
    with parallel_config(backend="threading"):
        trained = model.fit(X, Y)  # no second passes
    assert trained.n_members_ == 6
    limits, real = [], TimeLimit.__init__

    def note(self, seconds, *arguments):
        limits.append(seconds)
        real(self, seconds, *arguments)

    with pytest.MonkeyPatch.context() as patch, parallel_config(backend="threading"):
        patch.setattr(TimeLimit, "__init__", note)
        model.fit(X, Y)
    assert limits == pytest.approx([(12.0 - kept_for_later(12.0)) / 3] * 6)


def test_settings_that_are_tried_share_the_time(clock):
    limits, real = [], TimeLimit.__init__

    def note(self, seconds, *arguments):
        limits.append(seconds)
        real(self, seconds, *arguments)

    params = {
        **SMALL,
        "module__hidden_units": (4,),
        "inference": DeepEnsemble(tune="oob"),
        "distance_aware": False,
    }
    del params["module__embeddings"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeLimit, "__init__", note)
        model = BayesianEnsembleRegressor(7, **params, max_time=17.0).fit(X, Y)
    # Three settings by four members each, and the three further members of the best.
    assert len(model.tuning_) == 3
    left = 17.0 - kept_for_later(17.0)
    assert limits == pytest.approx([left * share for share in (4 / 15, 4 / 11, 4 / 7, 1.0)])


def test_members_are_not_trained_anew_without_time(clock):
    class Breaking(Callback):
        def on_epoch_end(self, net, **kwargs):
            clock.seconds += 10.0
            weight = next(net.module_.parameters()).data
            weight[0] = np.nan

    model = ensemble(3, max_time=10.0, callbacks=[Breaking()])
    with pytest.warns(ConvergenceWarning, match="left out after 0 restarts"):
        model.fit(X, Y)
    assert model.n_members_ == 2


def test_a_student_shares_the_time_with_its_teacher(clock):
    passing = [Passing(1.0)]
    teacher = ensemble(callbacks=passing)
    student = HydraPlusRegressor(teacher, callbacks=passing, max_time=10.0, **SMALL).fit(X, Y)
    assert student.teacher_.max_time == 5.0
    assert student.teacher_.n_epochs_ == 5
    assert teacher.max_time is None
    assert student.n_epochs_ == 5
    assert clock.seconds == 1010.0


def test_a_student_has_what_its_teacher_leaves(clock):
    passing = [Passing(1.0)]
    short = ensemble(callbacks=passing).set_params(max_epochs=2)
    student = HydraPlusRegressor(short, callbacks=passing, max_time=8.0, **SMALL).fit(X, Y)
    assert (student.teacher_.n_epochs_, student.n_epochs_) == (2, 6)
    own = ensemble(callbacks=passing, max_time=3.0)
    student = HydraPlusRegressor(own, callbacks=passing, max_time=8.0, **SMALL).fit(X, Y)
    assert student.teacher_.max_time == 3.0
    assert (student.teacher_.n_epochs_, student.n_epochs_) == (3, 5)


def test_a_teacher_in_a_pipeline_shares_and_others_do_not(clock):
    in_pipeline = make_pipeline(StandardScaler(), ensemble())
    student = HydraPlusRegressor(in_pipeline, max_time=8.0, **SMALL).fit(X, Y)
    assert student.teacher_[-1].max_time == 4.0
    for teacher in (RandomForestRegressor(3, random_state=0), ensemble(inference=SGLD(1e-5))):
        settings = {**SMALL, "callbacks": [Passing(1.0)]}
        student = DistributionDistiller(teacher, max_time=4.0, **settings).fit(X, Y)
        assert student.n_epochs_ == 4


def test_the_fits_on_folds_share_the_time_of_the_teacher():
    student = DistributionDistiller(ensemble(), teacher_cv=3, max_time=16.0, **SMALL).fit(X, Y)
    assert student.teacher_.max_time == 2.0


def test_a_student_that_is_calibrated_has_half_of_the_time(clock):
    passing = [Passing(1.0)]
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    student = HydraPlusRegressor(
        teacher, calibration_fraction=0.3, max_time=8.0, callbacks=passing, **SMALL
    )
    student.fit(X, Y)
    assert student.n_epochs_ == 4
    assert clock.seconds == 1008.0


def test_training_after_pruning_has_its_part(clock):
    passing = [Passing(1.0)]
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    settings = {**SMALL, "pruning": GroupLasso(1e-3), "max_time": 6.0, "callbacks": passing}
    student = HydraPlusRegressor(teacher, **settings).fit(X, Y)  # 8 epochs and 8
    assert student.n_epochs_ == 3
    assert len(student.history_) == 6
    assert clock.seconds == 1006.0


def test_warm_start_goes_on_with_the_epochs_that_are_left(clock):
    passing = [Passing(1.0)]
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    settings = {**SMALL, "warm_start": True, "max_time": 5.0, "callbacks": passing}
    student = HydraPlusRegressor(teacher, **settings)
    assert student.fit(X, Y).n_epochs_ == 5
    assert student.fit(X, Y).n_epochs_ == 8


def test_partial_fit_is_one_pass(clock):
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    settings = {**SMALL, "max_time": 1e-3, "callbacks": [PassingInBatches(1.0)]}
    limited = HydraPlusRegressor(teacher, **settings).partial_fit(X, Y)
    free = HydraPlusRegressor(teacher, **settings | {"max_time": None}).partial_fit(X, Y)
    assert_same_weights(limited, free)


def test_rounds_share_the_time(clock):
    passing = [Passing(1.0)]
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    settings = {**SMALL, "n_rounds": 3, "max_time": 12.0, "callbacks": passing}
    booster = BDistilBooster(teacher, **settings).fit(X, Y)
    first = [row["epoch"] for row in booster.history_ if row["round"] == 1]
    assert first == [1, 2, 3, 4]
    assert booster.n_epochs_ >= 4
    assert clock.seconds <= 1012.0


def test_rounds_end_when_the_time_is_up_and_are_kept(clock, monkeypatch):
    from skdistill.losses import DistillationGame

    teacher = FrozenEstimator(ensemble().fit(X, Y))
    real = DistillationGame.is_weak_learner

    def is_weak_learner(game, outputs):  # the first round only finds one, and takes its time
        clock.seconds += 20.0
        return real(game, outputs) if clock.seconds == 1020.0 else False

    monkeypatch.setattr(DistillationGame, "is_weak_learner", is_weak_learner)
    booster = BDistilBooster(teacher, **{**SMALL, "n_rounds": 3, "max_time": 12.0})
    with pytest.warns(ConvergenceWarning, match="max_time=12.0 ended the search after 1 of n_rou"):
        booster.fit(X, Y)
    assert booster.n_rounds_ == 1


def test_a_stream_has_a_limit(clock):
    class Batches:
        def __iter__(self):
            return iter([(X[:32], Y[:32]), (X[32:], Y[32:])])

    model = ensemble(max_time=4.0, callbacks=[Passing(1.0)]).fit(Batches())
    assert model.n_epochs_ == 4


# ------------------------------------------------------------------------------------------
# Checkpoints
# ------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


@pytest.mark.parametrize("n_epochs", [2, 4, 7, 9])
def test_a_fit_that_goes_on_counts_the_time_before(clock, tmp_path, monkeypatch, n_epochs):
    batches, end_epoch, countdown = TimeLimit.batches, SavedTraining.on_epoch_end, [n_epochs]

    def in_a_second(self, net, rows):  # no callback, which a checkpoint is compared by
        clock.seconds += 1.0
        return batches(self, net, rows)

    def end_epoch_and_die(self, net, **kwargs):
        end_epoch(self, net, **kwargs)
        countdown[0] -= 1
        if not countdown[0]:
            raise Killed

    monkeypatch.setattr(TimeLimit, "batches", in_a_second)
    teacher = ensemble(4, runtime=Runtime(member_block=2))
    student = HydraPlusRegressor(teacher, max_time=10.0, **SMALL)
    expected = clone(student).fit(X, Y)
    assert clock.seconds == 1010.0
    student.set_params(runtime=Runtime(checkpoint=Checkpoint(tmp_path / "checkpoint", every=0)))
    monkeypatch.setattr(SavedTraining, "on_epoch_end", end_epoch_and_die)
    with pytest.raises(Killed):
        student.fit(X, Y)
    monkeypatch.setattr(SavedTraining, "on_epoch_end", end_epoch)
    before = clock.seconds
    clock.seconds += 1e5  # nobody has run it meanwhile
    student.fit(X, Y)
    assert clock.seconds - before - 1e5 == 10.0 - n_epochs
    assert_same_weights(student, expected)
    assert student.n_epochs_ == expected.n_epochs_


# ------------------------------------------------------------------------------------------
# The parameter
# ------------------------------------------------------------------------------------------

SEQUENCES = SequenceDistributionDistiller([])
ALL = [
    BayesianEnsembleRegressor(),
    BayesianEnsembleClassifier(),
    HydraPlusRegressor(),
    HydraPlusClassifier(),
    DistributionDistiller(BayesianEnsembleRegressor()),
    GPEDDistiller(BayesianEnsembleRegressor()),
    BDistilBooster(BayesianEnsembleRegressor()),
    SEQUENCES,
]


@pytest.mark.parametrize("estimator", ALL, ids=lambda estimator: type(estimator).__name__)
def test_it_is_a_parameter_of_every_estimator(estimator):
    assert estimator.get_params(deep=False)["max_time"] is None
    given = clone(estimator).set_params(max_time=3)
    assert clone(given).max_time == 3


@pytest.mark.parametrize("estimator", ALL, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize(
    ("max_time", "error"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (np.inf, ValueError),
        ("60", TypeError),
        (True, TypeError),
    ],
)
def test_it_must_be_a_positive_number(estimator, max_time, error):
    y = Y > 0 if "Classifier" in type(estimator).__name__ else Y
    with pytest.raises(error, match=rf"max_time must be a number > 0, or None, got {max_time!r}"):
        clone(estimator).set_params(max_time=max_time).fit(X, y)


@pytest.mark.parametrize("inference", [SGLD(), SGHMC()])
def test_chains_refuse_it(inference):
    message = rf"max_time must be None with inference={type(inference).__name__}\(\.\.\.\).*got 5"
    with pytest.raises(ValueError, match=message):
        ensemble(inference=inference, max_time=5).fit(X, Y)
    with pytest.raises(ValueError, match=r"max_time must be None beside chains.*Got 5"):
        GPEDDistiller(ensemble(inference=inference), max_time=5).fit(X, Y)


# ------------------------------------------------------------------------------------------
# How much is done
# ------------------------------------------------------------------------------------------


class NotingShares(Callback):
    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            CLOCK.seconds += 1.0
            SHARES.append(net.share_done())


SHARES: list[float] = []


def test_a_training_tells_which_share_of_it_is_done():
    SHARES.clear()
    ensemble(callbacks=[NotingShares()]).fit(X, Y)
    np.testing.assert_allclose(SHARES, np.arange(1, 33) / 32)  # 8 epochs of 4 minibatches


def test_with_a_limit_it_is_the_share_of_the_time_if_that_is_more():
    SHARES.clear()
    ensemble(callbacks=[NotingShares()], max_time=16.0).fit(X, Y)
    limit = 16.0 - kept_for_later(16.0)
    assert 12 < len(SHARES) < 32
    np.testing.assert_allclose(SHARES[1:], np.arange(1, len(SHARES)) / limit)
