# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty-aware ensemble distillation with scikit-learn's interface."""

from __future__ import annotations

from ._through import predict_interval, predict_members, predict_quantiles, predict_uncertainty
from .distillers import HydraPlusClassifier, HydraPlusRegressor
from .ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor

__version__ = "0.1.0.dev0"

__all__ = [
    "BayesianEnsembleClassifier",
    "BayesianEnsembleRegressor",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "predict_interval",
    "predict_members",
    "predict_quantiles",
    "predict_uncertainty",
]
