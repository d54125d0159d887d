# SPDX-License-Identifier: BSD-3-Clause
"""Sketched gradients are those that autograd finds, projected."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.active._select import GradientSketch
from skdistill.modules import GaussianStack, PiecewiseLinear, StackedLinear
from skdistill.settings import Heads

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"max_epochs": 2, "module__hidden_units": (5, 5), "random_state": 0}
rng = np.random.RandomState(0)
X = rng.normal(size=(60, 3))
NUMBERS, CLASSES = X[:, 0] - X[:, 1] ** 2, (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
TEACHER = BayesianEnsembleRegressor(2, **SMALL)


def students():
    residual = {**SMALL, "module__residual": True}
    two_layers = {**SMALL, "heads": Heads(3, head_layers=2)}
    embedded = {**SMALL, "module__embeddings": PiecewiseLinear(4)}
    yield "distribution", DistributionDistiller(TEACHER, **residual), NUMBERS
    yield "hydra", HydraPlusRegressor(TEACHER, **SMALL), NUMBERS
    yield "long heads", HydraPlusRegressor(TEACHER, **two_layers), NUMBERS
    yield "bins", DistributionDistiller(TEACHER, **embedded), NUMBERS
    yield "gped", GPEDDistiller(TEACHER, **SMALL), NUMBERS
    yield "targets", HydraPlusRegressor(TEACHER, **SMALL), np.c_[NUMBERS, X[:, 2]]
    classifier = BayesianEnsembleClassifier(2, **SMALL)
    yield "classes", HydraPlusClassifier(classifier, **SMALL), CLASSES
    yield "ensemble", BayesianEnsembleRegressor(3, **SMALL), NUMBERS


def layers_of(model):
    """Fully connected layers, in the order in which they are applied."""
    return [part for part in model.module_.network.modules() if isinstance(part, StackedLinear)]


def gradients(model, x):
    """For each prediction and layer, gradients (m, out, in) of the weights, (m, out) of biases."""
    module = model.module_
    rows = torch.tensor(x[None], dtype=next(module.parameters()).dtype)
    outputs = module.outputs(rows)
    is_numeric = isinstance(module, GaussianStack)
    means = module.read_mean(outputs) if is_numeric else module.predicted(outputs).mean
    for mean in means[0]:
        for layer in layers_of(model):
            of_both = torch.autograd.grad(
                mean, [layer.weight, layer.bias], retain_graph=True, materialize_grads=True
            )
            yield of_both[0].flatten(0, -3).mT, of_both[1].flatten(0, -3).squeeze(1)


@pytest.mark.parametrize(("model", "y"), [pytest.param(m, y, id=i) for i, m, y in students()])
def test_features_are_projected_gradients(model, y):
    model.fit(X, y)
    sketch = GradientSketch(model, 7, seed=0)
    features = sketch(X[:4])
    for row, x in zip(features, X[:4], strict=True):
        expected = np.zeros(7)
        found = list(gradients(model, x))
        assert len(found) == len(sketch.projections)
        for (of_weight, of_bias), (P, Q) in zip(found, sketch.projections, strict=True):
            # In the neural tangent parametrisation a weight is divided by sqrt(in).
            scaled = torch.cat([of_weight / of_weight.shape[-1] ** 0.5, of_bias[..., None]], -1)
            Q = Q.expand(len(P), *Q.shape[1:]).to(scaled.dtype)
            expected += torch.einsum("mok,mio,mik->k", P.to(scaled), scaled.mT, Q).numpy() / 7**0.5
        np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-5)


def test_inner_products_estimate_those_of_gradients():
    model = HydraPlusRegressor(TEACHER, **SMALL).fit(X, NUMBERS)
    few = X[:10]
    features = GradientSketch(model, 20_000, 0)(few).astype(float)
    full = [
        torch.cat([
            torch.cat([w / w.shape[-1] ** 0.5, b[..., None]], -1).flatten()
            for w, b in gradients(model, x)
        ])
        for x in few
    ]  # fmt: skip
    full = torch.stack(full).double().numpy()
    norms = np.linalg.norm(full, axis=1)
    error = (features @ features.T - full @ full.T) / np.outer(norms, norms)
    assert np.abs(error).max() < 0.1  # five standard deviations are below it
    assert np.corrcoef((features @ features.T).ravel(), (full @ full.T).ravel())[0, 1] > 0.99


def test_other_modules_have_the_features_of_their_linear_layers():
    class Sine(nn.Module):
        def forward(self, x):
            return x.sin()

    def build(in_features, out_features):
        layers = nn.Linear(in_features, 4), Sine(), nn.Linear(4, out_features)
        return nn.Sequential(*layers)

    model = DistributionDistiller(
        BayesianEnsembleRegressor(2, max_epochs=2, random_state=0),
        module=build,
        max_epochs=2,
        random_state=0,
    ).fit(X, NUMBERS)
    sketch = GradientSketch(model, 6, seed=0)
    features = sketch(X)
    assert [(*P.shape, *Q.shape) for P, Q in sketch.projections] == [
        (1, 4, 6, 1, model.n_features_in_ + 1, 6),
        (1, P_out(model), 6, 1, 5, 6),
    ]
    assert np.linalg.matrix_rank(features) == 6


def P_out(model):
    return model.module_.network(torch.zeros(1, 1, 3, dtype=torch.float64)).shape[-1]


def test_features_are_the_same_in_chunks_and_through_pipelines():
    model = make_pipeline(StandardScaler(), HydraPlusRegressor(TEACHER, **SMALL)).fit(X, NUMBERS)
    many = np.tile(X, (40, 1))
    whole = GradientSketch(model, 16, 3)(many)
    inside = GradientSketch(FrozenEstimator(model[-1]), 16, 3)(model[0].transform(many[:60]))
    np.testing.assert_allclose(whole[:60], inside, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole[-60:], inside, rtol=1e-4, atol=1e-5)
    assert not np.allclose(inside, GradientSketch(model, 16, 4)(X))


def test_errors_name_what_is_wrong():
    model = HydraPlusRegressor(TEACHER, **SMALL).fit(X, NUMBERS)
    with pytest.raises(TypeError, match="Ridge has no module_"):
        GradientSketch(Ridge().fit(X, NUMBERS), 8, 0)(X)
    with pytest.raises(ValueError, match="X has 2 features"):
        GradientSketch(model, 8, 0)(X[:, :2])

    class Opaque(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.linear = nn.Linear(in_features, out_features)

        def forward(self, x):
            return self.linear(x)

    settings = {"module": Opaque, "max_epochs": 1, "random_state": 0}
    ensemble = BayesianEnsembleRegressor(2, **settings).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="model must have a network with fully connected layers"):
        GradientSketch(ensemble, 8, 0)(X)
