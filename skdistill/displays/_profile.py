# SPDX-License-Identifier: BSD-3-Clause
"""The uncertainty of rows by the values of one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from ..metrics import uncertainty_profile
from ._drawing import (
    REFERENCE_COLOR,
    UNITS,
    draw_reference,
    given_or_new_axes,
    import_pyplot,
    known_parts,
    labelled,
    merge_style,
)
from ._grids import check_target, named_column


@dataclass(kw_only=True, eq=False, repr=False)
class UncertaintyProfileDisplay:
    """Mean uncertainty of rows by the values of one column.

    It shows where, along a column, a model knows little: the epistemic part is large there. The
    legend tells the share of the variance of its ranks that the groups of the column explain.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create it. All parameters are stored
    as attributes.

    Parameters
    ----------
    values : ndarray of shape (n_groups,)
        Medians of groups of rows, or categories; NaN or None is the group of missing values.
    means : ndarray of shape (n_groups,)
        Mean uncertainty of each group.
    counts : ndarray of shape (n_groups,)
        Number of rows of each group.
    explained : float
        Share of the variance of the uncertainty's ranks that lies between the groups.
    unit : str, default=None
        Unit of the uncertainty.
    part : str, default=None
        Which part of the uncertainty it is.
    feature_name : str, default="x"
        Name of the column.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The mean of each group.
    mean_line_ : matplotlib Line2D or None
        The mean of all rows; None if another model has drawn its own there.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

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
        self, ax: Any = None, *, name: str | None = None, plot_mean: bool = True, **kwargs: Any
    ) -> Self:
        """Draw the means of the groups.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        name : str, default=None
            Name of the model in the legend; None uses the stored one.
        plot_mean : bool, default=True
            Whether to draw the mean of all rows.
        **kwargs : dict
            Keywords of `plot`, for the means of the groups.

        Returns
        -------
        display : UncertaintyProfileDisplay
            The display itself.
        """
        ax = given_or_new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        name = self.name if name is None else name
        label = labelled(name, f"explained: {self.explained:.2f}")
        places, labels = self._places()
        lines = "-" if labels is None else "none"
        style = {"linewidth": 2, "linestyle": lines, "marker": "o", "label": label}
        self.line_ = ax.plot(places, self.means, **merge_style(Line2D, style, kwargs))[0]
        self.mean_line_ = None
        if plot_mean:
            ends, mean = [min(places), max(places)], np.average(self.means, weights=self.counts)
            look = {"color": REFERENCE_COLOR, "linestyle": ":"}
            self.mean_line_ = draw_reference(ax, ends, [mean] * 2, "mean of all rows", **look)
        if labels is not None:
            ax.set_xticks(places, labels, rotation=30, ha="right")
        unit = f" ({self.unit})" if self.unit else ""
        ax.set(xlabel=self.feature_name)
        ax.set_ylabel(f"Mean {self.part or 'uncertainty'}{unit}")
        ax.set_ylim(bottom=0, auto=True)  # the next model's means may be larger
        ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _places(self):
        """Places of the groups on the axis; and their labels, None where these are the places."""
        values = np.asarray(self.values)
        if values.dtype.kind in "iuf" and not np.isnan(values).any():
            return values, None
        names = ["missing" if v is None or v != v else f"{v:.3g}" if isinstance(v, float) else v
                 for v in values.tolist()]  # fmt: skip
        return np.arange(len(values)), names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        feature: Any = 0,
        part: str = "epistemic",
        n_bins: int = 10,
        target: int = 0,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the uncertainty of a fitted model by the values of a column of X.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.
        X : array-like of shape (n_samples, n_features)
            Rows like those to predict.
        feature : int or str, default=0
            The column, by position, or in a DataFrame by name.
        part : {"total", "aleatoric", "epistemic"}, default="epistemic"
            Which uncertainty.
        n_bins : int, default=10
            As in :func:`skdistill.metrics.uncertainty_profile`.
        target : int, default=0
            Which target to look at where there are several.
        name : str, default=None
            Name of the model in the legend; None uses the name of its class.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : UncertaintyProfileDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If there is no such column or target, or the model cannot tell the `part`.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        uncertainty = predict_uncertainty(estimator, X)
        parts = known_parts(uncertainty)
        if part not in parts:
            raise ValueError(f"part must be one of {list(parts)} of this model, got {part!r}.")
        values, feature_name = named_column(X, feature, "feature")
        return cls.from_predictions(
            check_target(parts[part], f"the {part} uncertainty", target),
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
        uncertainty: Any,
        values: Any,
        *,
        n_bins: int = 10,
        unit: str | None = None,
        part: str | None = None,
        feature_name: str | None = "x",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw given uncertainties by the values of a column.

        Parameters
        ----------
        uncertainty, values, n_bins
            As in :func:`skdistill.metrics.uncertainty_profile`.
        unit, part, feature_name, name
            As in :class:`UncertaintyProfileDisplay`.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : UncertaintyProfileDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_predictions")
        found = uncertainty_profile(uncertainty, values, n_bins=n_bins)._asdict()
        about: dict[str, Any] = {
            "unit": unit,
            "part": part,
            "feature_name": feature_name,
            "name": name,
        }
        return cls(**found, **about).plot(**kwargs)
