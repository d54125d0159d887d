# SPDX-License-Identifier: BSD-3-Clause
"""Losses of posterior expectations: values by hand, gradients by autograd, minimisers."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy.special import entr

from skdistill.expectations import _LINKS, _LOSSES, Expectation
from skdistill.expectations import _expectation_loss as expectation_loss
from skdistill.losses import cross_entropy

PAIRS = [
    (loss, link)
    for loss, link in itertools.product(_LOSSES, _LINKS)
    if loss != "binary_cross_entropy" or link in ("sigmoid", "softmax")  # values below 1
]


def linked(outputs, link):
    return Expectation(abs, link=link).predict(outputs)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("absolute", 0.5 + 0.25),
        ("squared", 0.25 + 0.0625),
        (
            "gamma",
            (0.5 / 1.0 - torch.tensor(0.5).log() - 1) + (0.75 / 0.5 - torch.tensor(1.5).log() - 1),
        ),
        ("cross_entropy", -0.75 * torch.tensor(0.5).log()),
    ],
)
def test_losses_by_hand(loss, expected):
    values, target = torch.tensor([[1.0, 0.5]]), torch.tensor([[0.5, 0.75]])
    found, _ = expectation_loss.and_gradient(values, target, loss, "identity")
    torch.testing.assert_close(found, torch.as_tensor([expected]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("loss", "link"), PAIRS)
def test_gradients_are_those_of_autograd(loss, link):
    outputs = drawn(2, 5, 3).exp().requires_grad_()  # positive, for the losses of such values
    target = drawn(2, 5, 3, seed=1).softmax(-1)
    losses, found = expectation_loss.and_gradient(outputs, target, loss, link)
    assert losses.shape == (2, 5)
    values = linked(outputs, link)
    differences = {
        "absolute": (values - target).abs(),
        "squared": (values - target) ** 2,
        "gamma": (target + 1e-6) / (values + 1e-6) + (values + 1e-6).log(),
        "cross_entropy": -target * values.log(),
        "binary_cross_entropy": -target * values.log() - (1 - target) * (1 - values).log(),
    }
    (expected,) = torch.autograd.grad(differences[loss].sum(), outputs)
    torch.testing.assert_close(found, expected)


def test_cross_entropy_of_a_softmax_does_not_underflow():
    outputs, target = torch.tensor([[0.0, 300.0]]), torch.tensor([[1.0, 0.0]])
    loss, gradient = expectation_loss.and_gradient(outputs, target, "cross_entropy", "softmax")
    torch.testing.assert_close(loss, cross_entropy(outputs, target))
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 1.0]]))


def test_the_gradient_does_not_vanish_where_a_sigmoid_does():
    outputs, target = torch.tensor([[-60.0, 60.0]]), torch.tensor([[0.25, 0.25]])
    loss, gradient = expectation_loss.and_gradient(
        outputs, target, "binary_cross_entropy", "sigmoid"
    )
    torch.testing.assert_close(loss, torch.tensor([0.25 * 60 + 0.75 * 60]))
    torch.testing.assert_close(gradient, torch.tensor([[-0.25, 0.75]]))


@pytest.mark.parametrize("loss", ["squared", "gamma", "cross_entropy", "binary_cross_entropy"])
def test_the_minimiser_of_a_mean_loss_is_the_mean(loss):
    targets = drawn(50, 1, 3).softmax(-1)
    links = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}
    link, mean = links.get(loss, "softplus"), targets.mean(0)
    outputs = {"softmax": torch.log, "sigmoid": torch.logit}.get(link, lambda v: v.expm1().log())(
        mean
    )
    _, slopes = expectation_loss.and_gradient(outputs.expand_as(targets), targets, loss, link)
    torch.testing.assert_close(
        slopes.mean(0), torch.zeros(1, 3, dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_the_minimiser_of_a_mean_absolute_error_is_the_median_and_not_the_mean():
    targets = torch.tensor([0.0, 1.0, 8.0]).view(3, 1, 1)
    for value, expected in ((1.0, 0.0), (3.0, 1.0)):  # median, mean
        values = torch.full((3, 1, 1), value)
        _, slopes = expectation_loss.and_gradient(values, targets, "absolute", "identity")
        assert slopes.sum() == expected


def test_links_keep_their_range():
    outputs = torch.tensor([-1000.0, -1.0, 0.0, 1.0, 1000.0])
    for link, low in (("exp", 0), ("softplus", 0), ("sigmoid", 0)):
        values = linked(outputs, link)
        assert values.isfinite().all()
        assert (values >= low).all()
        assert (values.diff() >= 0).all()
    torch.testing.assert_close(linked(outputs, "softmax").sum(), torch.tensor(1.0))
    assert entr(linked(outputs, "softmax").numpy()).sum() == 0
