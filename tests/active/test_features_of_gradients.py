# SPDX-License-Identifier: BSD-3-Clause
"""Sketched gradients are those that autograd finds, projected."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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


def test_features_are_the_same_in_chunks_and_through_pipelines():
    model = make_pipeline(StandardScaler(), HydraPlusRegressor(TEACHER, **SMALL)).fit(X, NUMBERS)
    many = np.tile(X, (40, 1))
    whole = GradientSketch(model, 16, 3)(many)
    inside = GradientSketch(FrozenEstimator(model[-1]), 16, 3)(model[0].transform(many[:60]))
    np.testing.assert_allclose(whole[:60], inside, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole[-60:], inside, rtol=1e-4, atol=1e-5)
    assert not np.allclose(inside, GradientSketch(model, 16, 4)(X))
