# SPDX-License-Identifier: BSD-3-Clause
"""Quantiles of distributions in operations that ONNX has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ..distributions import (
    EmpiricalGaussian,
    ExpectedGaussian,
    NormalInverseGamma,
    NormalInverseWishart,
)

# Degree of the polynomials for Student's quantiles; their relative error is below 1e-8.
_DEGREE = 16


def closed_form_quantiles(distribution: Any, levels: Iterable[float]) -> Tensor | None:
    """Quantiles (n, t, k) of one Gaussian, or of Student's t; None for other distributions."""
    q = np.asarray(levels, dtype=np.float64)
    if isinstance(distribution, NormalInverseWishart):
        distribution = distribution.marginals
    if isinstance(distribution, NormalInverseGamma):
        scale, standard = distribution.spread, student_quantiles(2 * distribution.alpha, q)
    elif isinstance(distribution, ExpectedGaussian) or (
        isinstance(distribution, EmpiricalGaussian) and len(distribution.means) == 1
    ):
        scale, standard = distribution.variance.sqrt(), torch.tensor(special.ndtri(q))
    else:
        return None
    return distribution.mean.unsqueeze(-1) + scale.unsqueeze(-1) * standard.to(scale)


def student_quantiles(degrees: Tensor, q: np.ndarray) -> Tensor:
    """Quantiles (..., k) of Student's t with at least two degrees of freedom (...), in float64.

    The logarithm of their ratio to those of the normal distribution is a polynomial in
    ``1 / degrees``, which interpolates scipy's values; there is one for each level.
    """
    normal = special.ndtri(q)
    nodes = np.polynomial.chebyshev.chebpts1(_DEGREE + 1)
    at_nodes = special.stdtrit(4 / (1 + nodes[:, None]), q)
    logs = np.log(np.divide(at_nodes, normal, np.ones_like(at_nodes), where=normal != 0))
    coefficients = np.linalg.solve(np.vander(nodes), logs)  # the highest power first
    x = 4 / degrees.double().unsqueeze(-1) - 1  # -1 at infinitely many degrees, 1 at two
    total = torch.zeros_like(x)
    for row in coefficients:
        total = total * x + torch.tensor(row)
    return torch.tensor(normal) * total.exp()
