# SPDX-License-Identifier: BSD-3-Clause
"""Members of Gaussian processes against the posterior that scikit-learn predicts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import skdistill
from skdistill import HydraPlusRegressor
from skdistill.teachers import _gaussian_process, as_teacher
from skdistill.teachers._gaussian_process import _features, _posterior_of

RANDOM = np.random.RandomState(0)
X = RANDOM.uniform(-2, 2, size=(60, 2))
NEW = RANDOM.uniform(-4, 4, size=(40, 2))
NUMBERS = 50 + 10 * np.sin(2 * X[:, 0]) + X[:, 1] + RANDOM.normal(size=60)
IS_UP = np.sin(2 * X[:, 0]) + 0.5 * RANDOM.normal(size=60) > 0
LABELS = np.where(IS_UP, "yes", "no")

SMOOTH = ConstantKernel(2.0) * RBF([0.8, 3.0])
KERNELS = {
    "rbf": SMOOTH,
    "matern": Matern(1.5, nu=1.5),
    "smoothest matern": Matern(1.5, nu=np.inf),
    "rational": 0.5 * RationalQuadratic(1.2, alpha=0.7),
    "sum": SMOOTH + 0.5 * Matern(0.7, nu=2.5),
    "product of a sum": ConstantKernel(0.5) * (RBF(1.0) + Matern(2.0)) * RBF(3.0),
    "not stationary": SMOOTH + DotProduct(1.0),
    "periodic": ExpSineSquared(1.0, 3.0) * RBF(2.0),
}


def gp(kernel, **params):
    return GaussianProcessRegressor(kernel, optimizer=None, **{"normalize_y": True, **params})


def means_and_variances(teacher, rows):
    members = teacher.predict_members(rows)
    return members[..., 0], members[..., 1]


@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_members_have_the_mean_the_latent_variance_and_the_noise(kernel, normalize_y):
    teacher = as_teacher(gp(kernel + WhiteKernel(0.1), normalize_y=normalize_y)).fit(X, NUMBERS)
    mean, std = teacher.estimator_.predict(NEW, return_std=True)
    means, variances = means_and_variances(teacher, NEW)
    assert means.shape == (40, 20, 1)
    scale = NUMBERS.var() if normalize_y else 1.0
    assert_allclose(means.mean(axis=1)[:, 0], mean, rtol=1e-9)
    assert_allclose(variances, 0.1 * scale, rtol=1e-6)
    assert_allclose(means.var(axis=1)[:, 0], std**2 - 0.1 * scale, rtol=1e-5, atol=1e-6 * scale)


def test_alpha_is_noise():
    noisy = as_teacher(gp(SMOOTH, alpha=0.1)).fit(X, NUMBERS)
    white = as_teacher(gp(SMOOTH + WhiteKernel(0.1), alpha=1e-12)).fit(X, NUMBERS)
    for ours, theirs in zip(
        noisy.predict_uncertainty(NEW), white.predict_uncertainty(NEW), strict=True
    ):
        assert_allclose(ours, theirs, rtol=1e-6)
    of_rows = as_teacher(gp(SMOOTH, alpha=np.linspace(0.05, 0.15, 60))).fit(X, NUMBERS)
    assert_allclose(of_rows.predict_uncertainty(NEW).aleatoric, 0.1 * NUMBERS.var())


def test_noise_that_depends_on_the_row():
    kernel = SMOOTH + WhiteKernel(0.1) * DotProduct(1.0)
    teacher = as_teacher(gp(kernel, normalize_y=False)).fit(X, NUMBERS)
    assert_allclose(
        teacher.predict_uncertainty(NEW).aleatoric,
        0.1 * (1 + np.square(NEW).sum(axis=1)),
        rtol=1e-6,
    )


def test_members_are_functions_of_the_row_alone():
    teacher = as_teacher(gp(SMOOTH + WhiteKernel(0.1))).fit(X, NUMBERS)
    members = teacher.predict_members(NEW)
    one_by_one = np.concatenate([teacher.predict_members(row[None]) for row in NEW])
    assert_allclose(one_by_one, members, rtol=1e-9)
    again = pickle.loads(pickle.dumps(teacher))
    assert_array_equal(again.predict_members(NEW), members)


def test_members_covary_over_rows_as_the_posterior_does(monkeypatch):
    monkeypatch.setattr(_gaussian_process, "N_FUNCTIONS", 3000)  # so that chance is small
    model = gp(SMOOTH + WhiteKernel(0.1), normalize_y=False).fit(X, NUMBERS)
    grid = np.column_stack([np.linspace(-3, 3, 50), np.zeros(50)])
    draws = _posterior_of(model).draws(grid)[..., 0]
    _, covariance = model.predict(grid, return_cov=True)
    covariance -= 0.1 * np.eye(50)
    std = np.sqrt(np.diag(covariance))
    error = draws @ draws.T / 3000 - covariance / np.outer(std, std)
    # What is left is the error of the random features; members that go up and down together
    # would miss by .8.
    assert np.sqrt(np.square(error).mean()) < 0.08


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_features_have_the_kernels_inner_products(kernel):
    features = _features(kernel, X, np.random.RandomState(0))
    found = features(X) @ features(X).T
    size = kernel.diag(X).max()
    assert_allclose(found, kernel(X), atol=0.25 * size)
    assert np.sqrt(np.square(found - kernel(X)).mean()) < 0.07 * size


def test_a_student_learns_the_parts():
    teacher = as_teacher(gp(SMOOTH + WhiteKernel(0.1)))
    student = HydraPlusRegressor(teacher, max_epochs=60, random_state=0).fit(X, NUMBERS)
    inside = np.abs(NEW).max(axis=1) < 2.5
    of_teacher = student.teacher_.predict_uncertainty(NEW)
    parts = skdistill.predict_uncertainty(student, NEW)
    assert_allclose(np.median(parts.aleatoric[inside] / of_teacher.aleatoric[inside]), 1, atol=0.5)
    assert np.corrcoef(np.log(parts.epistemic), np.log(of_teacher.epistemic))[0, 1] > 0.5


@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.1)])
def test_classes_by_laplace(kernel):
    model = GaussianProcessClassifier(kernel, optimizer=None)
    teacher = as_teacher(model).fit(X, LABELS)
    members = teacher.predict_members(NEW)
    assert members.shape == (40, 20, 2)
    assert_allclose(members.mean(axis=1), teacher.estimator_.predict_proba(NEW), atol=1e-4)
    logits = np.log(members[..., 1] / members[..., 0])
    base = teacher.estimator_.base_estimator_
    if hasattr(base, "latent_mean_and_variance"):  # from scikit-learn 1.7
        _, variance = base.latent_mean_and_variance(NEW)
        assert_allclose(logits.var(axis=1), variance, rtol=1e-6)


def test_three_classes_one_against_the_rest():
    labels = np.digitize(X[:, 0], [-0.7, 0.7])
    teacher = as_teacher(GaussianProcessClassifier(SMOOTH, optimizer=None)).fit(X, labels)
    members = teacher.predict_members(NEW)
    assert members.shape == (40, 20, 3)
    assert_allclose(members.mean(axis=1), teacher.estimator_.predict_proba(NEW), atol=1e-4)
    assert (teacher.predict_uncertainty(NEW).epistemic > 0).all()
