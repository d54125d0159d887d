# SPDX-License-Identifier: BSD-3-Clause
"""Values of single columns that were not seen: between those that were, and beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Units from an edge beyond which a value is no farther, and up to which it is at the edge: the
# deviation of a Wiener process grows with the root of the distance, that of rounding too.
_FARTHEST, _AT_EDGE = 5e8, 1e-5


class Gaps(nn.Module):
    """Tells how unknown a value is that is in an interval of a column without training samples.

    Its share is the variance of a Wiener process that is known at both ends of the interval, a
    Brownian bridge, or at one where the other is infinite. It is 1 in the middle of an interval of
    one unit, and at most there; beyond all samples it grows. Arrays have one entry for each of G
    intervals.
    """

    def __init__(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray, unit: np.ndarray):
        super().__init__()
        slopes = np.stack([4 / unit, -4 / unit])  # distances from both ends, in quarters of a unit
        arrays = {"columns": columns, "slopes": slopes}
        arrays["offsets"] = -np.stack([lower, upper]) * slopes - _AT_EDGE
        arrays["most"] = np.where(np.isfinite(lower) & np.isfinite(upper), 1.0, _FARTHEST)
        for name, values in arrays.items():
            tensor = torch.tensor(values, device="cpu")  # also where networks have no memory
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to the shares of the intervals, (n, G); 0 where one is NaN."""
        kept: dict[str, Any] = self._buffers  # as attributes they take as long as sums of a sample
        values = x.index_select(-1, kept["columns"]).unsqueeze(-2)
        distances = torch.addcmul(kept["offsets"], values, kept["slopes"]).relu()
        # b a / (b + a) for distances b and a, which may be 0, or infinite.
        share = distances.reciprocal().sum(-2).reciprocal().minimum(kept["most"])
        return share.masked_fill(share.isnan(), 0.0)
