# SPDX-License-Identifier: BSD-3-Clause
"""Distillers: from a teacher with members to one network."""

from .._estimator.calibration import Calibration as Calibration
from .bdistil._estimator import BDistilBooster
from .bdistil._plan import LearnerRecipes as LearnerRecipes
from .bdistil._search import Round as Round
from .distribution._estimator import DistributionDistiller
from .gped._estimator import GPEDDistiller
from .hydra._estimator import HydraPlusClassifier, HydraPlusRegressor
from .sequence._estimator import SequenceDistributionDistiller

__all__ = [
    "BDistilBooster",
    "DistributionDistiller",
    "GPEDDistiller",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "SequenceDistributionDistiller",
]
