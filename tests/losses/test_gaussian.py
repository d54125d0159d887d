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


def test_gaussian_nll_is_torchs():
    g, y = gaussians(5, 1), randn(5, 1, seed=1)
    expected = torch.nn.functional.gaussian_nll_loss(g.mean, y, g.variance, reduction="none")
    close(losses.gaussian_nll(outputs_of(g), y), expected.squeeze(-1))


@pytest.mark.parametrize("beta", [0.25, 0.5, 1.0])
def test_beta_weights_each_target_by_a_power_of_its_variance(beta):
    g, y = gaussians(6, 2), randn(6, 2, seed=1)
    per_target = 0.5 * (torch.log(g.variance) + (y - g.mean) ** 2 / g.variance)
    close(losses.gaussian_nll(outputs_of(g), y, beta=beta), (g.variance**beta * per_target).sum(-1))


def test_beta_of_zero_is_the_likelihood_itself():
    outputs, y = randn(6, 4), randn(6, 2, seed=1)
    assert torch.equal(losses.gaussian_nll(outputs, y, beta=0.0), losses.gaussian_nll(outputs, y))


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


def test_cross_entropy_is_torchs_divergence_plus_entropy():
    target, prediction = gaussians(3, 6, 2), gaussians(3, 6, 2, seed=7)
    p, q = (torch.distributions.Normal(g.mean, g.variance.sqrt()) for g in (target, prediction))
    divergence = torch.distributions.kl_divergence(p, q)
    expected = (divergence + p.entropy() - HALF_LOG_2PI).sum(-1)
    close(losses.gaussian_cross_entropy(prediction, target), expected)


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


def test_correctness_is_the_heads_mean_likelihood():
    heads, y = gaussians(2, 3, 5, 2), randn(2, 5, 2, seed=1)  # (S, M, n, t), (S, n, t)
    expected = -stats.norm.logpdf(y[:, None], heads.mean, heads.variance.sqrt()).sum(-1).mean(1)
    close(losses.correctness(heads, y), torch.tensor(expected - 2 * HALF_LOG_2PI))


def test_aggregation_of_equal_heads_and_one_member_is_the_cross_entropy():
    member, head = gaussians(1, 5, 1), gaussians(1, 5, 1, seed=7)
    heads = Mixture(*(value.expand(3, 5, 1) for value in head))
    expected = losses.gaussian_cross_entropy(head, member).squeeze(0)
    close(losses.aggregation(heads, member), expected)


def test_individuality_is_the_pairs_mean_divergence_up_to_the_members_entropy():
    members, heads = gaussians(3, 5, 2), gaussians(3, 5, 2, seed=7)
    p, q = (torch.distributions.Normal(g.mean, g.variance.sqrt()) for g in (members, heads))
    divergence = torch.distributions.kl_divergence(p, q).sum(-1).mean(0)
    expected = divergence + entropy(members).mean(0) - 2 * HALF_LOG_2PI
    close(losses.individuality(heads, members), expected)


def test_individuality_of_five_members_and_two_heads_by_hand():
    members, heads = gaussians(5, 4, 2), gaussians(2, 4, 2, seed=7)  # (N, n, t), (M, n, t)
    found = losses.individuality(heads, members, losses.pairing(5, 2))
    expected = torch.zeros(4, dtype=torch.float64)
    for n, m in [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]:
        error = members.variance[n] + (members.mean[n] - heads.mean[m]) ** 2
        expected += 0.5 * (error / heads.variance[m] + torch.log(heads.variance[m])).sum(-1)
    close(found, expected / 5)


@pytest.mark.parametrize("name", ["individuality", "residual_mismatch"])
def test_pairs_in_order_are_those_of_equal_numbers(name):
    members, heads = gaussians(2, 3, 5, 2), gaussians(2, 3, 5, 2, seed=7)  # (S, N, n, t)
    loss = IMITATIONS[name]
    assert torch.equal(loss(heads, members), loss(heads, members, losses.pairing(3, 3)))


