# SPDX-License-Identifier: BSD-3-Clause
"""Draws of functions have the covariance of the model."""

from __future__ import annotations

import pytest
import torch

from skdistill.distributions import FactorProcess

N_DRAWS = 40_000


def process():
    draw = torch.Generator().manual_seed(0)
    mean, loadings = (torch.randn(s, generator=draw).double() for s in ((3, 2), (3, 2, 2)))
    return FactorProcess(mean, loadings, torch.rand((3, 2), generator=draw).double())


@pytest.mark.parametrize("with_residual", [True, False])
def test_draws_have_the_mean_and_the_covariance(with_residual):
    model = process()
    drawn = model.draw(N_DRAWS, torch.Generator().manual_seed(1), with_residual)
    assert drawn.shape == (N_DRAWS, 3, 2)
    flat = model.loadings.transpose(0, 1).flatten(1)  # (q, n p)
    expected = flat.T @ flat
    if with_residual:
        expected = expected + torch.diag(model.residual.flatten())
    scale = expected.diagonal().max().item()
    torch.testing.assert_close(
        drawn.flatten(1).T.cov(), expected, rtol=0, atol=6 * scale / N_DRAWS**0.5
    )
    torch.testing.assert_close(drawn.mean(0), model.mean, rtol=0, atol=5 * (scale / N_DRAWS) ** 0.5)


def test_draws_without_residual_do_not_depend_on_other_rows():
    model = process()
    some = FactorProcess(*(part[1:2] for part in model))
    drawn, again = (p.draw(5, torch.Generator().manual_seed(1), False) for p in (model, some))
    torch.testing.assert_close(again, drawn[:, 1:2], rtol=1e-12, atol=0)


def test_a_number_of_draws_is_checked():
    with pytest.raises(ValueError, match="n_samples"):
        process().draw(-1)
