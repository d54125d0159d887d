# SPDX-License-Identifier: BSD-3-Clause
"""A fit that was killed goes on from its checkpoint, to the same student bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill.distillers import GPEDDistiller
from skdistill.distillers._gped_chains import OnlineDistillation
from skdistill.expectations import Expectation
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGHMC, SGLD
from skdistill.settings import Checkpoint, Runtime
from skdistill.transfer import GaussianNoise

X, Y = make_moons(60, noise=0.2, random_state=0)


class Stopped(BaseException):
    """Ends a fit at once, as a kill does."""


def largest(members):
    """Largest probability, or mean."""
    return members.amax(-1) if isinstance(members, torch.Tensor) else members.mean


def stop():
    raise Stopped


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def ending(fatal, end=stop):
    """Let fits end when the chains are about to predict for the `fatal`-th time."""
    countdown = itertools.count(fatal - 1, -1)

    def predict(self, net):
        if next(countdown) == 0:
            end()
        return real(self, net)

    real, OnlineDistillation._predict_next_batch = OnlineDistillation._predict_next_batch, predict
    try:
        yield
    finally:
        OnlineDistillation._predict_next_batch = real


def stopped_fit(gped, fatal=9):
    with ending(fatal), pytest.raises(Stopped):
        fit(gped)


class Dropping(torch.nn.Sequential):
    """Network that drops units by torch's global generator."""

    def __init__(self, in_features, out_features):
        layers = torch.nn.Linear(in_features, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        super().__init__(*layers, torch.nn.Linear(8, out_features))


CASES = {
    "sgld": {},
    "sghmc, two chains": {"teacher__inference": SGHMC(1e-4, burn_in=7, thinning=3, n_chains=2)},
    "step sizes that are found": {
        "teacher__inference": SGLD(n_cycles=8, burn_in=0.8),
        "teacher__max_epochs": 20,
    },
    "last samples, noise": {"estimate": "stochastic", "transfer": GaussianNoise()},
    "full batches": {"batch_size": 60, "teacher__batch_size": 60, "teacher__max_epochs": 60},
    "dropout": {"module": Dropping, "module__hidden_units": None},
    "numbers": {},
    "pruned": {
        "pruning": GroupLasso(0.3),
        "module__hidden_units": (30,),
        "teacher__max_epochs": 30,
    },
}


def distiller(case="sgld", checkpoint=None, **params):
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint, every=0)
    cls = BayesianEnsembleRegressor if case == "numbers" else BayesianEnsembleClassifier
    teacher = cls(
        inference=SGLD(2e-3, burn_in=7, thinning=2),
        module__hidden_units=(6,),
        batch_size=16,
        max_epochs=12,
        random_state=0,
    )
    own = Expectation(largest, "squared", name="own")
    names = ("mean", "aleatoric", "epistemic") if case == "numbers" else ("predictive", "entropy")
    gped = GPEDDistiller(
        teacher,
        expectations=(*names, own),
        module__hidden_units=(5,),
        batch_size=16,
        lr=0.01,
        random_state=0,
        runtime=Runtime(checkpoint=checkpoint),
    ).set_params(**{**CASES[case], **params})
    return without_none(gped)


def without_none(gped):
    """Without the widths of a module that takes none."""
    for part in (gped, gped.teacher):
        if getattr(part, "module__hidden_units", ()) is None:
            del part.module__hidden_units
    return gped


def fit(gped):
    return gped.fit(X, Y, X_monitor=X[:9])


def all_of(gped):
    """Everything that a fit leaves behind but how long it took."""
    weights = {name: value.numpy() for name, value in gped.module_.state_dict().items()}
    teacher = {f"teacher {name}": v for name, v in gped.teacher_.module_.state_dict().items()}
    losses = [row["train_loss"] for row in (*gped.history_, *gped.teacher_.history_)]
    return {**weights, **teacher, **gped.monitor_, "losses": losses}


def assert_same(one, other):
    one, other = all_of(one), all_of(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:The training step cannot be recorded")
def test_a_fit_that_was_stopped_twice_gives_the_same_student(case, tmp_path):
    path = tmp_path / "checkpoint"
    for fatal in (8, 5):  # of about 20 steps of the student
        stopped_fit(distiller(case, checkpoint=path), fatal)
        assert path.exists()
    resumed = fit(distiller(case, checkpoint=path))
    assert list(tmp_path.iterdir()) == []
    assert_same(resumed, fit(distiller(case)))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_fit_that_was_killed_gives_the_same_student(tmp_path):
    path = tmp_path / "checkpoint"
    child = os.fork()
    if child == 0:
        try:
            with ending(13, kill):
                fit(distiller(checkpoint=path))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.exists()
    assert_same(fit(distiller(checkpoint=path)), fit(distiller()))


# --- Files of other fits ----------------------------------------------------------------------


def a_third(members):
    return members.amax(-1) / 3


def own(g=largest, **params):
    return {"expectations": ("predictive", "entropy", Expectation(g, name="own", **params))}


# What a run began with, what it is to go on with, and what is to be named.
CHANGES = {
    "a number": ({}, {"lr": 0.02}, "lr"),
    "a sampler": ({}, {"teacher__inference__step_size": 1e-3}, "teacher__inference__step_size"),
    "a dict": (
        {"estimate": {"own": "online"}},
        {"estimate": {"own": "stochastic"}},
        "estimate__kind",
    ),
    "a weight": ({}, own(weight=2.0), "expectations"),
    "a function": ({}, own(a_third), "expectations"),
    "a maker": (
        {"estimate": "stochastic", "transfer": GaussianNoise(0.1)},
        {"estimate": "stochastic", "transfer": GaussianNoise(0.2)},
        "transfer__scale",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_checkpoint_of_other_parameters_is_refused(what, tmp_path):
    begun, changed, name = CHANGES[what]
    path = tmp_path / "checkpoint"
    stopped_fit(distiller(checkpoint=path, **begun), 9)
    content = path.read_bytes()
    message = rf"checkpoint=.* is of a fit with other data or parameters; what differs: {name}\."
    with ending(1), pytest.raises(ValueError, match=message):
        fit(distiller(checkpoint=path, **{**begun, **changed}))
    assert path.read_bytes() == content
