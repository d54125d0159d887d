# SPDX-License-Identifier: BSD-3-Clause
"""Functions that predict with a skdistill estimator inside Pipelines, searches and the like.

scikit-learn's meta-estimators delegate ``predict``, but not the methods of this package.
"""

from __future__ import annotations

import numpy as np

from ._meta_estimators import innermost
from ._read_offs import as_frame
from .distributions import EmpiricalGaussian, Uncertainty

__all__ = [
    "predict_frame",
    "predict_interval",
    "predict_members",
    "predict_quantiles",
    "predict_uncertainty",
]

# Nodes of the quadrature for members after the inverse transform of a target.
_N_NODES = 32


def predict_uncertainty(model, X) -> Uncertainty:
    """Predict the parts of the uncertainty with an estimator or a meta-estimator around one.

    scikit-learn's meta-estimators delegate ``predict``, but not ``predict_uncertainty``; this
    function finds the estimator inside. On a bare estimator it is its method.

    Parameters
    ----------
    model : estimator
        A fitted skdistill estimator, or a Pipeline, search (GridSearchCV and its kin),
        FrozenEstimator or TransformedTargetRegressor around one.
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
        If no estimator with ``predict_uncertainty`` is found inside `model`.
    """
    estimator, X, inverses = innermost(model, X, "predict_uncertainty")
    if not inverses:
        return estimator.predict_uncertainty(X)
    members = transformed_members(inverses, estimator.predict_members(X))
    parts = EmpiricalGaussian.from_members(members).uncertainty()
    total, aleatoric, epistemic = (
        part.numpy()[:, 0] if part.shape[1] == 1 else part.numpy() for part in parts
    )
    if members.shape[1] == 1:
        return Uncertainty(total, None, None, measure="variance")
    return Uncertainty(total, aleatoric, epistemic, measure="variance")


def predict_members(model, X) -> np.ndarray:
    """Predict with every member; see :func:`predict_uncertainty`.

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


def predict_quantiles(model, X, quantiles) -> np.ndarray:
    """Predict quantiles; see :func:`predict_uncertainty`.

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


def predict_interval(model, X, coverage=0.9) -> np.ndarray:
    """Predict central intervals; see :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)
    coverage : float or array-like of shape (n_coverages,), default=0.9

    Returns
    -------
    interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Exact through every monotone transform of the target. Several coverages give one more axis
        before the last, (n_samples, n_coverages, 2).
    """
    estimator, X, inverses = innermost(model, X, "predict_interval")
    interval = estimator.predict_interval(X, coverage)
    if not inverses:
        return interval
    last = interval.shape[-2:] if np.ndim(coverage) else interval.shape[-1:]
    ends = interval.reshape(*interval.shape[: -len(last)], -1)
    ends = _transformed_quantiles(inverses, ends)
    return np.sort(ends.reshape(*ends.shape[:-1], *last), axis=-1)


def predict_frame(model, X, coverage=0.9):
    """Predict what a service answers with, as one table; see :func:`predict_uncertainty`.

    Parameters
    ----------
    model : estimator
    X : array-like of shape (n_samples, n_features)
    coverage : float, default=0.9
        Probability of y being between `lower` and `upper`, for a regressor.

    Returns
    -------
    frame : DataFrame of shape (n_samples, n_columns)
        With the index of `X`. The columns are those of the estimator's method ``predict_frame``:
        `prediction`, `std`, `aleatoric`, `epistemic`, `lower` and `upper` for numbers.
    """
    estimator, rows, inverses = innermost(model, X, "predict_frame")
    if not inverses:
        frame = estimator.predict_frame(rows, coverage)
        return frame.set_axis(X.index) if hasattr(X, "iloc") and hasattr(frame, "iloc") else frame
    total, aleatoric, epistemic = predict_uncertainty(model, X)
    table = {"prediction": model.predict(X), "std": np.sqrt(total)}
    if epistemic is not None:
        table |= {"aleatoric": aleatoric, "epistemic": epistemic}
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
