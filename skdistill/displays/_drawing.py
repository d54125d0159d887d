# SPDX-License-Identifier: BSD-3-Clause
"""Shared by all displays: the late import of matplotlib, axes, colours, labels, units."""

from __future__ import annotations

import numpy as np

# From the palette of Okabe and Ito, distinct under every common colour-vision deficiency; the
# bands are lighter tints of its sky blue and orange, and differ in lightness too.
LINE_COLOR = "#0072B2"
CONTRAST_COLOR = "#D55E00"
ALEATORIC_COLOR = "#9CCEEE"
TOTAL_COLOR = "#F6D9A0"
REFERENCE_COLOR = "#4D4D4D"

# Ten colours for as many classes by Petroff (2021), arXiv:2107.02270, also distinct;
# scikit-learn's DecisionBoundaryDisplay has them too.
CLASS_COLORS = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)

PARTS = ("total", "aleatoric", "epistemic")

# Units of an Uncertainty, by its measure.
UNITS = {"entropy": "nats", "variance": "squared units of y", "std": "units of y"}


def import_pyplot(caller):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install skdistill[plot]") from error
    return plt


def given_or_new_axes(ax, caller):
    plt = import_pyplot(caller)
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def given_or_new_row(ax, n_axes, size, caller, **shared):
    """Array of `n_axes` axes: those given, or a row of new ones, each of `size` in inches."""
    plt = import_pyplot(caller)
    if ax is None:
        width, height = size
        _, axes = plt.subplots(
            1,
            n_axes,
            figsize=(n_axes * width, height),
            layout="constrained",
            squeeze=False,
            **shared,
        )
        return axes[0]
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(axes) != n_axes:
        raise ValueError(f"ax must hold {n_axes} axes, one for each panel, got {len(axes)}.")
    return axes


def class_colormap(n_classes):
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    if n_classes <= len(CLASS_COLORS):
        return ListedColormap(CLASS_COLORS[:n_classes])
    return colormaps["turbo"].resampled(n_classes)


def merge_style(artist, defaults, given):
    """Defaults updated by the user's keywords, short names such as `lw` included."""
    from matplotlib.cbook import normalize_kwargs

    return {**defaults, **normalize_kwargs(given or {}, artist)}


def draw_reference(ax, x, y, label, **style):
    """Draw a reference line unless the axes have it already; return the line or None."""
    if label in ax.get_legend_handles_labels()[1]:
        return None
    return ax.plot(x, y, label=label, **style)[0]


def leave_room_above(ax, x, low, high, fraction=0.25):
    """Make room for a legend, since matplotlib ignores bands when it places one."""
    top = np.max(high) + fraction * (np.max(high) - np.min(low))
    ax.update_datalim([(x, top)])
    ax.autoscale_view()


def common_measure(uncertainties):
    """Measure of all uncertainties; a ValueError if there are several."""
    measures = sorted({uncertainty.measure for uncertainty in uncertainties})
    if len(measures) > 1:
        raise ValueError(f"all uncertainties must have one measure, got {measures}.")
    return measures[0]


def known_parts(uncertainty):
    """Parts of an uncertainty by name, without those that are None."""
    parts = zip(PARTS, uncertainty, strict=True)
    return {part: values for part, values in parts if values is not None}


def labelled(name, score):
    return f"{name} ({score})" if name else score


def label_log_axis(axis, low, high):
    """Label a logarithmic axis at powers of ten; at 1, 2 and 5 times them if it is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_minor_formatter(NullFormatter())
