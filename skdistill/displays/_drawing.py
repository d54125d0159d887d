# SPDX-License-Identifier: BSD-3-Clause
"""Shared by all displays: the late import of matplotlib, artists, colours, labels, units."""

from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # matplotlib is optional
    Axes = Any
Keywords = Mapping[str, object] | None  # of methods of axes

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
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)

PARTS = ("total", "aleatoric", "epistemic")

# Units of an Uncertainty, by its measure.
UNITS = {"entropy": "nats", "variance": "squared units of y", "std": "units of y"}

# What methods of axes draw, in matplotlib.
_ARTISTS = {
    "plot": ("lines", "Line2D"),
    "scatter": ("collections", "PathCollection"),
    "fill_between": ("collections", "PolyCollection"),
    "pcolormesh": ("collections", "QuadMesh"),
    "stairs": ("patches", "StepPatch"),
}


def import_pyplot(caller: str) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install skdistill[plot]") from error
    return plt


def draw(ax: Axes, method: str, *data: object, given: Keywords = None, **style: object) -> Any:
    """Call a method of the axes, with the style updated by the keywords that a user has given."""
    drawn = getattr(ax, method)(*data, **merged_style(method, style, given))
    return drawn[0] if method == "plot" else drawn


def merged_style(method: str, style: Mapping[str, object], given: Keywords) -> dict[str, object]:
    """Style updated by the user's keywords, short names such as `lw` included."""
    from matplotlib.cbook import normalize_kwargs

    module, artist = _ARTISTS[method]
    artist_class = getattr(import_module(f"matplotlib.{module}"), artist)
    return {**style, **normalize_kwargs(dict(given or {}), artist_class)}


def draw_reference(ax, x, y, label, **style):
    """Draw a reference line unless the axes have it already; return the line or None."""
    if label in ax.get_legend_handles_labels()[1]:
        return None
    return ax.plot(x, y, label=label, color=REFERENCE_COLOR, linestyle=":", **style)[0]


def png_of(draw: Callable[[Any], Any], size: tuple[float, float], dpi: int, caller: str) -> bytes:
    """Return a PNG of what `draw(ax)` draws, of `size` in inches, not in pyplot's list of figures.

    An ImportError names the `caller` where matplotlib is missing.
    """
    import_pyplot(caller)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # One look, whatever style the user's session has.
    with rc_context(rc={"font.size": 10.0}):
        figure = Figure(size, layout="constrained")
        draw(figure.subplots())
        content = BytesIO()
        figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()


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


def part_of(uncertainty, part):
    """The part of a name; a ValueError if the model cannot tell it."""
    parts = known_parts(uncertainty)
    if part not in parts:
        raise ValueError(f"part must be one of {list(parts)} of this model, got {part!r}.")
    return parts[part]


def labelled(name, score):
    return f"{name} ({score})" if name else score


def label_log_axis(axis, low, high):
    """Label a logarithmic axis at powers of ten; at 1, 2 and 5 times them if it is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_minor_formatter(NullFormatter())
