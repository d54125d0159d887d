# SPDX-License-Identifier: BSD-3-Clause
"""Losses of classes against scipy, torch, brute force, limits and the minimum found by descent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from skdistill import losses
from skdistill.distributions import EmpiricalCategorical
from skdistill.losses import _categorical

N_ROWS, N_CLASSES = 6, 4
STACKED = 3, 5, N_ROWS, N_CLASSES  # (S, N, n, K)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def codes(*shape, seed=0, n_classes=N_CLASSES):
    return torch.randint(n_classes, shape, generator=torch.Generator().manual_seed(seed))


def members_of(*shape, seed=0):
    """Log probabilities of members (..., N, n, K)."""
    return randn(*shape, seed=seed).log_softmax(-1)


def forest_of(*shape, seed=0):
    """Members that give some classes no probability; one class has none from any of them."""
    log_probs = randn(*shape, seed=seed)
    log_probs[randn(*shape, seed=seed + 1) > 0] = -math.inf
    log_probs[..., 0] = 0.0
    log_probs[..., -1] = -math.inf
    return log_probs.log_softmax(-1)


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


# Losses of (members, heads), and their settings.
IMITATIONS = {
    "aggregation": (losses.categorical_aggregation, {}),
    "aggregation, T=3": (losses.categorical_aggregation, {"temperature": 3.0}),
    "individuality": (losses.categorical_individuality, {}),
    "individuality, T=3": (losses.categorical_individuality, {"temperature": 3.0}),
    "information": (losses.information_mismatch, {}),
}


@pytest.mark.parametrize("name", IMITATIONS)
@pytest.mark.parametrize("make", [members_of, forest_of])
def test_many_classes_are_computed_as_few_are(name, make, monkeypatch):
    loss, settings = IMITATIONS[name]
    members = make(*STACKED)
    heads = randn(3, N_ROWS, 5, N_CLASSES, seed=4).transpose(-3, -2)  # strided, as of networks
    expected = loss.and_gradient(heads, members, **settings)
    monkeypatch.setattr(_categorical, "_MANY", N_CLASSES)
    for found, few in zip(loss.and_gradient(heads, members, **settings), expected, strict=True):
        assert found.shape == few.shape
        close(found, few)


def imitation(name, heads, members, **kwargs):
    loss, settings = IMITATIONS[name]
    return loss(heads, members, **settings, **kwargs)


# --- cross-entropy --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [members_of, forest_of])
@pytest.mark.parametrize("n_classes", [4, 100])
def test_what_losses_share_is_computed_as_each_does_alone(make, n_classes):
    logits, log_probs = 3 * randn(2, 5, 6, n_classes, seed=7), make(2, 5, 6, n_classes)
    heads, members = losses.Categories(logits), losses.KnownCategories(log_probs)
    for _ in range(2):  # the second time from what the first has left
        for loss, settings in IMITATIONS.values():
            found = loss.and_gradient(heads, members, **settings)
            for value, alone in zip(
                found, loss.and_gradient(logits.clone(), log_probs.clone(), **settings), strict=True
            ):
                assert torch.equal(value, alone)


@pytest.mark.parametrize("n_classes", [1, 2, 10, 20])
def test_cross_entropy_of_classes_is_torchs(n_classes):
    logits, y = randn(3, 6, n_classes), codes(3, 6, n_classes=n_classes)
    expected = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(3, 6)
    close(losses.cross_entropy(logits, y), expected)


def test_cross_entropy_of_probabilities_is_scipys_divergence_plus_entropy():
    logits, target = randn(3, 6, 5), randn(3, 6, 5, seed=1).softmax(-1)
    divergence = stats.entropy(target, logits.softmax(-1), axis=-1)
    expected = divergence + stats.entropy(target, axis=-1)
    close(losses.cross_entropy(logits, target), torch.as_tensor(expected))


@pytest.mark.parametrize("logits", [[1e4, 0.0, -1e4], [0.0, 1e-9, 0.0]])
def test_cross_entropy_keeps_its_digits_in_float32(logits):
    single = torch.tensor([logits], dtype=torch.float32)
    for k in range(3):
        found = losses.cross_entropy(single, torch.tensor([k])).double()
        close(found, losses.cross_entropy(single.double(), torch.tensor([k])), rtol=2e-7)


# --- the terms of Hydra+ --------------------------------------------------------------------


def test_correctness_is_the_heads_mean_cross_entropy_by_hand():
    heads, y = randn(*STACKED), codes(3, N_ROWS)
    expected = torch.zeros(3, N_ROWS, dtype=torch.float64)
    for s, m, i in np.ndindex(*STACKED[:-1]):  # Eq 3
        expected[s, i] -= heads[s, m, i].softmax(-1)[y[s, i]].log() / STACKED[1]
    close(losses.categorical_correctness(heads, y), expected)
    soft = F.one_hot(y, N_CLASSES).double()
    close(losses.categorical_correctness(heads, soft), expected)


def test_information_mismatch_compares_what_the_distribution_calls_epistemic():
    members, heads = members_of(*STACKED), randn(3, 2, N_ROWS, N_CLASSES, seed=7)
    found = losses.information_mismatch(heads, members, floor=0.01)
    for s in range(3):
        teacher = EmpiricalCategorical(members[s]).uncertainty().epistemic
        student = EmpiricalCategorical.from_logits(heads[s]).uncertainty().epistemic
        expected = (torch.log(student + 0.01) - torch.log(teacher + 0.01)).square()
        close(found[s], expected)


@pytest.mark.parametrize("loss", [losses.categorical_aggregation, losses.categorical_individuality])
def test_at_high_temperature_it_is_the_squared_distance_of_logits(loss):
    """Hinton et al. (2015), Eq 4: |z - v|^2 / (2 K) for centred logits; of L2 for their means."""
    members, heads = members_of(*STACKED), randn(*STACKED, seed=7)
    difference = heads - members
    difference = difference - difference.mean(-1, keepdim=True)
    if loss is losses.categorical_aggregation:
        difference = difference.mean(1, keepdim=True)
    expected = difference.square().sum(-1).mean(1) / (2 * N_CLASSES)
    temperature = {"temperature": 1e4}
    excess = loss(heads, members, **temperature) - loss(members, members, **temperature)
    close(excess, expected, rtol=1e-3, atol=1e-6)  # T^2 log K is 1e8: eight digits are left


# --- where the losses are least ------------------------------------------------------------


@pytest.mark.parametrize("name", IMITATIONS)
def test_a_student_equal_to_its_teacher_is_stationary(name):
    heads = randn(*STACKED).requires_grad_()
    imitation(name, heads, heads.detach().log_softmax(-1)).sum().backward()
    close(heads.grad, torch.zeros_like(heads))


# --- members that rule classes out, heads that agree ----------------------------------------


@pytest.mark.parametrize("name", IMITATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_members_that_rule_classes_out_count_as_very_small_probabilities(name, dtype):
    forest, heads = forest_of(*STACKED).to(dtype), randn(*STACKED, seed=7).to(dtype)
    assert forest.isneginf().any(-1).all()
    found = imitation(name, heads, forest)
    assert found.isfinite().all()
    smooth = forest.double().clamp(min=-700.0)  # at T = 3 still below rounding
    close(found.double(), imitation(name, heads.double(), smooth), rtol=1e-5, atol=1e-6)


def test_aggregation_pulls_back_a_class_that_all_heads_have_given_up():
    """In float32 its probabilities underflow, their ratios do not."""
    members = torch.full((2, 1, 2), 0.5).log()
    heads = torch.tensor([[[200.0, 0.0]], [[210.0, 0.0]]])
    _, gradient = losses.categorical_aggregation.and_gradient(heads, members)
    # Both ways the class's shares p_m / (2 q) are 1 : e^-10, and <target, share> pulls the other.
    share = torch.tensor([1.0, math.exp(-10)]) / (1 + math.exp(-10))
    expected = -0.5 * share
    close(gradient[:, 0, 1], expected, rtol=1e-5, atol=0)
    close(gradient[:, 0, 0], -expected, rtol=1e-5, atol=1e-7)


# --- gradients in closed form ---------------------------------------------------------------


def plain_aggregation(heads, members, temperature=1.0):
    teacher = (members / temperature).softmax(-1).mean(-3)
    student = (heads / temperature).softmax(-1).mean(-3)
    return -(temperature**2) * (teacher * student.log()).sum(-1)  # Eq 5


def plain_individuality(heads, members, pairs, temperature=1.0):
    teacher = (members[:, pairs[0]] / temperature).softmax(-1)
    student = (heads[:, pairs[1]] / temperature).log_softmax(-1)
    return -(temperature**2) * (teacher * student).sum(-1).mean(-2)  # Eq 7


def plain_information(heads, members, floor=1e-3):
    def information(log_probs):
        probs = log_probs.exp()
        return (torch.special.entr(probs.mean(-3)) - torch.special.entr(probs).mean(-3)).sum(-1)

    student, teacher = information(heads.log_softmax(-1)), information(members)
    return torch.log((student + floor) / (teacher + floor)).square()


PLAIN = {
    losses.categorical_aggregation: plain_aggregation,
    losses.categorical_individuality: plain_individuality,
    losses.information_mismatch: plain_information,
}


@pytest.mark.parametrize("name", IMITATIONS)
@pytest.mark.parametrize("make", [members_of, forest_of])
@pytest.mark.parametrize("n_heads", [1, 2, 5, 7])
@pytest.mark.parametrize("n_classes", [2, 4, 20])
def test_closed_form_is_autograds_of_the_plain_formula(name, make, n_heads, n_classes):
    members = make(3, 5, N_ROWS, n_classes)
    # as the engine gives them: the axis of heads last but one in memory
    heads = randn(N_ROWS, 3, n_heads, n_classes, seed=7).movedim(0, -2).requires_grad_()
    pairs = {"pairs": losses.pairing(5, n_heads)} if name.startswith("individuality") else {}
    loss, settings = IMITATIONS[name]
    expected = PLAIN[loss](heads, members, **settings, **pairs)
    (slope,) = torch.autograd.grad(expected.sum(), heads)
    before = members.clone(), heads.detach().clone()
    found, gradient = loss.and_gradient(heads.detach(), members, **settings, **pairs)
    close(found, expected.detach())
    close(gradient, slope, atol=1e-10)
    assert torch.equal(members, before[0])
    assert torch.equal(heads, before[1])


@pytest.mark.parametrize("floor", [1e-3, 0.1])
def test_the_floor_is_added_to_both(floor):
    members, heads = members_of(*STACKED), randn(*STACKED, seed=7).requires_grad_()
    expected = plain_information(heads, members, floor)
    loss, gradient = losses.information_mismatch.and_gradient(heads.detach(), members, floor)
    close(loss, expected.detach())
    close(gradient, torch.autograd.grad(expected.sum(), heads)[0])
