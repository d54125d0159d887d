# SPDX-License-Identifier: BSD-3-Clause
"""Uniform samples in the box around the samples."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from .._utils.validation import Number
from ._maker import Draw, TransferMaker


@dataclass(eq=False, repr=False)
class UniformBox(TransferMaker):
    """Draw samples uniformly from the bounding box of all samples, or a larger one.

    The columns are independent, so that with more than a few of them nearly all samples lie far
    from the data.

    Parameters
    ----------
    expand : float, default=0.0
        How far the box reaches beyond the samples, on each side, in units of each column's range.
    categorical : None, mask or list of columns, default=None
        Columns, see :class:`TransferMaker`, that take the value of a random sample instead, each
        variable that of another sample.

    Examples
    --------
    >>> import torch
    >>> from skdistill.transfer import UniformBox
    >>> X = torch.tensor([[0.0, 1.0], [1.0, 3.0]])
    >>> draw = UniformBox(expand=0.5).prepare(X)
    >>> new = draw(X, torch.arange(2), torch.Generator().manual_seed(0))
    >>> bool((new[:, 1] >= 0.0).all() and (new[:, 1] <= 4.0).all())
    True
    """

    _parameter_table = {"expand": Number(Real, 0)}

    expand: float = 0.0
    categorical: object = None

    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        self.check(X.shape)
        low, high = X.amin(0), X.amax(0)
        margin = self.expand * (high - low)
        low, high = low - margin, high + margin
        is_categorical = self._is_categorical(X)
        variable = self._variable_of_columns(X)

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            drawn = torch.lerp(low, high, torch.empty_like(rows).uniform_(generator=generator))
            if is_categorical is None:
                return drawn
            source = torch.randint(len(X), rows.shape, generator=generator, device=X.device)
            # One sample for all columns of a variable.
            source = source[..., variable].flatten(0, -2)
            return torch.where(is_categorical, X.gather(0, source).view_as(rows), drawn)

        return draw
