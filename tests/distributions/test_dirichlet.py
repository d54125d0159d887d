# SPDX-License-Identifier: BSD-3-Clause
"""The Dirichlet over class probabilities, against scipy, torch, high precision and identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from skdistill.distributions import Dirichlet, _dirichlet


def concentrations(n_rows=7, n_classes=4, *, spread=2.0, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n_rows, n_classes, generator=generator, dtype=torch.float64)
    return (spread * logits).exp().to(dtype)


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


# construction


def test_from_outputs_is_the_exponential_and_an_offset():
    outputs = torch.tensor([[0.0, 1.0, -2.0]], dtype=torch.float64)
    close(Dirichlet.from_outputs(outputs).concentrations, outputs.exp() + 1)
    close(Dirichlet.from_outputs(outputs, offset=0.0).concentrations, outputs.exp())
    close(Dirichlet.from_outputs(outputs[None]).concentrations, outputs.exp() + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_outputs_of_any_size_give_finite_results(dtype, offset):
    outputs = torch.tensor([[1e4, 1e4, 0.0], [-1e4, 3.0, 0.0], [-1e4] * 3], dtype=dtype)
    distribution = Dirichlet.from_outputs(outputs, offset)
    for part in (*distribution.uncertainty(), distribution.mean, distribution.log_mean):
        assert part.isfinite().all()
    close(distribution.mean.sum(-1), torch.ones(3), rtol=1e-6)


# the mean


def test_mean_and_precision_agree_with_scipy():
    alpha = concentrations()
    distribution = Dirichlet(alpha)
    references = [stats.dirichlet(row) for row in alpha.numpy()]
    close(distribution.precision, alpha.sum(-1))
    close(distribution.mean, np.array([r.mean() for r in references]))
    close(distribution.log_mean.exp(), distribution.mean)


def test_temperature_divides_the_logits_of_the_mean():
    found = Dirichlet(torch.tensor([[8.0, 2.0]])).tempered(2.0)  # odds of 4 to 1, then of 2 to 1
    close(found.concentrations, [[20 / 3, 10 / 3]], rtol=1e-6)


def test_log_prob_and_samples_are_of_the_mean():
    distribution = Dirichlet(concentrations(3, 4))
    codes = torch.tensor([2, 0, 3])
    close(distribution.log_prob(codes), distribution.mean.log()[torch.arange(3), codes])
    draws = distribution.sample(200_000, torch.Generator().manual_seed(0))
    frequencies = torch.stack([(draws == code).double().mean(0) for code in range(4)], dim=-1)
    close(frequencies, distribution.mean, rtol=0, atol=5 * 0.5 / math.sqrt(200_000))


# uncertainty


def parts_by_scipy(alpha):
    """Total, expected entropy, mutual and reverse mutual information, written out."""
    precision = alpha.sum(-1, keepdims=True)
    mean = alpha / precision
    total = stats.entropy(mean, axis=-1)
    expected = -(mean * (special.digamma(alpha + 1) - special.digamma(precision + 1))).sum(-1)
    reverse = (mean * (np.log(mean) - special.digamma(alpha) + special.digamma(precision))).sum(-1)
    return total, expected, total - expected, reverse


@pytest.mark.parametrize("n_classes", [2, 4, 100])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_uncertainty_agrees_with_scipy(n_classes, spread):
    alpha = concentrations(9, n_classes, spread=spread)
    distribution = Dirichlet(alpha)
    total, aleatoric, epistemic = distribution.uncertainty()
    expected = parts_by_scipy(alpha.numpy())
    close(total, expected[0])
    close(aleatoric, expected[1])
    close(epistemic, expected[2], rtol=1e-8)
    close(distribution.reverse_mutual_information, expected[3], rtol=1e-8)
    # EPKL = MI + RMI, the latter two from digammas
    close(distribution.expected_pairwise_kl, expected[2] + expected[3], rtol=1e-8)


def test_two_classes_agree_with_integrals():
    alpha, beta = 3.5, 0.8

    def expected(function):
        density = stats.beta(alpha, beta).pdf
        return integrate.quad(lambda p: density(p) * function(np.array([p, 1 - p])), 0, 1)[0]

    mean = np.array([alpha, beta]) / (alpha + beta)
    distribution = Dirichlet(torch.tensor([[alpha, beta]], dtype=torch.float64))
    _, aleatoric, epistemic = distribution.uncertainty()
    close(aleatoric, [expected(stats.entropy)], rtol=1e-6)
    close(epistemic, [expected(lambda p: stats.entropy(p, mean))], rtol=1e-6)
    reverse = expected(lambda p: stats.entropy(mean, p))
    close(distribution.reverse_mutual_information, [reverse], rtol=1e-6)


def test_draws_of_numpy_have_the_expected_parts():
    alpha = np.array([4.0, 2.0, 1.5])
    p = np.random.default_rng(0).dirichlet(alpha, 200_000)
    distribution = Dirichlet(torch.tensor(alpha[None]))
    entropies = stats.entropy(p, axis=-1)
    error = 5 * entropies.std() / math.sqrt(len(p))
    close(distribution.uncertainty().aleatoric, [entropies.mean()], rtol=0, atol=error)
    pairs = stats.entropy(p[::2], p[1::2], axis=-1)
    error = 5 * pairs.std() / math.sqrt(len(pairs))
    close(distribution.expected_pairwise_kl, [pairs.mean()], rtol=0, atol=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8, 1e12])
def test_parts_are_not_negative_and_add_up(dtype, scale):
    alpha = concentrations(50, 10, spread=3.0, dtype=dtype) * scale
    total, aleatoric, epistemic = Dirichlet(alpha).uncertainty()
    assert (aleatoric >= 0).all()
    assert (epistemic >= 0).all()
    assert torch.equal(total, aleatoric + epistemic)
    assert total.dtype == dtype
    assert (Dirichlet(alpha).reverse_mutual_information >= epistemic * (1 - 1e-6)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_information_keeps_its_digits_at_large_precision(dtype):
    # MI = (K - 1) / (2 alpha_0) - (sum_k 1/p_k - 1) / (12 alpha_0^2) + O(alpha_0^-3)
    mean = torch.tensor([0.7, 0.2, 0.1], dtype=dtype)
    precisions = torch.tensor([1e5, 1e7, 1e10, 1e14], dtype=dtype).unsqueeze(-1)
    epistemic = Dirichlet(mean * precisions).uncertainty().epistemic
    a = precisions.squeeze(-1).double()
    expected = 1 / a - ((1 / mean.double()).sum() - 1) / (12 * a**2)
    close(epistemic, expected, rtol=1e-6 if dtype == torch.float32 else 1e-9, atol=0)


# digamma(x + 1) - log x to 17 digits, by mpmath
EXCESS = {
    1e-6: 13.238296537995606,
    0.03: 2.9776368100345512,
    0.7: 0.56522281881222636,
    1.0: 0.42278433509846714,
    6.3: 0.077270702240499097,
    40.0: 0.012447919920906823,
    1e5: 4.9999916666666667e-6,
    1e12: 4.9999999999991667e-13,
}


def test_digamma_excess_agrees_with_high_precision():
    x = torch.tensor(list(EXCESS), dtype=torch.float64)
    close(_dirichlet.digamma_excess(x), list(EXCESS.values()), rtol=1e-14, atol=0)
