# SPDX-License-Identifier: BSD-3-Clause
"""MUNGE: values exchanged with the nearest neighbour (Bucila, Caruana & Niculescu-Mizil, 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from .._utils.moments import standardisation
from .._utils.validation import Number
from ._maker import Draw, TransferMaker, Variables, per_row

# See doc/design.rst.
_TREE_DIMENSIONS, _TREE_DIMENSIONS_OF_MANY = 10, 5  # of a k-d tree, at most
_MANY_POINTS = 2**15
_MOST_COMPARED = 2**12  # samples of a part, all pairs of which are compared
_BLOCK = 2**10  # samples between which squared distances are computed at a time: 8 MiB
_POWER_STEPS = 4  # towards a principal direction


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
    Neighbours are found once; sample weights are ignored. With more than ten columns and more than
    4,096 samples, or more than five and 32,768, they are nearly the nearest: the samples are halved
    along a principal direction, again and again, and compared within parts of 2,048 to 4,096. The
    time grows as n log n.

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
        is_maker = isinstance(self.base, TransferMaker) and not self.base.asks_teacher
        if not is_maker and (self.base is not None or self.share < 1):
            raise ValueError(
                "Munge: base must be a TransferMaker that asks no teacher, such as "
                f"GaussianNoise(), where share is less than 1, or None; got {self.base!r} with "
                f"share={self.share!r}."
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
        variable = torch.arange(
            X.shape[1]
        )  # of each column, identified by the first of its columns
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
    most = _TREE_DIMENSIONS if len(distinct) <= _MANY_POINTS else _TREE_DIMENSIONS_OF_MANY
    find = nearest_by_tree if points.shape[1] <= most else nearest_by_parts
    nearest = find(distinct) if len(distinct) > 1 else np.zeros(1, dtype=np.int64)
    return first[nearest][which.reshape(-1)]


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


def nearest_by_tree(points: np.ndarray) -> np.ndarray:
    """Index of the nearest other point for each of distinct points."""
    found = cKDTree(points).query(points, k=2)[1]
    is_itself = found[:, 0] == np.arange(len(points))
    return np.where(is_itself, found[:, 1], found[:, 0])


def nearest_by_parts(points: np.ndarray) -> np.ndarray:
    """Index of the nearest other point in its part for each of distinct points."""
    nearest = np.empty(len(points), dtype=np.int64)
    open_parts = [np.arange(len(points))]
    while open_parts:
        part = open_parts.pop()
        if len(part) <= _MOST_COMPARED:
            nearest[part] = part[nearest_by_products(points[part])]
            continue
        some = points[part]
        order = np.argpartition(some @ principal_direction(some), len(part) // 2)
        open_parts += np.array_split(part[order], 2)
    return nearest


def principal_direction(points: np.ndarray) -> np.ndarray:
    """Return about the direction (d,) in which points vary most, by the power method."""
    centred = points - points.mean(axis=0)
    covariance = centred.T @ centred
    direction = covariance[np.diagonal(covariance).argmax()]
    for _ in range(_POWER_STEPS):
        direction = direction / np.linalg.norm(direction)
        direction = covariance @ direction
    return direction


def nearest_by_products(points: np.ndarray) -> np.ndarray:
    """Index of the nearest other point for each, by |a - b|^2 - |a|^2 = |b|^2 - 2 a b."""
    at = torch.from_numpy(points)
    squares = at.square().sum(1)
    nearest = torch.zeros(len(at), dtype=torch.int64)
    least = torch.full_like(squares, torch.inf)
    for start in range(0, len(at), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for first in range(0, len(at), _BLOCK):
            others = slice(first, first + _BLOCK)
            distances = torch.addmm(squares[others], at[rows], at[others].T, alpha=-2)
            if first == start:
                distances.fill_diagonal_(torch.inf)  # to itself
            distance, number = distances.min(1)
            is_nearer = distance < least[rows]
            nearest[rows] = torch.where(is_nearer, number + first, nearest[rows])
            torch.minimum(least[rows], distance, out=least[rows])
    return nearest.numpy()
