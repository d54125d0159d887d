# SPDX-License-Identifier: BSD-3-Clause
"""Predictions and their uncertainty along one feature."""

from numbers import Real
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import Number
from .._utils.warnings import without_schema_warnings
from ..distributions import Uncertainty
from ..metrics import uncertainty_profile
from ._display import (
    ALEATORIC_COLOR,
    LINE_COLOR,
    TOTAL_COLOR,
    UNITS,
    Axes,
    Display,
    Keywords,
    documented_dataclass,
    draw,
    draw_reference,
    labelled,
    part_of,
)
from ._grids import check_line, check_target, grid_over, named_column


@documented_dataclass
class UncertaintyBandDisplay(Display):
    """A prediction along one feature, with its aleatoric and its total uncertainty.

    The inner band is the prediction plus and minus the aleatoric standard deviation, the outer one
    plus and minus the total.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Values of the feature, increasing.
    y_pred : ndarray of shape (n_points,)
        Predicted means there.
    std_total, std_aleatoric : ndarray of shape (n_points,)
        Standard deviations there, in units of y; the aleatoric ones may be None.
    x_true, y_true : ndarray of shape (n_samples,), default=None
        Data that are drawn as points: values of the feature, and true values.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The prediction.
    total_band_, aleatoric_band_ : matplotlib PolyCollection
        The outer band, and the inner one or None.
    scatter_ : matplotlib PathCollection or None
        The data.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.displays import UncertaintyBandDisplay
    >>> from skdistill.distributions import Uncertainty
    >>> x = np.linspace(-3, 3, 100)
    >>> aleatoric, epistemic = np.full(100, 0.04), 0.02 * x**2
    >>> uncertainty = Uncertainty(aleatoric + epistemic, aleatoric, epistemic, "variance")
    >>> UncertaintyBandDisplay.from_predictions(x, np.sin(x), uncertainty)
    <...UncertaintyBandDisplay object at ...>
    """

    x: np.ndarray
    y_pred: np.ndarray
    std_total: np.ndarray
    std_aleatoric: np.ndarray | None = None
    x_true: np.ndarray | None = None
    y_true: np.ndarray | None = None
    feature_name: str = "x"
    name: str | None = None

    def plot(
        self,
        ax: Axes | None = None,
        *,
        n_std: float = 1.0,
        name: str | None = None,
        scatter_kwargs: Keywords = None,
        aleatoric_kwargs: Keywords = None,
        total_kwargs: Keywords = None,
        **kwargs: object,
    ) -> Self:
        """Draw the line, the bands and the data.

        Parameters
        ----------
        n_std : float, default=1.0
            Half-width of the bands, in standard deviations.
        aleatoric_kwargs, total_kwargs : dict, default=None
            Keywords of `fill_between`, for the inner and the outer band.
        """
        Number(Real, 0, closed="neither").check(n_std, "n_std")
        ax = self._open(ax)
        label = (self.name if name is None else name) or "prediction"
        style = {"color": LINE_COLOR, "linewidth": 2, "label": label}
        self.line_ = draw(ax, "plot", self.x, self.y_pred, given=kwargs, **style)

        def band(std, part, given, **look):
            ends = self.y_pred - n_std * std, self.y_pred + n_std * std
            look |= {"linewidth": 0, "label": f"{part}, ± {n_std:g} std"}
            return ends, draw(ax, "fill_between", self.x, *ends, given=given, **look)

        self.aleatoric_band_, total = None, "total"
        if self.std_aleatoric is not None:
            part, total = "aleatoric", "aleatoric + epistemic"
            look = {"facecolor": ALEATORIC_COLOR, "zorder": 1.1}
            _, self.aleatoric_band_ = band(self.std_aleatoric, part, aleatoric_kwargs, **look)
        look = {"facecolor": TOTAL_COLOR, "zorder": 1.0}
        (low, high), self.total_band_ = band(self.std_total, total, total_kwargs, **look)

        self.scatter_ = None
        if self.y_true is not None:
            style = {"s": 10, "linewidth": 0, "alpha": 0.6, "zorder": 1.5, "label": "data"}
            if "c" not in (scatter_kwargs or {}):
                style["color"] = "black"
            data = self.x_true, self.y_true
            self.scatter_ = draw(ax, "scatter", *data, given=scatter_kwargs, **style)

        # Room for the legend, since matplotlib ignores bands when it places one.
        ax.update_datalim([(self.x[0], np.max(high) + 0.25 * (np.max(high) - np.min(low)))])
        ax.autoscale_view()
        ax.set(xlabel=self._literal(self.feature_name), ylabel="Prediction (units of y)")
        ax.legend(loc="upper center", ncols=2, fontsize="small")
        return self

    @classmethod
    @without_schema_warnings()
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        feature: int | str = 0,
        grid_resolution: int = 200,
        extend: float = 0.2,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the predictions of a fitted regressor along one column of X.

        The column runs over a grid; the other columns stay at their medians, or, where they are
        not numeric, at their most frequent value.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Samples that give the range of the column, and the medians of the others.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            True values of X, drawn as points; None draws none.
        feature : int or str, default=0
            The column: its position, or its name if X is a DataFrame.
        grid_resolution : int, default=200
            Number of points of the grid.
        extend : float, default=0.2
            How far the grid goes beyond the range on each side, as a fraction of its width.

        Raises
        ------
        ValueError
            If X has no such column, or it is not numeric, or constant.
        """
        cls._needs_matplotlib("from_estimator")
        grid = grid_over(X, [feature], grid_resolution, extend, "feature")
        (x,), X_grid, (x_true,), (feature_name,) = grid
        return cls.from_predictions(
            x,
            estimator.predict(X_grid),
            predict_uncertainty(estimator, X_grid),
            x_true=None if y is None else x_true,
            y_true=y,
            feature_name=feature_name,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        y_pred: ArrayLike,
        uncertainty: Uncertainty,
        *,
        x_true: Any = None,
        y_true: Any = None,
        target: int = 0,
        feature_name: str = "x",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
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

        Raises
        ------
        ValueError
            If lengths disagree, there is no such target, or the uncertainty is an entropy.
        """
        if uncertainty.measure not in ("variance", "std"):
            raise ValueError(
                "uncertainty must hold variances or standard deviations of a regressor, got "
                f"measure={uncertainty.measure!r}."
            )
        is_std = uncertainty.measure == "std"
        total, aleatoric, _ = uncertainty if is_std else uncertainty.std()
        x = check_line(x, "x")
        order = np.argsort(x, kind="stable")

        def along(values, name):
            return check_target(values, name, target, len(x))[order]

        if y_true is not None:
            x_true = x if x_true is None else check_line(x_true, "x_true")
            y_true = check_target(y_true, "y_true", target, len(x_true))
        elif x_true is not None:
            raise ValueError("x_true was given without y_true, and there is nothing to draw there.")

        return cls(
            x=x[order],
            y_pred=along(y_pred, "y_pred"),
            std_total=along(total, "uncertainty.total"),
            std_aleatoric=None if aleatoric is None else along(aleatoric, "uncertainty.aleatoric"),
            x_true=x_true,
            y_true=y_true,
            feature_name=feature_name,
            name=name,
        ).plot(**kwargs)


