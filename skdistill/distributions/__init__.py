# SPDX-License-Identifier: BSD-3-Clause
"""Second-order distributions: what every model of the library predicts for a row."""

from __future__ import annotations

from ._calibratable import Calibratable
from ._categorical import EmpiricalCategorical
from ._dirichlet import Dirichlet
from ._expectations import ExpectedCategorical, ExpectedGaussian
from ._factor_process import FactorProcess
from ._gaussian import EmpiricalGaussian, Gaussian
from ._gaussian_normal import GaussianNormal
from ._logit_normal import LogitNormal
from ._logit_normal import latin_hypercube as latin_hypercube
from ._normal_inverse_gamma import NormalInverseGamma
from ._normal_inverse_wishart import NormalInverseWishart
from ._protocol import ClassDistribution, Distribution, NumericDistribution
from ._uncertainty import Uncertainty
from ._uncertainty import split_columns as split_columns

__all__ = [
    "Distribution",
    "NumericDistribution",
    "ClassDistribution",
    "Calibratable",
    "Dirichlet",
    "EmpiricalCategorical",
    "EmpiricalGaussian",
    "ExpectedCategorical",
    "ExpectedGaussian",
    "FactorProcess",
    "Gaussian",
    "GaussianNormal",
    "LogitNormal",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "Uncertainty",
]
