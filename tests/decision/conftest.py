# SPDX-License-Identifier: BSD-3-Clause
"""Models whose predictions are known functions of the features."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdistill.distributions import Uncertainty


class KnownRegressor(RegressorMixin, BaseEstimator):
    """Predicts 0, with the variance in the last column; the first is free."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))

    def predict_uncertainty(self, X):
        total = np.asarray(X)[:, -1]
        return Uncertainty(total, None, None, measure="variance")


class KnownClassifier(ClassifierMixin, BaseEstimator):
    """Predicts the class whose number the first column has, with the entropy in the last."""

    def __init__(self, classes=(0, 1, 2)):
        self.classes = classes

    @property
    def classes_(self):
        return np.array(self.classes)

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.classes_[np.asarray(X)[:, 0].astype(int)]

    def predict_uncertainty(self, X):
        total = np.asarray(X)[:, -1]
        return Uncertainty(total, total / 4, 3 * total / 4, measure="entropy")


@pytest.fixture
def regressor():
    return FrozenEstimator(KnownRegressor())


@pytest.fixture
def classifier():
    return FrozenEstimator(KnownClassifier())


@pytest.fixture
def contract():
    """Function that runs scikit-learn's checks of an estimator, less those that are exempt."""

    def run(model, exempt=()):
        for estimator, check in estimator_checks_generator(model):
            name = check.func.__name__
            if name in exempt:
                continue
            if name in ("check_classifiers_train", "check_regressors_train"):  # how well it learns
                estimator = clone(estimator).set_params(estimator__max_epochs=20)
            check(estimator)

    return run
