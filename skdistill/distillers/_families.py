# SPDX-License-Identifier: BSD-3-Clause
"""Families of distributions over predictions that a network can predict, each with its loss.

Equations are those of J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for
ensemble distribution distillation" (2020), unless said otherwise. Members stand on the axis before
the rows: Gaussians of shape (..., M, n, t) or log probabilities (..., M, n, K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import pad

from .. import losses
from ..distributions import (
    Dirichlet,
    EmpiricalCategorical,
    EmpiricalGaussian,
    Gaussian,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from ..losses import Term
from ..modules import DropoutHead, GaussianHead, RandomHead, StackedLinear


@dataclass(frozen=True)
class Family:
    """What a student predicts for a row, and how that is compared with the members.

    Parameters
    ----------
    size : int
        Number of targets t, or of classes K.
    """

    size: int

    tells_parts: ClassVar[bool] = True  # of the uncertainty
    has_members: ClassVar[bool] = False
    has_start: ClassVar[bool] = False

    # Parameters of the distiller that it reads, of those that not all families do.
    settings: ClassVar[frozenset[str]] = frozenset()

    @property
    def n_outputs(self) -> int:
        """How many numbers the network gives for a row."""
        raise NotImplementedError  # each family says

    @property
    def meaning(self) -> str:
        """What these numbers are, for messages."""
        raise NotImplementedError  # each family says

    def read(self, outputs: Tensor) -> Any:
        """Distribution of outputs (1, n, n_outputs), on the scale of the loss."""
        raise NotImplementedError  # each family says

    def read_agreed(self, outputs: Tensor) -> Any:
        """The expected prediction alone, as of one member, where members never disagreed."""
        raise NotImplementedError  # each family that tells parts says

    def term(self, members: Any, temperature: Tensor) -> Term:
        """Loss against members that are softened by the temperature, as the outputs will be."""
        raise NotImplementedError  # each family says

    def start(self, members: Any, weight: Tensor) -> Tensor:
        """Outputs to start from, given members for some rows, of a family that `has_start`."""
        raise NotImplementedError  # each family says


# ------------------------------------------------------------------------------------------
# Regression
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfGaussians(Family):
    """A distribution over Gaussians; of the outputs, t means and t raw variances come first."""

    def read_agreed(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs[..., : 2 * self.size])


@dataclass(frozen=True)
class GaussianFamily(OfGaussians):
    """A normal distribution over the mean and the raw variance (Eqs 12 and 13)."""

    covariance: str = "diagonal"

    settings: ClassVar[frozenset[str]] = frozenset({"covariance"})

    @property
    def n_outputs(self) -> int:
        return GaussianNormal.outputs_per_target[self.covariance] * self.size

    @property
    def meaning(self) -> str:
        return (
            "two expectations and two raw variances, of mean and raw variance"
            f"{', and a slope' if self.covariance == 'full' else ''}, for each of {self.size} "
            "target(s)"
        )

    def read(self, outputs: Tensor) -> GaussianNormal:
        return GaussianNormal.from_outputs(outputs, self.covariance)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        z = losses.gaussian_parameters(members)  # Eq 12
        if self.covariance == "full":
            return Term(losses.paired_normal_nll, (losses.paired_normal_target(z),))
        return Term(losses.normal_nll, (losses.normal_target(z),))


@dataclass(frozen=True)
class NormalInverseGammaFamily(OfGaussians):
    """A normal-inverse-gamma distribution over the mean and the variance (Eq 11)."""

    has_start: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return NormalInverseGamma.outputs_per_target * self.size

    @property
    def meaning(self) -> str:
        return (
            "a mean, a raw variance and the logarithms of nu and alpha - 1 for each of "
            f"{self.size} target(s)"
        )

    def read(self, outputs: Tensor) -> NormalInverseGamma:
        return NormalInverseGamma.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        target = losses.normal_inverse_gamma_target(members)
        return Term(losses.normal_inverse_gamma_nll, (target,))

    def start(self, members: Gaussian, weight: Tensor) -> Tensor:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_gamma_start(target, weight)


@dataclass(frozen=True)
class NormalInverseWishartFamily(OfGaussians):
    """A normal-inverse-Wishart distribution over the means and the covariance (Eq 11)."""

    has_start: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return 2 * self.size + 2

    @property
    def meaning(self) -> str:
        return (
            f"a mean and a raw variance for each of {self.size} target(s), and the logarithms of "
            "nu and of the degrees of freedom"
        )

    def read(self, outputs: Tensor) -> NormalInverseWishart:
        return NormalInverseWishart.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        target = losses.normal_inverse_gamma_target(members)
        return Term(losses.normal_inverse_wishart_nll, (target,))

    def start(self, members: Gaussian, weight: Tensor) -> Tensor:
        target = losses.normal_inverse_gamma_target(members)
        return losses.normal_inverse_wishart_start(target, weight)


@dataclass(frozen=True)
class GaussianMixtureFamily(Family):
    """One Gaussian with the moments of the members' mixture (Eqs 5 and 6): the total only."""

    tells_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return 2 * self.size

    @property
    def meaning(self) -> str:
        return f"a mean and a raw variance for each of {self.size} target(s)"

    def read(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs)

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        mixture, _ = losses.moments(members)
        return Term(losses.normal_nll, (mixture,))  # Eq 6


