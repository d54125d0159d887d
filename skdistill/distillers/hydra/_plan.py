# SPDX-License-Identifier: BSD-3-Clause
"""A core with heads, for a member or several each (Hydra+, Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ... import losses
from ..._method.plan import LARGE_LOSS, NetworkRecipe, Objective, Plan, TrainingBudget
from ..._method.task import RegressionTask, Task
from ..._utils.validation import value_at_epoch
from ...distributions import EmpiricalGaussian, Gaussian
from ...losses import Term, weighted_sum
from ...modules import DistributionStack, MultiHead, split_head, stack
from ...settings import HydraLoss

# See doc/design.rst.
_RESIDUAL_FLOOR, _SPREAD_FLOOR = 1e-4, 1e-5  # added to epistemic variances of standardised targets
_RESIDUAL_WEIGHT = 0.5  # of the mismatch of residuals for numbers, for `spread_weight=1`
_SPREAD_WEIGHT = 0.25  # of the mismatch of spreads, likewise
_LARGEST_LOG_GAIN = math.log(10.0)  # bound of the logarithm of the gain of the epistemic variance
_SHARE_KEPT = 0.5  # of a head's variance, at least, where the gain takes from it
_MOST_HEADS = 20  # of heads="auto"
_CHUNK = 2**17  # outputs of the samples whose loss for classes is computed at a time


@dataclass(frozen=True)
class HydraPlan(Plan):
    """A core with heads; member n is imitated by head n mod M.

    With a gain one more head, the last, tells by which factor the members' epistemic variance
    exceeds that of the heads, which miss some of what sets the members apart.
    """

    task: Task
    head_layers: int
    loss: HydraLoss
    n_networks: int = 1  # heads M, and one more with a gain; 1 before the teacher is fitted
    n_members: int = 1  # of the teacher
    has_gain: bool = False
    calibration: Any = None  # of the fitted student
    wanted_heads: Any = "auto"  # see `Heads`
    ddof: int = 0

    def of_members(self, n_members: int) -> HydraPlan:
        """Return the plan of a student of so many members, known when they are fitted."""
        words: dict[Any, int] = {"auto": min(n_members, _MOST_HEADS), None: n_members}
        n_heads: int = words.get(self.wanted_heads, self.wanted_heads)
        is_numeric = isinstance(self.task, RegressionTask)
        has_gain = is_numeric and n_heads > 1 and self.loss.spread_weight > 0
        return replace(self, n_networks=n_heads + has_gain, n_members=n_members, has_gain=has_gain)

    @property
    def takes_functions(self) -> bool:
        return self.wanted_heads != 1

    @property
    def n_heads(self) -> int:
        return self.n_networks - self.has_gain

    @property
    def tells_parts(self) -> bool:
        return self.n_heads > 1

    @property
    def read(self) -> Callable[[Tensor], Any] | None:  # type: ignore[override]
        return gained if self.has_gain else None

    def read_mean(self, outputs: Tensor) -> Tensor:
        return outputs.narrow(0, 0, self.n_heads).narrow(2, 0, self.task.size).mean(dim=0)

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> MultiHead:
        networks = recipe.build(seeds)
        cores, heads = zip(*(split_head(net, self.head_layers) for net in networks), strict=True)
        return MultiHead(stack(cores[:1]), stack(heads, lead=(1, len(heads))))

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        is_numeric = isinstance(self.task, RegressionTask)
        kind = GaussianHydraObjective if is_numeric else CategoricalHydraObjective
        return kind(self, training_budget.n_epochs, training_budget.refinement)


class HydraObjective(Objective):
    """The loss of Hydra+ (Eq 10) with a term that matches spreads; subclasses define the terms.

    Targets are the teacher's members (S, n, N, ...), the labels (S, n, ...), and whether a sample
    has a label (S, n). Outputs are the heads', (S, M, n, ...). `low_noise_factor` is above
    1 where the teacher predicts next to no variance.
    """

    member_index: Tensor
    head_index: Tensor
    diversity_weight: Tensor
    spread_weight: Tensor

    def __init__(self, plan: HydraPlan, n_epochs: int, low_noise_factor: float):
        super().__init__()
        self.plan = plan
        self.n_epochs = n_epochs
        self.residual_floor = _RESIDUAL_FLOOR / low_noise_factor**2
        self.spread_floor = _SPREAD_FLOOR / low_noise_factor**2
        self.in_order = plan.n_members == plan.n_heads
        member_index, head_index = losses.pairing(plan.n_members, plan.n_heads)
        self.register_buffer("member_index", member_index)
        self.register_buffer("head_index", head_index)
        self.register_buffer("diversity_weight", torch.zeros(()))
        self.register_buffer("spread_weight", torch.zeros(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        loss = self.plan.loss
        self.diversity_weight.fill_(value_at_epoch(loss.diversity_weight, epoch, start=0.0))
        # Means first: in early epochs the steep gradients of the spread would drown theirs.
        share = min(1.0, (epoch + 1) / self.n_epochs)
        self.spread_weight.fill_(loss.spread_weight * share)

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """Which member goes with which head; None in order."""
        return None if self.in_order else (self.member_index, self.head_index)

    def penalty(self, module: Any) -> Tensor | None:
        if self.plan.loss.diversity_weight == 0:
            return None
        weights = [weight[:, : self.plan.n_heads] for weight in module.network.head_weights()]
        return self.diversity_weight * losses.diversity(weights, self.plan.loss.diversity)  # L4


def split_gain(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (..., M, n, 2 t) of the heads, and the raw log gain (..., n, t) of the last network.

    Its other outputs mean nothing.
    """
    n_heads, n_targets = outputs.shape[-3] - 1, outputs.shape[-1] // 2
    raw = outputs.select(-3, n_heads).narrow(-1, 0, n_targets)
    return outputs.narrow(-3, 0, n_heads), raw


