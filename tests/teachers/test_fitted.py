# SPDX-License-Identifier: BSD-3-Clause
"""Lists of fitted models: estimators, skorch nets, torch modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skdistill import BayesianEnsembleRegressor
from skdistill.distributions import Gaussian
from skdistill.teachers import FittedModels, as_teacher

LABELS = np.array(["ash", "elm", "oak"])


def network(columns, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, columns))


def outputs(module, X):
    with torch.no_grad():
        return module.eval()(torch.tensor(X, dtype=torch.float32)).numpy()


def test_fitted_classifiers_are_members(classes):
    X, y = classes
    models = [GaussianNB().fit(X, y), RandomForestClassifier(7, random_state=0).fit(X, y)]
    teacher = as_teacher(models).fit(X, y)
    expected = np.stack([model.predict_proba(X) for model in models], axis=1)
    assert_allclose(teacher.predict_members(X), expected)
    assert teacher.estimator_.models == models


def test_fitted_regressors_are_members(numbers):
    X, y = numbers
    forest = RandomForestRegressor(7, random_state=0).fit(X, y)
    ensemble = BayesianEnsembleRegressor(3, max_epochs=2, random_state=0).fit(X, y)
    pipe = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    teacher = as_teacher([forest, ensemble, pipe]).fit(X, y)
    members = teacher.predict_members(X)
    means = [model.predict(X) for model in (forest, ensemble, pipe)]
    assert_allclose(members[..., 0, 0], np.stack(means, axis=1))
    residual = np.mean((y - np.mean(means, axis=0)) ** 2)
    assert_allclose(teacher.residual_variance_, [residual])
    own = ensemble.predict_members(X)
    mixture = own[..., 1].mean(axis=1) + own[..., 0].var(axis=1)
    assert_allclose(members[:, 1, :, 1], mixture)
    assert_allclose(members[:, 2, 0, 1], residual)


def test_ensembles_that_were_fitted_apart_are_joined(numbers):
    X, y = numbers
    small = {"max_epochs": 2, "module__hidden_units": (6,)}
    ensembles = [BayesianEnsembleRegressor(n, random_state=n, **small).fit(X, y) for n in (2, 3)]
    teacher = as_teacher(ensembles).fit(X, y)
    own = [model.predict_members(X) for model in ensembles]
    assert_array_equal(teacher.predict_members(X), np.concatenate(own, axis=1))
    weighted = (2 * ensembles[0].predict(X) + 3 * ensembles[1].predict(X)) / 5
    assert_allclose(teacher.predict(X), weighted)
    assert teacher.residual_variance_ is None


def test_torch_modules_give_logits(classes):
    X, y = classes
    modules = [network(3, seed).train() for seed in range(2)]
    teacher = as_teacher(FittedModels(modules, task="classification")).fit(X, y)
    expected = np.stack([softmax(outputs(module, X), axis=-1) for module in modules], axis=1)
    assert_allclose(teacher.predict_members(X), expected, rtol=1e-5)
    assert_array_equal(teacher.predict(X), LABELS[expected.mean(axis=1).argmax(axis=-1)])
    assert not any(module.training for module in modules)


@pytest.mark.parametrize("n_targets", [1, 2])
def test_torch_modules_give_means_and_raw_variances(n_targets, classes):
    X = classes[0]
    y = X[:, :n_targets].squeeze()
    modules = [network(2 * n_targets, seed) for seed in range(3)]
    teacher = as_teacher(FittedModels(modules, task="regression")).fit(X, y)
    assert teacher.residual_variance_ is None
    members = teacher.predict_members(X)
    for s, module in enumerate(modules):
        mean, variance = Gaussian.from_outputs(torch.tensor(outputs(module, X)))
        assert_allclose(members[:, s, :, 0], mean, rtol=1e-5, atol=1e-6)
        assert_allclose(members[:, s, :, 1], variance, rtol=1e-5)


def test_skorch_nets_are_members(classes):
    from skorch import NeuralNetClassifier, NeuralNetRegressor

    X, y = classes
    X32, codes = X.astype(np.float32), np.searchsorted(LABELS, y)
    settings = {"max_epochs": 2, "verbose": 0, "train_split": None}
    nets = [
        NeuralNetClassifier(network(3, seed), criterion=nn.CrossEntropyLoss, **settings)
        for seed in range(2)
    ]
    nets = [net.fit(X32, codes) for net in nets]
    teacher = as_teacher(nets).fit(X, codes)  # float64, which a net would not take
    expected = np.stack([net.predict_proba(X32) for net in nets], axis=1)
    assert_allclose(teacher.predict_members(X), expected, rtol=1e-6)
    target = X32[:, :1]
    net = NeuralNetRegressor(network(1, 0), **settings).fit(X32, target)
    teacher = as_teacher([net]).fit(X, target)
    assert_allclose(teacher.predict_members(X)[:, 0, :, 0], net.predict(X32), rtol=1e-6)
    both = as_teacher(NeuralNetRegressor(network(1, 0), **settings)).fit(X32, target)
    assert both.predict_members(X32).shape == (len(X), 1, 1, 2)
    with pytest.raises(NotFittedError, match="NeuralNetRegressor instance is not fitted"):
        as_teacher([NeuralNetRegressor(network(1, 0))])


def fitted_nb(labels):
    X = np.arange(6.0).reshape(-1, 1)
    return GaussianNB().fit(X, np.resize(labels, 6))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: as_teacher([GaussianNB()]), NotFittedError, "GaussianNB instance is not fitted"),
        (
            lambda: as_teacher([fitted_nb([0, 1]), DummyRegressor().fit([[0]], [1])]),
            ValueError,
            "models must be of one task.*GaussianNB.*DummyRegressor",
        ),
        (
            lambda: as_teacher([fitted_nb(["a", "b"]), fitted_nb(["a", "c"])]),
            ValueError,
            r"same classes.*number 0\)': \['a', 'b'\].*number 1\)': \['a', 'c'\]",
        ),
        (
            lambda: as_teacher(FittedModels([nn.Linear(5, 3)], task="regression")).fit(
                np.ones((9, 5)), np.ones(9)
            ),
            ValueError,
            r"a raw variance, for each of 1 target.*Linear gives shape \(1, 3\)",
        ),
        (
            lambda: as_teacher(FittedModels([nn.Linear(5, 1)], task="classification")).fit(
                np.ones((4, 5)), [0, 1, 0, 1]
            ),
            ValueError,
            "gives 1 columns, but y holds 2 classes",
        ),
    ],
)
def test_models_that_do_not_belong_together_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_columns_of_classes_in_another_order_are_aligned(classes):
    class Backwards(GaussianNB):
        def fit(self, X, y):
            super().fit(X, y)
            self.classes_ = self.classes_[::-1]
            return self

        def predict_proba(self, X):
            return super().predict_proba(X)[:, ::-1]

    X, y = classes
    teacher = as_teacher([GaussianNB().fit(X, y), Backwards().fit(X, y)]).fit(X, y)
    members = teacher.predict_members(X)
    assert_array_equal(members[:, 0], members[:, 1])
