# SPDX-License-Identifier: BSD-3-Clause
"""Greedy selection of samples, by their features or by what is predicted of their classes."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.special import entr

_CHUNK_ROWS = 2048  # features, at a time: parts of a larger array in float16 become float32


def lcmd(features: np.ndarray, n: int, centres: np.ndarray | None = None) -> np.ndarray:
    """Select n distinct places by the largest cluster's maximum distance.

    Each sample belongs to the cluster of its closest centre; at first these are the labelled
    samples, or the one with the largest norm. Of the cluster with the largest sum of squared
    distances the sample that is farthest from the centre is selected, and is a centre from then on
    (LCMD, Holzmüller et al., 2023, Section 3.3; "TP mode" with `centres`). Where all others equal a
    centre, the first ones follow.
    """
    dtype = np.result_type(features.dtype, np.float32)
    n_first = 0 if centres is None else len(centres)
    kept = np.empty((n_first + n, features.shape[1]), dtype)
    norms = _by_chunk(features, _squares)
    closest, distances = np.zeros(len(features), np.int32), np.full(len(features), np.inf, dtype)
    if centres is not None:
        kept[:n_first] = centres
        closest, distances = _nearest(features, kept[:n_first])
    # What rounding may add to squared distances, which are differences of squared norms at first.
    slack = 64 * np.finfo(dtype).eps * norms.max()
    is_left, selected = np.ones(len(features), bool), np.empty(n, np.int64)
    for place in range(n):
        number = n_first + place
        if number == 0:
            chosen = int(norms.argmax())
        else:
            chosen = _farthest_of_largest(closest, distances, is_left, number)
        selected[place], is_left[chosen], distances[chosen] = chosen, False, 0
        kept[number] = features[chosen]
        # By the triangle inequality a sample cannot be closer to the new centre than to its own if
        # these are twice as far apart as it is from its own.
        between = kept[:number] - kept[number]
        apart = _squares(between) if number else np.zeros(1, dtype)
        near = np.flatnonzero(is_left & (4.01 * distances + slack >= apart[closest]))
        found = _by_chunk(features, partial(_squares_from, centre=kept[number]), near)
        is_closer = found < distances[near]
        near = near[is_closer]
        distances[near], closest[near] = found[is_closer], number
    return selected


def _nearest(features: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each sample's closest centre, and its squared distance."""
    squares = _squares(centres)

    def nearest(part: np.ndarray) -> np.ndarray:
        table = part @ (-2 * centres.T)
        table += squares
        found = table.argmin(1)
        least = np.maximum(table[np.arange(len(part)), found] + _squares(part), 0)
        return np.stack([found, least], 1)  # float32 counts to 16 million

    both = _by_chunk(features, nearest, size=max(64, 2**20 // len(centres)))
    return both[:, 0].astype(np.int32), np.ascontiguousarray(both[:, 1], centres.dtype)


def _farthest_of_largest(closest, distances, is_left, n_centres: int) -> int:
    sums = np.bincount(closest, distances, minlength=n_centres)
    largest = sums.argmax()
    members = np.flatnonzero((closest == largest) & is_left)
    if not len(members) or sums[largest] <= 0:
        return int(is_left.argmax())
    return int(members[distances[members].argmax()])


def _squares(part: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", part, part)


def _squares_from(part: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return squared distances from a centre, and change `part`."""
    part -= centre
    return _squares(part)


def _by_chunk(
    features: np.ndarray,
    function: Callable[[np.ndarray], np.ndarray],
    places: np.ndarray | None = None,
    size: int = _CHUNK_ROWS,
) -> np.ndarray:
    """Apply a function to samples, or to those at `places`, few at a time and in float32 at least.

    It takes a copy of features, (m, k). All copies are in the same memory, since that of new ones
    would take ten times as long.
    """
    n = len(features) if places is None else len(places)
    width, dtype = features.shape[1], np.result_type(features.dtype, np.float32)
    copied, taken = np.empty((size, width), dtype), np.empty((size, width), features.dtype)
    out = None
    for start in range(0, n, size):
        part = slice(start, min(start + size, n))
        rows = features[part]
        if places is not None:
            rows = np.take(features, places[part], 0, taken[: part.stop - start], "clip")
        # NumPy takes several times as long for float16.
        torch.from_numpy(copied[: part.stop - start]).copy_(torch.from_numpy(rows))
        found = function(copied[: part.stop - start])
        out = np.empty((n, *found.shape[1:]), found.dtype) if out is None else out
        out[part] = found
    return np.empty(0, dtype) if out is None else out


_CONFIGURATIONS = 1000  # of the labels of a batch: summed over, or drawn if there are more


def margins(proba: np.ndarray) -> np.ndarray:
    """Return how much more probable the first class is than the second, (n,)."""
    two = np.partition(proba, -2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


def mutual_information(members: np.ndarray) -> np.ndarray:
    """Return the mutual information of label and member, (n,), of probabilities (n, S, K)."""
    return entr(members.mean(1)).sum(-1) - entr(members).sum(-1).mean(1)


def batchbald(members: np.ndarray, n: int, rng: np.random.RandomState) -> np.ndarray:
    """Select the batch whose labels together tell the most about the members, (n_pool, S, K).

    Greedily, a sample at a time: the mutual information of the labels of all selected samples and
    the member (BatchBALD, Kirsch, van Amersfoort & Gal, 2019, Eq 8 and Algorithm 1). Where there
    are too many configurations of the labels some are drawn (Eq 14).
    """
    members = members.astype(np.float64)
    n_members, n_classes = members.shape[1:]
    conditional = entr(members).sum(-1).mean(1)  # Eq 9, of each sample
    joint, weights = np.ones((1, n_members)), np.ones(1)  # of configurations, given a member
    drawn_by: np.ndarray | None = None  # the member of each drawn configuration
    is_left, selected = np.ones(len(members), bool), np.empty(n, np.int64)
    for place in range(n):
        gains = _joint_entropies(members, joint, weights) - conditional
        chosen = int(np.where(is_left, gains, -np.inf).argmax())
        selected[place], is_left[chosen] = chosen, False
        if drawn_by is None and len(joint) * n_classes <= _CONFIGURATIONS:
            joint = (joint[:, None] * members[chosen].T).reshape(-1, n_members)
            weights = np.ones(len(joint))
            continue
        latest = [chosen]
        if drawn_by is None:
            drawn_by = np.arange(_CONFIGURATIONS) % n_members
            joint, latest = np.ones((_CONFIGURATIONS, n_members)), list(selected[: place + 1])
        for one in latest:
            below = members[one, drawn_by].cumsum(1)
            label = (below < rng.random_sample((_CONFIGURATIONS, 1)) * below[:, -1:]).sum(1)
            joint = joint * members[one, :, label]
            joint /= joint.max(1, keepdims=True)  # only ratios matter from here on
        weights = 1 / (_CONFIGURATIONS * joint.mean(1))
    return selected


def _joint_entropies(members: np.ndarray, joint: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Entropies of the labels selected and of one more, (n,), but for what all have in common.

    With drawn configurations, `joint` holds their probabilities up to a factor for each.
    """
    found, size = np.empty(len(members)), max(1, 2**22 // (len(joint) * members.shape[2]))
    for start in range(0, len(members), size):
        part = members[start : start + size]
        mean = np.einsum("cs,nsk->nck", joint, part, optimize=True) / len(joint[0])  # Eq 12
        found[start : start + size] = np.einsum("c,nck->n", weights, entr(mean))
    return found
