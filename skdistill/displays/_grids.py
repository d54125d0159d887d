# SPDX-License-Identifier: BSD-3-Clause
"""A grid over one feature of X."""

from collections import Counter
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array

from .._utils.validation import Number


def grid_over(X, feature, grid_resolution, extend):
    """Samples on a grid over a feature of X, with all others at their typical value."""
    Number(Integral, 2).check(grid_resolution, "grid_resolution")
    Number(Real, 0).check(extend, "extend")
    is_frame = hasattr(X, "columns")
    if not is_frame:
        X = check_array(X, ensure_all_finite="allow-nan", input_name="X")
    names = list(X.columns) if is_frame else [f"feature {i}" for i in range(X.shape[1])]
    if is_frame and isinstance(feature, str) and feature in names:
        position = names.index(feature)
    elif isinstance(feature, Integral) and 0 <= int(feature) < len(names):
        position = int(feature)
    else:
        by_name = f" or one of the names {names}" if is_frame else ""
        raise ValueError(
            f"feature must be a position from 0 to {len(names) - 1}{by_name}, got {feature!r}."
        )
    columns = [np.asarray(X[name] if is_frame else X[:, i]) for i, name in enumerate(names)]
    column, name = columns[position], names[position]
    if not _is_numeric(column):
        raise ValueError(f"feature must be a numeric column, got {name!r} of {column.dtype}.")
    low, high = np.nanmin(column), np.nanmax(column)
    if not low < high:
        raise ValueError(f"feature must be a column that varies, got {name!r}, always {low}.")
    margin = extend * (high - low)
    line = np.linspace(low - margin, high + margin, grid_resolution)
    line = line.astype(np.result_type(column, np.float16), copy=False)  # in X's own precision
    # Medians of numeric columns, the most frequent values of others.
    typical = [
        np.nanmedian(c) if _is_numeric(c) else Counter(c).most_common(1)[0][0] for c in columns
    ]
    grid = [np.repeat(value, grid_resolution) for value in typical]
    grid[position] = line
    if not is_frame:
        return line, np.column_stack(grid), column, name
    # A frame of X's own kind, pandas or polars; a median of integers need not be one.
    frame = type(X)(dict(zip(names, grid, strict=True)))
    kept = {name: X[name].dtype for name in names if not _is_numeric(np.asarray(X[name]))}
    frame = frame.astype(kept) if hasattr(frame, "astype") else frame.cast(kept)
    return line, frame, column, str(name)


def _is_numeric(column):
    return column.dtype.kind in "iuf"
