# SPDX-License-Identifier: BSD-3-Clause
"""Distillers: from a teacher with members to one network."""

from __future__ import annotations

from .._calibration import Calibration as Calibration
from ._bdistil import BDistilBooster
from ._bdistil_search import Round as Round
from ._distribution import DistributionDistiller
from ._gped import GPEDDistiller
from ._hydra import HydraPlusClassifier, HydraPlusRegressor
from ._plans import LearnerRecipes as LearnerRecipes
from ._sequence import SequenceDistributionDistiller

__all__ = [
    "BDistilBooster",
    "DistributionDistiller",
    "GPEDDistiller",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "SequenceDistributionDistiller",
]
