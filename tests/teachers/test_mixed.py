# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of models of different kinds: weights against truth, moments by hand, every error."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor
from sklearn_checks import cases_of

from skdistill.teachers import MixedModels, Teacher, as_teacher
from skdistill.teachers._members import group_moments, group_probabilities, shares_of_groups
from skdistill.teachers._mixed import (
    epistemic_of,
    groups_of_moments,
    groups_of_probabilities,
    models_for,
    stacking_weights,
)

REGRESSORS = [BayesianRidge(), RandomForestRegressor(6, random_state=0), LinearRegression()]
CLASSIFIERS = [GaussianNB(), RandomForestClassifier(6, random_state=0), LogisticRegression()]


def test_shares_by_hand():
    # Of widths .5, .25 and .25 the first fills one and a half of three groups.
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0, 0.25, 0.75]]
    assert_allclose(shares_of_groups(np.array([2.0, 1.0, 1.0]), 3), expected, atol=1e-12)
    assert_allclose(shares_of_groups(np.ones(2), 4), np.repeat(np.eye(2), 2, axis=0), atol=1e-12)
    assert_allclose(shares_of_groups(np.ones(4), 2), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])


@pytest.mark.parametrize("n_groups", [1, 3, 7, 20])
def test_groups_have_the_moments_of_the_weighted_mixture(n_groups):
    random = np.random.RandomState(0)
    members = np.stack([1e4 + random.normal(size=(5, 7, 2)), random.uniform(1, 2, (5, 7, 2))], -1)
    each, weights = [members[:, :4], members[:, 4:]], np.array([0.4, 0.6])
    found = groups_of_moments(each, weights, n_groups)
    widths = np.repeat(weights / [4, 3], [4, 3])[:, None]
    mean = (widths * members[..., 0]).sum(axis=1)
    spread = (widths * (members[..., 0] - mean[:, None]) ** 2).sum(axis=1)
    total = (widths * members[..., 1]).sum(axis=1) + spread
    assert_allclose(found[..., 0].mean(axis=1), mean, rtol=1e-12)
    assert_allclose(found[..., 1].mean(axis=1) + found[..., 0].var(axis=1), total, rtol=1e-6)
    own = np.stack([one[..., 0].mean(axis=1) for one in each])
    within = np.stack([one[..., 0].var(axis=1) for one in each])
    epistemic, of_all = epistemic_of(weights, own - mean, within)
    assert_allclose(of_all, spread, rtol=1e-6)
    if n_groups > 1:  # one has no variance
        assert_allclose(found[..., 0].var(axis=1), epistemic, rtol=1e-6)
    # Of neighbours of equal weight the epistemic part is less, but not mean and total.
    moments = np.concatenate([members, np.ones_like(members[..., :1])], axis=-1)
    grouped = group_moments(moments, n_groups)
    assert grouped.shape[1] == min(n_groups, 7)
    assert_allclose(grouped[..., 0].mean(axis=1), members[..., 0].mean(axis=1), rtol=1e-12)
    total = members[..., 1].mean(axis=1) + members[..., 0].var(axis=1)
    assert_allclose(grouped[..., 1].mean(axis=1) + grouped[..., 0].var(axis=1), total, rtol=1e-6)
    assert_allclose(grouped[..., 2], 1)


def test_epistemic_part_is_the_variance_of_the_mean_and_bias():
    """Errors of correlation .5, of variances 1 and 4; then a bias of 3 of the second model."""
    random, weights = np.random.RandomState(0), np.array([0.3, 0.7])
    cov = [[1.0, 1.0], [1.0, 4.0]]
    values = random.multivariate_normal([0, 0], cov, 200_000).T
    within = np.array([1.0, 4.0])
    gap = np.sqrt(np.square(values[0] - values[1]).mean())  # as far as they are on average
    gaps = np.array([-0.7, 0.3]) * gap
    epistemic, spread = epistemic_of(weights, gaps, within)
    assert_allclose(epistemic, (weights @ values).var(), rtol=0.01)
    assert_allclose(spread, weights @ within + 0.21 * gap**2)
    biased, _ = epistemic_of(weights, np.array([-0.7, 0.3]) * np.hypot(gap, 3), within)
    assert_allclose(biased - epistemic, 0.21 * 9, rtol=0.05)
    alone, _ = epistemic_of(np.ones(1), np.zeros(1), np.array([2.0]))
    assert alone == 2


