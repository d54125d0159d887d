# SPDX-License-Identifier: BSD-3-Clause
"""BayesianEnsembleClassifier: labels, weights, what is read off its members, and bad input."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
)
from skdistill._method.task import ClassificationTask
from skdistill._training.samples import Samples
from skdistill._training.trainer import SEED_LIMIT
from skdistill.ensembles._fit import with_samples
from skdistill.ensembles._perturbations import stratified
from skdistill.ensembles._spec import EnsembleSpec
from skdistill.modules import ConvNet
from skdistill.samplers import DeepEnsemble
from skdistill.settings import EarlyStopping


def ensemble(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleClassifier(**{**settings, **params})


@pytest.fixture(scope="module")
def data():
    """Three classes, of 35, 15 and 10 samples."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [35, 15, 10])
    X = rng.normal(size=(60, 3)) + 2.0 * np.eye(3)[codes]
    order = rng.permutation(60)
    return X[order], codes[order]


@pytest.fixture(scope="module")
def fitted(data):
    return ensemble().fit(*data)


def assert_same_members(first, second, X, **tolerance):
    np.testing.assert_allclose(first.predict_members(X), second.predict_members(X), **tolerance)


# ------------------------------------------------------------------------------------------
# Learning
# ------------------------------------------------------------------------------------------


def probability(x):
    """Of the first of two classes."""
    return 0.5 + 0.4 * np.sin(2.0 * x)


def test_learns_probabilities():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=4000)
    y = rng.uniform(size=4000) > probability(x)
    settings = {"max_epochs": 30, "batch_size": 64, "random_state": 0}
    # Members that leave out samples of their own disagree a little more where there are samples.
    model = BayesianEnsembleClassifier(5, inference=DeepEnsemble(calibrate=None), **settings).fit(
        x[:, None], y
    )
    grid = np.linspace(-1.9, 1.9, 100)
    error = model.predict_proba(grid[:, None])[:, 0] - probability(grid)
    assert np.abs(error).mean() < 0.04  # as of ten local shares of 400 samples each: sd .025
    total, _, epistemic = model.predict_uncertainty(grid[:, None])
    truth = stats.entropy([probability(grid), 1 - probability(grid)])
    np.testing.assert_allclose(total, truth, atol=0.12)
    assert model.predict_uncertainty([[-6.0]]).epistemic > 5 * epistemic.mean()


def test_members_are_the_softmax_of_their_networks(data):
    X, _ = data
    fitted = ensemble(module__embeddings=None).fit(*data)
    W1, b1, W2, b2 = (p.detach().numpy() for p in fitted.module_.parameters())
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    logits = np.maximum(X @ W1 + b1, 0) @ W2 + b2  # (S, n, K)
    logits = logits / fitted.calibration_.temperature + fitted.calibration_.bias
    expected = np.moveaxis(softmax(logits, axis=-1), 0, 1)
    np.testing.assert_allclose(fitted.predict_members(data[0]), expected, rtol=1e-10)


@pytest.mark.parametrize("bootstrap", [False, "auto"])
def test_the_loss_is_the_cross_entropy(bootstrap, data):
    X, y = data
    weight = np.linspace(0.1, 2, 60)
    still = {"batch_size": 100, "max_epochs": 1, "lr": 1e-12, "prior_scale": np.inf}
    model = ensemble(inference=DeepEnsemble(bootstrap=bootstrap, calibrate=None), **still)
    members = model.fit(X, y, sample_weight=weight).predict_members(X)
    losses = -np.log(members[np.arange(60), :, y]).T  # (S, n)
    of_members = np.tile(weight, (3, 1))
    if bootstrap:  # sums of w exponential numbers for a weight of w
        seed = np.random.RandomState(0).randint(SEED_LIMIT)
        of_members = stats.gamma(weight).ppf(stratified([seed, 0], range(3), (60,)))
    expected = np.average(losses, axis=1, weights=of_members).mean()
    assert model.history_[0]["train_loss"] == pytest.approx(expected, rel=1e-6)


# ------------------------------------------------------------------------------------------
# Labels
# ------------------------------------------------------------------------------------------

