# SPDX-License-Identifier: BSD-3-Clause
"""The normal-inverse-gamma distribution against scipy's Student t, sampling and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdistill.distributions import NormalInverseGamma


def student(n=4, t=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(n, 4 * t, generator=generator, dtype=torch.float64)
    return NormalInverseGamma.from_outputs(outputs.to(dtype))


def referee(d):
    """Student's t of scipy, by the textbook formula."""
    scale = (d.beta * (d.nu + 1) / (d.nu * d.alpha)).sqrt()
    return stats.t(2 * d.alpha.numpy(), loc=d.mean.numpy(), scale=scale.numpy())


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


def test_outputs_by_hand():
    d = NormalInverseGamma.from_outputs(torch.tensor([[[1.0, 0.0, 2.0, 3.0]]]).double())
    close(d.mean, [[1.0]])
    close(d.nu, [[math.exp(2)]])
    close(d.alpha, [[1 + math.exp(3)]])
    close(d.beta, [[(1 + math.exp(3)) * (math.log(2) + 1e-6)]])
    far = NormalInverseGamma.from_outputs(torch.tensor([[0.0, 0.0, 99.0, -99.0]]).double())
    close(far.nu, [[math.exp(6)]])
    close(far.alpha, [[1 + math.exp(-7)]])


def test_marginal_is_students_t():
    d = student()
    t = referee(d)
    y = d.mean + torch.tensor([[-30.0, 0.5]], dtype=torch.float64)
    close(d.log_prob(y), t.logpdf(y.numpy()))
    close(d.cdf(y), t.cdf(y.numpy()))
    levels = [1e-6, 0.05, 0.5, 0.999]
    expected = np.stack([t.ppf(level) for level in levels], axis=-1)
    close(d.quantile(levels), expected, rtol=1e-9)
    close(d.interval(0.9), d.quantile([0.05, 0.95]))


def test_parts_are_those_of_simulated_members():
    d = NormalInverseGamma(*(torch.full((1, 1), v).double() for v in (2.0, 3.0, 6.0, 4.0)))
    rng = np.random.default_rng(0)
    n = 400_000
    variances = stats.invgamma(6.0, scale=4.0).rvs(n, random_state=rng)
    means = 2.0 + np.sqrt(variances / 3.0) * rng.standard_normal(n)
    total, aleatoric, epistemic = (part.item() for part in d.uncertainty())
    assert aleatoric == pytest.approx(0.8)  # beta / (alpha - 1)
    assert epistemic == pytest.approx(0.8 / 3)
    assert aleatoric == pytest.approx(variances.mean(), abs=4 * variances.std() / n**0.5)
    assert epistemic == pytest.approx(means.var(), rel=0.02)
    assert total == pytest.approx(referee(d).var().item())
    y = means + np.sqrt(variances) * rng.standard_normal(n)
    assert stats.kstest(y, lambda v: referee(d).cdf(v).ravel()).pvalue > 1e-3


def test_draws_follow_the_marginal_and_serve_every_row():
    d = student()
    y = d.sample(20_000, torch.Generator().manual_seed(3))
    pit = torch.stack([d.cdf(row) for row in y[:4000]])
    assert stats.kstest(pit[:, 0, 0].numpy(), "uniform").pvalue > 1e-3
    close(pit, pit[:, :1].expand_as(pit), rtol=1e-6, atol=1e-9)  # the same uniform number


def test_affine_moves_what_is_read():
    loc, scale = torch.tensor([[3.0, -1.0], [2.0, -0.3]], dtype=torch.float64)
    d = student()
    moved = d.affine(loc, scale.numpy())
    for part, before in zip(moved.uncertainty(), d.uncertainty(), strict=True):
        close(part, scale.square() * before)
    y = torch.randn(4, 2, dtype=torch.float64)
    close(moved.log_prob(loc + scale * y), d.log_prob(y) - scale.abs().log())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"4 t for t targets; got \(3, 6\)"):
        NormalInverseGamma.from_outputs(torch.zeros(3, 6))
    with pytest.raises(ValueError, match=r"y must have shape \(n, t\) = \(4, 2\), got \(4,\)"):
        student().cdf(torch.zeros(4))
