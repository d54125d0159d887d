# SPDX-License-Identifier: BSD-3-Clause
"""Fits on a GPU: as good as those on the processor, in files that need no GPU, and repeatable."""

from __future__ import annotations

import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.families import DirichletFamily, GaussianFamily, LogitNormalFamily, known_families
from skdistill.samplers import SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Runtime

pytestmark = pytest.mark.gpu

rng = np.random.RandomState(0)
X = rng.normal(size=(400, 4))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
Y = {
    "regressor": 100 + 5 * SCORE + rng.normal(size=400),
    "classifier": np.digitize(SCORE + 0.3 * rng.normal(size=400), [-0.5, 0.5]),
}
TEACHER = {
    "regressor": BayesianEnsembleRegressor(4, max_epochs=30, random_state=0),
    "classifier": BayesianEnsembleClassifier(4, max_epochs=30, random_state=0),
}
SMALL = {"max_epochs": 60, "random_state": 0}


def estimators():
    for kind, ensemble in TEACHER.items():
        yield f"{kind}", ensemble
        yield f"{kind}-sgld", ensemble.__class__(2, inference=SGLD(), **SMALL)
        yield f"{kind}-dropout", ensemble.__class__(2, inference=MCDropout(), **SMALL)
        for family in known_families(kind):
            student = DistributionDistiller(ensemble, family=family, **SMALL)
            yield f"{kind}-{family}", student
        yield f"{kind}-gped", GPEDDistiller(ensemble.__class__(2), **SMALL)
        yield f"{kind}-bdistil", BDistilBooster(ensemble, n_rounds=2, random_state=0)
    full = GaussianFamily(covariance="full")
    yield "gaussian-full", DistributionDistiller(TEACHER["regressor"], family=full, **SMALL)
    classes = TEACHER["classifier"]
    for loss in ("reverse_kl", "nll"):
        family = DirichletFamily(loss=loss)
        yield f"dirichlet-{loss}", DistributionDistiller(classes, family=family, **SMALL)
    low_rank = LogitNormalFamily(covariance=2)
    yield "logit_normal-2", DistributionDistiller(classes, family=low_rank, **SMALL)
    for heads in (None, 3):
        yield f"hydra-{heads}", HydraPlusRegressor(TEACHER["regressor"], heads=heads, **SMALL)
        yield f"hydra-classes-{heads}", HydraPlusClassifier(classes, heads=heads, **SMALL)


CASES = [pytest.param(estimator, id=name) for name, estimator in estimators()]


def fitted(estimator, device, **runtime):
    """The estimator, and its teacher, fitted on a device."""
    model = clone(estimator)
    runtime = Runtime(device=device, **runtime)
    names = [name for name in ("runtime", "teacher__runtime") if name in model.get_params()]
    model.set_params(**dict.fromkeys(names, runtime))
    kind = "classifier" if is_classifier(model) else "regressor"
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be captured")
        return model.fit(X, Y[kind])


def answers(model):
    """What a model says of the samples: its prediction, and the parts of the uncertainty."""
    parts = skdistill.predict_uncertainty(model, X)
    mean = model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)
    known = [part for part in (parts.total, parts.aleatoric, parts.epistemic) if part is not None]
    return np.column_stack([mean, *known])


@pytest.fixture(scope="module")
def on_gpu():
    models = {}

    def fit(estimator):
        if id(estimator) not in models:
            models[id(estimator)] = fitted(estimator, "cuda")
        return models[id(estimator)]

    return fit


@pytest.mark.filterwarnings("ignore:The student is worse", "ignore:.*R-hat")
@pytest.mark.parametrize("estimator", CASES)
def test_it_learns_what_the_processor_does(estimator, on_gpu):
    found, expected = answers(on_gpu(estimator)), answers(fitted(estimator, "cpu"))
    assert np.isfinite(found).all()
    assert np.corrcoef(found[:, 0], expected[:, 0])[0, 1] > 0.9
    # The two devices draw other noise, and the parts of the uncertainty have another level with it.
    levels = np.median(found, axis=0) / np.median(expected, axis=0)
    assert_allclose(np.log2(levels), 0, atol=1)


@pytest.mark.parametrize("estimator", CASES)
def test_the_same_seed_gives_the_same_model(estimator, on_gpu):
    assert_allclose(answers(fitted(estimator, "cuda")), answers(on_gpu(estimator)), rtol=1e-4)


@pytest.mark.parametrize("estimator", CASES)
def test_files_are_read_without_a_gpu(estimator, on_gpu, tmp_path, monkeypatch):
    model = on_gpu(estimator)
    expected = answers(model)
    skdistill.save(model, tmp_path / "model.skd")
    pickled = pickle.dumps(model)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for loaded in (skdistill.load(tmp_path / "model.skd"), pickle.load(io.BytesIO(pickled))):
        devices = {p.device.type for p in getattr(loaded, "module_", torch.nn.ReLU()).parameters()}
        assert devices <= {"cpu"}
        assert_allclose(answers(loaded), expected, rtol=1e-4, atol=1e-6)


def test_early_stopping_and_refits():
    ensemble = BayesianEnsembleRegressor(
        3, max_epochs=40, inference=DeepEnsemble(early_stopping=True), random_state=0
    )
    model = fitted(ensemble, "cuda")
    assert model.n_epochs_ <= 40
    again = model.fit(X, Y["regressor"])
    assert np.isfinite(again.predict(X)).all()


def test_float32_agrees_with_float64():
    narrow, wide = (
        fitted(TEACHER["regressor"], "cuda", dtype=dtype) for dtype in ("float32", "float64")
    )
    assert_allclose(narrow.predict(X), wide.predict(X), rtol=0.02)
