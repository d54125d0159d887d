# SPDX-License-Identifier: BSD-3-Clause
"""What all losses share: derivatives of what is written with its gradient, and sums of terms."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.autograd import gradcheck

from skdistill import losses
from skdistill.losses import Mixture, Term, by_autograd, loss_with_gradient, tempered_sum
from skdistill.losses import weighted_sum as sum_of


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@loss_with_gradient
def cubic(outputs, y, scale=1.0):
    """Sum of cubed errors."""
    error = outputs - y
    return scale * error.pow(3).sum(-1), 3 * scale * error.square()


def mixture(*shape, seed=0):
    return Mixture(randn(*shape, seed=seed), 0.5 + randn(*shape, seed=seed + 1).square())


# --- a loss is a function -----------------------------------------------------------------------


def test_a_loss_is_a_function_that_tells_its_name_its_arguments_and_what_it_returns():
    assert inspect.isfunction(cubic)
    assert cubic.__name__ == "cubic"
    assert cubic.__doc__ == "Sum of cubed errors."
    signature = inspect.signature(cubic)
    assert list(signature.parameters) == ["outputs", "y", "scale"]
    assert signature.return_annotation == "Tensor"


# --- its derivative -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 2), (3, 5, 2), (1, 2), (2,), (3, 1, 2)])
def test_the_derivative_is_summed_over_what_is_broadcast(shape):
    y, weight = randn(3, 5, 2, seed=1), randn(3, 5, seed=2)
    outputs = randn(*shape).requires_grad_()
    assert gradcheck(lambda z: cubic(z, y), outputs)
    (cubic(outputs, y) * weight).sum().backward()
    plain = outputs.detach().requires_grad_()
    ((plain - y).pow(3).sum(-1) * weight).sum().backward()
    torch.testing.assert_close(outputs.grad, plain.grad)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_rows_of_heads_have_each_the_derivative_of_their_own_loss(lead):
    heads, members = mixture(*lead, 4, 5, 2), mixture(*lead, 3, 5, 2, seed=5)
    weight = randn(*lead, 5, seed=2)

    def weighted(mean, variance):
        return losses.aggregation(Mixture(mean, variance), members) * weight

    assert gradcheck(weighted, [part.requires_grad_() for part in heads])


def test_only_the_part_of_a_gaussian_that_wants_a_derivative_gets_one():
    heads, members = mixture(4, 5, 2), mixture(4, 5, 2, seed=5)
    heads.mean.requires_grad_()
    losses.individuality(heads, members).sum().backward()
    _, gradient = losses.individuality.and_gradient(Mixture(*heads), members)
    torch.testing.assert_close(heads.mean.grad, gradient.mean.detach())
    assert heads.variance.grad is None


def test_losses_go_through_the_transforms_of_torch_func():
    outputs, y = randn(5, 2), randn(5, 2, seed=1)
    each = torch.vmap(torch.func.grad(lambda z, y: cubic(z, y).sum()))(outputs, y)
    torch.testing.assert_close(each, cubic.and_gradient(outputs, y)[1])


def test_what_has_no_closed_form_is_left_to_autograd():
    outputs, y = randn(5, 2).requires_grad_(), randn(5, 2, seed=1)
    loss, gradient = by_autograd(lambda z, y: (z - y).pow(3).sum(-1), outputs, y)
    expected = cubic.and_gradient(outputs.detach(), y)
    torch.testing.assert_close((loss, gradient), expected)
    assert not loss.requires_grad


# --- sums of terms ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1.0, 0.3, torch.tensor(0.3), "rows"])
@pytest.mark.parametrize("second", [None, 0.7, torch.tensor(0.7), "rows"])
def test_a_sum_has_the_weighted_losses_and_gradients_of_its_terms(first, second):
    heads, members = mixture(2, 4, 5, 3), mixture(2, 4, 5, 3, seed=5)
    arguments = {losses.aggregation: (members,), losses.correctness: (randn(2, 5, 3, seed=9),)}
    weights = [randn(2, 5, seed=8) if w == "rows" else w for w in (first, second)]
    pairs = zip(arguments.items(), weights, strict=True)
    terms = [Term(loss, target, weight) for (loss, target), weight in pairs if weight is not None]
    loss, gradient = sum_of(terms, heads)

    parts = [part.clone().requires_grad_() for part in heads]
    expected = sum(t.weight * t.loss(Mixture(*parts), *t.arguments) for t in terms)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(list(gradient), list(torch.autograd.grad(expected.sum(), parts)))


@pytest.mark.parametrize("temperature", [1.0, 3.0, torch.tensor(3.0)])
def test_a_temperature_divides_the_outputs_and_its_square_multiplies_the_sum(temperature):
    outputs, target = randn(5, 4).requires_grad_(), randn(5, 4, seed=1).softmax(-1)
    weight = randn(5, seed=2)
    term = Term(losses.cross_entropy, (target,), weight)
    loss, gradient = tempered_sum([term], outputs.detach(), temperature)
    expected = temperature**2 * weight * losses.cross_entropy(outputs / temperature, target)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), outputs)[0])
