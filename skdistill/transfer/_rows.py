# SPDX-License-Identifier: BSD-3-Clause
"""Transfer sets: the rows on which a student imitates its teacher."""

from __future__ import annotations

from operator import length_hint
from typing import Any

__all__ = ["TransferSet"]


class TransferSet:
    """Rows without labels for a student to learn from.

    scikit-learn's cross-validation cuts every array that is as long as X into folds. Wrapped, the
    rows go to every fold whole. A ``Pipeline(..., transform_input=["X_transfer"])``, which scales
    the rows on their way, wants them bare.

    Parameters
    ----------
    rows : array-like of shape (n_rows, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.transfer import TransferSet
    >>> TransferSet(np.zeros((100, 3)))
    TransferSet(100 rows)
    """

    def __init__(self, rows: Any):
        self.rows = rows

    def __repr__(self) -> str:
        return f"TransferSet({length_hint(self.rows)} rows)"
