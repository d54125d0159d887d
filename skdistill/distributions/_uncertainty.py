# SPDX-License-Identifier: BSD-3-Clause
"""The three parts of a predictive uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)  # the == of arrays has no single truth value
class Uncertainty:
    """Total uncertainty of a prediction and the two parts it is the sum of.

    It unpacks into its parts (Lindqvist et al., 2020, Eqs 4a to 4c):
    ``total, aleatoric, epistemic = uncertainty``.

    Parameters
    ----------
    total : array or Tensor
        Uncertainty of the prediction. Arrays and tensors of any shape serve, one for all parts.
    aleatoric, epistemic : array, Tensor or None
        The parts due to noise in the data and to not knowing the model, also called data and
        knowledge uncertainty. None where the model cannot tell the parts.
    measure : {"variance", "entropy", "std"}
        What the numbers are: a variance in squared units of y, an entropy in nats, or, from
        :meth:`std` only, a standard deviation in units of y.
    """

    total: Any
    aleatoric: Any
    epistemic: Any
    measure: str

    def __iter__(self) -> Iterator[Any]:
        """Iterate over total, aleatoric and epistemic."""
        return iter((self.total, self.aleatoric, self.epistemic))

    def _asdict(self) -> dict[str, Any]:
        """Return the three parts by name, as named tuples have it."""
        return {"total": self.total, "aleatoric": self.aleatoric, "epistemic": self.epistemic}

    def to_frame(self, index: object = None) -> Any:
        """Return the parts as a table, with a row for each prediction.

        Parameters
        ----------
        index : array-like of shape (n_samples,), default=None
            Labels of the samples, such as ``X.index``.

        Returns
        -------
        frame : pandas.DataFrame of shape (n_samples, n_columns)
            Columns ``total``, ``aleatoric`` and ``epistemic``, in the units of `measure`, each of
            them with ``_<number of the target>`` behind it if there are several. Parts that the
            model cannot tell are missing.
        """
        import pandas

        parts = {
            name: np.asarray(part) for name, part in self._asdict().items() if part is not None
        }
        return pandas.DataFrame(split_columns(parts), index=index)

    def std(self) -> Uncertainty:
        """Square roots of the three variances, in units of y.

        Returns
        -------
        Uncertainty
            With ``measure="std"``. Standard deviations do not add up, their squares do.

        Raises
        ------
        ValueError
            If the measure is not "variance".
        """
        if self.measure != "variance":
            raise ValueError(
                f'std() needs measure="variance", but this uncertainty has {self.measure!r}.'
            )
        total, aleatoric, epistemic = (None if part is None else part**0.5 for part in self)
        return Uncertainty(total, aleatoric, epistemic, measure="std")


def split_columns(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays of a table as its columns: one of shape (n, t) as t, ``<name>_<number>``."""
    columns: dict[str, np.ndarray] = {}
    for name, values in table.items():
        several = {f"{name}_{k}": column for k, column in enumerate(values.T)}
        columns |= several if values.ndim == 2 else {name: values}
    return columns
