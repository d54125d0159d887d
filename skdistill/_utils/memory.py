# SPDX-License-Identifier: BSD-3-Clause
"""How much fits scikit-learn's ``working_memory``."""

from __future__ import annotations

import os

import numpy as np
from sklearn import get_config
from torch import Tensor

# What a teacher answers takes at most so many bytes at a time, and is for at most so many samples:
# it still predicts many of them, and what is computed from the answer stays near the cache.
_ANSWER_BYTES = 2**24
_ROWS_ASKED = 2**14


def working_memory() -> int:
    """Return scikit-learn's ``working_memory`` in bytes."""
    return int(get_config()["working_memory"] * 2**20)


def rows_in_memory(prediction: np.ndarray | Tensor) -> int:
    """Return how many samples' predictions fit the memory, given that of one sample."""
    return max(1, working_memory() // prediction.nbytes)


def rows_asked(prediction: np.ndarray | Tensor) -> int:
    """Return for how many samples a teacher predicts at a time, given its prediction for one."""
    within_bytes = max(1, _ANSWER_BYTES // prediction.nbytes)
    return min(rows_in_memory(prediction), within_bytes, _ROWS_ASKED)


def fits_twice(n_bytes: int) -> bool:
    """Tell whether memory holds so many bytes twice; it does where its size is not known.

    So much of a file the operating system holds: a sample is read in .03 to .2 us then (160 and 800
    bytes), else in 15 us and more.
    """
    if not hasattr(os, "sysconf"):  # Windows
        return True
    return n_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
