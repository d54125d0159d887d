# SPDX-License-Identifier: BSD-3-Clause
"""Losses: functions of a prediction and a target that return one value per sample.

A loss is differentiable, once, with respect to its first argument, the prediction, and to nothing
else. Its gradient is known in closed form: ``loss.and_gradient(prediction, ...)`` returns the loss
of every sample, and the gradient of their sum with respect to the prediction.

The engine weights the samples and averages; nothing is averaged over samples here. Members and
heads stand on the axis before the samples: (..., M, n, t) for Gaussians, given as a mean and a
variance of t targets, and (..., M, n, K) for classes, given as logits by heads and as log
probabilities by members. Constants that do not depend on the prediction are left out, as in the
papers.

Equations of "Hydra+" are those of Ferianc & Rodrigues (2022), "Simple Regularisation for
Uncertainty-Aware Knowledge Distillation"; beta-NLL is from Seitzer et al. (2022), "On the Pitfalls
of Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks".
"""

from ._boosting import DistillationGame as DistillationGame
from ._boosting import bounded_outputs as bounded_outputs
from ._boosting import gradient_of_raw as gradient_of_raw
from ._boosting import log_barrier as log_barrier
from ._categorical import Categories as Categories
from ._categorical import KnownCategories as KnownCategories
from ._categorical import categorical_aggregation as categorical_aggregation
from ._categorical import categorical_correctness as categorical_correctness
from ._categorical import categorical_individuality as categorical_individuality
from ._categorical import cross_entropy
from ._categorical import information_mismatch as information_mismatch
from ._dirichlet import MemberStatistics as MemberStatistics
from ._dirichlet import (
    dirichlet_forward_kl,
    dirichlet_nll,
    dirichlet_reverse_kl,
    proxy_concentrations,
    proxy_precision,
    proxy_target,
)
from ._dirichlet import dirichlet_moments as dirichlet_moments
from ._dirichlet import dirichlet_reverse_kl_reference as dirichlet_reverse_kl_reference
from ._dirichlet import information_target as information_target
from ._dirichlet import largest_precision as largest_precision
from ._dirichlet import proxy_term as proxy_term
from ._factors import factor_scores as factor_scores
from ._factors import loadings_nll as loadings_nll
from ._factors import standardised_loadings as standardised_loadings
from ._factors import with_loadings as with_loadings
from ._gaussian import Mixture as Mixture
from ._gaussian import aggregation as aggregation
from ._gaussian import correctness as correctness
from ._gaussian import gaussian_cross_entropy as gaussian_cross_entropy
from ._gaussian import gaussian_nll
from ._gaussian import gradient_of_outputs as gradient_of_outputs
from ._gaussian import individuality as individuality
from ._gaussian import moments as moments
from ._gaussian import of_gaussian_outputs as of_gaussian_outputs
from ._gaussian import residual_mismatch as residual_mismatch
from ._gaussian import spread_error as spread_error
from ._gaussian import spread_mismatch as spread_mismatch
from ._loss import Term as Term
from ._loss import by_autograd as by_autograd
from ._loss import differentiable as differentiable
from ._loss import diversity as diversity
from ._loss import log_tailed_clip as log_tailed_clip
from ._loss import loss_with_gradient as loss_with_gradient
from ._loss import pairing as pairing
from ._loss import tempered_sum as tempered_sum
from ._loss import weighted_sum as weighted_sum
from ._second_order import NormalInverseGammaTarget as NormalInverseGammaTarget
from ._second_order import gaussian_parameters as gaussian_parameters
from ._second_order import label_nll as label_nll
from ._second_order import logit_normal_moments as logit_normal_moments
from ._second_order import low_rank_normal_nll as low_rank_normal_nll
from ._second_order import matched_moments as matched_moments
from ._second_order import normal_inverse_gamma_target as normal_inverse_gamma_target
from ._second_order import normal_inverse_nll as normal_inverse_nll
from ._second_order import normal_inverse_start as normal_inverse_start
from ._second_order import normal_nll as normal_nll
from ._second_order import normal_target as normal_target
from ._second_order import paired_normal_nll as paired_normal_nll
from ._second_order import paired_normal_target as paired_normal_target
from ._second_order import relative_logits as relative_logits

# What users call by name; the rest is for the layers above.
__all__ = [
    "cross_entropy",
    "dirichlet_forward_kl",
    "dirichlet_nll",
    "dirichlet_reverse_kl",
    "gaussian_nll",
    "proxy_concentrations",
    "proxy_precision",
    "proxy_target",
]
