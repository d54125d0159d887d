# SPDX-License-Identifier: BSD-3-Clause
"""Selection of samples by what is predicted of their classes."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

# Configurations of the labels of a batch: so many are summed over, or drawn if there are more.
_CONFIGURATIONS = 1000


def margins(proba: np.ndarray) -> np.ndarray:
    """Return how much more probable the first class is than the second, (n,)."""
    two = np.partition(proba, -2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


def mutual_information(members: np.ndarray) -> np.ndarray:
    """Return the mutual information of label and member, (n,), of probabilities (n, S, K)."""
    return entr(members.mean(1)).sum(-1) - entr(members).sum(-1).mean(1)


def batchbald(members: np.ndarray, n: int, rng: np.random.RandomState) -> np.ndarray:
    """Select the batch whose labels together tell the most about the members.

    Greedily, a sample at a time: the mutual information of the labels of all selected samples and
    the member (BatchBALD, Kirsch, van Amersfoort & Gal, 2019, Eq 8 and Algorithm 1).

    Parameters
    ----------
    members : ndarray of shape (n_pool, n_members, n_classes)
        Probabilities.
    n : int
    rng : RandomState
        Draws labels of the selected samples where there are more than 1,000 configurations of them
        (Eq 14).

    Returns
    -------
    selected : ndarray of shape (n,)
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
