# SPDX-License-Identifier: BSD-3-Clause
"""Second-order distributions: what every model of the library predicts for a row."""

from __future__ import annotations

from ._categorical import EmpiricalCategorical
from ._dirichlet import Dirichlet
from ._gaussian import EmpiricalGaussian, Gaussian
from ._uncertainty import Uncertainty

__all__ = ["Dirichlet", "EmpiricalCategorical", "EmpiricalGaussian", "Gaussian", "Uncertainty"]
