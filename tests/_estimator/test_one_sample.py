# SPDX-License-Identifier: BSD-3-Clause
"""One sample that NumPy predicts, against the samples that torch predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._estimator import one_sample
from skdistill._estimator.calibration import Calibration
from skdistill.settings import Runtime

SETTINGS = {"max_epochs": 3, "random_state": 0}
REGRESSOR = BayesianEnsembleRegressor(3, **SETTINGS)
CLASSIFIER = BayesianEnsembleClassifier(3, **SETTINGS)
MODELS = {
    "ensemble": REGRESSOR,
    "hydra": HydraPlusRegressor(REGRESSOR, **SETTINGS),
    "gped": GPEDDistiller(REGRESSOR, **SETTINGS),
    "booster": BDistilBooster(REGRESSOR, n_rounds=2, random_state=0),
    **{
        family: DistributionDistiller(REGRESSOR, family=family, **SETTINGS)
        for family in ("gaussian", "normal_inverse_gamma", "normal_inverse_wishart")
    },
    "ensemble, classes": CLASSIFIER,
    "hydra, classes": HydraPlusClassifier(CLASSIFIER, **SETTINGS),
    "gped, classes": GPEDDistiller(CLASSIFIER, **SETTINGS),
    **{
        f"{family}, classes": DistributionDistiller(CLASSIFIER, family=family, **SETTINGS)
        for family in ("dirichlet", "logit_normal")
    },
}
METHODS = ("predict", "predict_proba", "predict_uncertainty")


def table(dtype=np.float64, n: int = 250):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(dtype)
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n), (X[:, 0] > 0) + (X[:, 1] > 0.5)


def fitted(name: str, dtype=np.float64):
    X, numbers, classes = table(dtype)
    return MODELS[name].fit(X, classes if name.endswith("classes") else numbers), X


def arrays(model, X) -> list[np.ndarray]:
    """All that a model predicts for samples."""
    found: list[np.ndarray] = []
    for method in METHODS:
        if hasattr(model, method):
            answer = getattr(model, method)(X)
            parts = [answer] if isinstance(answer, np.ndarray) else answer
            found += [part for part in parts if part is not None]
    return found


def programs(model) -> dict:
    return one_sample._PROGRAMS[model.module_].by_name


@pytest.mark.parametrize("name", MODELS)
def test_numpy_and_torch_agree(name):
    model, X = fitted(name)
    together = arrays(model, X)
    far = np.vstack([X[:20], 30 * X[:5]])  # numbers that are compressed
    for i in range(20):
        for one, all_of_them in zip(arrays(model, X[i : i + 1]), together, strict=True):
            np.testing.assert_allclose(one[0], all_of_them[i], rtol=2e-3, atol=2e-5)
            assert one.dtype == all_of_them.dtype
    for i in range(20, 25):
        both = zip(arrays(model, far[i : i + 1]), arrays(model, far), strict=True)
        for one, all_of_them in both:
            np.testing.assert_allclose(one[0], all_of_them[i], rtol=2e-3, atol=2e-5)
    written = programs(model)
    assert all(all(of_kind) for of_kind in written.values())


def test_numbers_are_the_same_to_the_rounding_of_float64():
    X, y, _ = table()
    model = HydraPlusRegressor(REGRESSOR, runtime=Runtime(dtype="float64"), **SETTINGS).fit(X, y)
    together = arrays(model, X[:30])
    for i in range(30):
        for one, all_of_them in zip(arrays(model, X[i : i + 1]), together, strict=True):
            np.testing.assert_allclose(one[0], all_of_them[i], rtol=1e-10, atol=1e-13)
    assert all(all(of_kind) for of_kind in programs(model).values())


def test_samples_of_other_conditions_get_a_program_of_their_own():
    model, X = fitted("hydra")
    model.predict(X[:1])
    model.predict(30 * X[:1])  # compressed
    last, first = programs(model)["mean"]
    for _ in range(3):
        model.predict(X[1:2])
        assert programs(model)["mean"] == [first, last]  # that which held is tried first
        model.predict(30 * X[1:2])
        assert programs(model)["mean"] == [last, first]


def test_intervals_have_a_program_for_each_coverage_up_to_some():
    model, X = fitted("hydra")
    for coverage in np.linspace(0.01, 0.99, 40):
        one, two = (model.predict_interval(X[:n], coverage) for n in (1, 2))
        np.testing.assert_allclose(one[0], two[0], rtol=1e-4)
    names = programs(model)
    assert len(names) == one_sample._MOST_NAMES
    assert all(all(of_kind) for of_kind in names.values())


def test_weights_and_calibration_that_change_are_seen():
    model, X = fitted("hydra")
    before = model.predict_uncertainty(X[:1])
    with torch.no_grad():
        for weight in model.module_.network.parameters():
            weight.mul_(0.5)
    np.testing.assert_allclose(model.predict(X[:1])[0], model.predict(X[:2])[0], rtol=1e-4)
    assert model.predict_uncertainty(X[:1]).total != before.total
    model.module_.calibration = Calibration(2.0, 1.0, 3.0)
    one, two = model.predict_uncertainty(X[:1]), model.predict_uncertainty(X[:2])
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-4)


def test_what_is_missing_or_overflows_is_left_to_torch():
    model, X = fitted("hydra")
    missing = np.where(np.arange(4) == 1, np.nan, X[:1])
    one, two = (model.predict_uncertainty(np.repeat(missing, n, axis=0)) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-4)
    with pytest.raises(ValueError, match="X must be within"):
        model.predict(np.where(np.arange(4) == 1, 1e300, X[:1]))
    assert "mean" not in programs(model) or programs(model)["mean"] is not None


class Own(nn.Module):
    """A user's network, which may do anything."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.layer = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.layer(x)


def test_modules_of_users_are_left_to_torch():
    X, y, _ = table()
    model = BayesianEnsembleRegressor(2, module=Own, **SETTINGS).fit(X, y)
    np.testing.assert_allclose(model.predict(X[:1])[0], model.predict(X[:2])[0], rtol=1e-5)
    assert programs(model) == {"mean": None}
