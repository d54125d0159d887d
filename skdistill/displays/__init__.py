# SPDX-License-Identifier: BSD-3-Clause
"""Displays of predictive distributions and their uncertainty.

As in scikit-learn, a display stores the data of its figure, `from_estimator` and similar methods
compute them, and `plot` draws them again in another style. Only drawing needs matplotlib.
"""

from ._calibration import (
    EpistemicCalibrationDisplay,
    RegressionCalibrationDisplay,
    ReliabilityDisplay,
)
from ._comparison import FidelityDisplay, UncertaintyHistogramDisplay
from ._costs import AnytimeDisplay, EarlyPredictionDisplay, ParetoDisplay
from ._decision import DecisionUncertaintyDisplay
from ._display import UNITS, png_of
from ._features import UncertaintyBandDisplay, UncertaintyProfileDisplay
from ._rejection import RejectionCurveDisplay, SparsificationDisplay

__all__ = [
    "AnytimeDisplay",
    "DecisionUncertaintyDisplay",
    "EarlyPredictionDisplay",
    "EpistemicCalibrationDisplay",
    "FidelityDisplay",
    "ParetoDisplay",
    "RegressionCalibrationDisplay",
    "RejectionCurveDisplay",
    "ReliabilityDisplay",
    "SparsificationDisplay",
    "UncertaintyBandDisplay",
    "UncertaintyHistogramDisplay",
    "UncertaintyProfileDisplay",
]
