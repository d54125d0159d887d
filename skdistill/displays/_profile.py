# SPDX-License-Identifier: BSD-3-Clause
"""The uncertainty of samples by the values of one column."""

from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike, BaseEstimator
from ..metrics import uncertainty_profile
from ._display import Display, documented_dataclass
from ._drawing import UNITS, draw, draw_reference, labelled, part_of
from ._grids import check_target, named_column


@documented_dataclass
class UncertaintyProfileDisplay(Display):
    """Mean uncertainty of samples by the values of one column.

    It shows where, along a column, a model knows little: the epistemic part is large there. The
    legend tells the share of the variance of its ranks that the groups of the column explain.

    Parameters
    ----------
    values, means, counts, explained
        As :func:`skdistill.metrics.uncertainty_profile` returns them.
    unit, part : str, default=None
        Unit of the uncertainty, and which part of it it is.

    Attributes
    ----------
    line_, mean_line_ : matplotlib Line2D
        The mean of each group, and of all samples; the latter is None if another model has drawn
        its own there.

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
        **kwargs : dict
            Keywords of `plot`, for the means of the groups.
        """
        ax = self._open(ax)
        name = self.name if name is None else name
        label = labelled(name, f"explained: {self.explained:.2f}")
        places, labels = self._places()
        lines = "-" if labels is None else "none"
        style = {"linewidth": 2, "linestyle": lines, "marker": "o", "label": label}
        self.line_ = draw(ax, "plot", places, self.means, given=kwargs, **style)
        self.mean_line_ = None
        if plot_mean:
            ends, mean = [min(places), max(places)], np.average(self.means, weights=self.counts)
            self.mean_line_ = draw_reference(ax, ends, [mean] * 2, "mean of all samples")
        if labels is not None:
            ax.set_xticks(places, labels, rotation=30, ha="right")
        unit = f" ({self.unit})" if self.unit else ""
        ax.set(xlabel=self.feature_name)
        ax.set_ylabel(f"Mean {self.part or 'uncertainty'}{unit}")
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
        return np.arange(len(values)), names

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
        return cls(**found, unit=unit, part=part, feature_name=feature_name, name=name).plot(
            **kwargs
        )
