# SPDX-License-Identifier: BSD-3-Clause
"""Fits that were killed go on from their checkpoint, to the same model bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestRegressor

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
from skdistill._engine import SavedTraining
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.modules import RecurrentSequenceModel
from skdistill.samplers import SGLD, MCDropout

ROOT = Path(__file__).parents[1]
X, Y = make_regression(60, 4, random_state=0)
CLASSES = np.where(Y > 0, "up", "down")
SMALL = {"max_epochs": 8, "batch_size": 16, "module__hidden_units": (6,), "random_state": 0}
TEACHER = BayesianEnsembleRegressor(3, member_block=2, **SMALL)
OF_CLASSES = BayesianEnsembleClassifier(3, **SMALL)
SIZES = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
SEQUENCES = make_translation(40, random_state=0)


def sequence_distiller():
    torch.manual_seed(0)
    members = [RecurrentSequenceModel(*SIZES, hidden_units=6) for _ in range(2)]
    return SequenceDistributionDistiller(members, max_epochs=6, batch_size=16, random_state=0)


FITS = {
    "ensemble": (TEACHER, (X, Y)),
    "ensemble with early stopping": (
        clone(TEACHER).set_params(early_stopping=True, n_iter_no_change=2, lr=0.05),
        (X, Y),
    ),
    "ensemble of classes": (OF_CLASSES, (X, CLASSES)),
    "chains": (
        BayesianEnsembleRegressor(4, inference=SGLD(1e-5, n_chains=2), **SMALL),
        (X, Y),
    ),
    "dropout": (BayesianEnsembleRegressor(3, inference=MCDropout(0.2), **SMALL), (X, Y)),
    "hydra": (HydraPlusRegressor(TEACHER, group_lasso=0.05, **SMALL), (X, Y)),
    "hydra of classes": (HydraPlusClassifier(OF_CLASSES, **SMALL), (X, CLASSES)),
    "distribution": (DistributionDistiller(TEACHER, transfer="mixup", **SMALL), (X, Y)),
    "distribution of a forest": (
        DistributionDistiller(RandomForestRegressor(5), teacher_cv=2, **SMALL),
        (X, Y),
    ),
    "random head": (DistributionDistiller(OF_CLASSES, family="gauss_head", **SMALL), (X, CLASSES)),
    "GPED": (GPEDDistiller(TEACHER, estimate="online", **SMALL), (X, Y)),
    "booster": (BDistilBooster(TEACHER, n_rounds=3, **SMALL), (X, Y)),
    "sequences": (sequence_distiller(), SEQUENCES),
}


# The second epoch without improvement ends this training: it must not go on after that.
STOPPING = "ensemble with early stopping"


class Stopped(BaseException):
    """Ends a fit at once, as a kill does."""


def stop():
    raise Stopped


@contextlib.contextmanager
def ending(epoch, end=stop):
    """Let fits end when the epoch of that number has been saved."""
    countdown, real = itertools.count(epoch - 1, -1), SavedTraining.on_epoch_end

    def end_epoch(self, net, **kwargs):
        real(self, net, **kwargs)
        if next(countdown) == 0:
            end()

    SavedTraining.on_epoch_end = end_epoch
    try:
        yield
    finally:
        SavedTraining.on_epoch_end = real


def weights(model):
    return {name: value.numpy() for name, value in model.module_.state_dict().items()}


def assert_same(model, expected):
    found, wanted = weights(model), weights(expected)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)
    losses = [[row["train_loss"] for row in m.history_] for m in (model, expected)]
    assert losses[0] == losses[1]


def fit(name, **params):
    model, data = FITS[name]
    return clone(model).set_params(**params).fit(*data)


@pytest.fixture(scope="module")
def expected():
    """The model of each fit that nobody has disturbed."""
    models = {}

    def find(name):
        if name not in models:
            models[name] = fit(name)
        return models[name]

    return find


@pytest.mark.parametrize("epoch", [3, 13])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_on_to_the_same_model(name, epoch, expected, tmp_path):
    path = tmp_path / "checkpoint"
    params = {"checkpoint": path, "checkpoint_every": 0}
    try:
        with ending(epoch):
            fit(name, **params)
    except Stopped:
        assert path.exists()
    assert_same(fit(name, **params), expected(name))
    assert os.listdir(tmp_path) == []


def test_a_training_that_was_stopped_early_does_not_go_on(expected, tmp_path):
    n_epochs = len(expected(STOPPING).history_)
    for epoch in range(1, n_epochs + 1):
        params = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": 0}
        with ending(epoch), pytest.raises(Stopped):
            fit(STOPPING, **params)
        assert_same(fit(STOPPING, **params), expected(STOPPING))


def test_a_fit_that_goes_on_trains_what_is_left_only(tmp_path):
    begun = []
    params = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": "3 epochs"}
    with ending(20), pytest.raises(Stopped):
        fit("hydra", **params)
    real = SavedTraining.on_epoch_end
    SavedTraining.on_epoch_end = lambda self, net, **kwargs: (
        begun.append((self.number, len(net.history))),
        real(self, net, **kwargs),
    )
    try:
        fit("hydra", **params)
    finally:
        SavedTraining.on_epoch_end = real
    # Two blocks of the teacher have eight epochs each; the student's second epoch was saved.
    assert begun[0] == (2, 3)
    assert [number for number, _ in begun] == [2] * 6 + [3] * 4


def test_seeds_of_chance_are_kept(tmp_path):
    params = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": 0, "random_state": None}
    with ending(20), pytest.raises(Stopped):
        fit("distribution", teacher__random_state=None, **params)
    model = fit("distribution", teacher__random_state=None, **params)
    assert len(model.history_) == 8


@pytest.mark.parametrize(
    ("change", "named"),
    [({"lr": 0.02}, "lr"), ({"teacher__lr": 0.02}, "teacher__lr"), ({"n_heads": 2}, "n_heads")],
)
def test_other_parameters_are_refused_by_name(change, named, tmp_path):
    params = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": 0}
    with ending(3), pytest.raises(Stopped):
        fit("hydra", **params)
    with pytest.raises(ValueError, match=rf"what differs: {named}\."):
        fit("hydra", **params, **change)


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_other_data_are_refused_by_name(name, tmp_path):
    params = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": 0}
    with ending(3), pytest.raises(Stopped):
        fit("hydra", **params)
    data = {"X": X, "y": Y, "sample_weight": None}
    data[name] = np.ones(60) * 2 if data[name] is None else data[name] + 1e-9
    with pytest.raises(ValueError, match=f"what differs: {name}"):
        clone(FITS["hydra"][0]).set_params(**params).fit(**data)


@pytest.mark.parametrize("every", [-1, "often", "0 epochs", "3 days", None])
def test_intervals_that_are_none_are_refused(every):
    with pytest.raises((TypeError, ValueError), match="checkpoint_every must be a number of sec"):
        fit("ensemble", checkpoint_every=every)


def kill_and_resume(name, n_kills, folder):
    """Kill fits at moments of chance, and go on; print how many were killed before their end."""
    fit(name)  # the first fit of a process takes longer
    start = time.monotonic()
    expected = fit(name)
    duration, rng, n_killed = time.monotonic() - start, random.Random(), 0
    for i in range(n_kills):
        path = Path(folder) / str(i)
        child = os.fork()
        if child == 0:
            fit(name, checkpoint=path, checkpoint_every=0)
            os._exit(0)
        time.sleep(duration * rng.uniform(0.1, 1.5))
        os.kill(child, signal.SIGKILL)
        n_killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert_same(fit(name, checkpoint=path, checkpoint_every=0), expected)
        assert os.listdir(folder) == []
    return n_killed


KILLED = ("ensemble", "ensemble of classes", "hydra", "distribution", "GPED", "booster")
KILLED += ("sequences",)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_fits_that_were_killed_at_any_moment_give_the_same_model(tmp_path, tally):
    n_kills = int(os.environ.get("SKDISTILL_KILLS", "1"))
    code = (
        "import sys; from tests.test_resume import KILLED, kill_and_resume\n"
        f"print(sum(kill_and_resume(name, {n_kills}, sys.argv[1]) for name in KILLED))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    tally("kills of fits, resumed bit for bit", int(run.stdout))
