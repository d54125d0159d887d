# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of class probabilities, of quantiles and of epistemic variances."""

from typing import Any, Self

import numpy as np
from sklearn.calibration import CalibrationDisplay, calibration_curve

from .._estimator.functions import predict_quantiles
from .._utils.typing import ArrayLike, BaseEstimator, RandomStateLike
from ..metrics import (
    epistemic_calibration,
    expected_calibration_error,
    regression_calibration_curve,
    regression_calibration_error,
    reliability_curve,
)
from ..model_selection import disagreement_of_halves
from ._display import (
    CLASS_COLORS,
    Axes,
    Display,
    Keywords,
    documented_dataclass,
    draw,
    draw_reference,
    labelled,
    merged_style,
)


@documented_dataclass
class ReliabilityDisplay(Display):
    """Accuracy against confidence, or the frequency of each class against its probability.

    The confidence is the largest of a sample's probabilities. A calibrated model follows the
    diagonal; one below it is overconfident. Where the bars are low a curve rests on few samples.

    Parameters
    ----------
    curves : list of CalibrationDisplay
        One with the accuracies as `prob_true` and the confidences as `prob_pred` and `y_prob`; or
        one for each class, its `pos_label`.
    share : ndarray of shape (n_bins,), default=None
        Share of the samples in each bin of the confidence, of equal width: the bars, unless None.
    calibration_error : float, default=None
        Expected calibration error, shown in the legend unless None.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The curves.
    bars_ : matplotlib StepPatch or None
        The distribution of the confidences.

    See Also
    --------
    skdistill.metrics.reliability_curve : The curve of the confidences.
    sklearn.calibration.calibration_curve : The curve of each class.

    Examples
    --------
    >>> from skdistill.displays import ReliabilityDisplay
    >>> y_prob = [[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.3, 0.7]]
    >>> ReliabilityDisplay.from_predictions([0, 0, 1, 0], y_prob, n_bins=10)
    <...ReliabilityDisplay object at ...>
    """

    curves: list[CalibrationDisplay]
    share: Any = None
    calibration_error: float | None = None
    name: str | None = None

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        ref_line: bool = True,
        plot_bars: bool = True,
        bars_kwargs: Keywords = None,
        **kwargs: object,
    ) -> Self:
        """Draw the curves and the bars.

        Parameters
        ----------
        plot_bars : bool, default=True
            Whether to draw the distribution of the confidences.
        bars_kwargs : dict, default=None
            Keywords of `stairs`, for the bars.
        """
        ax = self._open(ax)
        of_classes = self.curves[0].pos_label is not None
        name = self.name if name is None else name
        if self.calibration_error is not None:
            score = "classwise ECE" if of_classes else "ECE"
            name = labelled(name, f"{score} = {self.calibration_error:.3f}")
        self.lines_ = []
        for i, curve in enumerate(self.curves):
            label = f"{curve.pos_label}" if of_classes else name
            style = {"linewidth": 2, "marker": "o", "markersize": 5, "label": label}
            if len(self.curves) > 1:
                style["color"] = CLASS_COLORS[i % len(CLASS_COLORS)]
                style["linestyle"] = ("-", "--", ":")[i // len(CLASS_COLORS) % 3]
            style = merged_style("plot", style, kwargs)
            self.lines_.append(curve.plot(ax=ax, ref_line=ref_line, **style).line_)
        self.bars_ = None
        if plot_bars and self.share is not None:
            edges = np.linspace(0, 1, len(self.share) + 1)
            style = {"alpha": 0.2, "linewidth": 0, "fill": True}
            style["color"] = self.lines_[0].get_color()
            self.bars_ = draw(ax, "stairs", self.share, edges, given=bars_kwargs, **style)

        ax.set(
            xlabel="Predicted probability of the class" if of_classes else "Confidence",
            ylabel="Frequency of the class" if of_classes else "Accuracy; share of samples (bars)",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        # Among the curves of many classes there is no room for their names.
        place: Any = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if of_classes else {}
        ax.legend(
            title=self._literal(name or "") if of_classes else None, fontsize="small", **place
        )
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the reliability of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier with `predict_proba`.

        Raises
        ------
        TypeError
            If the estimator has no `predict_proba`.
        """
        cls._needs_matplotlib("from_estimator")
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"estimator must be a classifier with predict_proba, got {type(estimator).__name__}"
                ", which has none."
            )
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            labels=estimator.classes_,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: Any,
        *,
        labels: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        n_bins: int = 15,
        strategy: str = "uniform",
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the reliability of given class probabilities.

        Parameters
        ----------
        y_true, y_prob, labels, n_bins, strategy
            As in :func:`skdistill.metrics.expected_calibration_error`.
        classes : "all" or array-like of labels, default=None
            Classes to draw, each with its own curve. None draws the curve of the confidence, and
            its distribution.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; not with `classes`.

        Raises
        ------
        ValueError
            If these are no probabilities, `classes` are not among the labels, or there are
            weights for the curves of classes.

        Notes
        -----
        The error in the legend of `classes` is the mean over all classes, drawn or not.
        """
        bins = {"n_bins": n_bins, "strategy": strategy}
        scored: dict[str, Any] = {**bins, "labels": labels, "sample_weight": sample_weight}
        error = expected_calibration_error(y_true, y_prob, classwise=classes is not None, **scored)
        y_prob = np.clip(np.asarray(y_prob, dtype=float), 0, 1)  # float32 may round above 1
        if classes is None:
            confidence = y_prob.max(axis=1)
            mean, accuracy, _ = reliability_curve(y_true, y_prob, **scored)
            curves = [CalibrationDisplay(accuracy, mean, confidence)]
            # In bins of equal width, open on the left as in the metric.
            places = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], confidence)
            sums = np.bincount(places, sample_weight, minlength=n_bins)
            share = sums / sums.sum()
        else:
            if sample_weight is not None:
                raise ValueError("sample_weight must be None for the curves of classes.")
            labels = np.unique(y_true) if labels is None else np.asarray(labels)
            curves, share = [], None
            for k in _positions(classes, labels):
                is_class = np.asarray(y_true) == labels[k]
                frequency, mean = calibration_curve(is_class, y_prob[:, k], pos_label=True, **bins)
                curves.append(
                    CalibrationDisplay(frequency, mean, y_prob[:, k], pos_label=labels[k])
                )
        return cls(curves=curves, share=share, calibration_error=error, name=name).plot(**kwargs)