def bounded(raw: Tensor) -> Tensor:
    """Logarithm of the gain, within its bounds."""
    return _LARGEST_LOG_GAIN * torch.tanh(raw / _LARGEST_LOG_GAIN)


def gained(outputs: Tensor) -> EmpiricalGaussian:
    """Heads whose means are as far apart as the members', for outputs (M + 1, n, 2 t).

    By the loss a head's variance covers what it misses of its members. What the gain adds to the
    epistemic part is therefore taken from the variances, as far as they have it: the total stays.
    """
    own, raw = split_gain(outputs)
    means, variances = Gaussian.from_outputs(own)
    gain = bounded(raw).exp()
    centre = means.mean(0)
    residuals = means - centre
    taken = (gain - 1) * (residuals * residuals).mean(0)
    means = torch.addcmul(centre, gain.sqrt(), residuals)
    return EmpiricalGaussian(means, torch.maximum(variances - taken, _SHARE_KEPT * variances))


class GaussianHydraObjective(HydraObjective):
    """The loss for numbers: members (S, n, N, t, 2), labels (S, n, t), outputs (S, M, n, 2 t).

    With a gain there is one more network, whose first t outputs are the raw logarithm of it.
    """

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        predictions, y, labelled = targets
        members = losses.Mixture(*predictions.transpose(-4, -3).unbind(-1))  # (S, N, n, t)
        own, log_gain = outputs, None
        if self.plan.has_gain:
            own, raw = split_gain(outputs)
            log_gain = bounded(raw)
        heads = losses.Mixture(*Gaussian.from_outputs(own))
        loss, gradient = weighted_sum(self._terms(members, y, labelled, log_gain), heads)
        slope = losses.gradient_of_outputs(own, gradient)
        if log_gain is not None:
            d_log_gain = losses.spread_error(heads, members, log_gain, self.spread_floor)
            d_log_gain = d_log_gain.mul_(self.spread_weight).mul_(2 * _SPREAD_WEIGHT)
            d_tanh = 1 - (log_gain / _LARGEST_LOG_GAIN).square()  # 1 - tanh^2
            d_raw = d_log_gain * d_tanh
            d_last = torch.cat((d_raw, torch.zeros_like(raw)), dim=-1)
            slope = torch.cat((slope, d_last.unsqueeze(-3)), dim=-3)
        # Where members agree to a floor, residuals of heads that are not trained yet are far off.
        limit = LARGE_LOSS * y.shape[-1]
        loss, slope = losses.log_tailed_clip(loss.unsqueeze(-2), slope, limit)
        return loss.squeeze(-2), slope

    def _terms(
        self, members: losses.Mixture, y: Tensor, labelled: Tensor, log_gain: Tensor | None
    ) -> Iterator[Term]:
        """Terms of the heads whose weight is not zero."""
        alpha, beta = float(self.plan.loss.teacher_weight), float(self.plan.loss.member_weight)
        if alpha < 1:
            yield Term(losses.correctness, (y,), (1 - alpha) * labelled)  # L1
        if alpha > 0 and beta < 1:
            yield Term(losses.aggregation, (members,), alpha * (1 - beta))  # L2
        if alpha > 0 and beta > 0:
            yield Term(losses.individuality, (members, self.pairs), alpha * beta)  # L3
        if self.plan.loss.spread_weight > 0:
            weight = self.spread_weight
            arguments: tuple = members, self.pairs, self.residual_floor
            yield Term(losses.residual_mismatch, arguments, _RESIDUAL_WEIGHT * weight)
            arguments = members, log_gain, self.spread_floor
            yield Term(losses.spread_mismatch, arguments, _SPREAD_WEIGHT * weight)


class CategoricalHydraObjective(HydraObjective):
    """The loss for classes: members' log probabilities (S, n, N, K), codes (S, n), logits
    (S, M, n, K).
    """

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        _, n_heads, n_rows, n_classes = outputs.shape
        size = max(1, _CHUNK // (n_heads * n_classes))
        if size >= n_rows:
            return weighted_sum(self._terms(*targets), losses.Categories(outputs))
        loss, gradient = torch.empty_like(targets[-1]), torch.empty_like(outputs)
        for start in range(0, n_rows, size):  # few samples at a time: temporaries stay in the cache
            rows = slice(start, start + size)
            terms = self._terms(*(target[:, rows] for target in targets))
            heads = losses.Categories(outputs[:, :, rows])
            loss[:, rows], gradient[:, :, rows] = weighted_sum(terms, heads)
        return loss, gradient

    def _terms(self, predictions: Tensor, y: Tensor, labelled: Tensor) -> Iterator[Term]:
        """Terms whose weight is not zero."""
        members = losses.KnownCategories(predictions.transpose(-3, -2))  # (S, N, n, K)
        loss = self.plan.loss
        alpha, beta = float(loss.teacher_weight), float(loss.member_weight)
        if alpha < 1:
            yield Term(losses.categorical_correctness, (y,), (1 - alpha) * labelled)  # L1
        if alpha > 0 and beta < 1:
            arguments: tuple = members, loss.aggregate_temperature
            yield Term(losses.categorical_aggregation, arguments, alpha * (1 - beta))  # L2
        if alpha > 0 and beta > 0:
            arguments = members, self.pairs, loss.member_temperature
            yield Term(losses.categorical_individuality, arguments, alpha * beta)  # L3
        if loss.spread_weight > 0:
            yield Term(losses.information_mismatch, (members,), self.spread_weight)
