# SPDX-License-Identifier: BSD-3-Clause
"""Samples that are moved, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from skdistill.datasets import move

X = np.array([[0.0, 5.0, np.nan], [2.0, 5.0, 1.0], [4.0, 5.0, 3.0]])


def test_all_features_move_by_their_own_deviations():
    spread = (8 / 3) ** 0.5
    np.testing.assert_allclose(move(X, 3), X + [3 * spread, 0, 3])


def test_one_feature_moves_and_X_stays():
    before = X.copy()
    np.testing.assert_array_equal(move(X, -2, feature=-1, scale=[1, 1, 10]), X - [0, 0, 20])
    np.testing.assert_array_equal(X, before)


def test_one_scale_serves_all_features_and_float32_stays():
    moved = move(X.astype(np.float32), 1e6, scale=0.5)
    assert moved.dtype == np.float32
    np.testing.assert_array_equal(moved[1], [500_002, 500_005, 500_001])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"by": "far"}, TypeError, "by must be a number"),
        ({"by": 1, "feature": 3}, ValueError, "feature must be an integer from -3 to 2"),
        ({"by": 1, "feature": True}, TypeError, "feature must be an integer"),
        ({"by": 1, "feature": -0.0}, TypeError, "feature must be an integer"),
        ({"by": 1, "scale": [1, 2]}, ValueError, "scale: .*broadcast"),
        ({"by": 1, "scale": "wide"}, ValueError, "scale: "),
        ({"by": 1, "scale": np.nan}, ValueError, "scale must be finite and not negative, got nan"),
        ({"by": 1, "scale": [1, -1, 1]}, ValueError, "scale must be finite and not negative"),
    ],
)
def test_what_cannot_be_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        move(X, **arguments)
