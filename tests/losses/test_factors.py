# SPDX-License-Identifier: BSD-3-Clause
"""Factors of the members' disagreement: planted ones are found, and minima are in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from skdistill import losses
from skdistill.distributions import FactorProcess, Gaussian
from skdistill.losses import Term

M, N, P, Q = 8, 40, 2, 2


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(noise=0.0):
    """Scores of two factors, (M, 2), of unequal strength, and values (M, N, P) that follow them."""
    ones = torch.ones(M, 1, dtype=torch.float64)
    scores = torch.linalg.qr(torch.cat((ones, randn(M, Q)), 1))[0]
    scores = M**0.5 * scores[:, 1:]  # sum to zero
    strength = torch.tensor([1.0, 0.5]).double().view(-1, 1, 1)
    loadings = strength * randn(Q, N, P, seed=1)
    values = randn(1, N, P, seed=2) + torch.einsum("iq,qnp->inp", scores, loadings)
    return scores, values + noise * randn(M, N, P, seed=3)


def test_planted_factors_are_found():
    scores, values = planted()
    found = losses.factor_scores(values)
    assert found.shape == (M, Q)
    torch.testing.assert_close(found.T @ found / M, torch.eye(Q).double())
    # The same plane, as its projection is the same.
    torch.testing.assert_close(found @ found.T, scores @ scores.T)
    loadings = losses.standardised_loadings(values, found)
    torch.testing.assert_close(loadings.square().sum(-2), torch.ones(N, P).double())
    residuals = torch.einsum("iq,nqp->inp", found, loadings)
    torch.testing.assert_close(residuals * values.std(0, correction=0), values - values.mean(0))


def test_factors_are_kept_that_explain_a_twentieth():
    share = np.array([0.6, 0.34, 0.052, 0.008])
    scores = 10**0.5 * torch.linalg.qr(torch.cat((torch.ones(10, 1), randn(10, 4)), 1).double())[0]
    rows = torch.linalg.qr(randn(100, 4, seed=4))[0] * torch.from_numpy(share).sqrt()
    values = torch.einsum("iq,nq->in", scores[:, 1:], rows).unsqueeze(-1)
    of_row = rows.square().sum(-1)  # undoes the standardisation of the samples
    assert losses.factor_scores(values, of_row).shape == (10, 3)
    assert losses.factor_scores(values, of_row, 2).shape == (10, 2)
    found = losses.factor_scores(values, of_row, 7)
    torch.testing.assert_close(
        (found.T @ found / 10).diagonal(), torch.tensor([1, 1, 1, 1, 0, 0, 0.0]).double()
    )


@pytest.mark.parametrize("n_members", [1, 3])
def test_members_that_agree_have_no_scores(n_members):
    values = randn(1, N, P).expand(n_members, N, P)
    scores = losses.factor_scores(values)
    assert scores.shape == (n_members, 1)
    assert (scores == 0).all()
    assert (losses.standardised_loadings(values, scores) == 0).all()


def test_rows_of_weight_zero_have_no_say():
    _, values = planted(noise=0.1)
    weight = (torch.arange(N) < 25).double()
    found = losses.factor_scores(values, weight)
    torch.testing.assert_close(found, losses.factor_scores(values[:, :25]))
    assert not torch.allclose(found, losses.factor_scores(values))


def test_loss_of_loadings_is_the_density_of_scipy():
    scores, values = planted(noise=0.5)
    raw = randn(N, Q * P, seed=5)
    target = losses.standardised_loadings(values, scores)
    found = losses.loadings_nll(raw, target)
    raw = raw.unflatten(-1, (Q, P))
    share = raw / (1 + raw.square().sum(-2, keepdim=True)).sqrt()
    fitted = torch.einsum("iq,nqp->inp", scores, share)
    residuals = (values - values.mean(0)) / values.std(0, correction=0)
    scale = (1 - share.square().sum(-2)).sqrt()
    expected = -stats.norm.logpdf(residuals, fitted, scale).mean(0).sum(-1)
    np.testing.assert_allclose(found, expected - P * np.log(2 * np.pi) / 2, rtol=1e-9)


def test_share_of_a_process_leaves_the_variance_as_it_is():
    mean, raw, variance = randn(N, P), randn(N, Q * P, seed=1), randn(N, P, seed=2).exp()
    process = FactorProcess.of_shares(mean, variance, raw)
    torch.testing.assert_close(process.variance, variance)
    ratio = process.loadings.square().sum(-2) / process.residual
    torch.testing.assert_close(ratio, raw.unflatten(-1, (Q, P)).square().sum(-2))


CASES = {
    "loadings": (losses.loadings_nll, lambda: (0.3 * randn(N, Q, P, seed=1),), Q * P),
    "both": (
        losses.with_loadings,
        lambda: (
            Term(losses.normal_nll, (Gaussian(randn(N, P), randn(N, P, seed=1).exp()),)),
            0.3 * randn(N, Q, P, seed=1),
        ),
        (2 + Q) * P,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    loss, arguments, n_outputs = CASES[name]
    outputs = randn(N, n_outputs, seed=7).requires_grad_()
    assert loss(outputs, *arguments()).shape == (N,)
    assert gradcheck(lambda outputs: loss(outputs, *arguments()), outputs)
