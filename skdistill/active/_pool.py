# SPDX-License-Identifier: BSD-3-Clause
"""Pools of samples, which need not fit in memory, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._training.stream import is_stream

# Samples that are read of an array or a frame at a time.
_ROWS = 65_536


def pieces(X: Any) -> Iterator[Any]:
    """Iterate over an array, a frame, or the X of batches, in consecutive pieces."""
    if is_stream(X):
        for batch in X:
            piece = batch[0] if isinstance(batch, (tuple, list)) else batch
            if len(piece):
                yield piece
        return
    X = X if hasattr(X, "shape") else np.asarray(X)
    for start in range(0, len(X), _ROWS):
        yield rows_of(X, slice(start, start + _ROWS))


def rows_of(X: Any, places: Any) -> Any:
    """Return samples of an array or a frame of pandas or polars."""
    return X.iloc[places] if hasattr(X, "iloc") else X[places]


def length_of(X: Any, name: str) -> int | None:
    """Return how many samples there are; None for batches, before they are read."""
    if is_stream(X):
        return None
    if not hasattr(X, "__len__"):
        raise TypeError(
            f"{name} must be an array, a frame or an iterable of batches, got {type(X).__name__}."
        )
    return len(X)


def collect(X: Any, describe: Callable[[Any], np.ndarray]) -> np.ndarray:
    """Describe all samples by a number or several, (n,) or (n, t)."""
    found = [describe(piece) for piece in pieces(X)]
    return np.concatenate(found) if found else np.empty(0)


def sample(
    X: Any,
    describe: Callable[[Any], np.ndarray],
    capacity: int,
    n_columns: int,
    dtype: DTypeLike,
    rng: np.random.RandomState,
) -> tuple[np.ndarray, np.ndarray]:
    """Describe all samples, or `capacity` that are drawn of more, by several numbers.

    Each sample is drawn with the same probability, in one pass (Vitter, 1985, "Random Sampling with
    a Reservoir", Algorithm R).

    Returns
    -------
    places : ndarray of shape (m,)
        Of the samples in X.
    values : ndarray of shape (m, n_columns)
    """
    places = np.empty(capacity, np.int64)
    values = np.empty((capacity, n_columns), dtype)  # takes memory as it is filled
    start = 0
    for piece in pieces(X):
        numbers = np.arange(start, start + len(piece))
        slots, start = numbers, start + len(piece)
        if start > capacity:
            draws = (rng.random_sample(len(piece)) * (numbers + 1)).astype(np.int64)
            slots = np.where(numbers < capacity, numbers, draws)
            # Of those that are drawn to the same place the last one stays.
            _, backwards = np.unique(slots[::-1], return_index=True)
            kept = np.sort(len(piece) - 1 - backwards)
            kept = kept[slots[kept] < capacity]
            piece, numbers, slots = rows_of(piece, kept), numbers[kept], slots[kept]
        if len(slots):
            values[slots], places[slots] = describe(piece), numbers
    n_kept = min(start, capacity)
    return places[:n_kept], values[:n_kept]
