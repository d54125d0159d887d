# SPDX-License-Identifier: BSD-3-Clause
"""Ensembles whose members share weights: what they learn, and that members are members."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusRegressor,
)
from skdistill._estimator.calibration import fit_temperature
from skdistill._method.task import TASKS
from skdistill._training.trainer import SEED_LIMIT
from skdistill.ensembles._out_of_bag import Parts
from skdistill.export import export_program
from skdistill.modules import TabM, n_parameters
from skdistill.samplers import SGLD, DeepEnsemble
from skdistill.settings import Optimizer, Runtime

N, D, K = 300, 3, 8


def ensemble(kind=BayesianEnsembleRegressor, **params):
    settings = {
        "n_members": K,
        "module": TabM,
        "module__hidden_units": (16,),
        "max_epochs": 10,
        "batch_size": 32,
        "runtime": Runtime(device="cpu"),
        "random_state": 0,
    }
    return kind(**{**settings, **params})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, 5 + 2 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)


@pytest.fixture(scope="module")
def fitted(data):
    return ensemble(max_epochs=150).fit(*data)


def test_learns_and_its_members_disagree_away_from_the_data(fitted, data):
    X, y = data
    assert fitted.score(X, y) > 0.95
    near, far = (fitted.predict_uncertainty(scale * X).epistemic.mean() for scale in (1, 4))
    assert far > 4 * near


def test_members_share_their_matrices(fitted, data):
    members = fitted.predict_members(data[0][:5])
    assert members.shape == (5, K, 1, 2)
    assert fitted.n_members_ == K
    assert np.ptp(members[:, :, 0, 0], axis=1).min() > 0
    assert n_parameters(fitted.module_) < K * (D * 16 + 16 + 16 * 2 + 2)
    assert fitted.history_[-1]["engine"] == "closed_form"
    assert fitted.history_[-1]["members"] == list(range(K))


def test_a_classifier_learns(data):
    X, y = data
    model = ensemble(BayesianEnsembleClassifier, max_epochs=60).fit(
        X, np.where(y > 5, "up", "down")
    )
    assert model.score(X, np.where(y > 5, "up", "down")) > 0.9
    proba = model.predict_proba(X[:4])
    np.testing.assert_allclose(model.predict_members(X[:4]).mean(1), proba, rtol=1e-5)


def test_all_members_see_all_rows_where_they_fit_one_minibatch(data):
    """Each of eight members would know one of the eight samples only, were they not shuffled."""
    X, y = data
    model = ensemble(max_epochs=400, batch_size=128, prior_scale=np.inf).fit(X[:8], y[:8])
    means = model.predict_members(X[:8])[:, :, 0, 0]
    assert np.abs(means - y[:8, None]).mean() < 0.3


def test_the_prior_of_a_members_own_weights_is_divided_by_their_number(data):
    """After one step of plain gradient descent the weights have shrunk by lr times the decay."""
    X, y = data
    settings = dict(
        max_epochs=1, batch_size=N, optimizer=Optimizer("SGD", lr_schedule=None), lr=1.0
    )
    start = ensemble(**settings, prior_scale=np.inf, module__mini=True)
    free = start.fit(X, y).module_.network
    pulled = clone(start).set_params(prior_scale=0.1).fit(X, y).module_.network
    for name, fan_in, share in (("core.0.weight", D, 1), ("heads.weight", 16, K)):
        a, b = (dict(net.named_parameters())[name].detach() for net in (free, pulled))
        decay = fan_in / 0.1**2 / N / share
        # free = w - g and pulled = w - g - decay w, where w starts within 1 / sqrt(fan_in).
        assert 0.8 < ((a - b).abs().max() / decay * np.sqrt(fan_in)) <= 1 + 1e-6


def test_the_network_is_restarted_from_another_seed_if_it_diverges(data):
    X, y = data
    diverged = pytest.raises(ValueError, match="Every member diverged")
    with pytest.warns(ConvergenceWarning, match="trained anew"), diverged:
        ensemble(optimizer="SGD", lr=1e6, inference=DeepEnsemble(max_restarts=1)).fit(X, y)


@pytest.mark.parametrize(
    "student",
    [
        HydraPlusRegressor(heads=4, max_epochs=3, random_state=0),
        DistributionDistiller(None, family="gaussian", max_epochs=3, random_state=0),
    ],
    ids=["hydra", "distribution"],
)
def test_any_student_learns_from_it(student, fitted, data):
    model = clone(student).set_params(teacher=FrozenEstimator(fitted)).fit(*data)
    assert np.isfinite(model.predict_uncertainty(data[0]).epistemic).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inference": SGLD(1e-5)}, "inference must be 'deep_ensemble' with module=TabM"),
        ({"inference": DeepEnsemble(bootstrap=True)}, "bootstrap must be False with module=TabM"),
        ({"warm_start": True}, "warm_start must be False with module=TabM"),
        ({"module__n_members": 4}, "module__n_members must not be given"),
        ({"batch_size": 7}, "batch_size must be at least n_members=8"),
        ({"module__mini": 2}, "mini must be one of"),
        ({"module__depth": 2}, "TabM takes no"),
    ],
)
def test_what_does_not_go_together_is_named(params, message, data):
    with pytest.raises(ValueError, match=message):
        ensemble(**params).fit(*data)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 7])
def test_it_is_exported(n, fitted, data, tmp_path):
    export_program(fitted, tmp_path / "model.pt2", outputs=["mean", "members"])
    program = torch.export.load(tmp_path / "model.pt2").module()
    X = data[0][:n]
    found = program(torch.tensor(X, dtype=next(fitted.module_.parameters()).dtype))
    np.testing.assert_allclose(found[0].squeeze(), fitted.predict(X).squeeze(), rtol=1e-5)


@pytest.fixture
def every_table_is_large(monkeypatch):
    for place in ("_spec", "_fit", "_out_of_bag"):
        monkeypatch.setattr(f"skdistill.ensembles.{place}.MANY_ROWS", N)


def noisy_labels(X, seed):
    """Labels of which X tells the probability, by its first column."""
    rng = np.random.default_rng(seed)
    return (rng.random(len(X)) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)


def parts_of(kind, y):
    """The parts that a fit to y with ``random_state=0`` draws, of which members leave out one."""
    task = TASKS[kind._kind]
    task = task(np.unique(y)) if kind._kind == "classifier" else task.check(y)[1]
    return Parts.drawn(task, y, np.random.RandomState(0).randint(SEED_LIMIT), n_networks=1)


@pytest.mark.usefixtures("every_table_is_large")
def test_on_large_tables_classes_keep_the_best_epoch_of_the_mean_probabilities(data):
    X, _ = data
    y = noisy_labels(X, 1)
    (rows,) = parts_of(BayesianEnsembleClassifier, y).left_out([0])
    settings = {
        "lr": 0.03,
        "optimizer": Optimizer(lr_schedule=None),
        "runtime": Runtime(dtype="float64"),
    }
    model = ensemble(BayesianEnsembleClassifier, max_epochs=60, **settings).fit(X, y)
    (best,) = set(model.best_epochs_)
    scores = [row["valid_loss"] for row in model.history_]
    assert best < 60
    assert scores[best - 1] <= min(scores) + 1e-4
    del model.module_.calibration
    model.module_.functions = None
    shares = model.predict_proba(X[rows])
    brier = ((shares - np.eye(2)[y[rows]]) ** 2).sum(1).mean()
    assert scores[best - 1] == pytest.approx(brier)


@pytest.mark.parametrize("kind", [BayesianEnsembleRegressor, BayesianEnsembleClassifier])
def test_the_temperature_is_that_of_all_members_on_the_rows_left_out(kind, data):
    X, y = data
    is_numeric = kind is BayesianEnsembleRegressor
    y = y + 2 * np.random.default_rng(1).normal(size=len(y)) if is_numeric else noisy_labels(X, 1)
    settings = {
        "inference": DeepEnsemble(calibrate="oob"),
        "runtime": Runtime(dtype="float64"),
        "max_epochs": 40,
        "distance_aware": False,
    }
    model = ensemble(kind, **settings).fit(X, y)
    rows = np.flatnonzero(parts_of(kind, y).of_row[0] == 0)
    outputs = model.module_.outputs(torch.tensor(X[rows])).detach()
    found = model.module_.read(outputs)
    assert len(outputs) == K
    if model._kind == "regressor":
        targets = (torch.tensor(y[rows])[:, None] - y.mean()) / y.std()
    else:
        targets = torch.tensor(y[rows])
    expected = fit_temperature(found, targets, torch.ones(len(rows), dtype=torch.float64))
    assert not is_numeric or expected.temperature > 0.5  # below, see test_out_of_bag.py
    assert model.calibration_.temperature == pytest.approx(expected.temperature, rel=1e-3)
    assert model.calibration_.temperature != 1


@pytest.mark.usefixtures("every_table_is_large")
def test_numbers_are_trained_on_all_rows_unless_calibration_is_asked_for(data):
    default, asked = (
        ensemble(inference=DeepEnsemble(calibrate=value)).fit(*data) for value in ("auto", "oob")
    )
    assert not hasattr(default, "calibration_")
    assert hasattr(asked, "calibration_")
    assert not hasattr(asked, "best_epochs_")
