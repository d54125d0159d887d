# SPDX-License-Identifier: BSD-3-Clause
"""What a student costs: parameters, operations, and time."""

import time
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import indexable
from threadpoolctl import threadpool_limits

from .._estimator.unwrapping import innermost
from .._training.trainer import suited_threads
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import Number
from ..modules import count_flop
from ..modules import n_parameters as n_parameters_of_module


def n_parameters(estimator: BaseEstimator, X: object = None) -> int:
    """Count the parameters of a fitted estimator's networks.

    Parameters
    ----------
    estimator : estimator
        A fitted skdistill estimator, or a Pipeline, search, FrozenEstimator or
        TransformedTargetRegressor around one.
    X : None
        Ignored; other costs need samples.

    Returns
    -------
    n_parameters : int
        Without buffers, such as the scale of the targets.

    Raises
    ------
    TypeError
        If no estimator with networks is found inside.
    """
    model, _, _ = innermost(estimator, None, "module_", "model_selection.n_parameters")
    return n_parameters_of_module(model.module_)


def flops(estimator: BaseEstimator, X: ArrayLike) -> int:
    """Count the floating-point operations that predicting one sample takes.

    Parameters
    ----------
    estimator : estimator
        As in :func:`n_parameters`.
    X : array-like of shape (n_samples, n_features)
        Only the shape of its first sample matters.

    Returns
    -------
    flops : int
        As torch's ``FlopCounterMode`` counts: additions and multiplications of matrix products and
        convolutions, of all members or heads.
    """
    model, rows, _ = innermost(estimator, _first_rows(X, 1), "module_", "model_selection.flops")
    if np.ndim(rows) < 2:
        raise ValueError(f"X must have samples and features, got shape {np.shape(X)}.")
    return count_flop(model.module_, np.shape(rows)[1:])


def latency(estimator: Any, X: ArrayLike, *, batch_size: int = 1, n_repeats: int = 30) -> float:
    """Measure how long predicting a batch of samples takes, on one thread.

    Parameters
    ----------
    estimator : estimator
        Any fitted estimator with ``predict``.
    X : array-like of shape (n_samples, n_features)
        Samples to predict, repeated if there are fewer than `batch_size`.
    batch_size : int, default=1
    n_repeats : int, default=30
        Number of timed calls, after one to warm up.

    Returns
    -------
    latency : float
        Median time of a call of ``predict`` in seconds, checks of X and other steps of a Pipeline
        included.
    """
    Number(Integral, 1).check(batch_size, "batch_size")
    Number(Integral, 1).check(n_repeats, "n_repeats")
    rows = _first_rows(X, batch_size)
    times = []
    with suited_threads(0.0, n_threads=1), threadpool_limits(1):
        estimator.predict(rows)
        for _ in range(n_repeats):
            start = time.perf_counter()
            estimator.predict(rows)
            times.append(time.perf_counter() - start)
    return float(np.median(times))


def _first_rows(X, n_rows: int):
    """The first samples, repeated from the start if there are fewer."""
    if not np.ndim(X):
        raise TypeError(f"X must be an array-like or a frame of samples, got {X!r}.")
    (X,) = indexable(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if not X.shape[0]:
        raise ValueError(f"X must have at least one sample, got shape {X.shape}.")
    index = np.arange(n_rows) % X.shape[0]
    return X.iloc[index] if hasattr(X, "iloc") else X[index]
