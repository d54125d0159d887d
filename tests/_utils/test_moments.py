# SPDX-License-Identifier: BSD-3-Clause
"""Mean and standard deviation of columns, of all samples at once and piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from skdistill._utils import moments as _standardisation
from skdistill._utils.moments import Moments, standardisation

# Far from 0, near overflow and underflow, and of both signs.
LOC, SCALE = np.array([1e8, 0.0, 0.0, -3.0]), np.array([1.0, 1e200, 1e-200, 2.0])


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return LOC + SCALE * rng.normal(size=(1000, 4)), rng.uniform(0.1, 3.0, size=1000)


@pytest.mark.parametrize("n_pieces", [1, 2, 7, 1000])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_pieces_are_merged_to_the_moments_of_all_rows(table, n_pieces, is_weighted):
    values, weight = table
    moments = Moments()
    for rows in np.array_split(np.arange(len(values)), n_pieces):
        moments.add(values[rows], weight[rows] if is_weighted else None)
    loc = LOC + np.average(values - LOC, axis=0, weights=weight if is_weighted else None)
    # The squares of one column would overflow, and those of another vanish.
    squares = np.square((values - loc) / SCALE)
    scale = SCALE * np.sqrt(np.average(squares, axis=0, weights=weight if is_weighted else None))
    np.testing.assert_allclose((moments.loc - loc) / scale, 0.0, atol=1e-6)
    np.testing.assert_allclose(moments.scale, scale, rtol=1e-8 if n_pieces > 1 else 1e-10)
    assert moments.total == pytest.approx(weight.sum() if is_weighted else len(values))


def test_a_large_table_is_taken_in_pieces(table, monkeypatch):
    values, weight = table
    expected = standardisation(values, weight)
    monkeypatch.setattr(_standardisation, "_PIECE", 400)
    found = standardisation(values, weight)
    assert not np.array_equal(found, expected)  # it was
    np.testing.assert_allclose(found, expected, rtol=1e-7)
