# SPDX-License-Identifier: BSD-3-Clause
"""The error of a model that abstains where it is uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from .._estimator.functions import predict_uncertainty
from .._utils.validation import OneOf
from ..metrics import aurc, prediction_rejection_ratio, risk_coverage_curve
from ._drawing import given_or_new_axes, import_pyplot, known_parts, labelled, merge_style
from ._grids import check_target

# The risk is drawn at this many coverages besides those of the rows, between which it is curved.
_N_COVERAGES = 201

# Coverages below this do not scale the axis: one error among few rows would dwarf the rest.
_LEAST_COVERAGE = 0.05

_X_LABELS = {
    "coverage": "Coverage: share of rows predicted, most certain first",
    "rejected": "Share of rows rejected, most uncertain first",
}


@dataclass(kw_only=True, eq=False, repr=False)
class RejectionCurveDisplay:
    """Risk of a model that abstains on uncertain rows, against the share of rows that it predicts.

    The risk is the mean loss on the rows that are predicted. Rejecting at random leaves it as it
    is, and the oracle, which rejects the largest losses first, lies
    below every other curve.

    Use :meth:`from_estimator` or :meth:`from_losses` to create it. All parameters are stored as
    attributes. Several models are compared by drawing them on the same axes.

    Parameters
    ----------
    coverage : ndarray of shape (n_points,)
        Share of the rows that are predicted, from 0 to 1.
    risk : ndarray of shape (n_points,)
        Mean loss on these rows.
    oracle_risk : ndarray of shape (n_points,)
        The same for the oracle.
    aurc : float, default=None
        Area under the curve, shown in the legend unless None.
    rejection_ratio : float, default=None
        Prediction-rejection ratio, shown in the legend unless None.
    loss_name : str, default="loss"
        Name of the loss, for the label of the vertical axis.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The model's curve.
    oracle_line_ : matplotlib Line2D or None
        The oracle's curve.
    random_line_ : matplotlib Line2D or None
        The risk of rejecting at random.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

    See Also
    --------
    skdistill.metrics.risk_coverage_curve : Computes the curve.
    skdistill.metrics.aurc : The area.
    skdistill.metrics.prediction_rejection_ratio : The ratio.
    SparsificationDisplay : The same for squared errors, relative to that of all rows.

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
        ax: Any = None,
        *,
        against: str = "coverage",
        name: str | None = None,
        plot_oracle: bool = True,
        plot_random: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        against : {"coverage", "rejected"}, default="coverage"
            Whether the horizontal axis is the share of the rows predicted or rejected.
        name : str, default=None
            Name of the model in the legend; None uses the stored one.
        plot_oracle : bool, default=True
            Whether to draw the oracle's curve.
        plot_random : bool, default=True
            Whether to draw the risk of rejecting at random.
        **kwargs : dict
            Keywords of `plot`, for the model's curve.

        Returns
        -------
        display : RejectionCurveDisplay
            The display itself.
        """
        OneOf(tuple(_X_LABELS)).check(against, "against")
        ax = given_or_new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        name = self.name if name is None else name
        x = self.coverage if against == "coverage" else 1 - self.coverage
        style = merge_style(Line2D, {"linewidth": 2, "label": self._label(name)}, kwargs)
        self.line_ = ax.plot(x, self.risk, **style)[0]

        self.oracle_line_ = self.random_line_ = None
        if plot_oracle:
            self.oracle_line_ = self._draw_limit(ax, x, self.oracle_risk, "oracle", "--")
        if plot_random:
            level = [self.risk[-1]] * 2
            self.random_line_ = self._draw_limit(ax, [0, 1], level, "random order", ":")

        ax.set(
            xlabel=_X_LABELS[against],
            ylabel=f"Risk: mean {self.loss_name} of rows predicted",
            xlim=(0, 1),
        )
        _fit_height(ax, against)
        ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_limit(self, ax, x, y, label, linestyle):
        """Draw a line of the model's colour, named in the legend once for all models."""
        style = {"color": self.line_.get_color(), "linestyle": linestyle, "linewidth": 1.2}
        if label in ax.get_legend_handles_labels()[1]:
            label = None
        return ax.plot(x, y, label=label, **style)[0]

    def _label(self, name):
        scores = {"AURC": self.aurc, "PRR": self.rejection_ratio}
        known = [f"{key} = {score:.3g}" for key, score in scores.items() if score is not None]
        return labelled(name, ", ".join(known)) if known else name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
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
        estimator : estimator
            Fitted classifier or regressor with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.
        X : array-like of shape (n_samples, n_features)
            Rows, preferably held out.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            True labels or values.
        part : {"total", "aleatoric", "epistemic"}, default="total"
            The uncertainty by which rows are rejected.
        target : int, default=0
            Which target to look at where there are several.
        name : str, default=None
            Name of the model in the legend; None uses the name of its class.
        **kwargs : dict
            Keywords of :meth:`from_losses`, such as `sample_weight`, and of :meth:`plot`,
            such as `ax`.

        Returns
        -------
        display : RejectionCurveDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If `y` has another shape than the predictions, the model cannot tell the `part`, or
            there is no such target.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        parts = known_parts(predict_uncertainty(estimator, X))
        if part not in parts:
            raise ValueError(f"part must be one of {list(parts)} of this model, got {part!r}.")
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
            check_target(parts[part], f"the {part} uncertainty", target),
            loss_name=loss_name,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_losses(
        cls,
        losses: Any,
        uncertainty: Any,
        *,
        sample_weight: Any = None,
        loss_name: str = "loss",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how well given uncertainties find given losses.

        Parameters
        ----------
        losses, uncertainty, sample_weight
            As in :func:`skdistill.metrics.risk_coverage_curve`.
        loss_name : str, default="loss"
            Name of the loss, for the label of the vertical axis.
        name : str, default=None
            Name of the model in the legend.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : RejectionCurveDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_losses")
        curve = risk_coverage_curve(losses, uncertainty, sample_weight=sample_weight)
        oracle = risk_coverage_curve(losses, losses, sample_weight=sample_weight)
        coverage = reduce(np.union1d, (np.linspace(0, 1, _N_COVERAGES), curve[0], oracle[0]))
        display = cls(
            coverage=coverage,
            risk=_risk_at(coverage, *curve),
            oracle_risk=_risk_at(coverage, *oracle),
            aurc=aurc(losses, uncertainty, sample_weight=sample_weight),
            rejection_ratio=prediction_rejection_ratio(
                losses, uncertainty, sample_weight=sample_weight
            ),
            loss_name=loss_name,
            name=name,
        )
        return display.plot(**kwargs)


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
