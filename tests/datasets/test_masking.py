# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.datasets import mask_squares


def images(*shape, dtype=float):
    return np.random.default_rng(0).integers(1, 200, size=shape).astype(dtype)


def corners(masked):
    """Top, left, height and width of the zeros of each image."""
    found = []
    for image in masked:
        rows, columns = np.nonzero(image == 0)
        top, left = rows.min(), columns.min()
        found.append((top, left, rows.max() - top + 1, columns.max() - left + 1))
    return np.array(found)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_square_of_each_image(size):
    X = images(50, 6, 9)
    masked = mask_squares(X, size, random_state=0)
    is_masked = masked == 0
    assert (is_masked.sum(axis=(1, 2)) == size**2).all()
    assert_array_equal(corners(masked)[:, 2:], np.full((50, 2), size))
    assert_array_equal(masked[~is_masked], X[~is_masked])
    assert (X > 0).all(), "X stays as it is"


def test_rows_of_pixels_are_masked_as_images_are():
    X = images(20, 3, 6, 9)
    expected = mask_squares(X, 4, random_state=1)
    rows = mask_squares(X.reshape(20, -1), 4, image_shape=(3, 6, 9), random_state=1)
    assert_array_equal(rows.reshape(X.shape), expected)
    assert_array_equal((expected == 0).all(axis=1), (expected == 0).any(axis=1))
    grey = mask_squares(X[:, 0], 4, random_state=1)
    assert_array_equal(grey, expected[:, 0])


def test_masking_rates_of_the_paper():
    masked = mask_squares(np.ones((2, 784)), 15, image_shape=(28, 28), random_state=0)
    assert (masked == 0).mean() == pytest.approx(0.29, abs=0.005)
    masked = mask_squares(np.ones((2, 784)), 26, image_shape=(28, 28), random_state=0)
    assert (masked == 0).mean() == pytest.approx(0.862, abs=0.0005)
