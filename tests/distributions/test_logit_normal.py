# SPDX-License-Identifier: BSD-3-Clause
"""The logit-normal distribution against integrals, many draws and the empirical distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from skdistill.distributions import EmpiricalCategorical, LogitNormal, _logit_normal

N, K, RANK = 5, 4, 2


def student(rank=RANK, dtype=torch.float64, n=N, k=K, **settings):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(n, (2 + rank) * (k - 1), generator=generator, dtype=torch.float64)
    return LogitNormal.from_outputs(outputs.to(dtype), rank, **settings)


def close(actual, expected, **tolerance):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


def test_outputs_by_hand():
    outputs = torch.arange(8.0, dtype=torch.float64).view(1, 1, 8)
    d = LogitNormal.from_outputs(outputs, rank=2)
    close(d.logit_mean, [[0.0, 1.0]])
    close(d.logit_variance, np.logaddexp(0, [[2.0, 3.0]]) + 1e-6)
    close(d.factor, [[[4.0, 6.0], [5.0, 7.0]]])  # columns (4, 5) and (6, 7)
    assert LogitNormal.from_outputs(outputs).factor is None
    huge = LogitNormal.from_outputs(torch.tensor([[0.0, 1000.0]]))
    close(huge.logit_variance, [[1000.0]])  # the linear branch: no overflow


@pytest.mark.parametrize("rank", [0, RANK])
def test_draws_have_the_mean_and_the_covariance(rank):
    d = student(rank, n_samples=100_000, n=2)
    logits = (d.empirical().log_probs[..., :-1] - d.empirical().log_probs[..., -1:]).numpy()
    for i in range(2):
        covariance = np.diag(d.logit_variance[i])
        if rank:
            covariance = covariance + (d.factor[i] @ d.factor[i].T).numpy()
        scale = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(logits[:, i].mean(0), d.logit_mean[i], atol=0.015 * scale.max())
        np.testing.assert_allclose(
            np.cov(logits[:, i].T) / np.outer(scale, scale),
            covariance / np.outer(scale, scale),
            atol=0.02,
        )


def test_two_classes_against_the_integral():
    one = torch.ones(1, 1, dtype=torch.float64)
    d = LogitNormal(0.7 * one, 1.5 * one, n_samples=200_000)
    logit = stats.norm(0.7, 1.5**0.5)
    p = logit.expect(special.expit)
    entropy = logit.expect(
        lambda z: special.entr(special.expit(z)) + special.entr(special.expit(-z))
    )
    close(d.mean, [[p, 1 - p]], atol=2e-3)
    total, aleatoric, epistemic = d.uncertainty()
    close(total, [special.entr(p) + special.entr(1 - p)], atol=2e-3)
    close(aleatoric, [entropy], atol=2e-3)
    close(epistemic, total - aleatoric)


@pytest.mark.parametrize("rank", [0, RANK])
def test_reads_what_the_draws_as_members_tell(rank, monkeypatch):
    monkeypatch.setattr(_logit_normal, "_CHUNK", 2 * 100 * K)  # two samples at a time
    d = student(rank)
    members = EmpiricalCategorical.from_members(d.members)
    assert d.members.shape == (N, 100, K)
    close(d.mean, members.mean)
    close(d.log_mean, members.log_mean)
    for part, expected in zip(d.uncertainty(), members.uncertainty(), strict=True):
        close(part, expected)
    codes = torch.tensor([0, 3, 1, 2, 3])
    close(d.log_prob(codes), members.log_prob(codes))
    draws = (x.sample(50, torch.Generator().manual_seed(2)) for x in (d, members))
    assert torch.equal(*draws)


def test_extreme_outputs_give_no_nan():
    outputs = torch.tensor([[1e4, -1e4, 1e4, -1e4]])
    d = LogitNormal.from_outputs(outputs)
    assert d.mean.isfinite().all()
    assert all(part.isfinite().all() for part in d.uncertainty())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"4 \(K - 1\) for K classes and rank 2; got \(3, 6\)"):
        LogitNormal.from_outputs(torch.zeros(3, 6), rank=2)
    with pytest.raises(ValueError, match=r"must have one shape \(n, K - 1\).*\[\(3, 2\), \(3, 1\)"):
        LogitNormal(torch.zeros(3, 2), torch.zeros(3, 1))
    with pytest.raises(ValueError, match="codes must be 5 numbers"):
        student().log_prob(torch.zeros(7, dtype=torch.int64))
