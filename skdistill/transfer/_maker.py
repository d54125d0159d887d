# SPDX-License-Identifier: BSD-3-Clause
"""Makers of transfer sets: their base class, and those that need no neighbours."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from .._utils.moments import correlation, standardisation
from .._utils.validation import Number, OneOf, Settings, check_parameters, did_you_mean, is_number

# Samples (..., *sample), their index (...), a generator on their device -> new samples.
Draw = Callable[[Tensor, Tensor, torch.Generator], Tensor]

# The columns that encode each categorical variable, such as [(3,), (5, 6, 7)].
Variables = list[tuple[int, ...]]

# See doc/design.rst.
_MOST_CORRELATED = 1024  # columns whose noise can be correlated
# Of categorical="auto": values at most, samples of each at least, samples looked at, at most.
_FEW_VALUES, _ROWS_PER_VALUE, _ROWS_LOOKED_AT = 20, 10, 10_000
_ROUNDING = 1e-10  # share of the largest eigenvalue of correlations below which others are zeros


class TransferMaker(Settings, ABC):
    """Base of settings that make a transfer set by drawing new samples.

    The parameter `categorical`, where there is one, is a mask, ``n_features`` booleans, or a list
    of columns, by number or name; a tuple of numbers stands for columns that encode one variable,
    such as one-hot columns.

    Attributes
    ----------
    keeps_labels : bool
        Whether a drawn sample keeps the label of the sample that it is drawn from. If not, it has
        the teacher's predictions only.
    """

    keeps_labels = False
    categorical: Any = None  # a parameter of makers that treat such columns differently
    base: Any = None  # a parameter of makers that choose among the samples of another

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a TypeError or ValueError unless the settings are valid and suit the samples.

        Parameters
        ----------
        shape : tuple of int
            Of the samples, (n, ...).
        """
        check_parameters(self, f"{type(self).__name__}: ")
        self._variables(shape)

    def changes(self, X: Tensor) -> bool:
        """Tell whether samples that are drawn differ from those that they are drawn from.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            The samples.

        Returns
        -------
        changes : bool
        """
        return True

    @abstractmethod
    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        """Return a function that draws new samples for these.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            The samples.
        weight : Tensor of shape (n,), default=None
            Sample weights.

        Returns
        -------
        draw : callable
            ``draw(rows, index, generator)`` takes some of the samples, ``rows = X[index]`` of shape
            (..., \\*X.shape[1:]), their `index`, of shape (...), and a ``torch.Generator`` on
            their device. It returns as many new samples in a new tensor. They depend on the state
            of the generator and on the shape of `index`.
        """

    def _variables(self, shape: tuple[int, ...]) -> Variables:
        """Columns of each categorical variable."""
        if self.categorical is None:
            return []
        if len(shape) != 2:
            raise ValueError(
                f"{type(self).__name__}: categorical must be None where samples have more than one "
                f"axis, got {self.categorical!r} with X of shape {tuple(shape)}."
            )
        variables = as_variables(self.categorical, shape[1])
        if variables is None:
            raise ValueError(
                f"{type(self).__name__}: categorical must be None, a mask of {shape[1]} booleans, "
                f"or a list of columns from 0 to {shape[1] - 1}, each of them once, with a tuple "
                "for columns that encode one variable (or names of columns, in a distiller that is "
                f"fitted on a frame); got {self.categorical!r}."
            )
        return variables

    def _is_categorical(self, X: Tensor) -> Tensor | None:
        """Tell which columns are categorical, (d,); None if there can be none."""
        if self.categorical is None:
            return None
        mask = torch.zeros(X.shape[1], dtype=torch.bool)
        mask[[column for variable in self._variables(X.shape) for column in variable]] = True
        return mask.to(X.device)


def _has_items(value: object) -> bool:
    """Whether a value can be iterated over; an array of no axis has __iter__, which raises."""
    return isinstance(value, Iterable) and (not hasattr(value, "ndim") or value.ndim > 0)


def as_variables(categorical: Any, n_columns: int) -> Variables | None:
    """Read a mask of columns, or their numbers and tuples of numbers; None if it is neither."""
    if not _has_items(categorical) or isinstance(categorical, (str, bytes, Tensor, type)):
        return None
    items = list(categorical)
    if items and all(isinstance(item, (bool, np.bool_)) for item in items):
        return [(int(c),) for c in np.flatnonzero(items)] if len(items) == n_columns else None
    variables = [tuple(item) if _has_items(item) else (item,) for item in items]
    columns = [column for variable in variables for column in variable]
    if not all(is_number(column, Integral) for column in columns):
        return None
    is_valid = all(0 <= c < n_columns for c in columns) and len(set(columns)) == len(columns)
    return variables if is_valid and all(variables) else None


