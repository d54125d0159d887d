# SPDX-License-Identifier: BSD-3-Clause
"""Transfer sets: the samples on which a student imitates its teacher.

:class:`TransferSet` wraps samples of the user. Generators draw them from the training samples:
:class:`GaussianNoise`, :class:`Mixup` and :class:`Munge`. With :class:`TransferOnly` the student
does not learn from the training samples themselves. A generator stores parameters only;
``prepare(X)`` returns a function that draws new samples for the given ones.
If a distiller is fitted to a DataFrame, ``categorical=`` accepts column names.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import length_hint

from .._utils.validation import Settings, did_you_mean
from ._maker import GaussianNoise, Mixup, TransferMaker
from ._maker import filled as filled
from ._maker import numbered as numbered
from ._maker import prepare_with_missing as prepare_with_missing
from ._munge import Munge
from ._munge import nearest_rows as nearest_rows

__all__ = [
    "GaussianNoise",
    "Mixup",
    "Munge",
    "TransferMaker",
    "TransferOnly",
    "TransferSet",
]
MAKERS: dict[str, type[TransferMaker]] = {"noise": GaussianNoise, "mixup": Mixup, "munge": Munge}


def make_transfer(transfer: object) -> TransferMaker | None:
    """Turn what is given as ``transfer=`` into a maker; a name is the maker with its defaults."""
    if transfer is None or isinstance(transfer, TransferMaker):
        return transfer
    if isinstance(transfer, str) and transfer in MAKERS:
        return MAKERS[transfer]()
    error = ValueError if isinstance(transfer, str) else TypeError
    raise error(
        f"transfer must be None, one of {list(MAKERS)} or a TransferMaker such as "
        f"GaussianNoise(), got {transfer!r}. Samples of your own are given to fit, as X_transfer."
        + did_you_mean(transfer, MAKERS)
    )


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
