# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as bytes, drawn without pyplot's list of open figures."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from ._drawing import import_pyplot


def png_of(draw: Callable[[Any], Any], size: tuple[float, float], dpi: int, caller: str) -> bytes:
    """Return a PNG of what `draw(ax)` draws, of `size` in inches.

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
