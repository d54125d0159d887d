# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian noise around the samples."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from .._utils.moments import correlation, standardisation
from .._utils.validation import Number, OneOf
from ._maker import Draw, TransferMaker, Variables, per_row

# Columns, at most, whose noise can be correlated: a sample takes the square of them
# multiplications.
_MOST_CORRELATED = 1024

# For categorical="auto": values of a column at most, samples for each of them at least, and
# samples, at most, that are looked at.
_FEW_VALUES, _ROWS_PER_VALUE, _ROWS_LOOKED_AT = 20, 10, 10_000

# Eigenvalues of correlations below this share of the largest are zeros, up to rounding.
_ROUNDING = 1e-10


@dataclass(eq=False, repr=False)
class GaussianNoise(TransferMaker):
    """Add Gaussian noise to the samples.

    Every sample draws its own share of the noise, a uniform number to the power `share_power`, so
    that the student learns on the samples themselves as well as around them. The noise of a sample
    has standard deviation ``share * scale`` in units of each column's standard deviation.

    Parameters
    ----------
    scale : float, default=0.7
        Largest standard deviation of the noise, in units of each column's standard deviation. A
        column that is constant gets none.
    share_power : float, default=2.0
        How strongly samples without much noise prevail: 0 gives each sample all of the noise, 1 a
        uniform share of it, 2 the square of one.
    correlated : bool, default=False
        Whether the noise of a sample has the correlations of the columns. Where columns depend on
        one another (a total and its parts, one-hot columns) independent noise makes samples that
        the data cannot have; correlated noise stays in the linear subspace that the samples span.
        Samples with more than one axis (images, series) or more than 1,024 columns have independent
        noise all the same.
    categorical : None, "auto", mask or list of columns, default=None
        Columns, see :class:`TransferMaker`, that are left alone. "auto" are those with few values,
        at most 20 and at most one for ten samples: codes, and the levels of an experiment.

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
    _parameter_table = {
        "scale": Number(Real, 0),
        "share_power": Number(Real, 0),
        "correlated": OneOf((True, False)),
    }

    scale: float = 0.7
    share_power: float = 2.0
    correlated: bool = False
    categorical: object = None

    def changes(self, X: Tensor) -> bool:
        if (is_categorical := self._is_categorical(X)) is not None:
            X = X[:, ~is_categorical]
        return self.scale > 0 and bool((X[:1] != X).any())

    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        self.check(X.shape)
        values, weights = X.cpu().numpy(), None if weight is None else weight.cpu().numpy()
        loc, deviation = standardisation(values, weights, constant=0.0)
        sd = torch.from_numpy(self.scale * deviation).to(X)
        if (is_categorical := self._is_categorical(X)) is not None:
            sd[is_categorical] = 0.0
        mixing = None
        if self.correlated and X.ndim == 2 and X.shape[1] <= _MOST_CORRELATED:
            mixing = torch.from_numpy(square_root(correlation(values, weights, loc, deviation)))
            mixing = mixing.to(X)
        share_power = self.share_power

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Add normals of standard deviation `sd`, each sample's times its share in [0, 1)."""
            normals = torch.empty_like(rows).normal_(generator=generator)
            if mixing is not None:
                normals = normals @ mixing
            share = rows.new_empty(per_row(index, rows)).uniform_(generator=generator)
            return torch.addcmul(rows, normals.mul_(share.pow_(share_power)), sd, out=normals)

        return draw

    def _variables(self, shape: tuple[int, ...]) -> Variables:
        return [] if self._is_auto else super()._variables(shape)

    def _variables_of(self, X: Tensor) -> Variables:
        mask = self._is_categorical(X) if self._is_auto else None
        if mask is None:
            return super()._variables_of(X)
        return [(int(column),) for column in mask.nonzero()]

    def _is_categorical(self, X: Tensor) -> Tensor | None:
        if not self._is_auto:
            return super()._is_categorical(X)
        if X.ndim > 2:
            return None
        some = X[:: -(-len(X) // _ROWS_LOOKED_AT)]
        most = min(_FEW_VALUES, len(some) / _ROWS_PER_VALUE)
        few = [len(column.unique()) <= most for column in some.T]
        return torch.tensor(few, device=X.device)

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.categorical, str) and self.categorical == "auto"


def square_root(matrix: np.ndarray) -> np.ndarray:
    """Symmetric square root of a positive semidefinite matrix, of any rank."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.where(values > _ROUNDING * values.max(), values, 0.0)
    return (vectors * np.sqrt(values)) @ vectors.T
