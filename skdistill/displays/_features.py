# SPDX-License-Identifier: BSD-3-Clause
"""Predictions and their uncertainty along one feature."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import Number
from .._utils.warnings import without_schema_warnings
from ..distributions import Uncertainty
from ._display import (
    ALEATORIC_COLOR,
    LINE_COLOR,
    TOTAL_COLOR,
    Axes,
    Display,
    check_line,
    check_target,
    draw,
    literal,
)
from ._grids import grid_over


@dataclass(kw_only=True, eq=False, repr=False)
class UncertaintyBandDisplay(Display):
    """A prediction along one feature, with its aleatoric and its total uncertainty.

    The inner band is the prediction plus and minus the aleatoric standard deviation, the outer one
    plus and minus the total. :meth:`from_estimator` or :meth:`from_predictions` create it. All
    parameters are stored as attributes.

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
    feature_name : str, default="x"
        Label of the horizontal axis.
    name : str, default=None
        Name of the prediction in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The prediction.
    total_band_, aleatoric_band_ : matplotlib PolyCollection
        The outer band, and the inner one or None.
    scatter_ : matplotlib PathCollection or None
        The data.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

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
        **kwargs: object,
    ) -> Self:
        """Draw the line, the bands and the data.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        n_std : float, default=1.0
            Half-width of the bands, in standard deviations.
        name : str, default=None
            Name of the prediction in the legend; None is that of the display.
        **kwargs : dict
            Keywords of `plot`, for the line.

        Returns
        -------
        display : UncertaintyBandDisplay
        """
        Number(Real, 0, closed="neither").check(n_std, "n_std")
        ax = self._open(ax)
        label = (self.name if name is None else name) or "prediction"
        style: dict[str, Any] = {"color": LINE_COLOR, "linewidth": 2, "label": label}
        self.line_ = draw(ax, "plot", self.x, self.y_pred, given=kwargs, **style)

        def band(std, part, **look):
            ends = self.y_pred - n_std * std, self.y_pred + n_std * std
            look |= {"linewidth": 0, "label": f"{part}, ± {n_std:g} std"}
            return ends, ax.fill_between(self.x, *ends, **look)

        self.aleatoric_band_, total = None, "total"
        if self.std_aleatoric is not None:
            part, total = "aleatoric", "aleatoric + epistemic"
            look = {"facecolor": ALEATORIC_COLOR, "zorder": 1.1}
            _, self.aleatoric_band_ = band(self.std_aleatoric, part, **look)
        look = {"facecolor": TOTAL_COLOR, "zorder": 1.0}
        (low, high), self.total_band_ = band(self.std_total, total, **look)

        self.scatter_ = None
        if self.y_true is not None:
            style = {"s": 10, "linewidth": 0, "alpha": 0.6, "zorder": 1.5, "color": "black"}
            style |= {"label": "data"}
            self.scatter_ = draw(ax, "scatter", self.x_true, self.y_true, **style)

        # Room for the legend, since matplotlib ignores bands when it places one.
        ax.update_datalim([(self.x[0], np.max(high) + 0.25 * (np.max(high) - np.min(low)))])
        ax.autoscale_view()
        ax.set(xlabel=literal(self.feature_name), ylabel="Prediction (units of y)")
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
        estimator : estimator
            Fitted, with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.
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
        name : str, default=None
            Name of the prediction in the legend; None is that of the model's class.
        **kwargs : dict
            Keywords of :meth:`from_predictions` and :meth:`plot`.

        Returns
        -------
        display : UncertaintyBandDisplay

        Raises
        ------
        ValueError
            If X has no such column, or it is not numeric, or constant.
        """
        cls._needs_matplotlib("from_estimator")
        x, X_grid, x_true, feature_name = grid_over(X, feature, grid_resolution, extend)
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
        target : int, default=0
            Which target to draw where there are several.
        feature_name : str, default="x"
            Label of the horizontal axis.
        name : str, default=None
            Name of the prediction in the legend.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : UncertaintyBandDisplay

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
