# SPDX-License-Identifier: BSD-3-Clause
"""The residual variance, for regressors that predict none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.model_selection import KFold

from .._data.checks import check_weights
from .._estimator.unwrapping import final_step, is_prefitted, is_search
from .._utils.moments import standardisation
from ._members import group_moments
from ._rows_and_folds import fits_on_folds, in_batches, in_chunks, rows_at

_N_FOLDS = 5

# The variance is at least the square of this, in units of the standard deviation of y.
LEAST_STD = 1e-3


def residual_variance(
    estimator, fitted, read: Callable, X, y, sample_weight, batch_size: int | None = None
) -> np.ndarray:
    """Mean squared difference between y and predictions of models that have not seen the sample.

    `estimator` is the regressor unfitted, `fitted` the same as fitted on X and y, and `read` gives
    the moments (n, S, t, 3) of its members. The result, (t,), is in squared units of y, positive.
    Models predict at most `batch_size` samples at a time.
    """
    weight = check_weights(sample_weight, len(y))
    if is_prefitted(estimator):
        means = in_chunks(read, X, lambda moments, _: group_moments(moments, 1)[:, 0, :, 0])
    elif (unseen := _out_of_bag(final_step(fitted)[0], len(y))) is not None:
        means = in_chunks(read, X, lambda moments, rows: _mean_of(moments, unseen[rows]))
    else:
        tuned = fitted.best_estimator_ if is_search(fitted) else estimator
        means = _out_of_fold(tuned, X, y, weight, batch_size)
    return mean_squared_residual(means, y.reshape(means.shape), weight)


def mean_squared_residual(means: np.ndarray, y: np.ndarray, weight) -> np.ndarray:
    """Weighted mean (t,) of the squared differences of y and `means`, (n, t), where these are."""
    targets = y.astype(np.float64)
    known = np.isfinite(means).all(axis=1)
    if weight is not None and not weight[known].any():
        raise ValueError(
            "sample_weight must be positive for a sample that a model has not seen when it was "
            "fitted, or the residual variance cannot be estimated; it is 0 for all of these."
        )
    squares = np.square(targets[known] - means[known])
    variance = np.average(squares, axis=0, weights=None if weight is None else weight[known])
    return np.maximum(variance, least_variance(standardisation(targets, weight)[1]))


def least_variance(scale: np.ndarray) -> np.ndarray:
    """Return the least variance of targets whose standard deviation is `scale`."""
    return np.square(LEAST_STD * scale)


def with_variance(moments: np.ndarray, residual: np.ndarray | None, scale) -> np.ndarray:
    """Means and variances (n, S, t, 2) from moments (n, S, t, 3).

    `residual` is the residual variance (t,), None where members predict all of their variance,
    which is then at least :func:`least_variance` of the targets' standard deviations `scale`.
    """
    members, share = moments[..., :2].copy(), moments[..., 2]
    if residual is not None:
        members[..., 1] += share * residual
    else:
        members[..., 1] = np.maximum(members[..., 1], least_variance(scale))
    return members


def _out_of_bag(model, n_rows: int) -> np.ndarray | None:
    """Which samples each member has not seen, (n, S); None if all have seen most of them."""
    if not hasattr(model, "estimators_samples_"):
        return None
    unseen = np.ones((n_rows, len(model.estimators_)), dtype=bool)
    for member, seen in enumerate(model.estimators_samples_):
        unseen[seen, member] = False
    return unseen if unseen.any(axis=1).mean() > 0.5 else None


def _mean_of(moments: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Mean (n, t) of those members that have not seen the sample; NaN where there are none."""
    counts = unseen.sum(axis=1)[:, None]
    sums = np.einsum("nst,ns->nt", moments[..., 0], unseen)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _out_of_fold(estimator, X, y: np.ndarray, weight, batch_size: int | None) -> np.ndarray:
    """Predictions (n, t) by models fitted without the sample's fold."""
    means = np.empty((len(y), y.size // len(y)))
    folds = KFold(min(_N_FOLDS, max(2, len(y))), shuffle=True, random_state=0)
    for model, rows in fits_on_folds(estimator, X, y, weight, folds):
        found = in_batches(model.predict, rows_at(X, rows), batch_size)
        means[rows] = np.reshape(found, (len(rows), -1))
    return means
