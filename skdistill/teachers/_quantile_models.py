# SPDX-License-Identifier: BSD-3-Clause
"""Regressors that predict a quantile each, as one that predicts a mean and a variance."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from .._estimator.unwrapping import seeded_clone, weights_for
from .._training.trainer import SEED_LIMIT
from .._utils.validation import Seed, errors_about
from ._base import EstimatorOfModels
from ._predictive import moments_of_quantiles


class QuantileModels(RegressorMixin, EstimatorOfModels):
    """Regressors that predict a quantile each, as one that predicts a mean and a variance.

    The quantile function is taken to be linear in the standard normal's between the levels and
    beyond them, so that quantiles of a normal distribution have its moments exactly. Quantiles that
    cross are sorted. Use :func:`as_teacher` to make a teacher of models.

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
        self._check()
        random = check_random_state(self.random_state)
        models = [seeded_clone(model, random.randint(SEED_LIMIT)) for model in self.models]
        self.models_ = [m.fit(X, y, **weights_for(m, sample_weight)) for m in models]
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    @property
    def _first_model(self) -> Any:
        return self.models_[0]

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

    def _check(self) -> None:
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