@documented_dataclass
class UncertaintyProfileDisplay(Display):
    """Mean uncertainty of samples by the values of one column.

    The epistemic part is large where a model knows little. A line joins groups of numbers, but not
    categories and missing values. The legend tells the share of the
    variance of its ranks that the groups of the column explain.

    Parameters
    ----------
    values, means, counts, explained
        As :func:`skdistill.metrics.uncertainty_profile` returns them.
    unit, part : str, default=None
        Unit of the uncertainty, and which part of it it is.

    Attributes
    ----------
    line_, mean_line_ : matplotlib Line2D
        The mean of each group, and of all samples; None if another model has drawn its own there.

    See Also
    --------
    skdistill.metrics.uncertainty_profile : The numbers.

    Examples
    --------
    >>> from skdistill.displays import UncertaintyProfileDisplay
    >>> UncertaintyProfileDisplay.from_predictions(
    ...     [3.0, 1.0, 3.0, 1.0, 3.2, 1.2], [-2, 0, 2, 0, -2, 0], feature_name="speed"
    ... )
    <...UncertaintyProfileDisplay object at ...>
    """

    values: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    explained: float
    unit: str | None = None
    part: str | None = None
    feature_name: str = "x"
    name: str | None = None

    def plot(
        self, ax: Any = None, *, name: str | None = None, plot_mean: bool = True, **kwargs: object
    ) -> Self:
        """Draw the means of the groups.

        Parameters
        ----------
        plot_mean : bool, default=True
            Whether to draw the mean of all samples.
        """
        ax, name = self._open(ax), self.name if name is None else name
        label = labelled(name, f"explained: {self.explained:.2f}")
        places, labels = self._places()
        values = np.asarray(self.values)
        is_numeric = values.dtype.kind in "iuf"
        style = {"linewidth": 2, "linestyle": "-" if is_numeric else "none", "marker": "o"}
        missing = np.flatnonzero(is_numeric and np.isnan(values))
        line = (np.insert(each, missing, np.nan) for each in (places, self.means))  # gaps before
        self.line_ = draw(ax, "plot", *line, given=kwargs, label=label, **style)
        self.mean_line_ = None
        if plot_mean:
            ends, mean = [min(places), max(places)], np.average(self.means, weights=self.counts)
            self.mean_line_ = draw_reference(ax, ends, [mean] * 2, "mean of all samples")
        if labels is not None:
            ax.set_xticks(places, map(self._literal, labels), rotation=30, ha="right")
        unit = f" ({self.unit})" if self.unit else ""
        ax.set(xlabel=self._literal(self.feature_name))
        ax.set(ylabel=self._literal(f"Mean {self.part or 'uncertainty'}{unit}"))
        ax.set_ylim(bottom=0, auto=True)  # the next model's means may be larger
        ax.legend(fontsize="small")
        return self

    def _places(self):
        """Places of the groups on the axis; and their labels, None where these are the places."""
        values = np.asarray(self.values)
        if values.dtype.kind in "iuf" and not np.isnan(values).any():
            return values, None
        names = ["missing" if v is None or v != v else f"{v:.3g}" if isinstance(v, float) else v
                 for v in values.tolist()]  # fmt: skip
        return np.arange(float(len(values))), names

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        *,
        feature: int | str = 0,
        part: str = "epistemic",
        n_bins: int = 10,
        target: int = 0,
        name: str | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the uncertainty of a fitted model by the values of a column of X.

        Parameters
        ----------
        feature : int or str, default=0
            The column, by position, or in a DataFrame by name.
        part : {"total", "aleatoric", "epistemic"}, default="epistemic"
            Which uncertainty.
        n_bins : int, default=10
            As in :func:`skdistill.metrics.uncertainty_profile`.

        Raises
        ------
        ValueError
            If there is no such column or target, or the model cannot tell the `part`.
        """
        cls._needs_matplotlib("from_estimator")
        uncertainty = predict_uncertainty(estimator, X)
        of_part = part_of(uncertainty, part)
        values, feature_name = named_column(X, feature, "feature")
        return cls.from_predictions(
            check_target(of_part, f"the {part} uncertainty", target),
            values,
            n_bins=n_bins,
            unit=UNITS[uncertainty.measure],
            part=part,
            feature_name=feature_name,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        uncertainty: ArrayLike,
        values: ArrayLike,
        *,
        n_bins: int = 10,
        unit: str | None = None,
        part: str | None = None,
        feature_name: str = "x",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw given uncertainties by the values of a column.

        Parameters
        ----------
        uncertainty, values, n_bins
            As in :func:`skdistill.metrics.uncertainty_profile`.
        unit, part : as in :class:`UncertaintyProfileDisplay`
        """
        found: dict[str, Any] = uncertainty_profile(uncertainty, values, n_bins=n_bins)._asdict()
        found |= {"unit": unit, "part": part, "feature_name": feature_name, "name": name}
        return cls(**found).plot(**kwargs)
