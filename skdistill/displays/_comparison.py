# SPDX-License-Identifier: BSD-3-Clause
"""The uncertainties of several models, sample by sample and as histograms."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from numbers import Integral
from typing import Any, Self

import numpy as np

from .._estimator.functions import predict_uncertainty
from .._utils.typing import ArrayLike
from .._utils.validation import Number
from ..distributions import Uncertainty
from ..metrics import epistemic_fidelity, uncertainty_total_variation
from ._display import (
    CONTRAST_COLOR,
    LINE_COLOR,
    PARTS,
    REFERENCE_COLOR,
    TOTAL_COLOR,
    UNITS,
    Axes,
    Display,
    documented_dataclass,
    draw,
    known_parts,
    label_log_axis,
)
from ._grids import check_target

# Groups of samples, of about equally many, for which the teacher's band is drawn.
_N_GROUPS = 20


@documented_dataclass
class FidelityDisplay(Display):
    """A student's uncertainty of each sample against its teacher's, on logarithmic axes.

    One panel for each part that all models know. With a reference, an independent and larger
    ensemble, samples stand by the reference's uncertainty; a band then shows where the teacher's is
    for nine in ten samples: a student whose points lie within it is as close to the larger ensemble
    as its teacher. Legends give rank correlations and median ratios. Samples with an uncertainty of
    0 are not shown.

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
        """
        axes = self._open_panels(ax, len(self.student), (4, 3.8))
        self.points_: dict[str, Any] = {}
        self.bands_: dict[str, Any] = {}
        whose, unit = "teacher" if self.reference is None else "reference", UNITS[self.measure]
        for panel, part in zip(axes, self.student, strict=True):
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
            label_log_axis(panel.xaxis, *panel.get_xlim())
            label_log_axis(panel.yaxis, *panel.get_ylim())
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
        reference : estimator, default=None
            An independent, larger ensemble of the teacher's kind.
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

        Raises
        ------
        ValueError
            If measures or numbers of samples differ.
        """
        given = {"teacher": teacher, "student": student}
        given |= {} if reference is None else {"reference": reference}
        measure = _common_measure(given.values())
        known = [known_parts(uncertainty) for uncertainty in given.values()]
        parts = [part for part in known[0] if all(part in found for found in known)]
        n_rows = len(np.asarray(teacher.total))

        def column(part: str, role: str) -> np.ndarray:
            values, name = getattr(given[role], part), f"the {part} uncertainty of the {role}"
            return check_target(values, name, target, n_rows, like="sample of the teacher")

        columns = {role: {part: column(part, role) for part in parts} for role in given}
        return cls(**columns, measure=measure).plot(**kwargs)


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


_COLORS = {"in": LINE_COLOR, "out": CONTRAST_COLOR}
_SETS = {"in": "in distribution", "out": "out of distribution"}

# Scale of an axis for matplotlib, which also evaluates it at negative margins.
_SQUARE_ROOT = {
    "value": "function",
    "functions": (lambda v: np.sign(v) * np.sqrt(np.abs(v)), lambda v: v * np.abs(v)),
}


