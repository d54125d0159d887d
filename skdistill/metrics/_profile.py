# SPDX-License-Identifier: BSD-3-Clause
"""How an uncertainty depends on one column of X."""

from collections import Counter
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._data.columns import values_of
from .._utils.validation import Number, is_number
from ._checks import check_same_length, check_vector, midranks, warn_undefined


class UncertaintyProfile(NamedTuple):
    """What :func:`uncertainty_profile` returns."""

    values: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    explained: float


def uncertainty_profile(
    uncertainty: ArrayLike, values: Any, *, n_bins: int = 10
) -> UncertaintyProfile:
    r"""Group samples by a column, and tell where, and how much, the uncertainty follows it.

    A number falls into one of at most `n_bins` groups of about equally many samples. What lies
    between the groups is the squared correlation ratio [1]_ of the ranks :math:`r_i` of the
    uncertainty, so that a few samples of which a model knows nearly nothing do not decide alone,
    and variances and standard deviations give the same. It is adjusted for the number of groups, as
    the R2 of a regression is, so that a column without influence has about 0, and never less:

    .. math:: 1 - \frac{(n - 1) \sum_i (r_i - \bar r_{g(i)})^2}{(n - k) \sum_i (r_i - \bar r)^2}

    with :math:`k` groups of :math:`n` samples. Unlike a correlation it sees a gap in the middle of
    a column, and large uncertainties at both of its ends; like one it looks at one column at a
    time.

    Parameters
    ----------
    uncertainty : array-like of shape (n_samples,)
        Of each sample; the epistemic part, say.
    values : array-like of shape (n_samples,)
        Numbers or categories, some of which may be missing.
    n_bins : int, default=10
        Most groups; of categories, the most frequent have groups of their own, and all others the
        group "other". Missing values are one more.

    Returns
    -------
    values : ndarray of shape (n_groups,)
        Median of the column in each group, increasing; or the categories, the most frequent first.
        NaN, or None, is the group of missing values, and comes last.
    means, counts : ndarray of shape (n_groups,)
        Mean uncertainty of each group, and its number of samples.
    explained : float
        Share of the variance of the uncertainty's ranks that lies between the groups. The four are
        a named tuple.

    Warns
    -----
    UndefinedMetricWarning
        If the uncertainty is constant, or each sample is its own group; `explained` is nan then.

    See Also
    --------
    skdistill.displays.UncertaintyProfileDisplay : Draws it.

    References
    ----------
    .. [1] K. Pearson, "On the general theory of skew correlation and non-linear regression", 1905;
       adjusted as by T. Kelley, "An unbiased correlation ratio measure", 1935.

    Examples
    --------
    >>> from skdistill.metrics import uncertainty_profile
    >>> profile = uncertainty_profile([3.0, 1.0, 3.0, 1.0, 3.2, 1.2], [-2, 0, 2, 0, -2, 0])
    >>> profile.means.round(2).tolist(), round(profile.explained, 2)
    ([3.1, 1.07, 3.0], 0.73)
    """
    Number(Integral, 2).check(n_bins, "n_bins")
    uncertainty = check_vector(uncertainty, "uncertainty")
    if np.ndim(values) != 1:
        raise ValueError(f"values must have shape (n_samples,), got {np.shape(values)}.")
    check_same_length(values, "values", uncertainty, "uncertainty")
    is_column = hasattr(values, "dtype")  # of an array or a frame
    column = values_of(values if is_column else np.asarray(values, dtype=object))
    are_numbers = all(value is None or is_number(value) for value in column)
    group, names = (_groups_of_numbers if are_numbers else _groups_of_categories)(column, n_bins)
    counts = np.bincount(group, minlength=len(names))
    means = np.bincount(group, uncertainty, minlength=len(names)) / counts
    return UncertaintyProfile(names, means, counts, _explained(uncertainty, group))


def _groups_of_numbers(column: list[object], n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Group of each sample, (n,), and the median value of each group."""
    numbers = np.array(column, dtype=float)  # None becomes NaN
    is_missing = np.isnan(numbers)
    known = numbers[~is_missing]
    group = np.full(len(numbers), -1)
    if len(np.unique(known)) > n_bins:
        ranks = midranks(known, np.ones(len(known)))  # equal values stay together
        known = np.floor(ranks * n_bins / len(ranks))
    group[~is_missing] = np.unique(known, return_inverse=True)[1]
    group[is_missing] = group.max() + 1
    return group, np.array([np.median(numbers[group == g]) for g in range(group.max() + 1)])


def _groups_of_categories(column: list[object], n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Group of each sample, (n,), and the category of each group, as text."""
    texts = [None if value is None else str(value) for value in column]
    common = Counter(text for text in texts if text is not None).most_common()
    names: list[str | None] = [text for text, _ in common]
    if len(names) > n_bins:
        names = [*names[: n_bins - 1], "other"]
    code = {name: g for g, name in enumerate(names)}
    last = len(names) - 1
    group = np.array([last + 1 if text is None else code.get(text, last) for text in texts])
    if None in texts:
        names.append(None)
    return group, np.array(names, dtype=object)


def _explained(uncertainty: np.ndarray, group: np.ndarray) -> float:
    """Adjusted squared correlation ratio of the ranks and the groups."""
    n_rows, counts = len(group), np.bincount(group)
    if np.ptp(uncertainty) == 0 or len(counts) == n_rows:
        why = "constant" if len(counts) < n_rows else "known for one sample of each group only"
        warn_undefined("The explained share", f"the uncertainty is {why}")
        return np.nan
    ranks = midranks(uncertainty, np.ones(n_rows))
    of_groups = np.bincount(group, ranks) / counts
    within = np.sum((ranks - of_groups[group]) ** 2) / (n_rows - len(counts))
    return float(max(0.0, 1 - within * (n_rows - 1) / np.sum((ranks - ranks.mean()) ** 2)))
