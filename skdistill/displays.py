# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of predictive distributions: bands, sparsification curves, calibration curves.

As in scikit-learn, a display holds the data of its picture, `from_estimator` and
`from_predictions` compute them, and `plot` draws them again with another style. matplotlib is
needed only there.
"""

from __future__ import annotations

from collections import Counter
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array, check_scalar

from ._through import predict_quantiles, predict_uncertainty
from .metrics import (
    ause,
    regression_calibration_curve,
    regression_calibration_error,
    sparsification_curve,
)

__all__ = ["RegressionCalibrationDisplay", "SparsificationDisplay", "UncertaintyBandDisplay"]

# From the palette of Okabe and Ito, told apart under every common colour-vision deficiency; the
# bands are lighter tints of its sky blue and orange, and differ in lightness too.
_LINE_COLOR = "#0072B2"
_ALEATORIC_COLOR = "#9CCEEE"
_TOTAL_COLOR = "#F6D9A0"
_REFERENCE_COLOR = "#4D4D4D"


def _import_pyplot(caller):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install skdistill[plot]") from error
    return plt


def _merge_style(artist, defaults, given):
    """Defaults overridden by what the user gave, short names such as `lw` included."""
    from matplotlib.cbook import normalize_kwargs

    return {**defaults, **normalize_kwargs(given or {}, artist)}


def _draw_reference(ax, x, y, label, **style):
    """Draw a reference line unless the axes have it already; return the line or None."""
    if label in ax.get_legend_handles_labels()[1]:
        return None
    return ax.plot(x, y, label=label, **style)[0]


def _leave_room_above(ax, x, low, high, fraction=0.25):
    """Make room for a legend, whose best place matplotlib seeks without regard to the bands."""
    top = np.max(high) + fraction * (np.max(high) - np.min(low))
    ax.update_datalim([(x, top)])
    ax.autoscale_view()


def _labelled(name, score):
    return f"{name} ({score})" if name else score


# --------------------------------------------------------------------------------------
# Bands
# --------------------------------------------------------------------------------------


class UncertaintyBandDisplay:
    """A prediction along one feature, with its aleatoric and its total uncertainty.

    The inner band is the prediction plus and minus the aleatoric standard deviation, the outer
    one the total standard deviation: what the outer band adds is the epistemic part.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create it. All parameters are stored
    as attributes.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Values of the feature, increasing.

    y_pred : ndarray of shape (n_points,)
        Predicted means there.

    std_total : ndarray of shape (n_points,)
        Total standard deviations there, in units of y.

    std_aleatoric : ndarray of shape (n_points,), default=None
        Aleatoric standard deviations; None where the model cannot tell the parts, and then only
        the total band is drawn.

    x_true : ndarray of shape (n_samples,), default=None
        Values of the feature in the data that are drawn as points.

    y_true : ndarray of shape (n_samples,), default=None
        True values of these data; None draws no points.

    feature_name : str, default="x"
        Label of the horizontal axis.

    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The prediction.

    total_band_ : matplotlib PolyCollection
        The outer band.

    aleatoric_band_ : matplotlib PolyCollection or None
        The inner band.

    scatter_ : matplotlib PathCollection or None
        The data.

    ax_ : matplotlib Axes
        Where all is drawn.

    figure_ : matplotlib Figure
        The figure of `ax_`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from skdistill.displays import UncertaintyBandDisplay
    >>> from skdistill.distributions import Uncertainty
    >>> x = np.linspace(-3, 3, 100)
    >>> aleatoric, epistemic = np.full(100, 0.04), 0.02 * x**2
    >>> uncertainty = Uncertainty(aleatoric + epistemic, aleatoric, epistemic, "variance")
    >>> UncertaintyBandDisplay.from_predictions(x, np.sin(x), uncertainty)
    <...UncertaintyBandDisplay object at ...>
    >>> plt.show()
    """

    def __init__(
        self,
        *,
        x,
        y_pred,
        std_total,
        std_aleatoric=None,
        x_true=None,
        y_true=None,
        feature_name="x",
        name=None,
    ):
        self.x = x
        self.y_pred = y_pred
        self.std_total = std_total
        self.std_aleatoric = std_aleatoric
        self.x_true = x_true
        self.y_true = y_true
        self.feature_name = feature_name
        self.name = name

    def plot(
        self,
        ax=None,
        *,
        n_std=1.0,
        name=None,
        scatter_kwargs=None,
        aleatoric_kwargs=None,
        total_kwargs=None,
        **kwargs,
    ):
        """Draw the line, the bands and the data.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        n_std : float, default=1.0
            Half-width of the bands, in standard deviations.

        name : str, default=None
            Name of the model in the legend; None uses the stored one.

        scatter_kwargs : dict, default=None
            Keywords of `scatter`, for the data.

        aleatoric_kwargs : dict, default=None
            Keywords of `fill_between`, for the inner band.

        total_kwargs : dict, default=None
            Keywords of `fill_between`, for the outer band.

        **kwargs : dict
            Keywords of `plot`, for the line of the prediction.

        Returns
        -------
        display : UncertaintyBandDisplay
            The display itself.
        """
        plt = _import_pyplot(f"{type(self).__name__}.plot")
        from matplotlib.collections import PathCollection, PolyCollection
        from matplotlib.lines import Line2D

        check_scalar(n_std, "n_std", Real, min_val=0, include_boundaries="neither")
        if ax is None:
            _, ax = plt.subplots()

        name = self.name if name is None else name
        line_style = {"color": _LINE_COLOR, "linewidth": 2, "label": name or "prediction"}
        self.line_ = ax.plot(self.x, self.y_pred, **_merge_style(Line2D, line_style, kwargs))[0]

        def band(std, color, zorder, part, given):
            label = f"{part}, ± {n_std:g} std"
            style = {"facecolor": color, "linewidth": 0, "zorder": zorder, "label": label}
            low, high = self.y_pred - n_std * std, self.y_pred + n_std * std
            return ax.fill_between(self.x, low, high, **_merge_style(PolyCollection, style, given))

        self.aleatoric_band_, total = None, "total"
        if self.std_aleatoric is not None:
            self.aleatoric_band_ = band(
                self.std_aleatoric, _ALEATORIC_COLOR, 1.1, "aleatoric", aleatoric_kwargs
            )
            total = "aleatoric + epistemic"
        self.total_band_ = band(self.std_total, _TOTAL_COLOR, 1.0, total, total_kwargs)

        self.scatter_ = None
        if self.y_true is not None:
            style = {"s": 10, "linewidth": 0, "alpha": 0.6, "zorder": 1.5, "label": "data"}
            if "c" not in (scatter_kwargs or {}):
                style["color"] = "black"
            style = _merge_style(PathCollection, style, scatter_kwargs)
            self.scatter_ = ax.scatter(self.x_true, self.y_true, **style)

        _leave_room_above(
            ax,
            self.x[0],
            self.y_pred - n_std * self.std_total,
            self.y_pred + n_std * self.std_total,
        )
        ax.set(xlabel=self.feature_name, ylabel="Prediction (units of y)")
        ax.legend(loc="upper center", ncols=2, fontsize="small")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        feature=0,
        target=0,
        grid_resolution=200,
        extend=0.2,
        n_std=1.0,
        name=None,
        ax=None,
        scatter_kwargs=None,
        aleatoric_kwargs=None,
        total_kwargs=None,
        **kwargs,
    ):
        """Draw the predictions of a fitted regressor along one column of X.

        The column runs over a grid; the other columns stay at their medians, or, where they are
        not numeric, at their most frequent value.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.

        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows that give the range of the column, the medians of the others, and the places of
            the points.

        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            True values, drawn as points; None draws none.

        feature : int or str, default=0
            The column: its position, or its name if X is a DataFrame.

        target : int, default=0
            Which target to draw where there are several.

        grid_resolution : int, default=200
            Number of points of the grid.

        extend : float, default=0.2
            How far the grid goes beyond the range of the column, on each side, as a fraction of
            its width.

        n_std : float, default=1.0
            Half-width of the bands, in standard deviations.

        name : str, default=None
            Name of the model in the legend; None uses the name of its class.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        scatter_kwargs : dict, default=None
            Keywords of `scatter`, for the data.

        aleatoric_kwargs : dict, default=None
            Keywords of `fill_between`, for the inner band.

        total_kwargs : dict, default=None
            Keywords of `fill_between`, for the outer band.

        **kwargs : dict
            Keywords of `plot`, for the line of the prediction.

        Returns
        -------
        display : UncertaintyBandDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If X has no such column, or it is not numeric, or constant.
        """
        _import_pyplot(f"{cls.__name__}.from_estimator")
        x, X_grid, x_true, feature_name = _grid_along(X, feature, grid_resolution, extend)
        return cls.from_predictions(
            x,
            estimator.predict(X_grid),
            predict_uncertainty(estimator, X_grid),
            x_true=None if y is None else x_true,
            y_true=y,
            target=target,
            feature_name=feature_name,
            n_std=n_std,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            scatter_kwargs=scatter_kwargs,
            aleatoric_kwargs=aleatoric_kwargs,
            total_kwargs=total_kwargs,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        x,
        y_pred,
        uncertainty,
        *,
        x_true=None,
        y_true=None,
        target=0,
        feature_name="x",
        n_std=1.0,
        name=None,
        ax=None,
        scatter_kwargs=None,
        aleatoric_kwargs=None,
        total_kwargs=None,
        **kwargs,
    ):
        """Draw given predictions.

        Parameters
        ----------
        x : array-like of shape (n_points,)
            Values of the feature, in any order.

        y_pred : array-like of shape (n_points,) or (n_points, n_targets)
            Predicted means there.

        uncertainty : Uncertainty
            Variances of the shape of `y_pred`, as `predict_uncertainty` returns them, or their
            standard deviations. The parts may be None.

        x_true : array-like of shape (n_samples,), default=None
            Values of the feature in the data; None means `x`.

        y_true : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            True values, drawn as points; None draws none.

        target : int, default=0
            Which target to draw where there are several.

        feature_name : str, default="x"
            Label of the horizontal axis.

        n_std : float, default=1.0
            Half-width of the bands, in standard deviations.

        name : str, default=None
            Name of the model in the legend.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        scatter_kwargs : dict, default=None
            Keywords of `scatter`, for the data.

        aleatoric_kwargs : dict, default=None
            Keywords of `fill_between`, for the inner band.

        total_kwargs : dict, default=None
            Keywords of `fill_between`, for the outer band.

        **kwargs : dict
            Keywords of `plot`, for the line of the prediction.

        Returns
        -------
        display : UncertaintyBandDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If lengths disagree, there is no such target, or the uncertainty is an entropy.
        """
        _import_pyplot(f"{cls.__name__}.from_predictions")
        if uncertainty.measure not in ("variance", "std"):
            raise ValueError(
                "uncertainty must hold variances or standard deviations of a regressor, got "
                f"measure={uncertainty.measure!r}."
            )
        total, aleatoric, _ = (
            uncertainty.std() if uncertainty.measure == "variance" else uncertainty
        )

        x = _check_line(x, "x")
        order = np.argsort(x, kind="stable")

        def along(values, name):
            return _check_target(values, name, target, len(x))[order]

        if y_true is not None:
            x_true = x if x_true is None else _check_line(x_true, "x_true")
            y_true = _check_target(y_true, "y_true", target, len(x_true))
        elif x_true is not None:
            raise ValueError("x_true was given without y_true, and there is nothing to draw there.")

        display = cls(
            x=x[order],
            y_pred=along(y_pred, "y_pred"),
            std_total=along(total, "uncertainty.total"),
            std_aleatoric=None if aleatoric is None else along(aleatoric, "uncertainty.aleatoric"),
            x_true=x_true,
            y_true=y_true,
            feature_name=feature_name,
            name=name,
        )
        return display.plot(
            ax=ax,
            n_std=n_std,
            scatter_kwargs=scatter_kwargs,
            aleatoric_kwargs=aleatoric_kwargs,
            total_kwargs=total_kwargs,
            **kwargs,
        )


def _check_line(values, name):
    """Return `values`, missing ones allowed, as a float array of shape (n,)."""
    array = check_array(
        values, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan", input_name=name
    )
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {array.shape}.")
    return array


def _check_target(values, name, target, n_rows):
    """Return the column `target` of `values`, shape (n_rows,) or (n_rows, t)."""
    columns = check_array(values, dtype=np.float64, ensure_2d=False, input_name=name)
    columns = columns.reshape(len(columns), -1)
    if len(columns) != n_rows:
        raise ValueError(f"{name} must have {n_rows} rows, one for each x, got {len(columns)}.")
    if not isinstance(target, Integral) or not 0 <= int(target) < columns.shape[1]:
        raise ValueError(
            f"target must be an integer from 0 to {columns.shape[1] - 1}, one of the columns of "
            f"{name}, got {target!r}."
        )
    return columns[:, target]


def _grid_along(X, feature, grid_resolution, extend):
    """Return the grid (g,), the rows on it, the feature's values in X (n,), and its name."""
    check_scalar(grid_resolution, "grid_resolution", Integral, min_val=2)
    check_scalar(extend, "extend", Real, min_val=0)

    is_frame = hasattr(X, "columns")
    if not is_frame:
        X = check_array(X, ensure_all_finite="allow-nan", input_name="X")
    names = list(X.columns) if is_frame else [f"feature {i}" for i in range(X.shape[1])]
    position = _check_feature(feature, names, is_frame)
    columns = [np.asarray(X[name] if is_frame else X[:, i]) for i, name in enumerate(names)]

    x_true = columns[position]
    x = _extended_range(x_true, grid_resolution, extend, names[position])
    grid = [np.repeat(_typical_value(column), grid_resolution) for column in columns]
    grid[position] = x
    X_grid = _grid_frame(X, grid) if is_frame else np.column_stack(grid)
    return x, X_grid, x_true, str(names[position])


