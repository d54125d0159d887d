# SPDX-License-Identifier: BSD-3-Clause
"""Losses of second-order students against scipy's densities, differences and minima by descent."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch.autograd import gradcheck

from skdistill import losses
from skdistill.distributions import (
    EmpiricalGaussian,
    Gaussian,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from skdistill.families import GaussianFamily

M, N, T, K, RANK = 5, 4, 2, 4, 2


def randn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


def members_of(m=M, n=N, t=T, seed=1):
    """Means and variances of members (m, n, t)."""
    mean, raw = randn(2, m, n, t, seed=seed)
    return Gaussian(mean, 0.1 + 0.5 * raw.exp())


def parameters(m=M, n=N):
    """Logits of members relative to the last class, (m, n, K - 1)."""
    return losses.relative_logits(randn(m, n, K, seed=2))


def diagonal_target():
    return losses.normal_target(losses.gaussian_parameters(members_of()))


def paired_target():
    return losses.paired_normal_target(losses.gaussian_parameters(members_of()))


# Each loss, its target and the number of outputs.
CASES = {
    "diagonal": (losses.normal_nll, diagonal_target, 4 * T),
    "full": (losses.paired_normal_nll, paired_target, 5 * T),
    "low rank": (losses.low_rank_normal_nll, parameters, (2 + RANK) * (K - 1)),
    "normal-inverse-gamma": (
        losses.normal_inverse_nll,
        lambda: losses.normal_inverse_gamma_target(members_of()),
        4 * T,
    ),
    "normal-inverse-Wishart": (
        losses.normal_inverse_nll,
        lambda: losses.normal_inverse_gamma_target(members_of()),
        2 * T + 2,
    ),
}


def minimised(loss, target, n_outputs, n=N):
    """Outputs at the minimum, by L-BFGS from zero or near it."""
    outputs = (0.1 * randn(n, n_outputs, seed=9)).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [outputs],
        max_iter=3000,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = loss(outputs, target).sum()
        value.backward()
        return value

    optimizer.step(closure)
    return outputs.detach()


# --- Parameters of the members ----------------------------------------------------------------


def test_relative_logits_are_of_logits_however_shifted():
    logits = randn(M, N, K)
    expected = logits[..., :-1] - logits[..., -1:]
    close(losses.relative_logits(logits), expected)
    close(losses.relative_logits(logits + randn(M, N, 1, seed=3)), expected)
    close(losses.relative_logits(logits.log_softmax(-1)), expected)


# --- Values -----------------------------------------------------------------------------------


def mean_nll(log_density, n_members=M):
    """Mean over members of minus the log density, an array (M, n)."""
    return torch.as_tensor(-np.mean([log_density(m) for m in range(n_members)], axis=0))


def test_diagonal_loss_is_the_density_of_scipy():
    z = losses.gaussian_parameters(members_of())
    outputs = randn(N, 4 * T)
    mean, variance = Gaussian.from_outputs(outputs)
    referee = mean_nll(lambda m: stats.norm(mean, variance.sqrt()).logpdf(z[m]).sum(-1))
    constant = T * math.log(2 * math.pi)
    close(losses.normal_nll(outputs, diagonal_target()) + constant, referee)


def test_full_loss_is_the_density_of_scipy():
    z = losses.gaussian_parameters(members_of())
    outputs = randn(N, 5 * T)
    d = GaussianNormal.from_outputs(outputs, "full")

    def log_density(m, i, j):
        cross = d.slope[i, j] * d.raw_variance[i, j]
        covariance = [[d.uncertainty().epistemic[i, j], cross], [cross, d.raw_variance[i, j]]]
        normal = stats.multivariate_normal([d.mean[i, j], d.raw_mean[i, j]], covariance)
        return normal.logpdf([z[m, i, j], z[m, i, T + j]])

    referee = mean_nll(lambda m: [sum(log_density(m, i, j) for j in range(T)) for i in range(N)])
    constant = T * math.log(2 * math.pi)
    close(losses.paired_normal_nll(outputs, paired_target()) + constant, referee)


def test_low_rank_loss_is_the_density_of_scipy():
    z, outputs = parameters(), randn(N, (2 + RANK) * (K - 1))
    d = LogitNormal.from_outputs(outputs, RANK)

    def log_density(m, i):
        covariance = torch.diag(d.logit_variance[i]) + d.factor[i] @ d.factor[i].T
        return stats.multivariate_normal(d.logit_mean[i], covariance).logpdf(z[m, i])

    referee = mean_nll(lambda m: [log_density(m, i) for i in range(N)])
    constant = 0.5 * (K - 1) * math.log(2 * math.pi)
    close(losses.low_rank_normal_nll(outputs, z) + constant, referee)


def test_normal_inverse_gamma_loss_is_the_density_of_scipy():
    members, outputs = members_of(), randn(N, 4 * T)
    mean, nu, alpha, beta = (
        getattr(NormalInverseGamma.from_outputs(outputs), name)
        for name in ("mean", "nu", "alpha", "beta")
    )

    def log_density(m):
        of_variance = stats.invgamma(alpha, scale=beta).logpdf(members.variance[m])
        std = (members.variance[m] / nu).sqrt()
        return (of_variance + stats.norm(mean, std).logpdf(members.mean[m])).sum(-1)

    left_out = (1.5 * members.variance.log() + 0.5 * math.log(2 * math.pi)).mean(0).sum(-1)
    target = losses.normal_inverse_gamma_target(members)
    loss = losses.normal_inverse_nll(outputs, target)
    close(loss + left_out, mean_nll(log_density))


@pytest.mark.parametrize("t", [2, 4])
def test_normal_inverse_wishart_loss_is_the_density_of_scipy(t):
    members, outputs = members_of(t=t), randn(N, 2 * t + 2)
    student = NormalInverseWishart.from_outputs(outputs)

    def log_density(m, row):
        mean, nu, degrees, psi = (
            getattr(student, name)[row].numpy() for name in ("mean", "nu", "degrees", "psi")
        )
        covariance = np.diag(members.variance[m, row])
        of_covariance = stats.invwishart(degrees.item(), np.diag(psi)).logpdf(covariance)
        of_mean = stats.multivariate_normal(mean, covariance / nu).logpdf(members.mean[m, row])
        return of_covariance + of_mean

    expected = [-np.mean([log_density(m, row) for m in range(M)]) for row in range(N)]
    left_out = 0.5 * (t + 2) * members.variance.log().mean(0).sum(-1)
    constants = 0.5 * t * math.log(2 * math.pi) + 0.25 * t * (t - 1) * math.log(math.pi)
    target = losses.normal_inverse_gamma_target(members)
    close(losses.normal_inverse_nll(outputs, target) + left_out + constants, expected)


def test_normal_inverse_gamma_target_by_hand():
    members = Gaussian(*torch.tensor([[1.0, 4.0], [1.0, 0.5]]).double().view(2, 2, 1, 1))
    mean, harmonic, scatter, gap = losses.normal_inverse_gamma_target(members)
    close(mean, [[3.0]])  # (1 * 1 + 2 * 4) / 3
    close(harmonic, [[2 / 3]])
    close(scatter, [[3.0]])  # (4 * 1 + 1 * 2) / 2
    close(gap, [[0.5 * math.log(0.5) - math.log(2 / 3)]])


# --- Gradients --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_gradient_is_that_of_finite_differences(case):
    loss_of, target, n_outputs = CASES[case]
    outputs, target = randn(N, n_outputs).requires_grad_(), target()
    assert gradcheck(lambda o: loss_of(o, target), outputs)


# --- Moments, each matched by a term of its own -----------------------------------------------


@pytest.mark.parametrize("form", ["diagonal", "full"])
def test_errors_of_the_mean_do_not_reach_the_covariance(form):
    nll, target, n_outputs = CASES[form]
    target, precision = target(), randn(N, 2 * T, seed=4).exp()
    loss = partial(losses.matched_moments, nll=nll, target=target, precision=precision)
    outputs = randn(N, n_outputs)
    assert torch.autograd.gradcheck(loss, outputs.clone().requires_grad_())
    of_means, of_covariance = (slice(2 * T), slice(2 * T, None))
    moved = outputs.clone()
    moved[:, of_means] += randn(N, 2 * T, seed=5)
    and_gradient = partial(
        losses.matched_moments.and_gradient, nll=nll, target=target, precision=precision
    )
    (before, slope), (after, moved_slope) = and_gradient(outputs), and_gradient(moved)
    close(moved_slope[:, of_covariance], slope[:, of_covariance])
    close(slope[:, of_means], precision * (outputs[:, of_means] - target.mean))
    errors = [o[:, of_means] - target.mean for o in (outputs, moved)]
    halves = [0.5 * (precision * e.square()).sum(-1) for e in errors]
    close(after - before, halves[1] - halves[0])
    found = minimised(lambda o, t: loss(o, target=t), target, n_outputs)
    close(found, minimised(nll, target, n_outputs), rtol=1e-3, atol=1e-4)


# --- Minima -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["moments", "nll"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_members_that_agree_to_less_than_the_least_noise_are_matched(covariance, loss):
    """As on a noise-free table; with a floor of 1e-6 no outputs have this variance of z1."""
    std = 1e-7**0.5
    mean = torch.tensor([-std, std, -std, std]).double()  # not correlated with the noise
    members = Gaussian(*(x.view(4, 1, 1) for x in (mean, torch.tensor([1.0, 1, 2, 2]).double())))
    raw = losses.gaussian_parameters(members)[..., 1]
    variance = torch.stack((mean.var(correction=0), raw.var(correction=0)))
    outputs = [torch.zeros(1), raw.mean().view(1), torch.log(torch.expm1(variance - 1e-8))]
    outputs = torch.cat((*outputs, *[torch.zeros(1)] * (covariance == "full"))).view(1, -1)
    family = GaussianFamily(covariance, loss)
    close(family.distribution(outputs).uncertainty().epistemic, [[1e-7]])
    _, gradient = family.loss_and_gradient(outputs, members, temperature=torch.ones(()), given=None)
    close(gradient, torch.zeros_like(outputs), atol=1e-7)  # it is the minimiser


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_students_mean_and_epistemic_part_are_the_members(covariance):
    """E[y] = E z1, and the epistemic part is Var z1 with 1/M: what the ensemble itself has."""
    members = members_of()
    z = losses.gaussian_parameters(members)
    ensemble = EmpiricalGaussian(*members).uncertainty()
    target = losses.paired_normal_target(z) if covariance == "full" else losses.normal_target(z)
    raw_variances = torch.log(torch.expm1(target.variance - 1e-8))
    slope = [target.slope] if covariance == "full" else []
    outputs = torch.cat((target.mean, raw_variances, *slope), -1)
    student = GaussianNormal.from_outputs(outputs, covariance)
    close(student.mean, members.mean.mean(0))
    close(student.uncertainty().epistemic, ensemble.epistemic, rtol=1e-9)


def test_normal_inverse_gamma_minimiser_solves_the_score_equations():
    members = members_of()
    target = losses.normal_inverse_gamma_target(members)
    outputs = minimised(losses.normal_inverse_nll, target, 4 * T)
    student = NormalInverseGamma.from_outputs(outputs)
    precision = 1 / members.variance
    centre = (precision * members.mean).mean(0) / precision.mean(0)
    close(student.mean, centre, rtol=1e-4, atol=1e-5)
    square = (precision * (members.mean - centre).square()).mean(0)
    close(student.nu, 1 / square, rtol=1e-4)
    close(student.alpha / student.beta, precision.mean(0), rtol=1e-4)  # E 1/variance
    log_variance = student.beta.log() - special.digamma(student.alpha)  # E ln variance
    close(log_variance, members.variance.log().mean(0), rtol=1e-4, atol=1e-4)


def test_normal_inverse_wishart_minimiser_solves_the_score_equations():
    t = 3
    members = members_of(t=t)
    target = losses.normal_inverse_gamma_target(members)
    outputs = minimised(losses.normal_inverse_nll, target, 2 * t + 2)
    student = NormalInverseWishart.from_outputs(outputs)
    precision = 1 / members.variance
    centre = (precision * members.mean).mean(0) / precision.mean(0)
    close(student.mean, centre, rtol=1e-4, atol=1e-5)
    square = (precision * (members.mean - centre).square()).mean(0)
    close(student.nu, t / square.sum(-1, keepdim=True), rtol=1e-4)
    close(student.degrees / student.psi, precision.mean(0), rtol=1e-4)  # E inverse covariance
    halves = 0.5 * (student.degrees - torch.arange(t))
    log_det = (student.psi / 2).log().sum(-1) - special.digamma(halves).sum(-1)  # E ln det
    close(log_det, members.variance.log().mean(0).sum(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_groups", [T, 1], ids=["gamma", "Wishart"])
def test_start_is_the_best_constant_prediction(n_groups):
    target = losses.normal_inverse_gamma_target(members_of(n=30))
    outputs = losses.normal_inverse_start(target, None, n_groups)

    def loss(outputs, target):
        return losses.normal_inverse_nll(outputs.expand(30, -1), target).mean()

    best = minimised(loss, target, len(outputs), n=1).flatten()
    close(outputs, best, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("t", [1, 2, 5, 20])
@pytest.mark.parametrize("gap", [0.01, 0.3, 0.6])
def test_start_solves_for_the_degrees_of_freedom(t, gap):
    """Also where members disagree so much about the noise that few are left."""
    one = torch.ones(1, t, dtype=torch.float64)
    target = losses.NormalInverseGammaTarget(0 * one, one, one, gap * one)
    excess = losses.normal_inverse_start(target, None, 1)[-1].exp().item()
    least = (t + 1) / 2

    def score(log_excess):
        half = least + math.exp(log_excess)
        return special.digamma(half - np.arange(t) / 2).mean() - math.log(half) + gap

    root = -7.0 if score(-7) > 0 else optimize.brentq(score, -7, 20)
    assert excess == pytest.approx(math.exp(min(root, 6.0)), rel=1e-9)


# --- The supervised term ----------------------------------------------------------------------


def test_the_label_loss_is_the_density_of_the_marginal():
    y, outputs = randn(N, T, seed=4), randn(N, 4 * T)
    d = NormalInverseGamma.from_outputs(outputs)
    scale = (d.beta * (d.nu + 1) / (d.nu * d.alpha)).sqrt()
    referee = stats.t(2 * d.alpha, d.mean, scale).logpdf(y).sum(-1)
    close(losses.label_nll(d, y), -referee)


@pytest.mark.parametrize(
    ("read", "n_outputs"),
    [
        (GaussianNormal.from_outputs, 4 * T),
        (lambda o: GaussianNormal.from_outputs(o, "full"), 5 * T),
        (NormalInverseGamma.from_outputs, 4 * T),
        (NormalInverseWishart.from_outputs, 2 * T + 2),
        (lambda o: LogitNormal.from_outputs(o, 2, 10), 4 * (K - 1)),
    ],
)
def test_the_label_loss_has_a_gradient(read, n_outputs):
    outputs = randn(N, n_outputs).requires_grad_()
    is_of_classes = n_outputs == 4 * (K - 1)
    y = torch.tensor([0, 3, 1, 2]) if is_of_classes else randn(N, T, seed=4)
    assert gradcheck(lambda o: losses.label_nll(read(o), y), outputs)