# ------------------------------------------------------------------------------------------
# Classification
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogitNormalFamily(Family):
    """A normal distribution over the logits less that of the last class (Eqs 9 and 10)."""

    rank: int = 0
    smoothing: float = 0.0
    n_samples: int = 100
    seed: int = 0

    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"covariance", "smoothing", "n_samples"})

    @property
    def n_outputs(self) -> int:
        return (2 + self.rank) * (self.size - 1)

    @property
    def meaning(self) -> str:
        factor = f" and {self.rank} column(s) of the covariance's factor" if self.rank else ""
        return f"expectations, raw variances{factor} of {self.size} - 1 relative logits"

    def read(self, outputs: Tensor) -> LogitNormal:
        return LogitNormal.from_outputs(outputs, self.rank, self.n_samples, self.seed)

    def read_agreed(self, outputs: Tensor) -> EmpiricalCategorical:
        logits = outputs[..., : self.size - 1]
        return EmpiricalCategorical.from_logits(pad(logits, (0, 1)))  # Eq 9

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        z = losses.relative_logits(members, self.smoothing)  # Eq 9
        if self.rank:
            return Term(losses.low_rank_normal_nll, (z,))
        return Term(losses.normal_nll, (losses.normal_target(z),))


@dataclass(frozen=True)
class DirichletFamily(Family):
    """A Dirichlet distribution over the probabilities (Ryabinin et al., 2021)."""

    loss: str = "reverse_kl"
    max_precision: float = float("inf")
    smoothing: float = 0.0

    settings: ClassVar[frozenset[str]] = frozenset(
        {"loss", "max_precision", "smoothing", "temperature"}
    )

    @property
    def n_outputs(self) -> int:
        return self.size

    @property
    def meaning(self) -> str:
        return "the logarithm of a concentration for each class"

    def read(self, outputs: Tensor) -> Dirichlet:
        """The plain concentrations ``exp(z)``.

        The one that is added to both sides of the divergence (Sec. 3) is there to train well. Read
        with it, the mean would be drawn to the uniform distribution by K units of precision.
        """
        return Dirichlet.from_outputs(outputs, offset=0.0)  # Eq 6

    def read_agreed(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(outputs.clamp(*Dirichlet.output_limits))

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        cap = min(self.max_precision, losses.largest_precision(self.size, members.dtype))
        mean, precision = losses.proxy_target(members, cap, temperature, self.smoothing)
        return losses.proxy_term(self.loss, mean, precision)


@dataclass(frozen=True)
class DirichletLikelihoodFamily(DirichletFamily):
    """The same, by the likelihood of the members' probabilities (Eqs 7 and 11)."""

    settings: ClassVar[frozenset[str]] = DirichletFamily.settings - {"max_precision"}

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        statistics = losses.MemberStatistics(temperature, self.smoothing).add_together(members)
        return Term(losses.dirichlet_nll, (statistics.mean_log, 0.0))


@dataclass(frozen=True)
class CategoricalMixtureFamily(Family):
    """The members' mean probabilities (Eqs 5 and 6), plain ensemble distillation: total only."""

    tells_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"temperature"})

    @property
    def n_outputs(self) -> int:
        return self.size

    @property
    def meaning(self) -> str:
        return "a logit for each class"

    def read(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(outputs)

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        softened = (members / temperature).softmax(-1).mean(-3)  # Eq 5
        return Term(losses.cross_entropy, (softened,))


@dataclass(frozen=True)
class HeadFamily(CategoricalMixtureFamily):
    """Draws of the last layer's weights: each is compared with a member (Hydra+, L3)."""

    n_samples: int = 100
    seed: int = 0

    tells_parts: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"temperature", "n_samples"})

    def read_agreed(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical(self.read(outputs).log_mean.unsqueeze(0))

    def head(self, core: nn.Module, layer: StackedLinear, n_drawn: int) -> RandomHead:
        """The network, given its core and its last layer."""
        raise NotImplementedError  # each family says

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        softened = (members / temperature).log_softmax(-1)
        return Term(losses.categorical_individuality, (softened,))  # Hydra+, L3


@dataclass(frozen=True)
class GaussianHeadFamily(HeadFamily):
    """A Gaussian over the last layer's weights, local reparametrisation (Hydra+'s Gauss)."""

    def head(self, core: nn.Module, layer: StackedLinear, n_drawn: int) -> GaussianHead:
        return GaussianHead(core, layer, n_drawn, self.n_samples, self.seed)


@dataclass(frozen=True)
class DropoutHeadFamily(HeadFamily):
    """Dropout before the last layer (Hydra+'s Drop)."""

    rate: float = 0.5

    settings: ClassVar[frozenset[str]] = HeadFamily.settings | {"dropout_rate"}

    def head(self, core: nn.Module, layer: StackedLinear, n_drawn: int) -> DropoutHead:
        return DropoutHead(core, layer, n_drawn, self.n_samples, self.seed, rate=self.rate)


# Parameters of the distiller that some families read and others do not.
SETTINGS = frozenset().union(
    *(
        family.settings
        for family in (GaussianFamily, LogitNormalFamily, DirichletFamily, DropoutHeadFamily)
    )
)
