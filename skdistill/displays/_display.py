# SPDX-License-Identifier: BSD-3-Clause
"""What all displays share: axes, artists, colours, docstrings, checks of what is drawn."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # matplotlib is optional
    Axes = Any
Keywords = Mapping[str, object] | None  # of methods of axes

# From the palette of Okabe and Ito, distinct under every common colour-vision deficiency; the
# bands are lighter tints of its sky blue and orange, and differ in lightness too.
LINE_COLOR = "#0072B2"
ALEATORIC_COLOR = "#9CCEEE"
TOTAL_COLOR = "#F6D9A0"
REFERENCE_COLOR = "#4D4D4D"

PARTS = ("total", "aleatoric", "epistemic")

# Units of an Uncertainty, by its measure.
UNITS = {"entropy": "nats", "variance": "squared units of y", "std": "units of y"}

# What methods of axes draw, in matplotlib.
_ARTISTS = {
    "plot": ("lines", "Line2D"),
    "scatter": ("collections", "PathCollection"),
    "fill_between": ("collections", "PolyCollection"),
}


def import_pyplot(caller: str) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install skdistill[plot]") from error
    return plt


def draw(ax: Axes, method: str, *data: object, given: Keywords = None, **style: object) -> Any:
    """Call a method of the axes, with the style updated by the keywords that a user has given."""
    from matplotlib.cbook import normalize_kwargs  # short names such as `lw` included

    if style.get("label") is not None:
        style["label"] = literal(style["label"])
    module, artist = _ARTISTS[method]
    artist_class = getattr(import_module(f"matplotlib.{module}"), artist)
    style |= normalize_kwargs(dict(given or {}), artist_class)
    drawn = getattr(ax, method)(*data, **style)
    return drawn[0] if method == "plot" else drawn


def literal(text: object) -> str:
    """Return a text that matplotlib draws as it is given.

    A dollar begins no formula, and an underscore hides no entry of a legend.
    """
    escaped = str(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


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


def known_parts(uncertainty):
    """Parts of an uncertainty by name, without those that are None."""
    parts = zip(PARTS, uncertainty, strict=True)
    return {part: values for part, values in parts if values is not None}


def labelled(name, score):
    return f"{name} ({score})" if name else score


_Class = TypeVar("_Class", bound=type)

# What describes a parameter that a docstring does not describe itself.
_PARAGRAPHS = """\
estimator : estimator
    Fitted, with `predict_uncertainty`, or a Pipeline, a search or a TransformedTargetRegressor
    around one.
X : array-like of shape (n_samples, n_features)
    Samples, preferably held out.
y : array-like of shape (n_samples,) or (n_samples, n_targets)
    True labels or values.
target : int, default=0
    Which target to draw where there are several.
feature_name : str, default="x"
    Label of the horizontal axis.
ax : matplotlib Axes, default=None
    Axes to draw on. None creates a new figure.
name : str, default=None
    Name of the model in the legend. None is the one that the display has already, or that of the
    model's class.
**kwargs : dict
    Keywords of the methods that this one calls: of :meth:`plot`, such as `ax`, and of other
    `from_` methods.
"""
_OF_PLOT = """\
ref_line : bool, default=True
    Whether to draw the diagonal.
scatter_kwargs : dict, default=None
    Keywords of `scatter`, for the data.
**kwargs : dict
    Keywords of `plot`, for the model's curve.
"""
_AXES = "ax_, figure_ : matplotlib Axes and Figure\n    Where all is drawn."
_PANELS = "axes_, figure_ : ndarray of Axes, and Figure\n    The panels, and their figure."
_RETURNS = "Returns\n-------\ndisplay : {}\n    The display, drawn."


class Display:
    """Base of displays: their axes, and the late import of matplotlib."""

    _literal = staticmethod(literal)

    @classmethod
    def _needs_matplotlib(cls, method: str) -> None:
        import_pyplot(f"{cls.__name__}.{method}")

    def _open(self, ax: Axes | None) -> Axes:
        """Return the axes to draw on, those given or new ones, and keep them."""
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_

    def _open_panels(self, ax: Any, n_axes: int, size: tuple[float, float], **shared: Any) -> Any:
        """Return axes to draw on, those given or a new row, each of `size` inches; keep them."""
        plt = import_pyplot(f"{type(self).__name__}.plot")
        if ax is None:
            shape = {"figsize": (n_axes * size[0], size[1]), "layout": "constrained"}
            self.axes_ = plt.subplots(1, n_axes, squeeze=False, **shape, **shared)[1][0]
        else:
            self.axes_ = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(self.axes_) != n_axes:
            raise ValueError(
                f"ax must hold {n_axes} axes, one for each panel, got {len(self.axes_)}."
            )
        self.figure_ = self.axes_[0].figure
        return self.axes_


@dataclass_transform(kw_only_default=True, eq_default=False)
def documented_dataclass(cls: _Class) -> _Class:
    """Make a display a dataclass, and complete its docstrings by what all of them share.

    A parameter that is not described has a paragraph of its name above. So help() and numpydoc
    find whole docstrings, and each of these paragraphs is written once.
    """
    dataclass(kw_only=True, eq=False, repr=False)(cls)  # in place
    plot = vars(cls)["plot"]
    if plot.__doc__ is None:  # python -OO
        return cls
    makers = [name for name in vars(cls) if name.startswith("from_")]
    for name in ("plot", *makers):
        method = vars(cls)[name]
        function = method.__func__ if isinstance(method, classmethod) else method
        parameters = list(inspect.signature(function).parameters)[1:]
        shared = _PARAGRAPHS + _OF_PLOT if name == "plot" else _PARAGRAPHS
        head, sections = _with_parameters(function.__doc__, parameters, shared)
        sections.insert(1, _RETURNS.format(cls.__name__))
        function.__doc__ = "\n\n".join([head, *sections])

    fields = list(inspect.signature(cls).parameters)
    head, sections = _with_parameters(cls.__doc__, fields, _PARAGRAPHS)
    ways = " or ".join(f":meth:`{name}`" for name in makers)
    where = _PANELS if "_open_panels" in plot.__code__.co_names else _AXES
    sections[1] += f"\n{where}"  # the attributes
    cls.__doc__ = "\n\n".join(
        [head, f"{ways} create it. All parameters are stored as attributes.", *sections]
    )
    return cls


def _with_parameters(docstring: str | None, names: list[str], shared: str) -> tuple[str, list[str]]:
    """Text before the first section, and the sections: first the parameters, all of them."""
    text = inspect.cleandoc(docstring or "")
    head, *sections = (part.strip() for part in re.split(r"^(?=\w[\w ]*\n-{3})", text, flags=re.M))
    has_own = bool(sections) and sections[0].startswith("Parameters\n")
    own = sections.pop(0).split("\n", 2)[2] if has_own else ""
    known = _by_name(shared) | _by_name(own)
    entries = dict.fromkeys(known[name] for name in names)
    return head, ["\n".join(["Parameters", "----------", *entries]), *sections]


def _by_name(text: str) -> dict[str, str]:
    """Entries of a section by the names that they describe, of which each may have several."""
    return {
        name.strip(" *"): entry.strip()
        for entry in re.split(r"\n(?=\S)", text)
        for name in re.split(" : |\n", entry)[0].split(",")
    }
