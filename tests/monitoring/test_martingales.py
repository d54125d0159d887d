# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of a stream are uniform and independent; capital that bets against that is fair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import kstest, norm, spearmanr

from skdistill.monitoring._martingales import AT_A_TIME, N_BETS, Bag, Martingales


def bag_of(X, seed=0):
    return Bag(np.asarray(X, dtype=float), np.random.RandomState(seed))


def ranks_of(bag, X):
    """Ranks of a stream of shape (n_columns, n), in parts of uneven sizes."""
    ends = np.cumsum(np.resize([1, 3, AT_A_TIME, 50], X.shape[1]))
    parts = np.split(X, ends[ends < X.shape[1]], axis=1)
    return np.concatenate([bag.ranks(part) for part in parts], axis=1)


def test_ranks_are_those_among_all_samples_before():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 30, size=(2, 300)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.inf  # missing
    found = ranks_of(bag_of(X[:, :20]), X[:, 20:])
    for column, n in itertools.product(range(2), range(20, 300)):
        before, value = X[column, :n], X[column, n]
        low = (before < value).sum()
        high = low + (before == value).sum() + 1
        assert low < (n + 1) * found[column, n - 20] <= high + 1e-9


@pytest.mark.parametrize("kind", ["numbers", "categories", "missing"])
def test_ranks_are_uniform_and_independent(kind):
    """With a reference of ten samples, in which plain ranks would be neither."""
    rng = np.random.default_rng(1)
    found = []
    for seed in range(300):
        X = rng.normal(size=(1, 50))
        if kind == "categories":
            X = np.floor(3 * rng.random(size=X.shape) ** 2)
        if kind == "missing":
            X[rng.random(X.shape) < 0.3] = np.inf
        found.append(ranks_of(bag_of(X[:, :10], seed), X[:, 10:])[0])
    found = np.array(found)  # (streams, 40)
    assert kstest(found.ravel(), "uniform").pvalue > 1e-3
    # The mean of a stream varies as that of independent ranks; in a fixed reference it would vary
    # as the reference's own error, four times as much.
    variance = found.mean(axis=1).var() * 12 * found.shape[1]
    assert 0.7 < variance < 1.4
    assert spearmanr(found[:, :-1].ravel(), found[:, 1:].ravel()).pvalue > 1e-3


def test_every_bet_is_fair():
    """Densities of ranks integrate to one, also after others have been seen."""
    z, step = np.linspace(-8, 8, 3_001, retstep=True)
    martingales = Martingales(len(z))
    seen = np.random.default_rng(0).random(100) ** 2
    martingales.update(np.tile(seen, (len(z), 1)))
    # What is held before the next rank, and what is invested at it, is multiplied by its density.
    invested = (1 / np.log2(102) - 1 / np.log2(103)) / N_BETS
    held = np.exp(martingales.log_capital[0]) + invested
    martingales.update(norm.cdf(z)[:, None])
    gain = np.exp(martingales.log_capital) / held
    integrals = (gain * norm.pdf(z)[:, None] * step).sum(axis=0)
    np.testing.assert_allclose(integrals, 1, atol=5e-3)


def test_values_do_not_depend_on_how_a_stream_is_cut():
    ranks = np.random.default_rng(0).random(size=(3, 400)) ** 1.2
    whole, parts = Martingales(3), Martingales(3)
    whole.update(ranks)
    for part in np.split(ranks, [1, 2, 50, 390], axis=1):
        parts.update(part)
    np.testing.assert_allclose(parts.log_values(), whole.log_values(), rtol=1e-9)
    assert parts.n_samples == whole.n_samples == 400


def test_villes_inequality_holds():
    """Of 2,000 uniform streams the share whose martingale ever reaches 10 is at most a tenth."""
    rng = np.random.default_rng(0)
    martingales, supremum = Martingales(2_000), np.zeros(2_000)
    for _ in range(20):
        for rank in np.split(rng.random(size=(2_000, 20)), 4, axis=1):
            martingales.update(rank)
            supremum = np.maximum(supremum, martingales.log_values())
    share = (supremum >= np.log(10)).mean()
    assert 0.005 < share < 0.1


@pytest.mark.parametrize(
    "change",
    [lambda z: z + 0.5, lambda z: 0.5 * z, lambda z: 1.7 * z],
    ids=["mean", "smaller deviation", "larger deviation"],
)
def test_capital_grows_after_a_change(change):
    z = np.random.default_rng(0).normal(size=(1, 2_000))
    z[:, 1_500:] = change(z[:, 1_500:])
    martingales = Martingales(1)
    martingales.update(norm.cdf(z[:, :1_500]))
    assert martingales.log_values()[0] < 1
    martingales.update(norm.cdf(z[:, 1_500:]))
    assert martingales.log_values()[0] > 15
