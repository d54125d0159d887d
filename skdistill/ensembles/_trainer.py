# SPDX-License-Identifier: BSD-3-Clause
"""What all ways of training the members of an ensemble share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from .._estimator.base import Fitted, ObservedTask
from .._method.plan import (
    NetworkRecipe,
    TrainingBudget,
    as_tensors,
    build_module,
    rebuild_module,
)
from .._training.stream import Part, Stream, rows_of_stream
from .._training.trainer import SEED_LIMIT, has_epochs, on_device
from ..modules import DistributionStack, weights_and_fan_ins
from ._diagnostics import SamplerDiagnostics
from ._job import Data, Job
from ._out_of_bag import N_PARTS
from ._plan import EnsemblePlan


class ChainObserver(Protocol):
    """Watches Markov chains: a skorch callback of the net that runs them, and a hook."""

    def after_step(self, net: object, iteration: int) -> None:
        """Look at the chains' states after an iteration, counted from 0."""
        ...

    def diagnostics(self) -> SamplerDiagnostics:
        """Return what tells whether the chains that were watched have converged."""
        ...


class Trainer(ABC):
    """What all ways of training share; a subclass fills `weights`, and may be interrupted.

    Attributes
    ----------
    weights : dict of int to dict of str to ndarray
        Parameters and buffers of each network that has been trained: of a member, or of all members
        that share them.
    n_restarts : ndarray of shape (n_networks,)
    best_epochs : dict of int to int
    worse : list of int
        Numbers of the networks that are worse than a constant prediction after training.
    history : list of dict
    n_blocks : int
        Stacks that are trained one after the other, if none diverges.
    """

    _ends_with = staticmethod(torch.all)  # training ends when all, or any, networks have diverged
    network_is = "Member"
    # Whether the samples that a network leaves out tell its best epoch.
    validates_out_of_bag = False

    def __init__(self, job: Job, observer: ChainObserver | None = None):
        self.job = job
        self.observer = observer
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        self.best_epochs: dict[int, int] = {}
        self.n_restarts = np.zeros(job.plan.n_networks, dtype=int)
        self.worse: list[int] = []
        self.history: list[dict] = []
        self.n_blocks = 1
        self.n_rows = job.train.total_weight
        self.dtype = job.train.dtype
        self.train: list[Any] = [None] * 3  # of a stream
        if isinstance(job.train, Data):
            self.train = self._as_tensors(job.train)
        self.valid = None if job.valid is None else self._as_tensors(job.valid)

    @abstractmethod
    def train_all(self, random_state: np.random.RandomState, task: ObservedTask | None) -> None:
        """Fill `weights`.

        `task` makes the callback that reports epochs, if it is not None.
        """

    def stacked(
        self, calibration: object = None, recipe: NetworkRecipe | None = None
    ) -> tuple[EnsemblePlan, Any]:
        """Return the plan and the stack of the members that have been trained, in their order.

        `recipe` may say more of the stack than that of the job.
        """
        members = [self.weights[number] for number in sorted(self.weights)]
        values = {
            f"network.{name}": np.ascontiguousarray(np.stack([member[name] for member in members]))
            for name in members[0]  # else products of a pickled model may round in another way
        }
        plan = replace(self.job.plan, n_networks=len(members), calibration=calibration)
        module = rebuild_module(plan, recipe or self.job.recipe, {**values, **self.job.scaling})
        return plan, module.to(self.job.training.device)

    def _as_tensors(self, data: Data) -> list[Any]:
        """Inputs, encoded targets, and weights of shape (1, n) or None."""
        y = self.job.plan.task.encode(data.y, self.job.scaling, self.dtype)
        return self._put(data.X, y, data.weight)

    def _put(self, X, y, weight) -> list[Any]:
        """Inputs, targets, and weights of shape (1, n) or None, as tensors."""
        weight = None if weight is None else weight[None].astype(self.dtype)
        put = partial(on_device, device=self.job.training.device)
        return [None if array is None else put(array) for array in (X, y, weight)]

    def _build(self, seeds: list[int]) -> DistributionStack:
        buffers = as_tensors(self.job.scaling)
        dtype = getattr(torch, self.dtype.name)
        return build_module(self.job.plan, self.job.recipe, seeds, dtype, buffers)

    def _fit(
        self,
        module: DistributionStack,
        seeds: list[int],
        weight,
        task,
        stopping=None,
        **net_settings,
    ):
        """Train a stack whose networks have these seeds; return the net and its guard."""
        from .._engine import DivergenceGuard

        plan = self.job.plan
        # Not the seed of the weights again: the order of the samples is another random draw.
        order_seeds = [seed + SEED_LIMIT for seed in seeds]
        rows = self._rows(weight, order_seeds)
        guard = DivergenceGuard(stopping, self._ends_with)
        per_epoch = None if task is None else task.per_epoch(self._in_training)
        callbacks = [c for c in (per_epoch, stopping, guard, self.observer) if c is not None]
        net_settings.setdefault("weight_decay", self._prior(module))
        net = self.job.training.fit(
            module,
            net_settings.pop("objective", None) or plan.objective(module, TrainingBudget()),
            rows,
            self.job.n_epochs,
            callbacks=callbacks,
            **net_settings,
        )
        if net.interrupted_ and not has_epochs(net):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        return net, guard

    def _in_training(self, net: Any) -> Fitted:
        """Return what a fit would return of the networks that a net trains, if it ended now."""
        plan = replace(self.job.plan, n_networks=net.n_members)
        return Fitted.in_training(plan, self.job.recipe, net, TrainingBudget())

    def _rows(self, weight: Tensor | None, seeds: list[int]) -> Any:
        """The training samples as the engine takes them; of a stream, `weight` is its own."""
        from .._engine import Rows

        batch_size, stream = self.job.batch_size, self.job.train
        by_place = self.job.plan.n_sharing > 1
        if not isinstance(stream, Stream):
            X, y, _ = self.train
            return Rows(X, (y,), weight, batch_size, seeds, by_place=by_place)
        mean_weight = stream.total_weight / stream.n_rows

        def deal(part: Part) -> Rows:
            X, y, weight = self._put(part.X, part.y, part.weight if stream.is_weighted else None)
            return Rows(
                X, (y,), weight, batch_size, seeds, mean_weight=mean_weight, by_place=by_place
            )

        return rows_of_stream(stream, self.job.scaling, batch_size, seeds, deal)

    def _prior(self, module: Any) -> list[tuple[nn.Parameter, float]]:
        """Weight decay of each layer that stands for the prior N(0, prior_scale^2 / fan_in).

        The loss of members that share weights is their mean, and so is what the prior adds to it.
        """
        scale = self.job.spec.prior_scale
        if np.isinf(scale):
            return []
        n_rows = self.n_rows * (1 if self.job.parts is None else 1 - 1 / N_PARTS)
        decays = [(w, fan_in / scale**2 / n_rows) for w, fan_in in weights_and_fan_ins(module)]
        if self.job.plan.n_sharing > 1:
            own = module.network.heads.weight
            decays = [(w, d / self.job.plan.n_sharing if w is own else d) for w, d in decays]
        return decays
