# SPDX-License-Identifier: BSD-3-Clause
"""Small fits by seeds, with and without an outlier among the samples: none fails, all are finite.

``SKDISTILL_FUZZ_SEEDS`` says how many seeds to try for each family and loss.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor, DistributionDistiller
from skdistill.families import (
    DirichletFamily,
    GaussianFamily,
    LogitNormalFamily,
    known_families,
)

N_SEEDS = int(os.environ.get("SKDISTILL_FUZZ_SEEDS", "2"))

STUDENTS = {
    "regressor": (*known_families("regressor"), GaussianFamily(covariance="full")),
    "classifier": (
        *known_families("classifier"),
        *(DirichletFamily(loss) for loss in ("reverse_kl_reference", "nll")),
        LogitNormalFamily(covariance=1),
    ),
}


def lesson(kind, seed, has_outlier):
    """Forty samples, their labels, and what a small ensemble that was fitted on them says."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(40, draw.integers(3, 6)))
    y = X @ draw.normal(size=X.shape[1]) + 0.3 * draw.normal(size=40)
    if has_outlier:
        X[draw.integers(40)] *= 10 ** draw.uniform(1, 3)
    ensemble = BayesianEnsembleRegressor
    if kind == "classifier":
        ensemble, y = BayesianEnsembleClassifier, np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    teacher = ensemble(
        n_members=5, max_epochs=20, module__hidden_units=(16,), random_state=seed
    ).fit(X, y)
    return X, y, teacher.predict_members(X)


@pytest.mark.slow
@pytest.mark.parametrize("has_outlier", [False, True], ids=["plain", "outlier"])
@pytest.mark.parametrize("kind", sorted(STUDENTS))
def test_no_small_fit_fails(kind, has_outlier, tally):
    failed = []
    for seed in range(1, N_SEEDS + 1):
        X, y, members = lesson(kind, seed, has_outlier)
        for family in STUDENTS[kind]:
            model = DistributionDistiller(kind, max_epochs=40, random_state=seed, family=family)
            try:
                model.fit(X, y, member_predictions=members)
            except ValueError as error:
                failed.append((seed, family, str(error)))
                continue
            predicted = [part for part in model.predict_uncertainty(X) if part is not None]
            predicted.append(model.predict_proba(X) if kind == "classifier" else model.predict(X))
            if not all(np.isfinite(part).all() for part in predicted):
                failed.append((seed, family, "predictions are not finite"))
    tally("small fits by seeds", N_SEEDS * len(STUDENTS[kind]))
    assert not failed, f"{len(failed)} failed, the first ones: {failed[:5]}"
