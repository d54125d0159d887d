# SPDX-License-Identifier: BSD-3-Clause
"""Models inside scikit-learn's meta-estimators, and searches of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV

import skdistill
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill._estimator.unwrapping import has_members, is_search
from skdistill.teachers import as_teacher

ENSEMBLE = BayesianEnsembleRegressor(3, max_epochs=2, module__hidden_units=(4,), random_state=0)


class OtherSearch(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A search as Optuna's is: no subclass of scikit-learn's, but with the same attributes."""

    def __init__(self, estimator, param_distributions):
        self.estimator = estimator
        self.param_distributions = param_distributions

    def fit(self, X, y):
        self.best_estimator_ = clone(self.estimator).fit(X, y)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return self.best_estimator_.predict(X)


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(size=(30, 2))
    return X, X[:, 0]


def test_a_search_of_another_library_keeps_its_members_as_teacher(data):
    search = OtherSearch(ENSEMBLE, {"lr": [0.01]})
    assert has_members(search)
    assert as_teacher(search) is search
    fitted = search.fit(*data)
    members = skdistill.predict_members(fitted, data[0])
    assert members.shape == (30, 3, 1, 2)
    student = HydraPlusRegressor(
        FrozenEstimator(fitted), max_epochs=1, module__hidden_units=(4,), random_state=0
    ).fit(*data)
    assert student.predict_members(data[0]).shape == members.shape


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GridSearchCV(ENSEMBLE, {}), True),
        (OtherSearch(ENSEMBLE, {}), True),
        (TunedThresholdClassifierCV(ENSEMBLE), False),
        (LogisticRegressionCV(), False),
        (ENSEMBLE, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_a_search(model, expected):
    assert is_search(model) is expected
