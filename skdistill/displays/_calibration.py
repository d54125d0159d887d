# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of predicted quantiles."""

from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_quantiles
from .._utils.typing import ArrayLike, BaseEstimator
from ..metrics import regression_calibration_curve, regression_calibration_error
from ._display import Display, documented_dataclass
from ._drawing import draw, draw_reference, labelled


@documented_dataclass
class RegressionCalibrationDisplay(Display):
    """How often the true value lies at or below each predicted quantile.

    A calibrated model follows the diagonal. A curve that is steeper than it in the middle comes
    from distributions that are too wide, a flatter one from distributions that are too narrow, and
    one that stays above or below from predictions that are too high or too low.

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
        """Draw the curve.

        Parameters
        ----------
        ref_line : bool, default=True
            Whether to draw the diagonal.
        **kwargs : dict
            Keywords of `plot`, for the curve.
        """
        ax = self._open(ax)
        self.ref_line_ = None
        if ref_line:
            diagonal = [0, 1], [0, 1], "perfectly calibrated"
            self.ref_line_ = draw_reference(ax, *diagonal, zorder=1.5)
        label = self.name if name is None else name
        if self.calibration_error is not None:
            label = labelled(label, f"error = {self.calibration_error:.3f}")
        style = {"linewidth": 2, "marker": "o", "markersize": 5, "label": label}
        self.line_ = draw(ax, "plot", self.nominal, self.observed, given=kwargs, **style)
        ax.set(
            xlabel="Nominal level of the predicted quantile",
            ylabel="Observed fraction of y at or below it",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        ax.legend(fontsize="small")
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
        return cls(nominal=nominal, observed=observed, calibration_error=error, name=name).plot(
            **kwargs
        )
