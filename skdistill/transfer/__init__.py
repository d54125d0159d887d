# SPDX-License-Identifier: BSD-3-Clause
"""Transfer sets: the samples on which a student imitates its teacher.

:class:`TransferSet` wraps samples of the user. Generators draw them from the training samples:
:class:`GaussianNoise`, :class:`Mixup`, :class:`Munge`, :class:`UniformBox` and
:class:`Disagreement`. With :class:`TransferOnly` the student does not learn from the training
samples themselves. A generator stores parameters only; ``prepare(X)`` returns a function that draws
new samples for the given ones. If a distiller is fitted to a DataFrame, ``categorical=`` accepts
column names.
"""

from __future__ import annotations

from .._utils.validation import did_you_mean
from ._box import UniformBox
from ._disagreement import Disagreement
from ._disagreement import Measure as Measure
from ._disagreement import MemberDisagreement as MemberDisagreement
from ._maker import TransferMaker
from ._maker import numbered as numbered
from ._missing import filled as filled
from ._missing import prepare_lacking as prepare_lacking
from ._mixup import Mixup
from ._munge import Munge
from ._noise import GaussianNoise
from ._rows import TransferOnly, TransferSet
from ._rows import maker_given as maker_given

__all__ = [
    "Disagreement",
    "GaussianNoise",
    "Mixup",
    "Munge",
    "TransferMaker",
    "TransferOnly",
    "TransferSet",
    "UniformBox",
]
MAKERS: dict[str, type[TransferMaker]] = {
    "noise": GaussianNoise,
    "mixup": Mixup,
    "munge": Munge,
    "box": UniformBox,
    "disagreement": Disagreement,
}


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
