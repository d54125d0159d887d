# SPDX-License-Identifier: BSD-3-Clause
"""The base of meta-estimators that learn from held-out samples."""

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, column_or_1d, indexable
from sklearn.utils.validation import check_is_fitted

from .._estimator.functions import predict_uncertainty
from .._estimator.unwrapping import is_prefitted, tags_of
from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf, Seed, check_parameters
from .._version import API_PAGE_OF_MODULE

PARTS = ("total", "aleatoric", "epistemic")


class HeldOutEstimator(MetaEstimatorMixin, BaseEstimator):
    """Base of what wraps an estimator and learns from samples that it was not fitted on."""

    _doc_link_module, _doc_link_template = "skdistill", API_PAGE_OF_MODULE

    estimator: BaseEstimator
    uncertainty: str | None
    held_out: float
    random_state: RandomStateLike
    estimator_: BaseEstimator

    _parameter_table: dict[str, Any] = {
        "uncertainty": OneOf(PARTS),
        "held_out": Number(Real, 0, 1, closed="neither"),
        "random_state": Seed(),
    }

    def __sklearn_tags__(self) -> Tags:
        tags = tags_of(self.estimator)
        return replace(tags, target_tags=replace(tags.target_tags, multi_output=False))

    def _fit_estimator(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Fit the estimator unless it is frozen; return the held-out samples."""
        check_parameters(self)
        X, y = indexable(X if hasattr(X, "shape") else np.asarray(X), y)
        if y is None:
            raise ValueError("y must be given: requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        self.estimator_ = clone(self.estimator)
        if not is_prefitted(self.estimator):
            X_fit, X, y_fit, y = train_test_split(
                X, y, test_size=self.held_out, random_state=self.random_state
            )
            self.estimator_.fit(X_fit, y_fit)
        return X, y

    @property
    def n_features_in_(self) -> int:
        """Number of features of `estimator_`."""
        check_is_fitted(self)
        return self.estimator_.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features of `estimator_`, if all are text."""
        check_is_fitted(self)
        return self.estimator_.feature_names_in_

    def _uncertainty(self, X: ArrayLike) -> np.ndarray:
        """Return the part of the uncertainty that `uncertainty` names, of shape (n,)."""
        part = predict_uncertainty(self.estimator_, X)._asdict()[str(self.uncertainty)]
        if part is None:
            raise ValueError(
                'uncertainty must be "total" for an estimator that cannot tell the parts, got '
                f"{self.uncertainty!r}."
            )
        return column_or_1d(part)
