# SPDX-License-Identifier: BSD-3-Clause
"""Maps over two features: what a model predicts, and how uncertain it is."""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier

from .._estimator.functions import predict_uncertainty
from .._utils.warnings import without_schema_warnings
from ..distributions import Uncertainty
from ._display import (
    CLASS_COLORS,
    PARTS,
    UNITS,
    Axes,
    Display,
    Keywords,
    documented_dataclass,
    draw,
    known_parts,
)
from ._grids import check_target, grid_over


@documented_dataclass
class DecisionUncertaintyDisplay(Display):
    """What a model predicts over two features, and a map of each part of its uncertainty.

    The first panel shows the predicted class, or the mean of a regressor; the others the total,
    the aleatoric and the epistemic uncertainty, each on a scale of its own unless `vmax` is given.

    Parameters
    ----------
    xx0, xx1 : ndarray of shape (grid_resolution, grid_resolution)
        The two features on the grid.
    prediction : ndarray of shape (grid_resolution, grid_resolution)
        Predicted means there, or positions in `classes` of the predicted classes.
    uncertainty : Uncertainty
        Arrays of the same shape. The parts may be None.
    classes : ndarray of shape (n_classes,), default=None
        Labels of a classifier; None for a regressor.
    x_true : ndarray of shape (n_samples, 2), default=None
        Features of the data that are drawn as points; None draws none.
    y_true : ndarray of shape (n_samples,), default=None
        Their true values, or positions in `classes` of their labels: the colours of the points in
        the first panel.
    feature_names : tuple of two str, default=("feature 0", "feature 1")
        Labels of the axes.

    Attributes
    ----------
    prediction_map_, uncertainty_maps_ : matplotlib QuadMesh, and dict of str to QuadMesh
        The predictions, and the map of each part.
    scatters_ : list of matplotlib PathCollection
        The data, in each panel.

    See Also
    --------
    sklearn.inspection.DecisionBoundaryDisplay : Maps of probabilities.
    UncertaintyBandDisplay : The prediction of a regressor along one feature.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.displays import DecisionUncertaintyDisplay
    >>> X, y = make_moons(noise=0.2, random_state=0)
    >>> ensemble = BayesianEnsembleClassifier(5, max_epochs=5, random_state=0).fit(X, y)
    >>> DecisionUncertaintyDisplay.from_estimator(ensemble, X, y, grid_resolution=30)
    <...DecisionUncertaintyDisplay object at ...>
    """

    xx0: np.ndarray
    xx1: np.ndarray
    prediction: np.ndarray
    uncertainty: Uncertainty
    classes: Any = None
    x_true: Any = None
    y_true: np.ndarray | None = None
    feature_names: tuple[str, ...] = ("feature 0", "feature 1")

    def plot(
        self,
        ax: Axes | Sequence[Axes] | None = None,
        *,
        prediction_kwargs: Keywords = None,
        scatter_kwargs: Keywords = None,
        **kwargs: object,
    ) -> Self:
        """Draw the maps and the data.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            Axes to draw on: one for the predictions, and one for each part of the uncertainty that
            is not None. None creates a new figure.
        prediction_kwargs : dict, default=None
            Keywords of `pcolormesh`, for the predictions.
        **kwargs : dict
            Keywords of `pcolormesh`, for the maps of the uncertainty.
        """
        maps = known_parts(self.uncertainty)
        axes = self._open_panels(ax, 1 + len(maps), (3.9, 3.6), sharex=True, sharey=True)
        self.prediction_map_ = self._draw_prediction(axes[0], prediction_kwargs)
        unit = UNITS[self.uncertainty.measure]
        self.uncertainty_maps_ = {}
        for panel, (part, values) in zip(axes[1:], maps.items(), strict=True):
            drawn = self._draw_map(panel, values, {"cmap": "cividis", "vmin": 0}, kwargs)
            self.figure_.colorbar(drawn, ax=panel, label=unit)
            panel.set_title(f"{part.capitalize()} uncertainty")
            self.uncertainty_maps_[part] = drawn
        self.scatters_ = [] if self.x_true is None else self._draw_data(scatter_kwargs)
        for panel in axes:
            panel.set_xlabel(self._literal(self.feature_names[0]))
        axes[0].set_ylabel(self._literal(self.feature_names[1]))
        return self

    def _draw_map(self, ax, values, defaults, given):
        style = {"shading": "nearest", "rasterized": True, **defaults}
        return draw(ax, "pcolormesh", self.xx0, self.xx1, values, given=given, **style)

    def _draw_prediction(self, ax, given):
        if self.classes is None:
            drawn = self._draw_map(ax, self.prediction, {"cmap": "viridis"}, given)
            self.figure_.colorbar(drawn, ax=ax, label="units of y")
            ax.set_title("Predicted mean")
            return drawn
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        n_classes = len(self.classes)
        cmap: Any = ListedColormap(CLASS_COLORS[:n_classes])
        if n_classes > len(CLASS_COLORS):
            cmap = colormaps["turbo"].resampled(n_classes)
        style = {"cmap": cmap, "vmin": -0.5, "vmax": n_classes - 0.5}
        drawn = self._draw_map(ax, self.prediction, {**style, "alpha": 0.45}, given)
        self._draw_legend(ax, drawn.cmap)
        ax.set_title("Predicted class")
        return drawn

    def _draw_legend(self, ax, colormap):
        """Name the classes below the axes, where no region is covered."""
        from matplotlib.patches import Patch
        from matplotlib.transforms import ScaledTranslation

        below_labels = ScaledTranslation(0, -40 / 72, self.figure_.dpi_scale_trans)
        patches = [
            Patch(facecolor=colormap(k), label=self._literal(c)) for k, c in enumerate(self.classes)
        ]
        ax.legend(
            handles=patches,
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            bbox_transform=ax.transAxes + below_labels,
            ncols=min(len(self.classes), 5),
            fontsize="small",
        )

    def _draw_data(self, given):
        given = given or {}
        shown = self.prediction_map_
        first = {"s": 16, "linewidths": 0.5, "edgecolors": "white"}
        others = {"s": 6, "linewidths": 0.3, "edgecolors": "black"}
        if not {"c", "color"} & given.keys():
            first |= {"c": self.y_true, "cmap": shown.cmap, "norm": shown.norm}
            others["color"] = "white"
        return [
            draw(ax, "scatter", *self.x_true.T, given=given, **style)
            for ax, style in zip(self.axes_, chain([first], repeat(others)), strict=False)
        ]

    @classmethod
    @without_schema_warnings()
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        features: Sequence[int | str] = (0, 1),
        target: int = 0,
        grid_resolution: int = 200,
        extend: float = 0.2,
        **kwargs: Any,
    ) -> Self:
        """Draw the predictions and uncertainties of a fitted model over two columns of X.

        The two columns run over a grid; others, if there are any, stay at their medians, or, where
        they are not numeric, at their most frequent value.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Samples that give the ranges of the columns, and the medians of the others.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            True labels or values of X, the colours of its points; None draws no points.
        features : pair of int or str, default=(0, 1)
            The columns: their positions, or their names if X is a DataFrame.
        grid_resolution, extend
            As for :class:`UncertaintyBandDisplay`; the grid is over each of the two columns.

        Raises
        ------
        ValueError
            If X has no such columns, or they are not numeric, or constant, or `y` holds labels
            that the classifier does not know.
        """
        cls._needs_matplotlib("from_estimator")
        if isinstance(features, str) or len(features) != 2 or features[0] == features[1]:
            raise ValueError(f"features must be two different columns, got {features!r}.")
        (xx0, xx1), X_grid, points, names = grid_over(
            X, features, grid_resolution, extend, "features"
        )
        classes = estimator.classes_ if is_classifier(estimator) else None

        def on_grid(values, name):
            return check_target(values, name, target, xx0.size, like="grid").reshape(xx0.shape)

        uncertainty = predict_uncertainty(estimator, X_grid)
        parts = dict.fromkeys(PARTS) | {
            part: on_grid(values, f"the {part} uncertainty")
            for part, values in known_parts(uncertainty).items()
        }
        x_true = y_true = None
        if y is not None:
            x_true = np.column_stack(points)
            y_true = check_target(_codes(y, classes), "y", target, len(x_true), like="sample of X")
        return cls(
            xx0=xx0,
            xx1=xx1,
            prediction=on_grid(_codes(estimator.predict(X_grid), classes), "the prediction"),
            uncertainty=Uncertainty(**parts, measure=uncertainty.measure),
            classes=classes,
            x_true=x_true,
            y_true=y_true,
            feature_names=tuple(names),
        ).plot(**kwargs)


def _codes(values, classes):
    """Positions of labels in the classes; values of a regressor as they are."""
    if classes is None:
        return values
    labels = np.asarray(values)
    if not np.isin(labels, classes).all():
        unknown = np.setdiff1d(labels, classes).tolist()
        raise ValueError(f"y must hold labels of the estimator, {classes.tolist()}, got {unknown}.")
    return np.searchsorted(classes, labels)
