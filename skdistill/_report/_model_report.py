# SPDX-License-Identifier: BSD-3-Clause
"""A report as values: a frame, or a page, of what was measured once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._estimator.predicting import as_frame
from .._serialization.atomic import write_atomically
from .._utils.validation import FilePath
from ._values import Measurement, Picture


@dataclass(frozen=True, eq=False, repr=False)
class ModelReport:
    """What :func:`report` has measured, as a table or as a page.

    Parameters
    ----------
    title : str
        Name of the model.
    summary : str
        What it was held against, in a sentence.
    facts : dict of str to str
        Of the rows, models, versions and machine.
    measurements : list of Measurement
        Each with `section`, `quantity`, `values` by the role of the model, `unit`, `better` and
        standard `errors`.
    pictures : list of Picture
        Each with `section`, `title`, `text` and ``draw(ax)``, which draws it on matplotlib's axes.
    notes : list of str
        What could not be measured, and why.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier, report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianEnsembleClassifier(3, max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> found = report(model, X[1::2], y[1::2])
    >>> found
    <ModelReport of BayesianEnsembleClassifier on 75 rows>
    >>> frame = found.to_frame()
    >>> bool(frame.loc[frame.quantity == "accuracy", "student"].item() > 0.8)
    True
    """

    title: str
    summary: str
    facts: dict[str, str]
    measurements: list[Measurement]
    pictures: list[Picture]
    notes: list[str]

    def __repr__(self) -> str:
        return f"<ModelReport of {self.title} on {self.facts['rows']} rows>"

    def to_frame(self) -> Any:
        """Return all numbers as a table.

        Returns
        -------
        frame : DataFrame
            Of pandas, or of what ``sklearn.set_config(transform_output=...)`` names, with a row for
            each quantity and the columns ``section``, ``quantity``, ``unit``, ``better``,
            ``student``, ``student_error`` (its standard error), ``teacher``, ``difference``
            (student less teacher), ``difference_error`` and ``reference``. NaN is what is not
            known.
        """
        rows = self.measurements
        text = {
            name: np.array([getattr(row, name) for row in rows], dtype=object)
            for name in ("section", "quantity", "unit", "better")
        }
        numbers = {
            "student": [row.values.get("student") for row in rows],
            "student_error": [row.errors.get("student") for row in rows],
            "teacher": [row.values.get("teacher") for row in rows],
            "difference": [row.difference for row in rows],
            "difference_error": [row.errors.get("difference") for row in rows],
            "reference": [row.values.get("reference") for row in rows],
        }
        columns = {name: np.array(found, dtype=float) for name, found in numbers.items()}
        return as_frame({**text, **columns}, None)

    def to_html(self) -> str:
        """Return the report as a page that needs nothing else: no file, no network, no script.

        Returns
        -------
        html : str

        Raises
        ------
        ImportError
            If matplotlib is not installed: ``pip install skdistill[plot]``.
        """
        from ._page import html_of

        return html_of(self, whole=True)

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file.

        Parameters
        ----------
        path : str or os.PathLike
            Of the file, such as ``"report.html"``. It is written whole or not at all.

        Raises
        ------
        ImportError, OSError
            As `to_html` does, and if the file cannot be written.
        """
        FilePath().check(path, "path")
        write_atomically(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        """Body of the page, for notebooks."""
        from ._page import html_of

        return html_of(self, whole=False)
