# SPDX-License-Identifier: BSD-3-Clause
"""Decisions under uncertainty: selective prediction, and conformal intervals of predicted width.

Meta-estimators around any model that :func:`skdistill.predict_uncertainty` accepts. Their
guarantees rest on held-out samples, not on the model being correct. A fitted model is given in a
:class:`~sklearn.frozen.FrozenEstimator`, and `fit` takes the held-out samples; any other is cloned,
and fitted to a part of the samples.
"""

from ._conformal import ConformalRegressor
from ._selective import SelectivePredictor

__all__ = ["ConformalRegressor", "SelectivePredictor"]
