# SPDX-License-Identifier: BSD-3-Clause
"""A fit that was killed goes on from its checkpoint, to the same student bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill._checkpoint import Checkpoint
from skdistill.distillers import GPEDDistiller
from skdistill.expectations import Expectation
from skdistill.samplers import SGHMC, SGLD
from skdistill.transfer import GaussianNoise

X, Y = make_moons(60, noise=0.2, random_state=0)


class Stopped(BaseException):
    """Ends a fit at once, as a kill does."""


class Largest:
    """Largest probability, or mean; call number `fatal` ends the fit."""

    def __init__(self, fatal, end):
        self.fatal = fatal
        self.end = end
        self.n_calls = 0

    def __call__(self, members):
        self.n_calls += 1
        if self.n_calls == self.fatal:
            self.end()
        return members.amax(-1) if isinstance(members, torch.Tensor) else members.mean


def stop():
    raise Stopped


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


class Dropping(torch.nn.Sequential):
    """Network that drops units by torch's global generator."""

    def __init__(self, in_features, out_features):
        layers = torch.nn.Linear(in_features, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        super().__init__(*layers, torch.nn.Linear(8, out_features))


CASES = {
    "sgld": {},
    "sghmc, two chains": {"teacher__inference": SGHMC(1e-4, burn_in=7, thinning=3, n_chains=2)},
    "last samples, noise": {"estimate": "stochastic", "transfer": GaussianNoise()},
    "full batches": {"batch_size": 60, "teacher__batch_size": 60, "teacher__max_epochs": 60},
    "dropout": {"module": Dropping, "module__hidden_units": None},
    "momentum": {"optimizer": "SGD", "optimizer__momentum": 0.9, "lr_schedule": None},
    "any module": {"teacher__module": Dropping, "teacher__module__hidden_units": None},
    "numbers": {},
    "pruned": {"group_lasso": 0.3, "module__hidden_units": (30,), "teacher__max_epochs": 30},
}


def distiller(case="sgld", fatal=0, end=stop, **params):
    cls = BayesianEnsembleRegressor if case == "numbers" else BayesianEnsembleClassifier
    teacher = cls(
        inference=SGLD(2e-3, burn_in=7, thinning=2),
        module__hidden_units=(6,),
        batch_size=16,
        max_epochs=12,
        random_state=0,
    )
    own = Expectation(Largest(fatal, end), "squared", name="own")
    names = ("mean", "aleatoric", "epistemic") if case == "numbers" else ("predictive", "entropy")
    gped = GPEDDistiller(
        teacher,
        expectations=(*names, own),
        module__hidden_units=(5,),
        batch_size=16,
        lr=0.01,
        checkpoint_interval=0,
        random_state=0,
    ).set_params(**{**CASES[case], **params})
    for part in (gped, gped.teacher):  # those of a module that takes none
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
    # In each fit the module is tried out once before; about 20 steps of the student in all.
    for fatal in (9, 6):
        with pytest.raises(Stopped):
            fit(distiller(case, fatal, checkpoint=path))
        assert path.exists()
    resumed = fit(distiller(case, checkpoint=path))
    assert list(tmp_path.iterdir()) == []
    assert_same(resumed, fit(distiller(case)))


def test_a_fit_that_was_killed_gives_the_same_student(tmp_path):
    path = tmp_path / "checkpoint"
    code = (
        "import sys; from tests.distillers.test_gped_resume import distiller, fit, kill; "
        "fit(distiller(fatal=14, end=kill, checkpoint=sys.argv[1]))"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code, str(path)], cwd=root, check=False)
    assert run.returncode == -signal.SIGKILL
    assert path.exists()
    assert_same(fit(distiller(checkpoint=path)), fit(distiller()))


def test_a_fit_that_was_killed_when_all_was_done_gives_the_same_student(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", lambda self: stop())
        with pytest.raises(Stopped):
            fit(distiller(checkpoint=path))
    assert path.exists()
    assert_same(fit(distiller(checkpoint=path)), fit(distiller()))


def test_without_a_file_a_fit_begins_anew(tmp_path):
    path = tmp_path / "checkpoint"
    assert_same(fit(distiller(checkpoint=path)), fit(distiller()))
    assert not path.exists()


@pytest.mark.parametrize(
    "params", [{"lr": 0.02}, {"teacher__inference__step_size": 1e-3}, {"estimate": "stochastic"}]
)
def test_a_checkpoint_of_other_parameters_is_refused(params, tmp_path):
    path = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        fit(distiller(fatal=9, checkpoint=path))
    with pytest.raises(ValueError, match=r"checkpoint=.* is of a fit with other data"):
        fit(distiller(checkpoint=path).set_params(**params))
    with pytest.raises(ValueError, match="other data or parameters"):
        distiller(checkpoint=path).fit(X + 1, Y, X_monitor=X[:9])


def test_a_file_that_is_cut_off_is_never_found(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        fit(distiller(fatal=9, checkpoint=path))
    before = path.read_bytes()

    def half(state, file):
        file.write(before[:100])
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", half)
        with pytest.raises(Stopped):
            fit(distiller(checkpoint=path))
    assert path.read_bytes() == before
    fit(distiller(checkpoint=path))
    assert list(tmp_path.iterdir()) == []
