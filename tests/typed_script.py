# SPDX-License-Identifier: BSD-3-Clause
"""A user's script, which `mypy --strict` accepts and which runs; see test_types.py."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_type

import numpy as np

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.distributions import Uncertainty
from skdistill.metrics import crps, expected_calibration_error, uncertainty_ndcg
from skdistill.model_selection import n_parameters
from skdistill.samplers import SGLD
from skdistill.teachers import FittedModels, as_teacher

Array = np.ndarray

X = np.random.default_rng(0).normal(size=(60, 3))
y = X.sum(axis=1)

teacher = BayesianEnsembleRegressor(n_members=2, max_epochs=2, random_state=0)
student = assert_type(
    HydraPlusRegressor(teacher, max_epochs=2, random_state=0).fit(X, y), HydraPlusRegressor
)
assert_type(student.predict(X), Array)
mean, std = assert_type(student.predict(X, return_std=True), tuple[Array, Array])
uncertainty = assert_type(student.predict_uncertainty(X), Uncertainty)
total, aleatoric, epistemic = uncertainty
assert_type(uncertainty.std(), Uncertainty)
assert_type(skdistill.predict_uncertainty(student, X), Uncertainty)
assert_type(student.predict_interval(X, coverage=0.9), Array)
assert_type(student.predict_quantiles(X, [0.1, 0.9]), Array)
members = assert_type(student.predict_members(X), Array)
assert_type(student.sample_y(X, n_samples=2), Array)
assert_type(student.score(X, y), float)
assert_type(student.n_features_in_, int)
assert_type(student.n_epochs_, int)
assert_type(n_parameters(student), int)
assert_type(crps(y, members), float)
assert_type(uncertainty_ndcg(total, epistemic, n_candidates=30), float)

chain = BayesianEnsembleClassifier(2, inference=SGLD(), max_epochs=4, random_state=0)
classifier = HydraPlusClassifier(chain, max_epochs=2, random_state=0).fit(X, y > 0)
probabilities = assert_type(classifier.predict_proba(X), Array)
assert_type(classifier.predict(X), Array)
assert_type(classifier.classes_, Array)
error = expected_calibration_error(y > 0, probabilities, labels=classifier.classes_)
assert_type(error, float)

distiller = DistributionDistiller(
    as_teacher(FittedModels([student, student], task="regression")), max_epochs=2
)
assert_type(distiller.set_params(random_state=0).fit(X, y), DistributionDistiller)
with TemporaryDirectory() as folder:
    skdistill.save(student, Path(folder) / "student.safetensors")
    loaded = skdistill.load(Path(folder) / "student.safetensors")
