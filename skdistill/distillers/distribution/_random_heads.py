# SPDX-License-Identifier: BSD-3-Clause
"""Last layers whose weights, or inputs, are drawn at random (Hydra+'s Gauss and Drop).

For comparison: their draws are independent of the member that they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ... import losses
from ..._method.plan import NetworkRecipe
from ..._method.task import Task
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ...modules import DropoutHead, GaussianHead, RandomHead, StackedLinear, split_head, stack
from ._family import FamilyPlan, OfGaussians, Term
from ._mixture import CategoricalMixturePlan


@dataclass(frozen=True)
class RandomHeadPlan(FamilyPlan):
    """Draws of the last layer, each of which is compared with a member (Hydra+, L3).

    Parameters
    ----------
    n_samples : int, default=100
        Draws for each row in prediction.
    seed : int, default=0
        Of these draws.
    rate : float, default=None
        Probability that an input of the last layer is dropped (Hydra+'s Drop). None is a Gaussian
        over its weights, by local reparametrisation (Gauss).
    """

    n_samples: int = 100
    seed: int = 0
    rate: float | None = None

    can_be_displaced: ClassVar[bool] = False  # there are more draws than functions
    can_tell_parts: ClassVar[bool] = True
    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"n_samples"})

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        if "dropout_rate" in cls.settings:
            fields["rate"] = parameters.dropout_rate
        return super().of(parameters, task, n_samples=parameters.n_samples, **fields)

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> RandomHead:
        (network,) = recipe.build(seeds)
        core, head = split_head(network, 1)
        layer = list(stack([head]).children())[-1]
        if not isinstance(layer, StackedLinear):
            raise ValueError(f"module must end in a linear layer with a random head, got {head}.")
        parts = stack([core]), layer, self.n_members, self.n_samples, self.seed
        return GaussianHead(*parts) if self.rate is None else DropoutHead(*parts, rate=self.rate)


@dataclass(frozen=True)
class NumericGaussianHeadPlan(RandomHeadPlan, OfGaussians):
    """Gauss: draws that predict a mean and a raw variance for each target."""

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
class NumericDropoutHeadPlan(NumericGaussianHeadPlan):
    """The same with dropout (Drop)."""

    settings: ClassVar[frozenset[str]] = NumericGaussianHeadPlan.settings | {"dropout_rate"}


@dataclass(frozen=True)
class GaussianHeadPlan(RandomHeadPlan, CategoricalMixturePlan):
    """Gauss: draws that predict logits."""

    settings: ClassVar[frozenset[str]] = RandomHeadPlan.settings | CategoricalMixturePlan.settings

    def expected(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical(self.distribution(outputs).log_mean.unsqueeze(0))

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        softened = (members / temperature).log_softmax(-1)
        return Term(losses.categorical_individuality, (softened,))  # Hydra+, L3


@dataclass(frozen=True)
class DropoutHeadPlan(GaussianHeadPlan):
    """The same with dropout (Drop)."""

    settings: ClassVar[frozenset[str]] = GaussianHeadPlan.settings | {"dropout_rate"}
