# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian noise around the rows."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._rules import Number
from .._standardisation import standardisation
from ._maker import Draw, TransferMaker, per_row


class GaussianNoise(TransferMaker):
    """Add Gaussian noise to the rows, drawn afresh for each batch.

    Every row draws its own share of the noise, a uniform number to the power `share_power`, so
    that the student learns on the rows themselves as well as around them. The noise of a row
    has standard deviation ``share * scale`` in units of each column's standard deviation.

    Parameters
    ----------
    scale : float, default=0.7
        Largest standard deviation of the noise, in units of each column's standard deviation. A
        column that is constant gets none.
    share_power : float, default=2.0
        How strongly rows without much noise prevail: 0 gives each row all of the noise, 1 a
        uniform share of it, 2 the square of one.
    categorical : None, mask or list of columns, default=None
        Columns that are left alone: ``n_features`` booleans, or numbers of columns. A tuple of
        numbers stands for columns that encode one variable, here the same as its numbers.

    Examples
    --------
    >>> import torch
    >>> from skdistill.transfer import GaussianNoise
    >>> X = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])
    >>> draw = GaussianNoise(scale=0.5, categorical=[1]).prepare(X)
    >>> draw(X, torch.arange(3), torch.Generator().manual_seed(0))[:, 1]
    tensor([1., 0., 0.])
    """

    keeps_labels = True
    _parameter_table = {"scale": Number(Real, 0), "share_power": Number(Real, 0)}

    def __init__(self, scale: float = 0.7, share_power: float = 2.0, categorical: Any = None):
        self.scale = scale
        self.share_power = share_power
        self.categorical = categorical

    def prepare(self, X, weight=None) -> Draw:
        self.check(X.shape)
        weights = None if weight is None else weight.cpu().numpy()
        deviation = standardisation(X.cpu().numpy(), weights, constant=0.0)[1]
        sd = torch.from_numpy(self.scale * deviation).to(X)
        if (is_categorical := self._is_categorical(X)) is not None:
            sd[is_categorical] = 0.0
        share_power = self.share_power

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Add normals of standard deviation `sd`, each row's times its share in [0, 1)."""
            normals = torch.empty_like(rows).normal_(generator=generator)
            share = rows.new_empty(per_row(index, rows)).uniform_(generator=generator)
            return torch.addcmul(rows, normals.mul_(share.pow_(share_power)), sd, out=normals)

        return draw