def _positions(classes, labels):
    """Positions in `labels` of the classes to draw."""
    if isinstance(classes, str) and classes == "all":
        return range(len(labels))
    positions = {label: k for k, label in enumerate(labels.tolist())}
    wanted = [] if isinstance(classes, str) else np.asarray(classes).ravel().tolist()
    if not wanted or not set(wanted) <= positions.keys():
        raise ValueError(
            f"classes must be None, 'all' or some of the labels {labels.tolist()}, got {classes!r}."
        )
    return [positions[label] for label in wanted]


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
        self.ref_line_ = None
        if ends is not None:
            self.ref_line_ = draw_reference(ax, ends, ends, "perfectly calibrated", zorder=1.5)
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
    stated, seen : ndarray of shape (n_bins,)
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

    stated: np.ndarray
    seen: np.ndarray
    coverage: float | None = None
    name: str | None = None

    def plot(
        self, ax: Any = None, *, name: str | None = None, ref_line: bool = True, **kwargs: object
    ) -> Self:
        """Draw the bins on logarithmic axes."""
        from matplotlib.ticker import LogFormatter

        note = None if self.coverage is None else f"90 % intervals cover {self.coverage:.2f}"
        positive = np.array([self.stated, self.seen])
        ends = [positive[positive > 0].min(initial=np.inf), positive.max(initial=0)]
        diagonal, name = ends if ref_line else None, self.name if name is None else name
        ax = self._draw_curve(ax, self.stated, self.seen, diagonal, name, note, kwargs)
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
        pair = found.squared_difference.ravel(), found.stated.ravel()
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
        bins = {"stated": found.bin_stated, "seen": found.bin_seen}
        return cls(**bins, coverage=found.coverage, name=name).plot(**kwargs)
