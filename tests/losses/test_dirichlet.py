# SPDX-License-Identifier: BSD-3-Clause
"""Losses of a Dirichlet against scipy, torch, the paper's figures, limits and minima by descent."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import special
from torch.autograd import gradcheck
from torch.distributions import Dirichlet as TorchDirichlet
from torch.distributions import kl_divergence

from skdistill import losses
from skdistill.distributions import Dirichlet, EmpiricalCategorical

N_ROWS, N_CLASSES = 6, 4
OFFSETS = [0.0, 1.0]


def randn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


def members_of(*shape, seed=0):
    """Log probabilities of members (..., S, n, K)."""
    return randn(*shape, seed=seed).log_softmax(-1)


def targets():
    """Each loss, and what it compares outputs with."""
    beta = randn(N_ROWS, N_CLASSES, seed=1).mul(2).exp()
    proxy = losses.proxy_target(members_of(5, N_ROWS, N_CLASSES))
    members = members_of(5, N_ROWS, N_CLASSES)
    mean_log = members.mean(0)
    return {
        "moments": (losses.dirichlet_moments, losses.information_target(members)),
        "reverse": (losses.dirichlet_reverse_kl, (beta,)),
        "reverse, plain": (losses.dirichlet_reverse_kl, (beta, 0.0)),
        "released": (losses.dirichlet_reverse_kl_reference, proxy),
        "forward": (losses.dirichlet_forward_kl, (beta,)),
        "forward, plain": (losses.dirichlet_forward_kl, (beta, 0.0)),
        "nll": (losses.dirichlet_nll, (mean_log,)),
        "nll, plain": (losses.dirichlet_nll, (mean_log, 0.0)),
    }


TARGETS = targets()
every_loss = pytest.mark.parametrize(("loss", "target"), TARGETS.values(), ids=TARGETS)


# the losses


@pytest.mark.parametrize("offset", OFFSETS)
def test_divergences_are_those_of_torch(offset):
    outputs, beta = 2 * randn(N_ROWS, 5), randn(N_ROWS, 5, seed=1).mul(2).exp()
    student, teacher = TorchDirichlet(outputs.exp() + offset), TorchDirichlet(beta)
    reverse = losses.dirichlet_reverse_kl(outputs, beta, offset)
    close(reverse, kl_divergence(student, teacher))
    forward = losses.dirichlet_forward_kl(outputs, beta, offset)
    close(forward, kl_divergence(teacher, student))


@pytest.mark.parametrize("offset", OFFSETS)
def test_nll_is_the_mean_density_of_the_members(offset):
    outputs, members = randn(N_ROWS, N_CLASSES), members_of(5, N_ROWS, N_CLASSES)
    statistics = losses.MemberStatistics()
    for member in members:
        statistics.add(member)
    expected = -TorchDirichlet(outputs.exp() + offset).log_prob(members.exp()).mean(0)
    close(losses.dirichlet_nll(outputs, statistics.mean_log, offset), expected)


def test_the_released_form_is_eq_18_but_for_a_constant():
    members = members_of(5, N_ROWS, N_CLASSES)
    mean, precision = losses.proxy_target(members)
    beta_0 = precision + N_CLASSES

    def eq_18(outputs):
        alpha = outputs.exp() + 1
        expected_log = alpha.digamma() - alpha.sum(-1, keepdim=True).digamma()
        prior = kl_divergence(TorchDirichlet(alpha), TorchDirichlet(torch.ones_like(alpha)))
        return -(mean * expected_log).sum(-1) + prior / beta_0

    def released(outputs):
        return losses.dirichlet_reverse_kl_reference(outputs, mean, precision)

    one, other = randn(N_ROWS, N_CLASSES, seed=2), randn(N_ROWS, N_CLASSES, seed=3)
    close(released(one) - released(other), eq_18(one) - eq_18(other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e7])
@pytest.mark.parametrize("n_classes", [3, 1000])
def test_reverse_kl_vanishes_at_the_target_and_its_gradient_too(n_classes, scale, dtype):
    outputs = randn(20, n_classes, dtype=dtype) + math.log(scale)
    beta = Dirichlet.from_outputs(outputs).concentrations
    loss, gradient = losses.dirichlet_reverse_kl.and_gradient(outputs, beta)
    assert not gradient.any()
    assert not loss.any()


# gradients


@every_loss
def test_gradient_is_that_of_differences(loss, target):
    outputs = randn(N_ROWS, N_CLASSES, seed=4).requires_grad_()
    assert gradcheck(lambda z: loss(z, *target), outputs)


# minima


def minimiser(loss_and_gradient, outputs):
    """Outputs at which descent comes to rest."""
    outputs = outputs.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [outputs], max_iter=2000, tolerance_grad=1e-12, tolerance_change=0, history_size=30
    )

    def step():
        loss, outputs.grad = loss_and_gradient(outputs.detach())
        return loss.sum()

    for _ in range(5):
        optimizer.step(step)
    return outputs.detach()


def test_the_minimiser_of_the_released_form_has_k_more_precision():
    mean, precision = losses.proxy_target(members_of(5, 3, N_CLASSES))
    outputs = minimiser(
        lambda z: losses.dirichlet_reverse_kl_reference.and_gradient(z, mean, precision),
        torch.zeros(3, N_CLASSES).double(),
    )
    close(outputs.exp() + 1, (precision + N_CLASSES)[:, None] * mean + 1, rtol=1e-6)


def test_the_minimiser_of_the_moments_is_the_dirichlet_that_they_are_of():
    alpha = randn(5, N_CLASSES).mul(2).exp()
    alpha = torch.cat([alpha, torch.tensor([[1e4, 3.0, 0.1, 1e-3]])])  # a sure sample as well
    planted = Dirichlet(alpha)
    mean, information = planted.mean, planted.uncertainty().epistemic
    loss, gradient = losses.dirichlet_moments.and_gradient(alpha.log(), mean, information)
    close(loss, torch.zeros(6), atol=1e-12)
    close(gradient, torch.zeros(6, N_CLASSES), atol=1e-9)
    outputs = minimiser(
        lambda z: losses.dirichlet_moments.and_gradient(z, mean, information, floor=1e-9),
        torch.zeros(6, N_CLASSES).double(),
    )
    close(outputs.exp()[:5], alpha[:5], rtol=1e-5)
    found = Dirichlet(outputs.exp())
    close(found.mean, mean, atol=1e-6)
    close(found.uncertainty().epistemic, information, rtol=1e-3)


def test_moments_are_a_divergence_and_a_difference_of_logarithms():
    outputs, members = randn(N_ROWS, N_CLASSES, seed=4), members_of(5, N_ROWS, N_CLASSES)
    student, teacher = Dirichlet.from_outputs(outputs, 0.0), EmpiricalCategorical(members)
    divergence = (teacher.mean * (teacher.log_mean - student.log_mean)).sum(-1)
    ratio = (student.uncertainty().epistemic + 0.01) / (teacher.uncertainty().epistemic + 0.01)
    target = losses.information_target(members)
    found = losses.dirichlet_moments(outputs, *target, weight=0.7, floor=0.01)
    close(found, divergence + 0.7 * ((1 + ratio.log().square()).sqrt() - 1))


@pytest.mark.parametrize("n_classes", [2, 30])
def test_in_float32_moments_of_sure_members_are_as_in_float64(n_classes):
    members = torch.stack([12 * randn(50, n_classes), 12 * randn(50, n_classes)]).log_softmax(-1)
    outputs = 8 * randn(50, n_classes, seed=1)
    wide, narrow = (
        losses.dirichlet_moments.and_gradient(
            outputs.to(dtype), *losses.information_target(members.to(dtype))
        )
        for dtype in (torch.float64, torch.float32)
    )
    for expected, found in zip(wide, narrow, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=5e-2, atol=1e-2)


def test_the_minimiser_of_the_likelihood_is_the_dirichlet_of_the_members():
    alpha = np.array([3.0, 1.5, 6.0])
    members = torch.tensor(np.random.default_rng(0).dirichlet(alpha, 50_000)).log()
    outputs = minimiser(
        lambda z: losses.dirichlet_nll.and_gradient(z, members.mean(0)[None], offset=0.0),
        torch.zeros(1, 3).double(),
    )
    close(outputs.exp()[0], alpha, rtol=0.03)
    # Where the gradient vanishes, expected logs are those of the members.
    found = outputs.exp().numpy()
    close(members.mean(0)[None], special.digamma(found) - special.digamma(found.sum()), rtol=1e-8)


# statistics and proxies of members


def test_information_is_that_of_the_ensemble_and_finite_where_members_rule_classes_out():
    members = members_of(7, N_ROWS, N_CLASSES)
    members[0, :, 1] = -math.inf
    members[:, 0] = members_of(1, 1, N_CLASSES)[0]  # on the first sample they agree
    members = members.log_softmax(-1)
    teacher = EmpiricalCategorical(members)
    mean, information = losses.information_target(members + 3)  # logits are normalised
    close(mean, teacher.mean)
    close(information, teacher.uncertainty().epistemic)
    close(information[0], 0.0)


def test_statistics_of_members_added_one_by_one():
    members = members_of(7, N_ROWS, N_CLASSES)
    statistics = losses.MemberStatistics()
    for member in members:
        assert statistics.add(member + 3) is statistics  # logits are normalised
    assert statistics.n_members == 7
    close(statistics.mean, members.exp().mean(0))
    close(statistics.mean_log, members.mean(0))


def test_temperature_and_smoothing_of_members():
    members = members_of(7, N_ROWS, N_CLASSES)
    members[0, :, 1] = -math.inf
    statistics = losses.MemberStatistics(temperature=2.0, smoothing=1e-3)
    for member in members:
        statistics.add(member)
    probs = (members / 2).softmax(-1)
    probs = (1 - 1e-3) * (probs - 1 / N_CLASSES) + 1 / N_CLASSES
    close(statistics.mean, probs.mean(0))
    close(statistics.mean_log, probs.log().mean(0))


def test_proxy_is_eq_17_written_out():
    members = members_of(5, N_ROWS, 3)
    p = members.exp().numpy()
    mean = p.mean(0)
    divergence = special.rel_entr(mean, p).sum(-1).mean(0)
    target = losses.proxy_target(members)
    close(target[0], mean)
    close(target[1], 2 / (2 * divergence), rtol=1e-5)
    close(losses.proxy_concentrations(*target), mean / divergence[:, None] + 1, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_of_zero_and_one_give_finite_targets(dtype):
    certain = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]], dtype=dtype)
    members = torch.stack([certain, certain.flip(0), certain])
    for smoothing in (0.0, 1e-3):
        mean, precision = losses.proxy_target(members, smoothing=smoothing)
        assert mean.isfinite().all()
        assert ((precision > 0) & (precision < 1)).all()
    same = losses.proxy_target(certain[None])[1]
    close(same, [1 / 1.2e-7] * 2, rtol=0.01)


# concentrations of any size

# Student and target: the former far above, far below, of the same mean, and near.
EXTREMES = {
    "above": ([18, 15, 14, 13, -3, -3, -3], [9000, 500, 300, 200, 1, 1, 1]),
    "beyond the limits": ([40, -20, 41, 0, -25, 42], [2, 3, 1, 1e5, 1, 70]),
    "below": ([-6, -5, -20, 2], [9000, 500, 8, 1e7]),
    "same means": ([17, 15, 14], [math.exp(9), math.exp(7), math.exp(6)]),
    "near": ([9.001, 7.002, 6.003, 0.1], [math.exp(9), math.exp(7), math.exp(6), 1.0]),
}


def divergence_by_mpmath(outputs, beta, offset, forward):
    """Divergence and its gradient in the outputs, with 80 digits."""
    with mpmath.workdps(80):
        slope = [mpmath.exp(mpmath.mpf(z)) for z in outputs]
        excess = max(1, sum(slope) / mpmath.mpf(Dirichlet.max_precision))
        slope = [max(s / excess, mpmath.exp(-20)) for s in slope]
        a, b = [s + offset for s in slope], [mpmath.mpf(x) for x in beta]
        a_0, b_0 = sum(a), sum(b)
        one, other = (b, a) if forward else (a, b)
        psi_0 = mpmath.digamma(sum(one))
        loss = sum(
            mpmath.loggamma(y) - mpmath.loggamma(x) + (x - y) * (mpmath.digamma(x) - psi_0)
            for x, y in zip(one, other, strict=True)
        )
        loss += mpmath.loggamma(sum(one)) - mpmath.loggamma(sum(other))
        if forward:
            common = mpmath.digamma(a_0) - mpmath.digamma(b_0)
            rest = [
                mpmath.digamma(x) - mpmath.digamma(y) - common for x, y in zip(a, b, strict=True)
            ]
        else:
            common = (a_0 - b_0) * mpmath.psi(1, a_0)
            rest = [(x - y) * mpmath.psi(1, x) - common for x, y in zip(a, b, strict=True)]
        return float(loss), [float(s * r) for s, r in zip(slope, rest, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 300])  # by torch's functions, and by the series
@pytest.mark.parametrize("forward", [False, True], ids=["reverse", "forward"])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("case", EXTREMES)
def test_divergences_of_extremes_are_those_of_80_digits(case, offset, forward, n_rows, dtype):
    outputs, beta = (torch.tensor(values, dtype=dtype) for values in EXTREMES[case])
    loss, gradient = divergence_by_mpmath(outputs.tolist(), beta.tolist(), offset, forward)
    of = losses.dirichlet_forward_kl if forward else losses.dirichlet_reverse_kl
    found = of.and_gradient(*(t.repeat(n_rows, 1) for t in (outputs, beta)), offset)
    rounding = {torch.float32: 4e-6, torch.float64: 1e-9}[dtype]  # of trigamma, in torch
    close(found[0], [loss] * n_rows, rtol=rounding, atol=rounding)
    # A gradient is a difference of numbers of the size of the concentrations.
    expected = torch.tensor(gradient, dtype=dtype)
    size = 1 + beta + expected.abs() + (Dirichlet.limited(outputs).exp() if forward else 0)
    assert ((found[1] - expected).abs() <= rounding * size).all()


def test_the_precision_is_limited_and_the_mean_stays():
    outputs = torch.tensor([[45.0, 43.0, 44.0], [15.0, 14.0, -30.0]]).double()
    found = Dirichlet.from_outputs(outputs, offset=0.0)
    close(found.precision[0], 1e8)
    close(found.mean[0], outputs[0].softmax(-1))
    close(found.concentrations[1], [math.exp(15), math.exp(14), math.exp(-20)])
    # A student beyond the limit is led back: its precision should be less.
    _, gradient = losses.dirichlet_reverse_kl.and_gradient(outputs[:1], torch.full((1, 3), 10.0))
    assert gradient.sum() > 0


# the paper's Figs 1 and 3


def gradient_ratio(gradient):
    """rho of Eq 12: the first class's gradient over the second's, for each of K classes."""
    first, second, *_ = gradient.squeeze(0).abs()
    return (first / second).item() / gradient.shape[-1]


def sparse(epsilon, n_classes):
    probs = torch.full((1, n_classes), epsilon / (n_classes - 1), dtype=torch.float64)
    probs[0, 0] = 1 - epsilon
    return probs


@pytest.mark.parametrize(
    ("n_classes", "expected"),
    [
        (10, {"ce": 0.9, "nll": 0.033, "forward": 0.0030, "reverse": 1.46}),
        (100, {"ce": 0.99, "nll": 0.0060, "forward": 0.00050, "reverse": 1.62}),
        (1000, {"ce": 0.999, "nll": 0.00087, "forward": 0.0000716, "reverse": 1.63}),
    ],
)
def test_gradient_ratio_at_initialisation(n_classes, expected):
    target = sparse(1e-4, n_classes)
    beta, outputs = 100 * n_classes * target, torch.zeros_like(target)
    found = {
        "ce": losses.cross_entropy.and_gradient(outputs, target),
        "nll": losses.dirichlet_nll.and_gradient(outputs, target.log(), offset=0.0),
        "forward": losses.dirichlet_forward_kl.and_gradient(outputs, beta, offset=0.0),
        "reverse": losses.dirichlet_reverse_kl.and_gradient(outputs, beta, offset=0.0),
    }
    ratios = {name: gradient_ratio(gradient) for name, (_, gradient) in found.items()}
    assert ratios == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("n_classes", "plain", "with_one"), [(10, 0.051, 16.4), (100, 0.051, 19.9), (1000, 0.051, 20.3)]
)
def test_gradient_ratio_near_convergence(n_classes, plain, with_one):
    beta = 100 * n_classes * sparse(1e-4, n_classes)
    outputs = (90 * n_classes * sparse(5e-4, n_classes)).log()
    for offset, expected in ((0.0, plain), (1.0, with_one)):
        _, gradient = losses.dirichlet_reverse_kl.and_gradient(outputs, beta + offset, offset)
        assert gradient_ratio(gradient) == pytest.approx(expected, rel=5e-3)
