# SPDX-License-Identifier: BSD-3-Clause
"""How much fits scikit-learn's ``working_memory``."""

from __future__ import annotations

import numpy as np
from sklearn import get_config
from torch import Tensor


def working_memory() -> int:
    """Return scikit-learn's ``working_memory`` in bytes."""
    return int(get_config()["working_memory"] * 2**20)


def rows_in_memory(prediction: np.ndarray | Tensor) -> int:
    """Return how many rows' predictions fit the memory, given that of one row."""
    return max(1, working_memory() // prediction.nbytes)
