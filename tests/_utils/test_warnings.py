# SPDX-License-Identifier: BSD-3-Clause
"""Warnings name the line that called the library, through pipelines, searches and helpers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleClassifier, BDistilBooster, DistributionDistiller
from skdistill.metrics import uncertainty_ndcg

X, y = make_classification(60, random_state=0)


def alone():
    """A student of one member."""
    return DistributionDistiller(
        BayesianEnsembleClassifier(1, max_epochs=2, module__hidden_units=(4,)),
        max_epochs=2,
        module__hidden_units=(4,),
        random_state=0,
    )


def booster():
    return BDistilBooster(
        BayesianEnsembleClassifier(3, max_epochs=2, module__hidden_units=(4,)),
        n_rounds=2,
        max_epochs=2,
        random_state=0,
    )


CALLS = {
    "one member": ("has one member", lambda: alone().fit(X, y)),
    "in a pipeline": (
        "has one member",
        lambda: make_pipeline(StandardScaler(), alone()).fit(X, y),
    ),
    "in a search": (
        "has one member",
        lambda: GridSearchCV(alone(), {"lr": [0.1]}, cv=2).fit(X, y),
    ),
    "too few operations": (
        "max_flops=1 is less than",
        lambda: list(booster().fit(X, y).anytime(X, "predict_proba", max_flops=1)),
    ),
    "no score": ("is undefined", lambda: uncertainty_ndcg(np.zeros(100), np.ones(100))),
}


@pytest.mark.parametrize("case", CALLS)
def test_warnings_name_the_line_of_the_user(case):
    message, call = CALLS[case]
    with pytest.warns(UserWarning, match=message) as caught:
        call()
    assert {warning.filename for warning in caught} == {__file__}
