# SPDX-License-Identifier: BSD-3-Clause
"""A table with gaps and words, and a student in a pipeline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdistill import BayesianEnsembleClassifier, DistributionDistiller

SMALL = {"max_epochs": 3, "module__hidden_units": (4,), "random_state": 0}


@pytest.fixture(scope="session")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40)})
    y = np.where(X["a"] > X["b"], "yes", "no")
    X["word"] = rng.choice(["x", "y", "z"], size=40)
    X.loc[::7, "a"] = np.nan
    return X, y


@pytest.fixture(scope="session")
def pipeline(table):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["a", "b"]), (OneHotEncoder(handle_unknown="ignore"), ["word"])
    )
    student = DistributionDistiller(BayesianEnsembleClassifier(3, **SMALL), **SMALL)
    return make_pipeline(columns, student).fit(*table)
