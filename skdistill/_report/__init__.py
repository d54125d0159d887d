# SPDX-License-Identifier: BSD-3-Clause
"""A fitted model on one page: how good it is, what it knows, what it costs."""

from collections.abc import Mapping
from typing import Any

from .._utils.typing import ArrayLike, BaseEstimator
from ._model_report import ModelReport

__all__ = ["report"]


def report(
    student: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    teacher: BaseEstimator | None = None,
    reference: BaseEstimator | None = None,
    *,
    halves: Mapping[str, Any] | None = None,
) -> ModelReport:
    """Evaluate a fitted model on held-out samples, and return a report of one page.

    The report has accuracy, proper scores, calibration, the ranking of errors by uncertainty, the
    fidelity to the teacher, the cost and the latency, with figures. It opens offline, on a phone,
    and in a notebook.

    Parameters
    ----------
    student : estimator
        Fitted classifier or regressor of this package, an ensemble as well, or a Pipeline, search,
        FrozenEstimator or TransformedTargetRegressor around one.
    X : array-like of shape (n_samples, ...)
        Samples, at least 20, that neither the student nor its teacher has seen; more tell more.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Labels or targets.
    teacher : estimator, default=None
        What the student is held against, likewise. None is the student's own `teacher_`, if it
        still has it: one that was loaded from a file has it no longer.
    reference : estimator, default=None
        An independent, larger ensemble of the teacher's kind, as in
        :func:`skdistill.metrics.fidelity`.
    halves : :class:`~sklearn.utils.Bunch`, default=None
        What :func:`skdistill.model_selection.disagreement_of_halves` has found of clones of the
        student; the report has a chapter on it.

    Returns
    -------
    report : ModelReport
        A notebook shows it. ``report.to_frame()`` is a table, in pandas or what
        ``sklearn.set_config(transform_output=...)`` names, with a row for each quantity and the
        columns ``section``, ``quantity``, ``unit``, ``better``, ``student``, ``student_error`` (its
        standard error), ``teacher``, ``difference`` (student less teacher), ``difference_error``
        and ``reference``; NaN is what is not known. ``report.to_html()`` returns a page that needs
        nothing else, no file, network or script, and ``report.save(path)`` writes it to a file,
        whole or not at all; both need matplotlib, ``pip install skdistill[plot]``.

    Raises
    ------
    TypeError, ValueError
        If a model predicts no uncertainty, there are too few samples, `y` does not go with `X` or
        with the student, or `halves` are something else.

    Notes
    -----
    Standard errors are by the jackknife that leaves out each twentieth of the samples in turn. They
    tell what other samples would change, and not what another fit would.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, report
    >>> X, y = load_diabetes(return_X_y=True)
    >>> teacher = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> student = HydraPlusRegressor(teacher, max_epochs=5, random_state=0).fit(X[:300], y[:300])
    >>> report(student, X[300:], y[300:])
    <ModelReport of HydraPlusRegressor on 142 samples>
    """
    from ._measured import measured  # it imports metrics, displays and more

    return measured(student, X, y, teacher, reference, halves)