@documented_dataclass
class UncertaintyHistogramDisplay(Display):
    """Histograms of the uncertainties of one or several models, in and out of distribution.

    One panel for each part: total, aleatoric and epistemic. The first model, usually the teacher,
    is filled, the others are outlines on top. The title of a panel gives the total variation of
    each to the first, in and out of distribution; for a single model, that between the samples in
    and out of distribution.

    Parameters
    ----------
    edges : dict of str to ndarray of shape (n_bins + 1,)
        Edges of the bins of each part that any model has.
    shares : dict of dict of dict of str to ndarray of shape (n_bins,)
        ``shares[part][name]["in"]`` and ``["out"]`` are the shares in each bin of the samples in
        and out of distribution, for the model of that name.
    total_variation : dict of dict of dict of str to float
        ``total_variation[part][name]["in"]`` and ``["out"]`` are the total variations to the first
        model; of a single model ``["out"]`` is that to ``["in"]``.
    measure : {"entropy", "variance", "std"}
        Measure of the uncertainties.

    Attributes
    ----------
    histograms_ : dict of dict of dict of str to matplotlib StepPatch
        The histograms, in the order of `shares`.

    See Also
    --------
    skdistill.metrics.uncertainty_total_variation : The numbers in the titles.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.displays import UncertaintyHistogramDisplay
    >>> from skdistill.distributions import Uncertainty
    >>> rng = np.random.default_rng(0)
    >>> aleatoric, epistemic = rng.uniform(0, 0.5, size=(2, 100))
    >>> teacher = Uncertainty(aleatoric + epistemic, aleatoric, epistemic, "entropy")
    >>> student = Uncertainty(aleatoric + epistemic / 2, aleatoric, epistemic / 2, "entropy")
    >>> UncertaintyHistogramDisplay.from_predictions({"teacher": teacher, "student": student})
    <...UncertaintyHistogramDisplay object at ...>
    """

    edges: dict[str, np.ndarray]
    shares: dict[str, dict]
    total_variation: dict[str, dict]
    measure: str

    def plot(self, ax: Any = None, *, yscale: str = "sqrt", **kwargs: object) -> Self:
        """Draw the histograms.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            Axes to draw on, one for each part. None creates a new figure.
        yscale : str, default="sqrt"
            Scale of the shares: "sqrt", which shows small ones too, or one of matplotlib's,
            "linear" or "log".
        **kwargs : dict
            Keywords of `stairs`, for all histograms.
        """
        axes = self._open_panels(ax, len(self.edges), (4, 3.6))
        self.histograms_ = {}
        for panel, part in zip(axes, self.edges, strict=True):
            self.histograms_[part] = self._draw_part(panel, part, kwargs)
            panel.set_title(self._literal(self._title(part)), fontsize="medium")
            panel.set_xlabel(f"{part.capitalize()} ({UNITS[self.measure]})")
            panel.set_xlim(self.edges[part][[0, -1]])
            panel.set_yscale(**_SQUARE_ROOT if yscale == "sqrt" else {"value": yscale})
        axes[0].set_ylabel("Share of samples" + " (square-root scale)" * (yscale == "sqrt"))
        axes[-1].legend(fontsize="small")
        return self

    def _draw_part(self, ax, part, given):
        first, *others = self.shares["total"]  # which every model has
        outlines = ({"linestyle": line, "linewidth": 1.6} for line in cycle(("-", "--", ":")))
        styles: dict[str, dict] = {first: {"fill": True, "alpha": 0.35, "linewidth": 0}}
        styles |= zip(others, outlines, strict=False)
        patches: dict[str, dict] = {}
        for name, by_set in self.shares[part].items():
            for where, shares in by_set.items():
                label = f"{name}, {_SETS[where]}"
                style = {"color": _COLORS[where], "label": label, **styles[name]}
                patch = draw(ax, "stairs", shares, self.edges[part], given=given, **style)
                patches.setdefault(name, {})[where] = patch
        return patches

    def _title(self, part):
        first, *others = self.shares[part]
        if not others:
            to_in = self.total_variation[part].get(first, {})
            return "".join(f"total variation of in and out: {d:.2f}" for d in to_in.values())
        lines = [f"total variation to {first}"]
        for name, distances in self.total_variation[part].items():
            parts = (f"{distance:.2f} {where}" for where, distance in distances.items())
            lines.append(f"{name}: {', '.join(parts)}")
        return "\n".join(lines)

    @classmethod
    def from_estimators(cls, estimators: Any, X: Any, X_out: Any = None, **kwargs: Any) -> Self:
        """Draw the uncertainties of fitted models.

        Parameters
        ----------
        estimators : dict of str to estimator
            Fitted estimators with `predict_uncertainty`, or a Pipeline, a search or a
            TransformedTargetRegressor around one, by their names in the legend.
        X_out : array-like of shape (n_samples_out, n_features), default=None
            Samples out of distribution.
        """
        cls._needs_matplotlib("from_estimators")
        _check_by_name(estimators, "estimators")

        def predicted(rows):
            return {name: predict_uncertainty(model, rows) for name, model in estimators.items()}

        outside = None if X_out is None else predicted(X_out)
        return cls.from_predictions(predicted(X), outside, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        in_distribution: Mapping[str, Uncertainty],
        out_of_distribution: Mapping[str, Uncertainty] | None = None,
        *,
        bins: int = 50,
        target: int = 0,
        **kwargs: Any,
    ) -> Self:
        """Draw given uncertainties.

        Parameters
        ----------
        in_distribution : dict of str to Uncertainty
            By the name of the model, arrays of shape (n_samples,) or (n_samples, n_targets), as
            `predict_uncertainty` returns them, or their standard deviations. A part may be None.
        out_of_distribution : dict of str to Uncertainty, default=None
            The same for samples out of distribution.
        bins : int, default=50
            Number of bins.

        Raises
        ------
        ValueError
            If the two have other names, or the measures differ.
        """
        Number(Integral, 1).check(bins, "bins")
        _check_by_name(in_distribution, "in_distribution")
        given = {"in": in_distribution}
        if out_of_distribution is not None:
            _check_by_name(out_of_distribution, "out_of_distribution")
            given["out"] = out_of_distribution
        samples, measure = _samples(given, target)
        edges, shares, total_variation = {}, {}, {}
        for part, found in samples.items():
            values = [values for by_set in found.values() for values in by_set.values()]
            edges[part] = np.histogram_bin_edges(np.concatenate(values), bins)
            shares[part] = {
                name: {
                    where: np.histogram(values, edges[part])[0] / len(values)
                    for where, values in by_set.items()
                }
                for name, by_set in found.items()
            }
            total_variation[part] = _distances(found, bins)
        data: dict[str, Any] = {"edges": edges, "shares": shares, "measure": measure}
        return cls(**data, total_variation=total_variation).plot(**kwargs)


