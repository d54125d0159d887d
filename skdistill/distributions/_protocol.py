# SPDX-License-Identifier: BSD-3-Clause
"""What every second-order distribution offers: the one thing that all models predict.

Each model of this package, teacher or student, maps a row to a distribution over predictive
distributions. Everything that a user calls on an estimator is read off it through these protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ._uncertainty import Uncertainty


@runtime_checkable
class Distribution(Protocol):
    """A distribution over predictive distributions, for each of n rows.

    What is predicted is the mean over them. Targets are t numbers (:class:`NumericDistribution`)
    or one of K classes (:class:`ClassDistribution`). Distributions that have members, or draws that
    stand for them, offer them as ``members``: (n, S, t, 2) means and variances, or (n, S, K)
    probabilities.
    """

    @property
    def mean(self) -> Tensor:
        """Expected targets, of shape (n, t), or class probabilities, of shape (n, K)."""
        ...

    def uncertainty(self) -> Uncertainty:
        """Split the total uncertainty into aleatoric and epistemic.

        Returns
        -------
        Uncertainty
            Variances in squared units of y, of shape (n, t), or entropies in nats, of shape (n,).
            The parts are None where the model cannot tell them.
        """
        ...

    def log_prob(self, y: Tensor, /) -> Tensor:
        """Logarithm of the predicted density of targets, or probability of classes.

        Parameters
        ----------
        y : Tensor of shape (n, t), or of int64 of shape (n,)

        Returns
        -------
        Tensor of shape (n, t) or (n,)
            In nats.
        """
        ...

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw targets or classes; the same draws serve every row.

        Parameters
        ----------
        n_samples : int
        generator : torch.Generator, default=None

        Returns
        -------
        Tensor of shape (n_samples, n, t), or of int64 of shape (n_samples, n)
        """
        ...


@runtime_checkable
class NumericDistribution(Distribution, Protocol):
    """A distribution over predictive distributions of t numbers."""

    @property
    def variance(self) -> Tensor:
        """Total variance of the targets, of shape (n, t), in squared units of y."""
        ...

    def cdf(self, y: Tensor) -> Tensor:
        """Probability of each target being at most `y`.

        Parameters
        ----------
        y : Tensor of shape (n, t)

        Returns
        -------
        Tensor of shape (n, t)
        """
        ...

    def quantile(self, q: Any) -> Tensor:
        """Quantiles of each target.

        Parameters
        ----------
        q : array-like of shape (n_quantiles,)
            Probabilities between 0 and 1.

        Returns
        -------
        Tensor of shape (n, t, n_quantiles)
        """
        ...

    def interval(self, coverage: float | Sequence[float]) -> Tensor:
        """Central intervals that hold each target with a given probability.

        Parameters
        ----------
        coverage : float or sequence of float
            Probability between 0 and 1.

        Returns
        -------
        Tensor of shape (n, t, 2), or (n, t, len(coverage), 2) for a sequence
            Lower and upper ends.
        """
        ...

    def affine(self, loc: Any, scale: Any) -> NumericDistribution:
        """Return the distribution of ``loc + scale * y``.

        Parameters
        ----------
        loc, scale : array-like of shape (t,)

        Returns
        -------
        NumericDistribution
        """
        ...


@runtime_checkable
class ClassDistribution(Distribution, Protocol):
    """A distribution over predictive distributions of one of K classes."""

    @property
    def log_mean(self) -> Tensor:
        """Logarithms of the class probabilities, of shape (n, K)."""
        ...
