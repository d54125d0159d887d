# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of quantiles, and of epistemic variances."""

from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_quantiles
from .._utils.typing import ArrayLike, BaseEstimator, RandomStateLike
from ..metrics import (
    epistemic_calibration,
    regression_calibration_curve,
    regression_calibration_error,
)
from ..model_selection import disagreement_of_halves
from ._display import REFERENCE_COLOR, Display, Keywords, documented_dataclass, draw, labelled


class _CurveDisplay(Display):
    """A curve that follows the diagonal if a model is calibrated."""

    def _draw_curve(
        self,
        ax: Any,
        x: np.ndarray,
        y: np.ndarray,
        ends: list[float] | None,
        name: str | None,
        note: str | None,
        given: Keywords,
    ) -> Any:
        """Draw the curve, with a note after its name, and the diagonal between `ends`."""
        ax = self._open(ax)
        self.ref_line_, reference = None, "perfectly calibrated"
        if ends is not None and reference not in ax.get_legend_handles_labels()[1]:
            style = {"color": REFERENCE_COLOR, "linestyle": ":", "zorder": 1.5}
            self.ref_line_ = ax.plot(ends, ends, label=reference, **style)[0]
        label = name if note is None else labelled(name, note)
        style = {"linewidth": 2, "marker": "o", "markersize": 5, "label": label}
        self.line_ = draw(ax, "plot", x, y, given=given, **style)
        ax.legend(fontsize="small")
        return ax


@documented_dataclass
class RegressionCalibrationDisplay(_CurveDisplay):
    """How often the true value lies at or below each predicted quantile.

    A calibrated model follows the diagonal. A curve that is steeper in the middle comes from
    distributions that are too wide, a flatter one from too narrow ones, and one that stays above
    or below from predictions that are too high or too low.

    Parameters
    ----------
    nominal, observed : ndarray of shape (n_quantiles,)
        Levels of the quantiles, and fraction of the true values at or below them.
    calibration_error : float, default=None
        Mean absolute deviation between the two, shown in the legend unless None.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    ref_line_ : matplotlib Line2D or None
        The diagonal; None if it is not wanted, or on the axes already.

    See Also
    --------
    skdistill.metrics.regression_calibration_curve : Computes the curve.

    Examples
    --------
    >>> from skdistill.displays import RegressionCalibrationDisplay
    >>> RegressionCalibrationDisplay.from_predictions(
    ...     [1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, quantiles=[0.2, 0.5]
    ... )
    <...RegressionCalibrationDisplay object at ...>
    """

    nominal: np.ndarray
    observed: np.ndarray
    calibration_error: float | None = None
    name: str | None = None

    def plot(
        self, ax: Any = None, *, name: str | None = None, ref_line: bool = True, **kwargs: object
    ) -> Self:
        """Draw the curve."""
        error = self.calibration_error
        note = None if error is None else f"error = {error:.3f}"
        ends, name = [0.0, 1.0] if ref_line else None, self.name if name is None else name
        ax = self._draw_curve(ax, self.nominal, self.observed, ends, name, note, kwargs)
        ax.set(
            xlabel="Nominal level of the predicted quantile",
            ylabel="Observed fraction of y at or below it",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        quantiles: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the calibration curve of a fitted regressor.

        Parameters
        ----------
        quantiles : array-like of shape (n_quantiles,), default=None
            Levels, increasing, strictly between 0 and 1; None means 0.05, 0.1, ..., 0.95.
        """
        cls._needs_matplotlib("from_estimator")
        quantiles = np.linspace(0.05, 0.95, 19) if quantiles is None else np.asarray(quantiles)
        return cls.from_predictions(
            y,
            predict_quantiles(estimator, X, quantiles),
            quantiles,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_quantiles: ArrayLike,
        quantiles: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the calibration curve of given quantiles.

        Parameters
        ----------
        y_true, y_quantiles, quantiles, sample_weight
            As in :func:`skdistill.metrics.regression_calibration_curve`.
        """
        arrays = (y_true, y_quantiles, quantiles)
        nominal, observed = regression_calibration_curve(*arrays, sample_weight=sample_weight)
        error = regression_calibration_error(*arrays, sample_weight=sample_weight)
        found = cls(nominal=nominal, observed=observed, calibration_error=error, name=name)
        return found.plot(**kwargs)


@documented_dataclass
class EpistemicCalibrationDisplay(_CurveDisplay):
    """Squared errors of the mean against the epistemic variance that predicts them.

    Points are bins of equally many samples, in the order of the variance. A calibrated model
    follows the diagonal; below it the variance is too large, above it too small.

    Parameters
    ----------
    epistemic, squared_error : ndarray of shape (n_bins,)
        Mean epistemic variance and mean squared error of each bin.
    coverage : float, default=None
        Share of samples in their 90 % intervals, shown in the legend unless None.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    ref_line_ : matplotlib Line2D or None
        The diagonal; None if it is not wanted, or on the axes already.

    See Also
    --------
    skdistill.metrics.epistemic_calibration : Computes the bins and the coverage.

    Examples
    --------
    >>> from skdistill.displays import EpistemicCalibrationDisplay
    >>> EpistemicCalibrationDisplay.from_predictions([1.0, 2.0, 9.0], [1.0, 3.0, 8.0], n_bins=3)
    <...EpistemicCalibrationDisplay object at ...>
    """

    epistemic: np.ndarray
    squared_error: np.ndarray
    coverage: float | None = None
    name: str | None = None

    def plot(
        self, ax: Any = None, *, name: str | None = None, ref_line: bool = True, **kwargs: object
    ) -> Self:
        """Draw the bins on logarithmic axes."""
        from matplotlib.ticker import LogFormatter

        note = None if self.coverage is None else f"90 % intervals cover {self.coverage:.2f}"
        positive = np.array([self.epistemic, self.squared_error])
        ends = [positive[positive > 0].min(initial=np.inf), positive.max(initial=0)]
        diagonal, name = ends if ref_line else None, self.name if name is None else name
        ax = self._draw_curve(ax, self.epistemic, self.squared_error, diagonal, name, note, kwargs)
        ax.set(
            xlabel="Epistemic variance",
            ylabel="Squared error of the mean",
            xscale="log",
            yscale="log",
        )
        ax.tick_params(which="both", labelsize="small")
        for axis in (ax.xaxis, ax.yaxis):  # where a decade has room, between its ends too
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        random_state: RandomStateLike = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how two fits to disjoint halves of the samples disagree.

        Parameters
        ----------
        estimator : estimator
            Its clones are fitted, see :func:`skdistill.model_selection.disagreement_of_halves`.
        n_bins : int, default=10
            Number of bins.
        random_state : int, RandomState instance or None, default=None
            Draws the halves.
        """
        cls._needs_matplotlib("from_estimator")
        name = type(estimator).__name__ if name is None else name
        found = disagreement_of_halves(estimator, X, y, random_state=random_state)
        pair = found.squared_difference.ravel(), found.epistemic.ravel()
        return cls.from_predictions(*pair, n_bins=n_bins, name=name, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        squared_error: ArrayLike,
        epistemic: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw given errors and variances.

        Parameters
        ----------
        squared_error, epistemic, n_bins
            As in :func:`skdistill.metrics.epistemic_calibration`.
        """
        found = epistemic_calibration(squared_error, epistemic, n_bins=n_bins)
        bins = {"epistemic": found.bin_epistemic, "squared_error": found.bin_squared_error}
        return cls(**bins, coverage=found.coverage, name=name).plot(**kwargs)
