# SPDX-License-Identifier: BSD-3-Clause
"""Posterior expectations: what is averaged, what is learnt, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import digamma
from scipy.stats import entropy
from sklearn.base import clone

from skdistill.distributions import Gaussian
from skdistill.expectations import KNOWN, DirichletExpectation, EntropyExpectation, Expectation
from skdistill.losses import dirichlet_nll


@pytest.fixture
def probs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, 3, generator=generator, dtype=torch.float64).softmax(-1)


@pytest.fixture
def gaussians():
    generator = torch.Generator().manual_seed(0)
    return Gaussian(*torch.rand(2, 4, 6, 2, generator=generator, dtype=torch.float64))


def largest(probs):
    return probs.amax(-1)


def test_known_expectations_of_classes(probs):
    known = KNOWN["classifier"]
    found = {name: known[name].of_members(probs) for name in known}
    assert torch.equal(found["predictive"], probs)
    np.testing.assert_allclose(found["entropy"].squeeze(-1), entropy(probs, axis=-1))
    # The variance of the indicator of a class.
    np.testing.assert_allclose(found["variance"], probs - probs**2)
    tempered = (probs.log() / 2.5).log_softmax(-1)
    torch.testing.assert_close(found["dirichlet"], tempered)


def test_known_expectations_of_numbers(gaussians):
    known = KNOWN["regressor"]
    targets = {name: e.target(e.pooled(e.of_members(gaussians))) for name, e in known.items()}
    torch.testing.assert_close(targets["mean"], gaussians.mean.mean(0))
    torch.testing.assert_close(targets["aleatoric"], gaussians.variance.mean(0))
    torch.testing.assert_close(targets["epistemic"], gaussians.mean.var(0, correction=0))


def test_a_probability_of_zero_has_finite_expectations():
    probs = torch.tensor([[[1.0, 0.0]]])
    for expectation in KNOWN["classifier"].values():
        assert expectation.of_members(probs).isfinite().all()


def test_ones_own_g_may_give_one_value_or_several(probs):
    expectation = Expectation(largest)
    assert expectation.label == "largest"
    assert expectation.of_members(probs).shape == (4, 6, 1)
    assert Expectation(lambda p: p[..., :2]).of_members(probs).shape == (4, 6, 2)


@pytest.mark.parametrize(
    ("g", "given"),
    [
        (lambda p: p.mean(), r"Tensor of shape \(\)"),
        (lambda p: p.mean(0), r"Tensor of shape \(6, 3\)"),
        (lambda p: p.mean(1), r"Tensor of shape \(4, 3\)"),
        (lambda p: p.unsqueeze(-1), r"Tensor of shape \(4, 6, 3, 1\)"),
        (lambda p: 3.0, r"float of shape"),
        (lambda p: p.numpy(), r"ndarray of shape"),
    ],
)
def test_a_wrong_shape_is_named(g, given, probs):
    with pytest.raises(ValueError, match=rf"Expectation 'odd': g must give a tensor.*got {given}"):
        Expectation(g, name="odd").of_members(probs)


def test_the_entropy_is_learnt_by_the_loss_of_ones_choice(probs):
    outputs, target = probs[0, :, :1], EntropyExpectation().of_members(probs).mean(0)
    value = torch.nn.functional.softplus(outputs)
    error = (value - target).squeeze(-1)
    for loss, expected in (("absolute", error.abs()), ("squared", error.square())):
        chosen = EntropyExpectation(loss)
        assert chosen.label == "entropy"
        torch.testing.assert_close(chosen.predict(outputs), value)
        torch.testing.assert_close(chosen.loss_and_gradient(outputs, target)[0], expected)
    assert clone(EntropyExpectation("gamma", 2.0)).get_params() == {"loss": "gamma", "weight": 2.0}
    with pytest.raises(ValueError, match=r"'entropy': loss must be one of .*got 'cross_entropy'"):
        EntropyExpectation("cross_entropy").check()


def test_losses_and_links_of_ones_own_have_the_gradient_of_autograd(probs):
    outputs, target = probs[0].log(), probs[1]

    def cubed(values, target):
        return (values - target).abs().pow(3).sum(-1)

    found = Expectation(largest, cubed, torch.sigmoid).loss_and_gradient(outputs, target)
    inputs = outputs.clone().requires_grad_()
    loss = cubed(inputs.sigmoid(), target)
    torch.testing.assert_close(found[0], loss.detach())
    torch.testing.assert_close(found[1], torch.autograd.grad(loss.sum(), inputs)[0])
    named = Expectation(largest, "squared", "sigmoid").loss_and_gradient(outputs, target)
    own_link = Expectation(largest, "squared", torch.sigmoid).loss_and_gradient(outputs, target)
    for a, b in zip(named, own_link, strict=True):
        torch.testing.assert_close(a, b)


def test_the_dirichlet_is_fitted_by_its_likelihood(probs):
    expectation, outputs = DirichletExpectation(temperature=1.0), probs[0].log()
    target = expectation.of_members(probs).mean(0)
    loss, gradient = expectation.loss_and_gradient(outputs, target)
    inputs = outputs.clone().requires_grad_()
    truth = torch.distributions.Dirichlet(inputs.exp()).log_prob(probs).mean(0).neg()
    torch.testing.assert_close(loss, truth.detach())
    torch.testing.assert_close(loss, dirichlet_nll(outputs, probs.log().mean(0), offset=0.0))
    torch.testing.assert_close(gradient, torch.autograd.grad(truth.sum(), inputs)[0])


def test_a_dirichlet_predicts_the_expected_log_probabilities_at_the_temperature():
    outputs = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    found = KNOWN["classifier"]["dirichlet"].predict(outputs)
    alpha = np.exp(outputs.numpy() / 2.5)
    expected = digamma(alpha) - digamma(alpha.sum(1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
