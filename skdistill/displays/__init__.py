# SPDX-License-Identifier: BSD-3-Clause
"""Displays of predictive distributions and their uncertainty.

As in scikit-learn, a display stores the data of its figure, `from_estimator` and similar methods
compute them, and `plot` draws them again in another style. Only drawing needs matplotlib.
"""

from ._comparison import FidelityDisplay
from ._features import UncertaintyBandDisplay
from ._pictures import PICTURE_SIZE as PICTURE_SIZE
from ._pictures import draw_halves as draw_halves
from ._pictures import draw_quantiles as draw_quantiles
from ._pictures import draw_rejection as draw_rejection
from ._pictures import draw_reliability as draw_reliability
from ._pictures import png_of as png_of

__all__ = ["FidelityDisplay", "UncertaintyBandDisplay"]
