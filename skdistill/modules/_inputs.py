# SPDX-License-Identifier: BSD-3-Clause
"""What the columns of a table become before networks take them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_BEYOND = 5.0  # deviations beyond which inputs grow as a logarithm, see doc/design.rst


def compressed(z: Tensor) -> Tensor:
    """Return numbers z within 5 of 0 as they are, others as ±(5 + log(|z| - 4))."""
    inside = z.clamp(-_BEYOND, _BEYOND)
    excess = z - inside
    return torch.addcmul(inside, excess.sign(), excess.abs().log1p())


def keep(module: nn.Module, name: str, values: np.ndarray | None) -> None:
    """Register an array, which is no weight, as a buffer."""
    # On the CPU also where networks are built without memory.
    tensor = None if values is None else torch.tensor(values, device="cpu")
    module.register_buffer(name, tensor, persistent=False)


class InputEncoder(nn.Module):
    """Turns rows of a table into the inputs of networks; nothing of it is learnt by gradients.

    The inputs of a sample are, in this order: its numbers, less `loc` over `scale`, 0 if missing;
    1 for each missing number of a column that `has_indicator`; the one-hot code of each categorical
    column; and the piecewise-linear encodings of its numbers (Gorishniy, Rubachev & Babenko, 2022,
    "On Embeddings for Numerical Features in Tabular Deep Learning", Eq 1).

    `n_categories` is 0 for numerical columns; codes beyond, and NaN, are no category. `edges` are
    those of the bins of each column's standardised values, in ascending order. With `compresses`,
    these grow as a logarithm beyond 5, see :func:`compressed`.
    """

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
        indicators = np.flatnonzero(has_indicator & (sizes == 0))
        of_categories = np.repeat(np.arange(len(loc)), sizes)
        bins = [edges[column] for column in numbers.tolist()] if len(edges) else []
        self.n_numbers, self.n_categories = len(numbers), len(of_categories)
        self.n_bins = sum(max(len(of_column) - 1, 0) for of_column in bins)
        # The column of each input but those of bins.
        self.columns = np.concatenate([numbers, indicators, of_categories])
        self.n_inputs = self.extra_activations = len(self.columns) + self.n_bins
        # A standardised number is its distance from the mean, in units of the scale, and the input
        # of a bin that from its lower edge, in units of its width: one subtraction and division.
        sources, starts, widths = [numbers], [loc[numbers]], [scale[numbers]]
        for column, of_column in zip(numbers, bins, strict=False):
            sources.append(np.full(max(len(of_column) - 1, 0), column))
            starts.append(loc[column] + scale[column] * of_column[:-1])
            widths.append(scale[column] * np.diff(of_column))
        is_of_all = len(numbers) == len(loc) and not self.n_bins
        self.is_bounded = compresses or self.n_bins > 0
        beyond = _BEYOND if compresses else np.inf
        for name, ends in (("low", (-beyond, 0.0)), ("high", (beyond, 1.0))):
            keep(self, name, np.repeat(ends, (self.n_numbers, self.n_bins)))
        keep(self, "sources", None if is_of_all else np.concatenate(sources))
        keep(self, "starts", np.concatenate(starts))
        keep(self, "widths", np.concatenate(widths))
        keep(self, "loc", np.where(sizes == 0, loc, np.nan))  # missing categories stay missing
        keep(self, "indicators", indicators if len(indicators) else None)
        keep(self, "category_columns", of_categories)
        keep(self, "codes", np.concatenate([np.arange(size, dtype=float) for size in sizes]))

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (..., n_columns) to inputs (..., n_inputs)."""
        kept: dict[str, Any] = self._buffers  # as attributes they take as long as sums of a sample
        is_missing = x.isnan()
        x = torch.where(is_missing, kept["loc"], x)
        sources, sizes = kept["sources"], (self.n_numbers, self.n_bins)
        z = x if sources is None else x.index_select(-1, sources)
        z = (z - kept["starts"]) / kept["widths"]
        inputs = z.clamp(kept["low"], kept["high"]) if self.is_bounded else z  # bins: Eq 1
        if self.compresses:  # few samples have numbers for it; an exported graph takes any
            near = (part.narrow(-1, 0, self.n_numbers) for part in (z, inputs))
            if torch.compiler.is_compiling() or not torch.equal(*near):
                numbers = compressed(z.narrow(-1, 0, self.n_numbers))
                bins = inputs.narrow(-1, self.n_numbers, self.n_bins)
                inputs = torch.cat([numbers, bins], -1) if self.n_bins else numbers
        if kept["indicators"] is None and not self.n_categories:
            return inputs
        numbers, bins = inputs.split_with_sizes(sizes, -1)
        parts = [numbers]
        if kept["indicators"] is not None:
            parts.append(is_missing.index_select(-1, kept["indicators"]).to(x.dtype))
        if self.n_categories:
            has = x.index_select(-1, kept["category_columns"]).eq(kept["codes"])
            parts.append(has.to(x.dtype))
        return torch.cat([*parts, bins], -1)
