# SPDX-License-Identifier: BSD-3-Clause
"""How a fit finds the random functions by which members differ away from the training samples.

Members of an ensemble agree on much that they have not seen, since they share their architecture.
To each member is added a draw of a Gaussian process that is zero at the training samples: what the
data say stays as it is, and between and beyond them members disagree. Where a value is missing, or
a category unknown, that was known in training, members disagree by as much as predictions change
without it; in a gap of a column, or beyond all of its values, by as much at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist

from .._data.encoding import InputEncoding
from .._utils.process import one_blas_thread
from ..modules import FunctionDraws, Gaps, UnknownDraws

# How these were chosen: see doc/design.rst. Of pairs the second is of classes; deviations are
# standard deviations of standardised inputs, or of y where that is said.
LEAST_SAMPLES = 5  # samples; fewer have no functions
# Samples at most: that distances are measured on, inducing points, left out singly, and in blocks.
_N_SAMPLES, _N_INDUCING, _N_LEFT_OUT, _N_IN_BLOCKS = 2_000, 256, 1_000, 300
_LEAST_FRESH = 1_000  # samples besides, from which on they tell distances from inducing points
_N_WAVES = 64  # random Fourier features
_LENGTH_SCALES, _LESS = (0.12, 0.18, 0.25, 0.35, 0.5, 0.6), 0.5  # over sqrt(d) - .5, d inputs
_NUGGET = 1e-4  # variance at inducing points, over the prior variance
_LEFT = 1e-5  # mean share of the variance that inducing points may leave at samples
_USUAL_GIVEN = 0.99  # quantile of the variance given inducing points, subtracted as a baseline
_USUAL_OUT = 0.98, 0.9  # quantile of the variance given all other samples, likewise
# Predictions that tell relevance; the least factor of a column; columns at most, else all are 1.
_N_PREDICTIONS, _LEAST_RELEVANCE, _MOST_COLUMNS = 5_000, 0.1, 200
_TAUGHT = 0.05  # share of missing values of a column from which on networks have learnt them
# Of a gap: deviations, share of the samples on either side, deviations of a uniform distribution.
_WIDTH_OF_GAP, _BESIDE_GAP, _UNIT_OF_GAP = 0.25, 0.05, np.sqrt(12)
_LEAST_UNKNOWN, _UNTOLD, _LEAST_IN_BLOCK = 0.3, 0.5, 5  # of an unknown column's effect; samples
_SCALES = np.geomspace(0.01, 1.0, 21)  # standard deviations of functions tried, over that of y
_MOST_ADDED = 0.01, 0.15  # functions' variance at most, over that of held-out residuals
_SLOPE, _LEAST_LEFT = 0.25, 0.01  # growth, deviations of y per deviation; share of variance left
_NOISES = (1e-4, 1e-3, 1e-2, 0.1, 0.5)  # noise variances tried, over the variance of y
_N_BLOCKS = 24  # blocks that are left out
_LOGITS_PER_DEVIATION = 2.0  # growth of logits at least, per deviation
_WITHIN_OF_CLASSES = 0.98  # share of the samples within the distance where functions begin to grow
# Samples moved; deviations beyond all others; factor of growth at most; steps of its bisection.
_N_FAR, _FAR, _MOST_GROWN, _N_HALVINGS = 200, (8.0, 64.0), 32.0, 10

Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)  # the == of arrays has no single truth value
class UnseenValues:
    """What :class:`skdistill.modules.Gaps` is made of, and what a value in a gap is worth.

    `deviation`, (G, k), is the standard deviation, in units of y or of logits, where a value in a
    gap is unknown; the others are as of the module, (G,).
    """

    columns: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    unit: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True, eq=False)
class UnknownColumns:
    """What :class:`skdistill.modules.UnknownDraws` is made of: columns whose values are not known.

    `unknown`, (n_columns, k), is the standard deviation, in units of y or of logits, where a
    column's value is not known. The draw of a member depends on its number, and not on the others.
    """

    unknown: np.ndarray
    seed: int
    members: tuple[int, ...] = ()  # numbers of the members that have a draw

    def of_members(self, members: Sequence[int]) -> Self:
        return replace(self, members=tuple(members))

    def module(self) -> UnknownDraws:
        n_columns, n_values = self.unknown.shape
        return UnknownDraws(self._normal(n_columns, n_values) * self.unknown[:, None], self.unknown)

    def _normal(self, *shape: int) -> np.ndarray:
        """Draw standard normal numbers of a shape for each member, second, with mean 0."""
        generators = (np.random.default_rng([self.seed, member]) for member in self.members)
        drawn = np.stack([generator.standard_normal(shape) for generator in generators], axis=1)
        centred: np.ndarray = drawn - drawn.mean(axis=1, keepdims=True)
        return centred  # so that the mean of the members stays


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomFunctions(UnknownColumns):
    """What :class:`skdistill.modules.FunctionDraws` is made of, as a fit has found it.

    `scale`, (k,), is the standard deviation of the functions far from all samples, in units of y,
    or of logits. As shares of its square, `usual` is the variance that is taken off, see the
    module, and `left_out` the mean of what is left of it at samples that are left out. Inducing
    points, frequencies and phases are in float32.
    """

    encoding: InputEncoding
    relevance: np.ndarray
    length_scale: float
    radius: float
    growth: float
    inducing: np.ndarray
    frequencies: np.ndarray
    phases: np.ndarray
    scale: np.ndarray
    usual: float
    left_out: float
    unseen: UnseenValues

    def times(self, factor: float) -> Self:
        unseen = replace(self.unseen, deviation=factor * self.unseen.deviation)
        scale, unknown = factor * self.scale, factor * self.unknown
        return replace(self, scale=scale, unknown=unknown, unseen=unseen)

    def growing_as(
        self, X: np.ndarray, epistemic: Callable[[Self, np.ndarray], np.ndarray], goal: Predict
    ) -> Self:
        """Return functions by which samples far from all others get an epistemic part as large.

        `epistemic` takes functions and samples to what their model predicts, `goal` samples to what
        it is to be. Functions do not grow less than they did: the logits that they are added to
        grow too, and the way in which samples are moved is one of many.
        """
        X = X[:: -(-len(X) // _N_FAR)].astype(np.float64)
        inputs = self.encoding.module(torch.float64)(torch.from_numpy(X)).numpy()
        moved = partial(_moved, X, self.encoding, np.linalg.norm(inputs, axis=1))
        far = np.concatenate([moved(self.radius + distance) for distance in _FAR])
        wanted, grown = np.median(goal(far)), self
        low, high = 1.0, _MOST_GROWN
        for _ in range(_N_HALVINGS):
            if np.median(epistemic(grown, far)) < wanted:
                low = grown.growth / self.growth
            elif grown is self:
                break
            else:
                high = grown.growth / self.growth
            grown = replace(self, growth=self.growth * np.sqrt(low * high))
        return grown

    def module(self) -> FunctionDraws:
        """Draw weights of features by Matheron's rule, and values of unknown columns, of mean 0."""
        kept = self.inducing, self.frequencies, self.phases
        inducing, frequencies, phases = (values.astype(np.float64) for values in kept)
        n_waves, n_inducing, n_columns = len(phases), len(inducing), len(self.unknown)
        drawn = self._normal(n_waves + n_inducing + n_columns, len(self.scale))
        prior, noise, of_columns = np.split(drawn, [n_waves, n_waves + n_inducing])
        prior = np.sqrt(2 / n_waves) * prior
        at_inducing = np.tensordot(np.sin(inducing @ frequencies.T + phases), prior, axes=1)
        values = (at_inducing + np.sqrt(_NUGGET) * noise).reshape(n_inducing, -1)
        kernel, unseen = _kernel_matrix(inducing, self.length_scale), self.unseen
        eigenvalues, vectors = np.linalg.eigh(kernel)
        whitening = (vectors / np.sqrt(eigenvalues))[:, ::-1]
        solved = whitening @ (whitening.T @ values)
        weights = np.concatenate([prior, -solved.reshape(noise.shape)])  # Wilson et al., Eq 13
        of_gaps = of_columns[unseen.columns] * unseen.deviation[:, None]
        return FunctionDraws(
            self.encoding.module(torch.float64),
            self.relevance,
            self.length_scale,
            self.radius,
            self.growth,
            inducing,
            frequencies,
            phases,
            weights * self.scale,
            np.concatenate([of_columns * self.unknown[:, None], of_gaps]),
            whitening,
            self.scale,
            self.usual,
            np.concatenate([self.unknown, unseen.deviation]),
            Gaps(unseen.columns, unseen.lower, unseen.upper, unseen.unit),
        )


