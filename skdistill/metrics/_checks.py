# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the arguments of metrics, weighted means, and samples in the order of a value."""

from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_array

from .._data.checks import check_weights, refuse_masked
from .._utils.validation import errors_about
from .._utils.warnings import warn


def check_floats(
    values: object, name: str, ndims: tuple[int, ...], is_finite: bool = True
) -> np.ndarray:
    """Return `values` as a float64 array without NaN whose number of dimensions is in `ndims`."""
    refuse_masked(values, name)
    settings: dict[str, Any] = {"ensure_2d": False, "allow_nd": True, "input_name": name}
    with errors_about(name):
        settings |= {"dtype": np.float64, "ensure_all_finite": is_finite}
        array: np.ndarray = check_array(values, **settings)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not hold NaN; infinite values are accepted.")
    if array.ndim not in ndims:
        accepted = " or ".join(map(str, ndims))
        raise ValueError(f"{name} must have {accepted} dimension(s), got shape {array.shape}.")
    return array


def check_columns(values: object, name: str) -> np.ndarray:
    """Return `values` of shape (n,) or (n, t) with shape (n, t)."""
    array = check_floats(values, name, (1, 2))
    return array.reshape(len(array), -1)


def check_shape(
    array: np.ndarray, name: str, expected: tuple[int, ...], like: str = "y_true"
) -> None:
    if array.shape != expected:
        flat = f"({expected[0]},) or " if expected[1] == 1 else ""
        raise ValueError(
            f"{name} must have shape {flat}{expected} to go with {like}, got {array.shape}."
        )


def check_targets(y_true: ArrayLike, **predicted: ArrayLike) -> list[np.ndarray]:
    """Return the true values, and what is predicted of each by its name, of shape (n, t)."""
    arrays = [check_columns(y_true, "y_true")]
    for name, values in predicted.items():
        arrays.append(check_columns(values, name))
        check_shape(arrays[-1], name, arrays[0].shape)
    return arrays


def check_per_target(
    values: object, name: str, length: int, y_shape: tuple[int, ...]
) -> np.ndarray:
    """Return `values`, maybe infinite, (n, length) or (n, t, length), as (n, t, length)."""
    given = check_floats(values, name, (2, 3), is_finite=False)
    array = given[:, np.newaxis, :] if given.ndim == 2 else given
    n_rows, n_targets = y_shape
    if array.shape != (n_rows, n_targets, length):
        flat = f"({n_rows}, {length}) or " if n_targets == 1 else ""
        raise ValueError(
            f"{name} must have shape {flat}({n_rows}, {n_targets}, {length}), got {given.shape}."
        )
    return array


def check_members(
    y_true: ArrayLike, y_members: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return y_true (n, t), and the members' means and variances, each (n, S, t)."""
    y_true = check_columns(y_true, "y_true")
    members = check_floats(y_members, "y_members", (4,))
    n_rows, n_targets = y_true.shape
    if members.shape != (n_rows, members.shape[1], n_targets, 2) or members.shape[1] == 0:
        raise ValueError(
            "y_members must have shape (n_samples, n_members, n_targets, 2), that is "
            f"({n_rows}, S, {n_targets}, 2) to go with y_true, got {members.shape}."
        )
    means, variances = members[..., 0], members[..., 1]
    check_positive(variances, "the variances y_members[..., 1]")
    return y_true, means, variances


def check_positive(array: np.ndarray, name: str) -> None:
    if array.min() <= 0:
        raise ValueError(f"{name} must be positive, got a smallest value of {array.min():.6g}.")


def check_nonnegative(array: np.ndarray, name: str) -> None:
    if array.min() < 0:
        raise ValueError(f"{name} must not be negative, got a smallest value of {array.min():.6g}.")


def check_labels(values: object, name: str) -> np.ndarray:
    """Return labels, strings or numbers, of shape (n,)."""
    refuse_masked(values, name)
    with errors_about(name):
        array: np.ndarray = check_array(
            values, dtype=None, ensure_2d=False, allow_nd=True, input_name=name
        )
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n_samples,), got {array.shape}.")
    if array.dtype == object:
        array = np.array(array.tolist())
    if array.dtype == object:
        kinds = sorted({type(value).__name__ for value in array})
        raise ValueError(f"{name} must hold either strings or numbers, got {', '.join(kinds)}.")
    return array


def check_same_length(array: Sized, name: str, expected: Sized, like: str) -> None:
    if len(array) != len(expected):
        raise ValueError(
            f"{name} must have as many samples as {like}, {len(expected)}, got {len(array)}."
        )


def weights_or_ones(
    sample_weight: ArrayLike | None, n_samples: int, name: str = "sample_weight"
) -> np.ndarray:
    """Return the weights, (n_samples,), as float64; None means all ones."""
    weights = check_weights(sample_weight, n_samples, name)
    return np.ones(n_samples) if weights is None else weights


def weighted_rows(
    sample_weight: ArrayLike | None, *arrays: np.ndarray, name: str = "sample_weight"
) -> tuple[np.ndarray, ...]:
    """Return the weights and the arrays without the samples of weight 0."""
    weights = weights_or_ones(sample_weight, len(arrays[0]), name)
    rows = weights > 0
    return weights[rows], *(array[rows] for array in arrays)


def average(values: np.ndarray, sample_weight: ArrayLike | None) -> float:
    """Mean of `values`, shape (n, t): uniform over targets, weighted over samples."""
    weights, values = weighted_rows(sample_weight, values)  # 0 times infinity would be NaN
    return float(np.average(values.mean(axis=1), weights=weights))


def warn_undefined(what: str, why: str) -> None:
    warn(f"{what} is undefined because {why}.", UndefinedMetricWarning)


def cumulate(by: np.ndarray, weights: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Share of the weight, and sums of weight * value over the total weight, smallest `by` first.

    Returns ``1 + len(values)`` arrays with one point for every group of samples with equal `by`,
    after a first point of zeros. The last point is 1 and the weighted means. The straight line
    between two points is the expectation over the orders in which the rows of a group could come.
    """
    _, group = np.unique(by, return_inverse=True)
    weighted = (weights, *(weights * value for value in values))
    sums = [np.append(0, np.cumsum(np.bincount(group, column))) for column in weighted]
    total = sums[0][-1]
    return tuple(column / total for column in sums)


def midranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weight below each value plus half of the weight at it: the average ranks, less 1/2."""
    _, group = np.unique(values, return_inverse=True)
    group_weights = np.bincount(group, weights)
    return (np.cumsum(group_weights) - group_weights / 2)[group]
