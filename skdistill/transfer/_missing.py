# SPDX-License-Identifier: BSD-3-Clause
"""Drawing samples where values are missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._maker import Draw


def filled(X: Tensor) -> Tensor:
    """Return samples (n, d) with the mean of its column in place of what is missing, NaN."""
    return torch.where(X.isnan(), X.nanmean(0).nan_to_num(0.0), X)


def prepare_lacking(maker: Any, X: Tensor, weight: Tensor | None, *teacher: object) -> Draw:
    """Prepare a maker for samples with missing values; those of new samples are missing too."""
    if not bool(X.sum().isnan()):
        return maker.prepare(X, weight, *teacher)
    fill = X.nanmean(0).nan_to_num(0.0)
    draw = maker.prepare(filled(X), weight, *teacher)

    def draw_lacking(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        is_missing = rows.isnan()
        drawn = draw(torch.where(is_missing, fill, rows), index, generator)
        return drawn.masked_fill(is_missing, torch.nan)

    return draw_lacking
