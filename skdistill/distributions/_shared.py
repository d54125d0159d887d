# SPDX-License-Identifier: BSD-3-Clause
"""What distributions share: quantiles of y, reading of network outputs, checks of arguments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.validation import Number
from ._uncertainty import Uncertainty


class Marginal(ABC):
    """Predicted distribution of t numbers, for each of n rows.

    Its quantiles and intervals follow from the quantiles of its tails.
    """

    @property
    def variance(self) -> Tensor:
        """Variance of y, of shape (n, t): the total uncertainty."""
        total: Tensor = self.uncertainty().total
        return total

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Parts of the variance by the law of total variance.

        Returns
        -------
        Uncertainty
            Tensors of shape (n, t), in squared units of y. The total is the sum of the parts.
        """

    @abstractmethod
    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> Marginal:
        """Distribution of ``loc + scale * y``, such as y back from standardised to own units.

        Parameters
        ----------
        loc, scale : Tensor or array of shape (t,)
            Shift and factor of each target.

        Returns
        -------
        Distribution of the same kind.
        """

    @abstractmethod
    def with_mean_variance(self, variance: Tensor) -> Marginal:
        """Add variance to that of the mean, which is the epistemic part.

        Parameters
        ----------
        variance : Tensor of shape (n, t)
            In squared units of y.

        Returns
        -------
        Distribution of the same kind.
        """

    @abstractmethod
    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of y, per row and target.

        Parameters
        ----------
        y : Tensor of shape (n, t)

        Returns
        -------
        Tensor of shape (n, t)
            In nats. The joint log density of several targets is not their sum where these share
            members.

        Raises
        ------
        ValueError
            If `y` does not have shape (n, t).
        """

    @abstractmethod
    def cdf(self, y: Tensor) -> Tensor:
        """Distribution function of y, per row and target.

        Parameters
        ----------
        y : Tensor of shape (n, t)

        Returns
        -------
        Tensor of shape (n, t)
            Probabilities.

        Raises
        ------
        ValueError
            If `y` does not have shape (n, t).
        """

    @abstractmethod
    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw y.

        The same draws serve every row: what is drawn for a row does not depend on the rows around
        it, but the rows of a draw are not independent of each other.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        generator : torch.Generator, default=None
            Source of randomness, on any device; None is torch's global generator.

        Returns
        -------
        Tensor of shape (n_samples, n, t)
            In units of y.
        """

    @torch.no_grad()
    def quantile(self, q: float | Sequence[float] | Tensor) -> Tensor:
        """Quantiles of the marginal distribution of y.

        Parameters
        ----------
        q : float or 1-D sequence or tensor of floats
            Probabilities, strictly between 0 and 1.

        Returns
        -------
        Tensor of shape (n, t, len(q))
            In units of y; one quantile for a float. No gradient passes through.

        Raises
        ------
        ValueError
            If a probability is not strictly between 0 and 1.
        """
        wanted = "quantiles must be a number or a 1-D sequence of numbers strictly between 0 and 1"
        try:
            levels = torch.as_tensor(q, dtype=torch.float64, device=self._device)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise TypeError(f"{wanted}, got {q!r}.") from error
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"{wanted}, got {levels.tolist()}.")
        levels = torch.atleast_1d(levels)
        return self._tail_quantile(torch.minimum(levels, 1 - levels), upper=levels > 0.5)

    @torch.no_grad()
    def interval(self, coverage: float | Sequence[float]) -> Tensor:
        """Central interval of the marginal: as much probability below it as above it.

        Parameters
        ----------
        coverage : float or sequence of float
            Probability of the interval, strictly between 0 and 1.

        Returns
        -------
        Tensor of shape (n, t, 2), or (n, t, len(coverage), 2) for a sequence
            Lower and upper end, in units of y. No gradient passes through.

        Raises
        ------
        ValueError
            If a coverage is not strictly between 0 and 1.
        """
        is_one = isinstance(coverage, (float, np.floating))
        several = isinstance(coverage, (list, tuple)) or getattr(coverage, "ndim", 0) == 1
        levels: list[Any] = [*coverage] if several else [coverage]  # type: ignore[misc]
        if not levels or not all(
            isinstance(level, (float, np.floating)) and 0 < level < 1 for level in levels
        ):
            raise ValueError(
                f"coverage must be strictly between 0 and 1, got {coverage!r}. "
                "It is a number or a sequence of numbers."
            )
        tails = [(1 - float(level)) / 2 for level in levels for _ in range(2)]
        upper = torch.tensor([False, True] * len(levels))
        tail = torch.tensor(tails, dtype=torch.float64)
        ends = self._tail_quantile(tail.to(self._device), upper.to(self._device))
        found: Tensor = ends.unflatten(-1, (len(levels), 2))
        return found[..., 0, :] if is_one else found

    @property
    def _device(self) -> torch.device:
        mean: Tensor = self.mean  # type: ignore[attr-defined]  # a field of some, a property of others
        return mean.device

    @abstractmethod
    def _tail_quantile(self, tail: Tensor, upper: Tensor) -> Tensor:
        """Points with the probability `tail` above them where `upper` is true, else below them.

        `tail`, float64 and at most 1/2, and `upper` have shape (k,), the points (n, t, k).
        """


def row_chunks(values: Tensor, n_rows: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split along the rows, so that temporaries stay small.

    An exported graph, whose number of rows is open, takes them all at once.
    """
    return (values,) if torch.compiler.is_exporting() else values.split(max(1, n_rows), axis)


def of_one_network(outputs: Tensor, blocks: int, what: str, at_least: int = 0) -> Tensor:
    """Outputs (n, c) of one network, given as such or as (1, n, c), c a multiple of `blocks`."""
    if outputs.ndim == 3 and len(outputs) == 1:
        outputs = outputs.squeeze(0)
    if outputs.ndim != 2 or outputs.shape[1] % blocks or outputs.shape[1] < at_least:
        raise ValueError(
            f"outputs must have shape (n, c) or (1, n, c), where c is {what}; got "
            f"{tuple(outputs.shape)}."
        )
    return outputs


def as_tensor_like(value: Any, like: Tensor) -> Tensor:
    """Return numbers as a tensor of the dtype and on the device of `like`."""
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


def check_targets(y: Tensor, like: Tensor) -> None:
    """Raise TypeError if `y` is no tensor, ValueError if its shape is not that of `like`."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, got {y!r}.")
    if y.shape != like.shape:
        raise ValueError(f"y must have shape (n, t) = {tuple(like.shape)}, got {tuple(y.shape)}.")


def check_n_samples(n_samples: int) -> None:
    """Raise TypeError or ValueError if `n_samples` is no number of draws."""
    Number(Integral, 0).check(n_samples, "n_samples")


def random_numbers(
    draw: Callable[..., Tensor],
    shape: tuple[int, ...],
    generator: torch.Generator | None,
    like: Tensor,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw numbers for the device of `like`, on the generator's own device."""
    device = like.device if generator is None else generator.device
    drawn = draw(shape, generator=generator, device=device, dtype=dtype or like.dtype)
    return drawn.to(like.device)


def normal_cdf(z: Tensor) -> Tensor:
    """Distribution function of N(0, 1), of full relative accuracy in the lower tail."""
    return 0.5 * torch.erfc(-math.sqrt(0.5) * z)
