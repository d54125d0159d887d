# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of epistemic variances."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._utils.typing import ArrayLike, BaseEstimator, RandomStateLike
from ..metrics import epistemic_calibration
from ..model_selection import disagreement_of_halves
from ._display import REFERENCE_COLOR, Axes, Display, draw


@dataclass(kw_only=True, eq=False, repr=False)
class EpistemicCalibrationDisplay(Display):
    """Squared errors of the mean against the epistemic variance that predicts them.

    Points are bins of equally many samples, in the order of the variance. A calibrated model
    follows the diagonal; below it the variance is too large, above it too small.
    :meth:`from_estimator` or :meth:`from_predictions` create it. All parameters are stored as
    attributes.

    Parameters
    ----------
    epistemic, squared_error : ndarray of shape (n_bins,)
        Mean epistemic variance and mean squared error of each bin.
    coverage : float, default=None
        Share of samples in their 90 % intervals, shown in the legend unless None.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    ref_line_ : matplotlib Line2D or None
        The diagonal; None if it is not wanted, or on the axes already.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

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
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        ref_line: bool = True,
        **kwargs: object,
    ) -> Self:
        """Draw the bins on logarithmic axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        name : str, default=None
            Name of the model in the legend; None is that of the display.
        ref_line : bool, default=True
            Whether to draw the diagonal.
        **kwargs : dict
            Keywords of `plot`, for the curve.

        Returns
        -------
        display : EpistemicCalibrationDisplay
        """
        ax = self._open(ax)
        from matplotlib.ticker import LogFormatter

        self.ref_line_, reference = None, "perfectly calibrated"
        if ref_line and reference not in ax.get_legend_handles_labels()[1]:
            positive = np.array([self.epistemic, self.squared_error])
            ends = [positive[positive > 0].min(initial=np.inf), positive.max(initial=0)]
            style: dict[str, Any] = {"color": REFERENCE_COLOR, "linestyle": ":", "zorder": 1.5}
            self.ref_line_ = ax.plot(ends, ends, label=reference, **style)[0]
        label = self.name if name is None else name
        if self.coverage is not None:
            note = f"90 % intervals cover {self.coverage:.2f}"
            label = f"{label} ({note})" if label else note
        style = {"linewidth": 2, "marker": "o", "markersize": 5, "label": label}
        points = self.epistemic, self.squared_error
        self.line_ = draw(ax, "plot", *points, given=kwargs, **style)
        ax.legend(fontsize="small")
        ax.set(xlabel="Epistemic variance", ylabel="Squared error of the mean")
        ax.set(xscale="log", yscale="log")
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
        estimator, X, y, random_state
            As in :func:`skdistill.model_selection.disagreement_of_halves`: clones are fitted.
        n_bins : int, default=10
            Number of bins.
        name : str, default=None
            Name of the model in the legend; None is that of its class.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : EpistemicCalibrationDisplay
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
        name, **kwargs : as in :meth:`from_estimator`

        Returns
        -------
        display : EpistemicCalibrationDisplay
        """
        found = epistemic_calibration(squared_error, epistemic, n_bins=n_bins)
        bins = {"epistemic": found.bin_epistemic, "squared_error": found.bin_squared_error}
        return cls(**bins, coverage=found.coverage, name=name).plot(**kwargs)
