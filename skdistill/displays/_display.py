# SPDX-License-Identifier: BSD-3-Clause
"""What all displays share: axes, artists, colours, and checks of values to draw."""

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # matplotlib is optional
    Axes = Any
Keywords = Mapping[str, object] | None  # of methods of axes

# From the palette of Okabe and Ito, and lighter tints of it for bands, see doc/design.rst.
LINE_COLOR = "#0072B2"
ALEATORIC_COLOR = "#9CCEEE"
TOTAL_COLOR = "#F6D9A0"
REFERENCE_COLOR = "#4D4D4D"


def import_pyplot(caller: str) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install skdistill[plot]") from error
    return plt


def draw(ax: Axes, method: str, *data: object, given: Keywords = None, **style: object) -> Any:
    """Call a method of the axes, with the style updated by the keywords that a user has given."""
    from matplotlib.cbook import normalize_kwargs  # short names such as `lw` included
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D

    if style.get("label") is not None:
        style["label"] = literal(style["label"])
    style |= normalize_kwargs(dict(given or {}), Line2D if method == "plot" else Collection)
    drawn = getattr(ax, method)(*data, **style)
    return drawn[0] if method == "plot" else drawn


def literal(text: object) -> str:
    """Return a text that matplotlib draws as it is given."""
    escaped = str(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def check_line(values, name):
    """Return `values`, missing ones allowed, as a float array of shape (n,)."""
    checks: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
    array = check_array(values, ensure_2d=False, input_name=name, **checks)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {array.shape}.")
    return array


def check_target(values, name, target, n_rows=None, like="x"):
    """Return the column `target` of `values`, shape (n_rows,) or (n_rows, t)."""
    columns = check_array(values, dtype=np.float64, ensure_2d=False, input_name=name)
    columns = columns.reshape(len(columns), -1)
    if n_rows is not None and len(columns) != n_rows:
        raise ValueError(
            f"{name} must have {n_rows} samples, one for each {like}, got {len(columns)}."
        )
    if not isinstance(target, Integral) or not 0 <= int(target) < columns.shape[1]:
        raise ValueError(
            f"target must be an integer from 0 to {columns.shape[1] - 1}, one of the columns of "
            f"{name}, got {target!r}."
        )
    return columns[:, target]


class Display:
    """Base of displays: their axes, and the late import of matplotlib."""

    @classmethod
    def _needs_matplotlib(cls, method: str) -> Any:
        return import_pyplot(f"{cls.__name__}.{method}")

    def _open(self, ax: Axes | None) -> Axes:
        """Return the axes to draw on, those given or new ones, and keep them."""
        plt = self._needs_matplotlib("plot")
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_
