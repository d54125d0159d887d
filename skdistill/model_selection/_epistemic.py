# SPDX-License-Identifier: BSD-3-Clause
"""Is the epistemic part what more data would remove? Two halves of a table, and learning curves."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import Bunch, check_random_state, indexable
from sklearn.utils.parallel import Parallel, delayed

from .._estimator.functions import (
    align_classes,
    has_uncertainty,
    predict_members,
    predict_uncertainty,
)
from .._estimator.unwrapping import has_members, innermost, is_prefitted, seeded_clone
from .._training.trainer import SEED_LIMIT
from .._utils.typing import RandomStateLike
from .._utils.validation import Number, NumberOfJobs
from .._utils.warnings import without_schema_warnings
from ..distributions import Dirichlet
from ..metrics import epistemic_calibration, interval_coverage
from ..teachers import as_teacher
from ._unseen import density


def disagreement_of_halves(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    train_size: int | None = None,
    test_size: int | None = None,
    n_repeats: int = 1,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
) -> Bunch:
    r"""Compare the disagreement of two fits to disjoint samples with their epistemic variances.

    Two clones are fitted to disjoint random samples A and B, and predict others. If the errors of
    their means are independent, and their epistemic variances right, then :math:`E[(\mu_A -
    \mu_B)^2] = \text{epistemic}_A + \text{epistemic}_B`, whatever the noise of y. A bias that both
    share is not seen: where a prior matters, even an exact posterior has ratios above 1.

    Parameters
    ----------
    estimator : estimator
        Regressor or classifier that :func:`skdistill.predict_uncertainty` takes. Of others, such as
        forests and Gaussian processes, :func:`skdistill.teachers.as_teacher` makes teachers. A
        student's teacher that is fitted already has seen the samples of both halves.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    train_size : int, default=None
        Number of training samples of each half; None is half of what the test samples leave.
    test_size : int, default=None
        Number of samples to predict; None is a quarter of all.
    n_repeats : int, default=1
        Number of pairs of fits, each to samples drawn anew; they are pooled.
    random_state : int, RandomState instance or None, default=None
        Draws the samples, and seeds clones whose own ``random_state`` is None.
    n_jobs : int, default=None
        Number of fits at a time.

    Returns
    -------
    calibration : :class:`~sklearn.utils.Bunch`
        What :func:`skdistill.metrics.epistemic_calibration` returns, with `squared_difference` of
        the two means and `epistemic`, the sum of their epistemic variances, both of shape
        (n_repeats * test_size,), in squared units of y. Several targets, (n_repeats * test_size,
        n_targets), are in units of their standard deviations. Of classifiers these are the squared
        distance of the mean class probabilities, and the variance of the members' probabilities,
        summed over the classes.

    Raises
    ------
    TypeError
        If `estimator` has no epistemic part, or a classifier no variance of probabilities.
    ValueError
        If there are too few samples, or `estimator` is fitted and its clones stay so.

    See Also
    --------
    uncertainty_curve : Sees bias, too.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.model_selection import disagreement_of_halves
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(5, max_epochs=5)
    >>> found = disagreement_of_halves(model, X, y, test_size=100, random_state=0)
    >>> found.squared_difference.shape, 0 < found.coverage < 1
    ((100,), True)
    """

    def halves(n_left: int) -> list[slice]:
        n = n_left // 2 if train_size is None else train_size
        Number(Integral, 1, n_left // 2).check(n, "train_size")
        return [slice(n), slice(n, 2 * n)]

    settings = test_size, n_repeats, random_state, n_jobs
    mean, _, _, epistemic, _ = _predictions(estimator, X, y, halves, *settings)
    difference = np.square(mean[:, 0] - mean[:, 1])
    if is_classifier(estimator):
        difference = difference.sum(axis=-1, keepdims=True)
    n_columns = difference.shape[-1]
    shape = (-1,) if n_columns == 1 else (-1, n_columns)
    difference, variance = difference.reshape(shape), epistemic.sum(axis=1).reshape(shape)
    calibration = epistemic_calibration(difference.ravel(), variance.ravel())
    return Bunch(**calibration, squared_difference=difference, epistemic=variance)


def uncertainty_curve(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    train_sizes: Sequence[int],
    test_size: int | None = None,
    limit_size: int | None = None,
    n_repeats: int = 1,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
) -> Bunch:
    r"""Compare both parts of the uncertainty with what more training samples remove.

    Clones are fitted to more and more samples and scored on held-out ones. The error of the largest
    fit stands for what remains with unlimited data: the aleatoric part should equal it, and the
    epistemic part of a smaller fit what the largest removes of its error.

    Parameters
    ----------
    estimator, X, y, test_size, n_repeats, random_state, n_jobs
        As in :func:`disagreement_of_halves`; scores are means over the repeats.
    train_sizes : sequence of int
        Numbers of training samples; each fit has the samples of smaller ones.
    limit_size : int, default=None
        Number of training samples of the largest fit; None is all that the test samples leave.

    Returns
    -------
    curve : :class:`~sklearn.utils.Bunch`
        Arrays of shape (n_sizes,): `train_sizes`; `squared_error`, the held-out mean squared error,
        and the mean variances `total`, `aleatoric` and `epistemic`, in squared units of y, or of
        the standard deviations of several targets; and `coverage` of the 90 % intervals. `limit` is
        the squared error of the largest fit, `aleatoric_ratio` aleatoric / limit, and
        `epistemic_ratio` epistemic / (squared error - limit), nan where the largest fit is no
        better. Of classifiers the squared error is the Brier score, the total its expectation
        :math:`1 - \sum_k \bar p_k^2`, the epistemic part the variance of the probabilities, and the
        coverage nan.

    Raises
    ------
    TypeError, ValueError
        As :func:`disagreement_of_halves` does.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.model_selection import uncertainty_curve
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(5, max_epochs=5)
    >>> curve = uncertainty_curve(model, X, y, train_sizes=[50, 100], random_state=0)
    >>> curve.aleatoric_ratio.shape, curve.limit > 0
    ((2,), True)
    """

    def prefixes(n_left: int) -> list[slice]:
        limit = n_left if limit_size is None else limit_size
        Number(Integral, 1, n_left).check(limit, "limit_size")
        for size in train_sizes:
            Number(Integral, 1, limit).check(size, "each of train_sizes")
        return [slice(size) for size in (*train_sizes, limit)]

    settings = test_size, n_repeats, random_state, n_jobs
    _, *parts, coverage = _predictions(estimator, X, y, prefixes, *settings)
    parts[2] = np.minimum(parts[2], parts[1])  # unbiased variances of members may exceed the total
    error, total, epistemic = (part.mean(axis=(0, 2, 3)) for part in parts)
    removed, aleatoric = error[:-1] - error[-1], total - epistemic
    return Bunch(
        train_sizes=np.asarray(train_sizes),
        squared_error=error[:-1],
        total=total[:-1],
        aleatoric=aleatoric[:-1],
        epistemic=epistemic[:-1],
        coverage=coverage.mean(axis=0)[:-1],
        limit=float(error[-1]),
        aleatoric_ratio=aleatoric[:-1] / error[-1],
        epistemic_ratio=epistemic[:-1] / np.where(removed > 0, removed, np.nan),
    )


def _predictions(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    parts: Callable[[int], list[slice]],
    test_size: int | None,
    n_repeats: int,
    random_state: RandomStateLike,
    n_jobs: int | None,
) -> list[np.ndarray]:
    """Results of :func:`_prediction` of clones, with two axes before theirs: repeats and parts."""
    Number(Integral, 1).check(n_repeats, "n_repeats")
    NumberOfJobs().check(n_jobs, "n_jobs")
    if is_prefitted(estimator):
        name = type(estimator).__name__
        raise ValueError(f"estimator must not be fitted, but clones of this {name} stay so.")
    estimator = estimator if has_uncertainty(estimator) else as_teacher(estimator)
    X, y = indexable(X, y)
    X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
    n_test = len(y) // 4 if test_size is None else test_size
    Number(Integral, 1, len(y) - 2).check(n_test, "test_size")
    slices, random, calls = parts(len(y) - n_test), check_random_state(random_state), []
    for _ in range(n_repeats):
        test, rest = np.split(random.permutation(len(y)), [n_test])
        seeds = random.randint(SEED_LIMIT, size=len(slices))
        for part, seed in zip(slices, seeds, strict=True):
            calls.append(delayed(_prediction)(estimator, X, y, rest[part], test, seed))
    found = zip(*Parallel(n_jobs=n_jobs)(calls), strict=True)
    return [np.reshape(array, (n_repeats, len(slices), *np.shape(array[0]))) for array in found]


@without_schema_warnings()
def _prediction(estimator, X, y, train, test, seed) -> tuple[Any, ...]:
    """Mean (n, t) or (n, K), squared error, total and epistemic (n, t) or (n, 1), and coverage."""
    X_train, X_test = (X.iloc[i] if hasattr(X, "iloc") else X[i] for i in (train, test))
    model = seeded_clone(estimator, seed).fit(X_train, y[train])
    if is_classifier(model):
        classes = np.unique(y)
        mean = align_classes(model.predict_proba(X_test), model.classes_, classes)
        error = np.square(mean - (y[test, np.newaxis] == classes))
        parts = error, mean * (1 - mean), _variance_of_probabilities(model, X_test)
        return mean, *(part.sum(axis=1, keepdims=True) for part in parts), np.nan
    total, _, epistemic = predict_uncertainty(model, X_test)
    if epistemic is None:
        raise TypeError(f"estimator has no epistemic part: {type(model).__name__}.")
    mean = np.asarray(model.predict(X_test))
    interval = density(model, X_test, y[test], mean, np.sqrt(total))[1]
    scale = y.std(axis=0) if y.ndim == 2 and y.shape[1] > 1 else 1.0
    of_squares = [part / scale**2 for part in (np.square(mean - y[test]), total, epistemic)]
    columns = (part.reshape(len(test), -1) for part in (mean / scale, *of_squares))
    return *columns, interval_coverage(y[test], interval)


def _variance_of_probabilities(model, X) -> np.ndarray:
    """Variance (n, K) of the probabilities: between members, or of a distribution over them."""
    if has_members(model):
        members = predict_members(model, X)
        if members.shape[1] == 1:
            raise TypeError(f"estimator has no epistemic part: {type(model).__name__}.")
        return members.var(axis=1, ddof=1)
    inner, rows, _ = innermost(model, X, "predict_distribution")
    distribution = inner.predict_distribution(rows)
    if not isinstance(distribution, Dirichlet):
        kind = type(distribution).__name__
        raise TypeError(f"estimator has no variance of probabilities: it predicts {kind}.")
    mean = distribution.mean.numpy()
    return mean * (1 - mean) / (1 + distribution.precision.numpy()[:, np.newaxis])