def numbered(maker: TransferMaker, names: Sequence[str] | np.ndarray | None) -> TransferMaker:
    """Return a maker with numbers of columns where `categorical` gives their `names`."""
    changed: dict[str, Any] = {}
    given, base = maker.categorical, maker.base
    if isinstance(given, (list, tuple)):
        numbers = [_number_of(item, names, maker) for item in given]
        changed = {} if numbers == list(given) else {"categorical": numbers}
    if isinstance(base, TransferMaker) and (of_base := numbered(base, names)) is not base:
        changed["base"] = of_base
    return copy.copy(maker).set_params(**changed) if changed else maker


def _number_of(item: object, names: Sequence[str] | np.ndarray | None, maker: TransferMaker) -> Any:
    if isinstance(item, tuple):
        return tuple(_number_of(one, names, maker) for one in item)
    if not isinstance(item, str):
        return item
    known = [] if names is None else list(names)
    if item not in known:
        has = f"X has {known}" if known else "X has no names: give a frame to fit, or numbers"
        raise ValueError(
            f"{type(maker).__name__}: categorical must be columns of X, got {item!r}, but {has}."
            f"{did_you_mean(item, known)}"
        )
    return known.index(item)


def per_row(index: Tensor, rows: Tensor) -> tuple[int, ...]:
    """Shape of one number for each sample, to go with the samples."""
    return (*index.shape, *[1] * (rows.ndim - index.ndim))


def filled(X: Tensor) -> Tensor:
    """Return samples (n, d) with the mean of its column in place of what is missing, NaN."""
    return torch.where(X.isnan(), X.nanmean(0).nan_to_num(0.0), X)


def prepare_with_missing(maker: Any, X: Tensor, weight: Tensor | None) -> Draw:
    """Prepare a maker for samples with missing values; those of new samples are missing too."""
    if not bool(X.sum().isnan()):
        return maker.prepare(X, weight)
    fill = X.nanmean(0).nan_to_num(0.0)
    draw = maker.prepare(filled(X), weight)

    def draw_with_missing(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        is_missing = rows.isnan()
        drawn = draw(torch.where(is_missing, fill, rows), index, generator)
        return drawn.masked_fill(is_missing, torch.nan)

    return draw_with_missing


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


@dataclass(eq=False, repr=False)
class Mixup(TransferMaker):
    """Draw samples between two samples, with a random partner for each sample ([1]_, Eq 1).

    A new sample is ``lambda * x_i + (1 - lambda) * x_j`` with lambda from Beta(alpha, alpha) and j
    from all samples, in proportion to their weights. The teacher predicts for the new sample, so no
    labels are mixed.

    Parameters
    ----------
    alpha : float, default=1.0
        Both parameters of the Beta distribution: 1 is uniform on the line between two samples,
        smaller ones stay closer to its ends.
    categorical : None, mask or list of columns, default=None
        Columns, see :class:`TransferMaker`, that are not mixed: they come from that sample of the
        two whose share is the larger, all of them from the same.

    References
    ----------
    .. [1] Zhang, Cisse, Dauphin & Lopez-Paz (2018), "mixup: Beyond Empirical Risk Minimization".

    Examples
    --------
    >>> import torch
    >>> from skdistill.transfer import Mixup
    >>> X = torch.tensor([[0.0, 1.0], [1.0, 2.0]])
    >>> draw = Mixup(alpha=0.4).prepare(X)
    >>> new = draw(X, torch.arange(2), torch.Generator().manual_seed(0))
    >>> torch.allclose(new[:, 1] - new[:, 0], torch.ones(2))
    True
    """

    _parameter_table = {"alpha": Number(Real, 0, closed="neither")}

    alpha: float = 1.0
    categorical: object = None

    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        self.check(X.shape)
        alpha, is_categorical = self.alpha, self._is_categorical(X)

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Mix each sample with a random one of X."""
            n = index.numel()
            if weight is None:
                partner = torch.randint(len(X), (n,), generator=generator, device=X.device)
            else:
                partner = torch.multinomial(weight, n, replacement=True, generator=generator)
            others = X.index_select(0, partner).view_as(rows)
            # torch's Beta takes no generator: invert the distribution function.
            uniform = rows.new_empty(per_row(index, rows)).uniform_(generator=generator)
            lam = torch.from_numpy(betaincinv(alpha, alpha, uniform.double().cpu().numpy()))
            lam = lam.to(rows)
            mixed = torch.lerp(others, rows, lam)  # Eq 1
            if is_categorical is None:
                return mixed
            return torch.where(is_categorical, torch.where(lam >= 0.5, rows, others), mixed)

        return draw