def test_groups_of_probabilities_are_as_far_apart_as_members():
    random = np.random.RandomState(0)
    members = random.dirichlet([9, 9, 9], size=(50, 7))
    each, weights = [members[:, :4], members[:, 4:]], np.array([0.4, 0.6])
    found = groups_of_probabilities(each, weights, 10)
    own = np.stack([one.mean(axis=1) for one in each])
    mean = np.tensordot(weights, own, axes=1)
    within = np.stack([one.var(axis=1).sum(axis=-1) for one in each])
    spread, _ = epistemic_of(weights, np.sqrt(np.square(own - mean).sum(axis=-1)), within)
    assert_allclose(found.sum(axis=-1), 1)
    assert_allclose(found.mean(axis=1), mean, rtol=1e-12)
    of_groups = np.square(found - mean[:, None]).sum(axis=-1).mean(axis=1)
    is_inside = found.min(axis=(1, 2)) > 0
    assert is_inside.mean() > 0.9
    assert_allclose(of_groups[is_inside], spread[is_inside], rtol=1e-9)
    certain = np.eye(3)[[[0, 0, 1, 0, 0, 2, 0]]]  # probabilities of 0 cannot be moved
    assert groups_of_probabilities([certain], np.ones(1), 3).min() >= 0
    assert_allclose(group_probabilities(members, 3).mean(axis=1), members.mean(axis=1))


def test_each_model_is_on_a_scale_of_its_own(numbers):
    """Processes and ensembles keep theirs, all else is measured; one member becomes two."""
    X, y = numbers
    process = GaussianProcessRegressor(alpha=1.0, normalize_y=True)
    for model, has_scale in ((process, False), (LinearRegression(), True)):
        found = as_teacher(MixedModels([model], random_state=0)).fit(X, y)
        (scale,) = found.estimator_._scales
        assert (scale is not None) == has_scale
        assert found.epistemic_scale_ is None
    mean, total = found.predict(X), found.predict_uncertainty(X)
    assert_allclose(mean, LinearRegression().fit(X, y).predict(X))
    assert np.ptp(total.epistemic) < 1e-9
    # Of a line, the variance of its mean is that of the noise times (d + 1) / n.
    residual = found.estimator_.residual_variances_[0] * found.estimator_.temperature_
    assert_allclose(total.total, residual + total.epistemic * (1 - found.estimator_.temperature_))
    noise = np.square(y - mean).mean()
    expected = noise * (X.shape[1] + 1) / len(y)
    assert 0.5 * expected < total.epistemic[0] < 5 * expected
    alone = as_teacher(process).fit(X, y).predict_uncertainty(X).epistemic
    mixed = as_teacher(MixedModels([process])).fit(X, y).predict_uncertainty(X).epistemic
    assert_allclose(mixed, alone, rtol=1e-6)


def test_stacking_finds_the_weights_of_a_mixture():
    random = np.random.RandomState(0)
    y = np.where(random.uniform(size=20_000) < 0.3, -2, 2) + random.normal(size=20_000)
    scores = np.stack([norm.logpdf(y, -2), norm.logpdf(y, 2), norm.logpdf(y, 50)])
    weights = stacking_weights(scores)
    assert_allclose(weights, [0.3, 0.7, 0], atol=0.01)
    assert weights[2] == 0
    of_positive = stacking_weights(scores, (y > 0).astype(float))
    assert of_positive[1] > 0.95


def test_weights_are_those_of_the_best_mixture_on_rows_not_seen(numbers):
    X, y = numbers
    folds = KFold(4, shuffle=True, random_state=1)
    models = [BayesianRidge(), DummyRegressor(), RandomForestRegressor(20, random_state=0)]
    mixed = MixedModels(models, cv=folds, n_members=30).fit(X, y)
    line, line_std = np.empty((2, len(y)))
    for train, test in folds.split(X):
        line[test], line_std[test] = BayesianRidge().fit(X[train], y[train]).predict(X[test], True)
    # (The members of the line are 20 draws, not the integral over all.)
    assert_allclose(mixed.log_scores_[0], norm.logpdf(y, line, line_std).mean(), atol=0.02)
    constant = cross_val_predict(DummyRegressor(), X, y, cv=folds)
    spread = np.sqrt(np.mean((y - constant) ** 2))
    assert_allclose(mixed.residual_variances_[1], spread**2)
    assert_allclose(mixed.log_scores_[1], norm.logpdf(y, constant, spread).mean())
    assert mixed.residual_variances_[0] is None
    assert_allclose(mixed.weights_.sum(), 1)
    assert mixed.weights_[0] > 0.8  # y is a line
    assert mixed.weights_[1] == 0
    assert mixed.models_[1] is None


