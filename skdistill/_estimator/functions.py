# SPDX-License-Identifier: BSD-3-Clause
"""Functions that predict with a skdistill estimator inside Pipelines, searches and the like."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr
from sklearn.base import BaseEstimator, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, VotingClassifier, VotingRegressor
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.utils.validation import check_is_fitted

from ..distributions import EmpiricalGaussian, Uncertainty
from .predicting import as_frame, deviations
from .unwrapping import components_and_rows, final_step, has_inside, innermost

_N_NODES = 32  # nodes of the quadrature for members after the inverse transform of a target

# Meta-estimators of several estimators, through which `predict_uncertainty` looks.
_VOTING = (VotingClassifier, VotingRegressor)
_MIXTURES = (BaggingClassifier, BaggingRegressor, CalibratedClassifierCV, *_VOTING)
_MULTI_OUTPUT = (MultiOutputClassifier, MultiOutputRegressor)


def predict_uncertainty(model: BaseEstimator, X: ArrayLike) -> Uncertainty:
    r"""Predict total, aleatoric and epistemic uncertainty, also for models inside meta-estimators.

    These delegate ``predict``, but not ``predict_uncertainty``. Of a bare estimator the method is
    called.

    Parameters
    ----------
    model : estimator
        A fitted skdistill estimator, or a Pipeline, search (GridSearchCV and its kin),
        FrozenEstimator or TransformedTargetRegressor around one; or Voting, Bagging, MultiOutput
        or CalibratedClassifierCV of such.
    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    uncertainty : Uncertainty
        Arrays of shape (n_samples,) or (n_samples, n_targets). Through the inverse transform of a
        TransformedTargetRegressor the moments of each member are found by Gauss-Hermite
        quadrature: exact for linear transforms, close for smooth ones.

    Raises
    ------
    TypeError
        If there is no ``predict_uncertainty`` inside `model`, such as in a voter that is
        scikit-learn's own; :func:`skdistill.teachers.as_teacher` makes an estimator with it.
    ValueError
        If a VotingClassifier counts votes (``voting="hard"``), which have no uncertainty.

    Notes
    -----
    Estimators :math:`i` that vote with weights :math:`w_i` (of a sum of one), or stand in a bag,
    predict a mixture. Its uncertainty is that of the estimators, and of which of them is right:

    .. math::

        \text{aleatoric} &= \textstyle\sum_i w_i \, \text{aleatoric}_i \\
        \text{epistemic} &= \textstyle\sum_i w_i \, \text{epistemic}_i + \text{between}

    with the variance of their means, :math:`\sum_i w_i (\mu_i - \bar\mu)^2`, by the law of total
    variance, or the mutual information :math:`H(\bar p) - \sum_i w_i H(p_i)` between them. One that
    cannot tell its parts, such as a single network, has aleatoric uncertainty only. MultiOutput
    has a column for each of its estimators. CalibratedClassifierCV averages its classifiers; a
    calibrated one has the entropy of the probabilities that it predicts, in which the epistemic
    part has the share that it has in the classifier inside. A stack is no mixture: its last
    estimator reads the predictions of the others, and does not know how sure they were.
    """
    found = innermost(model, X, "predict_uncertainty", composites=_MIXTURES + _MULTI_OUTPUT)
    estimator, rows, inverses = found
    if inverses or isinstance(estimator, _MIXTURES):
        return _answer(*found).uncertainty
    if isinstance(estimator, _MULTI_OUTPUT):
        check_is_fitted(estimator)
        return _side_by_side([predict_uncertainty(one, rows) for one in estimator.estimators_])
    return estimator.predict_uncertainty(rows)


def has_uncertainty(model: BaseEstimator) -> bool:
    """Tell whether :func:`predict_uncertainty` takes the model, or its kind, once fitted."""
    composites = _MIXTURES + _MULTI_OUTPUT
    return has_inside(model, "predict_uncertainty") or isinstance(final_step(model)[0], composites)


def predict_members(model: BaseEstimator, X: ArrayLike) -> np.ndarray:
    """Predict with each member; accepts the models of :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    members : ndarray of shape (n_samples, n_members, n_targets, 2) or \
            (n_samples, n_members, n_classes)
        Means and variances, or class probabilities.
    """
    estimator, X, inverses = innermost(model, X, "predict_members")
    return transformed_members(inverses, estimator.predict_members(X))


def predict_quantiles(model: BaseEstimator, X: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Predict quantiles of y; accepts the models of :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)
    quantiles : float or array-like of shape (n_quantiles,)

    Returns
    -------
    quantiles : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_targets, n_quantiles)
        Exact through every monotone transform of the target.
    """
    estimator, X, inverses = innermost(model, X, "predict_quantiles")
    if not inverses:
        return estimator.predict_quantiles(X, quantiles)
    levels = np.atleast_1d(np.asarray(quantiles, dtype=float))
    straight = _transformed_quantiles(inverses, estimator.predict_quantiles(X, levels))
    mirrored = _transformed_quantiles(inverses, estimator.predict_quantiles(X, 1 - levels))
    # A decreasing transform turns the quantile at q into the one at 1 - q.
    return np.where(levels < 0.5, np.minimum(straight, mirrored), np.maximum(straight, mirrored))


