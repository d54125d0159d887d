# SPDX-License-Identifier: BSD-3-Clause
"""Quantiles made of the operations of graphs are those of scipy and of the distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import special, stats

from skdistill.distributions import EmpiricalGaussian, GaussianNormal
from skdistill.distributions._normal_inverse import student_quantiles
from skdistill.export._quantiles import (
    mills_polynomial,
    mills_ratio,
    mixture_quantiles,
    quantiles_of,
)

LEVELS = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6])


def test_students_are_those_of_scipy():
    degrees = np.geomspace(2, 1e6, 200)
    found = student_quantiles(torch.tensor(degrees), LEVELS)
    assert_allclose(found, stats.t.ppf(LEVELS, degrees[:, None]), rtol=1e-8, atol=1e-12)


def test_mills_ratio_is_that_of_scipy():
    z = np.append(0, np.geomspace(1e-6, 1e6, 1000))
    found = mills_ratio(torch.tensor(z), mills_polynomial())
    assert_allclose(found, special.erfcx(z / np.sqrt(2)) / 2, rtol=3e-9)


@pytest.mark.parametrize("spread", [0, 0.1, 1, 10, 1e8, 1e15])
@pytest.mark.parametrize("n_members", [2, 3, 20])
def test_mixtures_of_members_near_and_far_apart(n_members, spread):
    rng = np.random.default_rng(0)
    shape = n_members, 50, 2
    means, variances = spread * rng.normal(size=shape), rng.uniform(size=shape) ** 4 + 1e-6
    members = EmpiricalGaussian(torch.tensor(means), torch.tensor(variances))
    error = (quantiles_of(members, LEVELS) - members.quantile(LEVELS)).abs()
    assert (error <= 1e-7 * members.variance.sqrt().unsqueeze(-1)).all()


@pytest.mark.parametrize("size", [0.1, 1, 100])
def test_normals_over_mean_and_variance(size):
    outputs = size * torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    distribution = GaussianNormal.from_outputs(outputs.double(), "full")
    error = (quantiles_of(distribution, LEVELS) - distribution.quantile(LEVELS)).abs()
    assert (error <= 1e-7 * distribution.variance.sqrt().unsqueeze(-1)).all()


def test_in_a_gap_between_members_their_tails_are_in_balance():
    # The upper tail of N(-4, 1) is as large as the lower one of N(4, 1) at 0.
    means = torch.tensor([-4.0, -4.0, 4.0, 4.0]).view(4, 1, 1)
    found = mixture_quantiles(means, torch.ones(4, 1, 1), torch.ones(4), np.array([0.5]))
    assert_allclose(found.item(), 0, atol=1e-8)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_no_search_is_endless(value):
    means = torch.tensor([0.0, value]).view(2, 1, 1)
    found = mixture_quantiles(means, torch.ones(2, 1, 1), torch.ones(2), np.array([0.3]))
    assert not found.isfinite().any()