def test_scores_of_models_are_weighted(numbers):
    X, y = numbers
    weight = np.arange(len(y)) % 3
    models = [DummyRegressor(strategy="constant", constant=float(c)) for c in range(2)]
    mixed = MixedModels(models, cv=4).fit(X, y, sample_weight=weight)
    spread = np.sqrt(np.average(y**2, weights=weight))
    expected = np.average(norm.logpdf(y, 0, spread), weights=weight)
    assert_allclose(mixed.log_scores_[0], expected)


def test_temperature_is_that_of_the_best_mixture_of_numbers():
    X, y = np.zeros((400, 1)), np.random.RandomState(0).normal(size=400)
    models = [DummyRegressor(strategy="constant", constant=centre) for centre in (-1.0, 1.0)]
    mixed = MixedModels(models, random_state=0).fit(X, y)
    weights = mixed.weights_[:, None]
    assert_allclose(weights, 0.5, atol=0.1)
    residuals = y - np.array([[-1.0], [1.0]])
    stds = np.sqrt(np.mean(residuals**2, axis=1, keepdims=True))

    def loss(temperature):
        return -np.log(weights.T @ norm.pdf(residuals, scale=np.sqrt(temperature) * stds)).mean()

    best = minimize_scalar(loss, (0.1, 1.0)).x
    assert best < 0.6  # both models are centred where half of the samples are not
    assert_allclose(mixed.temperature_, best, rtol=0.1)  # groups of members share their means
    assert loss(mixed.temperature_) < loss(1.0)
    teacher = (
        as_teacher(MixedModels(models, weights="oof"))
        .set_params(estimator__random_state=0)
        .fit(X, y)
    )
    uncertainty = teacher.predict_uncertainty(X[:1])
    given = (
        as_teacher(MixedModels(models, weights=mixed.weights_)).fit(X, y).predict_uncertainty(X[:1])
    )
    assert_allclose(uncertainty.epistemic, given.epistemic)
    assert_allclose(uncertainty.aleatoric, mixed.temperature_ * given.aleatoric, rtol=1e-6)


def test_temperature_is_that_of_the_best_mixture_of_classes():
    random = np.random.RandomState(0)
    X, y = random.normal(size=(600, 2)), random.randint(2, size=600)
    X[:, 0] += 4 * y
    unsure = LogisticRegression(C=1e-3)  # right about nearly every sample, and sure of none
    mixed = MixedModels([unsure], random_state=0).fit(X, y)
    assert mixed.temperature_ < 0.5
    plain = MixedModels([unsure], weights=[1]).fit(X, y)
    assert plain.temperature_ == 1
    tempered = np.log(as_teacher(plain).fit(X, y).predict_proba(X)) / mixed.temperature_
    assert_allclose(
        as_teacher(mixed).set_params(estimator__random_state=0).fit(X, y).predict_proba(X),
        softmax(tempered, axis=1),
    )


@pytest.mark.parametrize("weights", ["equal", [2, 1, 1], [1, 0, 3]])
def test_regressors_by_hand(weights, numbers):
    X, y = numbers
    teacher = as_teacher(MixedModels(REGRESSORS, weights=weights)).fit(X, y)
    assert teacher.n_members_ == teacher.estimator_.n_members
    given = np.ones(3) if weights == "equal" else np.asarray(weights, dtype=float)
    given = given / given.sum()
    assert_allclose(teacher.estimator_.weights_, given)
    alone = [as_teacher(model).fit(X, y) for model in REGRESSORS]
    expected = sum(w * one.predict(X) for w, one in zip(given, alone, strict=True))
    assert_allclose(teacher.predict(X), expected)
    totals = [one.predict_uncertainty(X).total for one in alone]
    means = [one.predict(X) for one in alone]
    total = sum(w * (t + (m - expected) ** 2) for w, t, m in zip(given, totals, means, strict=True))
    assert_allclose(teacher.predict_uncertainty(X).total, total)
    assert_allclose(teacher.estimator_.predict(X), expected)
    assert teacher.estimator_.log_scores_ is None


