# SPDX-License-Identifier: BSD-3-Clause
"""Embeddings of numbers: more inputs for a network than one for each column."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from torch import Tensor, nn

from .._utils.settings import Settings
from .._utils.validation import Number, OneOf


@dataclass(eq=False, repr=False)
class PiecewiseLinear(Settings):
    """Piecewise-linear encoding of the numbers of a table [1]_.

    The range of each column is divided into bins, and a number becomes the share of each bin that
    lies below it: 1 for the bins before its own, 0 for those after it. So a network can treat
    different ranges of a column in different ways, as trees do. The columns themselves remain
    inputs, standardised. Bins are found in `fit`; samples are encoded once, before training.

    Parameters
    ----------
    n_bins : int, default=8
        Number of bins of each column at most; columns with fewer values have fewer.
    bins : {"quantile", "tree"}, default="quantile"
        Whether bins hold about as many samples each, or are the leaves of a decision tree that
        predicts y by the column alone.

    References
    ----------
    .. [1] Gorishniy, Rubachev & Babenko (2022), "On Embeddings for Numerical Features in Tabular
           Deep Learning", Section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.modules import PiecewiseLinear
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BayesianEnsembleClassifier(2, max_epochs=5, random_state=0)
    >>> model = model.set_params(module__embeddings=PiecewiseLinear(n_bins=4)).fit(X, y)
    >>> model.module_.inputs.n_inputs  # 13 columns, and 4 bins of each
    65
    """

    _parameter_table = {"n_bins": Number(Integral, 2), "bins": OneOf(("quantile", "tree"))}

    n_bins: int = 8
    bins: str = "quantile"


@dataclass(eq=False, repr=False)
class Periodic(Settings):
    """Periodic embeddings of the inputs of a network, whose frequencies are learnt [1]_.

    A number x becomes x itself and ``sin(2 pi c x)`` and ``cos(2 pi c x)`` for some c, which each
    network learns by itself.

    Parameters
    ----------
    n_frequencies : int, default=8
        Number of frequencies c for each input.
    scale : float, default=0.1
        Standard deviation of the normal distribution that they are drawn from before training.

    References
    ----------
    .. [1] Gorishniy, Rubachev & Babenko (2022), "On Embeddings for Numerical Features in Tabular
           Deep Learning", Eq 2.
    """

    _parameter_table = {
        "n_frequencies": Number(Integral, 1),
        "scale": Number(Real, 0, closed="neither"),
    }

    n_frequencies: int = 8
    scale: float = 0.1


class PeriodicLayer(nn.Module):
    """Maps inputs (..., d) to themselves and their sines and cosines, (..., d * (1 + 2 k))."""

    def __init__(self, in_features: int, settings: Periodic, generator: torch.Generator | None):
        super().__init__()
        drawn = torch.empty(settings.n_frequencies, in_features)
        nn.init.normal_(drawn, std=settings.scale, generator=generator)
        self.frequencies = nn.Parameter(drawn)
        self.out_features = in_features * (1 + 2 * settings.n_frequencies)

    def forward(self, x: Tensor) -> Tensor:
        angles = (2 * math.pi * self.frequencies * x.unsqueeze(-2)).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], dim=-1)  # Eq 2
