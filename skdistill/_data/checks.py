# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arrays that scikit-learn does not make: weights, magnitudes, outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from numbers import Real

import numpy as np
import torch
from sklearn import get_config
from sklearn.utils import check_array
from torch import Tensor

from .._utils.validation import errors_about

_LARGEST_TOTAL = 1e30  # sum of weights, or its inverse, that float32 calculates with
SMALL_OUTPUT = 64.0  # below which nothing read off outputs overflows, see doc/design.rst

# What iterable arrays, frames, tensors and sparse matrices have.
_OF_ARRAYS = ("shape", "__array__", "__dataframe__", "columns")


def check_trainable(X: np.ndarray, dtype, name: str = "X") -> None:
    """Raise ValueError if the squares that training takes of a value would overflow."""
    check_magnitude(X, math.sqrt(np.finfo(dtype).max), name)


def check_magnitude(X: np.ndarray, limit: float, name: str = "X") -> None:
    """Raise ValueError if a value is beyond `limit`, naming its place."""
    magnitude = 0.0  # of what is not missing; not by argmax, which copies memory maps, say
    for of_all, of_two in ((np.max, np.fmax), (np.min, np.fmin)):
        value = float(of_all(X))
        if value != value:
            value = float(np.nan_to_num(of_two.reduce(X, axis=None)))
        magnitude = max(magnitude, abs(value))
    if magnitude > limit:
        place, value = largest(X)
        raise ValueError(
            f"{name} must be within {limit:.3g} of 0, beyond which the model's arithmetic "
            f"overflows; got {value:.6g} at {list(place)}, its row and column. Scale the columns, "
            "or leave out the sample."
        )


def largest(X: np.ndarray) -> tuple[tuple[int, ...], float]:
    """Place and value of the largest magnitude."""
    X = np.nan_to_num(X) if np.isnan(X).any() else X
    flat = max(int(X.argmax()), int(X.argmin()), key=lambda i: abs(float(X.flat[i])))
    return tuple(int(i) for i in np.unravel_index(flat, X.shape)), float(X.flat[flat])


def refuse_masked(values, name: str) -> None:
    """Raise ValueError for an array of which values are masked: what is below would be read."""
    if np.ma.is_masked(values):
        raise ValueError(
            f"{name} must be known for every sample, got masked values; leave those samples out."
        )


def check_weights(sample_weight, n: int, name: str = "sample_weight") -> np.ndarray | None:
    """Check sample weights: None, a number, or an array of shape (n,), none of them negative."""
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, name)
    with errors_about(name):
        if isinstance(sample_weight, Real):
            sample_weight = np.full(n, float(sample_weight))
        weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name=name)
    if weight.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), got {weight.shape}.")
    if (weight < 0).any():
        raise ValueError(
            f"{name} must not be negative, got a smallest value of {weight.min():.6g}."
        )
    if not weight.any():
        raise ValueError(f"{name} must have at least one positive value, got zeros only.")
    total = weight.sum()
    if not 1 / _LARGEST_TOTAL <= total <= _LARGEST_TOTAL:
        raise ValueError(
            f"{name} must have a sum from {1 / _LARGEST_TOTAL:g} to {_LARGEST_TOTAL:g}, got "
            f"{total:.6g}; multiply it by a number."
        )
    return weight


def check_outputs(values: Tensor, X, numbers: Sequence[int] | Tensor, axis: int = 0) -> None:
    """Raise a ValueError that names the sample, unless all predicted values are finite."""
    if is_finite(values) or get_config()["assume_finite"]:
        return
    is_wrong = ~values.transpose(0, axis).isfinite().flatten(1).all(1)
    row = int(is_wrong.nonzero()[0])
    (_, *place), value = largest(np.asarray(X[row : row + 1]))
    number = int(numbers[row])
    raise ValueError(
        f"X must have samples for which the model's arithmetic does not overflow; what it predicts "
        f"for sample {number} is not finite. The largest value there is X{[number, *place]} = "
        f"{value:.6g}."
    )


def is_small(outputs: Tensor) -> bool:
    """Whether nothing read off outputs overflows; faster to find than by checking each result."""
    return torch.linalg.vector_norm(outputs).item() < SMALL_OUTPUT


def is_finite(tensor: Tensor) -> bool:
    """Tell whether all values are finite."""
    # A sum is several times faster than checking each value, but may overflow.
    return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())


def is_stream(X: object) -> bool:
    """Tell whether X gives batches, being iterable but no array, frame or list of rows."""
    is_iterable = hasattr(X, "__iter__") and not isinstance(X, type)
    is_collection = isinstance(X, (Sequence, Mapping, Set))
    return is_iterable and not is_collection and not any(hasattr(X, name) for name in _OF_ARRAYS)
