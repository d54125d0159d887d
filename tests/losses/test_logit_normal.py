# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a logit-normal student by its draws, against the distributions that it compares."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from skdistill import losses
from skdistill.distributions import EmpiricalCategorical, LogitNormal, latin_hypercube

M, N, K, DRAWS = 5, 6, 4, 32


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draws(n_draws=DRAWS, n_classes=K):
    return torch.tensor(latin_hypercube(n_draws, n_classes - 1, 0))


def test_it_is_a_cross_entropy_and_a_difference_of_logarithms():
    outputs, members = randn(N, 2 * (K - 1)), randn(M, N, K, seed=1).mul(2).log_softmax(-1)
    student = LogitNormal.from_outputs(outputs, n_samples=DRAWS)  # of the same draws
    teacher = EmpiricalCategorical(members)
    ratio = (student.uncertainty().epistemic + 0.01) / (teacher.uncertainty().epistemic + 0.01)
    expected = -(teacher.mean * student.log_mean).sum(-1) + 0.7 * ratio.log().square()
    found = losses.logit_normal_moments(outputs, members, draws(), weight=0.7, floor=0.01)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_the_gradient_is_that_of_finite_differences(lead):
    outputs = randn(*lead, N, 2 * (K - 1)).requires_grad_()
    members = randn(*lead, M, N, K, seed=1).log_softmax(-1)
    assert gradcheck(lambda z: losses.logit_normal_moments(z, members, draws()), outputs)


def test_where_members_are_draws_of_the_student_it_is_least():
    noise, outputs = draws(), randn(N, 2 * (K - 1))
    members = LogitNormal.from_outputs(outputs, n_samples=DRAWS).empirical().members
    log_probs = members.transpose(0, 1).log()
    _, gradient = losses.logit_normal_moments.and_gradient(outputs, log_probs, noise)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


def test_in_float32_members_that_agree_and_impossible_classes_give_finite_gradients():
    members = torch.full((M, N, 30), -1e4)
    members[..., 0] = 0.0
    outputs = 30 * randn(N, 2 * 29).float()
    noise = draws(n_classes=30).float()
    loss, gradient = losses.logit_normal_moments.and_gradient(outputs, members, noise)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
