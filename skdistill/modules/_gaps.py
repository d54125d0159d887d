# SPDX-License-Identifier: BSD-3-Clause
"""Values of single columns that were not seen: between those that were, and beyond them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

# Units from an edge beyond which a value is no farther, and up to which it is at the edge: the
# deviation of a Wiener process grows with the root of the distance, that of rounding too.
_FARTHEST, _AT_EDGE = 1e9, 1e-5


class Gaps(nn.Module):
    """Tells how unknown a value is that is in an interval of a column without training samples.

    Its share is the variance of a Wiener process that is known at both ends of the interval, a
    Brownian bridge, or at one where the other is infinite. It is 1 in the middle of an interval of
    one unit, and at most there; beyond all samples it grows.

    Parameters
    ----------
    columns : ndarray of int of shape (G,)
        The column of each interval.
    lower, upper : ndarray of shape (G,)
        Its ends, one of which may be infinite.
    unit : ndarray of shape (G,)
        Width of an interval in whose middle the share is 1.
    """

    columns: Tensor
    lower: Tensor
    upper: Tensor
    most: Tensor
    per_unit: Tensor

    def __init__(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray, unit: np.ndarray):
        super().__init__()
        most = np.where(np.isfinite(lower) & np.isfinite(upper), 1.0, np.inf)
        arrays = {"columns": columns, "lower": lower, "upper": upper, "most": most}
        arrays["per_unit"] = 4 / unit
        for name, values in arrays.items():
            tensor = torch.tensor(values, device="cpu")  # also where networks have no memory
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to the shares of the intervals, (n, G); 0 where one is NaN."""
        values = x.index_select(-1, self.columns)
        below = ((values - self.lower) * self.per_unit - _AT_EDGE).clamp(0.0, _FARTHEST)
        above = ((self.upper - values) * self.per_unit - _AT_EDGE).clamp(0.0, _FARTHEST)
        share = (below * above / (below + above)).minimum(self.most)
        return torch.where(values.isnan(), 0.0, share)
