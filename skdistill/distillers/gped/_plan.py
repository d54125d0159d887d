# SPDX-License-Identifier: BSD-3-Clause
"""Posterior expectations, learnt by one network (GPED).

Equations are those of Vadera et al. (2020), "Generalized Bayesian Posterior Expectation
Distillation for Deep Neural Networks".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ..._estimator.base import Fitted
from ..._method.plan import Objective, Plan, TrainingBudget
from ..._method.task import Buffers, RegressionTask, Task
from ...distributions import Dirichlet, ExpectedCategorical, ExpectedGaussian, Gaussian
from ...expectations import KNOWN, Expectation
from ...modules import DistributionStack
from ._estimates import pooled, targets_of

_ESTIMATES = ("online", "stochastic")

# Expectations that a student needs to predict, and those that it learns by default, by its task.
_NEEDED = {
    "classifier": (("predictive",), ("dirichlet",)),
    "regressor": (("mean", "aleatoric", "epistemic"),),
}
_AUTO = {"classifier": ("predictive", "share"), "regressor": ("mean", "aleatoric", "epistemic")}
_AUTO_OF_ONE = {**_AUTO, "classifier": ("predictive", "entropy")}  # what one sample tells


@dataclass(frozen=True)
class ExpectationsPlan(Plan):
    """One network whose outputs are posterior expectations."""

    task: Task
    expectations: tuple[Expectation, ...]
    estimates: tuple[str, ...]  # of each of them, "online" or "stochastic"
    n_values: tuple[int, ...]  # how many values each g gives
    columns: tuple[slice, ...]  # place of each among the outputs
    replays: bool = True  # whether it learns from stored members, not from running estimates
    calibration: Any = None  # of the fitted student

    has_members: ClassVar[bool] = False
    in_distribution: ClassVar[tuple[str, ...]]  # expectations that the distribution tells

    @property
    def all_online(self) -> bool:
        """Whether no expectation is estimated by last samples."""
        return "stochastic" not in self.estimates

    @property
    def n_outputs(self) -> int:
        return self.columns[-1].stop

    @property
    def meaning_of_outputs(self) -> str:
        return f"as many as {self.labels} have values"

    @property
    def labels(self) -> list[str]:
        return [expectation.label for expectation in self.expectations]

    def columns_of(self, label: str) -> slice | None:
        """Return the place of an expectation among the outputs."""
        return dict(zip(self.labels, self.columns, strict=True)).get(label)

    def predicted(self, label: str, outputs: Tensor) -> Tensor:
        """Return the values of an expectation, given its outputs, both (..., k)."""
        return self.expectations[self.labels.index(label)].predict(outputs)

    def values(self, members: object) -> np.ndarray:
        """g of members, rows first: (n, S, sum of n_values); pooled, S = 1, if all is online."""
        values = [expectation.of_members(members) for expectation in self.expectations]
        if not self.all_online:
            return torch.cat(values, dim=-1).transpose(0, 1).numpy()
        return pooled(self.expectations, values).unsqueeze(1).numpy()

    def target_of(self, values: np.ndarray) -> np.ndarray:
        """Return the targets of the student, (n, n_outputs), for :meth:`values` of members."""
        parts = torch.from_numpy(values).movedim(1, 0).split(self.n_values, dim=-1)
        mean = pooled(self.expectations, parts)
        return targets_of(self.expectations, list(self.n_values), mean).numpy()

    def in_units(self, label: str, values: Tensor, module: DistributionStack) -> Tensor:
        """Return values (n, k) of an expectation in y's units, of shape (n,) if k is one."""
        return values[:, 0] if values.shape[1] == 1 else values

    def auxiliary_outputs(self, outputs: Tensor, module: DistributionStack) -> dict[str, Tensor]:
        """Return the other expectations, as ``expectation_<name>``."""
        return {
            f"expectation_{e.label}": self.in_units(e.label, e.predict(outputs[0, :, at]), module)
            for e, at in zip(self.expectations, self.columns, strict=True)
            if e.label not in self.in_distribution
        }

    def monitored(self, fitted: Fitted, means: Tensor) -> Fitted:
        """Return a student with the teacher's expectations for the rows of `X_monitor`.

        `means` are targets of the student for these rows, (n_monitor, n_outputs).
        """
        monitor = {
            label: self.in_units(label, means[:, columns].cpu(), fitted.module).numpy()
            for label, columns in zip(self.labels, self.columns, strict=True)
        }
        return replace(fitted, facts=fitted.facts | {"monitor_": monitor})

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        if not self.replays:
            return ExpectationObjective(self.expectations, self.columns)
        return ReplayObjective(self.expectations, self.columns, self.estimates, list(self.n_values))