LABELS = {
    "strings": np.array(["c", "a", "b"]),
    "objects": np.array(["c", "a", "b"], dtype=object),
    "digits in words": np.array(["10", "2", "1"]),
    "negative integers": np.array([7, -3, 0]),
    "unsigned": np.array([7, 3, 0], dtype=np.uint8),
    "floats": np.array([1.0, -2.0, 5.0]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(kind, fitted, data):
    X, codes = data
    labels = LABELS[kind]
    model = ensemble().fit(X, labels[codes])
    assert model.classes_.tolist() == sorted(labels.tolist())
    assert model.classes_.dtype == labels.dtype
    columns = np.argsort(labels)
    coded = ensemble().fit(X, np.argsort(columns)[codes])
    np.testing.assert_array_equal(model.predict_proba(X), coded.predict_proba(X))
    predicted = model.predict(X)
    assert predicted.dtype == labels.dtype
    np.testing.assert_array_equal(predicted, model.classes_[model.predict_proba(X).argmax(axis=1)])
    assert set(model.sample_y(X, 3, random_state=0).ravel()) <= set(labels)
    assert model.score(X, labels[codes]) == np.mean(predicted == labels[codes])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(60), r"at least two classes to tell apart; it has one class, \[0\.0\]"),
        (np.linspace(0, 1, 60), "Unknown label type: continuous"),
        (np.eye(60)[:, :2], "should be a 1d array"),
    ],
)
def test_labels_that_will_not_do_are_named(y, message, data):
    with pytest.raises(ValueError, match=message):
        ensemble().fit(data[0], y)


# ------------------------------------------------------------------------------------------
# Weights of samples and of classes
# ------------------------------------------------------------------------------------------


def test_weights_of_classes_are_weights_of_their_rows(data):
    X, y = data
    of_class = {"a": 0.5, "b": 2.0, "c": 3.0}
    labels = np.array(list("abc"))[y]
    by_class = ensemble(class_weight=of_class).fit(X, labels)
    by_row = ensemble().fit(X, labels, sample_weight=np.array([0.5, 2.0, 3.0])[y])
    assert_same_members(by_class, by_row, X)
    assert (by_class.predict_proba(X) != ensemble().fit(X, y).predict_proba(X)).all()


def test_balanced_weights_are_scikit_learns(data):
    X, y = data
    balanced = ensemble(class_weight="balanced").fit(X, y)
    by_row = ensemble().fit(X, y, sample_weight=compute_sample_weight("balanced", y))
    assert_same_members(balanced, by_row, X, rtol=1e-9)


def test_weights_of_classes_multiply_those_of_rows(data):
    X, y = data
    weight = np.linspace(0.1, 3, 60)
    both = ensemble(class_weight={0: 0.5, 1: 2.0, 2: 3.0}).fit(X, y, sample_weight=weight)
    product = ensemble().fit(X, y, sample_weight=weight * np.array([0.5, 2.0, 3.0])[y])
    assert_same_members(both, product, X)
    balanced = ensemble(class_weight="balanced").fit(X, y, sample_weight=weight)
    shares = np.bincount(y, weight)
    by_hand = ensemble().fit(X, y, sample_weight=weight * (weight.sum() / (3 * shares))[y])
    assert_same_members(balanced, by_hand, X, rtol=1e-9)


def test_a_class_of_weight_zero_is_known_but_not_learnt(data):
    X, y = data
    by_class = ensemble(class_weight={1: 0.0}, max_epochs=30).fit(X, y)
    by_row = ensemble(max_epochs=30).fit(X, y, sample_weight=(y != 1).astype(float))
    assert_same_members(by_class, by_row, X)
    assert by_class.classes_.tolist() == [0, 1, 2]
    assert by_class.predict_proba(X)[:, 1].max() < 0.3
    balanced = clone(by_row).set_params(class_weight="balanced")
    balanced.fit(X, y, sample_weight=(y != 1).astype(float))
    assert np.isfinite(balanced.predict_proba(X)).all()


# ------------------------------------------------------------------------------------------
# What is read off
# ------------------------------------------------------------------------------------------


