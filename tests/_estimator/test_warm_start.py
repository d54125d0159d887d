# SPDX-License-Identifier: BSD-3-Clause
"""``warm_start``: further members of an ensemble, further epochs of a student."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from small_models import assert_same_weights, weights

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    load,
    save,
)
from skdistill._engine import SavedTraining
from skdistill.distillers import _student
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Checkpoint, HydraLoss, Optimizer, Runtime

SMALL = {"max_epochs": 4, "batch_size": 16, "module__hidden_units": (6,), "random_state": 0}

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
NUMBERS = 5 + X @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=60)
LABELS = np.array(["elm", "ash", "oak"])[np.digitize(NUMBERS, [4.0, 6.0])]
ENSEMBLES = [(BayesianEnsembleRegressor, NUMBERS), (BayesianEnsembleClassifier, LABELS)]


def members(model, first=0, last=None):
    """Weights of some members."""
    return {
        name: value[first:last]
        for name, value in weights(model).items()
        if name.startswith("network.")
    }


# --- More members -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"runtime": Runtime(member_block=1)},
        {"inference": DeepEnsemble(bootstrap=True)},
        {"inference": DeepEnsemble(early_stopping=True), "runtime": Runtime(member_block=3)},
    ],
)
@pytest.mark.parametrize(("cls", "y"), ENSEMBLES)
def test_members_are_added_to_those_that_are_there(cls, y, params):
    ensemble = cls(3, warm_start=True, **SMALL, **params).fit(X, y)
    before, n_rows = members(ensemble), len(ensemble.history_)
    ensemble.set_params(n_members=5).fit(X, y)
    for name, value in members(ensemble, 0, 3).items():
        np.testing.assert_array_equal(value, before[name])
    at_once = cls(5, **SMALL, **params).fit(X, y)
    for name, value in members(ensemble).items():
        np.testing.assert_allclose(value, members(at_once)[name], rtol=1e-12, atol=1e-12)
    assert ensemble.n_members_ == len(ensemble.n_restarts_) == 5
    assert {tuple(row["members"]) for row in ensemble.history_[n_rows:]} <= {(3, 4), (3,), (4,)}
    if "best_epochs_" in vars(at_once):
        np.testing.assert_array_equal(ensemble.best_epochs_, at_once.best_epochs_)


def test_new_members_learn_from_other_rows_on_the_scale_of_the_first():
    params = {**SMALL, "inference": DeepEnsemble(calibrate=None)}  # which depends on all members
    ensemble = BayesianEnsembleRegressor(2, warm_start=True, **params).fit(X, NUMBERS)
    before = ensemble.predict_members(X)[..., 0]
    y_scale = weights(ensemble)["y_scale"]
    ensemble.set_params(n_members=4, max_epochs=60).fit(X[:40], NUMBERS[:40] + 4)
    np.testing.assert_allclose(ensemble.predict_members(X)[:, :2, ..., 0], before, rtol=1e-12)
    assert weights(ensemble)["y_scale"] == y_scale
    shift = ensemble.predict_members(X)[:, 2:, ..., 0].mean() - before.mean()
    assert shift > 1


def test_fewer_members_are_refused():
    ensemble = BayesianEnsembleRegressor(3, warm_start=True, **SMALL).fit(X, NUMBERS)
    message = "n_members must be at least 3, as many as have been trained, .*; got 2"
    with pytest.raises(ValueError, match=message):
        ensemble.set_params(n_members=2).fit(X, NUMBERS)
    assert ensemble.set_params(warm_start=False).fit(X, NUMBERS).n_members_ == 2


@pytest.mark.parametrize("inference", [SGLD(1e-4), MCDropout()])
def test_draws_cannot_be_added_to(inference):
    ensemble = BayesianEnsembleRegressor(4, inference=inference, warm_start=True, **SMALL)
    with pytest.raises(ValueError, match="warm_start must be False with inference="):
        ensemble.fit(X, NUMBERS)
    ensemble.set_params(warm_start=False).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="warm_start must be False where the fitted members are"):
        ensemble.set_params(warm_start=True, inference="deep_ensemble").fit(X, NUMBERS)


# --- More epochs ------------------------------------------------------------------------------

FROZEN = {
    "numbers": FrozenEstimator(BayesianEnsembleRegressor(3, **SMALL).fit(X, NUMBERS)),
    "labels": FrozenEstimator(BayesianEnsembleClassifier(3, **SMALL).fit(X, LABELS)),
}
Y = {"numbers": NUMBERS, "labels": LABELS}
HYDRA = {"loss": HydraLoss(spread_weight=0.0)}  # whose weight would grow over all epochs
STUDENTS = {
    "hydra of numbers": lambda: HydraPlusRegressor(FROZEN["numbers"], **HYDRA, **SMALL),
    "hydra of labels": lambda: HydraPlusClassifier(FROZEN["labels"], **HYDRA, **SMALL),
    "gaussian numbers": lambda: DistributionDistiller(FROZEN["numbers"], **SMALL),
    "mixup numbers": lambda: DistributionDistiller(
        FROZEN["numbers"], transfer="mixup", optimizer="SGD", optimizer__momentum=0.9, **SMALL
    ),
    "dirichlet labels": lambda: DistributionDistiller(FROZEN["labels"], **SMALL),
    "head of labels": lambda: DistributionDistiller(
        FROZEN["labels"], family="dropout_head", **SMALL
    ),
}


def y_of(name):
    return Y[name.split()[-1]]


@pytest.mark.parametrize("name", STUDENTS)
def test_further_epochs_make_the_student_of_all_of_them(name):
    student = STUDENTS[name]().set_params(warm_start=True)
    student.set_params(optimizer=Optimizer(student.optimizer, lr_schedule=None))
    student.fit(X, y_of(name))
    student = pickle.loads(pickle.dumps(student))  # the state of the training goes with it
    student.set_params(max_epochs=9).fit(X, y_of(name))
    whole = clone(student).fit(X, y_of(name))
    assert_same_weights(student, whole)
    assert student.n_epochs_ == 9
    assert [row["epoch"] for row in student.history_] == list(range(1, 10))
    losses = [[row["train_loss"] for row in model.history_] for model in (student, whole)]
    assert losses[0] == losses[1]


def test_epochs_that_are_all_there_leave_the_student_with_a_warning(monkeypatch):
    student = STUDENTS["hydra of numbers"]().set_params(warm_start=True).fit(X, NUMBERS)
    before = weights(student)
    with pytest.warns(UserWarning, match="all of the 4 epochs that max_epochs=4 stands for"):
        student.fit(X, NUMBERS)
    with pytest.raises(ValueError, match=r"max_epochs must be at least 4 .*; got 2"):
        student.set_params(max_epochs=2).fit(X, NUMBERS)
    monkeypatch.setattr(_student, "_EPOCHS_WITHIN", (1, 3))
    with pytest.warns(UserWarning, match="all of the 3 epochs that max_epochs='auto' stands for"):
        student.set_params(max_epochs="auto").fit(X, NUMBERS)
    for name, value in weights(student).items():
        np.testing.assert_array_equal(value, before[name])


# --- Both -------------------------------------------------------------------------------------

GOING_ON = {
    "ensemble": (BayesianEnsembleRegressor(2, **SMALL), {"n_members": 3}, NUMBERS),
    "ensemble of labels": (BayesianEnsembleClassifier(2, **SMALL), {"n_members": 3}, LABELS),
    "student": (STUDENTS["hydra of numbers"](), {"max_epochs": 6}, NUMBERS),
    "student of labels": (STUDENTS["dirichlet labels"](), {"max_epochs": 6}, LABELS),
}


@pytest.fixture(params=GOING_ON)
def going_on(request):
    """A fitted model that has more to train, with its y."""
    model, more, y = GOING_ON[request.param]
    model = clone(model).set_params(warm_start=True).fit(X, y)
    return model.set_params(**more), y


def test_what_is_other_than_before_is_refused_by_name(going_on):
    model, y = going_on
    before = pickle.dumps(weights(model))
    other_y = np.where(y == "elm", "fir", y) if y is LABELS else np.stack([y, y], axis=1)
    named = r"known from before; got \['fir'\]" if y is LABELS else "y must have 1 target.*got 2"
    with pytest.raises(ValueError, match=named):
        model.fit(X, other_y)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match="module__hidden_units must be as in the fit that train"):
        clone_of(model, module__hidden_units=(7,)).fit(X, y)
    with pytest.raises(ValueError, match=r"X must be within .* of 0"):
        clone_of(model).fit(np.where(X > 2, 1e200, X), y)
    assert pickle.dumps(weights(model)) == before
    model.fit(X, y)


def clone_of(model, **params):
    """A copy with its fitted attributes."""
    return pickle.loads(pickle.dumps(model)).set_params(**params)


def test_a_saved_model_goes_on(going_on, tmp_path):
    model, y = going_on
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    if hasattr(model, "teacher"):
        loaded.set_params(teacher=model.teacher)
    assert_same_weights(loaded.fit(X, y), model.fit(X, y))


def test_a_fit_that_goes_on_has_a_checkpoint_of_its_own(going_on, tmp_path, monkeypatch):
    model, y = going_on
    params = {"runtime": Runtime(checkpoint=Checkpoint(tmp_path / "checkpoint", every=0))}
    killed, resumed = clone_of(model, **params), clone_of(model, **params)
    with monkeypatch.context() as patched:
        patched.setattr(SavedTraining, "on_epoch_end", save_and_end)
        with pytest.raises(Killed):
            killed.fit(X, y)
    with pytest.raises(ValueError, match=r"what differs: the fitted (members|student)"):
        clone(resumed).fit(X, y)
    assert_same_weights(resumed.fit(X, y), model.fit(X, y))
    assert os.listdir(tmp_path) == []


class Killed(BaseException):
    """Ends a fit at once, as a kill does."""


def save_and_end(self, net, on_epoch_end=SavedTraining.on_epoch_end, **kwargs):
    on_epoch_end(self, net, **kwargs)
    raise Killed
