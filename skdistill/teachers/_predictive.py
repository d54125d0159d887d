# SPDX-License-Identifier: BSD-3-Clause
"""Means and variances of regressors that predict a distribution of their own.

They are found by what the model offers, so that no package is imported for it:

==========================================  ==================================================
``predict(X, return_std=True)``             scikit-learn's Bayesian regressors, scikit-optimize
``pred_dist(X)``                            NGBoost
``predict(X, output_type="quantiles")``     TabPFN, TabICL and their kin
``predict(X, quantiles=levels)``            quantile-forest
levels of the constructor                   sklearn-quantile (``q``), XGBoost (``quantile_alpha``)
==========================================  ==================================================
"""

from __future__ import annotations

import inspect

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.dummy import DummyRegressor

# Levels at which models that know all of their quantiles are asked.
LEVELS = np.arange(1, 40) / 40

# Parameters of `predict` that take levels, and attributes that hold them.
_ARGUMENTS = ("quantiles", "alphas")
_ATTRIBUTES = ("q", "quantile_alpha")


def predictive_moments(model, X) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and variance (n, ...) that a fitted regressor predicts; None without a variance."""
    if hasattr(model, "pred_dist"):
        distribution = model.pred_dist(X)
        return np.asarray(distribution.mean()), np.square(distribution.std())
    accepted = inspect.signature(model.predict).parameters
    # DummyRegressor takes return_std for the sake of its place in pipelines, and returns zeros.
    if "return_std" in accepted and not isinstance(model, DummyRegressor):
        mean, std = model.predict(X, return_std=True)
        return np.asarray(mean), np.square(std)
    found = predicted_quantiles(model, X)
    return None if found is None else moments_of_quantiles(*found)


def predicted_quantiles(model, X) -> tuple[np.ndarray, np.ndarray] | None:
    """Quantiles (n, q) and their levels (q,), of a model that predicts at least two."""
    accepted = inspect.signature(model.predict).parameters
    if named := [name for name in _ARGUMENTS if name in accepted]:
        levels = LEVELS.tolist()
        more = {"output_type": "quantiles"} if "output_type" in accepted else {}
        return _rows_first(model.predict(X, **{named[0]: levels}, **more), LEVELS), LEVELS
    for name in _ATTRIBUTES:
        levels = np.asarray(getattr(model, name, 0.0), dtype=float)
        if levels.ndim == 1 and len(levels) > 1:
            return _rows_first(model.predict(X), levels), levels
    return None


def _rows_first(quantiles, levels: np.ndarray) -> np.ndarray:
    """Quantiles as (n, q): a list has one array for each level; so do some arrays."""
    found = np.asarray(quantiles, dtype=float)
    if isinstance(quantiles, (list, tuple)) or found.shape[1:] != levels.shape:
        found = found.T
    if found.shape[1:] != levels.shape:
        raise ValueError(
            f"teacher must predict a quantile for each sample and each of {len(levels)} levels, "
            f"got shape {found.T.shape}."
        )
    return found


def moments_of_quantiles(
    quantiles: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of distributions of which some quantiles (n, q) are known.

    Between the levels (q,), and beyond the outer ones, the quantile is linear in the standard
    normal's quantile z. So those of a normal distribution give its moments exactly, from any two
    levels. Quantiles that cross are sorted.
    """
    order = np.argsort(levels)
    z = ndtri(np.asarray(levels)[order])
    values = np.sort(quantiles, axis=1)
    slopes = np.diff(values, axis=1) / np.diff(z)
    offsets = values[:, :-1] - slopes * z[:-1]
    # Moments of the standard normal between the inner levels; the outer pieces have no end.
    ends = np.concatenate([[-np.inf], z[1:-1], [np.inf]])
    density = np.exp(-0.5 * np.square(ends)) / np.sqrt(2 * np.pi)
    weighted = np.where(np.isinf(ends), 0.0, ends) * density
    mass, first = np.diff(ndtr(ends)), -np.diff(density)
    second = mass - np.diff(weighted)
    mean = offsets @ mass + slopes @ first
    gaps = offsets - mean[:, None]  # squares of values far from 0 would lose the variance
    variance = np.square(gaps) @ mass + 2 * (gaps * slopes) @ first + np.square(slopes) @ second
    return mean, np.maximum(variance, 0)
