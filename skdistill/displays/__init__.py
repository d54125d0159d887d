# SPDX-License-Identifier: BSD-3-Clause
"""Displays of predictive distributions and their uncertainty.

As in scikit-learn, a display stores the data of its figure, `from_estimator` and similar methods
compute them, and `plot` draws them again in another style. Only drawing needs matplotlib.
"""

from ._anytime import AnytimeDisplay, EarlyPredictionDisplay
from ._bands import UncertaintyBandDisplay
from ._calibration import RegressionCalibrationDisplay
from ._decision import DecisionUncertaintyDisplay
from ._drawing import UNITS, png_of
from ._fidelity import FidelityDisplay
from ._histograms import UncertaintyHistogramDisplay
from ._pareto import ParetoDisplay
from ._profile import UncertaintyProfileDisplay
from ._rejection import RejectionCurveDisplay
from ._reliability import ReliabilityDisplay
from ._sparsification import SparsificationDisplay

__all__ = [
    "AnytimeDisplay",
    "DecisionUncertaintyDisplay",
    "EarlyPredictionDisplay",
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
