# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

from skdistill.transfer import Mixup

# Samples whose differences tell which two were mixed: any two lie on a line of their own.
CORNERS = torch.eye(4, dtype=torch.float64)


def mixed(maker, index, X=CORNERS, weight=None, seed=0):
    draw = maker.prepare(X, weight)
    return draw(X[index], index, torch.Generator().manual_seed(seed)).numpy()


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_of_rows_are_beta(alpha):
    n = 6000
    new = mixed(Mixup(alpha), torch.zeros(n, dtype=torch.long))
    lam = new[new[:, 0] < 1, 0]  # the partner was another sample, three times out of four
    assert len(lam) == pytest.approx(0.75 * n, abs=4 * np.sqrt(n * 3 / 16))
    assert stats.kstest(lam, stats.beta(alpha, alpha).cdf).pvalue > 0.01
    variance = 1 / (4 * (2 * alpha + 1))
    assert lam.mean() == pytest.approx(0.5, abs=4 * np.sqrt(variance / len(lam)))
    kurtosis = 3 - 6 / (2 * alpha + 3)
    error = variance * np.sqrt((kurtosis - 1) / len(lam))
    assert np.mean((lam - 0.5) ** 2) == pytest.approx(variance, abs=4 * error)


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 1.0, 1e4])
def test_new_rows_are_convex_combinations_of_the_row_and_one_other(alpha):
    index = torch.arange(4).repeat(500)
    new = mixed(Mixup(alpha), index)
    assert (new >= 0).all()
    assert_allclose(new.sum(1), 1.0, rtol=1e-12)
    assert ((new > 0).sum(1) <= 2).all()
    others = new.copy()
    others[np.arange(len(new)), index] = 0.0
    assert ((others > 0).sum(1) <= 1).all()


def test_all_columns_have_the_same_share():
    X = torch.randn(30, 3, 2, generator=torch.Generator().manual_seed(0)).double()
    new = torch.from_numpy(mixed(Mixup(), torch.arange(30), X))
    for row, own in zip(new, X, strict=True):
        lam = (row - X) / (own - X)  # the same number everywhere, for the partner and no other
        spread = (lam - lam.mean((1, 2), keepdim=True)).abs().amax((1, 2))
        assert (spread < 1e-9).sum() == 1 or torch.allclose(row, own)


@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0, 4.0]])
def test_partners_come_in_proportion_to_their_weights(weight):
    n = 8000
    w = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    new = mixed(Mixup(), torch.zeros(n, dtype=torch.long), weight=w)
    counts = (new[:, 1:] > 0).sum(0)
    share = np.array(weight or [1.0] * 4) / np.sum(weight or [1.0] * 4)
    expected = np.append(n * share[1:], n * share[0])
    assert stats.chisquare(np.append(counts, n - counts.sum()), expected).pvalue > 0.01


def test_categorical_columns_are_those_of_the_row_with_the_larger_share():
    X = torch.cat([CORNERS, 10 * CORNERS], dim=1)  # the second half tells the sample
    index = torch.arange(4).repeat(500)
    new = mixed(Mixup(categorical=[4, 5, 6, 7]), index, X)
    assert (new[:, :4].max(1) < 1).sum() > 1000
    assert (new[:, 4:].argmax(1) == new[:, :4].argmax(1)).all()
    assert set(new[:, 4:].ravel()) == {0.0, 10.0}
