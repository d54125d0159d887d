# SPDX-License-Identifier: BSD-3-Clause
"""Losses against closed forms, scipy and torch, brute force, and the minimum found by descent."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from skdistill import losses
from skdistill.losses import Mixture

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussians(*shape, seed=0):
    """Gaussians of a given shape with means around 0 and variances around 1."""
    return Mixture(randn(*shape, seed=seed), 0.1 + randn(*shape, seed=seed + 100).square())


def entropy(g):
    return (0.5 * torch.log(g.variance) + HALF_LOG_2PI + 0.5).sum(-1)


def outputs_of(g):
    """Outputs that are read as these Gaussians."""
    variance = g.variance - 1e-6
    return torch.cat((g.mean, variance + torch.log(-torch.expm1(-variance))), dim=-1)


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


# --- the likelihood -----------------------------------------------------------------------


def test_gaussian_nll_is_minus_scipys_log_density_summed_over_targets():
    g, y = gaussians(4, 7, 2), randn(4, 7, 2, seed=1)
    expected = -stats.norm.logpdf(y, g.mean, g.variance.sqrt()).sum(-1) - 2 * HALF_LOG_2PI
    close(losses.gaussian_nll(outputs_of(g), y), torch.tensor(expected))


@pytest.mark.parametrize("beta", [0.25, 0.5, 1.0])
def test_beta_weights_each_target_by_a_power_of_its_variance(beta):
    g, y = gaussians(6, 2), randn(6, 2, seed=1)
    per_target = 0.5 * (torch.log(g.variance) + (y - g.mean) ** 2 / g.variance)
    close(losses.gaussian_nll(outputs_of(g), y, beta=beta), (g.variance**beta * per_target).sum(-1))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_weight_of_beta_nll_passes_no_gradient(beta):
    # Seitzer et al., Eqs 6 and 7: the gradients of the likelihood, times variance ** beta.
    g, y = gaussians(6, 1), randn(6, 1, seed=1)
    outputs, weight = outputs_of(g), g.variance**beta
    d_mean = weight * (g.mean - y) / g.variance
    d_variance = weight * 0.5 * (g.variance - (y - g.mean) ** 2) / g.variance**2
    expected = torch.cat((d_mean, d_variance * outputs[:, 1:].sigmoid()), dim=-1)
    close(losses.gaussian_nll.and_gradient(outputs, y, beta)[1], expected)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_noise_moves_the_targets_of_the_mean_alone(beta):
    g, y, noise = gaussians(3, 6, 2), randn(6, 2, seed=1), randn(3, 6, 2, seed=2)
    outputs = outputs_of(g)
    moved = outputs.clone().requires_grad_(True)
    targets = y + g.variance.sqrt() * noise  # a constant: no gradient passes through it
    losses.gaussian_nll(moved, targets, beta).sum().backward()
    plain_loss, plain = losses.gaussian_nll.and_gradient(outputs, y, beta)
    loss, found = losses.gaussian_nll.and_gradient(outputs, y, beta, noise=noise)
    close(found[..., :2], moved.grad[..., :2])
    close(found[..., 2:], plain[..., 2:])
    close(loss, plain_loss)
    zero = losses.gaussian_nll.and_gradient(outputs, y, beta, noise=torch.zeros_like(noise))
    close(zero[1], plain)


# --- cross-entropy of two Gaussians ---------------------------------------------------------


def test_cross_entropy_is_the_expected_likelihood_under_the_target():
    target, prediction = gaussians(4, 1), gaussians(4, 1, seed=7)
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)  # exact: the integrand is quadratic
    draws = target.mean + target.variance.sqrt() * torch.tensor(nodes)  # (4, 8)
    nll = losses.gaussian_nll(outputs_of(prediction).unsqueeze(1), draws.unsqueeze(-1))
    expected = nll @ torch.tensor(weights / weights.sum())
    close(losses.gaussian_cross_entropy(prediction, target), expected)


# --- the aggregate and the pairs ------------------------------------------------------------


def test_moments_are_those_of_the_mixture_by_numpy():
    members = gaussians(2, 5, 4, 3)  # (S, M, n, t)
    aggregate, epistemic = losses.moments(members)
    mean, variance = (value.numpy() for value in members)
    np.testing.assert_allclose(aggregate.mean, mean.mean(1), rtol=1e-12)
    np.testing.assert_allclose(epistemic, mean.var(1), rtol=1e-12)
    np.testing.assert_allclose(aggregate.variance, variance.mean(1) + mean.var(1), rtol=1e-12)


@pytest.mark.parametrize(
    ("n_members", "n_heads", "members", "heads"),
    [
        (5, 2, [0, 1, 2, 3, 4], [0, 1, 0, 1, 0]),
        (2, 5, [0, 1, 0, 1, 0], [0, 1, 2, 3, 4]),
        (3, 3, [0, 1, 2], [0, 1, 2]),
        (3, 1, [0, 1, 2], [0, 0, 0]),
        (1, 1, [0], [0]),
    ],
)
def test_member_n_goes_to_head_n_mod_m_or_the_other_way_round(n_members, n_heads, members, heads):
    found = losses.pairing(n_members, n_heads)
    assert [index.tolist() for index in found] == [members, heads]


# --- where the losses are least -------------------------------------------------------------


IMITATIONS = {
    "aggregation": losses.aggregation,
    "individuality": losses.individuality,
    "residual_mismatch": losses.residual_mismatch,
    "spread_mismatch": losses.spread_mismatch,
}


@pytest.mark.parametrize("name", IMITATIONS)
def test_a_student_equal_to_its_teacher_is_stationary(name):
    outputs = randn(2, 4, 6, 2).requires_grad_()
    heads = Mixture.from_outputs(outputs)
    members = Mixture(*(value.detach() for value in heads))
    IMITATIONS[name](heads, members).sum().backward()
    close(outputs.grad, torch.zeros_like(outputs))


# --- matching the spread --------------------------------------------------------------------


def test_residual_mismatch_by_hand():
    # Residuals -1, 1 of the members (epistemic variance 1) against -3, 3 of the heads: 4 / 1.
    members = Mixture(torch.tensor([[[4.0]], [[6.0]]]), torch.ones(2, 1, 1))
    heads = Mixture(torch.tensor([[[-2.0]], [[4.0]]]), torch.ones(2, 1, 1))
    close(losses.residual_mismatch(heads, members, floor=0.0), torch.tensor([4.0]))
    close(losses.residual_mismatch(heads, members, floor=1.0), torch.tensor([2.0]))


def test_spread_mismatch_by_hand():
    # Epistemic variances 1 and e^2: the logs differ by 2, for each of two targets.
    members = Mixture(torch.tensor([[[-1.0, 2.0]], [[1.0, 4.0]]]), torch.ones(2, 1, 2))
    heads = Mixture(members.mean * math.e, torch.ones(2, 1, 2))
    close(losses.spread_mismatch(heads, members, floor=0.0), torch.tensor([8.0]), rtol=1e-6)
    log_gain = torch.tensor([[-2.0, 1.0]])  # makes up for the first
    error = losses.spread_error(heads, members, log_gain, floor=0.0)
    close(error, torch.tensor([[0.0, 3.0]]), rtol=1e-6, atol=1e-6)
    found = losses.spread_mismatch(heads, members, log_gain, floor=0.0)
    close(found, torch.tensor([9.0]), rtol=1e-6)


def test_small_floors_leave_the_spread_of_members_next_to_without_noise():
    # Epistemic variances 1e-5 of the members and 4e-5 of the heads: residuals twice as large.
    members = Mixture(torch.tensor([-1.0, 1.0]).view(2, 1, 1) * 1e-5**0.5, torch.ones(2, 1, 1))
    heads = Mixture(2 * members.mean, members.variance)
    found = losses.residual_mismatch(heads, members, floor=1e-5)
    close(found, torch.tensor([1e-5 / (1e-5 + 1e-5)]), rtol=1e-6)
    expected = torch.tensor([math.log(41 / 11) ** 2])
    close(losses.spread_mismatch(heads, members, floor=1e-6), expected, rtol=1e-6)
    error = losses.spread_error(heads, members, floor=1e-6)
    close(error.square().squeeze(-1), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["residual_mismatch", "spread_mismatch"])
def test_members_that_agree_give_finite_losses(name):
    members = Mixture(torch.zeros(3, 4, 1), torch.ones(3, 4, 1))
    assert IMITATIONS[name](gaussians(3, 4, 1), members).isfinite().all()


# --- diversity of the heads' weights --------------------------------------------------------

N_HEADS = 6


def brute_force(weight, reference):
    """Eq 9, and its pairwise form, for weights (M, n_units, fan_in), cosine by cosine."""
    n_heads, n_units, _ = weight.shape
    heads = weight.numpy()

    def cosine(a, b):
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    values = []
    for unit in range(n_units):
        if reference == "mean":
            mean = heads[:, unit].mean(0)
            cosines = [cosine(mean, heads[m, unit]) for m in range(n_heads)]
        else:
            pairs = itertools.permutations(range(n_heads), 2)
            cosines = [cosine(heads[i, unit], heads[j, unit]) for i, j in pairs]
        values.append(n_heads * (1 + np.mean(cosines)) / 2)
    return float(np.mean(values))


@pytest.mark.parametrize("reference", ["mean", "pairwise"])
def test_diversity_equals_brute_force(reference):
    layers = [randn(N_HEADS, 4, 8), randn(N_HEADS, 3, 5, seed=1)]
    expected = sum(brute_force(layer, reference) for layer in layers)
    assert losses.diversity(layers, reference).item() == pytest.approx(expected, rel=1e-10)


# --- gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["mean", "pairwise"])
def test_gradients_of_diversity_equal_finite_differences(reference):
    layers = [randn(3, 2, 4).requires_grad_(), randn(3, 1, 5, seed=1).requires_grad_()]
    assert gradcheck(lambda *weights: losses.diversity(list(weights), reference), layers)


# --- gradients in closed form ---------------------------------------------------------------


def plain_cross_entropy(prediction, target):
    mean, variance = prediction
    squared = target.variance + (target.mean - mean).square()
    return 0.5 * (squared / variance + torch.log(variance)).sum(-1)


def plain_moments(members):
    epistemic, mean = torch.var_mean(members.mean, dim=-3, correction=0)
    return Mixture(mean, members.variance.mean(-3) + epistemic)


def plain_individuality(heads, members, pairs):
    members, heads = (
        Mixture(*(value[:, index] for value in group))
        for group, index in zip((members, heads), pairs, strict=True)
    )
    return plain_cross_entropy(heads, members).mean(-2)


def plain_residual_mismatch(heads, members, pairs):
    epistemic, mean = torch.var_mean(members.mean, dim=-3, correction=0, keepdim=True)
    teacher = (members.mean - mean)[:, pairs[0]]
    student = (heads.mean - heads.mean.mean(-3, keepdim=True))[:, pairs[1]]
    return ((student - teacher).square() / (epistemic + 1e-4)).mean(-3).sum(-1)


def plain_spread_mismatch(heads, members):
    teacher, student = (torch.var(g.mean, dim=-3, correction=0) for g in (members, heads))
    return (torch.log(student + 1e-5) - torch.log(teacher + 1e-5)).square().sum(-1)


def plain_correctness(heads, y):
    mean, variance = heads
    return 0.5 * (variance.log() + (y.unsqueeze(-3) - mean) ** 2 / variance).sum(-1).mean(-2)


PLAIN = {
    "correctness": plain_correctness,
    "aggregation": lambda h, m: plain_cross_entropy(plain_moments(h), plain_moments(m)),
    "individuality": plain_individuality,
    "residual_mismatch": plain_residual_mismatch,
    "spread_mismatch": plain_spread_mismatch,
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("n_members", "n_heads"), [(3, 3), (5, 2), (2, 5), (4, 1), (1, 4), (1, 1)])
def test_closed_gradients_are_autograds_of_the_plain_formula(name, n_members, n_heads):
    target = gaussians(2, n_members, 4, 2, seed=5)
    arguments = [randn(2, 4, 2, seed=1) if name == "correctness" else target]
    if name in ("individuality", "residual_mismatch"):
        arguments.append(losses.pairing(n_members, n_heads))
    heads = Mixture(*(value.requires_grad_() for value in gaussians(2, n_heads, 4, 2, seed=2)))
    expected = PLAIN[name](heads, *arguments)
    slopes = torch.autograd.grad(expected.sum(), heads, materialize_grads=True)
    heads = Mixture(*(value.detach() for value in heads))
    loss, gradient = getattr(losses, name).and_gradient(heads, *arguments)
    close(loss, expected.detach())
    for part, slope in zip(gradient, slopes, strict=True):
        close(part, slope, atol=1e-10)
