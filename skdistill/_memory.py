# SPDX-License-Identifier: BSD-3-Clause
"""How much fits the memory that scikit-learn is allowed to work in."""

from __future__ import annotations

import numpy as np
from sklearn import get_config
from torch import Tensor


def rows_in_memory(prediction: np.ndarray | Tensor) -> int:
    """How many rows' predictions fit scikit-learn's ``working_memory``, given that of one row."""
    return max(1, int(get_config()["working_memory"] * 2**20) // prediction.nbytes)