def test_classifiers_by_hand(classes):
    X, y = classes
    teacher = as_teacher(MixedModels(CLASSIFIERS, weights=[3, 1, 2])).fit(X, y)
    each = [clone(model).fit(X, y).predict_proba(X) for model in CLASSIFIERS]
    assert_allclose(teacher.predict_proba(X), np.average(each, axis=0, weights=[3, 1, 2]))
    assert_array_equal(teacher.predict(X), teacher.estimator_.predict(X))
    assert teacher.score(X, y) > 0.7
    assert (teacher.predict_uncertainty(X).epistemic >= 0).all()


TEACHERS = [
    as_teacher(
        MixedModels([DecisionTreeRegressor(max_depth=3, random_state=0), Ridge()], weights="equal")
    ),
    as_teacher(MixedModels([GaussianNB(), LogisticRegression()], weights=[1, 2])),
]


@pytest.mark.parametrize(("estimator", "check"), cases_of(TEACHERS))
def test_sklearn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "models must be a list of at least one"),
        ([LinearRegression(), LinearRegression], "models must be estimators"),
        ([LinearRegression(), LogisticRegression()], "all classifiers or all regressors"),
        ([FrozenEstimator(LinearRegression())], "models must not be fitted"),
    ],
)
def test_wrong_models_are_refused(models, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_teacher(MixedModels(models, weights="oof"))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"weights": "best"}, "weights must be one of"),
        ({"weights": [1, 2]}, "weights must be 'oof', 'equal' or 3 numbers"),
        ({"weights": [1, -1, 2]}, "none negative"),
        ({"weights": [0, 0, 0]}, "one positive"),
        ({"n_members": 0}, "n_members must be"),
        ({"cv": KFold(2).split(np.zeros(50))}, "cv must put every sample into one test fold"),
        ({"models": "best"}, "models must be 'auto'"),
        ({"models": "auto", "task": "ranking"}, "task must be one of"),
    ],
)
def test_wrong_parameters_are_refused(params, message, numbers):
    with pytest.raises((TypeError, ValueError), match=message):
        MixedModels(**{"models": REGRESSORS} | params).fit(*numbers)


def test_automatic_models_suit_the_samples(numbers):
    X, y = numbers

    def kinds_for(task, *arguments):
        models = models_for(task, *arguments)
        steps = [model[-1] if hasattr(model, "steps") else model for model in models]
        return [type(step).__name__.removesuffix("or").removesuffix("ifier") for step in steps]

    networks = kinds_for("regression")
    assert networks[1:] == ["HistGradientBoostingRegress", "RandomForestRegress"]
    assert kinds_for("regression", X, y) == [*networks, "_Process"]
    for without in (
        (np.repeat(X, 1001, axis=0), None),  # too many
        (np.where(X.max() == X, np.nan, X), y),  # a gap
        (X, y, 0.01),  # seconds
    ):
        assert kinds_for("regression", *without) == networks
    assert kinds_for("classification", X)[-1] == "LogisticRegression"
    assert len(kinds_for("classification", np.where(X > 0, np.nan, X))) == 3


def test_automatic_process_ignores_features_of_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(250, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    process = models_for("regression", X, y)[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        process.fit(X[:150], y[:150])
    error = np.square(process.predict(X[150:]) - y[150:]).mean()
    assert error < 0.02 * y.var()  # .26 with one length scale
    # The gradient of a length scale for each feature takes n * n * n_features numbers.
    for shape, n_scales in (((500, 100), 100), ((1000, 26), 1)):
        kernel = models_for("regression", np.zeros(shape), np.zeros(len(X)))[-1][-1].kernel
        assert np.size(kernel.k1.k2.length_scale) == n_scales


def test_density_of_the_mixture(numbers):
    X, y = numbers
    kinds = [LinearRegression(), DummyRegressor()]
    mixed = MixedModels(kinds, weights=[1, 1], epistemic_scale=None)
    teacher = as_teacher(mixed).fit(X, y)
    teacher.estimator_.n_members = 2  # a member for each
    alone = [as_teacher(kind).fit(X, y) for kind in kinds]
    densities = [norm.pdf(y, one.predict(X), np.sqrt(one.residual_variance_)) for one in alone]
    found = teacher.predict_distribution(X).log_prob(torch.tensor(y).view(-1, 1))
    assert_allclose(found.exp().numpy()[:, 0], np.mean(densities, axis=0))
    assert isinstance(teacher, Teacher)