def _check_feature(feature, names, is_frame):
    """Return the position of a feature given by position or, in a frame, by name."""
    if is_frame and isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, Integral) and 0 <= int(feature) < len(names):
        return int(feature)
    by_name = f" or one of the names {names}" if is_frame else ""
    raise ValueError(
        f"feature must be a position from 0 to {len(names) - 1}{by_name}, got {feature!r}."
    )


def _is_numeric(column):
    return column.dtype.kind in "iuf"


def _extended_range(column, grid_resolution, extend, name):
    """Grid over the range of a column and beyond, in its own precision if it is floating."""
    if not _is_numeric(column):
        raise ValueError(f"feature must be a numeric column, got {name!r} of {column.dtype}.")
    low, high = np.nanmin(column), np.nanmax(column)
    if not low < high:
        raise ValueError(f"feature must be a column that varies, got {name!r}, always {low}.")
    margin = extend * (high - low)
    grid = np.linspace(low - margin, high + margin, grid_resolution)
    return grid.astype(np.result_type(column, np.float16), copy=False)


def _typical_value(column):
    """Median of a numeric column, most frequent value of another."""
    return np.nanmedian(column) if _is_numeric(column) else Counter(column).most_common(1)[0][0]


def _grid_frame(X, columns):
    """Frame of X's own kind, pandas or polars, with X's dtypes where a median keeps them."""
    frame = type(X)(dict(zip(X.columns, columns, strict=True)))
    kept = {
        name: X[name].dtype
        for name in X.columns
        if not _is_numeric(np.asarray(X[name]))  # a median of integers need not be one
    }
    return frame.astype(kept) if hasattr(frame, "astype") else frame.cast(kept)


