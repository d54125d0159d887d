# SPDX-License-Identifier: BSD-3-Clause
"""The error of a model that leaves out the samples of which it is uncertain."""

from functools import reduce
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from ..metrics import aurc, prediction_rejection_ratio, risk_coverage_curve
from ._display import Axes, Display, documented_dataclass, draw, known_parts, labelled
from ._grids import check_target

# The risk is drawn at this many coverages besides those of the samples, between which it is curved.
_N_COVERAGES = 201

# Coverages below this do not scale the axis: one error among few samples would dwarf the rest.
_LEAST_COVERAGE = 0.05


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
        name: str | None = None,
        plot_oracle: bool = True,
        plot_random: bool = True,
        **kwargs: object,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        plot_oracle, plot_random : bool, default=True
            Whether to draw the oracle's curve, and the risk of rejecting at random.
        """
        ax, label = self._open(ax), self.name if name is None else name
        scores = {"AURC": self.aurc, "PRR": self.rejection_ratio}
        known = [f"{key} = {score:.3g}" for key, score in scores.items() if score is not None]
        label = labelled(label, ", ".join(known)) if known else label
        style: dict[str, Any] = {"linewidth": 2, "label": label}
        self.line_ = draw(ax, "plot", self.coverage, self.risk, given=kwargs, **style)

        self.oracle_line_ = self.random_line_ = None
        named = ax.get_legend_handles_labels()[1]
        oracle, at_random, style = "oracle", "random order", {"color": self.line_.get_color()}
        if plot_oracle:
            style |= {"linestyle": "--", "label": None if oracle in named else oracle}
            (self.oracle_line_,) = ax.plot(self.coverage, self.oracle_risk, lw=1.2, **style)
        if plot_random:
            style |= {"linestyle": ":", "label": None if at_random in named else at_random}
            (self.random_line_,) = ax.plot([0, 1], [self.risk[-1]] * 2, lw=1.2, **style)

        ax.set(
            xlabel="Coverage: share of samples predicted, most certain first",
            ylabel=self._literal(f"Risk: mean {self.loss_name} of samples predicted"),
            xlim=(0, 1),
        )
        # Scale to the lines beyond the least coverage, with room for a legend.
        lines = [np.asarray(line.get_data(), dtype=float) for line in ax.lines]
        heights = np.concatenate([y[x >= _LEAST_COVERAGE] for x, y in lines])
        low, high = heights.min(), heights.max()
        if low < high:
            ax.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))
        ax.legend(fontsize="small")
        return self

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


def _risk_at(at, coverage, risk):
    """Risk at other coverages than those of its curve: the sum of losses is linear in between."""
    sums = np.interp(at, coverage, coverage * risk)
    return np.divide(sums, at, out=np.full_like(at, risk[0]), where=at > 0)