@one_blas_thread()
def find_functions(
    X: np.ndarray,
    y: np.ndarray,
    n_categories: np.ndarray | None,
    predict: Predict,
    held_out_error: np.ndarray | None,
    are_classes: bool,
    random_state: np.random.RandomState,
) -> RandomFunctions | None:
    """Find the random functions that suit a table; None where they cannot be told.

    NaN is missing in the training samples X (n, n_columns); y are targets (n, t), or codes of
    classes (n,). `predict` takes samples to the ensemble's means, (n, t), or mean log
    probabilities, (n, K). `held_out_error`, (t,) or (K,), is the mean squared error of these for
    samples that were not trained on, as a share of the variance of y, or of the indicators of
    classes; None is that of a kernel regression.
    """
    # Samples to measure distances on, and fresh ones, or these if there are few. Of samples that
    # are repeated one is taken, as if they had a weight, in an order that does not depend on how
    # often each is there.
    drawn = np.arange(len(X))
    if len(X) > 2 * _N_SAMPLES:
        drawn = random_state.choice(len(X), 2 * _N_SAMPLES, replace=False)
    samples = np.column_stack([X[drawn], y[drawn]]).astype(np.float64)
    as_bytes = samples.view(np.dtype((np.void, samples.itemsize * samples.shape[1])))[:, 0]
    different = drawn[np.unique(as_bytes, return_index=True)[1]]
    chosen, others = np.split(random_state.permutation(different), [_N_SAMPLES])
    has_fresh = len(others) >= _LEAST_FRESH and not are_classes
    fresh = X[others if has_fresh else chosen].astype(np.float64)
    seed = int(random_state.randint(2**31))
    limits = np.fmin.reduce(X), np.fmax.reduce(X)
    X, y = X[chosen].astype(np.float64), y[chosen]
    if len(X) < LEAST_SAMPLES:
        return None

    # Standardised targets, or indicators of classes, and which of them vary.
    outputs = predict(X)
    targets = np.eye(outputs.shape[1])[y] if are_classes else y.reshape(outputs.shape)
    deviation = targets.std(axis=0)
    unit, varies = np.where(deviation > 0, deviation, 1.0), deviation > 0
    targets = (targets - targets.mean(axis=0)) / unit
    if not varies.any():
        return None
    encoder = (encoding := InputEncoding.without_bins(X, n_categories)).module(torch.float64)
    inputs, further = (encoder(torch.from_numpy(part)).numpy() for part in (X, fresh))

    # Lengths, by the likelihood of some targets, and points where functions are zero.
    relevance = _relevance(X, predict, unit, are_classes, random_state)[encoder.columns]
    weighted, few = relevance * inputs, targets[:_N_IN_BLOCKS]
    ridge = _Ridge.of(weighted[:_N_IN_BLOCKS], few[:, varies])
    inducing = weighted[_inducing_points(weighted, ridge.length_scale)].astype(np.float32)

    # The variance that most samples like those of training have, and what others add, as shares of
    # the prior one: at fresh samples given the inducing points, and at each sample given all
    # others. As the module has it: with the nugget, which is most of it where points are dense.
    at = inducing.astype(np.float64)
    kernel = squared_exponential(at, relevance * further, ridge.length_scale)
    lower = cholesky(_kernel_matrix(at, ridge.length_scale), lower=True)
    known = solve_triangular(lower, kernel, lower=True)
    given = (1.0 - np.square(known).sum(axis=0)).clip(min=0.0)
    some = weighted[:_N_LEFT_OUT]
    kernel = squared_exponential(some, some, ridge.length_scale)
    inverse = np.linalg.inv(kernel + _NUGGET * np.eye(len(some)))
    out = (1 / np.diag(inverse) - _NUGGET).clip(min=0.0)  # Rasmussen & Williams, Eq 5.12
    quantiles = np.quantile(given, _USUAL_GIVEN), np.quantile(out, _USUAL_OUT[are_classes])
    usual = max(map(float, quantiles))
    left_out = max(float(np.maximum(v - usual, 0.0).mean()) for v in (given, out))

    # Middle thirds and outer sixths of samples, along columns and random directions, and the scale
    # by what a regression misses there: for each target, or for all classes.
    (n, d), blocks = inputs[:_N_IN_BLOCKS].shape, []
    for number in range(_N_BLOCKS):
        column, direction = random_state.randint(d), random_state.standard_normal(d)
        place = inputs[:n] @ direction if number % 2 else inputs[:n, column]
        order = np.lexsort((random_state.permutation(n), place))  # ties in random order
        parts = (order[n // 3 : 2 * n // 3], order[: n // 6], order[n - n // 6 :])
        blocks.append(parts[number // 2 % len(parts)])
    scale = np.zeros(few.shape[1])  # of those that do not vary too
    for columns in [varies] if are_classes else np.eye(len(varies), dtype=bool)[varies]:
        error = None if held_out_error is None else float(held_out_error[columns].mean())
        most = _MOST_ADDED[are_classes]
        scale[columns] = ridge.scale(few[:, columns], blocks, error, usual, left_out, most)

    # The distance from the mean beyond which functions grow, and by how much at least: a share of
    # the deviation of y, or of logits that stand for it, for each deviation.
    distances = np.linalg.norm(inputs, axis=1)
    radius, slope = float(distances.max()), _SLOPE / np.sqrt(max(1.0 - usual, _LEAST_LEFT))
    if are_classes:
        radius = float(np.quantile(distances, _WITHIN_OF_CLASSES))
        beyond, margins = predict(_moved(X, encoding, distances, radius + 1)), []
        for logits in (outputs, beyond):
            second, first = np.sort(logits, axis=1)[:, -2:].T
            margins.append(max(float(np.median(first - second)), _LOGITS_PER_DEVIATION))
        slope = max(margins) / _LOGITS_PER_DEVIATION
    in_units = np.full_like(unit, _LOGITS_PER_DEVIATION) if are_classes else unit
    unknown = _effects_of_unknown(X, predict, are_classes)
    waves = random_state.standard_normal((_N_WAVES, inputs.shape[1])) / ridge.length_scale
    return RandomFunctions(
        encoding=encoding,
        relevance=relevance,
        length_scale=ridge.length_scale,
        radius=radius,
        growth=max(1.0, slope / scale[varies].min()),
        inducing=inducing,
        frequencies=waves.astype(np.float32),
        phases=random_state.uniform(0, 2 * np.pi, _N_WAVES).astype(np.float32),
        scale=scale * in_units,
        usual=usual,
        left_out=left_out,
        unknown=unknown,
        unseen=_unseen_values(X, limits, encoding, ridge, few, are_classes, unknown, in_units),
        seed=seed,
    )


def _moved(X: np.ndarray, encoding: InputEncoding, at: np.ndarray, to: float) -> np.ndarray:
    """Return samples moved along rays from the mean, of which they are `at` (n,) distances."""
    factor = to / np.maximum(at, np.finfo(float).eps)
    moved = X + (factor - 1)[:, None] * (X - encoding.loc)
    return np.where(encoding.n_categories > 0, X, moved)


def squared_exponential(a: np.ndarray, b: np.ndarray, length_scale: float) -> np.ndarray:
    """Kernel ``exp(-|a - b|^2 / (2 length_scale^2))`` of points (n, d) and (m, d)."""
    kernel: np.ndarray = np.exp(-0.5 * cdist(a, b, "sqeuclidean") / length_scale**2)
    return kernel


def _relevance(
    X: np.ndarray, predict: Predict, unit: np.ndarray, are_classes: bool, random_state
) -> np.ndarray:
    """Factors of columns: roots of the effect of shuffling, over the largest; mean square 1."""
    n_columns = X.shape[1]
    if n_columns > _MOST_COLUMNS:
        return np.ones(n_columns)
    rows = X[: max(20, _N_PREDICTIONS // n_columns)]
    shuffled = np.repeat(rows[None], n_columns, axis=0)
    for column in range(n_columns):
        shuffled[column, :, column] = X[random_state.randint(len(X), size=len(rows)), column]
    found = predict(np.concatenate([rows, *shuffled])).astype(np.float64)
    found = (np.exp(found) if are_classes else found) / unit
    found = found.reshape(1 + n_columns, len(rows), -1)
    effects = np.square(found[1:] - found[0]).mean(axis=(1, 2))
    if not effects.any():
        return np.ones(n_columns)
    factors = np.maximum((effects / effects.max()) ** 0.25, _LEAST_RELEVANCE)
    relevance: np.ndarray = factors / np.sqrt(np.square(factors).mean())
    return relevance


def find_unknown(
    X: np.ndarray, predict: Predict, are_classes: bool, random_state: np.random.RandomState
) -> UnknownColumns:
    """Find what predictions change by where columns are unknown, for a model without functions."""
    chosen = random_state.permutation(len(X))[:_N_SAMPLES]
    seed = int(random_state.randint(2**31))
    return UnknownColumns(_effects_of_unknown(X[chosen], predict, are_classes), seed)


def _effects_of_unknown(X: np.ndarray, predict: Predict, are_classes: bool) -> np.ndarray:
    """Root mean square change, (n_columns, k), without a column; 0 where often missing."""
    n_columns = X.shape[1]
    rows = X[: max(20, _N_PREDICTIONS // n_columns)]
    known = predict(rows)
    found = np.zeros((n_columns, known.shape[1]))
    if n_columns > _MOST_COLUMNS:
        return found
    for column in np.flatnonzero(np.isnan(X).mean(axis=0) < _TAUGHT):
        without = rows.copy()
        without[:, column] = np.nan
        change = predict(without) - known
        if are_classes:  # what is added to all logits changes nothing
            change -= change.mean(axis=1, keepdims=True)
        found[column] = np.sqrt(np.square(change).mean(axis=0))
    # Independent draws for K logits less their mean have 1 - 1 / K of their variance.
    return found * np.sqrt(found.shape[1] / (found.shape[1] - 1)) if are_classes else found


def _unseen_values(
    X: np.ndarray, limits, encoding, ridge: _Ridge, y, are_classes: bool, unknown, unit_of_y
) -> UnseenValues:
    """Find the gaps of columns of numbers, and the deviation in them, in units as of `unknown`.

    `limits` are the least and the largest values of columns; `unknown` are the deviations where
    they are not known, (n_columns, k). The first m samples and their standardised targets, (m, k),
    are those of the ridge regression; a deviation of these is one `unit_of_y`, (k,).
    """
    inverse = ridge.inverse(ridge.noise)
    solved = inverse @ y
    noise = ridge.squared_errors(y).mean(axis=0)
    found: list[tuple] = []
    for column in np.flatnonzero((encoding.n_categories == 0) & unknown.any(axis=1)):
        values = np.sort(X[:, column])
        values = values[: np.count_nonzero(~np.isnan(values))]
        unit = _UNIT_OF_GAP * values.std()
        if not unit > 0:
            continue
        # Thirds of samples along the column, and how unknown their values are without them.
        own = X[: len(y), column]
        order, n = np.argsort(own, kind="stable"), np.count_nonzero(~np.isnan(own))
        blocks, shares = [], []
        for start in (n // 6, n // 3, n // 2):
            ends = own[order[[start, start + n // 3]]]
            block = np.flatnonzero((own > ends[0]) & (own < ends[1]))
            if len(block) >= _LEAST_IN_BLOCK:
                below, above = own[block] - ends[0], ends[1] - own[block]
                blocks.append(block)
                shares.append(np.minimum(1, 4 * below * above / (unit * (ends[1] - ends[0]))))
        deviation = _UNTOLD * unknown[column]
        if blocks:
            excess = np.square(_missed(inverse, solved, blocks)).mean(axis=0) - noise
            excess = np.full_like(excess, excess.mean()) if are_classes else excess
            share = np.concatenate(shares).mean()
            deviation = unit_of_y * np.sqrt(excess.clip(min=0) / share)
        deviation = deviation.clip(_LEAST_UNKNOWN * unknown[column], unknown[column])
        # Below and above all values, and between neighbours that are far apart.
        lower, upper = values[:-1], values[1:]
        n_below = np.arange(1, len(values))
        has_both = np.minimum(n_below, n_below[::-1]) >= _BESIDE_GAP * len(values)
        wide = (upper - lower > _WIDTH_OF_GAP * values.std()) & has_both
        gaps = [(-np.inf, limits[0][column]), (limits[1][column], np.inf)]
        gaps += zip(lower[wide].tolist(), upper[wide].tolist(), strict=True)
        found += [(column, *gap, unit, deviation) for gap in gaps]
    columns, *others = zip(*found, strict=True) if found else [()] * 5
    lower, upper, units, deviations = (np.array(values, dtype=float) for values in others)
    deviations = deviations.reshape(-1, y.shape[1])
    return UnseenValues(np.array(columns, dtype=np.int64), lower, upper, units, deviations)


def _missed(inverse: np.ndarray, solved: np.ndarray, blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Errors (., k) for blocks left out, by the inverse kernel and its product with targets."""
    missed = [np.linalg.solve(inverse[np.ix_(block, block)], solved[block]) for block in blocks]
    return np.concatenate(missed)


def _inducing_points(points: np.ndarray, length_scale: float) -> np.ndarray:
    """Choose points one by one by the largest variance given the others: pivoted Cholesky."""
    n_most = min(_N_INDUCING, len(points))
    variance, factor = np.ones(len(points)), np.zeros((len(points), n_most))
    chosen: list[int] = []
    for k in range(n_most):
        pivot = int(np.argmax(variance))
        if variance[pivot] < _NUGGET or variance.mean() < _LEFT:
            break
        chosen.append(pivot)
        column = squared_exponential(points, points[[pivot]], length_scale)[:, 0]
        column -= factor[:, :k] @ factor[pivot, :k]
        factor[:, k] = column / np.sqrt(variance[pivot])
        variance = np.maximum(variance - factor[:, k] ** 2, 0.0)
    return np.array(chosen)


def _kernel_matrix(inducing: np.ndarray, length_scale: float) -> np.ndarray:
    """Kernel matrix of inducing points, with the nugget."""
    kernel = squared_exponential(inducing, inducing, length_scale)
    return kernel + _NUGGET * np.eye(len(inducing))


class _Ridge(NamedTuple):
    """Kernel ridge regression of some targets on n samples, in closed form."""

    length_scale: float
    values: np.ndarray  # eigenvalues of the kernel matrix, (n,)
    vectors: np.ndarray  # its eigenvectors, in columns
    noise: float  # its variance, as a share of that of the functions

    @classmethod
    def of(cls, points: np.ndarray, y: np.ndarray) -> _Ridge:
        """Fit targets (n, q) at points (n, d), by the length scale and noise most likely."""
        fits = []
        for length_scale in (np.sqrt(points.shape[1]) - _LESS) * np.array(_LENGTH_SCALES):
            values, vectors = np.linalg.eigh(squared_exponential(points, points, length_scale))
            projected = np.square(vectors.T @ y)
            for noise in _NOISES:
                # Log marginal likelihood of the Gaussian process, up to a constant and with the
                # likeliest variance: Rasmussen & Williams (2006), Eq 5.8.
                noisy = values.clip(min=0) + noise
                squares = (projected / noisy[:, None]).mean(axis=0)
                likelihood = -0.5 * (len(y) * np.log(squares) + np.log(noisy).sum()).sum()
                fits.append((likelihood, cls(float(length_scale), values, vectors, noise)))
        return max(fits, key=itemgetter(0))[1]

    def squared_errors(self, y: np.ndarray) -> np.ndarray:
        """Squared leave-one-out errors (n, q) of the regression of targets (n, q)."""
        inverse = self.inverse(self.noise)
        residuals = (inverse @ y) / np.diag(inverse)[:, None]  # Rasmussen & Williams, Eq 5.12
        return np.square(residuals)

    def inverse(self, noise: float) -> np.ndarray:
        """Inverse of the kernel matrix with the noise on its diagonal."""
        values = self.values.clip(min=0) + noise
        found: np.ndarray = (self.vectors / values) @ self.vectors.T
        return found

    def scale(
        self, y: np.ndarray, blocks, error: float | None, usual: float, left_out: float, most: float
    ) -> float:
        """Return the standard deviation of functions that suits errors in blocks, for y (n, q).

        It is the most likely one of those that add at `most` so much of the squared `error` of the
        ensemble for held-out samples; None is that of the regression. `usual` is taken off their
        variance, and `left_out` is left of it there, as shares of the prior one.
        """
        exact, inverse = self.inverse(_NUGGET), self.inverse(self.noise)
        noise = float(self.squared_errors(y).mean())
        is_little = _SCALES**2 * left_out <= most * (noise if error is None else error)
        candidates = _SCALES[: max(1, np.count_nonzero(is_little))]
        missed = _missed(inverse, inverse @ y, blocks)
        added = [np.diag(np.linalg.inv(exact[np.ix_(block, block)])) for block in blocks]
        variance = np.maximum(np.concatenate(added) - _NUGGET - usual, 0.0)[:, None]
        variances = [noise + s**2 * variance for s in candidates]
        losses = [np.mean(np.square(missed) / v + np.log(v)) for v in variances]  # Gaussian NLL
        return float(candidates[int(np.argmin(losses))])