# --------------------------------------------------------------------------------------
# Sparsification
# --------------------------------------------------------------------------------------


class SparsificationDisplay:
    """Error of the rows that remain as the most uncertain ones are removed.

    The nearer the model's curve is to the oracle's, which removes the largest errors first, the
    better the uncertainty ranks the errors; the area between them is the AUSE.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create it. All parameters are stored
    as attributes.

    Parameters
    ----------
    fraction_removed : ndarray of shape (n_points,)
        Fraction of the rows removed.

    model_curve : ndarray of shape (n_points,)
        Mean squared error of the remaining rows over that of all rows.

    oracle_curve : ndarray of shape (n_points,)
        The same for the oracle.

    ause : float, default=None
        Area between the curves, shown in the legend unless None.

    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The model's curve.

    oracle_line_ : matplotlib Line2D or None
        The oracle's curve.

    area_ : matplotlib PolyCollection or None
        The shaded area between them.

    ax_ : matplotlib Axes
        Where all is drawn.

    figure_ : matplotlib Figure
        The figure of `ax_`.

    See Also
    --------
    skdistill.metrics.sparsification_curve : What is drawn.
    skdistill.metrics.ause : The area.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skdistill.displays import SparsificationDisplay
    >>> SparsificationDisplay.from_predictions(
    ...     y_true=[2.0, 0.0, 1.0, 1.0], y_pred=[0.0, 0.0, 0.0, 0.0], uncertainty=[3, 1, 4, 2]
    ... )
    <...SparsificationDisplay object at ...>
    >>> plt.show()
    """

    def __init__(self, *, fraction_removed, model_curve, oracle_curve, ause=None, name=None):
        self.fraction_removed = fraction_removed
        self.model_curve = model_curve
        self.oracle_curve = oracle_curve
        self.ause = ause
        self.name = name

    def plot(self, ax=None, *, name=None, plot_oracle=True, oracle_kwargs=None, **kwargs):
        """Draw the curves and the area between them.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        name : str, default=None
            Name of the model in the legend; None uses the stored one.

        plot_oracle : bool, default=True
            Whether to draw the oracle's curve and shade the area.

        oracle_kwargs : dict, default=None
            Keywords of `plot`, for the oracle's curve.

        **kwargs : dict
            Keywords of `plot`, for the model's curve.

        Returns
        -------
        display : SparsificationDisplay
            The display itself.
        """
        plt = _import_pyplot(f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        if ax is None:
            _, ax = plt.subplots()

        name = self.name if name is None else name
        label = name if self.ause is None else _labelled(name, f"AUSE = {self.ause:.3f}")
        style = _merge_style(Line2D, {"linewidth": 2, "label": label}, kwargs)
        self.line_ = ax.plot(self.fraction_removed, self.model_curve, **style)[0]

        self.oracle_line_ = self.area_ = None
        if plot_oracle:
            color = self.line_.get_color()
            oracle_label = f"oracle of {name}" if name else "oracle"
            oracle_style = {"color": color, "linestyle": "--", "label": oracle_label}
            self.oracle_line_ = ax.plot(
                self.fraction_removed,
                self.oracle_curve,
                **_merge_style(Line2D, oracle_style, oracle_kwargs),
            )[0]
            self.area_ = ax.fill_between(
                self.fraction_removed,
                self.oracle_curve,
                self.model_curve,
                color=color,
                alpha=0.12,
                linewidth=0,
            )

        ax.set(
            xlabel="Fraction of rows removed, most uncertain first",
            ylabel="MSE of the remaining rows / MSE of all rows",
            xlim=(0, 1),
        )
        ax.set_ylim(bottom=0)
        ax.legend(fontsize="small")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        sample_weight=None,
        name=None,
        ax=None,
        plot_oracle=True,
        oracle_kwargs=None,
        **kwargs,
    ):
        """Draw how well the total uncertainty of a fitted regressor ranks its errors.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.

        X : array-like of shape (n_samples, n_features)
            Rows, preferably held out.

        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            True values.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        name : str, default=None
            Name of the model in the legend; None uses the name of its class.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        plot_oracle : bool, default=True
            Whether to draw the oracle's curve and shade the area.

        oracle_kwargs : dict, default=None
            Keywords of `plot`, for the oracle's curve.

        **kwargs : dict
            Keywords of `plot`, for the model's curve.

        Returns
        -------
        display : SparsificationDisplay
            The display, drawn.
        """
        _import_pyplot(f"{cls.__name__}.from_estimator")
        return cls.from_predictions(
            y,
            estimator.predict(X),
            predict_uncertainty(estimator, X).total,
            sample_weight=sample_weight,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            plot_oracle=plot_oracle,
            oracle_kwargs=oracle_kwargs,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        uncertainty,
        *,
        sample_weight=None,
        name=None,
        ax=None,
        plot_oracle=True,
        oracle_kwargs=None,
        **kwargs,
    ):
        """Draw how well given uncertainties rank the errors of given predictions.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
            True values.

        y_pred : array-like of the shape of `y_true`
            Predicted means.

        uncertainty : array-like of shape (n_samples,) or the shape of `y_true`
            What the rows are sorted by, usually the total variance.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        name : str, default=None
            Name of the model in the legend.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        plot_oracle : bool, default=True
            Whether to draw the oracle's curve and shade the area.

        oracle_kwargs : dict, default=None
            Keywords of `plot`, for the oracle's curve.

        **kwargs : dict
            Keywords of `plot`, for the model's curve.

        Returns
        -------
        display : SparsificationDisplay
            The display, drawn.
        """
        _import_pyplot(f"{cls.__name__}.from_predictions")
        arrays = (y_true, y_pred, uncertainty)
        fraction_removed, model_curve, oracle_curve = sparsification_curve(
            *arrays, sample_weight=sample_weight
        )
        display = cls(
            fraction_removed=fraction_removed,
            model_curve=model_curve,
            oracle_curve=oracle_curve,
            ause=ause(*arrays, sample_weight=sample_weight),
            name=name,
        )
        return display.plot(ax=ax, plot_oracle=plot_oracle, oracle_kwargs=oracle_kwargs, **kwargs)


