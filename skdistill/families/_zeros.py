# SPDX-License-Identifier: BSD-3-Clause
"""Members that give classes a probability of exactly zero, as trees do."""

from __future__ import annotations

import numpy as np

# Weight of the uniform distribution where the likelihood would see probabilities of zero.
SMOOTHING = 1e-3


def without_zeros(members: np.ndarray) -> np.ndarray:
    """Mix members (n, M, K) with their mean in the rows where one gives a class no probability.

    The mean has weight 1 / (M + 1), that of one more member. So the members' mean stays as it is,
    but for a trace of the uniform distribution, for classes to which no member gives any.
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
