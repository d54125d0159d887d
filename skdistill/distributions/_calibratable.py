# SPDX-License-Identifier: BSD-3-Clause
"""What calibration asks of a distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ._uncertainty import Uncertainty


class Calibratable(ABC):
    """A distribution whose members' temperature and disagreement can be changed by themselves.

    See :class:`skdistill.distillers.Calibration`.
    """

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Return the parts of the uncertainty, as of every distribution."""

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

    def displaced(self, values: Tensor) -> Calibratable:
        """Add S equally likely functions to what is predicted, by their values for the rows.

        They are added to the mean of numbers, whose aleatoric part stays, or to logits. Members
        get one each; another distribution becomes one of the same kind that is as near as may be.

        Parameters
        ----------
        values : Tensor of shape (S, n, t), or (S, n, K)
            Their mean over the functions is 0.

        Returns
        -------
        Distribution of the same kind.
        """
        epistemic: Tensor = self.uncertainty().epistemic
        least = torch.finfo(epistemic.dtype).tiny
        return self.widened(1 + values.square().mean(0).to(epistemic) / epistemic.clamp(min=least))
