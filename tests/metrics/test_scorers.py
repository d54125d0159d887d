# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdistill.metrics import (
    aurc,
    ause,
    crps,
    expected_calibration_error,
    gaussian_nll,
    get_scorer,
    mixture_nll,
)


class KnownRegressor(RegressorMixin, BaseEstimator):
    """Reads its members off the columns of X, (mean, variance) each; `inflate` spoils them."""

    def __init__(self, inflate=1.0):
        self.inflate = inflate

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = X.shape[1]
        return self

    def predict_members(self, X):
        members = X.reshape(len(X), -1, 1, 2).copy()
        members[..., 1] *= self.inflate
        return members

    def predict(self, X):
        return self.predict_members(X)[..., 0].mean(axis=(1, 2))

    def predict_uncertainty(self, X):
        members = self.predict_members(X)[:, :, 0]
        aleatoric, epistemic = members[..., 1].mean(axis=1), members[..., 0].var(axis=1)
        return SimpleNamespace(
            total=aleatoric + epistemic,
            aleatoric=aleatoric,
            epistemic=epistemic,
            measure="variance",
        )

    def predict_interval(self, X, coverage=0.9):
        half = stats.norm.ppf((1 + coverage) / 2) * np.sqrt(self.predict_uncertainty(X).total)
        return self.predict(X)[:, None] + half[:, None] * np.array([-1, 1])


class KnownClassifier(ClassifierMixin, BaseEstimator):
    """Reads its log probabilities off the columns of X; `sharpness` spoils them."""

    def __init__(self, sharpness=1.0):
        self.sharpness = sharpness

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = np.exp(self.sharpness * X)
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_uncertainty(self, X):
        total = stats.entropy(self.predict_proba(X), axis=1)
        return SimpleNamespace(total=total, aleatoric=None, epistemic=None, measure="entropy")


def make_logits_table(n_samples=40, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=n_samples)
    return np.log(p), np.array(["ant", "cat", "dog"])[[rng.choice(3, p=row) for row in p]]


def make_members_table(n_samples=40, n_members=3, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.1, 2.0, size=(n_samples, 1))
    means = rng.normal(size=(n_samples, 1)) + 0.3 * rng.normal(size=(n_samples, n_members))
    members = np.stack([means, np.broadcast_to(noise**2, means.shape)], axis=-1)
    y = means.mean(axis=1) + noise[:, 0] * rng.normal(size=n_samples)
    return members.reshape(n_samples, -1), y


REGRESSION = {
    "mixture_nll": (
        get_scorer("neg_mixture_nll"),
        lambda m, X, y, **w: mixture_nll(y, m.predict_members(X), **w),
    ),
    "crps": (get_scorer("neg_crps"), lambda m, X, y, **w: crps(y, m.predict_members(X), **w)),
    "gaussian_nll": (
        get_scorer("neg_gaussian_nll"),
        lambda m, X, y, **w: gaussian_nll(
            y, m.predict(X), np.sqrt(m.predict_uncertainty(X).total), **w
        ),
    ),
    "ause": (
        get_scorer("neg_ause"),
        lambda m, X, y, **w: ause(y, m.predict(X), m.predict_uncertainty(X).total, **w),
    ),
}
CLASSIFICATION = {
    "calibration": (
        get_scorer("neg_expected_calibration_error"),
        lambda m, X, y, **w: expected_calibration_error(y, m.predict_proba(X), **w),
    ),
    "log_loss": (
        get_scorer("neg_log_loss"),
        lambda m, X, y, **w: log_loss(y, m.predict_proba(X), **w),
    ),
    "aurc": (
        get_scorer("neg_aurc"),
        lambda m, X, y, **w: aurc(m.predict(X) != y, m.predict_uncertainty(X).total, **w),
    ),
}
SCORERS = {**REGRESSION, **CLASSIFICATION}


def make_case(name):
    """A fitted model for the scorer of this name, and samples to score it on."""
    make, Model = (
        (make_members_table, KnownRegressor)
        if name in REGRESSION
        else (make_logits_table, KnownClassifier)
    )
    X, y = make()
    return Model().fit(X, y), X, y


all_scorers = pytest.mark.parametrize("name", SCORERS)


@all_scorers
def test_scorer_is_minus_the_metric(name):
    scorer, metric = SCORERS[name]
    model, X, y = make_case(name)
    weights = np.random.default_rng(0).uniform(size=len(y))
    assert scorer(model, X, y) == -metric(model, X, y)
    assert scorer(model, X, y, weights) == -metric(model, X, y, sample_weight=weights)
    assert scorer(model, X, y, sample_weight=weights) != scorer(model, X, y)


def test_keywords_are_those_of_the_metric():
    model, X, y = make_case("calibration")
    scorer = get_scorer("neg_expected_calibration_error", n_bins=4, classwise=True)
    expected = expected_calibration_error(y, model.predict_proba(X), n_bins=4, classwise=True)
    assert scorer(model, X, y) == -expected


def test_weights_reach_the_scorers_of_a_search():
    X, y = make_members_table()
    weights = np.tile([1.0, 3.0], 20)
    scoring = {"crps": get_scorer("neg_crps"), "r2": "r2"}
    search = GridSearchCV(KnownRegressor(), {"inflate": [1.0]}, scoring=scoring, refit="crps", cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.set_params(
            estimator=KnownRegressor().set_fit_request(sample_weight=True),
            scoring={"crps": get_scorer("neg_crps").set_score_request(sample_weight=True)},
        )
        search.fit(X, y, sample_weight=weights)
    expected = [
        -SCORERS["crps"][1](KnownRegressor(), X[rows], y[rows], sample_weight=weights[rows])
        for rows in (slice(0, 20), slice(20, 40))
    ]
    assert_allclose([search.cv_results_[f"split{i}_test_crps"][0] for i in (0, 1)], expected)


WRAPPERS = {
    "Pipeline": lambda model: make_pipeline("passthrough", model),
    "GridSearchCV": lambda model: GridSearchCV(model, {}, cv=2),
    "FrozenEstimator": FrozenEstimator,
    "TransformedTargetRegressor": TransformedTargetRegressor,
}


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        pytest.param(name, wrap, id=f"{name}-{wrapper}")
        for name in SCORERS
        for wrapper, wrap in WRAPPERS.items()
        if name in REGRESSION or wrapper != "TransformedTargetRegressor"
    ],
)
def test_scorer_sees_through_meta_estimators(name, wrap):
    scorer, _ = SCORERS[name]
    model, X, y = make_case(name)
    assert_allclose(scorer(wrap(model).fit(X, y), X, y), scorer(model, X, y), rtol=1e-10)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_scorers_of_classes_serve_rows_that_lack_one(name):
    scorer, _ = SCORERS[name]
    model, X, y = make_case(name)
    rows = y != "cat"
    everything = scorer(model, X, y, sample_weight=rows.astype(float))
    assert_allclose(scorer(model, X[rows], y[rows]), everything)


def test_scorer_of_the_entropy_refuses_variances():
    X, y = make_members_table()
    with pytest.raises(ValueError, match=r"needs a classifier.*got measure='variance'"):
        get_scorer("neg_aurc")(KnownRegressor().fit(X, y), X, y)