def predict_interval(model: BaseEstimator, X: ArrayLike, coverage: ArrayLike = 0.9) -> np.ndarray:
    """Predict central intervals; accepts the models of :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)
    coverage : float or array-like of shape (n_coverages,), default=0.9

    Returns
    -------
    interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Exact through every monotone transform of the target. Several coverages are one more axis,
        (n_samples, n_coverages, 2).
    """
    estimator, X, inverses = innermost(model, X, "predict_interval")
    interval = estimator.predict_interval(X, coverage)
    if not inverses:
        return interval
    last = interval.shape[-2:] if np.ndim(coverage) else interval.shape[-1:]
    ends = interval.reshape(*interval.shape[: -len(last)], -1)
    ends = _transformed_quantiles(inverses, ends)
    return np.sort(ends.reshape(*ends.shape[:-1], *last), axis=-1)


def predict_frame(model: Any, X: Any, coverage: ArrayLike = 0.9) -> Any:
    """Predict a table with uncertainty; accepts the models of :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)
    coverage : float, default=0.9
        Probability of y being between `lower` and `upper`, for a regressor.

    Returns
    -------
    frame : DataFrame of shape (n_samples, n_columns)
        With the index of `X`, and the columns of the estimator's method ``predict_frame``.
    """
    estimator, rows, inverses = innermost(model, X, "predict_frame")
    if not inverses:
        frame = estimator.predict_frame(rows, coverage)
        return frame.set_axis(X.index) if hasattr(X, "iloc") and hasattr(frame, "iloc") else frame
    table = {"prediction": model.predict(X), **deviations(predict_uncertainty(model, X))}
    interval = predict_interval(model, X, coverage)
    return as_frame(table | {"lower": interval[..., 0], "upper": interval[..., 1]}, X)


def _transformed_quantiles(inverses, values: np.ndarray) -> np.ndarray:
    """Apply inverse transforms of the targets to values of shape (n, q) or (n, t, q)."""
    for inverse in inverses:
        rows = values[:, None] if values.ndim == 2 else values  # (n, t, q)
        columns = np.moveaxis(rows, 2, 1).reshape(-1, rows.shape[1])
        out = np.asarray(inverse(columns)).reshape(len(rows), rows.shape[2], -1)
        out = np.moveaxis(out, 1, 2)
        values = out[:, 0] if values.ndim == 2 else out
    return values


def transformed_members(inverses, members: np.ndarray) -> np.ndarray:
    """Moments of each member's Gaussian after the inverse transforms, by Gauss-Hermite."""
    if not inverses:
        return members
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NODES)
    weights = weights / weights.sum()
    mean, std = members[..., 0], np.sqrt(members[..., 1])
    values = mean + std * nodes[:, None, None, None]  # (nodes, n, S, t)
    columns = values.reshape(-1, values.shape[-1])
    for inverse in inverses:
        columns = np.asarray(inverse(columns)).reshape(len(columns), -1)
    values = columns.reshape(*values.shape[:-1], -1)
    mean = np.tensordot(weights, values, axes=1)
    variance = np.tensordot(weights, np.square(values - mean), axes=1)
    return np.stack([mean, variance], axis=-1)


def align_classes(probabilities: np.ndarray, given: Any, wanted: Any) -> np.ndarray:
    """Put columns of class probabilities in another order, zero for classes not given.

    Parameters
    ----------
    probabilities : ndarray of shape (..., len(given))
    given, wanted : array-like of shape (n_given,) and (n_classes,)
        The class of each column, and of each column of the result.

    Returns
    -------
    probabilities : ndarray of shape (..., n_classes)

    Raises
    ------
    ValueError
        If a class in `given` is not in `wanted`.
    """
    given, wanted = np.asarray(given).tolist(), np.asarray(wanted).tolist()
    if given == wanted:
        return probabilities
    if unknown := [label for label in given if label not in wanted]:
        raise ValueError(f"Classes must be among {wanted}, got also {unknown}.")
    aligned = np.zeros((*probabilities.shape[:-1], len(wanted)), dtype=probabilities.dtype)
    aligned[..., [wanted.index(label) for label in given]] = probabilities
    return aligned


# --- the uncertainty of several estimators ----------------------------------------------------


class _Answer(NamedTuple):
    """What an estimator predicts, and how sure it is of it."""

    centre: np.ndarray  # class probabilities (n, K), or means (n,) or (n, t)
    uncertainty: Uncertainty


