# SPDX-License-Identifier: BSD-3-Clause
"""A table of how samples to predict compare with the schema of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .._data.columns import as_table, column_of, values_of, with_days
from .._data.schema import (
    Column,
    dtypes_of,
    numbers_in,
    range_in_words,
    shift_of,
    table_like_fit,
    to_convert,
)
from .base import NetEstimator
from .unwrapping import innermost

_FEW = 5  # categories that a cell shows at most
_COUNTS = ("n_missing", "n_unknown", "n_outside")


def validate(model: BaseEstimator, X: ArrayLike) -> Any:
    """Compare a table with that of `fit`, column by column, without predicting.

    Parameters
    ----------
    model : estimator
        A fitted estimator of skdistill, or a Pipeline, search, FrozenEstimator or
        TransformedTargetRegressor around one. In a Pipeline its other steps make the columns of X.
    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    table : pandas.DataFrame, or list of dict where pandas is not installed
        A row for each column of X, with

        - `name` and `kind`, as in ``schema_``;
        - `fitted` and `given`: dtype, and range or categories, in `fit` and in X;
        - `n_missing`, `n_unknown` and `n_outside`: values of X that are missing, of unknown
          categories, or outside the range of `fit`; None where values are refused;
        - `verdict`: "ok"; "converted", of another dtype, without loss; "suspicious", what
          :class:`SchemaWarning` warns of; or "refused", what is an error in prediction;
        - `message`: that of the warning or error.

    Raises
    ------
    TypeError
        If there is no estimator of skdistill in `model`, or it was not fitted on a table.
    ValueError
        If X has not the columns of `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> import skdistill
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model = skdistill.BayesianEnsembleRegressor(2, max_epochs=2).fit(X, X[:, 0])
    >>> table = skdistill.validate(model, X + [0, 5])
    >>> print(table[["name", "n_outside", "verdict"]])
       name  n_outside     verdict
    0     0          0          ok
    1     1        100  suspicious
    """
    if isinstance(model, NetEstimator):
        check_is_fitted(model)
    estimator, X, _ = innermost(model, X, "schema_", "validate")
    X = as_table(X)
    schema = estimator._input_schema
    table = table_like_fit(schema, X)
    columns = estimator.schema_.columns
    if table is None:
        names = [column.name for column in columns]
        given = list(X.columns) if hasattr(X, "columns") else f"the shape {np.shape(X)}"
        raise ValueError(f"X must have the columns of fit, {names}; got {given}.")
    dtypes, differing = dtypes_of(table), set(to_convert(schema, table))
    records = [
        _record(estimator, table, number, column, dtypes[number], number in differing)
        for number, column in enumerate(columns)
    ]
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame(records).astype(dict.fromkeys(_COUNTS, "Int64"))


def _record(
    estimator: NetEstimator, X: Any, number: int, column: Column, dtype: str, may_convert: bool
) -> dict[str, object]:
    """Compare a column of X with that of fit."""
    record: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "fitted": _in_words(column.dtype, column.range, column.categories, column.unit),
        "given": dtype,
        **dict.fromkeys(_COUNTS),
        "verdict": "refused",
        "message": "",
    }
    try:
        values = _numbers(estimator, X, number, column, may_convert)
    except (TypeError, ValueError) as error:
        return {**record, "message": str(error)}
    shift = shift_of(estimator._input_schema, X, values, number)
    verdict = "ok" if dtype == column.dtype else "converted"
    limits: Any = None
    categories: tuple | None = None
    if column.kind == "category":
        held = (value for value in values_of(column_of(X, number)) if value is not None)
        categories = tuple(dict.fromkeys(held))
    elif not np.isnan(values).all():
        limits = float(np.nanmin(values)), float(np.nanmax(values))
    return {
        **record,
        "given": _in_words(dtype, limits, categories, column.unit),
        **{name: getattr(shift, name) for name in _COUNTS},
        "verdict": "suspicious" if shift.reasons else verdict,
        "message": "; ".join(shift.reasons),
    }


def _numbers(estimator: Any, X: Any, number: int, column: Column, may_convert: bool) -> np.ndarray:
    """Encode a column; raise an error if prediction would."""
    if column.kind == "category":
        given = values_of(column_of(X, number))
        codes = estimator._input_schema.columns.codes(X, number, given)
        return np.array(codes, dtype=np.float64)
    values = numbers_in(estimator._input_schema, X, number) if may_convert else None
    values = with_days(column_of(X, [number])) if values is None else values[:, None]
    finite = "allow-nan" if estimator.normalize in (True, "X") else True
    settings: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": finite}
    return check_array(values, input_name=f"column {column.name!r} of X", **settings)[:, 0]


def _in_words(dtype: str, limits: Any, categories: tuple | None, unit: str | None) -> str:
    if categories is not None:
        shown = ", ".join(map(repr, categories[:_FEW]))
        more = len(categories) - _FEW
        return f"{dtype}: {shown}{f' and {more} more' if more > 0 else ''}"
    return f"{dtype}: {'nothing' if limits is None else range_in_words(limits, unit)}"
