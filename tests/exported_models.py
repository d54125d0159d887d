# SPDX-License-Identifier: BSD-3-Clause
"""Small models of every kind, what they predict, and what their graphs give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.expectations import Expectation
from skdistill.export._outputs import GraphOutputs
from skdistill.families import GaussianFamily, known_families
from skdistill.modules import ConvNet, Recurrent
from skdistill.samplers import DeepEnsemble, MCDropout
from skdistill.settings import Connection, Runtime, WeakLearnerSearch

SMALL = {
    "max_epochs": 5,
    "module__hidden_units": (8,),
    "runtime": Runtime(device="cpu"),
    "random_state": 0,
}
LEVELS = [0.001, 0.3, 0.5, 0.95]
# Of ordinary samples; a network's outputs are in proportion to the largest.
MAGNITUDES = [1, 1e-30, 1e-3, 1e3, 1e30]


def numbers(*distiller, **params) -> Any:
    """An ensemble for numbers, or what is distilled from it."""
    ensemble = BayesianEnsembleRegressor(3, **SMALL)
    if not distiller:
        return ensemble.set_params(**params)
    return distiller[0](
        ensemble.set_params(inference=DeepEnsemble(calibrate=None)), **{**SMALL, **params}
    )


def classes(*distiller, **params) -> Any:
    """An ensemble for classes, or what is distilled from it."""
    ensemble = BayesianEnsembleClassifier(3, **SMALL)
    if not distiller:
        return ensemble.set_params(**params)
    return distiller[0](
        ensemble.set_params(inference=DeepEnsemble(calibrate=None)), **{**SMALL, **params}
    )


def network(kind: type) -> BayesianEnsembleClassifier:
    """An ensemble of networks that are no MLPs."""
    return BayesianEnsembleClassifier(
        2, module=kind, max_epochs=2, runtime=Runtime(device="cpu"), random_state=0
    )


def spread(members: Any) -> torch.Tensor:
    """Of a member, the difference of its largest and its smallest value, and their mean."""
    values = members if isinstance(members, torch.Tensor) else members.variance
    return torch.stack((values.amax(-1) - values.amin(-1), values.mean(-1)), -1)


def is_likely(members: Any) -> torch.Tensor:
    """Whether a member's mean is above the mean of y."""
    return (members.mean[..., 0] > 0).to(members.mean)


OWN = Expectation(spread, name="total")
LIKELY = Expectation(is_likely, link="sigmoid")

MODELS = {
    "ensemble numbers": numbers,
    "ensemble several numbers": numbers,
    "ensemble dropout numbers": lambda: numbers(inference=MCDropout()),
    "ensemble classes": classes,
    "ensemble images classes": lambda: network(ConvNet),
    "ensemble series classes": lambda: network(Recurrent),
    "hydra several numbers": lambda: numbers(HydraPlusRegressor),
    "hydra classes": lambda: classes(HydraPlusClassifier),
    "hydra calibrated several numbers": lambda: numbers(
        HydraPlusRegressor, calibration_fraction=0.5
    ),
    "hydra calibrated classes": lambda: classes(HydraPlusClassifier, calibration_fraction=0.5),
    "distribution calibrated numbers": lambda: numbers(
        DistributionDistiller, calibration_fraction=0.5
    ),
    "distribution calibrated classes": lambda: classes(
        DistributionDistiller, calibration_fraction=0.5
    ),
    **{
        f"distribution {family} several numbers": lambda family=family: numbers(
            DistributionDistiller, family=family
        )
        for family in known_families("regressor")
    },
    "distribution full numbers": lambda: numbers(
        DistributionDistiller, family=GaussianFamily(covariance="full")
    ),
    **{
        f"distribution {family} classes": lambda family=family: classes(
            DistributionDistiller, family=family
        )
        for family in known_families("classifier")
    },
    "gped numbers": lambda: numbers(GPEDDistiller),
    "gped classes": lambda: classes(GPEDDistiller),
    "gped own numbers": lambda: numbers(
        GPEDDistiller, expectations=("mean", "aleatoric", "epistemic", OWN, LIKELY)
    ),
    "gped own classes": lambda: classes(
        GPEDDistiller, expectations=("predictive", "variance", OWN)
    ),
    "gped dirichlet classes": lambda: classes(GPEDDistiller, expectations="dirichlet"),
    "booster numbers": lambda: numbers(
        BDistilBooster, n_rounds=2, search=WeakLearnerSearch(max_search=2)
    ),
    "booster gru classes": lambda: classes(
        BDistilBooster,
        n_rounds=2,
        search=WeakLearnerSearch(max_search=2),
        connection=Connection("gru", connect="always"),
    ),
}


def data_of(name: str, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Samples and targets for the model of that name."""
    words = name.split()
    shape = {"images": (1, 6, 6), "series": (5, 2)}.get(words[1], (3,))
    X = np.random.default_rng(0).normal(size=(60, *shape))
    columns = X.reshape(len(X), -1)
    y = 4 + np.sin(columns[:, :2]) - columns[:, 1:2]
    if words[-1] == "classes":
        return X.astype(dtype), np.array(["no", "maybe", "yes"])[np.digitize(y[:, 0], [3.0, 5.0])]
    return X.astype(dtype), y if "several" in words else y[:, 0]


def run(path: Path, X: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs of a file, by name."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


def predicted(model: Any, X: np.ndarray, outputs: set[str]) -> dict[str, Any]:
    """What the estimator's methods say, for the outputs of a graph."""
    found = {}
    if "label" in outputs:
        found = {"label": model.predict(X), "probabilities": model.predict_proba(X)}
    else:
        found["mean"], found["std"] = model.predict(X, return_std=True)
    uncertainty = model.predict_uncertainty(X)
    parts = {name: getattr(uncertainty, name) for name in ("total", "aleatoric", "epistemic")}
    found |= {name: part for name, part in parts.items() if part is not None}
    if "interval" in outputs:
        found["interval"] = model.predict_interval(X)
    if "quantiles" in outputs:
        found["quantiles"] = model.predict_quantiles(X, LEVELS)
    for output in outputs:
        if output.startswith("expectation_"):
            name = output.removeprefix("expectation_")
            found[output] = model.predict_expectation(X, name)
    if hasattr(model, "predict_members"):
        found["members"] = model.predict_members(X)
    return found


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        if name == "label":
            np.testing.assert_array_equal(found[name], value)
            assert (found[name].dtype.kind in "UO") == (value.dtype.kind == "U")
            continue
        assert found[name].dtype == value.dtype
        eps = np.finfo(value.dtype).eps
        # The last digit of a probability near 1 is that much entropy, or share of it: the rest.
        # Three classes round up to eight times on the way: exp, sum, division, mean, logarithm.
        of_entropy = "total", "aleatoric", "epistemic", "expectation_share"
        atol = 8 * eps if name in of_entropy else eps / 100
        if "std" in expected:  # means and quantiles are sums, which may cancel
            atol = 1e-6 * expected["std"].max() if name in ("mean", "interval", "quantiles") else 0
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=atol, err_msg=name)


def outputs_for_graph(name: str, model: Any) -> dict[str, Any]:
    """Arguments that export all that a model has.

    Quantiles that are searched for take several times as long to export; one mixture has them.
    """
    if name.endswith("classes"):
        return {"outputs": "all"}
    if name == "ensemble numbers" or "interval" in GraphOutputs(model).names:
        return {"quantiles": LEVELS, "outputs": "all"}
    names = GraphOutputs(model, outputs="all").names
    return {"outputs": [name for name in names if name != "interval"]}
