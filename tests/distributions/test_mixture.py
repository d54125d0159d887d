# SPDX-License-Identifier: BSD-3-Clause
"""Quantiles of mixtures of Gaussians are those of bisection, also far out and far apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from skdistill.distributions import EmpiricalGaussian
from skdistill.distributions._mixture import mixture_quantile

LEVELS = np.array([1e-6, 0.05, 0.3, 0.5, 0.95, 1 - 1e-6])


def lower_mass(x, means, stds, weights):
    """Weight below x (n,), of components (S, n)."""
    return (weights[:, None] * ndtr((x - means) / stds)).sum(0) / weights.sum()


def bisected(level, means, stds, weights):
    low, high = (means - 40 * stds).min(0), (means + 40 * stds).max(0)
    for _ in range(200):
        middle = low + (high - low) / 2
        is_below = lower_mass(middle, means, stds, weights) < level
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return middle


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1.0, 1e12, 1e150])
@pytest.mark.parametrize("spread", [0.0, 0.3, 5.0, 1e4])
@pytest.mark.parametrize("n_members", [2, 20])
def test_quantiles_are_those_of_bisection(n_members, spread, scale):
    rng = np.random.default_rng(0)
    sides = rng.choice([-1, 1], size=(n_members, 30))  # two heaps, or one
    means = scale * (spread * sides + rng.normal(size=sides.shape))
    stds = scale * rng.uniform(0.05, 2, size=sides.shape)
    weights = rng.uniform(size=n_members)
    weights[1] = 0.0 if n_members > 2 else 1e-9
    found = mixture_quantile(torch.tensor(means), torch.tensor(stds**2), weights, LEVELS).numpy()
    for k, level in enumerate(LEVELS):
        side = -1 if level > 0.5 else 1  # an upper tail is a lower one of -y
        at = lower_mass(side * found[:, k], side * means, stds, weights)
        tail = min(level, 1 - level)
        expected = bisected(tail, side * means, stds, weights)
        np.testing.assert_allclose(at, tail, rtol=1e-8)
        np.testing.assert_allclose(lower_mass(expected, side * means, stds, weights), at, rtol=1e-8)


@pytest.mark.parametrize("n", [1, 300])  # few are searched for in another way
def test_one_member_and_members_that_agree_have_the_quantiles_of_a_gaussian(n):
    mean, variance = torch.randn(1, n, 2).double(), torch.rand(1, n, 2).double() + 0.1
    one = EmpiricalGaussian(mean, variance)
    several = EmpiricalGaussian(mean.expand(30, -1, -1), variance.expand(30, -1, -1))
    torch.testing.assert_close(several.quantile(LEVELS), one.quantile(LEVELS))
