# SPDX-License-Identifier: BSD-3-Clause
"""Displays of predictive distributions and their uncertainty.

As in scikit-learn, a display stores the data of its figure, `from_estimator` and similar methods
compute them, and `plot` draws them again in another style. Only drawing needs matplotlib.
"""

from ._calibration import EpistemicCalibrationDisplay
from ._comparison import FidelityDisplay
from ._features import UncertaintyBandDisplay

__all__ = [
    "EpistemicCalibrationDisplay",
    "FidelityDisplay",
    "UncertaintyBandDisplay",
]
