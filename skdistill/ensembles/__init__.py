# SPDX-License-Identifier: BSD-3-Clause
"""Ensembles of networks: the teachers."""

from __future__ import annotations

from ._regressor import BayesianEnsembleRegressor

__all__ = ["BayesianEnsembleRegressor"]
