# SPDX-License-Identifier: BSD-3-Clause
"""What a teacher is, and what a user is warned of that would else pass in silence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.utils.validation import check_is_fitted

from ..._estimator.unwrapping import final_step, is_prefitted, is_search, tags_of
from ..._method.task import RegressionTask
from ..._utils.warnings import warn
from ...teachers import Teacher, interpolates
from ._spec import FitArguments, FitSpec

Predict = Callable[[np.ndarray], np.ndarray]

# Samples, at most, by which a fitted teacher is judged, and at least: with fewer, chance decides.
_ROWS_LOOKED_AT, _LEAST_ROWS = 1_000, 20


def kind_of(teacher: BaseEstimator) -> str | None:
    """Return "classifier" or "regressor" for a teacher, or for such a name; None for others."""
    if isinstance(teacher, str):
        return teacher if teacher in ("classifier", "regressor") else None
    if isinstance(teacher, type) or not hasattr(teacher, "get_params"):
        return None
    try:
        kind = tags_of(teacher).estimator_type
    except AttributeError:  # it has parameters but no tags: no estimator
        return None
    return kind if kind in ("classifier", "regressor") else None


def _kind(distiller: BaseEstimator) -> str | None:
    """Kind of a distiller: that of its teacher, and after `fit` that of the fitted student."""
    fitted = "_plan" in vars(distiller)
    return distiller._plan.task.kind if fitted else kind_of(distiller.teacher)


kind_as_teacher = property(_kind)


def check_kind(teacher: BaseEstimator, member_predictions: ArrayLike) -> None:
    """Raise TypeError unless it is a teacher, ValueError for a name without predictions."""
    if kind_of(teacher) is None:
        raise TypeError(
            "teacher must be a classifier or a regressor, or, with member_predictions, "
            "'classifier' or 'regressor'; skdistill.teachers.as_teacher makes one of a list of "
            f"fitted models, or of a torch module. Got {teacher!r}."
        )
    if isinstance(teacher, str) and member_predictions is None:
        raise ValueError(
            f"teacher={teacher!r} goes with member_predictions, which are None; without "
            "them teacher must be an estimator."
        )


def model_of(teacher: BaseEstimator) -> BaseEstimator:
    """Return the model of which a teacher has been made."""
    return teacher.estimator if isinstance(teacher, Teacher) else teacher


def warn_of_refit(teacher: BaseEstimator) -> None:
    """Warn of a fitted teacher that is fitted anew."""
    model = model_of(teacher)
    if is_prefitted(model) or not (_is_fitted(teacher) or _is_fitted(model)):
        return
    search = (
        " The search runs again; best_estimator_ is the model that it has found."
        if is_search(model)
        else ""
    )
    warn(
        f"teacher is a fitted {type(model).__name__}, and a clone of it is fitted anew. To keep "
        f"the fitted one, write teacher=FrozenEstimator(teacher).{search}"
    )


def _is_fitted(model: BaseEstimator) -> bool:
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):  # the latter for what has no fit
        return False
    return tags_of(model).requires_fit  # others count as fitted always


def warn_of_answers(
    spec: FitSpec,
    teacher: BaseEstimator,
    model: BaseEstimator,
    given: FitArguments,
    predict: Predict,
) -> None:
    """Warn of what a teacher, made of a model, answers to the samples given to fit.

    `predict` gives the predictions of its members, encoded by the task.
    """
    if spec.settings.teacher_cv is None:
        _warn_of_interpolation(teacher, model, given)
    if is_prefitted(model):
        _warn_of_useless(spec, model, predict)


def _warn_of_interpolation(
    teacher: BaseEstimator, model: BaseEstimator, given: FitArguments
) -> None:
    """Warn of a teacher whose answers about these samples say little of those about others.

    Ensembles of this package are regularised, and are not looked at.
    """
    if not isinstance(final_step(teacher)[0], Teacher) or not interpolates(teacher, *given):
        return
    name = type(final_step(model)[0]).__name__
    if is_prefitted(model):
        warn(
            f"The fitted teacher, {name}, nearly hits the targets given to fit, as it hits those "
            "that it was fitted on: its variance for these samples may say little of the others. "
            "Give fit samples that the teacher has not seen; or give it the model unfitted, with "
            "teacher_cv=5, so that models that have not seen a sample answer for it."
        )
    else:
        warn(
            f"The teacher, {name}, nearly hits the targets that it "
            "was fitted on, so that its variance for these samples may say little of the others. "
            "teacher_cv=5 lets models that have not seen a sample answer for it, and so does a "
            "teacher fitted on other samples, in a FrozenEstimator."
        )


def _warn_of_useless(spec: FitSpec, model: BaseEstimator, predict: Predict) -> None:
    """Warn of a fitted teacher that gets other samples than it was fitted on.

    It predicts X and y no better than a constant would.
    """
    some = slice(None, None, max(1, -(-len(spec.X) // _ROWS_LOOKED_AT)))
    X, y, weight = spec.X[some], spec.y[some], spec.weight[some]
    if len(X) < _LEAST_ROWS or not np.ptp(y, axis=0).any():
        return
    judge = (
        _error_of_regression
        if isinstance(spec.plan.task, RegressionTask)
        else _error_of_classification
    )
    loss, words = judge(predict(X), y, weight)
    if loss < 1:
        return
    warn(
        f"The fitted teacher, {type(final_step(model)[0]).__name__}, gets other samples than it "
        f"was fitted on, or has learnt nothing: it has {words} for X and y. Have they been scaled, "
        "as by a Pipeline around the student, or have they other units or another order of "
        "columns? Students scale their columns themselves (normalize=True), so give fit the "
        "samples as they came, and put what the teacher needs into it: "
        "teacher=FrozenEstimator(make_pipeline(scaler, model).fit(X, y))."
    )


def _error_of_regression(
    members: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[float, str]:
    """Loss of members (n, S, t, 2), 1 for that of a constant, and the R2 in words."""
    found = r2_score(y, members[..., 0].mean(axis=1), sample_weight=weight)
    return 1 - found, f"an R2 of {round(found, 3) + 0.0:g}"


def _error_of_classification(
    members: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[float, str]:
    """Loss of members' log probabilities (n, S, K), 1 for that of the frequencies, and in words.

    It is the smaller one of two: a teacher of rare classes may say the most frequent one always,
    and one with trees may be sure and wrong.
    """
    proba = np.exp(members.astype(np.float64)).mean(axis=1)
    proba /= proba.sum(axis=1, keepdims=True)  # those of float32 sum to one to 1e-7 only
    labels = np.arange(proba.shape[1])
    shares = np.bincount(y, weight, len(labels)) / weight.sum()
    constant = np.broadcast_to(shares, proba.shape)
    loss, of_constant = (
        log_loss(y, p, labels=labels, sample_weight=weight) for p in (proba, constant)
    )
    accuracy = accuracy_score(y, proba.argmax(axis=1), sample_weight=weight)
    most = shares.max()
    words = f"an accuracy of {accuracy:.3g} (the most frequent class has a share of {most:.3g})"
    return min(loss / of_constant, (1 - accuracy) / (1 - most)), words
