# SPDX-License-Identifier: BSD-3-Clause
"""The networks of an ensemble, and what they minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .._method.plan import NetworkRecipe, Objective, Plan, TrainingBudget
from .._method.task import Task
from ..losses import cross_entropy, gaussian_nll
from ..modules import shares_weights, stack, with_dropout

_SMOOTH = "silu"  # activation of smooth networks, see doc/design.rst


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task."""

    task: Task
    n_networks: int = 1
    beta: float = 0.0  # exponent of the variance in the beta-NLL of numbers
    dropout_rate: float | None = None  # where members are draws of dropout
    n_sharing: int = 1  # members of one network, which share its weights
    are_smooth: tuple[bool, ...] = ()  # of networks of two kinds, see `build`
    calibration: Any = None  # of the fitted ensemble

    @property
    def tells_parts(self) -> bool:
        return self.n_networks * self.n_sharing > 1

    def members_of(self, networks: Sequence[int]) -> list[int]:
        """Numbers of the members of networks of these numbers."""
        k = self.n_sharing
        return [k * network + member for network in networks for member in range(k)]

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        """Build the stack.

        The weights of bins of smooth networks are zero, and remain so; the others begin as they
        would if there were no bins.
        """
        members: list[Any] = recipe.build(seeds)
        if any(self.are_smooth):
            settings = {**recipe.settings, "activation": _SMOOTH}
            smooth: list[Any] = replace(recipe, settings=settings).build(seeds)
            if n_bins := n_bins_of(recipe):
                n_plain = recipe.input_shape[0] - n_bins
                for weight in (network[0].weight.data for network in smooth):
                    weight[:, :n_plain] *= (weight.shape[1] / n_plain) ** 0.5
                    weight[:, n_plain:] = 0.0
            kinds = zip(self.are_smooth, members, smooth, strict=True)
            members = [other if is_smooth else member for is_smooth, member, other in kinds]
        if shares_weights(recipe.module):
            (network,) = members
            return network  # a stack already
        if self.dropout_rate is not None:
            members = [
                with_dropout(member, self.dropout_rate, recipe.input_shape, seed)
                for member, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    def read_mean(self, outputs: Tensor) -> Tensor:
        if self.calibration is None or not self.calibration.are_smooth:
            return super().read_mean(outputs)
        means = outputs.narrow(-1, 0, self.task.size)
        return (self.calibration.weights.to(means)[:, None, None] * means).sum(0)

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        is_numeric = self.task.kind == "regressor"
        objective = GaussianObjective(self.beta) if is_numeric else CategoricalObjective()
        if len(module.network.lead) == 1:
            return objective

        # Members that share weights, and have overfitted one by one, may be better together, and
        # they stop together: by the loss of their mixture.
        def loss_of_mixture(outputs: Tensor, y: Tensor) -> Tensor:  # (1, k, n, p)
            log_prob: Tensor = module.read(outputs[0]).log_prob(y[0])
            return -log_prob.reshape(1, outputs.shape[-2], -1).sum(-1)

        return ValidatedBy(objective, loss_of_mixture)


def n_bins_of(recipe: NetworkRecipe) -> int:
    """Return how many inputs, the last ones, are piecewise-linear encodings."""
    inputs = recipe.inputs
    return 0 if inputs is None else inputs.module(torch.float32).n_bins


class GaussianObjective(Objective):
    """Negative log-likelihood of the targets under each member's Gaussian, or its beta-NLL."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        y, *noise = targets  # of each member's own
        # beta-NLL is no proper score: members are validated by the likelihood itself.
        beta = self.beta if self.training else 0.0
        return gaussian_nll.and_gradient(outputs, y, beta, noise=noise[0] if noise else None)


class CategoricalObjective(Objective):
    """Cross-entropy of the labels under each member's class probabilities."""

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        (codes,) = targets
        return cross_entropy.and_gradient(outputs, codes.expand(outputs.shape[:-1]))


class ValidatedBy(Objective):
    """An objective that is trained by, and another loss in validation, which needs no gradient.

    The latter takes outputs, (S, n, p), or (1, k, n, p) of k members that share weights, and
    targets to the loss of every network and sample, (S, n).
    """

    def __init__(self, objective: Objective, loss: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.objective, self.loss = objective, loss

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        if self.training:
            return super().forward(outputs, targets)
        return self.loss(outputs, targets[0])

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        return self.objective.loss_and_gradient(outputs, targets)


def brier_score(outputs: Tensor, codes: Tensor) -> Tensor:
    """Brier score of the probabilities, of members that share weights that of their mean.

    A temperature mends overconfident probabilities, which raise the log loss before accuracy falls,
    and the Brier score less so (doc/design.rst).
    """
    probs = outputs.softmax(-1)
    if probs.ndim == 4:  # of members that share weights
        probs = probs.mean(1)
    codes = codes.expand(probs.shape[:-1]).unsqueeze(-1)
    return probs.scatter_add(-1, codes, torch.full_like(probs[..., :1], -1.0)).square().sum(-1)
