# SPDX-License-Identifier: BSD-3-Clause
"""Scores away from the training samples, against metrics of what is predicted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import make_regression

from skdistill import BayesianEnsembleRegressor
from skdistill.distributions import Uncertainty
from skdistill.metrics import aurc, mixture_nll, ood_auroc
from skdistill.model_selection import unseen_scores

# Scores -------------------------------------------------------------------------------------------


class Known(RegressorMixin, BaseEstimator):
    """Predicts the first feature, with uncertainties that are the others."""

    def __init__(self, has_parts=True):
        self.has_parts = has_parts

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return X[:, 0]

    def predict_uncertainty(self, X):
        aleatoric, epistemic = X[:, 1], X[:, 2]
        parts = (aleatoric, epistemic) if self.has_parts else (None, None)
        return Uncertainty(aleatoric + epistemic, *parts, measure="variance")


class KnownClasses(ClassifierMixin, BaseEstimator):
    """Predicts the first feature as the probability of "b"."""

    def fit(self, X, y):
        self.classes_ = np.array(["a", "b"])
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_uncertainty(self, X):
        return Uncertainty(X[:, 1] + X[:, 2], X[:, 1], X[:, 2], measure="entropy")


HELD_OUT = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
UNSEEN = np.array([[0.0, 1.0, 3.0], [5.0, 0.0, 1.5]])


def test_scores_of_numbers_are_those_by_hand():
    y, y_unseen = np.array([0.0, 2.0, 2.0]), np.array([2.0, 4.0])
    found = unseen_scores(Known().fit(HELD_OUT, y), HELD_OUT, y, UNSEEN, y_unseen)
    # Squared errors 0, 1, 0 and 4, 1; variances 1, 1, 4 and 4, 1.5; 1.64 deviations cover 90 %.
    assert found["held_out_rmse"] == pytest.approx((1 / 3) ** 0.5)
    assert found["unseen_rmse"] == pytest.approx(2.5**0.5)
    densities = norm(UNSEEN[:, 0], [2, 1.5**0.5]).logpdf(y_unseen)
    assert found["unseen_nll"] == pytest.approx(-densities.mean())
    assert (found["held_out_coverage"], found["unseen_coverage"]) == (1, 1)
    # Epistemic parts 0, 1, 2 and 3, 1.5: five of six pairs are in order, and the medians 1, 2.25.
    assert found["auroc_epistemic"] == pytest.approx(5 / 6)
    assert found["epistemic_ratio"] == 2.25
    # Totals 1, 1, 4 and 4, 1.5: 2 + 2 pairs of six are in order, and one tie.
    assert found["auroc_total"] == pytest.approx(4.5 / 6)
    weights = [1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2]
    risk = aurc([0, 1, 0, 4, 1], [1, 1, 4, 4, 1.5], sample_weight=weights)
    assert found["selective_risk"] == pytest.approx(risk)


def test_scores_of_classes_are_those_by_hand():
    held_out = np.array([[0.2, 0.1, 0.1], [0.9, 0.1, 0.2]])
    unseen = np.array([[0.4, 0.1, 0.2], [0.3, 0.1, 0.3], [0.5, 0.3, 0.3]])
    model = KnownClasses().fit(held_out, None)
    found = unseen_scores(model, held_out, ["a", "a"], unseen, ["b", "c", "a"])
    assert found["held_out_log_loss"] == pytest.approx(-np.log([0.8, 0.1]).mean())
    assert found["unseen_log_loss"] == pytest.approx(-np.log([0.4, 0.5]).mean())  # of known classes
    assert found["held_out_accuracy"] == 0.5
    assert found["unseen_accuracy"] == pytest.approx(1 / 3)
    assert found["held_out_top_probability"] == pytest.approx(0.85)
    assert found["unseen_top_probability"] == pytest.approx(1.8 / 3)
    assert found["auroc_epistemic"] == pytest.approx(5.5 / 6)
    assert found["epistemic_ratio"] == pytest.approx(2)
    weights = [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3]
    risk = aurc([0, 1, 1, 1, 0], [0.2, 0.3, 0.3, 0.4, 0.6], sample_weight=weights)
    assert found["selective_risk"] == pytest.approx(risk)
    only_new = unseen_scores(model, held_out, ["a", "a"], unseen, ["c", "c", "c"])
    assert np.isnan(only_new["unseen_log_loss"])
    assert only_new["unseen_accuracy"] == 0


@pytest.fixture(scope="module")
def data():
    return make_regression(60, 3, noise=5.0, random_state=0)


@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_the_metrics(data):
    X, y = data
    settings = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
    # Members are all there is.
    model = BayesianEnsembleRegressor(3, distance_aware=False, **settings).fit(X[:30], y[:30])
    found = unseen_scores(model, X[30:40], y[30:40], X[40:], y[40:])
    parts = [model.predict_uncertainty(rows) for rows in (X[30:40], X[40:])]
    assert found["auroc_epistemic"] == ood_auroc(*(part.epistemic for part in parts))
    nll = mixture_nll(y[40:], model.predict_members(X[40:]))
    assert found["unseen_nll"] == pytest.approx(nll, rel=1e-5)