@dataclass(frozen=True)
class CategoricalExpectationsPlan(ExpectationsPlan):
    """Expectations of class probabilities."""

    in_distribution: ClassVar[tuple[str, ...]] = ("predictive",)

    @property
    def tells_parts(self) -> bool:
        labels = set(self.labels)
        return "predictive" not in labels or not labels.isdisjoint({"share", "entropy"})

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        return self.values(torch.from_numpy(members.astype(dtype)).transpose(0, 1))

    def read(self, outputs: Tensor) -> ExpectedCategorical | Dirichlet:
        known, predictive = KNOWN["classifier"], self.columns_of("predictive")
        if predictive is None:
            return Dirichlet.from_outputs(outputs[..., self.columns_of("dirichlet")], 0.0)
        log_mean, expected = outputs[0, :, predictive].log_softmax(-1), None
        if share := self.columns_of("share"):
            rest = known["share"].predict(-outputs[0, :, share]).squeeze(-1)  # 1 - sigmoid(z)
            expected = rest * torch.special.entr(log_mean.exp()).sum(-1)
        elif entropy := self.columns_of("entropy"):
            expected = known["entropy"].predict(outputs[0, :, entropy]).squeeze(-1)
        return ExpectedCategorical(log_mean, expected)

    def members_of(self, student: BaseEstimator, chains: object, outputs: Tensor) -> Tensor:
        """Return the members' predictions for outputs (S, n, p) of the chains' module."""
        return outputs.softmax(-1)


@dataclass(frozen=True)
class GaussianExpectationsPlan(ExpectationsPlan):
    """Expectations of the means and variances of numbers."""

    in_distribution: ClassVar[tuple[str, ...]] = ("mean", "aleatoric", "epistemic")

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        moments = super().encode_members(members, scaling, dtype)
        return self.values(Gaussian(*torch.from_numpy(moments).transpose(0, 1).unbind(-1)))

    def read(self, outputs: Tensor) -> ExpectedGaussian:
        pairs = zip(self.expectations, self.columns, strict=True)
        values = {e.label: e.predict(outputs[0, :, columns]) for e, columns in pairs}
        return ExpectedGaussian(*(values[label] for label in ("mean", "aleatoric", "epistemic")))

    def predicted(self, label: str, outputs: Tensor) -> Tensor:
        values = super().predicted(label, outputs)
        if label == "epistemic" and self.calibration is not None:
            values = values + values.new_tensor(self.calibration.variance)
        return values

    def read_mean(self, outputs: Tensor) -> Tensor:
        return self.predicted("mean", outputs[0, :, self.columns_of("mean")])

    def members_of(self, student: Any, chains: Any, outputs: Tensor) -> Gaussian:
        """Return the members' predictions for outputs (S, n, p) of the chains' module."""
        # From the scale of the teacher's training to that of the student's, mostly the same.
        scale = (chains.y_scale / student.y_scale).to(outputs)
        mean, variance = Gaussian.from_outputs(outputs)
        shift = ((chains.y_loc - student.y_loc) / student.y_scale).to(outputs)
        return Gaussian(shift + scale * mean, scale.square() * variance)

    def in_units(self, label: str, values: Tensor, module: Any) -> Tensor:
        scale, loc = module.y_scale.cpu(), module.y_loc.cpu()
        if label == "mean":
            values = loc + scale * values
        elif label in ("aleatoric", "epistemic"):
            values = scale.square() * values
        return super().in_units(label, values, module)


def expectations_plan(
    task: Task, expectations: Sequence[Expectation], estimates: Sequence[str], replays: bool
) -> ExpectationsPlan:
    """Return the plan for some expectations, tried out on two members and three rows."""
    shape = 2, 3, task.size
    plan: type[ExpectationsPlan]
    members: Tensor | Gaussian
    if isinstance(task, RegressionTask):
        plan, members = GaussianExpectationsPlan, Gaussian(torch.zeros(shape), torch.ones(shape))
    else:
        plan, members = CategoricalExpectationsPlan, torch.full(shape, 1 / task.size)
    values = [expectation.of_members(members) for expectation in expectations]
    pairs = zip(expectations, values, strict=True)
    ends = accumulate((e.target(value).shape[-1] for e, value in pairs), initial=0)
    n_values = tuple(value.shape[-1] for value in values)
    columns = tuple(slice(*ends) for ends in pairwise(ends))
    return plan(task, tuple(expectations), tuple(estimates), n_values, columns, replays)


