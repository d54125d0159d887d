# SPDX-License-Identifier: BSD-3-Clause
"""Losses: functions of a prediction and a target that return one value per row.

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
    log_barrier_and_gradient,
    pointwise_bound,
)
from ._categorical import (
    categorical_aggregation,
    categorical_aggregation_and_gradient,
    categorical_correctness,
    categorical_correctness_and_gradient,
    categorical_individuality,
    categorical_individuality_and_gradient,
    cross_entropy,
    cross_entropy_and_gradient,
    information_mismatch,
    information_mismatch_and_gradient,
)
from ._dirichlet import (
    MemberStatistics,
    dirichlet_forward_kl,
    dirichlet_forward_kl_and_gradient,
    dirichlet_nll,
    dirichlet_nll_and_gradient,
    dirichlet_reverse_kl,
    dirichlet_reverse_kl_and_gradient,
    dirichlet_reverse_kl_reference,
    dirichlet_reverse_kl_reference_and_gradient,
    largest_precision,
    proxy_concentrations,
    proxy_precision,
    proxy_target,
)
from ._expectations import EXPECTATION_LINKS as EXPECTATION_LINKS
from ._expectations import EXPECTATION_LOSSES as EXPECTATION_LOSSES
from ._expectations import expectation_loss_and_gradient
from ._expectations import linked as linked
from ._gaussian import (
    Mixture,
    aggregation,
    aggregation_and_gradient,
    correctness,
    correctness_and_gradient,
    gaussian_cross_entropy,
    gaussian_cross_entropy_and_gradient,
    gaussian_nll,
    gaussian_nll_and_gradient,
    gradient_of_outputs,
    individuality,
    individuality_and_gradient,
    moments,
    residual_mismatch,
    residual_mismatch_and_gradient,
    spread_mismatch,
    spread_mismatch_and_gradient,
)
from ._heads import diversity, pairing
from ._influence import logarithmic_beyond, logarithmic_beyond_and_gradient
from ._second_order import (
    NormalInverseGammaTarget,
    PairedNormal,
    gaussian_parameters,
    label_nll,
    low_rank_normal_nll,
    low_rank_normal_nll_and_gradient,
    normal_inverse_gamma_nll,
    normal_inverse_gamma_nll_and_gradient,
    normal_inverse_gamma_start,
    normal_inverse_gamma_target,
    normal_inverse_wishart_nll,
    normal_inverse_wishart_nll_and_gradient,
    normal_inverse_wishart_start,
    normal_nll,
    normal_nll_and_gradient,
    normal_target,
    paired_normal_nll,
    paired_normal_nll_and_gradient,
    paired_normal_target,
    relative_logits,
)

__all__ = [
    "DistillationGame",
    "MemberStatistics",
    "Mixture",
    "NormalInverseGammaTarget",
    "PairedNormal",
    "aggregation",
    "aggregation_and_gradient",
    "average_bound",
    "bounded_outputs",
    "categorical_aggregation",
    "categorical_aggregation_and_gradient",
    "categorical_correctness",
    "categorical_correctness_and_gradient",
    "categorical_individuality",
    "categorical_individuality_and_gradient",
    "correctness",
    "correctness_and_gradient",
    "cross_entropy",
    "cross_entropy_and_gradient",
    "dirichlet_forward_kl",
    "dirichlet_forward_kl_and_gradient",
    "dirichlet_nll",
    "dirichlet_nll_and_gradient",
    "dirichlet_reverse_kl",
    "dirichlet_reverse_kl_and_gradient",
    "dirichlet_reverse_kl_reference",
    "dirichlet_reverse_kl_reference_and_gradient",
    "diversity",
    "expectation_loss_and_gradient",
    "gaussian_cross_entropy",
    "gaussian_cross_entropy_and_gradient",
    "gaussian_nll",
    "gaussian_nll_and_gradient",
    "gaussian_parameters",
    "gradient_of_outputs",
    "gradient_of_raw",
    "individuality",
    "individuality_and_gradient",
    "information_mismatch",
    "information_mismatch_and_gradient",
    "log_barrier",
    "log_barrier_and_gradient",
    "label_nll",
    "largest_precision",
    "logarithmic_beyond",
    "logarithmic_beyond_and_gradient",
    "low_rank_normal_nll",
    "low_rank_normal_nll_and_gradient",
    "moments",
    "normal_inverse_gamma_nll",
    "normal_inverse_gamma_nll_and_gradient",
    "normal_inverse_gamma_start",
    "normal_inverse_gamma_target",
    "normal_inverse_wishart_nll",
    "normal_inverse_wishart_nll_and_gradient",
    "normal_inverse_wishart_start",
    "normal_nll",
    "normal_nll_and_gradient",
    "normal_target",
    "paired_normal_nll",
    "paired_normal_nll_and_gradient",
    "paired_normal_target",
    "pairing",
    "pointwise_bound",
    "proxy_concentrations",
    "proxy_precision",
    "proxy_target",
    "relative_logits",
    "residual_mismatch",
    "residual_mismatch_and_gradient",
    "spread_mismatch",
    "spread_mismatch_and_gradient",
]
