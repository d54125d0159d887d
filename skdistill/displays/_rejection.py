# SPDX-License-Identifier: BSD-3-Clause
"""The error of a model that leaves out the samples of which it is uncertain."""

from functools import reduce
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from .._utils.validation import OneOf
from ..metrics import (
    aurc,
    ause,
    prediction_rejection_ratio,
    risk_coverage_curve,
    sparsification_curve,
)
from ._display import Axes, Display, Keywords, documented_dataclass, draw, labelled, part_of
from ._grids import check_target

# The risk is drawn at this many coverages besides those of the samples, between which it is curved.
_N_COVERAGES = 201

# Coverages below this do not scale the axis: one error among few samples would dwarf the rest.
_LEAST_COVERAGE = 0.05

_X_LABELS = {
    "coverage": "Coverage: share of samples predicted, most certain first",
    "rejected": "Share of samples rejected, most uncertain first",
}


@documented_dataclass
class RejectionCurveDisplay(Display):
    """Risk of a model that abstains on uncertain samples, against its coverage.

    The risk is the mean loss of the samples that are predicted. Rejecting at random leaves it as it
    is; the oracle, which rejects the largest losses first, lies below every other curve.

    Parameters
    ----------
    coverage, risk, oracle_risk : ndarray of shape (n_points,)
        Share of the samples that are predicted, from 0 to 1, and mean loss of these, and of those
        that the oracle keeps.
    aurc, rejection_ratio : float, default=None
        Area under the curve and prediction-rejection ratio, shown in the legend unless None.
    loss_name : str, default="loss"
        Name of the loss, for the label of the vertical axis.

    Attributes
    ----------
    line_, oracle_line_, random_line_ : matplotlib Line2D
        The curves of the model, the oracle and a random order; the latter two may be None.

    See Also
    --------
    skdistill.metrics.risk_coverage_curve : Computes the curve.
    SparsificationDisplay : The same for squared errors, relative to that of all samples.

    Examples
    --------
    >>> from skdistill.displays import RejectionCurveDisplay
    >>> RejectionCurveDisplay.from_losses([0, 1, 0, 1], uncertainty=[0.1, 0.4, 0.2, 0.3])
    <...RejectionCurveDisplay object at ...>
    """

    coverage: np.ndarray
    risk: np.ndarray
    oracle_risk: np.ndarray
    aurc: float | None = None
    rejection_ratio: float | None = None
    loss_name: str = "loss"
    name: str | None = None

    def plot(
        self,
        ax: Axes | None = None,
        *,
        against: str = "coverage",
        name: str | None = None,
        plot_oracle: bool = True,
        plot_random: bool = True,
        **kwargs: object,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        against : {"coverage", "rejected"}, default="coverage"
            Whether the horizontal axis is the share of the samples predicted or rejected.
        plot_oracle, plot_random : bool, default=True
            Whether to draw the oracle's curve, and the risk of rejecting at random.
        """
        OneOf(tuple(_X_LABELS)).check(against, "against")
        ax, label = self._open(ax), self.name if name is None else name
        x = self.coverage if against == "coverage" else 1 - self.coverage
        scores = {"AURC": self.aurc, "PRR": self.rejection_ratio}
        known = [f"{key} = {score:.3g}" for key, score in scores.items() if score is not None]
        label = labelled(label, ", ".join(known)) if known else label
        self.line_ = draw(ax, "plot", x, self.risk, given=kwargs, linewidth=2, label=label)

        self.oracle_line_ = self.random_line_ = None
        if plot_oracle:
            self.oracle_line_ = self._draw_limit(ax, x, self.oracle_risk, "oracle", "--")
        if plot_random:
            level = [self.risk[-1]] * 2
            self.random_line_ = self._draw_limit(ax, [0, 1], level, "random order", ":")

        ax.set(
            xlabel=_X_LABELS[against],
            ylabel=self._literal(f"Risk: mean {self.loss_name} of samples predicted"),
            xlim=(0, 1),
        )
        _fit_height(ax, against)
        ax.legend(fontsize="small")
        return self

    def _draw_limit(self, ax, x, y, label, linestyle):
        """Draw a line of the model's colour, named in the legend once for all models."""
        style = {"color": self.line_.get_color(), "linestyle": linestyle, "linewidth": 1.2}
        if label in ax.get_legend_handles_labels()[1]:
            label = None
        return ax.plot(x, y, label=label, **style)[0]

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        part: str = "total",
        target: int = 0,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw what a fitted model gains by abstaining.

        The loss of a classifier is 1 where its label is wrong and 0 where it is right, that of a
        regressor the squared error.

        Parameters
        ----------
        part : {"total", "aleatoric", "epistemic"}, default="total"
            The uncertainty by which samples are rejected.

        Raises
        ------
        ValueError
            If `y` has another shape than the predictions, the model cannot tell the `part`, or
            there is no such target.
        """
        cls._needs_matplotlib("from_estimator")
        uncertainty = part_of(predict_uncertainty(estimator, X), part)
        y_true, y_pred = np.asarray(y), np.asarray(estimator.predict(X))
        if y_true.shape != y_pred.shape:
            raise ValueError(
                f"y must have the shape of the predictions, {y_pred.shape}, got {y_true.shape}."
            )
        if is_classifier(estimator):
            losses, loss_name = y_true != y_pred, "error"
        else:
            losses, loss_name = (y_true - y_pred) ** 2, "squared error"
        return cls.from_losses(
            check_target(losses, "y", target),
            check_target(uncertainty, f"the {part} uncertainty", target),
            loss_name=loss_name,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_losses(
        cls,
        losses: ArrayLike,
        uncertainty: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        loss_name: str = "loss",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how well given uncertainties find given losses.

        Parameters
        ----------
        losses, uncertainty, sample_weight
            As in :func:`skdistill.metrics.risk_coverage_curve`.
        loss_name : as in :class:`RejectionCurveDisplay`
        """
        curve = risk_coverage_curve(losses, uncertainty, sample_weight=sample_weight)
        oracle = risk_coverage_curve(losses, losses, sample_weight=sample_weight)
        ratio = prediction_rejection_ratio(losses, uncertainty, sample_weight=sample_weight)
        coverage = reduce(np.union1d, (np.linspace(0, 1, _N_COVERAGES), curve[0], oracle[0]))
        return cls(
            coverage=coverage,
            risk=_risk_at(coverage, *curve),
            oracle_risk=_risk_at(coverage, *oracle),
            aurc=aurc(losses, uncertainty, sample_weight=sample_weight),
            rejection_ratio=ratio,
            loss_name=loss_name,
            name=name,
        ).plot(**kwargs)


def _fit_height(ax, against):
    """Scale the vertical axis to the lines beyond the least coverage, with room for a legend."""
    heights = []
    for x, y in (np.asarray(line.get_data(), dtype=float) for line in ax.lines):
        coverage = x if against == "coverage" else 1 - x
        heights.extend(y[coverage >= _LEAST_COVERAGE])
    low, high = min(heights), max(heights)
    if low < high:
        ax.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))


