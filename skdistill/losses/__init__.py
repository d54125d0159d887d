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
    proxy_concentrations,
    proxy_precision,
    proxy_target,
)
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

__all__ = [
    "MemberStatistics",
    "Mixture",
    "aggregation",
    "aggregation_and_gradient",
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
    "gaussian_cross_entropy",
    "gaussian_cross_entropy_and_gradient",
    "gaussian_nll",
    "gaussian_nll_and_gradient",
    "gradient_of_outputs",
    "individuality",
    "individuality_and_gradient",
    "information_mismatch",
    "information_mismatch_and_gradient",
    "moments",
    "pairing",
    "proxy_concentrations",
    "proxy_precision",
    "proxy_target",
    "residual_mismatch",
    "residual_mismatch_and_gradient",
    "spread_mismatch",
    "spread_mismatch_and_gradient",
]
