# SPDX-License-Identifier: BSD-3-Clause
"""Member predictions as arrays: checked, aligned, out of fold."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import (
    PredefinedSplit,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from skdistill import HydraPlusRegressor
from skdistill.teachers import (
    align_classes,
    as_teacher,
    check_member_predictions,
    interpolates,
    out_of_fold_members,
)

# --- Arrays of predictions --------------------------------------------------------------------


def test_good_predictions_are_returned():
    p = np.full((4, 3, 2), 0.5, dtype=np.float32)
    assert check_member_predictions(p, 4, n_classes=2) is p
    moments = np.ones((4, 3, 1, 2))
    assert check_member_predictions(moments, 4, n_targets=1) is moments
    assert check_member_predictions([[[0, 1]]], 1, n_classes=2).dtype == np.float64


def test_rounding_of_half_precision_is_divided_out():
    p = softmax(np.random.default_rng(0).normal(size=(20, 2, 50)), axis=-1).astype(np.float16)
    found = check_member_predictions(p, 20, n_classes=50)
    assert np.abs(p.astype(float).sum(axis=-1) - 1).max() > 1e-5
    assert_allclose(found.sum(axis=-1), 1, rtol=1e-14)
    assert_allclose(found, p, rtol=1e-3)


def planted(value):
    p = np.full((4, 3, 2), 0.5)
    p[2, 1] = value
    return p


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (planted([0.5, 0.6]), r"sum to 1.*within 0\.001; in sample 2 member 1 sums to 1\.1"),
        (planted([np.nan, 0.5]), "probabilities from 0 to 1; in sample 2 member 1 gives nan"),
        (np.ones((4, 3, 1)), r"shape \(4, S, 2\).*given as \(1 - p, p\).*got \(4, 3, 1\)"),
    ],
)
def test_bad_probabilities_are_named(members, message):
    with pytest.raises(ValueError, match=f"^member_predictions must .*{message}"):
        check_member_predictions(members, 4, n_classes=2)


class Coarse(GaussianNB):
    """One whose probabilities sum to one to five digits."""

    def predict_proba(self, X):
        return (super().predict_proba(X) * (1 + 1e-5)).astype(np.float32)


def test_what_sums_of_a_model_miss_of_one_is_divided_out(classes):
    members = as_teacher(Coarse()).fit(*classes).predict_members(classes[0])
    assert_allclose(members.sum(axis=-1), 1, atol=5e-7)


def test_classes_are_aligned():
    p = np.array([[0.25, 0.75]])
    assert_array_equal(align_classes(p, ["c", "a"], ["a", "b", "c"]), [[0.75, 0, 0.25]])
    assert align_classes(p, ["a", "b"], ["a", "b"]) is p
    with pytest.raises(ValueError, match=r"among \['a', 'b'\], got also \['c'\]"):
        align_classes(p, ["a", "c"], ["a", "b"])


# --- Out of fold ------------------------------------------------------------------------------


def test_members_out_of_fold_are_those_of_the_other_folds(classes):
    X, y = classes
    forest = RandomForestClassifier(12, random_state=0)
    fold = np.arange(len(y)) % 3
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    teacher = as_teacher(forest, epistemic_scale=None)
    members = out_of_fold_members(teacher, X, y, cv=PredefinedSplit(fold), sample_weight=weight)
    for k in range(3):
        train, test = fold != k, fold == k
        model = clone(forest).fit(X[train], y[train], weight[train])
        expected = [tree.predict_proba(X[test]) for tree in model.estimators_]
        assert_allclose(members[test], np.stack(expected, axis=1))


def test_folds_of_a_number_are_stratified_and_seeded(classes):
    X, y = classes
    first, same, other = (
        out_of_fold_members(GaussianNB(), X, y, cv=5, random_state=seed) for seed in (0, 0, 1)
    )
    assert_array_equal(first, same)
    assert (first != other).any()


NAIVE_BAYES = GaussianNB().fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("teacher", "cv", "error", "message"),
    [
        (GaussianNB(), 1, ValueError, "cv"),
        (
            GaussianNB(),
            PredefinedSplit(np.repeat([-1, 0, 1], 50)),
            ValueError,
            "got 50 samples in none and 0 in several",
        ),
        (FrozenEstimator(NAIVE_BAYES), 2, ValueError, "teacher must not be fitted"),
        (make_pipeline(FrozenEstimator(NAIVE_BAYES)), 2, ValueError, "must not be fitted"),
        (LinearSVC(), 2, TypeError, "must predict probabilities"),
    ],
)
def test_bad_folds_are_named(teacher, cv, error, message, classes):
    with pytest.raises(error, match=message):
        out_of_fold_members(teacher, *classes, cv=cv)


# --- Teachers that have learnt their samples by heart -----------------------------------------


INTERPOLATION = GaussianProcessRegressor(RBF(1.0), optimizer=None, normalize_y=True)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (INTERPOLATION, True),
        (BaggingRegressor(INTERPOLATION, 3, bootstrap=False), True),
        (GaussianProcessRegressor(RBF(1.0), alpha=0.5, optimizer=None, normalize_y=True), False),
        (BayesianRidge(), False),
        (KNeighborsRegressor(1), False),  # its variance is that of samples not seen
    ],
)
def test_models_that_interpolate(model, expected, numbers):
    X, y = numbers
    assert interpolates(as_teacher(model).fit(X, y), X, y) is expected
    # Of samples that it has not seen none knows the targets.
    half = as_teacher(clone(model)).fit(X[:60], y[:60])
    assert not interpolates(half, X[60:], y[60:])


def test_students_of_models_that_interpolate_warn_unless_asked(numbers):
    X, y = numbers
    student = HydraPlusRegressor(INTERPOLATION, max_epochs=2, random_state=0)
    with pytest.warns(UserWarning, match=r"GaussianProcessRegressor, nearly hits .* teacher_cv=5"):
        student.fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(student).set_params(teacher_cv=3).fit(X, y)
        half = FrozenEstimator(as_teacher(INTERPOLATION).fit(X[:60], y[:60]))
        clone(student).set_params(teacher=half).fit(X[60:], y[60:])
    assert not [one for one in caught if "nearly hits" in str(one.message)]
