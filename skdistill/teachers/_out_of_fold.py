# SPDX-License-Identifier: BSD-3-Clause
"""Member predictions of samples by teachers that have not seen them."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier

from .._data.checks import check_weights
from .._estimator.functions import align_classes, predict_members
from .._estimator.unwrapping import final_step, is_prefitted
from .._utils.reporting import reporting, stage
from ._rows_and_folds import as_rows, folds_of, read_out_of_fold, rows_at
from ._teacher import Teacher, as_teacher

_ROWS_TO_TRY, _SMALL_SQUARE = 500, 0.01  # samples; squared error over variance of interpolation


def out_of_fold_members(
    teacher: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    cv: object = 5,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
    name: str = "cv",
    verbose: int | bool = 0,
) -> np.ndarray:
    """Predict members of every sample by a clone of the teacher that has not seen the sample.

    On the samples that they were fitted on, the members of an overfitted teacher agree; a student
    of out-of-fold predictions sees their disagreement elsewhere. (In regression a model without
    bags is also fitted five times in every fold, for its residual variance.) The epistemic part has
    a scale of its own in every fold, see :class:`Teacher`.

    Parameters
    ----------
    teacher : estimator
        Anything that :func:`as_teacher` takes and that is not fitted yet.
    X : array-like of shape (n_samples, ...)
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    cv : int, cross-validation splitter or iterable of pairs of train and test samples, default=5
        Must put every sample into one test fold. A number makes shuffled folds, stratified by
        class.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples in the fits.
    random_state : int, RandomState instance or None, default=None
        For the folds that a number makes.
    name : str, default="cv"
        What to call `cv` in errors.
    verbose : int, default=0
        1 prints how long it takes, 2 also a line after each fold, with the time left. By default a
        progress bar is shown on a terminal after ten seconds, and nothing elsewhere.

    Returns
    -------
    members : ndarray of shape (n_samples, n_members, n_classes) or \
            (n_samples, n_members, n_targets, 2)
        Classes are those in y, sorted; one that was missing from a fit has probability zero.

    Raises
    ------
    TypeError, ValueError
        If the teacher is fitted already, a sample is in no test fold or in several, or the teachers
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
    folds = folds_of(cv, y, classes is not None, random_state, name)

    def read(fitted, rows):
        members = predict_members(fitted, rows)
        return members if classes is None else align_classes(members, fitted.classes_, classes)

    with reporting("out_of_fold_members", verbose), stage(f"{folds.get_n_splits(X, y)} folds"):
        return read_out_of_fold(teacher, X, y, weight, folds, read, name, verbose)


def interpolates(
    teacher: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> bool:
    """Tell whether a fitted regressor nearly hits the targets that it was fitted on.

    It does if its errors at some of these, standardised by the total variance that it predicts,
    have a mean square below 0.01, of one target at least. (It would be 1 on samples not seen.)
    """
    # A residual variance comes from samples not seen, but for a model that was fitted before.
    model, _ = final_step(teacher)
    has_residual = getattr(model, "residual_variance_", None) is not None
    if is_classifier(teacher) or (has_residual and not is_prefitted(model.estimator)):
        return False
    y = np.asarray(y, dtype=float)
    rows, targets = as_rows(X), y.reshape(len(y), -1)
    some = slice(None, None, max(1, len(targets) // _ROWS_TO_TRY))
    members = predict_members(teacher, rows_at(rows, some))
    mean, variance = members[..., 0].mean(axis=1), members[..., 1].mean(axis=1)
    squares = np.square(targets[some] - mean) / (variance + members[..., 0].var(axis=1))
    weight = check_weights(sample_weight, len(targets))
    weights = None if weight is None or not weight[some].any() else weight[some]
    return bool((np.average(squares, axis=0, weights=weights) < _SMALL_SQUARE).any())
