# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

from skdistill.transfer import GaussianNoise

X = torch.tensor([[0.0, -10.0, 3.0], [1.0, 10.0, 3.0], [2.0, 30.0, 3.0]], dtype=torch.float64)
SD = np.sqrt([2 / 3, 800 / 3, 0.0])


def noise(maker, n, weight=None, rows=X):
    """Noise of `n` draws for each sample, (n, n_rows, ...)."""
    index = torch.arange(len(rows)).expand(n, -1)
    generator = torch.Generator().manual_seed(0)
    return (maker.prepare(rows, weight)(rows[index], index, generator) - rows[index]).numpy()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_moments(power):
    # A normal times a uniform number to the power p: E[(z u^p)^2] = 1 / (2p + 1) and
    # E[(z u^p)^4] = 3 / (4p + 1), in units of scale times the column's deviation.
    n = 20_000
    found = noise(GaussianNoise(0.5, share_power=power), n)[..., :2] / (0.5 * SD[:2])
    second, fourth, eighth = 1 / (2 * power + 1), 3 / (4 * power + 1), 105 / (8 * power + 1)
    assert_allclose(found.mean(0), 0.0, atol=4.5 * np.sqrt(second / n))
    assert_allclose((found**2).mean(0), second, atol=4.5 * np.sqrt((fourth - second**2) / n))
    assert_allclose((found**4).mean(0), fourth, atol=4.5 * np.sqrt((eighth - fourth**2) / n))


def test_the_columns_of_a_row_share_and_rows_do_not():
    # Squares of two columns of a sample: E[z^2 z'^2 u^8] = 1/9; of two samples: (1/5)^2.
    n = 20_000
    squares = (noise(GaussianNoise(1.0), n)[..., :2] / SD[:2]) ** 2
    within, between = squares[:, 0].prod(1), squares[:, 0, 0] * squares[:, 1, 0]
    assert within.mean() == pytest.approx(1 / 9, abs=4 * np.sqrt((9 / 17 - 1 / 81) / n))
    assert between.mean() == pytest.approx(1 / 25, abs=4 * np.sqrt((1 / 9 - 1 / 625) / n))


def test_a_constant_column_gets_none_and_a_categorical_one_neither():
    found = noise(GaussianNoise(1.0, categorical=[0]), 100)
    assert (found[..., [0, 2]] == 0).all()
    assert (found[..., 1] != 0).all()


def test_weights_are_repetitions():
    weight = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)
    repeated = X.repeat_interleave(weight.long(), 0)
    found = noise(GaussianNoise(1.0), 5, weight)
    draw = GaussianNoise(1.0).prepare(repeated)
    index = torch.arange(3).expand(5, -1)
    expected = draw(X[index], index, torch.Generator().manual_seed(0)) - X[index]
    assert_allclose(found, expected.numpy(), rtol=1e-9)


def test_each_pixel_has_its_own_deviation_and_an_image_one_share():
    images = torch.rand(50, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    images *= torch.tensor([1.0, 100.0]).view(2, 1, 1)
    found = noise(GaussianNoise(1.0), 400, rows=images) / images.std(0, correction=0).numpy()
    shares = np.sqrt((found**2).mean((-3, -2, -1)))  # to within 6 percent, over 128 pixels
    assert stats.kstest(np.sqrt(shares[:, :10]).ravel(), "uniform").statistic < 0.04
    assert_allclose((found**2).mean((0, 1)), 1 / 5, rtol=0.15)


def correlated_rows(n=400):
    """Four columns of rank two, one of them a constant away from a sum, and a constant one."""
    a, b = torch.randn(2, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.stack([a, 10 * b, 2 * a + 10 * b + 3, a - b, torch.full_like(a, 7.0)], dim=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_correlated_noise_has_the_covariance_of_the_rows(weighted):
    rows, n = correlated_rows(), 500
    weight = (torch.arange(len(rows)) % 4).double() if weighted else None
    found = noise(GaussianNoise(0.5, 0.0, correlated=True), n, weight, rows).reshape(-1, 5)
    frequencies = None if weight is None else weight.int().numpy()
    expected = 0.25 * np.cov(rows.numpy().T, bias=True, fweights=frequencies)
    sd = np.sqrt(np.diag(expected))
    # A mean of products of normals has a variance of (c_ii c_jj + c_ij^2) / n.
    errors = np.abs(found.T @ found / len(found) - expected)
    assert (errors <= 4.5 * np.sqrt(2 / len(found)) * np.outer(sd, sd)).all()
    assert stats.kstest(found[:2000, 2] / sd[2], "norm").pvalue > 0.01


def test_correlated_noise_stays_in_the_subspace_of_the_rows():
    found = noise(GaussianNoise(1.0, correlated=True), 20, rows=correlated_rows())
    assert_allclose(found[..., 2], 2 * found[..., 0] + found[..., 1], atol=1e-10)
    assert_allclose(found[..., 3], found[..., 0] - found[..., 1] / 10, atol=1e-10)
    assert (found[..., 4] == 0).all()
    one_hot = torch.eye(3, dtype=torch.float64).repeat(5, 1)
    sums = noise(GaussianNoise(1.0, correlated=True), 20, rows=one_hot).sum(-1)
    assert_allclose(sums, 0.0, atol=1e-10)


def test_categorical_columns_take_no_part_in_correlated_noise():
    rows, n = correlated_rows(), 500
    found = noise(GaussianNoise(1.0, 0.0, correlated=True, categorical=[2]), n, rows=rows)
    assert (found[..., 2] == 0).all()
    assert found[..., 1].std() == pytest.approx(rows[:, 1].std(correction=0).item(), rel=0.02)


def test_images_and_very_wide_rows_have_independent_noise():
    for shape in ((4, 3, 3), (4, 1025)):
        rows = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        expected = noise(GaussianNoise(1.0), 2, rows=rows)
        assert (noise(GaussianNoise(1.0, correlated=True), 2, rows=rows) == expected).all()


def levels_and_numbers(n=300):
    """Columns of 20 levels, of 21, and of numbers."""
    number = torch.arange(n)
    return torch.stack([number % 20, number % 21, number], dim=1).double()


def test_columns_with_few_values_are_found():
    found = noise(GaussianNoise(1.0, categorical="auto"), 20, rows=levels_and_numbers())
    assert (found[..., 0] == 0).all()
    assert (found[..., 1:] != 0).all()
    short = noise(GaussianNoise(1.0, categorical="auto"), 20, rows=levels_and_numbers(50) % 6)
    assert (short != 0).all()  # six values of 50 samples are not few
    images = torch.ones(30, 2, 2).index_fill_(0, torch.arange(15), 0.0)
    assert (noise(GaussianNoise(1.0, categorical="auto"), 2, rows=images) != 0).all()