def _check_by_name(values, argument):
    if not isinstance(values, Mapping) or not values:
        raise TypeError(
            f"{argument} must be a dict with a name for each model, such as "
            f'{{"teacher": ..., "student": ...}}, got {type(values).__name__}.'
        )


def _samples(given, target):
    """Values ``[part][name]["in" or "out"]``, each (n,), and their measure."""
    names, names_out = list(given["in"]), list(given.get("out", given["in"]))
    if names != names_out:
        raise ValueError(
            "out_of_distribution must have the names of in_distribution in their order, "
            f"{names}, got {names_out}."
        )
    measure = _common_measure(u for by_name in given.values() for u in by_name.values())
    samples: dict[str, dict] = {part: {} for part in PARTS}
    for name in names:
        for where, by_name in given.items():
            for part, values in known_parts(by_name[name]).items():
                what = f"the {part} uncertainty of {name!r}"
                samples[part].setdefault(name, {})[where] = check_target(values, what, target)
    return {part: found for part, found in samples.items() if found}, measure


def _distances(samples, bins):
    """Total variation to the first model in the same set; of a single model that of out to in."""
    (first, reference), *others = samples.items()
    if not others and "out" in reference:
        distance = uncertainty_total_variation(reference["in"], reference["out"], bins=bins)
        return {first: {"out": distance}}
    return {
        name: {
            where: uncertainty_total_variation(reference[where], values, bins=bins)
            for where, values in by_set.items()
        }
        for name, by_set in others
    }


def _common_measure(uncertainties):
    """Measure of all uncertainties; a ValueError if there are several."""
    measures = sorted({uncertainty.measure for uncertainty in uncertainties})
    if len(measures) > 1:
        raise ValueError(f"all uncertainties must have one measure, got {measures}.")
    return measures[0]
