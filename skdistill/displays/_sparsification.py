# SPDX-License-Identifier: BSD-3-Clause
"""The error that remains as uncertain samples are removed, relative to that of all."""

from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from ..metrics import ause, sparsification_curve
from ._display import Display, documented_dataclass
from ._drawing import Axes, Keywords, draw, labelled


@documented_dataclass
class SparsificationDisplay(Display):
    """Error of the samples that remain as the most uncertain ones are removed.

    The nearer the model's curve is to the oracle's, which removes the largest errors first, the
    better the uncertainty ranks the errors; the area between them is the AUSE.

    Parameters
    ----------
    fraction_removed, model_curve, oracle_curve : ndarray of shape (n_points,)
        Fraction of the samples removed, and mean squared error of the others over that of all
        samples.
    ause : float, default=None
        Area between the curves, shown in the legend unless None.

    Attributes
    ----------
    line_, oracle_line_ : matplotlib Line2D
        The curves; that of the oracle may be None.
    area_ : matplotlib PolyCollection or None
        The shaded area between them.

    See Also
    --------
    skdistill.metrics.sparsification_curve : Computes the curve.

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
        ax: Axes | None = None,
        *,
        name: str | None = None,
        plot_oracle: bool = True,
        oracle_kwargs: Keywords = None,
        **kwargs: object,
    ) -> Self:
        """Draw the curves and the area between them.

        Parameters
        ----------
        plot_oracle : bool, default=True
            Whether to draw the oracle's curve and shade the area.
        oracle_kwargs : dict, default=None
            Keywords of `plot`, for the oracle's curve.
        **kwargs : dict
            Keywords of `plot`, for the model's curve.
        """
        ax, x = self._open(ax), self.fraction_removed
        name = self.name if name is None else name
        label = name if self.ause is None else labelled(name, f"AUSE = {self.ause:.3f}")
        self.line_ = draw(ax, "plot", x, self.model_curve, given=kwargs, linewidth=2, label=label)

        self.oracle_line_ = self.area_ = None
        if plot_oracle:
            color = self.line_.get_color()
            label = f"oracle of {name}" if name else "oracle"
            style = {"color": color, "linestyle": "--", "label": label}
            self.oracle_line_ = draw(ax, "plot", x, self.oracle_curve, given=oracle_kwargs, **style)
            self.area_ = ax.fill_between(
                x, self.oracle_curve, self.model_curve, color=color, alpha=0.12, linewidth=0
            )

        ax.set(
            xlabel="Fraction removed, most uncertain first",
            ylabel="MSE of the remaining samples / MSE of all samples",
            xlim=(0, 1),
        )
        ax.set_ylim(bottom=0)
        ax.legend(fontsize="small")
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw how well the total uncertainty of a fitted regressor ranks its errors."""
        cls._needs_matplotlib("from_estimator")
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
        y_true: ArrayLike,
        y_pred: ArrayLike,
        uncertainty: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how well given uncertainties rank the errors of given predictions.

        Parameters
        ----------
        y_true, y_pred, uncertainty, sample_weight
            As in :func:`skdistill.metrics.sparsification_curve`.
        """
        arrays = (y_true, y_pred, uncertainty)
        removed, model, oracle = sparsification_curve(*arrays, sample_weight=sample_weight)
        return cls(
            fraction_removed=removed,
            model_curve=model,
            oracle_curve=oracle,
            ause=ause(*arrays, sample_weight=sample_weight),
            name=name,
        ).plot(**kwargs)