# --------------------------------------------------------------------------------------
# Calibration
# --------------------------------------------------------------------------------------


class RegressionCalibrationDisplay:
    """How often the true value lies at or below each predicted quantile.

    A calibrated model follows the diagonal. A curve that is steeper than it in the middle comes
    from distributions that are too wide, a flatter one from distributions that are too narrow, and
    one that stays above or below from predictions that are too high or too low.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create it. All parameters are stored
    as attributes.

    Parameters
    ----------
    nominal : ndarray of shape (n_quantiles,)
        Levels of the quantiles.

    observed : ndarray of shape (n_quantiles,)
        Fraction of the true values at or below them.

    calibration_error : float, default=None
        Mean absolute deviation between the two, shown in the legend unless None.

    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.

    ref_line_ : matplotlib Line2D or None
        The diagonal; None if it is not wanted, or on the axes already.

    ax_ : matplotlib Axes
        Where all is drawn.

    figure_ : matplotlib Figure
        The figure of `ax_`.

    See Also
    --------
    skdistill.metrics.regression_calibration_curve : What is drawn.
    skdistill.metrics.regression_calibration_error : The error in the legend.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skdistill.displays import RegressionCalibrationDisplay
    >>> RegressionCalibrationDisplay.from_predictions(
    ...     [1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, quantiles=[0.2, 0.5]
    ... )
    <...RegressionCalibrationDisplay object at ...>
    >>> plt.show()
    """

    def __init__(self, *, nominal, observed, calibration_error=None, name=None):
        self.nominal = nominal
        self.observed = observed
        self.calibration_error = calibration_error
        self.name = name

    def plot(self, ax=None, *, name=None, ref_line=True, **kwargs):
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        name : str, default=None
            Name of the model in the legend; None uses the stored one.

        ref_line : bool, default=True
            Whether to draw the diagonal.

        **kwargs : dict
            Keywords of `plot`, for the curve.

        Returns
        -------
        display : RegressionCalibrationDisplay
            The display itself.
        """
        plt = _import_pyplot(f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        if ax is None:
            _, ax = plt.subplots()

        self.ref_line_ = None
        if ref_line:
            style = {"color": _REFERENCE_COLOR, "linestyle": ":", "zorder": 1.5}
            self.ref_line_ = _draw_reference(ax, [0, 1], [0, 1], "perfectly calibrated", **style)

        label = self.name if name is None else name
        if self.calibration_error is not None:
            label = _labelled(label, f"error = {self.calibration_error:.3f}")
        style = {"linewidth": 2, "marker": "o", "markersize": 5, "label": label}
        self.line_ = ax.plot(self.nominal, self.observed, **_merge_style(Line2D, style, kwargs))[0]

        ax.set(
            xlabel="Nominal level of the predicted quantile",
            ylabel="Observed fraction of y at or below it",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        ax.legend(fontsize="small")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        quantiles=None,
        sample_weight=None,
        name=None,
        ax=None,
        ref_line=True,
        **kwargs,
    ):
        """Draw the calibration curve of a fitted regressor.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor with `predict_quantiles`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.

        X : array-like of shape (n_samples, n_features)
            Rows, preferably held out.

        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            True values.

        quantiles : array-like of shape (n_quantiles,), default=None
            Levels, increasing, strictly between 0 and 1; None means 0.05, 0.1, ..., 0.95.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        name : str, default=None
            Name of the model in the legend; None uses the name of its class.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        ref_line : bool, default=True
            Whether to draw the diagonal.

        **kwargs : dict
            Keywords of `plot`, for the curve.

        Returns
        -------
        display : RegressionCalibrationDisplay
            The display, drawn.
        """
        _import_pyplot(f"{cls.__name__}.from_estimator")
        quantiles = np.linspace(0.05, 0.95, 19) if quantiles is None else np.asarray(quantiles)
        return cls.from_predictions(
            y,
            predict_quantiles(estimator, X, quantiles),
            quantiles,
            sample_weight=sample_weight,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            ref_line=ref_line,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_quantiles,
        quantiles,
        *,
        sample_weight=None,
        name=None,
        ax=None,
        ref_line=True,
        **kwargs,
    ):
        """Draw the calibration curve of given quantiles.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
            True values.

        y_quantiles : array-like of shape (n_samples, n_quantiles) or \
                (n_samples, n_targets, n_quantiles)
            Predicted quantiles.

        quantiles : array-like of shape (n_quantiles,)
            Their nominal levels, increasing, strictly between 0 and 1.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        name : str, default=None
            Name of the model in the legend.

        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.

        ref_line : bool, default=True
            Whether to draw the diagonal.

        **kwargs : dict
            Keywords of `plot`, for the curve.

        Returns
        -------
        display : RegressionCalibrationDisplay
            The display, drawn.
        """
        _import_pyplot(f"{cls.__name__}.from_predictions")
        arrays = (y_true, y_quantiles, quantiles)
        nominal, observed = regression_calibration_curve(*arrays, sample_weight=sample_weight)
        display = cls(
            nominal=nominal,
            observed=observed,
            calibration_error=regression_calibration_error(*arrays, sample_weight=sample_weight),
            name=name,
        )
        return display.plot(ax=ax, ref_line=ref_line, **kwargs)
