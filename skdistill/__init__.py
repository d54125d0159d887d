# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty-aware ensemble distillation with scikit-learn's interface."""

import importlib
from typing import TYPE_CHECKING, Any

from ._data.schema import Schema
from ._estimator.functions import (
    predict_frame,
    predict_interval,
    predict_members,
    predict_quantiles,
    predict_uncertainty,
)
from ._estimator.validate import validate
from ._report import report
from ._utils.validation import did_you_mean as _did_you_mean
from ._utils.warnings import SchemaWarning
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

if TYPE_CHECKING:  # imported when they are asked for
    from . import active as active
    from . import datasets as datasets
    from . import decision as decision
    from . import displays as displays
    from . import estimator_checks as estimator_checks
    from . import integrations as integrations
    from . import metrics as metrics
    from . import model_selection as model_selection
    from . import monitoring as monitoring
    from . import streams as streams

_LAZY = (
    "active",
    "datasets",
    "decision",
    "displays",
    "estimator_checks",
    "integrations",
    "metrics",
    "model_selection",
    "monitoring",
    "streams",
)

__all__ = [
    "BDistilBooster",
    "BayesianEnsembleClassifier",
    "BayesianEnsembleRegressor",
    "DistributionDistiller",
    "GPEDDistiller",
    "HydraPlusClassifier",
    "HydraPlusRegressor",
    "Schema",
    "SchemaWarning",
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
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    hint = _did_you_mean(name, __dir__())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
