# SPDX-License-Identifier: BSD-3-Clause
"""Losses: functions of a prediction and a target that return one value per row.

A loss is differentiable, once, with respect to its first argument, the prediction, and to nothing
else. Its gradient is known in closed form: ``loss.and_gradient(prediction, ...)`` returns the loss
of every row, and the gradient of their sum with respect to the prediction.

The engine weights the rows and averages; nothing is averaged over rows here. Members and heads
stand on the axis before the rows: (..., M, n, t) for Gaussians, given as a mean and a variance of
t targets, and (..., M, n, K) for classes, given as logits by heads and as log probabilities by
members. Constants that do not depend on the prediction are left out, as in the papers.

Equations of "Hydra+" are those of Ferianc & Rodrigues (2022), "Simple Regularisation for
Uncertainty-Aware Knowledge Distillation"; beta-NLL is from Seitzer et al. (2022), "On the Pitfalls
of Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks".
"""

from __future__ import annotations

from ._boosting import (
    DistillationGame,
    average_bound,
    bounded_outputs,
    gradient_of_raw,
    log_barrier,
    pointwise_bound,
)
from ._categorical import (
    Categories,
    KnownCategories,
    categorical_aggregation,
    categorical_correctness,
    categorical_individuality,
    cross_entropy,
    information_mismatch,
)
from ._dirichlet import (
    MemberStatistics,
    dirichlet_forward_kl,
    dirichlet_moments,
    dirichlet_nll,
    dirichlet_reverse_kl,
    dirichlet_reverse_kl_reference,
    information_target,
    largest_precision,
    proxy_concentrations,
    proxy_precision,
    proxy_target,
)
from ._dirichlet import proxy_term as proxy_term
from ._expectations import EXPECTATION_LINKS as EXPECTATION_LINKS
from ._expectations import EXPECTATION_LOSSES as EXPECTATION_LOSSES
from ._expectations import expectation_loss
from ._expectations import linked as linked
from ._factors import (
    centred,
    factor_scores,
    loadings_nll,
    logit_moments,
    logit_target,
    standardised_loadings,
    with_loadings,
)
from ._gaussian import (
    Mixture,
    aggregation,
    correctness,
    gaussian_cross_entropy,
    gaussian_nll,
    gradient_of_outputs,
    individuality,
    moments,
    of_gaussian_outputs,
    residual_mismatch,
    spread_error,
    spread_mismatch,
)
from ._heads import diversity, pairing
from ._influence import log_tailed_clip
from ._logit_normal import logit_normal_moments
from ._loss import Term as Term
from ._loss import by_autograd as by_autograd
from ._loss import differentiable as differentiable
from ._loss import loss_with_gradient as loss_with_gradient
from ._loss import tempered_sum as tempered_sum
from ._loss import weighted_sum as weighted_sum
from ._second_order import (
    NormalInverseGammaTarget,
    PairedNormal,
    gaussian_parameters,
    label_nll,
    low_rank_normal_nll,
    matched_moments,
    normal_inverse_gamma_nll,
    normal_inverse_gamma_start,
    normal_inverse_gamma_target,
    normal_inverse_wishart_nll,
    normal_inverse_wishart_start,
    normal_nll,
    normal_target,
    paired_normal_nll,
    paired_normal_target,
    relative_logits,
)

__all__ = [
    "with_loadings",
    "standardised_loadings",
    "logit_moments",
    "logit_target",
    "loadings_nll",
    "factor_scores",
    "centred",
    "Categories",
    "DistillationGame",
    "KnownCategories",
    "MemberStatistics",
    "Mixture",
    "NormalInverseGammaTarget",
    "PairedNormal",
    "aggregation",
    "average_bound",
    "bounded_outputs",
    "categorical_aggregation",
    "categorical_correctness",
    "categorical_individuality",
    "correctness",
    "cross_entropy",
    "dirichlet_forward_kl",
    "dirichlet_moments",
    "dirichlet_nll",
    "dirichlet_reverse_kl",
    "dirichlet_reverse_kl_reference",
    "diversity",
    "expectation_loss",
    "gaussian_cross_entropy",
    "gaussian_nll",
    "gaussian_parameters",
    "gradient_of_outputs",
    "gradient_of_raw",
    "individuality",
    "information_mismatch",
    "information_target",
    "log_barrier",
    "label_nll",
    "largest_precision",
    "log_tailed_clip",
    "logit_normal_moments",
    "low_rank_normal_nll",
    "matched_moments",
    "moments",
    "normal_inverse_gamma_nll",
    "normal_inverse_gamma_start",
    "normal_inverse_gamma_target",
    "normal_inverse_wishart_nll",
    "normal_inverse_wishart_start",
    "normal_nll",
    "normal_target",
    "of_gaussian_outputs",
    "paired_normal_nll",
    "paired_normal_target",
    "pairing",
    "pointwise_bound",
    "proxy_concentrations",
    "proxy_precision",
    "proxy_target",
    "relative_logits",
    "residual_mismatch",
    "spread_error",
    "spread_mismatch",
]