@pytest.mark.parametrize("name", ["individuality", "residual_mismatch"])
@pytest.mark.parametrize(("n_members", "n_heads"), [(5, 2), (2, 5), (4, 1), (1, 4)])
def test_each_of_a_stack_is_paired_by_itself(name, n_members, n_heads):
    members, heads = gaussians(3, n_members, 6, 2), gaussians(3, n_heads, 6, 2, seed=7)
    pairs = losses.pairing(n_members, n_heads)
    found = IMITATIONS[name](heads, members, pairs)
    assert found.shape == (3, 6)
    for s in range(3):
        one = (Mixture(*(value[s] for value in group)) for group in (heads, members))
        close(IMITATIONS[name](*one, pairs), found[s])


# --- where the losses are least -------------------------------------------------------------


def minimiser(loss, shape, seed=3):
    """Gaussian of a given shape at which `loss` is least, by L-BFGS from a random start."""
    outputs = randn(*shape[:-1], 2 * shape[-1], seed=seed).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [outputs],
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = loss(Mixture.from_outputs(outputs)).sum()
        value.backward()
        return value

    optimizer.step(closure)
    return Mixture.from_outputs(outputs.detach())


def test_the_likelihood_is_least_at_the_mean_and_biased_variance_of_the_labels():
    y = randn(40, 1, 2, seed=1)
    found = minimiser(lambda g: losses.gaussian_nll(outputs_of(g), y), (1, 2))
    close(found.mean, y.mean(0), atol=1e-6, rtol=0)
    close(found.variance, y.var(0, correction=0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n_heads", [1, 3])
def test_aggregation_is_least_where_the_aggregates_agree(n_heads):
    members = gaussians(4, 6, 1)
    found = minimiser(lambda heads: losses.aggregation(heads, members), (n_heads, 6, 1))
    close(losses.moments(found)[0], losses.moments(members)[0], atol=1e-6, rtol=0)


def test_individuality_is_least_where_each_head_is_its_member():
    members = gaussians(3, 6, 1)
    found = minimiser(lambda heads: losses.individuality(heads, members), (3, 6, 1))
    close(found, members, atol=1e-6, rtol=0)


def test_individuality_of_a_head_with_many_members_is_least_at_their_moments():
    members = gaussians(4, 6, 1)

    def loss(head):
        return losses.individuality(head, members, losses.pairing(4, 1))

    found = minimiser(loss, (1, 6, 1))
    close(Mixture(*(value[0] for value in found)), losses.moments(members)[0], atol=1e-6, rtol=0)


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


@pytest.mark.parametrize("name", IMITATIONS)
def test_no_student_is_better_than_the_teacher_itself(name):
    members = gaussians(4, 6, 2)
    least = IMITATIONS[name](members, members)
    for seed in range(1, 20):
        assert (IMITATIONS[name](gaussians(4, 6, 2, seed=seed), members) >= least - 1e-12).all()


# --- matching the spread --------------------------------------------------------------------


def test_residual_mismatch_by_hand():
    # Residuals -1, 1 of the members (epistemic variance 1) against -3, 3 of the heads: 4 / 1.
    members = Mixture(torch.tensor([[[4.0]], [[6.0]]]), torch.ones(2, 1, 1))
    heads = Mixture(torch.tensor([[[-2.0]], [[4.0]]]), torch.ones(2, 1, 1))
    close(losses.residual_mismatch(heads, members, floor=0.0), torch.tensor([4.0]))
    close(losses.residual_mismatch(heads, members, floor=1.0), torch.tensor([2.0]))


def test_residual_mismatch_of_five_members_and_two_heads_by_hand():
    # Residuals -2, -1, 0, 1, 2 of the members (epistemic variance 2). The mean of the two heads is
    # 3 (that over the pairs would be 2), their residuals -3 and 3; those of the pairs differ by
    # -1, 4, -3, 2, -5, of mean square 11.
    means = torch.tensor([10.0, 11.0, 12.0, 13.0, 14.0]).view(5, 1, 1)
    members = Mixture(means, torch.ones(5, 1, 1))
    heads = Mixture(torch.tensor([0.0, 6.0]).view(2, 1, 1), torch.ones(2, 1, 1))
    pairs = losses.pairing(5, 2)
    found = losses.residual_mismatch(heads, members, pairs, floor=0.0)
    close(found, torch.tensor([11 / 2]), rtol=1e-6)
    found = losses.residual_mismatch(heads, members, pairs, floor=2.0)
    close(found, torch.tensor([11 / 4]), rtol=1e-6)


def test_residual_mismatch_of_two_members_and_five_heads_by_hand():
    # Residuals -1, 1 of the members (epistemic variance 1) against -2, -1, 0, 1, 2: those of the
    # pairs differ by -1, -2, 1, 0, 3, of mean square 3; for each of two targets.
    members = Mixture(torch.tensor([4.0, 6.0]).view(2, 1, 1).expand(2, 1, 2), torch.ones(2, 1, 2))
    means = torch.arange(5.0).view(5, 1, 1).expand(5, 1, 2)
    found = losses.residual_mismatch(
        Mixture(means, torch.ones(5, 1, 2)), members, losses.pairing(2, 5), floor=0.0
    )
    close(found, torch.tensor([6.0]), rtol=1e-6)


@pytest.mark.parametrize("n_heads", [2, 3, 5])
def test_residual_mismatch_ignores_a_common_shift_of_the_heads(n_heads):
    members, heads = gaussians(3, 5, 2), gaussians(n_heads, 5, 2, seed=7)
    pairs = losses.pairing(3, n_heads)
    shifted = Mixture(heads.mean + randn(5, 2, seed=9), heads.variance)
    expected = losses.residual_mismatch(heads, members, pairs)
    close(losses.residual_mismatch(shifted, members, pairs), expected)


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


def test_spread_mismatch_takes_other_numbers_of_heads_than_members():
    members, heads = gaussians(5, 4, 1), gaussians(2, 4, 1, seed=7)
    ratio = (heads.mean.numpy().var(0) + 1e-5) / (members.mean.numpy().var(0) + 1e-5)
    expected = torch.tensor(np.log(ratio) ** 2).squeeze(-1)
    close(losses.spread_mismatch(heads, members), expected)


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


def identical_heads():
    return randn(4, 8).expand(N_HEADS, 4, 8)  # (M, n_units, fan_in)


def orthonormal_heads():
    """Every unit's weights are orthonormal from head to head."""
    bases = [torch.linalg.qr(randn(8, 8, seed=s)).Q[:N_HEADS] for s in range(4)]
    return torch.stack(bases, dim=1)


def zero_mean_heads():
    half = randn(N_HEADS // 2, 4, 8)
    return torch.cat([half, -half])


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


@pytest.mark.parametrize(
    ("heads", "reference", "expected"),
    [
        (identical_heads, "mean", N_HEADS),
        (identical_heads, "pairwise", N_HEADS),
        (orthonormal_heads, "mean", N_HEADS * (1 + 1 / math.sqrt(N_HEADS)) / 2),
        (orthonormal_heads, "pairwise", N_HEADS / 2),
        (zero_mean_heads, "mean", N_HEADS / 2),
        # Pairs of opposite heads: M of the M (M - 1) pairs have cosine -1, the others cancel.
        (zero_mean_heads, "pairwise", N_HEADS * (1 - 1 / (N_HEADS - 1)) / 2),
    ],
)
def test_diversity_oracles(heads, reference, expected):
    weight = heads()
    assert losses.diversity([weight], reference).item() == pytest.approx(expected, rel=1e-7)
    both = losses.diversity([weight, weight], reference)  # summed over layers
    assert both.item() == pytest.approx(2 * expected, rel=1e-7)


def test_the_minimum_of_the_mean_form_is_degenerate_and_that_of_the_pairwise_form_is_not():
    unit = torch.nn.functional.normalize(randn(1, 8), dim=-1)
    lone = torch.cat([100 * unit, (-unit).expand(19, 8)]).unsqueeze(1)  # one long head, 19 opposed
    orthonormal = torch.linalg.qr(randn(20, 20)).Q.unsqueeze(1)
    assert losses.diversity([lone]).item() == pytest.approx(1.0)
    assert losses.diversity([orthonormal]).item() == pytest.approx(12.2, abs=0.05)
    lone, orthonormal = (losses.diversity([w], "pairwise") for w in (lone, orthonormal))
    assert lone > orthonormal


@pytest.mark.parametrize("reference", ["mean", "pairwise"])
def test_diversity_does_not_change_with_the_scale_of_a_units_weights(reference):
    weight = randn(N_HEADS, 4, 8)
    scale = torch.tensor([1e-3, 0.5, 2.0, 1e3], dtype=torch.float64).view(4, 1)
    close(losses.diversity([weight * scale], reference), losses.diversity([weight], reference))


def test_the_pairwise_form_does_not_change_with_the_length_of_a_head():
    weight, scale = randn(N_HEADS, 4, 8), randn(N_HEADS, 1, 1, seed=1).exp()
    close(losses.diversity([weight * scale], "pairwise"), losses.diversity([weight], "pairwise"))


@pytest.mark.parametrize("reference", ["mean", "pairwise"])
def test_diversity_of_each_member_of_a_stack_is_its_own(reference):
    stacked = randn(3, N_HEADS, 4, 8)
    expected = torch.stack([losses.diversity([one], reference) for one in stacked])
    close(losses.diversity([stacked], reference), expected)


@pytest.mark.parametrize("reference", ["mean", "pairwise"])
def test_heads_of_zeros_have_a_finite_diversity_and_gradient(reference):
    weight = torch.zeros(3, 2, 4, requires_grad=True)
    value = losses.diversity([weight], reference)
    value.backward()
    assert value.item() == pytest.approx(1.5)
    assert weight.grad.isfinite().all()


# --- gradients ------------------------------------------------------------------------------

Y, MEMBERS = randn(3, 4, 2, seed=1), gaussians(3, 4, 2, seed=5)
FIVE_MEMBERS = gaussians(5, 4, 2, seed=6)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda g: losses.gaussian_nll(outputs_of(g), Y), id="gaussian_nll"),
        pytest.param(lambda g: losses.gaussian_cross_entropy(g, MEMBERS), id="cross_entropy"),
        pytest.param(lambda g: losses.moments(g)[0].variance, id="moments"),
        pytest.param(lambda g: losses.spread_mismatch(g, MEMBERS, Y[0]), id="spread with a gain"),
        pytest.param(lambda g: losses.correctness(g, Y[0]), id="correctness"),
        *(pytest.param(lambda g, f=f: f(g, MEMBERS), id=name) for name, f in IMITATIONS.items()),
        *(
            pytest.param(
                lambda g, f=IMITATIONS[name]: f(g, FIVE_MEMBERS, losses.pairing(5, 3)),
                id=f"{name} of unequal numbers",
            )
            for name in ("individuality", "residual_mismatch")
        ),
    ],
)
def test_gradients_equal_finite_differences(loss):
    outputs = randn(3, 4, 4, seed=2).requires_grad_()
    assert gradcheck(lambda z: loss(Mixture.from_outputs(z)), outputs)


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


def test_closed_gradient_of_the_cross_entropy_by_hand():
    # Error 1, variance 2, target variance 3: ratio 4 / 2, slopes 1 / 2 and (1 - 2) / 4.
    target = Mixture(torch.zeros(1, 1), torch.full((1, 1), 3.0))
    prediction = Mixture(torch.ones(1, 1), torch.full((1, 1), 2.0))
    loss, gradient = losses.gaussian_cross_entropy.and_gradient(prediction, target)
    assert loss.item() == pytest.approx(1 + math.log(2) / 2)
    assert [part.item() for part in gradient] == pytest.approx([0.5, -0.25])
