# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor of drift has found, as values, a table, or a page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader

from .._estimator.predicting import as_frame
from .._serialization.container import write_atomically
from .._utils.validation import FilePath


@dataclass(frozen=True, eq=False)
class DriftResult:
    """What :meth:`DriftMonitor.update` has found, in this batch and those before.

    Parameters
    ----------
    p_value : float
        Of all columns together.
    alpha : float
        Level of the monitor.
    features : list of str
        Columns that have drifted, with their own p-value at most `alpha`, as the monitor's
        `features_`.
    columns : list of str
        All columns that are watched.
    p_values : ndarray of shape (n_columns,)
        Of each, adjusted for there being several.
    mean_ranks : ndarray of shape (n_columns,)
        Mean rank of the batch's values among those before, from 0 to 1: above .5 where they are
        larger. Missing values are above all others.
    shares : ndarray of shape (n_columns, 10)
        Of the batch's values in each tenth of those before; about .1 without drift.
    n_samples : int
        Of this batch.
    """

    p_value: float
    alpha: float
    features: list[str]
    columns: list[str]
    p_values: np.ndarray
    mean_ranks: np.ndarray
    shares: np.ndarray
    n_samples: int

    @property
    def is_drift(self) -> bool:
        """Whether the p-value is at most `alpha`."""
        return self.p_value <= self.alpha

    def __repr__(self) -> str:
        moved = f", features={self.features}" if self.features else ""
        return f"<DriftResult of {self.n_samples} samples: p_value={self.p_value:.3g}{moved}>"

    def to_frame(self) -> Any:
        """Return a table with a row for each column, in the order of the columns.

        Returns
        -------
        table : DataFrame
            Of pandas, or what ``sklearn.set_config(transform_output=...)`` names, with `column`,
            `p_value`, `is_drift` and `mean_rank`.
        """
        names = np.array(self.columns, dtype=object)
        table = {"column": names, "p_value": self.p_values}
        table["is_drift"] = np.isin(names, self.features)
        return as_frame({**table, "mean_rank": self.mean_ranks}, None)

    def to_html(self) -> str:
        """Return a page that needs nothing else: no file, no network, no script.

        It has a row for each column, with the ranks of the batch's values; those that have drifted
        come first. A notebook shows it when a result is the last line of a cell.

        Returns
        -------
        page : str
        """
        return self._page(whole=True)

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file, whole or not at all.

        Parameters
        ----------
        path : str or os.PathLike
            Such as ``"drift.html"``.
        """
        FilePath().check(path, "path")
        write_atomically(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        return self._page(whole=False)

    def _page(self, whole: bool) -> str:
        names = ("column", "p_value", "is_drift", "mean_rank", "shares")
        is_drift = np.isin(self.columns, self.features)
        columns = (self.columns, self.p_values, is_drift, self.mean_ranks, self.shares)
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        rows.sort(key=lambda row: row["p_value"])
        templates = Environment(loader=PackageLoader("skdistill", "_report"), autoescape=True)
        return templates.get_template("drift.html").render(result=self, rows=rows, whole=whole)