def _risk_at(at, coverage, risk):
    """Risk at other coverages than those of its curve: the sum of losses is linear in between."""
    sums = np.interp(at, coverage, coverage * risk)
    return np.divide(sums, at, out=np.full_like(at, risk[0]), where=at > 0)


@documented_dataclass
class SparsificationDisplay(Display):
    """Error of the samples that remain as the most uncertain ones are removed.

    The nearer the model's curve is to the oracle's, which removes the largest errors first, the
    better the uncertainty ranks the errors; the area between them is the AUSE.

    Parameters
    ----------
    fraction_removed, model_curve, oracle_curve : ndarray of shape (n_points,)
        Fraction of the samples removed, and mean squared error of the others over that of all.
    ause : float, default=None
        Area between the curves, shown in the legend unless None.

    Attributes
    ----------
    line_, oracle_line_ : matplotlib Line2D
        The curves; that of the oracle may be None.
    area_ : matplotlib PolyCollection or None
        The shaded area between them.

    See Also
    --------
    skdistill.metrics.sparsification_curve : Computes the curve.

    Examples
    --------
    >>> from skdistill.displays import SparsificationDisplay
    >>> SparsificationDisplay.from_predictions(
    ...     y_true=[2.0, 0.0, 1.0, 1.0], y_pred=[0.0, 0.0, 0.0, 0.0], uncertainty=[3, 1, 4, 2]
    ... )
    <...SparsificationDisplay object at ...>
    """

    fraction_removed: np.ndarray
    model_curve: np.ndarray
    oracle_curve: np.ndarray
    ause: float | None = None
    name: str | None = None

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        plot_oracle: bool = True,
        oracle_kwargs: Keywords = None,
        **kwargs: object,
    ) -> Self:
        """Draw the curves and the area between them.

        Parameters
        ----------
        plot_oracle : bool, default=True
            Whether to draw the oracle's curve and shade the area.
        oracle_kwargs : dict, default=None
            Keywords of `plot`, for the oracle's curve.
        """
        ax, x = self._open(ax), self.fraction_removed
        name = self.name if name is None else name
        label = name if self.ause is None else labelled(name, f"AUSE = {self.ause:.3f}")
        self.line_ = draw(ax, "plot", x, self.model_curve, given=kwargs, linewidth=2, label=label)

        self.oracle_line_ = self.area_ = None
        if plot_oracle:
            color, label = self.line_.get_color(), f"oracle of {name}" if name else "oracle"
            style = {"color": color, "linestyle": "--", "label": label}
            self.oracle_line_ = draw(ax, "plot", x, self.oracle_curve, given=oracle_kwargs, **style)
            curves, style = (self.oracle_curve, self.model_curve), {"color": color, "alpha": 0.12}
            self.area_ = ax.fill_between(x, *curves, linewidth=0, **style)

        ax.set(
            xlabel="Fraction removed, most uncertain first",
            ylabel="MSE of the remaining samples / MSE of all samples",
            xlim=(0, 1),
        )
        ax.set_ylim(bottom=0)
        ax.legend(fontsize="small")
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw how well the total uncertainty of a fitted regressor ranks its errors."""
        cls._needs_matplotlib("from_estimator")
        return cls.from_predictions(
            y,
            estimator.predict(X),
            predict_uncertainty(estimator, X).total,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        uncertainty: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how well given uncertainties rank the errors of given predictions.

        Parameters
        ----------
        y_true, y_pred, uncertainty, sample_weight
            As in :func:`skdistill.metrics.sparsification_curve`.
        """
        arrays = (y_true, y_pred, uncertainty)
        removed, model, oracle = sparsification_curve(*arrays, sample_weight=sample_weight)
        return cls(
            fraction_removed=removed,
            model_curve=model,
            oracle_curve=oracle,
            ause=ause(*arrays, sample_weight=sample_weight),
            name=name,
        ).plot(**kwargs)
