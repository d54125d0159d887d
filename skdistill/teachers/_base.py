# SPDX-License-Identifier: BSD-3-Clause
"""What estimators of models have in common."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin

from .._version import API_PAGE_OF_MODULE


class EstimatorOfModels(MetaEstimatorMixin, BaseEstimator, ABC):
    """Base of estimators of models, the first of which knows the columns of X."""

    _doc_link_module, _doc_link_template = "skdistill", API_PAGE_OF_MODULE

    @abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the models.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, for models that take them, in a Pipeline for the last step.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a model or a parameter is not one that the class describes.
        """

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """Predict the class of the largest mean probability, or the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """

    @property
    def _first_model(self) -> BaseEstimator:
        models = vars(self).get("models_") or [self.estimator_]
        return next(model for model in models if model is not None)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return self._first_model.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns of X."""
        return self._first_model.feature_names_in_