def test_all_is_read_off_the_members(fitted, data):
    X, _ = data
    members = fitted.predict_members(X)
    np.testing.assert_allclose(members.sum(axis=-1), 1.0)
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba, members.mean(axis=1))
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(proba))
    np.testing.assert_array_equal(fitted.predict(X), proba.argmax(axis=1))
    np.testing.assert_allclose(fitted.predict_distribution(X).members, members)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_probabilities_stay_finite_where_probabilities_underflow(dtype, data):
    X, y = data
    how = {"inference": DeepEnsemble(calibrate=None), "distance_aware": False}
    model = ensemble(max_epochs=20, normalize="y", **how).fit(X.astype(dtype), y)
    far = 1e4 * X
    assert (model.predict_proba(far) == 0).any()
    logits = model.module_.network(
        torch.tensor(far[None], dtype=model.module_.network[0].weight.dtype)
    )
    expected = log_softmax(logits.detach().double().numpy(), axis=-1)  # (S, n, K)
    log_proba = model.predict_log_proba(far)
    assert np.isfinite(log_proba).all()
    expected = np.logaddexp.reduce(expected) - np.log(3)
    np.testing.assert_allclose(log_proba, expected, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------
# Early stopping
# ------------------------------------------------------------------------------------------


def test_validation_rows_are_a_share_of_every_class(data):
    X, y = data
    model = ensemble(
        inference=DeepEnsemble(early_stopping=EarlyStopping(validation_fraction=0.2))
    ).fit(X, y)
    weight = np.arange(1.0, 61.0)
    task, data = (
        ClassificationTask(np.unique(y)),
        Samples(X, np.unique(y, return_inverse=True)[1], weight),
    )
    spec = replace(EnsembleSpec.of(model), task=task, train=data, dtype=X.dtype)
    spec = with_samples(spec, np.random.RandomState(0))
    train, valid = spec.train, spec.valid
    assert np.bincount(train.y).tolist() == [28, 12, 8]
    assert np.bincount(valid.y).tolist() == [7, 3, 2]
    for rows, labels, weights in (train, valid):
        at = weights.astype(int) - 1
        np.testing.assert_array_equal(rows, X[at])
        np.testing.assert_array_equal(task.decode(labels), y[at])
    assert sorted([*train.weight, *valid.weight]) == weight.tolist()


# ------------------------------------------------------------------------------------------
# Folds, searches, pipelines, copies
# ------------------------------------------------------------------------------------------


def test_a_class_that_a_fold_lacks_gets_probability_zero(data):
    X, y = data
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    with pytest.warns(RuntimeWarning, match="Number of classes in training fold"):
        proba = cross_val_predict(ensemble(), X, y, cv=KFold(3), method="predict_proba")
    without = ensemble().fit(X[:40], y[:40])  # all of class 2 are in the last third
    assert without.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(proba[40:, :2], without.predict_proba(X[40:]), rtol=1e-9)
    assert (proba[40:, 2] == 0).all()


# ------------------------------------------------------------------------------------------
# Images
# ------------------------------------------------------------------------------------------


def flattened(in_features, out_features):
    n_values = int(np.prod(in_features))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(n_values, 16), nn.ReLU(), nn.Linear(16, out_features)
    )


@pytest.fixture(scope="module")
def images():
    """Bars that lie or stand, of one channel of 6 x 6 pixels."""
    rng = np.random.default_rng(0)
    X = 0.2 * rng.normal(size=(160, 1, 6, 6))
    lies = rng.uniform(size=160) < 0.5
    for image, flat, place in zip(X[:, 0], lies, rng.integers(6, size=160), strict=True):
        image[(place, slice(None)) if flat else (slice(None), place)] += 1.0
    return X, np.where(lies, "lies", "stands")


CONVNET = {
    "module": ConvNet,
    "module__channels": (4,),
    "module__kernel_size": 3,
    "module__hidden_units": (8,),
}


@pytest.mark.parametrize("params", [{"module": flattened}, CONVNET], ids=["Flatten", "ConvNet"])
def test_images(params, images):
    X, y = images
    model = BayesianEnsembleClassifier(3, max_epochs=30, random_state=0, **params)
    model.fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.9
    assert model.predict_members(X).shape == (160, 3, 2)
    single = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(160)])
    np.testing.assert_allclose(model.predict_proba(X), single, rtol=1e-9)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict_members(X), model.predict_members(X))
