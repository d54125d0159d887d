# SPDX-License-Identifier: BSD-3-Clause
"""Samples far from those of training."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from .._utils.validation import Number


def move(X: Any, by: float, feature: int | None = None, scale: Any = None) -> np.ndarray:
    """Move samples by so many standard deviations, in one feature or in all.

    A model should be uncertain of samples that are far from those of training.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Numbers; NaN stays.
    by : float
        Number of standard deviations, negative ones for smaller values.
    feature : int, default=None
        Number of the feature to move. None moves all.
    scale : float or array-like of shape (n_features,), default=None
        Standard deviations of the training samples. None takes those of `X`. A feature of scale 0
        stays as it is.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features), float
        ``X + by * scale``, a copy.

    See Also
    --------
    skdistill.model_selection.unseen_scores : Scores a model on such samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.datasets import move
    >>> move([[0.0, 1.0], [2.0, 1.0]], by=4, feature=0)
    array([[4., 1.],
           [6., 1.]])
    """
    X = check_array(X, dtype=(np.float64, np.float32), ensure_all_finite="allow-nan", copy=True)
    Number(Real, -np.inf).check(by, "by")
    scale = np.nanstd(X, axis=0) if scale is None else np.asarray(scale, dtype=float)
    step = np.broadcast_to(by * scale, X.shape[1:])
    if feature is None:
        return (X + step).astype(X.dtype)
    if not -X.shape[1] <= feature < X.shape[1]:
        raise ValueError(f"feature must be one of the {X.shape[1]} of X, got {feature!r}.")
    X[:, feature] += step[feature]
    return X
