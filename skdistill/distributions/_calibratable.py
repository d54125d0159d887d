# SPDX-License-Identifier: BSD-3-Clause
"""What calibration asks of a distribution."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from ._protocol import Distribution


class Calibratable(Distribution):
    """A distribution whose members' temperature and disagreement can be changed by themselves.

    See :class:`skdistill.distillers.Calibration`.
    """

    @abstractmethod
    def tempered(self, temperature: Any) -> Calibratable:
        """Raise every member's density, or probabilities, to the power ``1 / temperature``.

        It multiplies the aleatoric variance of numbers by the temperature, and leaves the mean and
        the epistemic part as they are. For classes it divides the members' logits by it; those of
        the mean, with the precision kept, where members have a Dirichlet distribution, whose powers
        have none.

        Parameters
        ----------
        temperature : float or array-like of shape (t,)

        Returns
        -------
        Distribution of the same kind.
        """

    @abstractmethod
    def widened(self, factor: Tensor) -> Calibratable:
        """Multiply the epistemic part by a factor.

        It is exact for numbers, whose aleatoric part and mean stay as they are. For classes the
        variance of the members' logits is multiplied, or the precision of a Dirichlet distribution
        divided, to which the mutual information is nearly proportional where it is small.

        Parameters
        ----------
        factor : Tensor of shape (n, t) or (n,)

        Returns
        -------
        Distribution of the same kind.
        """
