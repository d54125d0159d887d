# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from skdistill.distributions import EmpiricalGaussian

LEVELS = [1e-12, 1e-6, 0.01, 0.05, 0.3, 0.5, 0.625, 0.95, 1 - 1e-6, 1 - 1e-12]


def ensemble(n_members=5, n_rows=7, n_targets=2, *, spread=2.0, dtype=torch.float64, seed=0):
    """Members around means of size `spread`, with standard deviations from 0.1 to 10."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_members, n_rows, n_targets)
    means = spread * torch.randn(shape, generator=generator, dtype=dtype)
    stds = 10 ** (2 * torch.rand(shape, generator=generator, dtype=dtype) - 1)
    return EmpiricalGaussian(means, stds.square())


def one_row(means, stds, dtype=torch.float64):
    """One sample, one target."""
    means, stds = (torch.tensor(values, dtype=dtype).reshape(-1, 1, 1) for values in (means, stds))
    return EmpiricalGaussian(means, stds.square())


def pairs(distribution):
    """Index, means and standard deviations (numpy, of length S) of every (sample, target)."""
    means, stds = distribution.means.numpy(), distribution.variances.sqrt().numpy()
    for row, target in np.ndindex(means.shape[1:]):
        yield (row, target), means[:, row, target], stds[:, row, target]


def brentq_quantile(q, means, stds):
    """Referee: Brent's method on the mixture's tail, which keeps relative accuracy."""
    own = stats.norm.ppf(q, means, stds)

    def excess(x):
        if q <= 0.5:
            return stats.norm.cdf(x, means, stds).mean() / q - 1
        return 1 - stats.norm.sf(x, means, stds).mean() / (1 - q)

    width = own.max() - own.min()
    return optimize.brentq(excess, own.min() - width, own.max() + width, xtol=1e-300, rtol=1e-15)


def assert_same(first, second, rtol=1e-12):
    torch.testing.assert_close(first.means, second.means, rtol=rtol, atol=0)
    torch.testing.assert_close(first.variances, second.variances, rtol=rtol, atol=0)


# construction


def test_from_outputs_splits_means_from_raw_variances():
    outputs = torch.tensor([[[1.0, 2.0, 0.0, 1000.0], [3.0, 4.0, -1000.0, 1.0]]])
    distribution = EmpiricalGaussian.from_outputs(outputs, min_variance=1e-3)
    assert distribution.means.tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
    expected = [[[math.log(2) + 1e-3, 1000.001], [1e-3, math.log1p(math.e) + 1e-3]]]
    torch.testing.assert_close(distribution.variances, torch.tensor(expected))


@pytest.mark.parametrize("shape", [(2, 5, 3), (5, 4), (2, 2, 5, 4)])
def test_from_outputs_rejects_other_shapes(shape):
    with pytest.raises(ValueError, match=r"one shape \(S, n, t\)"):
        EmpiricalGaussian.from_outputs(torch.zeros(shape))


@pytest.mark.parametrize("n_targets", [1, 3])
def test_members_come_rows_first_and_round_trip(n_targets):
    distribution = ensemble(n_members=4, n_rows=6, n_targets=n_targets)
    members = distribution.members
    assert members.shape == (6, 4, n_targets, 2)
    one = torch.stack((distribution.means[3, 5, 0], distribution.variances[3, 5, 0]))
    assert torch.equal(members[5, 3, 0], one)
    assert_same(EmpiricalGaussian.from_members(members), distribution, rtol=0)
    assert_same(EmpiricalGaussian.from_members(members.numpy()), distribution, rtol=0)
    assert_same(EmpiricalGaussian.from_members(members.tolist()), distribution, rtol=0)


@pytest.mark.parametrize("shape", [(3, 4, 2), (3, 4, 1, 3), (3, 4)])
def test_from_members_rejects_other_shapes(shape):
    with pytest.raises(ValueError, match=r"\(n, S, t, 2\).*got \(3, 4"):
        EmpiricalGaussian.from_members(np.ones(shape))


# moments and uncertainty


def test_uncertainty_by_hand():
    distribution = one_row([1.0, 3.0, 8.0], [1.0, 2.0, 3.0])
    total, aleatoric, epistemic = distribution.uncertainty()
    assert distribution.uncertainty().measure == "variance"
    assert distribution.mean.item() == 4.0
    torch.testing.assert_close(aleatoric.item(), (1 + 4 + 9) / 3)
    torch.testing.assert_close(epistemic.item(), (9 + 1 + 16) / 3)  # by S, not S - 1
    torch.testing.assert_close(total.item(), 40 / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_add_up_exactly(dtype):
    distribution = ensemble(dtype=dtype)
    total, aleatoric, epistemic = distribution.uncertainty()
    assert torch.equal(total, aleatoric + epistemic)
    assert torch.equal(total, distribution.variance)
    assert total.shape == (7, 2)
    assert total.dtype == dtype


def test_epistemic_part_survives_a_large_offset_in_float32():
    offsets = torch.randn(20, 500, 1, generator=torch.Generator().manual_seed(0))
    means = 1e6 + offsets  # rounded to 1/16
    epistemic = EmpiricalGaussian(means, torch.ones_like(means)).uncertainty().epistemic
    assert (epistemic >= 0).all()
    expected = means.double().var(dim=0, correction=0)
    torch.testing.assert_close(epistemic.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_pooled_groups_have_the_moments_of_their_mixture(weight):
    members = ensemble(7)
    is_second = [False, True, False, False, True, True, False]
    found = members.pooled(is_second, weight, torch.tensor([0.5, 2.0]))
    second = torch.tensor(is_second)
    a, b = (members.means[~second], members.means[second])
    noise = [v.mean(0) for v in (members.variances[~second], members.variances[second])]
    parts = found.uncertainty()

    def mixed(first, other):
        return (1 - weight) * first + weight * other

    torch.testing.assert_close(found.mean, mixed(a.mean(0), b.mean(0)))
    torch.testing.assert_close(parts.aleatoric, mixed(*noise))
    within = torch.tensor([0.5, 2.0]) * mixed(a.var(0, correction=0), b.var(0, correction=0))
    between = weight * (1 - weight) * (a.mean(0) - b.mean(0)).square()
    torch.testing.assert_close(parts.epistemic, within + between)
    # Each member keeps its place in its group, and the ratio of its variance to theirs.
    ratio = found.variances / members.variances
    torch.testing.assert_close(ratio[second].std(0), torch.zeros_like(ratio[0]))


# density and distribution function


def test_log_prob_and_cdf_agree_with_scipy():
    distribution = ensemble()
    y = torch.linspace(-30, 30, 14, dtype=torch.float64).reshape(7, 2)
    for index, means, stds in pairs(distribution):
        density = stats.norm.pdf(y[index], means, stds).mean()
        below = stats.norm.cdf(y[index], means, stds).mean()
        np.testing.assert_allclose(distribution.log_prob(y)[index], np.log(density), rtol=1e-10)
        np.testing.assert_allclose(distribution.cdf(y)[index], below, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_prob_is_finite_far_in_the_tails(dtype):
    distribution = one_row([0.0, 1.0], [1.0, 1.0], dtype=dtype)
    log_prob = distribution.log_prob(torch.tensor([[-1e6]], dtype=dtype))
    expected = -0.5 * 1e12 - 0.5 * math.log(2 * math.pi) - math.log(2)
    assert log_prob.dtype == dtype
    np.testing.assert_allclose(log_prob.item(), expected, rtol=1e-6)


def test_cdf_keeps_relative_accuracy_in_the_lower_tail():
    distribution = one_row([0.0, 100.0], [1.0, 1.0])
    below = distribution.cdf(torch.tensor([[-30.0]], dtype=torch.float64))
    np.testing.assert_allclose(below.item(), stats.norm.cdf(-30) / 2, rtol=1e-12)


@pytest.mark.parametrize("method", ["log_prob", "cdf"])
def test_y_must_not_broadcast(method):
    with pytest.raises(ValueError, match=r"y must have shape \(n, t\) = \(7, 1\), got \(7,\)"):
        getattr(ensemble(n_targets=1), method)(torch.zeros(7))


# quantiles


@pytest.mark.parametrize("spread", [0.01, 2.0, 1e3])
@pytest.mark.parametrize("n_members", [2, 5, 20])
def test_quantile_agrees_with_brentq(n_members, spread):
    distribution = ensemble(n_members, n_rows=4, n_targets=1, spread=spread)
    levels = [q for q in LEVELS if (n_members * q) % 1]  # the others may lie in a gap, see below
    quantiles = distribution.quantile(levels)
    assert quantiles.shape == (4, 1, len(levels))
    for index, means, stds in pairs(distribution):
        expected = [brentq_quantile(q, means, stds) for q in levels]
        np.testing.assert_allclose(quantiles[index], expected, rtol=1e-10)


@pytest.mark.parametrize("width", [1.0, 12.0, 30.0])
def test_quantile_in_a_gap_balances_the_tails(width):
    """At the median of N(0, 1) and N(d, s^2): x = (d - x) / s, however flat F is there."""
    scale = 3.0
    distance = width * (1 + scale)
    distribution = one_row([0.0, distance], [1.0, scale])
    np.testing.assert_allclose(distribution.quantile(0.5).item(), width, rtol=1e-12)
    mirrored = one_row([0.0, -distance], [1.0, scale])
    np.testing.assert_allclose(mirrored.quantile(0.5).item(), -width, rtol=1e-12)


@pytest.mark.parametrize("coverage", [0.1, 0.9, 0.6])
def test_interval_of_a_symmetric_mixture_is_symmetric(coverage):
    """Also where (1 - coverage) / 2 is k / S only up to rounding, and the members are far apart."""
    means = torch.linspace(-10, 10, 20, dtype=torch.float64)
    low, high = one_row(means.tolist(), [0.03] * 20).interval(coverage).flatten().tolist()
    assert low == pytest.approx(-high, rel=1e-13)
    middle = 10 - 20 * (20 * (1 - coverage) / 2 - 0.5) / 19  # of the gap between two members
    assert high == pytest.approx(middle, rel=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 100.0])
def test_quantile_in_float32_is_that_in_float64_to_rounding(spread):
    single = ensemble(20, n_rows=300, spread=spread, dtype=torch.float32)
    double = EmpiricalGaussian(single.means.double(), single.variances.double())
    q = [1e-6, 0.05, 0.3, 0.5, 0.97]  # also k / 20, where a gap may make the function flat
    found, expected = single.quantile(q), double.quantile(q)
    assert found.dtype == torch.float32
    least = single.variances.amin(dim=0).sqrt().unsqueeze(-1)
    assert ((found - expected).abs() <= 3e-6 * (expected.abs() + least)).all()


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, math.nan, [0.5, 1.5], [[0.5]]])
def test_quantile_rejects_what_is_no_probability(q):
    with pytest.raises(ValueError, match=r"quantiles must .* strictly between 0 and 1, got"):
        ensemble().quantile(q)


@pytest.mark.parametrize("coverage", [0, 1, 1.2, -0.1, math.nan])
def test_interval_rejects_what_is_no_coverage(coverage):
    with pytest.raises(ValueError, match=rf"coverage must .* 0 and 1, got {coverage}"):
        ensemble().interval(coverage)


# samples


def test_sample_has_the_moments_of_the_mixture():
    n_samples = 20_000
    distribution = ensemble(n_members=3, n_rows=2, n_targets=2)
    samples = distribution.sample(n_samples, torch.Generator().manual_seed(0))
    assert samples.shape == (n_samples, 2, 2)
    errors = samples - distribution.mean
    for power, expected in ((1, torch.zeros(2, 2)), (2, distribution.variance)):
        moment = errors.pow(power)
        standard_error = moment.std(dim=0) / math.sqrt(n_samples)
        assert ((moment.mean(dim=0) - expected).abs() < 5 * standard_error).all()


# all at once


@pytest.mark.parametrize("array", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_affine_equivariance(array):
    distribution = ensemble(n_targets=2)
    moved = distribution.affine(array([10.0, -3.0]), array([0.5, 4.0]))
    loc, scale = torch.tensor([10.0, -3.0]).double(), torch.tensor([0.5, 4.0]).double()
    y = torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    close = {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(moved.mean, loc + scale * distribution.mean, **close)
    for part, expected in zip(moved.uncertainty(), distribution.uncertainty(), strict=True):
        torch.testing.assert_close(part, scale.square() * expected, **close)
    log_prob = distribution.log_prob(y) - scale.log()
    torch.testing.assert_close(moved.log_prob(loc + scale * y), log_prob, **close)
    torch.testing.assert_close(moved.cdf(loc + scale * y), distribution.cdf(y), **close)
    loc_column, scale_column = loc[:, None], scale[:, None]
    expected = loc_column + scale_column * distribution.quantile(LEVELS)
    torch.testing.assert_close(moved.quantile(LEVELS), expected, **close)
    expected = loc_column + scale_column * distribution.interval(0.7)
    torch.testing.assert_close(moved.interval(0.7), expected, **close)
    samples = distribution.sample(9, torch.Generator().manual_seed(0))
    again = moved.sample(9, torch.Generator().manual_seed(0))
    torch.testing.assert_close(again, loc + scale * samples, **close)
