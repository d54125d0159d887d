# SPDX-License-Identifier: BSD-3-Clause
"""Checks of values to draw."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_array


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
