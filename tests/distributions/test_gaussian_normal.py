# SPDX-License-Identifier: BSD-3-Clause
"""The normal over mean and raw variance against scipy's integrals, sampling and its limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from skdistill.distributions import GaussianNormal

FLOOR, FLOOR_OF_Z = 1e-6, 1e-8  # variances of y given z, and of z, on standardised targets
COVARIANCES = ["diagonal", "full"]


def student(covariance="full", n=3, t=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    n_columns = GaussianNormal.outputs_per_target[covariance] * t
    outputs = torch.randn(n, n_columns, generator=generator, dtype=torch.float64)
    return GaussianNormal.from_outputs(outputs.to(dtype), covariance)


def softplus(u):
    return np.logaddexp(0, u)


def integral_over_z2(d, i, j, f):
    """E f(z2), by adaptive integration."""
    centre, std = d.raw_mean[i, j].item(), d.raw_variance[i, j].sqrt().item()
    density = stats.norm(centre, std).pdf
    ends = centre - 12 * std, centre + 12 * std
    return integrate.quad(lambda u: f(u) * density(u), *ends, epsrel=1e-12, limit=200)[0]


def marginal(d, i, j, of, y):
    """`of` (pdf or cdf) of y at one sample and target, by adaptive integration over z2."""

    def given(u):
        mean = d.mean[i, j].item() + d.slope.expand_as(d.mean)[i, j].item() * (
            u - d.raw_mean[i, j].item()
        )
        noise = d.scale[j].item() ** 2 * (softplus(u) + FLOOR)
        return of(y, mean, np.sqrt(d.conditional_variance[i, j].item() + noise))

    return integral_over_z2(d, i, j, given)


def cells(d):
    return [(i, j) for i in range(d.mean.shape[0]) for j in range(d.mean.shape[1])]


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype).reshape(actual.shape)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-9, "atol": 1e-11, **tolerance})


def test_outputs_by_hand():
    outputs = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]], dtype=torch.float64)
    d = GaussianNormal.from_outputs(outputs, "full")
    close(d.mean, [1.0])
    close(d.raw_mean, [2.0])
    close(d.conditional_variance, softplus(3) + FLOOR_OF_Z)
    close(d.raw_variance, softplus(4) + FLOOR_OF_Z)
    close(d.slope, [5.0])
    total, aleatoric, epistemic = d.uncertainty()
    close(epistemic, softplus(3) + FLOOR_OF_Z + 25 * (softplus(4) + FLOOR_OF_Z))  # d1 + slope^2 d2
    close(total, aleatoric + epistemic)
    diagonal = GaussianNormal.from_outputs(outputs[:, :4].unsqueeze(0))
    close(diagonal.uncertainty().epistemic, softplus(3) + FLOOR_OF_Z)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_uncertainty_is_that_of_the_integral(covariance):
    d = student(covariance).affine([3.0, -1.0], [2.0, -0.3])
    expected = [
        d.scale[j].item() ** 2 * integral_over_z2(d, i, j, lambda u: softplus(u) + FLOOR)
        for i, j in cells(d)
    ]
    close(d.uncertainty().aleatoric, expected)
    plug_in = d.scale.square() * (torch.nn.functional.softplus(d.raw_mean) + FLOOR)
    assert (d.uncertainty().aleatoric > 1.01 * plug_in).all()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_density_and_distribution_function_are_the_integrals(covariance):
    d = student(covariance).affine([3.0, -1.0], [2.0, -0.3])
    y = d.mean + d.variance.sqrt() * torch.tensor([[-2.0, 0.5], [0.0, 3.0], [1.0, -1.0]])
    densities = [marginal(d, i, j, stats.norm.pdf, y[i, j].item()) for i, j in cells(d)]
    close(d.log_prob(y), np.log(densities), rtol=1e-5)
    masses = [marginal(d, i, j, stats.norm.cdf, y[i, j].item()) for i, j in cells(d)]
    close(d.cdf(y), masses, rtol=1e-5)


def test_perfect_correlation_keeps_the_moments_and_gives_a_smooth_density():
    one = torch.ones(1201, 1, dtype=torch.float64)
    d = GaussianNormal(one, -5 * one, 1e-6 * one, 0.25 * one, 2 * one, one[0])  # Var z1 = 1
    y = 1 + torch.linspace(-6, 6, 1201, dtype=torch.float64).unsqueeze(1)
    density = d.log_prob(y).exp()
    step = (y[1] - y[0]).item()
    close(density.sum() * step, 1.0, rtol=1e-6)
    close((density * (y - 1)).sum() * step, 0.0, atol=1e-6)
    close((density * (y - 1).square()).sum() * step, d.variance[0, 0], rtol=1e-4)
    near = (y - 1).abs() < 2
    normal = -0.5 * ((y - 1).square() / d.variance + (2 * np.pi * d.variance).log())
    close(d.log_prob(y)[near], normal[near], atol=0.05)  # the noise is small: y is nearly z1


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_quantiles_invert_the_distribution_function(covariance):
    d = student(covariance, n=40).affine([3.0, -1.0], [2.0, -0.3])
    levels = [1e-9, 0.05, 0.5, 0.8, 0.999]
    quantiles = d.quantile(levels)
    assert quantiles.shape == (40, 2, 5)
    for k, level in enumerate(levels):
        close(
            d.cdf(quantiles[..., k]),
            torch.full((40, 2), level, dtype=torch.float64),
            rtol=1e-12,
            atol=0,
        )
    close(d.interval(0.9), d.quantile([0.05, 0.95]))
    close(d.quantile(0.5).squeeze(-1), d.quantile([0.1, 0.5])[..., 1])


def test_upper_tail_is_as_exact_as_the_lower():
    d = student("full")
    mirrored = d.affine([0.0, 0.0], [-1.0, -1.0])
    close(d.interval(1 - 1e-12), -mirrored.interval(1 - 1e-12).flip(-1), rtol=1e-13)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_draws_have_the_moments_and_the_distribution(covariance):
    d = student(covariance)
    y = d.sample(200_000, torch.Generator().manual_seed(1))
    standard_error = (d.variance / len(y)).sqrt()
    assert ((y.mean(0) - d.mean).abs() < 4 * standard_error).all()
    close(y.var(0), d.variance, rtol=0.03)
    for level in (0.1, 0.5, 0.9):
        share = (y < d.quantile(level).squeeze(-1)).double().mean(0)
        assert ((share - level).abs() < 4 * (level * (1 - level) / len(y)) ** 0.5).all()


def test_affine_moves_what_is_read():
    loc, scale = torch.tensor([[3.0, -1.0], [2.0, -0.3]], dtype=torch.float64)
    d = student("full")
    moved = d.affine(loc, scale.numpy())
    close(moved.mean, loc + scale * d.mean)
    for part, before in zip(moved.uncertainty(), d.uncertainty(), strict=True):
        close(part, scale.square() * before)
    y = torch.randn(3, 2, dtype=torch.float64)
    close(moved.log_prob(loc + scale * y), d.log_prob(y) - scale.abs().log())
    twice = moved.affine(-loc / scale, 1 / scale)
    close(twice.quantile(0.3), d.quantile(0.3), rtol=1e-6)
