# SPDX-License-Identifier: BSD-3-Clause
"""Every second-order distribution offers what the protocols say, in the shapes that they say."""

from __future__ import annotations

import inspect

import pytest
import torch

from skdistill import distributions
from skdistill.distributions import (
    ClassDistribution,
    Dirichlet,
    Distribution,
    EmpiricalCategorical,
    EmpiricalGaussian,
    ExpectedCategorical,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
    NormalInverseWishart,
    NumericDistribution,
)

N, T, K, S = 5, 2, 3, 4


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


NUMERIC = [
    EmpiricalGaussian.from_outputs(randn(S, N, 2 * T)),
    GaussianNormal.from_outputs(randn(1, N, 4 * T)),
    NormalInverseGamma.from_outputs(randn(1, N, 4 * T)),
    NormalInverseWishart.from_outputs(randn(1, N, 2 * T + 2)),
    EmpiricalGaussian(randn(1, N, T), randn(1, N, T).exp(), randn(N, T).exp()),
]
OF_CLASSES = [
    EmpiricalCategorical.from_logits(randn(S, N, K)),
    Dirichlet.from_outputs(randn(1, N, K)),
    LogitNormal.from_outputs(randn(1, N, 2 * (K - 1)), 0, 10, 0),
    ExpectedCategorical(randn(N, K).log_softmax(-1), torch.zeros(N, dtype=torch.float64)),
]
by_class = {"ids": lambda distribution: type(distribution).__name__}


def test_every_public_distribution_is_tried_here():
    public = {
        name for name in distributions.__all__ if inspect.isclass(getattr(distributions, name))
    }
    protocols = {"Distribution", "NumericDistribution", "ClassDistribution", "Calibratable"}
    values = {"Gaussian", "Uncertainty"}  # a member's, and what is read off
    assert {type(one).__name__ for one in NUMERIC + OF_CLASSES} >= public - protocols - values


@pytest.mark.parametrize("found", NUMERIC, **by_class)
def test_distributions_of_numbers(found):
    assert isinstance(found, Distribution)
    assert isinstance(found, NumericDistribution)
    assert found.mean.shape == found.variance.shape == (N, T)
    assert found.sample(6, torch.Generator().manual_seed(0)).shape == (6, N, T)
    assert found.quantile([0.1, 0.9]).shape == found.interval(0.8).shape == (N, T, 2)
    torch.testing.assert_close(found.quantile([0.1, 0.9]), found.interval(0.8))
    assert found.cdf(found.quantile(0.3).squeeze(-1)).shape == (N, T)
    moved = found.affine(torch.ones(T, dtype=torch.float64), torch.full((T,), 2.0).double())
    assert type(moved) is type(found)
    torch.testing.assert_close(moved.mean, 1 + 2 * found.mean)
    torch.testing.assert_close(moved.variance, 4 * found.variance)
    total, aleatoric, epistemic = found.uncertainty()
    torch.testing.assert_close(total, aleatoric + epistemic)
    torch.testing.assert_close(total, found.variance)


@pytest.mark.parametrize("found", OF_CLASSES, **by_class)
def test_distributions_of_classes(found):
    assert isinstance(found, Distribution)
    assert isinstance(found, ClassDistribution)
    assert not isinstance(found, NumericDistribution)
    assert found.mean.shape == (N, K)
    torch.testing.assert_close(found.mean.sum(-1), torch.ones(N, dtype=torch.float64))
    torch.testing.assert_close(found.log_mean.exp(), found.mean)
    assert found.sample(6, torch.Generator().manual_seed(0)).shape == (6, N)
    codes = torch.arange(N) % K
    torch.testing.assert_close(found.log_prob(codes), found.log_mean[torch.arange(N), codes])
    total, aleatoric, epistemic = found.uncertainty()
    torch.testing.assert_close(total, aleatoric + epistemic)
    torch.testing.assert_close(total, torch.special.entr(found.mean).sum(-1))
