# SPDX-License-Identifier: BSD-3-Clause
"""Fits that were killed go on from their checkpoint, to the same model bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestRegressor
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
from skdistill._engine import SavedTraining
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.modules import RecurrentSequenceModel, TabM
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Checkpoint, EarlyStopping, Runtime

X, Y = make_regression(60, 4, random_state=0)
CLASSES = np.where(Y > 0, "up", "down")
SMALL = {"max_epochs": 8, "batch_size": 16, "module__hidden_units": (6,), "random_state": 0}
TEACHER = BayesianEnsembleRegressor(3, runtime=Runtime(member_block=2), **SMALL)
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
        clone(TEACHER).set_params(
            inference=DeepEnsemble(early_stopping=EarlyStopping(n_iter_no_change=2)), lr=0.05
        ),
        (X, Y),
    ),
    "ensemble of classes": (OF_CLASSES, (X, CLASSES)),
    "chains": (
        BayesianEnsembleRegressor(4, inference=SGLD(1e-5, n_chains=2), **SMALL),
        (X, Y),
    ),
    "dropout": (BayesianEnsembleRegressor(3, inference=MCDropout(0.2), **SMALL), (X, Y)),
    "shared weights": (
        BayesianEnsembleRegressor(3, **SMALL | {"module": TabM, "module__hidden_units": (4,)}),
        (X, Y),
    ),
    "hydra": (HydraPlusRegressor(TEACHER, pruning=GroupLasso(0.05), **SMALL), (X, Y)),
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


# Its chains and its student save their state together, in another way than all others.
ONLINE = {
    "GPED online": (
        GPEDDistiller(
            BayesianEnsembleClassifier(
                inference=SGLD(2e-3, burn_in=7, thinning=2), **{**SMALL, "max_epochs": 30}
            ),
            **{**SMALL, "max_epochs": "auto"},
        ),
        (X, CLASSES),
    )
}


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


def assert_same(model, expected):
    assert_same_weights(model, expected)
    losses = [[row["train_loss"] for row in m.history_] for m in (model, expected)]
    assert losses[0] == losses[1]


def fit(name, **params):
    model, data = (FITS | ONLINE)[name]
    model = clone(model)
    model.runtime = Runtime.of(model.runtime)
    return model.set_params(**params).fit(*data)


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
    params = {"runtime__checkpoint": Checkpoint(path, every=0)}
    try:
        with ending(epoch):
            fit(name, **params)
    except Stopped:
        assert path.exists()
    assert_same(fit(name, **params), expected(name))
    assert os.listdir(tmp_path) == []


def test_a_fit_that_goes_on_trains_what_is_left_only(tmp_path):
    begun = []
    params = {"runtime__checkpoint": Checkpoint(tmp_path / "checkpoint", every="3 epochs")}
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
    assert [number for number, _ in begun] == [2] * 6 + [3] * 8


def test_seeds_of_chance_are_kept(tmp_path):
    params = {
        "runtime__checkpoint": Checkpoint(tmp_path / "checkpoint", every=0),
        "random_state": None,
    }
    with ending(20), pytest.raises(Stopped):
        fit("distribution", teacher__random_state=None, **params)
    model = fit("distribution", teacher__random_state=None, **params)
    assert len(model.history_) == 8


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.02}, "lr"),
        ({"teacher__lr": 0.02}, "teacher__lr"),
        ({"heads": 2}, "heads__n_heads"),
    ],
)
def test_other_parameters_are_refused_by_name(change, named, tmp_path):
    params = {"runtime__checkpoint": Checkpoint(tmp_path / "checkpoint", every=0)}
    with ending(3), pytest.raises(Stopped):
        fit("hydra", **params)
    with pytest.raises(ValueError, match=rf"what differs: {named}\."):
        fit("hydra", **params, **change)


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_other_data_are_refused_by_name(name, tmp_path):
    params = {"runtime__checkpoint": Checkpoint(tmp_path / "checkpoint", every=0)}
    with ending(3), pytest.raises(Stopped):
        fit("hydra", **params)
    data = {"X": X, "y": Y, "sample_weight": None}
    data[name] = np.ones(60) * 2 if data[name] is None else data[name] + 1e-9
    with pytest.raises(ValueError, match=f"what differs: {name}"):
        clone(FITS["hydra"][0]).set_params(runtime=Runtime(), **params).fit(**data)


STOPPED = clone(TEACHER).set_params(max_epochs=3)  # two trainings
REFUSED = r"checkpoint='.*checkpoint' .*Delete it to begin anew, or name another file\.$"


def stopped_at(path):
    """The checkpoint of a fit that was stopped in its second training."""
    with ending(5), pytest.raises(Stopped):
        clone(STOPPED).set_params(runtime__checkpoint=Checkpoint(path, every=0)).fit(X, Y)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["ensemble of classes", "hydra", "GPED"])
def test_a_checkpoint_of_another_estimator_is_refused(name, tmp_path):
    content = stopped_at(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match=r"is of a fit with other .*: .*the estimator") as caught:
        fit(name, runtime__checkpoint=tmp_path / "checkpoint")
    assert re.search(REFUSED, str(caught.value))
    assert (tmp_path / "checkpoint").read_bytes() == content


# ------------------------------------------------------------------------------------------
# Kills
# ------------------------------------------------------------------------------------------


KILLED = ("ensemble", "GPED online", "sequences")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("name", KILLED)
def test_fits_that_were_killed_at_any_moment_give_the_same_model(name, expected, tmp_path, tally):
    wanted, start = expected(name), time.monotonic()
    fit(name)
    duration, rng, n_killed = time.monotonic() - start, random.Random(), 0
    n_kills = int(os.environ.get("SKDISTILL_KILLS", "1"))
    while n_killed < n_kills:
        path = tmp_path / str(n_killed)
        child = os.fork()
        if child == 0:
            try:
                fit(name, runtime__checkpoint=Checkpoint(path, every=0))
            finally:
                os._exit(0)
        time.sleep(duration * rng.uniform(0.05, 1.0))
        os.kill(child, signal.SIGKILL)
        n_killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])  # else it was over before
        assert_same(fit(name, runtime__checkpoint=Checkpoint(path, every=0)), wanted)
        assert os.listdir(tmp_path) == []
    tally("kills of fits, resumed bit for bit", n_kills)
