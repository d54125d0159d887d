# SPDX-License-Identifier: BSD-3-Clause
"""The uncertainties of student and teacher, sample by sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from ..metrics import epistemic_fidelity
from ._display import LINE_COLOR, REFERENCE_COLOR, TOTAL_COLOR, Axes, Display, check_target, draw

_N_GROUPS = 20  # of equally many samples, for which the teacher's band is drawn

# Units of an Uncertainty, by its measure.
_UNITS = {"entropy": "nats", "variance": "squared units of y", "std": "units of y"}


@dataclass(kw_only=True, eq=False, repr=False)
class FidelityDisplay(Display):
    """A student's uncertainty of each sample against its teacher's, on logarithmic axes.

    One panel for each part that all models know. With a reference, an independent and larger
    ensemble, samples stand by the reference's uncertainty; a band then shows where the teacher's is
    for nine in ten samples: a student whose points lie within it is as close to the larger ensemble
    as its teacher. Legends give rank correlations and median ratios. Samples with an uncertainty of
    0 are not shown. :meth:`from_estimators` or :meth:`from_predictions` create it. All parameters
    are stored as attributes.

    Parameters
    ----------
    student, teacher : dict of str to ndarray of shape (n_samples,)
        Uncertainties of the samples, by the name of the part.
    measure : {"entropy", "variance", "std"}
        Measure of the uncertainties.
    reference : dict of str to ndarray of shape (n_samples,), default=None
        Those of the larger ensemble.

    Attributes
    ----------
    points_ : dict of str to matplotlib PathCollection
        The student's, by part.
    bands_ : dict of str to matplotlib PolyCollection
        The teacher's; empty without a reference.
    axes_, figure_ : ndarray of Axes, and Figure
        The panels, and their figure.

    See Also
    --------
    skdistill.metrics.fidelity : The numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.displays import FidelityDisplay
    >>> from skdistill.distributions import Uncertainty
    >>> rng = np.random.default_rng(0)
    >>> noise, true = rng.lognormal(size=(2, 200))
    >>> seen = true * rng.chisquare(19, size=200) / 19  # by 20 members
    >>> student = Uncertainty(noise + true, noise, true, "variance")
    >>> teacher = Uncertainty(noise + seen, noise, seen, "variance")
    >>> FidelityDisplay.from_predictions(teacher, student, reference=student)
    <...FidelityDisplay object at ...>
    """

    student: dict[str, np.ndarray]
    teacher: dict[str, np.ndarray]
    measure: str
    reference: dict[str, np.ndarray] | None = None

    def plot(self, ax: Axes | Sequence[Axes] | None = None, **kwargs: object) -> Self:
        """Draw the points, the bands and lines of equality.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            Axes to draw on, one for each part. None creates a new figure.
        **kwargs : dict
            Keywords of `scatter`, for the points.

        Returns
        -------
        display : FidelityDisplay
        """
        plt, n_axes = self._needs_matplotlib("plot"), len(self.student)
        if ax is None:
            shape = {"figsize": (4 * n_axes, 3.8), "layout": "constrained"}
            self.axes_ = plt.subplots(1, n_axes, squeeze=False, **shape)[1][0]
        else:
            self.axes_ = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(self.axes_) != n_axes:
            raise ValueError(
                f"ax must hold {n_axes} axes, one for each panel, got {len(self.axes_)}."
            )
        self.figure_ = self.axes_[0].figure
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

        self.points_: dict[str, Any] = {}
        self.bands_: dict[str, Any] = {}
        whose, unit = "teacher" if self.reference is None else "reference", _UNITS[self.measure]
        for panel, part in zip(self.axes_, self.student, strict=True):
            x, y = getattr(self, whose)[part], self.student[part]
            shown = (x > 0) & (y > 0)
            if self.reference is not None:
                self.bands_[part] = _draw_band(panel, x, self.teacher[part])
            label = f"student ({_agreement(x, y)})"
            style = {"color": LINE_COLOR, "alpha": 0.5, "s": 8, "linewidth": 0, "label": label}
            self.points_[part] = draw(panel, "scatter", x[shown], y[shown], given=kwargs, **style)
            ends = panel.dataLim.intervalx
            panel.plot(ends, ends, color=REFERENCE_COLOR, linestyle="--", linewidth=1)
            panel.set(xscale="log", yscale="log", xlabel=f"{part.capitalize()}, {whose} ({unit})")
            panel.set_ylabel(f"{part.capitalize()}, student ({unit})")
            limits = panel.get_xlim(), panel.get_ylim()
            for axis, (low, high) in zip((panel.xaxis, panel.yaxis), limits, strict=True):
                if high < 10 * low:  # no decade: plain numbers, and few
                    axis.set_major_locator(MaxNLocator(4))
                    axis.set_major_formatter(ScalarFormatter())
                else:  # powers of ten; of a short axis 2 and 5 times them too
                    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
                axis.set_minor_formatter(NullFormatter())
            panel.legend(fontsize="small", loc="upper left")
        return self

    @classmethod
    def from_estimators(
        cls, teacher: Any, student: Any, X: ArrayLike, *, reference: Any = None, **kwargs: Any
    ) -> Self:
        """Draw the uncertainties of fitted models.

        Parameters
        ----------
        teacher, student : estimator
            Fitted, with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one.
        X : array-like of shape (n_samples, n_features)
            Samples, preferably held out.
        reference : estimator, default=None
            An independent, larger ensemble of the teacher's kind.
        **kwargs : dict
            Keywords of :meth:`from_predictions` and :meth:`plot`.

        Returns
        -------
        display : FidelityDisplay
        """
        cls._needs_matplotlib("from_estimators")
        of_reference = None if reference is None else predict_uncertainty(reference, X)
        both = (predict_uncertainty(model, X) for model in (teacher, student))
        return cls.from_predictions(*both, reference=of_reference, **kwargs)

    @classmethod
    def from_predictions(
        cls, teacher: Any, student: Any, *, reference: Any = None, target: int = 0, **kwargs: Any
    ) -> Self:
        """Draw given uncertainties.

        Parameters
        ----------
        teacher, student : Uncertainty
            Of the same samples, arrays of shape (n_samples,) or (n_samples, n_targets), as
            `predict_uncertainty` returns them, or their standard deviations. A part may be None.
        reference : Uncertainty, default=None
            That of a larger ensemble.
        target : int, default=0
            Which target to draw where there are several.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : FidelityDisplay

        Raises
        ------
        ValueError
            If measures or numbers of samples differ.
        """
        given = {"teacher": teacher, "student": student}
        given |= {} if reference is None else {"reference": reference}
        measures = sorted({uncertainty.measure for uncertainty in given.values()})
        if len(measures) > 1:
            raise ValueError(f"all uncertainties must have one measure, got {measures}.")
        parts = [
            part
            for part in ("total", "aleatoric", "epistemic")
            if all(getattr(uncertainty, part) is not None for uncertainty in given.values())
        ]
        n_rows = len(np.asarray(teacher.total))

        def column(part: str, role: str) -> np.ndarray:
            values, name = getattr(given[role], part), f"the {part} uncertainty of the {role}"
            return check_target(values, name, target, n_rows, like="sample of the teacher")

        columns = {role: {part: column(part, role) for part in parts} for role in given}
        return cls(**columns, measure=measures[0]).plot(**kwargs)


def _agreement(x, values):
    found = epistemic_fidelity(x, values)
    return f"rank {found.rank_correlation:.2f}, ratio {found.median_ratio:.2f}"


def _draw_band(ax, x, y):
    """Fill between the quantiles .05 and .95 of the values y of samples of like x."""
    style = {"color": TOTAL_COLOR, "linewidth": 0, "label": f"teacher ({_agreement(x, y)})"}
    shown = (x > 0) & (y > 0)
    x, values = x[shown], y[shown]
    groups = [rows for rows in np.array_split(np.argsort(x), _N_GROUPS) if len(rows)]
    ends = np.reshape([np.quantile(values[rows], [0.05, 0.95]) for rows in groups], (-1, 2))
    places = [np.median(x[rows]) for rows in groups]
    return ax.fill_between(places, *ends.T, **style)