def chosen_expectations(expectations: object, estimate: object, task: str) -> list[Expectation]:
    """Expectations by name or as they are, checked; "auto" is chosen by their estimate."""
    known = KNOWN[task]
    if isinstance(expectations, str):
        auto = _AUTO_OF_ONE if isinstance(estimate, str) and estimate == "stochastic" else _AUTO
        expectations = auto[task] if expectations == "auto" else (expectations,)
    if not isinstance(expectations, (tuple, list)):
        raise TypeError(
            f"expectations must be a tuple of names, of {sorted(known)}, and of Expectation "
            f"objects, or 'auto'; got {expectations!r}."
        )
    chosen: list[Expectation] = []
    for expectation in expectations:
        if isinstance(expectation, str) and expectation in known:
            expectation = known[expectation]
        elif not isinstance(expectation, Expectation):
            raise ValueError(
                f"expectations must be names, for a {task} of {sorted(known)}, or Expectation "
                f"objects; got {expectation!r}."
            )
        elif type(expectation) is Expectation and expectation.label in known:
            raise ValueError(
                f"expectations of your own need names of their own, none of {sorted(known)}; got "
                f"{expectation!r}."
            )
        expectation.check()
        chosen.append(expectation)
    labels = [expectation.label for expectation in chosen]
    if len(set(labels)) < len(labels):
        raise ValueError(f"expectations must have names of their own, got {labels}.")
    if not any(set(needed) <= set(labels) for needed in _NEEDED[task]):
        needed = " or ".join(map(repr, _NEEDED[task]))
        raise ValueError(
            f"expectations must contain {needed} for a {task} to predict; got {labels}."
        )
    return chosen


def chosen_estimates(estimate: Any, expectations: list[Expectation]) -> list[str]:
    """Estimate of each expectation, checked."""
    labels = [expectation.label for expectation in expectations]
    given = estimate if isinstance(estimate, dict) else dict.fromkeys(labels, estimate)
    is_known = all(isinstance(e, str) and e in _ESTIMATES for e in given.values())
    if not (set(given) <= set(labels) and is_known):
        raise ValueError(
            f"estimate must be one of {list(_ESTIMATES)}, or a dict of them by names of {labels}; "
            f"got {estimate!r}."
        )
    for expectation in expectations:
        if expectation.needs_several and given.get(expectation.label) == "stochastic":
            raise ValueError(
                f"estimate of {expectation.label!r} must be 'online': no one sample tells it; got "
                f"{estimate!r}."
            )
    return [given.get(label, "online") for label in labels]


class ExpectationObjective(Objective):
    """Sum of the expectations' losses; the target is (..., n, n_outputs), the outputs are too.

    `columns` are the places of the expectations among the outputs.
    """

    def __init__(self, expectations: Sequence[Expectation], columns: Sequence[slice]):
        super().__init__()
        self.expectations = expectations
        self.columns = columns

    def _target(self, targets: tuple[Tensor, ...]) -> Tensor:
        return targets[0]

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target = self._target(targets)
        total, gradient = outputs.new_zeros(outputs.shape[:-1]), torch.empty_like(outputs)
        for expectation, columns in zip(self.expectations, self.columns, strict=True):
            loss, slope = expectation.loss_and_gradient(outputs[..., columns], target[..., columns])
            total.add_(loss, alpha=expectation.weight)
            torch.mul(slope, expectation.weight, out=gradient[..., columns])
        return total, gradient


class ReplayObjective(ExpectationObjective):
    """The same for members that are stored: targets hold g of each, (..., n, S, sum of n_values).

    Of an expectation, "online" is the mean over members, which the running mean converges to, and
    "stochastic" one member, another for every row. With rows in a new order in every epoch this is
    a random draw; else the members take turns.
    """

    is_online: Tensor
    offset: Tensor

    def __init__(self, expectations, columns, estimates: Sequence[str], n_values: list[int]):
        super().__init__(expectations, columns)
        self.n_values = n_values
        online = torch.tensor([estimate == "online" for estimate in estimates])
        self.all_online = bool(online.all())
        self.register_buffer("is_online", online.repeat_interleave(torch.tensor(n_values)))
        self.register_buffer("offset", torch.zeros((), dtype=torch.int64))

    def begin_epoch(self, epoch: int) -> None:
        self.offset.fill_(epoch)

    def _target(self, targets: tuple[Tensor, ...]) -> Tensor:
        members = targets[0]
        values = members.movedim(-2, 0).split(self.n_values, dim=-1)
        mean = pooled(self.expectations, values)  # Eq 4
        if not self.all_online:
            n_rows, n_members, n_values = members.shape[-3:]
            turn = (torch.arange(n_rows, device=members.device) + self.offset) % n_members
            turn = turn.view(-1, 1, 1).expand(*members.shape[:-2], 1, n_values)
            one = members.gather(-2, turn).squeeze(-2)  # U_s, Eq 9
            mean = torch.where(self.is_online, mean, one)
        return targets_of(self.expectations, self.n_values, mean)
