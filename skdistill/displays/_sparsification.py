# SPDX-License-Identifier: BSD-3-Clause
"""The error that remains as uncertain rows are removed, relative to that of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from ..metrics import ause, sparsification_curve
from ._drawing import given_or_new_axes, import_pyplot, labelled, merge_style


@dataclass(kw_only=True, eq=False, repr=False)
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
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

    See Also
    --------
    skdistill.metrics.sparsification_curve : Computes the curve.
    skdistill.metrics.ause : The area.

    Examples
    --------
    >>> from skdistill.displays import SparsificationDisplay
    >>> SparsificationDisplay.from_predictions(
    ...     y_true=[2.0, 0.0, 1.0, 1.0], y_pred=[0.0, 0.0, 0.0, 0.0], uncertainty=[3, 1, 4, 2]
    ... )
    <...SparsificationDisplay object at ...>
    """

    fraction_removed: np.ndarray
    model_curve: np.ndarray
    oracle_curve: np.ndarray
    ause: float | None = None
    name: str | None = None

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        plot_oracle: bool = True,
        oracle_kwargs: Any = None,
        **kwargs: Any,
    ) -> Self:
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
        ax = given_or_new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        name = self.name if name is None else name
        label = name if self.ause is None else labelled(name, f"AUSE = {self.ause:.3f}")
        style = merge_style(Line2D, {"linewidth": 2, "label": label}, kwargs)
        self.line_ = ax.plot(self.fraction_removed, self.model_curve, **style)[0]

        self.oracle_line_ = self.area_ = None
        if plot_oracle:
            color = self.line_.get_color()
            oracle_label = f"oracle of {name}" if name else "oracle"
            oracle_style = {"color": color, "linestyle": "--", "label": oracle_label}
            self.oracle_line_ = ax.plot(
                self.fraction_removed,
                self.oracle_curve,
                **merge_style(Line2D, oracle_style, oracle_kwargs),
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
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **kwargs: Any
    ) -> Self:
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
        name : str, default=None
            Name of the model in the legend; None uses the name of its class.
        **kwargs : dict
            Keywords of :meth:`from_predictions`, such as `sample_weight`, and of :meth:`plot`,
            such as `ax`.

        Returns
        -------
        display : SparsificationDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        return cls.from_predictions(
            y,
            estimator.predict(X),
            predict_uncertainty(estimator, X).total,
            name=type(estimator).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        uncertainty: Any,
        *,
        sample_weight: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how well given uncertainties rank the errors of given predictions.

        Parameters
        ----------
        y_true, y_pred, uncertainty, sample_weight
            As in :func:`skdistill.metrics.sparsification_curve`.
        name : str, default=None
            Name of the model in the legend.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : SparsificationDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_predictions")
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
        return display.plot(**kwargs)
