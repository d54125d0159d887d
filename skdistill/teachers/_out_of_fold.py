# SPDX-License-Identifier: BSD-3-Clause
"""Member predictions of rows by teachers that have not seen them."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import gen_batches

from .._checks import check_weights
from .._memory import rows_in_memory
from .._meta_estimators import is_prefitted
from .._predict import predict_members
from .._rules import Number
from ._members import align_classes
from ._rows_and_folds import as_rows, fits_on_folds, rows_at
from ._teacher import Teacher, as_teacher


def out_of_fold_members(teacher, X, y, *, cv=5, sample_weight=None, random_state=None, name="cv"):
    """Predict members of every row by a clone of the teacher that has not seen the row.

    On the rows that they were fitted on, the members of an overfitted teacher agree; elsewhere they
    do not. A student of out-of-fold predictions sees their disagreement. (In regression a model
    without bags is also fitted five times in every fold, for its residual variance.)

    Parameters
    ----------
    teacher : estimator
        Anything that :func:`as_teacher` takes and that is not fitted yet.
    X : array-like of shape (n_samples, ...)
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    cv : int, cross-validation splitter or iterable of pairs of train and test rows, default=5
        Must put every row into one test fold. A number makes shuffled folds, stratified by class.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the fits.
    random_state : int, RandomState instance or None, default=None
        For the folds that a number makes.
    name : str, default="cv"
        What to call `cv` in errors.

    Returns
    -------
    members : ndarray of shape (n_samples, n_members, n_classes) or \
            (n_samples, n_members, n_targets, 2)
        The columns of class probabilities stand for the classes in y, sorted; a class that was
        missing from a fit has probability zero.

    Raises
    ------
    TypeError, ValueError
        If the teacher is fitted already, a row is in no test fold or in several, or the teachers
        have different numbers of members.
    """
    teacher, X, y = as_teacher(teacher), as_rows(X), np.asarray(y)
    if is_prefitted(teacher.estimator if isinstance(teacher, Teacher) else teacher):
        raise ValueError(
            f"teacher must not be fitted to be fitted on the folds of {name}; the given one is, "
            "and stays so."
        )
    classes = np.unique(y) if is_classifier(teacher) else None
    weight = check_weights(sample_weight, len(y))
    counts = np.zeros(len(y), dtype=int)
    members: np.ndarray | None = None
    folds = _folds(cv, y, classes, random_state, name)
    for fitted, rows in fits_on_folds(teacher, X, y, weight, folds):
        first = _member_predictions(fitted, X, rows[:1], classes)
        if members is None:
            members = np.empty((len(y), *first.shape[1:]), dtype=first.dtype)
        for portion in gen_batches(len(rows), rows_in_memory(first)):
            predicted = _member_predictions(fitted, X, rows[portion], classes)
            if predicted.shape[1:] != members.shape[1:]:
                raise ValueError(
                    "teacher must have as many members in every fold, got predictions of shapes "
                    f"{predicted.shape[1:]} and {members.shape[1:]}."
                )
            members[rows[portion]] = predicted
        counts[rows] += 1
    if (counts != 1).any():
        raise ValueError(
            f"{name} must put every row into one test fold; got {(counts == 0).sum()} rows in none "
            f"and {(counts > 1).sum()} in several."
        )
    return members


def _member_predictions(fitted, X, rows: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Members' predictions of some rows; the columns of classes in the order of `classes`."""
    predicted = predict_members(fitted, rows_at(X, rows))
    return predicted if classes is None else align_classes(predicted, fitted.classes_, classes)


def _folds(cv, y: np.ndarray, classes: np.ndarray | None, random_state, name: str):
    """Return a splitter from a number, shuffled, or from what scikit-learn takes as ``cv``."""
    if not isinstance(cv, Integral):
        return check_cv(cv, y, classifier=classes is not None)
    Number(Integral, 2).check(cv, name)
    splitter = KFold if classes is None else StratifiedKFold
    return splitter(cv, shuffle=True, random_state=random_state)
