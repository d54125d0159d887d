# SPDX-License-Identifier: BSD-3-Clause
"""``partial_fit``: students that learn from samples that come in parts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from small_models import assert_same_weights, weights

from skdistill import (
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    load,
    save,
)
from skdistill.settings import Optimizer

SMALL = {"module__hidden_units": (8,), "random_state": 0}


@pytest.fixture(params=["hydra", "distribution"])
def student(request, task, frozen):
    """A student of a fitted teacher, for either task."""
    cls = task.Student if request.param == "hydra" else DistributionDistiller
    return cls(frozen, **SMALL)


@pytest.fixture
def classes(task):
    """What the first call takes besides the samples."""
    return {"classes": np.unique(task.y)} if task.is_classification else {}


# --- What it equals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"transfer": "mixup"}, {"optimizer": Optimizer(lr_schedule=None)}]
)
def test_a_call_with_all_rows_is_a_fit_of_one_epoch(student, task, classes, params):
    student.set_params(max_epochs=1, **params)
    whole = clone(student).fit(*task.data)
    part = student.partial_fit(*task.data, **classes)
    assert_same_weights(part, whole)
    assert part.history_[0]["train_loss"] == whole.history_[0]["train_loss"]


@pytest.mark.slow
def test_rows_in_parts_teach_what_all_rows_teach(student, task, classes):
    student.set_params(batch_size=15, max_epochs=25)
    whole = clone(student).fit(*task.data)
    parts = np.array_split(np.random.default_rng(0).permutation(60), 2)
    for _ in range(25):
        for rows in parts:
            student.partial_fit(task.X[rows], task.y[rows], **classes)
    predicted = [np.asarray(model.predict_distribution(task.X).mean) for model in (student, whole)]
    taught = np.asarray(student.teacher_.predict_distribution(task.X).mean)
    spread = taught.std(axis=0).mean()
    errors = [np.abs(p - taught).mean() / spread for p in predicted]
    assert errors[0] < errors[1] + 0.1
    assert errors[0] < 0.25


# --- From call to call ------------------------------------------------------------------------


def saved_and_loaded(student, path):
    save(student, path / "student")
    return load(path / "student").set_params(teacher=student.teacher)


COPIES = {
    "pickle": lambda student, path: pickle.loads(pickle.dumps(student)),
    "save": saved_and_loaded,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_as_the_student_itself(student, task, classes, way, tmp_path):
    student.partial_fit(*task.data, **classes)
    copied = COPIES[way](student, tmp_path)
    for model in (student, copied):
        model.partial_fit(task.X[:31], task.y[:31]).partial_fit(task.X[31:], task.y[31:])
    assert_same_weights(copied, student)


def test_labels_may_be_missing_from_a_call(classification):
    """The classes are those of the first call; samples of others are learnt later."""
    task = classification
    teacher = FrozenEstimator(task.ensemble(max_epochs=20).fit(*task.data))
    student = HydraPlusClassifier(teacher, **SMALL)
    one = task.y == "elm"
    student.partial_fit(task.X[one], task.y[one], classes=["oak", "elm", "ash"])
    np.testing.assert_array_equal(student.classes_, ["ash", "elm", "oak"])
    student.partial_fit(task.X[~one], task.y[~one], classes=["ash", "elm", "oak"])
    assert student.predict_proba(task.X).shape == (60, 3)


def test_targets_keep_the_scale_of_the_first_call(regression):
    task = regression
    teacher = FrozenEstimator(task.ensemble().fit(*task.data))
    student = HydraPlusRegressor(teacher, **SMALL).partial_fit(task.X[:30], task.y[:30])
    y_loc = weights(student)["y_loc"]
    np.testing.assert_allclose(y_loc, task.y[:30].mean())
    assert weights(student.partial_fit(task.X[30:], task.y[30:]))["y_loc"] == y_loc


# --- What is refused --------------------------------------------------------------------------


def test_without_a_fitted_teacher_there_is_no_partial_fit(student):
    for teacher in (student.teacher.estimator, "regressor", None):
        unfitted = clone(student).set_params(teacher=teacher)
        assert not hasattr(unfitted, "partial_fit")
        with pytest.raises(AttributeError) as error:
            unfitted.partial_fit  # noqa: B018 -- looking it up is what fails
        assert "write teacher=FrozenEstimator(fitted)" in str(error.value.__cause__)


def test_wrong_rows_are_refused_and_leave_the_student_as_it_was(student, task, classes):
    student.partial_fit(*task.data, **classes)
    before, n_rows = pickle.dumps(weights(student)), len(student.history_)
    X, y = task.data
    other = np.where(y == "elm", "fir", y) if task.is_classification else np.stack([y, y], axis=1)
    named = "y must hold labels.*'fir'" if task.is_classification else "y must have 1 target"
    for data, message in (
        ((X[:, :2], y), "X has 2 features, but .* is expecting 3 features"),
        ((X, other), named),
        ((X[:0], y[:0]), "minimum of 1 is required"),
        ((np.where(X > 2, np.nan, X), y), "NaN"),
        ((X, y, np.zeros(60)), "sample_weight must have at least one positive"),
    ):
        with pytest.raises(ValueError, match=message):
            student.partial_fit(*data)
    with pytest.raises(ValueError, match="module__hidden_units must be as in the fit"):
        student.set_params(module__hidden_units=(9,)).partial_fit(X, y)
    assert pickle.dumps(weights(student)) == before
    assert len(student.history_) == student.n_epochs_ == n_rows


def test_a_call_that_diverges_leaves_the_student_as_it_was(student, task, classes):
    student.partial_fit(*task.data, **classes)
    before, state = pickle.dumps(weights(student)), student._training_state
    with pytest.raises(ValueError, match="became infinite"):
        student.set_params(lr=1e30, optimizer=Optimizer(clip_norm=None)).partial_fit(*task.data)
    assert pickle.dumps(weights(student)) == before
    assert student._training_state is state
    assert student.n_epochs_ == 1
