# SPDX-License-Identifier: BSD-3-Clause
"""A student held against its teacher, and both against a larger ensemble."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from ..distributions import Uncertainty
from ._regression import gaussian_nll
from ._uncertainty import epistemic_fidelity, uncertainty_total_variation


@dataclass(frozen=True, repr=False)
class FidelityTable:
    """What :func:`fidelity` returns: ``table[pair][quantity]``."""

    columns: dict[str, dict[str, float]]

    def __getitem__(self, pair: str) -> dict[str, float]:
        return self.columns[pair]

    def to_frame(self) -> Any:
        """Return the table as a DataFrame of pandas, with a row for each quantity."""
        import pandas

        return pandas.DataFrame(self.columns)

    def __repr__(self) -> str:
        columns = self.columns.values()
        lines = [["", *(pair.replace("_", " ") for pair in self.columns)]]
        for quantity in next(iter(columns)):
            values = (f"{column[quantity]:.3f}" for column in columns)
            lines.append([quantity.replace("_", " "), *values])
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])])
            for cells in lines
        )


def fidelity(
    teacher: BaseEstimator,
    student: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    reference: BaseEstimator | None = None,
    sample_weight: ArrayLike | None = None,
) -> FidelityTable:
    """Compare a student with its teacher, and both with a larger ensemble.

    The epistemic variance of S members is itself an estimate, with a relative standard deviation of
    about sqrt(2 / (S - 1)): .32 for 20 members. A student that smooths this noise away should not
    follow its teacher perfectly. The teacher's rank correlation with an ensemble of many more
    members, the `reference`, is what a perfect imitation would reach; a student above it knows the
    larger ensemble better than its teacher does.

    Parameters
    ----------
    teacher, student : estimator
        Fitted, with ``predict_uncertainty``; also inside a Pipeline, a search or a
        TransformedTargetRegressor.
    X : array-like of shape (n_samples, n_features)
        Samples that played no part in training.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        Labels or targets, for the gaps; None leaves these out.
    reference : estimator, default=None
        An independent, larger ensemble of the teacher's kind.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    table : FidelityTable
        ``table["student_to_teacher"]`` and, with a `reference`, ``table["student_to_reference"]``
        and ``table["teacher_to_reference"]``; each maps names of quantities to floats.
        ``table.to_frame()`` is a DataFrame. For each part of the uncertainty that both models know
        ("total", "aleatoric", "epistemic"): ``<part>_rank_correlation``, ``<part>_median_ratio``
        and ``<part>_relative_error`` of :func:`epistemic_fidelity`, and ``<part>_total_variation``,
        see :func:`uncertainty_total_variation`. With `y`, the first model's score less the
        second's: ``nll_gap`` in nats, that of one Gaussian with the predicted mean and variance for
        regressors, and ``rmse_gap`` or ``error_gap``.

    Raises
    ------
    ValueError
        If some of the models are classifiers and others regressors.

    See Also
    --------
    skdistill.displays.FidelityDisplay : Draws each part, sample by sample.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
    >>> from skdistill.metrics import fidelity
    >>> X, y = make_friedman1(300, random_state=0)
    >>> teacher = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0).fit(X[:200], y[:200])
    >>> reference = teacher.__class__(20, max_epochs=20, random_state=1).fit(X[:200], y[:200])
    >>> student = HydraPlusRegressor(FrozenEstimator(teacher), max_epochs=20, random_state=0)
    >>> student = student.fit(X[:200], y[:200])
    >>> table = fidelity(teacher, student, X[200:], y[200:], reference=reference)
    >>> table["student_to_teacher"]["total_rank_correlation"] > 0.5
    True
    """
    models = {"student": student, "teacher": teacher, "reference": reference}
    said = {
        name: _predictions(model, X, y, sample_weight)
        for name, model in models.items()
        if model is not None
    }
    columns = {
        f"{one}_to_{other}": _comparison(said[one], said[other], sample_weight)
        for one, other in itertools.combinations(said, 2)
    }
    return FidelityTable(columns)


def _predictions(
    model: BaseEstimator, X: ArrayLike, y: Any, weight: Any
) -> tuple[Uncertainty, dict[str, float]]:
    """Uncertainty of the samples, and scores of the predictions."""
    uncertainty = predict_uncertainty(model, X)
    scores: dict[str, float] = {}
    if y is not None and is_classifier(model):
        prob, labels = model.predict_proba(X), model.classes_
        scores["nll"] = log_loss(y, prob, sample_weight=weight, labels=labels)
        scores["error"] = 1 - accuracy_score(y, labels[prob.argmax(1)], sample_weight=weight)
    elif y is not None:
        mean, std = model.predict(X), np.sqrt(uncertainty.total)
        scores["nll"] = gaussian_nll(y, mean, std, sample_weight=weight)
        scores["rmse"] = root_mean_squared_error(y, mean, sample_weight=weight)
    return uncertainty, scores


def _comparison(
    one: tuple[Uncertainty, dict[str, float]],
    other: tuple[Uncertainty, dict[str, float]],
    weight: ArrayLike | None,
) -> dict[str, float]:
    """How the predictions of one model follow those of another."""
    (mine, my_scores), (its, its_scores) = one, other
    found = {f"{name}_gap": float(my_scores[name] - its_scores[name]) for name in my_scores}
    if mine.measure != its.measure:
        raise ValueError(
            "student, teacher and reference must be all classifiers or all regressors; they "
            f"measure uncertainty by {mine.measure} and {its.measure}."
        )
    for part, a, b in zip(mine._asdict(), mine, its, strict=True):
        if a is not None and b is not None:
            kept = epistemic_fidelity(b, a, sample_weight=weight)._asdict()
            found |= {f"{part}_{name}": value for name, value in kept.items()}
            variation = uncertainty_total_variation(a, b, a_weights=weight, b_weights=weight)
            found[f"{part}_total_variation"] = variation
    return found
