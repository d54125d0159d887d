# SPDX-License-Identifier: BSD-3-Clause
"""Second-order distributions: what every model of the library predicts for a sample.

Results have the dtype and the device of the tensors that a distribution is made of. Equations are
those of the paper that a class names:

- J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for ensemble
  distribution distillation", MLSP 2020;
- A. Malinin, B. Mlodozeniec and M. Gales, "Ensemble Distribution Distillation", ICLR 2020;
- M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many Classes
  with Proxy Targets", NeurIPS 2021;
- M. Vadera, B. Jalaian and B. Marlin, "Generalized Bayesian Posterior Expectation Distillation for
  Deep Neural Networks", UAI 2020;
- S. Park, J. Lee, Y. Shin, I. Ohn and Y. Kim, "Knowledge Distillation of Uncertainty using Deep
  Latent Factor Model", NeurIPS 2025.
"""

from ._categorical import EmpiricalCategorical
from ._categorical import ExpectedCategorical as ExpectedCategorical
from ._dirichlet import Dirichlet
from ._gaussian import EmpiricalGaussian, Gaussian
from ._gaussian import FactorProcess as FactorProcess
from ._gaussian_normal import GaussianNormal
from ._logit_normal import LogitNormal
from ._logit_normal import latin_hypercube as latin_hypercube
from ._mixture import log_tail_ratio as log_tail_ratio
from ._normal_inverse import NormalInverseGamma, NormalInverseWishart
from ._protocol import Calibratable, ClassDistribution, Distribution, NumericDistribution
from ._shared import Uncertainty
from ._shared import split_columns as split_columns

__all__ = [
    "Distribution",
    "NumericDistribution",
    "ClassDistribution",
    "Calibratable",
    "Dirichlet",
    "EmpiricalCategorical",
    "EmpiricalGaussian",
    "Gaussian",
    "GaussianNormal",
    "LogitNormal",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "Uncertainty",
]
