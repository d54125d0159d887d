# SPDX-License-Identifier: BSD-3-Clause
"""What every second-order distribution offers: the one thing that all models predict.

Each model of this package, teacher or student, maps a sample to a distribution over predictive
distributions. Everything that a user calls on an estimator is read off it through these classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ._mixture import mixture_quantile
from ._shared import Uncertainty, check_n_samples, random_numbers


class Distribution(ABC):
    """Base of distributions over predictive distributions, for each of n samples.

    What is predicted is the ``mean`` over them: (n, t) for t numbers
    (:class:`NumericDistribution`), (n, K) for K classes (:class:`ClassDistribution`). Distributions
    that have members, or draws that stand for them, offer them as ``members``: (n, S, t, 2) means
    and variances, or (n, S, K) probabilities. Methods that change a distribution return one of the
    same kind.
    """

    if TYPE_CHECKING:  # a dataclass would take it for the default of the field that it often is

        @property
        def mean(self) -> Tensor: ...

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Split the total uncertainty into aleatoric and epistemic, by the law of total variance.

        Returns
        -------
        Uncertainty
            Variances in squared units of y, of shape (n, t), or entropies in nats, of shape (n,).
            None is negative, and the total is the sum of the parts, which are None where the model
            cannot tell them.
        """

    @abstractmethod
    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw y, or classes from the mean.

        The same draws serve every sample: what is drawn does not depend on the samples around it,
        but the samples of a draw are not independent of each other.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        generator : torch.Generator, default=None
            Source of randomness, on any device; None is torch's global generator.

        Returns
        -------
        Tensor of shape (n_samples, n, t), or of int64 of shape (n_samples, n)
            In units of y; or classes, counted from 0, none of them of probability zero.
        """


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


class ReadFromOutputs(ABC):
    """Mixin of distributions that outputs of a network stand for."""

    @classmethod
    @abstractmethod
    def from_outputs(cls, outputs: Tensor) -> Distribution:
        """Read outputs of a network.

        Parameters
        ----------
        outputs : Tensor of shape (n, p) or (1, n, p)
            Each class says what the p columns stand for. Another shape is a ValueError.
        """


class NumericDistribution(Distribution):
    """Base of distributions over predictive distributions of t numbers, for each of n samples.

    Subclasses have a ``mean`` of shape (n, t). Quantiles and intervals follow from
    :meth:`closed_quantile`; no gradient passes through them.
    """

    if TYPE_CHECKING:  # of mixtures

        @property
        def component_weights(self) -> np.ndarray: ...

        def components(self) -> tuple[Tensor, Tensor]: ...

    @property
    def variance(self) -> Tensor:
        """Variance of y, of shape (n, t): the total uncertainty."""
        total: Tensor = self.uncertainty().total
        return total

    @abstractmethod
    def affine(self, loc: Tensor | np.ndarray, scale: Tensor | np.ndarray) -> NumericDistribution:
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
    def with_mean_variance(self, variance: Tensor) -> NumericDistribution:
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
        """Log density of y, per sample and target.

        Parameters
        ----------
        y : Tensor of shape (n, t)

        Returns
        -------
        Tensor of shape (n, t)
            In nats. The joint log density of several targets is not their sum where these share
            members.
        """

    @abstractmethod
    def cdf(self, y: Tensor) -> Tensor:
        """Distribution function of y, per sample and target; `y` is checked as by :meth:`log_prob`.

        Parameters
        ----------
        y : Tensor of shape (n, t)

        Returns
        -------
        Tensor of shape (n, t)
            Probabilities.
        """

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_n_samples(n_samples)
        shape = (self.mean.shape[-1], n_samples)  # targets are independent
        levels = random_numbers(torch.rand, shape, generator, self.mean, torch.float64)
        levels.clamp_(min=torch.finfo(torch.float64).tiny)  # the quantile of 0 is infinite
        found = self._at_levels(levels.flatten().cpu().numpy()).unflatten(-1, shape)
        drawn: Tensor = found.diagonal(dim1=1, dim2=2).permute(1, 0, 2)
        return drawn

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
        """
        wanted = "quantiles must be a number or a 1-D sequence of numbers strictly between 0 and 1"
        try:
            levels = torch.as_tensor(q, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise TypeError(f"{wanted}, got {q!r}.") from error
        if levels.ndim > 1 or not levels.numel() or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"{wanted}, got {levels.tolist()}.")
        return self._at_levels(torch.atleast_1d(levels).numpy())

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
        """
        is_one = isinstance(coverage, (float, np.floating))
        several = isinstance(coverage, (list, tuple)) or np.ndim(coverage) == 1
        levels: list[Any] = [*coverage] if several else [coverage]  # type: ignore[misc]  # checked below
        if not levels or not all(
            isinstance(level, (float, np.floating)) and 0 < level < 1 for level in levels
        ):
            raise ValueError(
                f"coverage must be strictly between 0 and 1, got {coverage!r}. "
                "It is a number or a sequence of numbers."
            )
        upper = (1 + np.array(levels, dtype=float)) / 2
        ends = np.stack([1 - upper, upper], axis=1)
        found: Tensor = self._at_levels(ends.flatten()).unflatten(-1, ends.shape)
        return found[..., 0, :] if is_one else found

    def closed_quantile(self, levels: np.ndarray) -> Tensor | None:
        """Quantiles of y in closed form, by operations that exported graphs have.

        Parameters
        ----------
        levels : ndarray of shape (k,)
            Probabilities, strictly between 0 and 1.

        Returns
        -------
        Tensor of shape (n, t, k), or None
            None where there is no closed form: quantiles are then those of a mixture of Gaussians,
            with means and variances ``components()``, (S, n, t), and ``component_weights``, (S,).
        """
        return None

    def _at_levels(self, levels: np.ndarray) -> Tensor:
        """Points (n, t, k) with these probabilities (k,) below them."""
        found = self.closed_quantile(levels)
        if found is None:
            weights = np.asarray(self.component_weights, dtype=np.float64)
            found = mixture_quantile(*self.components(), weights, levels)
        return found


class ClassDistribution(Distribution):
    """Base of distributions over probabilities of K classes, which predict by their mean.

    Subclasses provide ``mean`` and its logarithm, ``log_mean``.
    """

    if TYPE_CHECKING:

        @property
        def log_mean(self) -> Tensor: ...

    @abstractmethod
    def displaced(self, values: Tensor) -> ClassDistribution:
        """Add a function to each member's logits; one distribution is less sure by all of them.

        Parameters
        ----------
        values : Tensor of shape (S, n, K)
            Values of the functions at the samples, of mean 0 over the functions.

        Returns
        -------
        Distribution of the same kind.
        """

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log probability of classes under the mean.

        Parameters
        ----------
        codes : Tensor of int64 of shape (n,)
            One class for each sample, counted from 0.

        Returns
        -------
        Tensor of shape (n,)
            In nats; ``-inf`` where all members rule the class out.
        """
        log_mean = self.log_mean
        n_rows, n_classes = log_mean.shape
        if not isinstance(codes, Tensor):
            raise TypeError(f"codes must be a tensor, got {codes!r}.")
        is_code = codes.dtype == torch.int64 and codes.shape == (n_rows,)
        if not (is_code and ((codes >= 0) & (codes < n_classes)).all()):
            raise ValueError(
                f"codes must be {n_rows} numbers of int64 from 0 to {n_classes - 1}, got shape "
                f"{tuple(codes.shape)}, {codes.dtype}: {codes}."
            )
        return log_mean.gather(-1, codes.unsqueeze(-1)).squeeze(-1)

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        # A draw is one uniform number, at which every sample's distribution function is inverted.
        check_n_samples(n_samples)
        cdf = self.mean.double().cumsum(dim=-1)
        cdf = cdf / cdf[:, -1:]  # exactly 1 from the last possible class on
        uniform = random_numbers(torch.rand, (n_samples,), generator, cdf)
        return torch.searchsorted(cdf, uniform.repeat(len(cdf), 1), right=True).T
