# SPDX-License-Identifier: BSD-3-Clause
"""How a fit prepares the columns of X for networks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.interpolate import BSpline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from .._utils.moments import Moments, pieces, standardisation
from ..modules import InputEncoder, PiecewiseLinear
from .columns import Columns

# How these were chosen: see doc/design.rst.
_NEAR = 0.01  # of mean and standard deviation to 0 and 1, where a column is standardised already
MANY_ROWS = 10_000  # samples from which on a table is large
# Columns; share of them that begins at one value; median range over the largest: of one unit.
_LEAST_OF_UNIT, _BEGIN_ALIKE, _ALIKE = 16, 0.9, 0.5
EMBEDDED_FROM = {"regressor": 200, "classifier": 50}  # samples
_MOST_EMBEDDED_COLUMNS = 100  # columns of more than two values
# Times the bins of small tables; samples that choose by BIC; rounding, over the variance of y.
_FACTORS, _SAMPLES_OF_SPLINE, _ROUNDING = (8, 4, 2, 1), 100_000, 1e-12
_WIDTH_OF_GAP, _BEYOND_GAP = 1.0, 0.05  # shares of the range; share of the samples on each side
# Half a step's width in standard deviations; share of values in it; share beside; parts of a value.
_HALF_STEP, _SHARE_OF_STEP, _SHARE_BESIDE, _RESOLVED = 1e-3, 4e-4, 0.02, 1e-6
_LEAVES_OF_LEAST_SIZE = 10  # samples of a bin, if all have as many, over the least of a leaf


@dataclass(frozen=True, eq=False)
class InputEncoding:
    """What :class:`skdistill.modules.InputEncoder` is made of, as a fit has found it."""

    loc: np.ndarray  # of shape (n_columns,), as the next three
    scale: np.ndarray
    n_categories: np.ndarray
    has_indicator: np.ndarray
    edges: tuple[np.ndarray, ...] = ()
    compresses: bool = False

    @classmethod
    def of(
        cls,
        X: np.ndarray,
        weight: np.ndarray | None,
        *,
        normalize: bool = True,
        n_categories: np.ndarray | None = None,
        bins: Bins | None = None,
    ) -> InputEncoding | None:
        """Find the encoding of columns, or None where samples can be taken as they are.

        `n_categories` are those of an InputEncoder; `bins` encode numbers piecewise linearly.
        """
        return cls.without_bins(X, n_categories, weight, normalize)._with_bins(X, weight, bins)

    @classmethod
    def without_bins(
        cls,
        X: np.ndarray,
        n_categories: np.ndarray | None,
        weight: np.ndarray | None = None,
        normalize: bool = True,
    ) -> InputEncoding:
        """Find the encoding of columns, without bins."""
        is_missing = np.isnan(X.sum(axis=0))
        if is_missing.any():
            is_missing = np.isnan(X).any(axis=0)
        if not normalize:
            scaling = np.zeros(X.shape[1]), np.ones(X.shape[1])
            return cls._scaled(*scaling, None, is_missing, n_categories)
        loc, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if not is_missing.all():
            full = X if not is_missing.any() else X[:, ~is_missing]
            loc[~is_missing], scale[~is_missing] = standardisation(full, weight)
        for column in np.flatnonzero(is_missing):  # by what it holds, if anything
            held = ~np.isnan(X[:, column])
            if held.any() and (weight is None or weight[held].any()):
                of_held = None if weight is None else weight[held]
                loc[[column]], scale[[column]] = standardisation(X[held, column][:, None], of_held)
        limits = np.fmin.reduce(X), np.fmax.reduce(X)
        return cls._scaled(loc, scale, limits, is_missing, n_categories)

    @classmethod
    def of_moments(
        cls,
        moments: Moments,
        limits: tuple[np.ndarray, np.ndarray],
        X: np.ndarray,
        weight: np.ndarray | None,
        bins: Bins | None = None,
        *,
        normalize: bool = True,
        n_categories: np.ndarray | None = None,
    ) -> InputEncoding | None:
        """Find the encoding by the moments and limits of columns, and bins by some samples, X."""
        loc, scale = moments.standardisation()
        none_missing = np.zeros(len(loc), dtype=bool)
        found = cls._scaled(loc, scale, limits if normalize else None, none_missing, n_categories)
        return found._with_bins(X, weight, bins)

    @classmethod
    def _scaled(
        cls,
        loc: np.ndarray,
        scale: np.ndarray,
        limits: tuple[np.ndarray, np.ndarray] | None,
        is_missing: np.ndarray,
        n_categories: np.ndarray | None,
    ) -> InputEncoding:
        """Encode columns by their moments and limits; without limits numbers stay as they are."""
        if limits is not None:
            # Columns of zeros and ones stay: a rare 1 would be far from all else. From 0 to 1, no
            # other values have the variance p (1 - p), where p is the mean.
            low, high = limits
            is_flag = (low == 0) & (high == 1) & np.isclose(scale**2, loc * (1 - loc), rtol=1e-6)
            loc, scale = np.where(is_flag, 0.0, loc), np.where(is_flag, 1.0, scale)
            if n_categories is None:
                scale = _of_common_unit(scale, low, high)
        n_categories = np.zeros(len(loc), dtype=int) if n_categories is None else n_categories
        is_number, is_scaled = n_categories == 0, (n_categories == 0) & (limits is not None)
        loc, scale = np.where(is_scaled, loc, 0.0), np.where(is_scaled, scale, 1.0)
        has_indicator = is_missing & is_number
        return cls(loc, scale, n_categories, has_indicator, compresses=limits is not None)

    def _with_bins(
        self, X: np.ndarray, weight: np.ndarray | None, bins: Bins | None
    ) -> InputEncoding | None:
        """Return the encoding with bins of numbers; None where samples can be taken as they are."""
        found = self
        if bins is not None:
            edges = [
                bins.edges(X[:, column], weight) if size == 0 else np.zeros(0)
                for column, size in enumerate(self.n_categories)
            ]
            # Found in the units of the columns, which tell values apart also far from 0.
            units = zip(edges, self.loc, self.scale, strict=True)
            found = replace(self, edges=tuple((own - loc) / scale for own, loc, scale in units))
        is_near = (np.abs(self.loc) <= _NEAR * self.scale) & (np.abs(self.scale - 1) <= _NEAR)
        has_more = self.n_categories.any() or self.has_indicator.any() or found.has_bins
        return None if is_near.all() and not has_more else found

    @classmethod
    def with_steps(
        cls,
        encoding: InputEncoding | None,
        X: np.ndarray,
        thresholds: Sequence[np.ndarray],
    ) -> InputEncoding:
        """Return an encoding with bins around thresholds of columns, as narrow as steps."""
        n_columns = X.shape[1]
        if encoding is None:
            plain = np.zeros(n_columns), np.ones(n_columns)
            encoding = cls(*plain, np.zeros(n_columns, dtype=int), np.zeros(n_columns, dtype=bool))
        edges = list(encoding.edges or [np.zeros(0)] * n_columns)
        for column, own in enumerate(thresholds):
            if encoding.n_categories[column] or not len(own):
                continue
            values = np.unique(X[:, column][~np.isnan(X[:, column])]).astype(np.float64)
            if len(values) > 1:
                loc, scale = encoding.loc[column], encoding.scale[column]
                # Trees separate missing values by thresholds beyond all others.
                own = own[(own > values[0]) & (own < values[-1])]
                half, plain = _half_steps(values, own), edges[column] * scale + loc
                found = np.sort(np.concatenate([plain, own - half, own + half]))
                least = _half_steps(values, found) / 2  # widths are divided by
                edges[column] = (found[np.diff(found, prepend=-np.inf) > least] - loc) / scale
        return replace(encoding, edges=tuple(edges))

    @property
    def has_bins(self) -> bool:
        """Whether some column has a piecewise-linear encoding."""
        return any(map(len, self.edges))

    def module(self, dtype: torch.dtype) -> InputEncoder:
        """Return the module that encodes samples."""
        arrays = self.loc, self.scale, self.n_categories, self.has_indicator
        return InputEncoder(*arrays, self.edges, self.compresses).to(dtype)

    @cached_property
    def n_inputs(self) -> int:
        """Number of inputs of a network."""
        return self.module(torch.float32).n_inputs


class Bins(NamedTuple):
    """How bins of columns are found.

    A tree of the columns predicts `y`, of shape (n, ...). With `by_bic` a column has no quantile
    bins, or 1, 2, 4 or 8 times `n_bins`: those of the linear spline for y of the least Bayesian
    information criterion.
    """

    settings: PiecewiseLinear
    y: np.ndarray
    are_classes: bool = False
    by_bic: bool = False

    def edges(self, column: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Find the edges of a column's bins, in ascending order; none where there is one bin."""
        held = ~np.isnan(column) if weight is None else ~np.isnan(column) & (weight > 0)
        column, weight = column[held].astype(np.float64), weight if weight is None else weight[held]
        if not len(column) or column.min() == column.max():
            return np.zeros(0)
        if self.settings.bins == "quantile":
            found = self._quantiles(column, self.y[held], weight)
        else:
            thresholds = self._leaves(column, self.y[held], weight)
            found = np.concatenate([[column.min()], thresholds, [column.max()]])
        edges = np.unique(found)
        return edges if len(edges) > 2 else np.zeros(0)

    def _quantiles(
        self, column: np.ndarray, y: np.ndarray, weight: np.ndarray | None
    ) -> np.ndarray:
        """Quantiles of the column, and the ends of its gaps; its range where a line is the best."""
        n_bins = self.settings.n_bins
        factors = _FACTORS if self.by_bic else _FACTORS[-1:]
        levels = np.linspace(0, 1, n_bins * factors[0] + 1)
        # Of the inverse distribution function, weights have the effect of repetitions.
        found = np.quantile(column, levels, method="inverted_cdf", weights=weight)
        if self.by_bic:
            steps = [n_bins * factors[0], *factors]
            found = _of_least_bic(column, y, weight, [np.unique(found[::step]) for step in steps])
            if len(found) == 2:
                return found
        # And both sides of wide gaps: in a bin that holds one, a network would be nearly linear.
        values = np.sort(column)
        n_beyond = max(1, int(_BEYOND_GAP * len(values)))
        before = np.arange(n_beyond - 1, len(values) - n_beyond)
        widths = values[before + 1] - values[before]
        first = before[widths > _WIDTH_OF_GAP / n_bins * (values[-1] - values[0])]
        return np.concatenate([found, values[first], values[first + 1]])

    def _leaves(self, column: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Where a decision tree cuts the column to predict y (Gorishniy et al., Section 3.2.2)."""
        kind = DecisionTreeClassifier if self.are_classes else DecisionTreeRegressor
        least = max(1, len(column) // (_LEAVES_OF_LEAST_SIZE * self.settings.n_bins))
        tree = kind(max_leaf_nodes=self.settings.n_bins, min_samples_leaf=least, random_state=0)
        found = tree.fit(column[:, None], y, sample_weight=weight).tree_
        return found.threshold[found.feature >= 0]


def _of_least_bic(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, candidates: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the knots whose linear spline of y (n, ...) on x (n,) has the least BIC.

    All candidates are among the knots of the last. The criterion of a model of k coefficients with
    normal residuals is n log(RSS) + k log(n), but for a constant (Schwarz, 1978, "Estimating the
    Dimension of a Model"), here summed over targets.
    """
    y, w = y.reshape(len(x), -1).astype(np.float64), np.ones(len(x)) if weight is None else weight
    if len(x) > _SAMPLES_OF_SPLINE:
        drawn = np.random.default_rng(0).choice(len(x), _SAMPLES_OF_SPLINE, replace=False)
        x, y, w = x[drawn], y[drawn], w[drawn]
    y -= np.average(y, axis=0, weights=w)
    total, finest, criteria = w @ y**2, candidates[-1], []
    hats = _hats(x, finest)
    weighted = hats.multiply(w[:, None]).T
    of_squares, of_targets = (weighted @ hats).toarray(), weighted @ y
    for knots in candidates:
        wider = _hats(finest, knots)  # a hat of these is the sum of the finest ones, so weighted
        moments = wider.T @ of_targets
        coefficients = np.linalg.lstsq(wider.T @ of_squares @ wider, moments)[0]
        residual = np.maximum(total - (coefficients * moments).sum(axis=0), _ROUNDING * total)
        fit = np.log(residual + np.finfo(float).tiny).sum()  # of exact fits too
        criteria.append(len(x) * fit + moments.size * np.log(len(x)))  # BIC
    return candidates[int(np.argmin(criteria))]


def _hats(x: np.ndarray, knots: np.ndarray) -> Any:
    """Return the linear splines (n, n_knots) that are 1 at one knot, and 0 at the others."""
    return BSpline.design_matrix(x, np.pad(knots, 1, mode="edge"), 1)


def _half_steps(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return half the widths of steps at places of a column that has these values, sorted."""
    n, place = len(values), np.searchsorted(values, at)
    n_near = max(1, int(_SHARE_BESIDE * n))
    low, high = np.clip(place - n_near, 0, n - 1), np.clip(place + n_near - 1, 0, n - 1)
    gaps = (values[high] - values[low]) / np.maximum(high - low, 1)
    local = np.maximum(_SHARE_OF_STEP * n * gaps, _RESOLVED * np.abs(at))
    return np.minimum(_HALF_STEP * values.std(), local)


@dataclass(frozen=True)
class InputSettings:
    """What an estimator's parameters say of how samples are encoded."""

    modules: tuple[Any, ...]  # classes of networks that are to take the encoding
    embeddings: Any  # the parameter `module__embeddings`
    are_classes: bool  # what is predicted
    normalize: bool  # numerical features
    n_categories: np.ndarray | None  # as of an InputEncoder; None is no categorical features
    encodes: bool  # whether the estimator takes tables, which may have an encoding

    @classmethod
    def of(cls, params: dict[str, Any], kind: str, columns: Columns | None) -> InputSettings:
        """Read the parameters of an estimator of this kind, for X with these columns."""
        given = params["module"]
        return cls(
            tuple(given) if isinstance(given, (list, tuple)) else (given,),
            params.get("module__embeddings", "auto"),
            kind == "classifier",
            params.get("normalize", False) in (True, "X"),
            None if columns is None else columns.n_categories,
            "normalize" in params,
        )

    def encoding(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, embedded_from: int
    ) -> InputEncoding | None:
        """Find the encoding of a table; None for no table. `embedded_from` is as in `bins`."""
        if X.ndim != 2 or not self.encodes:
            return None
        bins = self.bins(len(X), X, y, embedded_from)
        return InputEncoding.of(
            X, weight, normalize=self.normalize, n_categories=self.n_categories, bins=bins
        )

    def bins(self, n_samples: int, X: np.ndarray, y: np.ndarray, embedded_from: int) -> Bins | None:
        """Return how to find bins, if a table of which X are samples is to have some."""
        embeddings, by_bic = self.embeddings, False
        if isinstance(embeddings, str) and embeddings == "auto":
            # Tables of so many samples are embedded, columns of numbers in large ones by BIC.
            is_suited = n_samples >= embedded_from
            if is_suited and X.shape[1] > _MOST_EMBEDDED_COLUMNS:
                low, high = np.fmin.reduce(X), np.fmax.reduce(X)
                found = np.zeros(X.shape[1], dtype=bool)
                for part in pieces(X):
                    found |= ((low < X[part]) & (high > X[part])).any(axis=0)
                is_suited = found.sum() <= _MOST_EMBEDDED_COLUMNS
            can_be = all("embeddings" in inspect.signature(m).parameters for m in self.modules)
            embeddings = PiecewiseLinear() if can_be and is_suited else None
            by_bic = n_samples >= MANY_ROWS and not self.are_classes
        if not isinstance(embeddings, PiecewiseLinear):
            return None
        return Bins(embeddings, y, self.are_classes, by_bic)


def _of_common_unit(scale: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Give columns of one unit, such as pixels, one scale: the root of their mean variance.

    By its own scale a pixel that is hardly ever lit would be far from all else where it is. Columns
    have one unit where there are many that begin at the same value, and whose ranges are alike.
    """
    varies = high > low
    if np.count_nonzero(varies) < _LEAST_OF_UNIT:
        return scale
    ranges, starts = high[varies] - low[varies], np.unique(low[varies], return_counts=True)[1]
    begin_alike = starts.max() >= _BEGIN_ALIKE * len(ranges)
    if not (begin_alike and np.median(ranges) >= _ALIKE * ranges.max()):
        return scale
    return np.full_like(scale, np.sqrt(np.square(scale[varies]).mean()))
