# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian ensembles: the teachers of this library."""

from ._diagnostics import RunningRHat as RunningRHat
from ._diagnostics import SamplerDiagnostics as SamplerDiagnostics
from ._diagnostics import diagnosed_rows as diagnosed_rows
from ._estimators import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ._fit import fit_ensemble as fit_ensemble
from ._spec import EnsembleSpec as EnsembleSpec
from ._spec import amount_of_training as amount_of_training

__all__ = ["BayesianEnsembleClassifier", "BayesianEnsembleRegressor"]
