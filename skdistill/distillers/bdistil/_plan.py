# SPDX-License-Identifier: BSD-3-Clause
"""Small networks that correct each other, round by round (B-DISTIL)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import losses
from ..._data.encoding import InputEncoding
from ..._method.plan import NetworkRecipe, Objective, Plan, TrainingBudget
from ..._method.random_functions import UnknownColumns
from ..._method.task import RegressionTask, Task
from ...modules import Booster, Learner

_LEAST_PROBABILITY = 1e-6  # of a teacher, before the logarithm is taken
_LEAST_VARIANCE = 1e-5  # likewise, of standardised targets


class LearnerRecipes(NamedTuple):
    """How to build the networks of each model class."""

    of_classes: tuple[NetworkRecipe, ...]
    functions: UnknownColumns | None = None

    @property
    def module(self) -> Any:
        return self.of_classes[0].module

    @property
    def is_builtin(self) -> bool:
        """Whether all networks are of :mod:`skdistill.modules`."""
        return all(recipe.is_builtin for recipe in self.of_classes)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.of_classes[0].row_shape

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of what networks take for a sample."""
        return self.of_classes[0].input_shape

    @property
    def inputs(self) -> InputEncoding | None:
        """What is done to samples before networks take them."""
        return self.of_classes[0].inputs


@dataclass(frozen=True)
class RoundsPlan(Plan):
    """A series of learners, whose mean is the prediction; settings are the booster's."""

    task: Task
    head_layers: int
    connection: str
    early: bool
    gamma: float
    temperature: float
    classes: tuple[tuple[int, int], ...]  # to search: number of a model class, of connections
    structure: tuple[tuple[int, int], ...] = ()  # the same for each learner that was found
    calibration: Any = None  # of the fitted student

    tells_parts: ClassVar[bool] = False  # learners correct each other

    @property
    def is_centred(self) -> bool:
        """Whether outputs are logits, of which only the differences matter."""
        return not isinstance(self.task, RegressionTask)

    @property
    def n_networks(self) -> int:
        return max(1, len(self.structure))

    @property
    def task_temperature(self) -> float | None:
        """Temperature of the task loss; None for the squared error."""
        return None if isinstance(self.task, RegressionTask) else self.temperature

    def build_learner(
        self, recipe: NetworkRecipe, sources: Sequence[Learner], seed: int
    ) -> Learner:
        """Build a learner of a model class that reads some earlier ones, the last first."""
        (network,) = recipe.build([seed])
        return Learner(
            network,
            recipe.input_shape,
            self.head_layers,
            self.connection,
            sources,
            self.early,
            torch.Generator().manual_seed(seed),
        )

    def new_booster(self, learners: list[Learner], loc: Tensor, bound: Tensor) -> Booster:
        return Booster(learners, loc, bound, centred=self.is_centred)

    def build(self, recipe: LearnerRecipes, seeds: Sequence[int]) -> Booster:
        """Build a booster of the learners found, or of one of each class before there are any."""
        learners: list[Learner] = []
        structure = self.structure or self.classes
        for (number, n_sources), seed in zip(structure, itertools.cycle(seeds), strict=False):
            sources = learners[::-1][:n_sources]
            learners.append(self.build_learner(recipe.of_classes[number], sources, seed))
        zeros = torch.zeros(self.n_outputs)
        return self.new_booster(learners, zeros, zeros.clone())

    def complete(self, module: Any) -> None:
        module.network.put_side_by_side()

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        """Return what the learner of the first round minimises."""
        return WeakLearnerObjective(module.network, self.task_temperature, 1 / self.gamma)

    def target_of(self, predictions: np.ndarray) -> np.ndarray:
        """Return the targets of learners, (n, L), for members' predictions (n, S, ...)."""
        if isinstance(self.task, RegressionTask):
            means, variances = predictions[..., 0], predictions[..., 1]
            variance = np.maximum(variances.mean(1) + means.var(1), _LEAST_VARIANCE)
            raw_variance = variance + np.log(-np.expm1(-variance))  # softplus inverted
            return np.concatenate([means.mean(1), raw_variance], axis=1)
        logits = np.log(np.maximum(np.exp(predictions).mean(1), _LEAST_PROBABILITY))
        return logits - logits.mean(1, keepdims=True)


class WeakLearnerObjective(Objective):
    """Objective of a learner (Eq 6): a task loss, and the barrier with weight 1 / gamma.

    Its targets are the values to learn, (1, n, L), and what is wanted of the errors, (1, n, L).
    Outputs are raw, (1, n, L), or (1, time, n, L), where the task loss is a mean over the time
    steps (the loss of E-RNN) and the barrier is for the last. `temperature` is that of the
    cross-entropy between classes; None is half the squared error.
    """

    def __init__(self, booster: Booster, temperature: float | None, barrier_weight: float):
        super().__init__()
        self.loc, self.bound, self.centred = booster.loc, booster.bound, booster.centred
        self.temperature = temperature
        self.barrier_weight = barrier_weight

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, wanted = targets
        over_time = outputs.ndim > target.ndim
        bounded = losses.bounded_outputs(outputs, self.loc, self.bound, self.centred)
        loss, gradient = self._task_loss(bounded, target.unsqueeze(1) if over_time else target)
        last, at_end = bounded, gradient
        if over_time:
            loss, gradient = loss.mean(1), gradient / bounded.shape[1]
            last, at_end = bounded[:, -1], gradient[:, -1]
        if self.barrier_weight:
            barrier, d_barrier = losses.log_barrier.and_gradient(last - target, wanted, self.bound)
            loss = torch.add(loss, barrier, alpha=self.barrier_weight)  # Eq 6
            at_end.add_(d_barrier, alpha=self.barrier_weight)
        return loss, losses.gradient_of_raw(gradient, bounded, self.loc, self.bound, self.centred)

    def _task_loss(self, bounded: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature is None:
            error = bounded - target
            return 0.5 * error.square().sum(-1), error
        softened = torch.softmax(target / self.temperature, -1).expand_as(bounded)
        term = losses.Term(losses.cross_entropy, (softened,))
        return losses.tempered_sum([term], bounded, self.temperature)
