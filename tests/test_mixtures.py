# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty through scikit-learn's ensembles: values by hand, and the members of all joined."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import assert_same, ensemble

from skdistill import BayesianEnsembleClassifier, predict_uncertainty
from skdistill.distributions import EmpiricalCategorical, EmpiricalGaussian, Uncertainty
from skdistill.teachers import as_teacher


def classifier(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleClassifier(**{**settings, **params})


@pytest.fixture(scope="module")
def flowers():
    X, y = load_iris(return_X_y=True)
    return X[::2], np.array(["rose", "iris", "aster"])[y[::2]]


class Known:
    """Predicts what it is given, whatever the sample."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def _rows(self, X, value):
        return np.tile(value, (len(X), 1)) if np.ndim(value) else np.full(len(X), value)

    def predict_uncertainty(self, X):
        parts = [None if part is None else self._rows(X, part) for part in self.parts]
        return Uncertainty(*parts, measure=self.measure)


class KnownRegressor(Known, RegressorMixin, BaseEstimator):
    measure = "variance"

    def __init__(self, mean, parts):
        self.mean, self.parts = mean, parts

    def predict(self, X):
        return self._rows(X, self.mean)


class KnownClassifier(Known, ClassifierMixin, BaseEstimator):
    measure = "entropy"

    def __init__(self, probabilities, parts):
        self.probabilities, self.parts = probabilities, parts

    def predict_proba(self, X):
        return self._rows(X, self.probabilities)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def voters(*estimators):
    return [(f"voter{i}", estimator) for i, estimator in enumerate(estimators)]


# --- by hand --------------------------------------------------------------------------------


def test_the_law_of_total_variance_by_hand():
    X, y = np.zeros((4, 1)), np.zeros(4)
    pair = voters(KnownRegressor(1.0, (0.7, 0.5, 0.2)), KnownRegressor(3.0, (1.4, 1.0, 0.4)))
    found = predict_uncertainty(VotingRegressor(pair, weights=[1, 3]).fit(X, y), X)
    # The mean is 2.5, so that the variance of means is 1/4 of 1.5^2 and 3/4 of 0.5^2.
    assert_same(found, np.tile([[0.875 + 1.1], [0.875], [0.35 + 0.75]], 4))
    assert found.measure == "variance"


def test_the_chain_rule_of_mutual_information_by_hand():
    X, y = np.zeros((2, 1)), np.array([0, 1])
    coin = KnownClassifier([0.5, 0.5], (np.log(2), 0.5, np.log(2) - 0.5))
    sure = KnownClassifier([1.0, 0.0], (0.0, 0.0, 0.0))
    voting = VotingClassifier(voters(coin, sure), voting="soft").fit(X, y)
    total, aleatoric, epistemic = predict_uncertainty(voting, X)
    np.testing.assert_allclose(total, entropy([0.75, 0.25]))
    np.testing.assert_allclose(aleatoric, 0.25)
    np.testing.assert_allclose(epistemic, entropy([0.75, 0.25]) - 0.25)


def test_calibration_keeps_the_share_of_the_epistemic_part(flowers):
    X, y = flowers
    known = KnownClassifier([0.5, 0.3, 0.2], (1.0, 0.6, 0.4))
    model = CalibratedClassifierCV(known, ensemble=False, cv=3).fit(X, y)
    total, aleatoric, epistemic = predict_uncertainty(model, X)
    np.testing.assert_allclose(total, entropy(model.predict_proba(X), axis=1))
    np.testing.assert_allclose(epistemic, 0.4 * total)
    np.testing.assert_allclose(aleatoric, 0.6 * total)
    sure = KnownClassifier([1.0, 0.0, 0.0], (0.0, 0.0, 0.0))
    model = CalibratedClassifierCV(sure, ensemble=False, cv=3).fit(X, y)
    total, aleatoric, epistemic = predict_uncertainty(model, X)
    np.testing.assert_allclose(total, entropy(model.predict_proba(X), axis=1))
    np.testing.assert_array_equal(epistemic, 0.0)


# --- as all members joined ------------------------------------------------------------------


def joined(model, pairs):
    """Uncertainty of all members of estimators, each with its samples."""
    members = np.concatenate([member.predict_members(rows) for member, rows in pairs], axis=1)
    if members.ndim == 4:
        return [p.numpy()[:, 0] for p in EmpiricalGaussian.from_members(members).uncertainty()]
    return [part.numpy() for part in EmpiricalCategorical.from_members(members).uncertainty()]


def test_a_bag_of_ensembles_is_one_of_all_members(data):
    X, y = data
    member = ensemble().set_params(distance_aware=False)
    bag = BaggingRegressor(member, n_estimators=3, max_features=0.7, random_state=0)
    bag.fit(X, y)
    of_each = zip(bag.estimators_, bag.estimators_features_, strict=True)
    pairs = [(member, X[:, columns]) for member, columns in of_each]
    assert any(rows.shape != X.shape for _, rows in pairs)
    assert_same(predict_uncertainty(bag, X), joined(bag, pairs), rtol=1e-5)


def test_weighted_voters_count_as_often_as_their_weights(data):
    X, y = data
    three = voters(ensemble(random_state=1), "drop", ensemble(random_state=2))
    voting = VotingRegressor(three, weights=[2, 9, 1]).fit(X, y)
    one, other = voting.estimators_
    expected = joined(voting, [(one, X), (one, X), (other, X)])
    assert_same(predict_uncertainty(voting, X), expected, rtol=1e-5)
    members = as_teacher(voting).fit(X, y).predict_members(X)  # the same mean and variance
    np.testing.assert_allclose(
        expected[0], members[:, :, 0, 1].mean(axis=1) + members[:, :, 0, 0].var(axis=1), rtol=1e-5
    )


def test_a_bag_of_classifiers_is_one_of_all_members(flowers):
    X, y = flowers
    bag = BaggingClassifier(classifier(), n_estimators=2, random_state=0).fit(X, y)
    pairs = [(member, X) for member in bag.estimators_]
    found = predict_uncertainty(bag, X)
    assert found.measure == "entropy"
    assert_same(found, joined(bag, pairs), rtol=1e-4, atol=1e-6)


MIXTURES = {
    "voting": lambda: VotingClassifier(
        voters(classifier(), classifier(max_epochs=9)), voting="soft", weights=[1, 2.5]
    ),
    "bag of few samples": lambda: BaggingClassifier(
        make_pipeline(classifier()), n_estimators=3, max_samples=4, random_state=0
    ),
    "bag in a bag": lambda: BaggingClassifier(
        BaggingClassifier(classifier(), 2, max_features=0.5), 2, random_state=1
    ),
    "calibrated in a search in a pipeline": lambda: make_pipeline(
        StandardScaler(), GridSearchCV(CalibratedClassifierCV(classifier(), cv=2), {}, cv=2)
    ),
    "voting of what is calibrated": lambda: VotingClassifier(
        voters(CalibratedClassifierCV(classifier(), method="isotonic", cv=2), classifier()),
        voting="soft",
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_the_total_is_the_entropy_of_what_is_predicted(name, flowers):
    X, y = flowers
    model = MIXTURES[name]().fit(X, y)
    total, aleatoric, epistemic = predict_uncertainty(model, X)
    np.testing.assert_allclose(total, entropy(model.predict_proba(X), axis=1), rtol=1e-4)
    np.testing.assert_allclose(total, aleatoric + epistemic, rtol=1e-5)
    assert (aleatoric >= 0).all()
    assert (epistemic >= 0).all()
    assert epistemic.max() > 0


# --- several targets, and targets that are transformed --------------------------------------


def test_transforms_of_the_target_are_undone_before_voters_are_mixed(data):
    X, y = data
    two = voters(ensemble(random_state=1), ensemble(random_state=2, max_epochs=9))
    outside = TransformedTargetRegressor(VotingRegressor(two), transformer=StandardScaler())
    scale = outside.fit(X, y).transformer_.scale_
    inner = predict_uncertainty(outside.regressor_, X)
    assert_same(predict_uncertainty(outside, X), [scale**2 * p for p in inner], rtol=1e-5)
    inside = VotingRegressor(
        [(name, TransformedTargetRegressor(one, func=np.log, inverse_func=np.exp))
         for name, one in two]
    ).fit(X, y)  # fmt: skip
    logarithms = TransformedTargetRegressor(
        VotingRegressor(two), func=np.log, inverse_func=np.exp
    ).fit(X, y)
    assert_same(predict_uncertainty(inside, X), predict_uncertainty(logarithms, X), rtol=1e-5)
