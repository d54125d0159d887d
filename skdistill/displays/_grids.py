# SPDX-License-Identifier: BSD-3-Clause
"""Grids over some columns of X, and checks of values to draw there."""

from collections import Counter
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array

from .._data.columns import column_of
from .._utils.validation import Number


def check_line(values, name):
    """Return `values`, missing ones allowed, as a float array of shape (n,)."""
    array = check_array(
        values, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan", input_name=name
    )
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {array.shape}.")
    return array


def check_target(values, name, target, n_rows=None, like="x"):
    """Return the column `target` of `values`, shape (n_rows,) or (n_rows, t)."""
    columns = check_array(values, dtype=np.float64, ensure_2d=False, input_name=name)
    columns = columns.reshape(len(columns), -1)
    if n_rows is not None and len(columns) != n_rows:
        raise ValueError(
            f"{name} must have {n_rows} samples, one for each {like}, got {len(columns)}."
        )
    if not isinstance(target, Integral) or not 0 <= int(target) < columns.shape[1]:
        raise ValueError(
            f"target must be an integer from 0 to {columns.shape[1] - 1}, one of the columns of "
            f"{name}, got {target!r}."
        )
    return columns[:, target]


def grid_over(X, features, grid_resolution, extend, argument):
    """Samples on a grid over columns of X; the other columns stay at their typical value.

    Returns the coordinates of the samples, one array of shape (g,) * n_features for each feature,
    the samples themselves, in the order of the flattened coordinates, the features' columns in X,
    and their names. Errors call the features by the name of the `argument` that gave them.
    """
    Number(Integral, 2).check(grid_resolution, "grid_resolution")
    Number(Real, 0).check(extend, "extend")

    is_frame = hasattr(X, "columns")
    if not is_frame:
        X = check_array(X, ensure_all_finite="allow-nan", input_name="X")
    names = list(X.columns) if is_frame else [f"feature {i}" for i in range(X.shape[1])]
    positions = [_check_feature(feature, names, is_frame, argument) for feature in features]
    columns = [np.asarray(X[name] if is_frame else X[:, i]) for i, name in enumerate(names)]

    lines = [
        _extended_range(columns[i], grid_resolution, extend, names[i], argument) for i in positions
    ]
    coordinates = np.meshgrid(*lines)
    # Medians of numeric columns, the most frequent values of others.
    typical = [
        np.nanmedian(c) if _is_numeric(c) else Counter(c).most_common(1)[0][0] for c in columns
    ]
    grid = [np.repeat(value, coordinates[0].size) for value in typical]
    for i, coordinate in zip(positions, coordinates, strict=True):
        grid[i] = coordinate.ravel()
    X_grid = _grid_frame(X, grid) if is_frame else np.column_stack(grid)
    return coordinates, X_grid, [columns[i] for i in positions], [str(names[i]) for i in positions]


def named_column(X, feature, argument):
    """Values and name of the column of X, an array or a frame, that a feature names."""
    is_frame = hasattr(X, "columns")
    names = list(X.columns) if is_frame else [f"feature {i}" for i in range(np.shape(X)[1])]
    position = _check_feature(feature, names, is_frame, argument)
    return column_of(X, position), str(names[position])


def _check_feature(feature, names, is_frame, argument):
    """Return the position of a feature given by position or, in a frame, by name."""
    if is_frame and isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, Integral) and 0 <= int(feature) < len(names):
        return int(feature)
    by_name = f" or one of the names {names}" if is_frame else ""
    raise ValueError(
        f"{argument} must be a position from 0 to {len(names) - 1}{by_name}, got {feature!r}."
    )


def _is_numeric(column):
    return column.dtype.kind in "iuf"


def _extended_range(column, grid_resolution, extend, name, argument):
    """Grid over the range of a column and beyond, in its own precision if it is floating."""
    if not _is_numeric(column):
        raise ValueError(f"{argument} must be a numeric column, got {name!r} of {column.dtype}.")
    low, high = np.nanmin(column), np.nanmax(column)
    if not low < high:
        raise ValueError(f"{argument} must be a column that varies, got {name!r}, always {low}.")
    margin = extend * (high - low)
    grid = np.linspace(low - margin, high + margin, grid_resolution)
    return grid.astype(np.result_type(column, np.float16), copy=False)


def _grid_frame(X, columns):
    """Frame of X's own kind, pandas or polars, with X's dtypes where a median keeps them."""
    frame = type(X)(dict(zip(X.columns, columns, strict=True)))
    kept = {
        name: X[name].dtype
        for name in X.columns
        if not _is_numeric(np.asarray(X[name]))  # a median of integers need not be one
    }
    return frame.astype(kept) if hasattr(frame, "astype") else frame.cast(kept)
