# SPDX-License-Identifier: BSD-3-Clause
"""Fitted regressors as models of BoTorch: its posterior is our members, and it finds optima."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import ensemble, student

from skdistill import BayesianEnsembleClassifier, DistributionDistiller

pytest.importorskip("botorch")

from botorch.acquisition import qUpperConfidenceBound
from botorch.optim import optimize_acqf

from skdistill.integrations.botorch import MembersModel
from skdistill.samplers import DeepEnsemble

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def rows_of(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def several():
    """Models that have members, of two targets on different scales and columns that are too."""
    X = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 1e3, 1.0] + [0.0, 5.0, 0.0]
    y = np.column_stack([X[:, 0], 100 + X[:, 1]])
    teacher = FrozenEstimator(
        ensemble(n_members=4, inference=DeepEnsemble(bootstrap=True)).fit(X, y)
    )
    return X, [teacher.estimator, student(teacher).fit(X, y)]


@pytest.mark.parametrize("which", range(2), ids=["ensemble", "student"])
def test_the_posterior_is_that_of_the_members(which, several):
    X, model = several[0], several[1][which]
    found = MembersModel(model)
    rows = torch.from_numpy(X[:10]).reshape(5, 2, 3)
    members = model.predict_members(X[:10])[..., 0]  # (samples, members, targets)
    posterior = found.posterior(rows)
    assert found.num_outputs == 2
    assert posterior.values.shape == (5, members.shape[1], 2, 2)
    expected = members.reshape(5, 2, -1, 2).swapaxes(1, 2)
    np.testing.assert_allclose(posterior.values, expected, rtol=1e-4, atol=1e-4)
    epistemic = model.predict_uncertainty(X[:10]).epistemic.reshape(5, 2, 2)
    n_members = members.shape[1]
    factor = n_members / (n_members - 1)
    np.testing.assert_allclose(posterior.variance, factor * epistemic, rtol=1e-2)
    second = found.posterior(rows, output_indices=[1])
    np.testing.assert_array_equal(second.mean, posterior.mean[..., 1:])


def test_acquisitions_have_gradients_of_the_networks(several):
    X, (model, *_) = several
    found = MembersModel(model)
    rows = torch.from_numpy(X[:3]).unsqueeze(1).requires_grad_()
    (gradient,) = torch.autograd.grad(found.posterior(rows).mean[..., 0].sum(), rows)
    step = torch.tensor([1e-5, 0.0, 0.0], dtype=torch.float64)
    ends = [found.posterior(rows.detach() + s * step).mean[:, 0, 0] for s in (1, -1)]
    np.testing.assert_allclose(gradient[:, 0, 0], (ends[0] - ends[1]) / 2e-5, rtol=1e-4)
    assert not any(parameter.requires_grad for parameter in found.parameters())


@pytest.mark.parametrize("n", [20, 200])
def test_gradients_are_those_of_differences(n):
    """At samples, between them and far off: functions of members vanish, or are at an edge."""
    X = np.random.default_rng(0).normal(size=(n, 2)) + [[4.0, 0.0]] * (np.arange(n) % 2)[:, None]
    model = MembersModel(ensemble(n_members=4).fit(X, X[:, 0] + np.sin(X[:, 1])))
    off = np.random.default_rng(1).normal(scale=4, size=(20, 2))
    rows = torch.from_numpy(np.concatenate([X[:5], off])[:, None])
    found = torch.autograd.grad(model(rows.requires_grad_()).sum(), rows)[0]
    assert torch.isfinite(found).all()
    steps = 1e-5 * torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        ends = [model(rows + sign * step).sum((1, 2, 3)) for step in steps for sign in (1, -1)]
    expected = torch.stack([ends[0] - ends[1], ends[2] - ends[3]], dim=-1) / 2e-5
    torch.testing.assert_close(found[5:, 0], expected[5:], rtol=1e-6, atol=1e-6)


def test_a_batch_of_points_is_chosen_with_a_student():
    X = rows_of(30, 2).numpy()
    model = student(ensemble(inference=DeepEnsemble(bootstrap=True)), max_epochs=20).fit(
        X, X[:, 0] - X[:, 1]
    )
    acquisition = qUpperConfidenceBound(MembersModel(model), beta=1.0)
    torch.manual_seed(0)
    points, value = optimize_acqf(acquisition, BOUNDS, q=2, num_restarts=4, raw_samples=64)
    assert points.shape == (2, 2)
    with torch.no_grad():
        assert value >= acquisition(rows_of(50, 2, 2, seed=1)).max()


def test_a_search_or_frozen_estimator_around_a_model_will_do(several):
    X, (model, *_) = several
    y = model.predict(X)
    search = GridSearchCV(ensemble(max_epochs=1), {"lr": [0.01]}, cv=2).fit(X, y)
    rows = torch.from_numpy(X[:4])
    for outer, inner in ((FrozenEstimator(model), model), (search, search.best_estimator_)):
        found = MembersModel(outer, dtype=torch.float32).posterior(rows)
        assert found.dtype == torch.float64  # that of the samples
        expected = MembersModel(inner, torch.float32).posterior(rows)
        np.testing.assert_array_equal(found.values, expected.values)


def test_what_has_no_members_of_columns_as_given_is_refused(data):
    X, y = data
    piped = make_pipeline(StandardScaler(), ensemble(max_epochs=1)).fit(X, y)
    with pytest.raises(ValueError, match=r"StandardScaler in front\. normalize=True"):
        MembersModel(piped)
    transformed = TransformedTargetRegressor(ensemble(max_epochs=1)).fit(X, y)
    classifier = BayesianEnsembleClassifier(2, max_epochs=1).fit(X, y > y.mean())
    family = DistributionDistiller(
        ensemble(max_epochs=1), family="normal_inverse_gamma", max_epochs=1
    )
    for model in (transformed, classifier, family.fit(X, y)):
        with pytest.raises(TypeError, match=f"with predict_members.*{type(model).__name__}"):
            MembersModel(model)
    with pytest.raises(NotFittedError):
        MembersModel(ensemble())
    with pytest.raises(ValueError, match=r"shape \(\.\.\., n, 3\).*got \(4, 2\)"):
        MembersModel(ensemble(max_epochs=1).fit(X, y)).forward(rows_of(4, 2))
