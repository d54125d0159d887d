# SPDX-License-Identifier: BSD-3-Clause
"""The families of distributions that a student may predict, by task and name."""

from __future__ import annotations

from typing import Any

from ._dirichlet import DirichletPlan
from ._gaussian import GaussianPlan
from ._latent_factor import CategoricalFactorPlan, GaussianFactorPlan
from ._logit_normal import LogitNormalPlan
from ._mixture import CategoricalMixturePlan, GaussianMixturePlan
from ._normal_inverse import NormalInverseGammaPlan, NormalInverseWishartPlan
from ._random_heads import (
    DropoutHeadPlan,
    GaussianHeadPlan,
    NumericDropoutHeadPlan,
    NumericGaussianHeadPlan,
)

# Families of distributions by the task and by name; "auto" is the first.
FAMILIES: dict[str, dict[str, Any]] = {
    "regressor": {
        "gaussian": GaussianPlan,
        "normal_inverse_gamma": NormalInverseGammaPlan,
        "normal_inverse_wishart": NormalInverseWishartPlan,
        "latent_factor": GaussianFactorPlan,
        "mixture": GaussianMixturePlan,
        "gauss_head": NumericGaussianHeadPlan,
        "dropout_head": NumericDropoutHeadPlan,
    },
    "classifier": {
        "dirichlet": DirichletPlan,
        "logit_normal": LogitNormalPlan,
        "latent_factor": CategoricalFactorPlan,
        "mixture": CategoricalMixturePlan,
        "gauss_head": GaussianHeadPlan,
        "dropout_head": DropoutHeadPlan,
    },
}

# Parameters of the distiller that some families read and others do not.
FAMILY_SETTINGS = frozenset().union(
    *(family.settings for families in FAMILIES.values() for family in families.values())
)
