# SPDX-License-Identifier: BSD-3-Clause
"""Last layers whose weights, or inputs, are drawn at random (Hydra+'s Gauss and Drop).

For comparison: their draws are independent of the member that they are compared with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ... import losses
from ..._plans import NetworkRecipe
from ..._tasks import Task
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ...modules import DropoutHead, GaussianHead, RandomHead, StackedLinear, split_head, stack
from ._family import FamilyPlan, OfGaussians, Term
from ._mixture import CategoricalMixturePlan


@dataclass(frozen=True)
class RandomHeadPlan(FamilyPlan):
    """Draws of the last layer's weights: each is compared with a member (Hydra+, L3)."""

    n_samples: int = 100
    seed: int = 0

    can_tell_parts: ClassVar[bool] = True
    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"n_samples"})

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        return super().of(parameters, task, n_samples=parameters.n_samples, **fields)

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> RandomHead:
        (network,) = recipe.build(seeds)
        core, head = split_head(network, 1)
        layer = list(stack([head]).children())[-1]
        if not isinstance(layer, StackedLinear):
            raise ValueError(f"module must end in a linear layer with a random head, got {head}.")
        return self.head(stack([core]), layer)

    @abstractmethod
    def head(self, core: nn.Module, layer: StackedLinear) -> RandomHead:
        """Return the network, given its core and its last layer."""


@dataclass(frozen=True)
class GaussianWeightsPlan(RandomHeadPlan):
    """A Gaussian over the last layer's weights, local reparametrisation (Hydra+'s Gauss)."""

    def head(self, core: nn.Module, layer: StackedLinear) -> GaussianHead:
        return GaussianHead(core, layer, self.n_members, self.n_samples, self.seed)


@dataclass(frozen=True)
class DropoutPlan(RandomHeadPlan):
    """Dropout before the last layer (Hydra+'s Drop)."""

    rate: float = 0.5

    settings: ClassVar[frozenset[str]] = RandomHeadPlan.settings | {"dropout_rate"}

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        return super().of(parameters, task, rate=parameters.dropout_rate, **fields)

    def head(self, core: nn.Module, layer: StackedLinear) -> DropoutHead:
        return DropoutHead(core, layer, self.n_members, self.n_samples, self.seed, rate=self.rate)


@dataclass(frozen=True)
class OfNumbers(RandomHeadPlan, OfGaussians):
    """Draws that predict a mean and a raw variance for each target."""

    def distribution(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs)

    def expected(self, outputs: Tensor) -> EmpiricalGaussian:
        drawn = self.distribution(outputs)
        return EmpiricalGaussian(
            drawn.mean.unsqueeze(0), drawn.uncertainty().aleatoric.unsqueeze(0)
        )

    def term(self, members: Gaussian, temperature: Tensor) -> Term:
        return Term(losses.of_gaussian_outputs, (losses.individuality, members))  # Hydra+, L3


@dataclass(frozen=True)
class OfClasses(RandomHeadPlan, CategoricalMixturePlan):
    """Draws that predict logits."""

    settings: ClassVar[frozenset[str]] = RandomHeadPlan.settings | CategoricalMixturePlan.settings

    def expected(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical(self.distribution(outputs).log_mean.unsqueeze(0))

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        softened = (members / temperature).log_softmax(-1)
        return Term(losses.categorical_individuality, (softened,))  # Hydra+, L3


@dataclass(frozen=True)
class GaussianHeadPlan(OfClasses, GaussianWeightsPlan):
    """Gauss for classes."""


@dataclass(frozen=True)
class DropoutHeadPlan(OfClasses, DropoutPlan):
    """Drop for classes."""

    settings: ClassVar[frozenset[str]] = OfClasses.settings | DropoutPlan.settings


@dataclass(frozen=True)
class NumericGaussianHeadPlan(OfNumbers, GaussianWeightsPlan):
    """Gauss for numbers."""


@dataclass(frozen=True)
class NumericDropoutHeadPlan(OfNumbers, DropoutPlan):
    """Drop for numbers."""

    settings: ClassVar[frozenset[str]] = DropoutPlan.settings
