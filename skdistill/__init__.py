# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty-aware ensemble distillation with scikit-learn's interface."""

from __future__ import annotations

from ._predict import (
    predict_frame,
    predict_interval,
    predict_members,
    predict_quantiles,
    predict_uncertainty,
)
from ._report import ModelReport, report
from ._version import __version__ as __version__
from .distillers import (
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)
from .ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from .export import export_onnx
from .persistence import load, save

__all__ = [
    "BDistilBooster",
    "BayesianEnsembleClassifier",
    "BayesianEnsembleRegressor",
    "DistributionDistiller",
    "GPEDDistiller",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "ModelReport",
    "SequenceDistributionDistiller",
    "export_onnx",
    "load",
    "predict_frame",
    "predict_interval",
    "predict_members",
    "predict_quantiles",
    "predict_uncertainty",
    "report",
    "save",
]
