# SPDX-License-Identifier: BSD-3-Clause
"""What the columns of a table become before networks take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Standardised numbers beyond this grow as a logarithm: in columns that are nearly constant, as the
# pixels at the edge of images, they may be hundreds of standard deviations from the mean.
_BEYOND = 5.0


def compressed(z: Tensor) -> Tensor:
    """Return numbers z within 5 of 0 as they are, others as ±(5 + log(|z| - 4))."""
    inside = z.clamp(-_BEYOND, _BEYOND)
    excess = z - inside
    return inside + excess.sign() * excess.abs().log1p()


class InputEncoder(nn.Module):
    """Turns rows of a table into the inputs of networks; nothing of it is learnt by gradients.

    The inputs of a row are, in this order: its numbers, standardised, with 0 in place of missing
    ones; 1 for each of some columns whose number is missing; 1 for the category that it has of each
    categorical column, and 0 for the others; and the piecewise-linear encodings [1]_ of its
    numbers.

    Parameters
    ----------
    loc, scale : ndarray of shape (n_columns,)
        What is taken from a column, and what the rest is divided by.
    n_categories : ndarray of int of shape (n_columns,), default=None
        Number of categories of the columns that are categorical, and 0 for the others. Their values
        are codes 0, 1, ...; others, NaN among them, are no category. None is no such column.
    has_indicator : ndarray of bool of shape (n_columns,), default=None
        Columns whose missing values are told apart; None is none.
    edges : sequence of ndarray, default=()
        Edges of the bins of each column, of its standardised values, in ascending order; fewer than
        two are no bins.
    compresses : bool, default=False
        Whether standardised numbers grow as a logarithm beyond 5, see :func:`compressed`.

    References
    ----------
    .. [1] Gorishniy, Rubachev & Babenko (2022), "On Embeddings for Numerical Features in Tabular
           Deep Learning", Eq 1.
    """

    numbers: Tensor | None
    indicators: Tensor | None
    loc: Tensor
    scale: Tensor
    category_columns: Tensor
    codes: Tensor
    binned: Tensor
    starts: Tensor
    widths: Tensor

    def __init__(
        self,
        loc: np.ndarray,
        scale: np.ndarray,
        n_categories: np.ndarray | None = None,
        has_indicator: np.ndarray | None = None,
        edges: Sequence[np.ndarray] = (),
        compresses: bool = False,
    ):
        super().__init__()
        self.compresses = compresses
        sizes = np.zeros(len(loc), dtype=int) if n_categories is None else n_categories
        has_indicator = np.zeros(len(loc), dtype=bool) if has_indicator is None else has_indicator
        numbers = np.flatnonzero(sizes == 0)
        self._keep("numbers", numbers if len(numbers) < len(loc) else None)
        self._keep("loc", loc[numbers])
        self._keep("scale", scale[numbers])
        indicators = np.flatnonzero(has_indicator[numbers])
        self._keep("indicators", indicators if len(indicators) else None)
        of_categories = np.repeat(np.arange(len(loc)), sizes)
        self._keep("category_columns", of_categories)
        # The column of each input but those of bins.
        self.columns = np.concatenate([numbers, numbers[indicators], of_categories])
        self._keep("codes", np.concatenate([np.arange(size, dtype=float) for size in sizes]))
        bins = [edges[column] for column in numbers.tolist()] if len(edges) else []
        n_bins = [max(len(of_column) - 1, 0) for of_column in bins]
        self._keep("binned", np.repeat(np.arange(len(bins)), n_bins))
        none = [np.zeros(0)]
        self._keep("starts", np.concatenate([*none, *(of_column[:-1] for of_column in bins)]))
        self._keep("widths", np.concatenate([*none, *map(np.diff, bins)]))
        self.n_inputs = len(numbers) + len(indicators) + int(sizes.sum()) + sum(n_bins)

    def _keep(self, name: str, values: Any) -> None:
        """Register an array, which is no weight, as a buffer."""
        # On the CPU also where networks are built without memory.
        tensor = None if values is None else torch.as_tensor(values, device="cpu")
        self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (..., n_columns) to inputs (..., n_inputs)."""
        numbers = x if self.numbers is None else x.index_select(-1, self.numbers)
        numbers = (numbers - self.loc) / self.scale
        is_missing = numbers.isnan()
        numbers = numbers.masked_fill(is_missing, 0.0)
        parts = []
        if self.indicators is not None:
            parts.append(is_missing.index_select(-1, self.indicators).to(x.dtype))
        if len(self.codes):
            has = x.index_select(-1, self.category_columns).eq(self.codes)
            parts.append(has.to(x.dtype))
        if len(self.starts):
            distances = numbers.index_select(-1, self.binned) - self.starts
            parts.append((distances / self.widths).clamp(0.0, 1.0))  # Eq 1
        if self.compresses:
            numbers = compressed(numbers)
        return torch.cat([numbers, *parts], dim=-1) if parts else numbers
