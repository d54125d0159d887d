# SPDX-License-Identifier: BSD-3-Clause
"""BatchBALD is the mutual information that all configurations of labels give."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import entropy

from skdistill.active._select import batchbald, margins, mutual_information


def made(seed, n=12, n_members=4, n_classes=2, scale=2.0):
    logits = scale * np.random.RandomState(seed).normal(size=(n, n_members, n_classes))
    weights = np.exp(logits)
    return weights / weights.sum(-1, keepdims=True)


def information(members, batch):
    """Mutual information of the labels of a batch and the member, by summing over all labels."""
    n_classes = members.shape[2]
    joint = [
        np.prod([members[i, :, label] for i, label in zip(batch, labels, strict=True)], axis=0)
        for labels in itertools.product(range(n_classes), repeat=len(batch))
    ]
    return entropy(np.mean(joint, 1)) - np.mean([entropy(column) for column in np.transpose(joint)])


def test_margins_by_hand():
    proba = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
    np.testing.assert_allclose(margins(proba), [0.2, 0.7, 0.0])


@pytest.mark.parametrize("seed", range(3))
def test_mutual_information_is_that_of_one_sample(seed):
    members = made(seed, n_classes=3)
    expected = [information(members, [i]) for i in range(len(members))]
    np.testing.assert_allclose(mutual_information(members), expected, atol=1e-12)


@pytest.mark.parametrize(("n_classes", "n"), [(2, 6), (3, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_greedy_in_the_information_of_all_labels(seed, n_classes, n):
    members = made(seed, n_classes=n_classes)
    selected = batchbald(members, n, np.random.RandomState(0)).tolist()
    for place in range(n):
        others = [i for i in range(len(members)) if i not in selected[:place]]
        best = max(others, key=lambda i: information(members, [*selected[:place], i]))
        assert selected[place] == best
