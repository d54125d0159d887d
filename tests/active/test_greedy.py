# SPDX-License-Identifier: BSD-3-Clause
"""Greedy selections are those of the plain definitions, computed with all distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from skdistill.active._select import lcmd


def plain_lcmd(features, n, centres):
    """Algorithm of the paper, with the whole table of distances (P mode without centres)."""
    table = cdist(features, centres, "sqeuclidean") if len(centres) else None
    selected = []
    for _ in range(n):
        if table is None:
            chosen = int(np.square(features).sum(1).argmax())
        else:
            closest, distances = table.argmin(1), table.min(1)
            sums = np.bincount(closest, distances, minlength=table.shape[1])
            inside = closest == sums.argmax()
            chosen = int(np.where(inside, distances, -1).argmax())
        selected.append(chosen)
        column = cdist(features, features[[chosen]], "sqeuclidean")
        table = column if table is None else np.hstack([table, column])
    return selected


def made(seed, n=400, k=12):
    rng = np.random.RandomState(seed)
    features = rng.normal(size=(n, k)) / np.arange(1, k + 1)
    return features, features[:25] + 0.1 * rng.normal(size=(25, k))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_centres", [True, False])
def test_lcmd_is_that_of_all_distances(seed, with_centres):
    features, centres = made(seed)
    centres = centres if with_centres else None
    expected = plain_lcmd(features, 150, [] if centres is None else centres)
    assert lcmd(features, 150, centres).tolist() == expected


def test_the_first_of_lcmd_by_hand():
    features = np.array([[0.0], [1.0], [2.0], [9.0], [10.5], [13.0]])
    # Around 0: 0 + 1 + 4. Around 10: 1 + .25 + 9, whose farthest is 13. Then 10 has .25 + 1 left,
    # so 0 is the largest, whose farthest is 2; this takes 1 from it, or leaves it as it is near.
    assert lcmd(features, 3, np.array([[0.0], [10.0]])).tolist() == [5, 2, 3]


def test_equal_samples_are_selected_once_each():
    features = np.repeat(np.eye(3, dtype=np.float32), 4, 0)
    found = lcmd(features, 12, features[:1])
    assert sorted(found) == list(range(12))
    assert {one // 4 for one in found[:2]} == {1, 2}
    assert sorted(lcmd(np.zeros((5, 2), np.float32), 5)) == list(range(5))
