# SPDX-License-Identifier: BSD-3-Clause
"""Distillers: from a teacher with members to one network.

All fits share `_base`, `_spec`, `_teacher` and `_student`; the other files are methods.
"""

from .._estimator.calibration import Calibration as Calibration
from ._bdistil import BDistilBooster
from ._bdistil_search import LearnerRecipes as LearnerRecipes
from ._bdistil_search import Round as Round
from ._distribution import DistributionDistiller
from ._gped import GPEDDistiller
from ._hydra import HydraPlusClassifier, HydraPlusRegressor
from ._sequence import SequenceDistributionDistiller

__all__ = [
    "BDistilBooster",
    "DistributionDistiller",
    "GPEDDistiller",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "SequenceDistributionDistiller",
]
