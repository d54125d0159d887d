# SPDX-License-Identifier: BSD-3-Clause
"""What to do with an uncertainty: abstain, and intervals that hold, with guarantees.

Meta-estimators around anything that :func:`skdistill.predict_uncertainty` takes. What they promise
rests on held-out samples, not on the model being right. A fitted model is given in a
:class:`~sklearn.frozen.FrozenEstimator`, and `fit` has the held-out samples; any other is cloned,
and fitted on a part of the samples.
"""

from ._adaptive import AdaptiveConformalRegressor
from ._conformal import ConformalRegressor
from ._selective import SelectivePredictor

__all__ = ["AdaptiveConformalRegressor", "ConformalRegressor", "SelectivePredictor"]
