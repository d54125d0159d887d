# SPDX-License-Identifier: BSD-3-Clause
"""Transfer sets: the samples on which a student imitates its teacher."""

from __future__ import annotations

from dataclasses import dataclass
from operator import length_hint

from .._utils.settings import Settings
from ._maker import TransferMaker

__all__ = ["TransferOnly", "TransferSet"]


@dataclass(eq=False, repr=False)
class TransferOnly(Settings):
    """Let a student learn from `X_transfer` without X, as ``transfer=TransferOnly()``.

    Of the samples that `transfer` generates it learns without those that they are generated from.

    Parameters
    ----------
    transfer : str, TransferMaker or None, default=None
        As the student's parameter of this name: how further samples are generated.
    """

    transfer: str | TransferMaker | None = None


def maker_given(transfer: object) -> object:
    """Return how samples are generated, of what is given as ``transfer=``."""
    return transfer.transfer if isinstance(transfer, TransferOnly) else transfer


class TransferSet:
    """Samples without labels for a student to learn from.

    scikit-learn's cross-validation cuts every array that is as long as X into folds. Wrapped, the
    samples go to every fold whole. A ``Pipeline(..., transform_input=["X_transfer"])``, which
    scales the samples on their way, wants them bare.

    Parameters
    ----------
    rows : array-like of shape (n_rows, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.transfer import TransferSet
    >>> TransferSet(np.zeros((100, 3)))
    TransferSet(100 samples)
    """

    def __init__(self, rows: object):
        self.rows = rows

    def __repr__(self) -> str:
        return f"TransferSet({length_hint(self.rows)} samples)"
