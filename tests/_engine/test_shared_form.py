# SPDX-License-Identifier: BSD-3-Clause
"""Training members that share weights in closed form is training by autograd, to rounding."""

from __future__ import annotations

import pytest
import torch

from skdistill._engine._closed_form import SharedFormGradient
from skdistill._engine._traced import TracedGradient
from skdistill.ensembles._spec import GaussianObjective
from skdistill.modules import ACTIVATIONS, GaussianStack, TabM, build_member

D, K = 5, 4


def stacked(**params):
    network = build_member(TabM, 0, in_features=D, out_features=2, n_members=K, **params).double()
    return GaussianStack(network, torch.zeros(1), torch.ones(1)).train()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [3, 8, 10])
@pytest.mark.parametrize("mini", [False, True])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_loss_gradient_and_outputs_are_those_of_autograd(activation, mini, n, weighted):
    module = stacked(hidden_units=(8, 6), activation=activation, mini=mini)
    generator = torch.Generator().manual_seed(1)
    X, y = (torch.randn(1, n, p, generator=generator).double() for p in (D, 1))
    weight = torch.rand(1, n, generator=generator).double() if weighted else None
    decay = [(module.network.heads.weight, 0.1)]
    forms = [
        kind(module, GaussianObjective(0.5), decay) for kind in (SharedFormGradient, TracedGradient)
    ]
    for form in forms:
        form.load()
    for _ in range(2):  # the memory of the first step is used again
        (outputs, losses), (outputs_2, losses_2) = (form(X, (y,), weight) for form in forms)
        torch.testing.assert_close(outputs, outputs_2)
        torch.testing.assert_close(losses, losses_2)
        for a, b in zip(*(form.gradients for form in forms), strict=True):
            torch.testing.assert_close(a, b)
    torch.testing.assert_close(*(form.outputs(X) for form in forms))


def test_dropout_is_left_to_autograd():
    assert SharedFormGradient.supports(stacked())
    assert not SharedFormGradient.supports(stacked(dropout=0.1))
