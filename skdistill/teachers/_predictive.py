# SPDX-License-Identifier: BSD-3-Clause
"""Means and variances of regressors that predict a distribution of their own.

They are found by what the model offers, so that no package is imported for it, or made of models
that predict a quantile each:

==========================================  ==================================================
``predict(X, return_std=True)``             scikit-learn's Bayesian regressors, scikit-optimize
``pred_dist(X)``                            NGBoost
``predict(X, output_type="quantiles")``     TabPFN, TabICL and their kin
``predict(X, quantiles=levels)``            quantile-forest
levels of the constructor                   sklearn-quantile (``q``), XGBoost (``quantile_alpha``),
                                            CatBoost (``loss_function="MultiQuantile:alpha=..."``)
==========================================  ==================================================
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from .._estimator.unwrapping import seeded_clone, weights_for
from .._training.trainer import SEED_LIMIT
from .._utils.validation import Seed, errors_about
from ._base import EstimatorOfModels

LEVELS = np.arange(1, 40) / 40  # at which models that know all of their quantiles are asked

# Parameters of `predict` and of constructors that take levels.
_ARGUMENTS = ("quantiles", "alphas")
_PARAMETERS = ("q", "quantile_alpha")


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
    params = model.get_params() if hasattr(model, "get_params") else {}
    given = [params[name] for name in _PARAMETERS if params.get(name) is not None]
    if hasattr(model, "get_all_params"):  # CatBoost
        loss, _, levels = model.get_all_params()["loss_function"].partition(":alpha=")
        given += [levels.split(",")] if loss == "MultiQuantile" else []
    for levels in given:
        levels = np.asarray(levels, dtype=float)
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


class QuantileModels(RegressorMixin, EstimatorOfModels):
    """Regressors that predict a quantile each, as one that predicts a mean and a variance.

    The quantile function is taken to be linear in the standard normal's between the levels and
    beyond them, so that quantiles of a normal distribution have its moments exactly. Quantiles that
    cross are sorted. It may be the `teacher` of a student.

    Parameters
    ----------
    models : list of estimators
        Such as ``HistGradientBoostingRegressor(loss="quantile", quantile=0.1)``, of one target.
        Each is cloned and fitted; one that is fitted already comes in a ``FrozenEstimator``.
    quantiles : array-like of shape (n_models,)
        The level of each model, between 0 and 1: at least two different ones.
    random_state : int, RandomState instance or None, default=None
        For models whose own ``random_state`` is None.

    Attributes
    ----------
    models_ : list of estimators
        The fitted models.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
    """

    def __init__(
        self,
        models: Any,
        quantiles: Any,
        *,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.models = models
        self.quantiles = quantiles
        self.random_state = random_state

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Fit each model; levels must be as many, between 0 and 1, and not all the same."""
        Seed().check(self.random_state, "random_state")
        with errors_about("quantiles"):
            levels = check_array(
                self.quantiles, dtype=float, ensure_2d=False, input_name="quantiles"
            )
        if levels.shape != (len(self.models),) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(
                f"quantiles must be {len(self.models)} levels between 0 and 1, one a model; got "
                f"{self.quantiles!r}."
            )
        if len(np.unique(levels)) < len(levels) or len(levels) < 2:
            raise ValueError(f"quantiles must be two different levels or more, got {levels}.")
        random = check_random_state(self.random_state)
        models = [seeded_clone(model, random.randint(SEED_LIMIT)) for model in self.models]
        self.models_ = [m.fit(X, y, **weights_for(m, sample_weight)) for m in models]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean, and the standard deviation if asked for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,)
            Only if `return_std`.
        """
        check_is_fitted(self)
        quantiles = np.stack([model.predict(X) for model in self.models_], axis=1)
        mean, variance = moments_of_quantiles(quantiles, self.quantiles)
        return (mean, np.sqrt(variance)) if return_std else mean
