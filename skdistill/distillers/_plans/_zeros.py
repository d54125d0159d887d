# SPDX-License-Identifier: BSD-3-Clause
"""Members that give classes a probability of exactly zero, as trees do."""

from __future__ import annotations

import numpy as np

# Weight of the uniform distribution where the likelihood would see probabilities of zero.
SMOOTHING = 1e-3


def without_zeros(members: np.ndarray) -> np.ndarray:
    """Probabilities of members, none of which is zero where one was; other rows as they are.

    What one of M members gives no probability may have as much as M members cannot tell from none:
    each is mixed with a further one, their mean, whose weight is 1 / (M + 1). The mean stays, but
    for a trace of the uniform distribution, for classes to which nobody gives any.

    Parameters
    ----------
    members : ndarray of shape (n, M, K)

    Returns
    -------
    members : ndarray of shape (n, M, K)
    """
    rows = (members == 0).any(axis=(1, 2))
    if not rows.any():
        return members
    share = 1 / (members.shape[1] + 1)
    mean = members[rows].mean(axis=1, keepdims=True)
    further = (1 - SMOOTHING) * mean + SMOOTHING / members.shape[2]
    members = members.copy()
    members[rows] = (1 - share) * members[rows] + share * further
    return members
