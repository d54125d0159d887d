# SPDX-License-Identifier: BSD-3-Clause
"""Distributions known by expectations: parts that add up, and the predictive distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from skdistill.distributions import (
    EmpiricalCategorical,
    EmpiricalGaussian,
    ExpectedCategorical,
)


@pytest.fixture
def ensemble():
    logits = torch.randn(7, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return EmpiricalCategorical.from_logits(2 * logits)


def test_true_expectations_give_the_uncertainty_of_the_ensemble(ensemble):
    entropy = torch.special.entr(ensemble.log_probs.exp()).sum(-1).mean(0)
    found = ExpectedCategorical(ensemble.log_mean, entropy)
    for part, expected in zip(found.uncertainty(), ensemble.uncertainty(), strict=True):
        torch.testing.assert_close(part, expected)
    codes = torch.tensor([0, 3, 1, 2, 0])
    torch.testing.assert_close(found.log_prob(codes), ensemble.log_prob(codes))
    torch.testing.assert_close(found.mean, ensemble.mean)
    draws = [d.sample(50, torch.Generator().manual_seed(1)) for d in (found, ensemble)]
    assert torch.equal(*draws)


def test_the_aleatoric_part_is_at_most_the_total():
    even = torch.full((2, 2), 0.5, dtype=torch.float64).log()
    total, aleatoric, epistemic = ExpectedCategorical(
        even, torch.tensor([0.3, 5.0], dtype=torch.float64)
    ).uncertainty()
    log2 = np.log(2)
    np.testing.assert_allclose(total, [log2, log2])
    np.testing.assert_allclose(aleatoric, [0.3, log2])
    np.testing.assert_allclose(epistemic, [log2 - 0.3, 0.0])


def test_without_an_expected_entropy_there_are_no_parts(ensemble):
    uncertainty = ExpectedCategorical(ensemble.log_mean).uncertainty()
    torch.testing.assert_close(uncertainty.total, ensemble.uncertainty().total)
    assert uncertainty.aleatoric is None
    assert uncertainty.epistemic is None


@pytest.fixture
def gaussian():
    mean, aleatoric, epistemic = torch.rand(
        3, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return EmpiricalGaussian(mean[None], aleatoric[None], epistemic)


def test_gaussian_is_that_of_scipy(gaussian):
    y = torch.zeros(6, 2, dtype=torch.float64)
    scale = gaussian.uncertainty().total.sqrt()
    truth = stats.norm(gaussian.mean, scale)
    np.testing.assert_allclose(gaussian.log_prob(y), truth.logpdf(y))
    np.testing.assert_allclose(gaussian.cdf(y), truth.cdf(y))
    np.testing.assert_allclose(gaussian.quantile([0.1, 0.7])[..., 0], truth.ppf(0.1))
    np.testing.assert_allclose(gaussian.quantile([0.1, 0.7])[..., 1], truth.ppf(0.7))
    np.testing.assert_allclose(gaussian.interval(0.9)[..., 0], truth.ppf(0.05))
    draws = gaussian.sample(20_000, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(draws.mean(0), gaussian.mean, atol=0.05)
    np.testing.assert_allclose(draws.std(0), scale, rtol=0.03)


def test_true_moments_give_the_uncertainty_of_the_ensemble():
    generator = torch.Generator().manual_seed(0)
    means, variances = torch.rand(2, 9, 5, 3, generator=generator, dtype=torch.float64)
    ensemble = EmpiricalGaussian(means, variances)
    moments = means.mean(0)[None], variances.mean(0)[None], means.var(0, correction=0)
    found = EmpiricalGaussian(*moments)
    for part, expected in zip(found.uncertainty(), ensemble.uncertainty(), strict=True):
        torch.testing.assert_close(part, expected)
    torch.testing.assert_close(found.variance, ensemble.variance)


def test_affine_moves_the_mean_and_scales_the_variances(gaussian):
    moved = gaussian.affine(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    factor = torch.tensor([9.0, 0.25], dtype=torch.float64)
    for part, expected in zip(moved.uncertainty(), gaussian.uncertainty(), strict=True):
        torch.testing.assert_close(part, factor * expected)
    torch.testing.assert_close(moved.mean[:, 1], 2 + 0.5 * gaussian.mean[:, 1])
