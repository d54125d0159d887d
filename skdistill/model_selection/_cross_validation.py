# SPDX-License-Identifier: BSD-3-Clause
"""Cross-validation of the uncertainty."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import cross_val_predict
from sklearn.utils.metadata_routing import get_routing_for_object

from .._estimator.functions import predict_uncertainty
from .._estimator.unwrapping import tags_of
from ..distributions import Uncertainty


def cross_val_predict_uncertainty(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike | None = None, **kwargs: object
) -> Uncertainty:
    """Predict the uncertainty of every sample by a clone that has not seen the sample in its fit.

    :func:`~sklearn.model_selection.cross_val_predict`, which takes no method but scikit-learn's
    own, for :func:`skdistill.predict_uncertainty`; everything else is as there.

    Parameters
    ----------
    estimator : estimator
        Anything that :func:`skdistill.predict_uncertainty` takes: an estimator of this package, a
        Pipeline around one, a VotingRegressor of several. It is not fitted here, its clones are. A
        teacher in a FrozenEstimator is cloned as it is: it may have seen the samples left out.
    X, y
        As in :func:`~sklearn.model_selection.cross_val_predict`.
    **kwargs : dict
        Its keywords, all but `method`. `cv` must put every sample into one test fold; `params` are
        arguments of the fit, such as ``{"sample_weight": weights}``, or
        ``{"<step>__sample_weight": weights}`` for a Pipeline.

    Returns
    -------
    uncertainty : Uncertainty
        As the estimator's ``predict_uncertainty(X)`` returns it, samples in the order of `X`.

    Raises
    ------
    TypeError
        If `estimator` has no uncertainty to predict.
    ValueError
        If the test folds of `cv` are no partition of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.model_selection import cross_val_predict_uncertainty
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> uncertainty = cross_val_predict_uncertainty(model, X, y, cv=3)
    >>> uncertainty.epistemic.shape, uncertainty.measure
    ((442,), 'variance')
    """
    if "method" in kwargs:
        raise TypeError(f"method is that of the uncertainty, got {kwargs['method']!r}.")
    parts = cross_val_predict(_PredictsParts(estimator), X, y, **kwargs)
    total, *others = np.moveaxis(parts, 1, 0)
    aleatoric, epistemic = (None if np.isnan(part).any() else part for part in others)
    measure = "entropy" if is_classifier(estimator) else "variance"
    return Uncertainty(total, aleatoric, epistemic, measure=measure)


class _PredictsParts(MetaEstimatorMixin, BaseEstimator):
    """An estimator whose ``predict`` returns the parts of the uncertainty, (n, 3, ...).

    Parts that a model cannot tell are NaN.
    """

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y=None, **params):
        self.estimator_ = clone(self.estimator).fit(X, y, **params)
        return self

    def predict(self, X) -> np.ndarray:
        found = predict_uncertainty(self.estimator_, X)
        unknown = np.full_like(found.total, np.nan)
        return np.stack([unknown if part is None else part for part in found], axis=1)

    def __sklearn_tags__(self):
        return tags_of(self.estimator)

    def get_metadata_routing(self):
        return get_routing_for_object(self.estimator)
