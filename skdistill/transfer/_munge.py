# SPDX-License-Identifier: BSD-3-Clause
"""MUNGE: values exchanged with the nearest neighbour (Bucila, Caruana & Niculescu-Mizil, 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from .._utils.moments import standardisation
from .._utils.validation import Number
from ._maker import Draw, TransferMaker, Variables, per_row

_MOST_NEIGHBOURS = 2**14  # samples that may be neighbours; see doc/design.rst


@dataclass(eq=False, repr=False)
class Munge(TransferMaker):
    """Exchange values with the nearest neighbour, afresh for each batch ([1]_, Alg. 1).

    Each value x of a sample is replaced, with probability `swap_probability`, by a draw from a
    normal around the neighbour's value x' with standard deviation ``scale * |x - x'|``; categorical
    values are exchanged as they are. New samples thus lie where the data are, also in many
    dimensions.

    Parameters
    ----------
    swap_probability : float, default=0.5
        From 0, which leaves the samples as they are, to 1.
    scale : float, default=1.0
        Standard deviation of the normals in units of the difference between the two values. It is
        1 / s for the paper's "local variance parameter" s; 0 exchanges values as they are.
    categorical : None, mask or list of columns, default=None
        Columns, see :class:`TransferMaker`; those of one variable are exchanged together.
    base : TransferMaker or None, default=None
        How samples are drawn that are not drawn so, such as ``GaussianNoise()``.
    share : float, default=1.0
        Share of the samples whose values are exchanged; the others are drawn by `base`, which must
        be given where this is less than 1.

    Notes
    -----
    The neighbour is the nearest sample that differs, by the Euclidean distance of standardised
    columns; each categorical variable in which two samples differ adds 1 to the squared distance.
    Neighbours are found once; sample weights are ignored. Of more than 16,384 samples, so many
    drawn at random may be neighbours.

    The paper changes both rows of a pair in place, and so a row several times. Here each sample
    changes once.

    References
    ----------
    .. [1] Bucila, Caruana & Niculescu-Mizil (2006), "Model Compression".

    Examples
    --------
    >>> import torch
    >>> from skdistill.transfer import Munge
    >>> X = torch.tensor([[0.0, 5.0], [1.0, 6.0], [8.0, 2.0], [9.0, 3.0]])
    >>> draw = Munge(swap_probability=1.0, scale=0.0).prepare(X)
    >>> draw(X, torch.arange(4), torch.Generator())
    tensor([[1., 6.],
            [0., 5.],
            [9., 3.],
            [8., 2.]])
    """

    _parameter_table = {
        "swap_probability": Number(Real, 0, 1),
        "scale": Number(Real, 0),
        "share": Number(Real, 0, 1),
    }

    swap_probability: float = 0.5
    scale: float = 1.0
    categorical: object = None
    base: TransferMaker | None = None
    share: float = 1.0

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2:
            raise ValueError(
                f"transfer={self!r} needs samples of one axis, (n, n_features), got X of shape "
                f"{tuple(shape)}; for these there are 'noise' and 'mixup'."
            )
        super().check(shape)
        is_maker = isinstance(self.base, TransferMaker)
        if not is_maker and (self.base is not None or self.share < 1):
            raise ValueError(
                "Munge: base must be a TransferMaker, such as GaussianNoise(), where share is less "
                f"than 1, or None; got {self.base!r} with share={self.share!r}."
            )
        if self.base is not None:
            self.base.check(shape)

    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        self.check(X.shape)
        if self.base is None or self.share == 1:
            return self._exchange(X)
        exchange, base, share = self._exchange(X), self.base.prepare(X, weight), self.share

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Draw a share of the samples by exchanges, the others by `base`."""
            is_exchanged = rows.new_empty(per_row(index, rows)).uniform_(generator=generator)
            exchanged = exchange(rows, index, generator)
            return torch.where(is_exchanged < share, exchanged, base(rows, index, generator))

        return draw

    def _exchange(self, X: Tensor) -> Draw:
        """Return what replaces values by draws around the nearest neighbour's."""
        spread = X.new_full(X.shape[1:], self.scale)
        if (is_categorical := self._is_categorical(X)) is not None:
            spread[is_categorical] = 0.0
        nearest = nearest_rows(X.cpu().numpy(), self._variables(X.shape))
        neighbour = torch.from_numpy(nearest).to(X.device)
        variable = torch.arange(X.shape[1])  # of each column, named by the first of its columns
        for columns in self._variables(X.shape):
            variable[list(columns)] = columns[0]
        probability, variable = self.swap_probability, variable.to(X.device)

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Replace each variable, with a probability, by a draw around the neighbour's."""
            others = X.index_select(0, neighbour[index].flatten()).view_as(rows)
            swapped = torch.empty_like(rows).uniform_(generator=generator) < probability
            normals = torch.empty_like(rows).normal_(generator=generator)
            drawn = torch.addcmul(others, normals * spread, rows - others)  # norm(x', |x - x'| / s)
            return torch.where(swapped[..., variable], drawn, rows)

        return draw


def nearest_rows(X: np.ndarray, variables: Variables) -> np.ndarray:
    """Index of the nearest different sample for each sample, (n,); its own if all are equal."""
    points = embed(X, variables)
    distinct, first, which = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if (n := len(distinct)) == 1:
        return np.full(len(X), first[0])
    known = np.arange(n)
    if n > _MOST_NEIGHBOURS:
        known = np.random.default_rng(0).choice(n, _MOST_NEIGHBOURS, replace=False)
    tree = NearestNeighbors(n_neighbors=2).fit(distinct[known])
    nearest, second = known[tree.kneighbors(distinct, return_distance=False)].T
    return first[np.where(nearest == np.arange(n), second, nearest)][which.reshape(-1)]


def embed(X: np.ndarray, variables: Variables) -> np.ndarray:
    """Points whose squared Euclidean distances define the nearest neighbour."""
    categorical = [column for variable in variables for column in variable]
    values = np.delete(X, categorical, axis=1)
    loc, scale = standardisation(values, None)
    parts = [(values - loc) / scale]
    for variable in variables:
        categories, code = np.unique(X[:, list(variable)], axis=0, return_inverse=True)
        # Two different one-hot codes are sqrt(2) apart.
        parts.append(np.eye(len(categories))[code.reshape(-1)] / np.sqrt(2))
    return np.concatenate(parts, axis=1)
