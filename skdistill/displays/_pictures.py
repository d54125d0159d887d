# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of a report: curves of several models on one pair of axes, and their PNG."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.calibration import CalibrationDisplay

from ..metrics import epistemic_calibration, regression_calibration_curve, risk_coverage_curve
from ._display import LINE_COLOR, REFERENCE_COLOR, import_pyplot

_SIZE, _DPI, _PAGE_DPI = (4.6, 3.7), 160, 96  # inches; pixels an inch of a picture, of the page
_LEAST_COVERAGE = 0.05  # that scales the axis: one error among few samples would dwarf the rest
_STYLES: dict[str, dict[str, Any]] = {
    "student": {"color": LINE_COLOR},
    "teacher": {"color": "#D55E00", "linestyle": "-."},
}

PICTURE_SIZE = [round(inches * _PAGE_DPI) for inches in _SIZE]  # on a page, in its pixels


def png_of(draw: Callable[[Any], Any], caller: str) -> bytes:
    """Draw on new axes, whatever style the user's session has, and return a PNG of them."""
    import_pyplot(caller)
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not in pyplot's list of figures

    with rc_context(rc={"font.size": 10.0}):
        figure, content = Figure(_SIZE, layout="constrained"), io.BytesIO()
        draw(figure.subplots())
        figure.savefig(content, format="png", dpi=_DPI)
    return content.getvalue()


def draw_quantiles(models: Mapping[str, Any], levels: np.ndarray, ax: Any) -> None:
    """Draw how often y lies at or below quantiles; `models` are pairs of y and quantiles."""
    for role, (y, quantiles) in models.items():
        curve = regression_calibration_curve(y, quantiles, levels)
        ax.plot(*curve, label=role, marker="o", markersize=4, **_STYLES[role])
    labels = "Nominal level of the predicted quantile", "Observed fraction of y at or below it"
    _finish_calibration(ax, *labels)


def draw_reliability(models: Mapping[str, Any], ax: Any) -> None:
    """Draw accuracy by confidence; `models` are pairs of what is right, and probabilities."""
    for role, (is_right, probabilities) in models.items():
        confidence = np.clip(probabilities.max(axis=1), 0, 1)  # float32 may round above
        style = {"name": role, "marker": "o", "markersize": 4, **_STYLES[role]}
        CalibrationDisplay.from_predictions(
            is_right, confidence, n_bins=10, ax=ax, ref_line=False, **style
        )
    _finish_calibration(ax, "Confidence", "Accuracy")


def _finish_calibration(ax: Any, xlabel: str, ylabel: str) -> None:
    ax.plot([0, 1], [0, 1], ":", color=REFERENCE_COLOR, label="perfectly calibrated")
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.legend(fontsize="small")


def draw_rejection(models: Mapping[str, Any], loss: str, ax: Any) -> None:
    """Draw risk by coverage; `models` are pairs of losses, named `loss`, and total parts."""
    losses, _ = models["student"]
    oracle = {"color": LINE_COLOR, "linestyle": "--"}
    lines = [(role, *pair, {"linewidth": 2, **_STYLES[role]}) for role, pair in models.items()]
    drawn = []
    for label, own_losses, by, style in [*lines, ("oracle", losses, losses, oracle)]:
        coverage, risk = risk_coverage_curve(own_losses, by)
        ax.plot(coverage, risk, label=label, **style)
        drawn.append(risk[coverage >= _LEAST_COVERAGE])
    ax.axhline(losses.mean(), label="random order", color=REFERENCE_COLOR, ls=":")
    heights = np.concatenate(drawn)
    low, high = heights.min(), heights.max()
    if low < high:  # with room for the legend
        ax.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))
    ax.set(xlabel="Coverage: share of samples predicted, most certain first", xlim=(0, 1))
    ax.set_ylabel(f"Mean {loss} of samples predicted")
    ax.legend(fontsize="small")


def draw_halves(halves: Mapping[str, Any], ax: Any) -> None:
    """Draw what ``disagreement_of_halves`` has found, in bins of equally many samples."""
    pair = np.ravel(halves["squared_difference"]), np.ravel(halves["epistemic"])
    found = epistemic_calibration(*pair, n_bins=10)
    points = np.array([found.bin_epistemic, found.bin_squared_error])
    ends = [points[points > 0].min(initial=np.inf), points.max(initial=0)]
    ax.plot(ends, ends, ":", color=REFERENCE_COLOR, label="perfectly calibrated")
    label = f"student (90 % intervals cover {found.coverage:.2f})"
    ax.plot(*points, label=label, marker="o", markersize=5, **_STYLES["student"])
    ax.set(xscale="log", yscale="log", xlabel="Epistemic variance", ylabel="Squared difference")
    ax.legend(fontsize="small")
