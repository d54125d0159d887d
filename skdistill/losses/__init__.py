# SPDX-License-Identifier: BSD-3-Clause
"""Losses: functions of a prediction and a target that return one value per row.

The engine weights the rows and averages; nothing is averaged over rows here. Members and heads
stand on the axis before the rows: (..., M, n, t) for Gaussians, given as a mean and a variance of
t targets, and (..., M, n, K) for classes, given as logits. Constants that do not depend on the
prediction are left out, as in the papers.

Equations of "Hydra+" are those of Ferianc & Rodrigues (2022), "Simple Regularisation for
Uncertainty-Aware Knowledge Distillation"; beta-NLL is from Seitzer et al. (2022), "On the Pitfalls
of Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks".
"""

from __future__ import annotations

from ._gaussian import (
    aggregation,
    correctness,
    gaussian_cross_entropy,
    gaussian_nll,
    gaussian_nll_and_gradient,
    individuality,
    moments,
    residual_mismatch,
    spread_mismatch,
)
from ._heads import diversity, pairing

__all__ = [
    "aggregation",
    "correctness",
    "diversity",
    "gaussian_cross_entropy",
    "gaussian_nll",
    "gaussian_nll_and_gradient",
    "individuality",
    "moments",
    "pairing",
    "residual_mismatch",
    "spread_mismatch",
]
