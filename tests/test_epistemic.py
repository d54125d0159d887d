# SPDX-License-Identifier: BSD-3-Clause
"""Halves and learning curves against models whose posterior is exact, and against their steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import make_classification, make_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import Ridge

from skdistill import (
    BayesianEnsembleClassifier,
    DistributionDistiller,
    predict_uncertainty,
)
from skdistill.distributions import Uncertainty
from skdistill.metrics import epistemic_calibration
from skdistill.model_selection import disagreement_of_halves, uncertainty_curve
from skdistill.model_selection._epistemic import _variance_of_probabilities
from skdistill.teachers import as_teacher

SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
NOISE, N_FEATURES = 0.5, 4


class Linear(RegressorMixin, BaseEstimator):
    """Bayesian linear regression of known noise, whose posterior is exact."""

    def __init__(self, prior=100.0):
        self.prior = prior

    def fit(self, X, y):
        precision = X.T @ X / NOISE**2 + np.eye(X.shape[1]) / self.prior
        self.covariance_ = np.linalg.inv(precision)
        self.coef_ = self.covariance_ @ X.T @ y / NOISE**2
        return self

    def predict(self, X):
        return X @ self.coef_

    def predict_uncertainty(self, X):
        epistemic = np.einsum("ni,ij,nj->n", X, self.covariance_, X)
        aleatoric = np.full(len(X), NOISE**2)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic, measure="variance")


def linear_data(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, N_FEATURES))
    return X, X.sum(axis=1) + NOISE * rng.normal(size=n)


@pytest.fixture(scope="module")
def data():
    return make_regression(60, 3, noise=5.0, random_state=0)


def test_halves_of_an_exact_posterior_are_calibrated():
    X, y = linear_data(400)
    settings = {"train_size": 25, "test_size": 50, "n_repeats": 200, "random_state": 0}
    found = disagreement_of_halves(Linear(), X, y, **settings)
    assert found.squared_difference.shape == found.epistemic.shape == (10_000,)
    assert found.coverage == pytest.approx(0.9, abs=0.02)
    assert found.overall == pytest.approx(1, abs=0.1)
    assert_allclose(found.ratio, 1, atol=0.2)


def test_curve_of_an_exact_posterior_knows_both_parts():
    X, y = linear_data(4000)
    sizes = [10, 20]
    settings = {"train_sizes": sizes, "test_size": 1000, "n_repeats": 100, "random_state": 0}
    found = uncertainty_curve(Linear(), X, y, **settings)
    assert_array_equal(found.train_sizes, sizes)
    assert found.limit == pytest.approx(NOISE**2, rel=0.05)
    assert_allclose(found.aleatoric, NOISE**2)
    assert_allclose(found.aleatoric_ratio, 1, atol=0.05)
    assert_allclose(found.epistemic_ratio, 1, atol=0.2)
    assert_allclose(found.coverage, 0.9, atol=0.02)
    # E x' C x = noise^2 d / (n - d - 1) for n normal samples and a flat prior
    expected = NOISE**2 * N_FEATURES / (np.array(sizes) - N_FEATURES - 1)
    assert_allclose(found.epistemic, expected, rtol=0.2)


def test_a_gaussian_process_of_the_right_kernel_knows_its_error():
    kernel = RBF(0.7) + WhiteKernel(0.1)
    errors, variances = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, size=(60, 1))
        covariance = RBF(0.7)(X) + 1e-9 * np.eye(60)
        function = np.linalg.cholesky(covariance) @ rng.normal(size=60)
        y = function + np.sqrt(0.1) * rng.normal(size=60)
        model = as_teacher(GaussianProcessRegressor(kernel, optimizer=None)).fit(X[:20], y[:20])
        errors.append(np.square(model.predict(X[20:]) - function[20:]))
        variances.append(predict_uncertainty(model, X[20:]).epistemic)
    found = epistemic_calibration(np.concatenate(errors), np.concatenate(variances))
    assert found.coverage == pytest.approx(0.9, abs=0.03)
    assert found.overall == pytest.approx(1, abs=0.2)


@pytest.fixture(scope="module")
def classes():
    X, y = make_classification(90, n_informative=4, n_classes=3, random_state=0)
    return X, np.array(["no", "perhaps", "yes"])[y]


@pytest.mark.filterwarnings("ignore")
def test_variance_of_a_dirichlet_distribution_is_that_of_its_draws(classes):
    X, y = classes
    teacher = BayesianEnsembleClassifier(3, **SMALL)
    student = DistributionDistiller(teacher, family="dirichlet", **SMALL).fit(X, y)
    dirichlet = torch.distributions.Dirichlet(student.predict_distribution(X[:4]).concentrations)
    torch.manual_seed(0)
    draws = dirichlet.sample((20_000,)).numpy()
    assert_allclose(_variance_of_probabilities(student, X[:4]), draws.var(axis=0), rtol=0.1)


@pytest.mark.parametrize(
    ("protocol", "arguments", "error", "message"),
    [
        (disagreement_of_halves, {"train_size": 40}, ValueError, "train_size must be an integer"),
        (disagreement_of_halves, {"estimator": Ridge()}, TypeError, "estimator has no epistemic"),
        (uncertainty_curve, {"limit_size": 50}, ValueError, "limit_size must be an integer"),
    ],
)
def test_what_is_wrong_is_named(protocol, arguments, error, message, data):
    given = {"estimator": Linear(), "X": data[0], "y": data[1], **arguments}
    if protocol is uncertainty_curve:
        given = {"train_sizes": [10], **given}
    with pytest.raises(error, match=message):
        protocol(**given)