def _answer(model, X, inverses=()) -> _Answer:
    """Predict for samples; `inverses` are applied to targets after those inside of the model."""
    model, X, own = innermost(model, X, "predict_uncertainty", composites=_MIXTURES + _MULTI_OUTPUT)
    inverses = [*own, *inverses]
    if isinstance(model, _MIXTURES):
        return _mixture(model, X, inverses)
    if isinstance(model, _MULTI_OUTPUT):
        check_is_fitted(model)
        if inverses:
            raise TypeError(
                f"{type(model).__name__} must be around TransformedTargetRegressor, not inside of "
                "it, for predict_uncertainty: the transform may mix targets that are predicted "
                "apart."
            )
        answers = [_answer(one, X) for one in model.estimators_]
        means = np.column_stack([answer.centre for answer in answers])
        return _Answer(means, _side_by_side([answer.uncertainty for answer in answers]))
    if inverses:
        members = transformed_members(inverses, model.predict_members(X))
        distribution = EmpiricalGaussian.from_members(members)
        found = (distribution.mean, *distribution.uncertainty())
        is_1d, has_parts = members.shape[2] == 1, members.shape[1] > 1
        mean, total, *both = (part.numpy()[:, 0] if is_1d else part.numpy() for part in found)
        aleatoric, epistemic = both if has_parts else (None, None)
        return _Answer(mean, Uncertainty(total, aleatoric, epistemic, measure="variance"))
    centre = model.predict_proba(X) if is_classifier(model) else model.predict(X)
    return _Answer(centre, model.predict_uncertainty(X))


def _side_by_side(columns: list[Uncertainty]) -> Uncertainty:
    """Put uncertainties (n,) into columns; without parts if one has none."""
    total, aleatoric, epistemic = (
        None if any(column is None for column in part) else np.column_stack(part)
        for part in zip(*columns, strict=True)
    )
    return Uncertainty(total, aleatoric, epistemic, measure=columns[0].measure)


def _mixture(model, X, inverses) -> _Answer:
    """Answer of a mixture, by the law of total variance or the chain rule of mutual information."""
    check_is_fitted(model)
    if isinstance(model, VotingClassifier) and model.voting == "hard":
        raise ValueError(
            'VotingClassifier must have voting="soft" for predict_uncertainty, got "hard": votes '
            "do not tell how sure they are."
        )
    answers, shares = [], []
    for member, weight, rows in components_and_rows(model, X):
        is_calibrated = isinstance(model, CalibratedClassifierCV)
        answer = _calibrated(member, rows) if is_calibrated else _answer(member, rows, inverses)
        if is_classifier(model) and not is_calibrated:
            centre = align_classes(answer.centre, member.classes_, range(len(model.classes_)))
            answer = answer._replace(centre=centre)
        answers.append(answer)
        shares.append(weight)
    weights = np.array(shares)  # whose sum is one
    centres = np.stack([answer.centre for answer in answers])  # (S, n, ...)
    centre = np.tensordot(weights, centres, axes=1)
    measure = answers[0].uncertainty.measure
    if len(answers) == 1:
        return _Answer(centre, answers[0].uncertainty)
    parts = []
    for total, aleatoric, epistemic in (answer.uncertainty for answer in answers):
        if epistemic is None:  # all of it is aleatoric where the parts are not known
            aleatoric, epistemic = total, np.zeros_like(total)
        parts.append((total, aleatoric, epistemic))
    total, aleatoric, epistemic = (
        np.tensordot(weights, np.stack(part), axes=1) for part in zip(*parts, strict=True)
    )
    if measure == "variance":
        between = np.tensordot(weights, np.square(centres - centre), axes=1)
    else:
        entropies = np.tensordot(weights, entr(centres).sum(axis=-1), axes=1)
        between = np.maximum(entr(centre).sum(axis=-1) - entropies, 0)  # of rounding, below 0
    found = total + between, aleatoric, epistemic + between
    return _Answer(centre, Uncertainty(*found, measure=measure))


def _calibrated(calibrated, X) -> _Answer:
    """Answer of one of the classifiers in CalibratedClassifierCV.

    Calibration changes the mean prediction, and says nothing of the members that it is the mean of;
    so the epistemic part keeps its share in the total.
    """
    before = _answer(calibrated.estimator, X).uncertainty
    probabilities = calibrated.predict_proba(X)
    total = entr(probabilities).sum(axis=-1)
    if before.epistemic is None:
        return _Answer(probabilities, Uncertainty(total, None, None, measure="entropy"))
    share = np.divide(
        before.epistemic, before.total, out=np.zeros_like(before.total), where=before.total > 0
    )
    parts = total * (1 - share), total * share
    return _Answer(probabilities, Uncertainty(total, *parts, measure="entropy"))
