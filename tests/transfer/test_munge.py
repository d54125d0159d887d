# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.spatial.distance import cdist

from skdistill.transfer import GaussianNoise, Munge, _munge

FOUR = torch.tensor([[0.0, 5.0], [1.0, 6.0], [8.0, 2.0], [9.0, 3.0]], dtype=torch.float64)


def munged(maker, X=FOUR, n=1, seed=0):
    """`n` draws for each sample, (n, n_rows, d)."""
    index = torch.arange(len(X)).expand(n, -1)
    return maker.prepare(X)(X[index], index, torch.Generator().manual_seed(seed))


def test_four_rows_by_hand():
    # 0 and 1 are nearest to each other, and so are 2 and 3.
    assert_array_equal(munged(Munge(1.0, scale=0.0))[0], FOUR[[1, 0, 3, 2]])


def test_values_are_exchanged_one_by_one_with_the_probability():
    n, p = 10_000, 0.3
    swapped = munged(Munge(p, scale=0.0), n=n) == FOUR[[1, 0, 3, 2]]
    assert torch.equal(munged(Munge(p, scale=0.0), n=n)[~swapped], FOUR.expand(n, 4, 2)[~swapped])
    error = 4 * np.sqrt(p * (1 - p) / n)
    assert_allclose(swapped.double().mean(0), p, atol=error)
    both = swapped.all(-1).double().mean(0)  # the columns are independent
    assert_allclose(both, p**2, atol=error)


@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_values_are_normal_around_the_neighbours(scale):
    X = FOUR * torch.tensor([1.0, 10.0])  # differences of 1 and 10
    found = (munged(Munge(1.0, scale=scale), X, n=3000) - X[[1, 0, 3, 2]]).numpy()
    for column, sd in ((0, scale), (1, 10 * scale)):
        assert stats.kstest(found[:, 2, column], stats.norm(0, sd).cdf).pvalue > 0.01


def test_the_neighbour_is_a_row_that_differs():
    X = FOUR[[0, 0, 0, 1, 2, 3, 3]]
    assert_array_equal(munged(Munge(1.0, scale=0.0), X)[0], FOUR[[1, 1, 1, 0, 3, 2, 2]])


def test_columns_are_standardised():
    # In units of x1 the samples 0 and 1 are close, in units of deviations 0 and 2 are.
    X = torch.tensor([[0.0, 0.0], [0.5, 1.0], [100.0, 0.1], [900.0, 1.0]])
    assert_array_equal(munged(Munge(1.0, scale=0.0), X)[0, 0], X[2])


def test_a_category_that_differs_adds_one_to_the_squared_distance():
    # By x alone sample 0 is nearest to sample 2, which is of another category.
    x = np.array([0.0, 0.9, -0.8, 2.6, -2.7])
    x = (x - x.mean()) / x.std()
    X = torch.tensor(np.column_stack([x, [4, 4, 7, 7, 7]]))
    assert_array_equal(_munge.nearest_rows(x[:, None], []), [2, 0, 0, 1, 2])
    squares = (x[:, None] - x) ** 2 + (X[:, None, 1] != X[:, 1]).numpy() + 99 * np.eye(5)
    expected = squares.argmin(1)
    assert expected[0] == 1
    assert_array_equal(_munge.nearest_rows(X.numpy(), [(1,)]), expected)
    assert_array_equal(munged(Munge(1.0, 0.0, categorical=[1]), X)[0], X[expected])


def test_columns_that_encode_one_variable_are_exchanged_together():
    X = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.1, 0.0, 1.0, 0.0], [5.0, 0.0, 0.0, 1.0]])
    found = munged(Munge(0.5, categorical=[(1, 2, 3)]), X, n=200)
    assert (found[..., 1:].sum(-1) == 1).all()
    assert (found[:, 0, 1] == 0).double().mean() == pytest.approx(0.5, abs=0.15)
    assert (munged(Munge(0.5, categorical=[1, 2, 3]), X, n=200)[..., 1:].sum(-1) != 1).any()
    # As one variable it is one difference, as three columns it would be two.
    points = _munge.embed(X.numpy(), [(1, 2, 3)])[:, 1:]
    assert_allclose(cdist(points, points) ** 2, 1 - np.eye(3), atol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 30])
def test_neighbours_agree_with_all_distances_to_those_that_may_be(d, monkeypatch):
    points = np.random.default_rng(0).normal(size=(300, d))
    points = (points - points.mean(0)) / points.std(0)
    distances = cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    assert_array_equal(_munge.nearest_rows(points, []), distances.argmin(1))
    monkeypatch.setattr(_munge, "_MOST_NEIGHBOURS", 50)
    found = _munge.nearest_rows(points, [])
    assert len(np.unique(found)) <= 50
    known = np.unique(found)
    assert_array_equal(distances[np.arange(300), found], distances[:, known].min(1))


def test_the_other_samples_are_drawn_by_the_base():
    # Noise of no scale leaves samples as they are.
    maker = Munge(1.0, scale=0.0, base=GaussianNoise(scale=0.0), share=0.3)
    found, n = munged(maker, n=10_000), 10_000
    exchanged = (found == FOUR[[1, 0, 3, 2]]).all(-1)
    assert torch.equal(found[~exchanged], FOUR.expand(n, 4, 2)[~exchanged])
    assert_allclose(exchanged.double().mean(0), 0.3, atol=4 * np.sqrt(0.3 * 0.7 / n))
    assert_array_equal(munged(Munge(base=GaussianNoise())), munged(Munge()))


@pytest.mark.parametrize("base", [None, "noise"])
def test_a_base_is_a_maker(base):
    with pytest.raises(ValueError, match="Munge: base must be a TransferMaker, such as"):
        Munge(base=base, share=0.5).prepare(FOUR)
