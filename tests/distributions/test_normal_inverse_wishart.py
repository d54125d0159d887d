# SPDX-License-Identifier: BSD-3-Clause
"""The normal-inverse-Wishart distribution against scipy's multivariate t and simulated members."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdistill.distributions import NormalInverseGamma, NormalInverseWishart


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def student(n=4, t=3, dtype=torch.float64):
    return NormalInverseWishart.from_outputs(randn(n, 2 * t + 2).to(dtype))


def referee(d, row):
    """Multivariate t of scipy, by the textbook formula."""
    df = d.degrees[row].item() - d.mean.shape[1] + 1
    shape = d.psi[row] * (d.nu[row] + 1) / (d.nu[row] * df)
    return stats.multivariate_t(d.mean[row].numpy(), np.diag(shape), df)


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


def test_outputs_by_hand():
    outputs = torch.tensor([[[1.0, 2.0, 0.0, 0.0, 2.0, 3.0]]]).double()
    d = NormalInverseWishart.from_outputs(outputs)
    close(d.mean, [[1.0, 2.0]])
    close(d.nu, [[math.exp(2)]])
    close(d.degrees, [[3 + 2 * math.exp(3)]])
    close(d.psi, [[(3 + 2 * math.exp(3)) * (math.log(2) + 1e-6)] * 2])
    far = NormalInverseWishart.from_outputs(torch.tensor([[0.0, 0.0, 99.0, -99.0]]).double())
    close(far.nu, [[math.exp(6)]])
    close(far.degrees, [[2 + 2 * math.exp(-7)]])


def test_joint_density_is_that_of_multivariate_t():
    d = student()
    y = d.mean + torch.tensor([-30.0, 0.5, 2.0], dtype=torch.float64)
    close(d.log_prob(y), [referee(d, row).logpdf(y[row].numpy()) for row in range(4)])


def test_each_target_by_itself_is_students_t():
    d = student()
    t = stats.t(
        (d.degrees - 2).numpy(),
        d.mean.numpy(),
        (d.psi * (d.nu + 1) / (d.nu * (d.degrees - 2))).sqrt().numpy(),
    )
    y = d.mean + torch.tensor([-30.0, 0.5, 2.0], dtype=torch.float64)
    close(d.marginals.log_prob(y), t.logpdf(y.numpy()))
    close(d.cdf(y), t.cdf(y.numpy()))
    levels = [1e-6, 0.05, 0.5, 0.999]
    close(d.quantile(levels), np.stack([t.ppf(level) for level in levels], -1), rtol=1e-9)
    close(d.interval(0.9), d.quantile([0.05, 0.95]))


def test_one_target_is_normal_inverse_gamma():
    outputs = randn(4, 4)
    wishart = NormalInverseWishart.from_outputs(outputs)
    gamma = NormalInverseGamma.from_outputs(outputs)
    for name in ("mean", "nu", "alpha", "beta"):
        close(getattr(wishart.marginals, name), getattr(gamma, name))
    y = randn(4, 1)
    close(wishart.log_prob(y), gamma.log_prob(y).squeeze(1))


def test_parts_and_draws_are_those_of_simulated_members():
    mean, nu, degrees, psi = [1.0, -2.0], 3.0, 9.0, [2.0, 5.0]
    d = NormalInverseWishart(*(torch.tensor([v]).double() for v in (mean, [nu], [degrees], psi)))
    n, rng = 100_000, np.random.default_rng(0)
    covariances = stats.invwishart(degrees, np.diag(psi)).rvs(n, random_state=rng)
    roots = np.linalg.cholesky(covariances)
    noise = rng.standard_normal((2, n, 2, 1))
    means = np.array(mean) + (roots @ noise[0]).squeeze(-1) / np.sqrt(nu)
    y = means + (roots @ noise[1]).squeeze(-1)
    _, aleatoric, epistemic = d.uncertainty()
    close(aleatoric, [[2.0 / 6, 5.0 / 6]])  # psi / (degrees - t - 1)
    close(epistemic, aleatoric / nu)
    close(aleatoric, np.diagonal(covariances, axis1=1, axis2=2).mean(0)[None], rtol=0.02)
    close(epistemic, means.var(0)[None], rtol=0.02)
    close(d.variance, y.var(0)[None], rtol=0.02)
    drawn = d.sample(n, torch.Generator().manual_seed(0)).squeeze(1).numpy()
    for of in (lambda y: y[:, 0], lambda y: y[:, 1], lambda y: np.abs(y - mean).max(1)):
        assert stats.ks_2samp(of(drawn), of(y)).pvalue > 1e-3  # the last knows their dependence


def test_affine_moves_what_is_read():
    loc, scale = torch.tensor([[3.0, -1.0, 0.0], [2.0, -0.3, 1.0]], dtype=torch.float64)
    d = student()
    moved = d.affine(loc, scale.numpy())
    for part, before in zip(moved.uncertainty(), d.uncertainty(), strict=True):
        close(part, scale.square() * before)
    y = randn(4, 3)
    close(moved.log_prob(loc + scale * y), d.log_prob(y) - scale.abs().log().sum())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"2 t \+ 2 for t targets; got \(3, 7\)"):
        NormalInverseWishart.from_outputs(torch.zeros(3, 7))
    with pytest.raises(ValueError, match=r"2 t \+ 2 for t targets; got \(3, 2\)"):
        NormalInverseWishart.from_outputs(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"y must have shape \(n, t\) = \(4, 3\), got \(4,\)"):
        student().log_prob(torch.zeros(4))
