# SPDX-License-Identifier: BSD-3-Clause
"""What all ways of training members share, and those by Markov chains and by dropout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    weights_of,
)
from .._training.stream import Part, Stream, rows_of_stream
from .._training.trainer import SEED_LIMIT, has_epochs, on_device
from ..modules import DistributionStack, weights_and_fan_ins
from ..samplers import kept_iterations
from ._diagnostics import SamplerDiagnostics
from ._job import Data, EnsemblePlan, Job
from ._out_of_bag import N_PARTS
from ._perturbations import N_STRATA, noise_of_targets, random_weights, stratified


class ChainObserver(Protocol):
    """Watches Markov chains: a skorch callback of the net that runs them, and a hook."""

    def after_step(self, net: object, iteration: int) -> None: ...  # counted from 0

    def diagnostics(self) -> SamplerDiagnostics: ...


class Trainer(ABC):
    """What all ways of training share; a subclass fills `weights`, and may be interrupted.

    A network is a member, or all members that share its weights.
    """

    _ends_with = staticmethod(torch.all)  # training ends when all, or any, networks have diverged
    network_is = "Member"
    # Whether the samples that a network leaves out tell its best epoch.
    validates_out_of_bag = False

    def __init__(self, job: Job, observer: ChainObserver | None = None):
        self.job = job
        self.observer = observer
        # Parameters and buffers of each network that has been trained, by its number.
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        self.best_epochs: dict[int, int] = {}
        are_two = job.has_two_kinds
        self.smooth = {n for n in range(job.plan.n_networks) if are_two and n // N_STRATA % 2}
        self.n_restarts = np.zeros(job.plan.n_networks, dtype=int)
        self.worse: list[int] = []  # networks worse than a constant prediction after training
        self.history: list[dict] = []
        self.n_blocks = 1  # stacks that are trained one after the other, if none diverges
        self.dtype = job.train.dtype
        # Inputs, encoded targets, and weights of shape (1, n) or None; none of a stream.
        self.train: list[Any] = [None] * 3
        if isinstance(job.train, Data):
            self.train = self._as_tensors(job.train)
        self.valid = None if job.valid is None else self._as_tensors(job.valid)

    @abstractmethod
    def train_all(self, random_state: np.random.RandomState, task: ObservedTask | None) -> None:
        """Fill `weights`; a `task` makes the callback that reports epochs."""

    def stacked(
        self, calibration: object = None, recipe: NetworkRecipe | None = None
    ) -> tuple[EnsemblePlan, Any]:
        """Return the plan and the stack of the members that have been trained, in their order."""
        members = [self.weights[number] for number in sorted(self.weights)]
        values = {
            f"network.{name}": np.ascontiguousarray(np.stack([member[name] for member in members]))
            for name in members[0]  # else products of a pickled model may round in another way
        }
        plan = replace(self.plan_of(sorted(self.weights)), calibration=calibration)
        module = rebuild_module(plan, recipe or self.job.recipe, {**values, **self.job.scaling})
        return plan, module.to(self.job.training.device)

    def plan_of(self, networks: Sequence[int]) -> EnsemblePlan:
        """Return the plan of the networks of these numbers alone."""
        are_smooth = tuple(n in self.smooth for n in networks) if self.smooth else ()
        return replace(self.job.plan, n_networks=len(networks), are_smooth=are_smooth)

    def _as_tensors(self, data: Data) -> list[Any]:
        y = self.job.plan.task.encode(data.y, self.job.scaling, self.dtype)
        return self._put(data.X, y, data.weight)

    def _put(self, X, y, weight) -> list[Any]:
        weight = None if weight is None else weight[None].astype(self.dtype)
        put = partial(on_device, device=self.job.training.device)
        return [None if array is None else put(array) for array in (X, y, weight)]

    def _build(self, seeds: list[int], networks: Sequence[int] = ()) -> DistributionStack:
        buffers = as_tensors(self.job.scaling)
        dtype = getattr(torch, self.dtype.name)
        plan = self.plan_of(networks) if networks else self.job.plan
        return build_module(plan, self.job.recipe, seeds, dtype, buffers)

    def _fit(
        self, module, seeds: list[int], weight, task, stopping=None, perturbed=(), **net_settings
    ):
        """Train a stack whose networks have these seeds; return the net and its guard.

        The data of members of the numbers in `perturbed` are perturbed.
        """
        from .._engine import DivergenceGuard

        plan = self.job.plan
        # Not the seed of the weights again: the order of the samples is another random draw.
        order_seeds = [seed + SEED_LIMIT for seed in seeds]
        rows = self._rows(weight, order_seeds, perturbed)
        guard = DivergenceGuard(stopping, self._ends_with)
        per_epoch = None if task is None else task.per_epoch(partial(self._in_training, perturbed))
        callbacks = [c for c in (per_epoch, stopping, guard, self.observer) if c is not None]
        net_settings.setdefault("weight_decay", self._prior(module))
        objective = net_settings.pop("objective", None) or plan.objective(module, TrainingBudget())
        net = self.job.training.fit(
            module, objective, rows, self.job.n_epochs, callbacks=callbacks, **net_settings
        )
        if net.interrupted_ and not has_epochs(net):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        return net, guard

    def _in_training(self, networks: Sequence[int], net: Any) -> Fitted:
        """Return what a fit would return of the networks that a net trains, if it ended now."""
        plan = replace(self.plan_of(networks), n_networks=net.n_members)
        return Fitted.in_training(plan, self.job.recipe, net, TrainingBudget())

    def _rows(self, weight: Tensor | None, seeds: list[int], perturbed: Sequence[int]) -> Any:
        """The training samples as the engine takes them; of a stream, `weight` is its own."""
        from .._engine import Rows

        batch_size, stream = self.job.batch_size, self.job.train
        by_place = self.job.plan.n_sharing > 1

        def rows(X, y, weight, base, number: int, mean_weight: float | None) -> Rows:
            factor, own_targets = self._perturbations(perturbed, y, base, number)
            if factor is not None:
                weight = factor if weight is None else weight * factor
            own: dict[str, Any] = {"by_place": by_place, "own_targets": own_targets}
            return Rows(X, (y,), weight, batch_size, seeds, mean_weight=mean_weight, **own)

        if not isinstance(stream, Stream):
            X, y, _ = self.train
            return rows(X, y, weight, stream.weight, 0, None)
        mean_weight = stream.total_weight / stream.n_rows

        def deal(part: Part, number: int) -> Rows:
            base = part.weight if stream.is_weighted else None
            X, y, weight = self._put(part.X, part.y, base)
            return rows(X, y, weight, base, number, mean_weight)

        return rows_of_stream(stream, self.job.scaling, batch_size, seeds, deal)

    def _perturbations(
        self, members: Sequence[int], y: Tensor, weight: np.ndarray | None, number: int
    ) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """What members' weights are multiplied by, (S, n), and noise of targets, (S, n, t).

        Numbers have the latter, classes the former; none has either if nothing is perturbed.
        """
        seed = self.job.perturbation_seed
        if seed is None or not members:
            return None, ()
        uniform = stratified([seed, number], members, tuple(y.shape))
        if y.is_floating_point():
            return None, (torch.from_numpy(noise_of_targets(uniform, weight)).to(y),)
        factor = torch.from_numpy(random_weights(uniform, weight))
        return factor.to(y.device, getattr(torch, self.dtype.name)), ()

    def _prior(self, module: Any) -> list[tuple[nn.Parameter, float]]:
        """Weight decay of each layer that stands for the prior N(0, prior_scale^2 / fan_in).

        The loss of members that share weights is their mean, and so is what the prior adds to it.
        """
        scale = self.job.spec.prior_scale
        if np.isinf(scale):
            return []
        n_rows = self.job.train.total_weight * (1 if self.job.parts is None else 1 - 1 / N_PARTS)
        decays = [(w, fan_in / scale**2 / n_rows) for w, fan_in in weights_and_fan_ins(module)]
        if self.job.plan.n_sharing > 1:
            own = module.network.heads.weight
            decays = [(w, d / self.job.plan.n_sharing if w is own else d) for w, d in decays]
        return decays


class ChainTrainer(Trainer):
    """Runs Markov chains side by side and keeps their states as members.

    Members of the same chain follow one another: member ``c * n_draws + d`` is draw d of chain c.
    """

    _ends_with = staticmethod(torch.any)
    network_is = "Chain"

    def train_all(self, random_state, task):
        spec = self.job.spec
        n_members = spec.n_members if self.observer is None else None
        inference = spec.inference.resolved(n_members)
        seeds = random_state.randint(SEED_LIMIT, size=inference.n_chains + 1).tolist()
        noise = torch.Generator(self.job.training.device).manual_seed(seeds.pop())
        n_iterations = self.job.n_epochs * -(-len(self.train[0]) // self.job.batch_size)
        if self.observer is None:
            due = kept_iterations(inference, n_iterations, spec.n_members)
        else:
            due = inference.sampling_iterations(n_iterations)[-1:]
        keeper = _StateKeeper(inference, n_iterations, due, self.observer)
        module = self._build(seeds)
        settings: dict[str, Any] = {}
        if inference.prior_precision is not None:
            decay = inference.prior_precision / self.job.train.total_weight
            settings["weight_decay"] = [(p, decay) for p in module.parameters()]
        net, guard = self._fit(
            module,
            seeds,
            self.train[2],
            task,
            phase=f"{len(seeds)} chain(s)",
            sampler=(
                inference.optimizer_class,
                {**keeper.settings(), "n_rows": self.job.train.total_weight, "generator": noise},
            ),
            after_step=keeper,
            **settings,
        )
        self.history = [{**row, "chains": list(range(len(seeds)))} for row in net.history]
        self.worse = torch.nonzero(guard.worse_).flatten().tolist()
        self._keep(keeper, module)
        if net.interrupted_:
            raise KeyboardInterrupt
        self._check_outcome(keeper, guard)

    def _check_outcome(self, keeper: _StateKeeper, guard: Any) -> None:
        """Raise ValueError if a chain diverged, or nothing was kept."""
        inference, n_iterations = keeper.inference, keeper.n_iterations
        if guard.diverged_.any():
            chains = torch.nonzero(guard.diverged_).flatten().tolist()
            size = inference.step_size
            reason = "finds none that is small enough" if size is None else "is too large"
            raise ValueError(
                f"inference__step_size={size!r} {reason}: chain(s) {chains} "
                f"diverged before iteration {keeper.iteration} of {n_iterations}, when "
                f"{len(self.weights)} finite states had been kept."
            )
        if not self.weights:
            raise ValueError(
                f"A callback ended training at iteration {keeper.iteration} of {n_iterations}, "
                f"with inference__burn_in={inference.burn_in} before any state was kept."
            )

    def _keep(self, keeper: _StateKeeper, module: DistributionStack) -> None:
        """Make members of the states, in the order of the chains; finite ones only."""
        buffers = {name: value.cpu().numpy() for name, value in module.network.named_buffers()}
        for draw, state in enumerate(keeper.states):
            for chain in range(keeper.inference.n_chains):
                member = {name: value[chain] for name, value in (state | buffers).items()}
                if all(np.isfinite(value).all() for value in member.values()):
                    self.weights[chain * keeper.n_draws + draw] = member


class _StateKeeper:
    """Called after each step of chains: keeps the states that are due, and sets the step size."""

    def __init__(self, inference, n_iterations: int, due: np.ndarray, observer=None):
        self.inference = inference
        self.n_iterations = n_iterations
        self.due = frozenset(due.tolist())
        self.n_draws = len(due)
        self.observer = observer
        self.iteration = 0
        self.states: list[dict[str, np.ndarray]] = []  # weights, each of shape (n_chains, ...)

    def state_dict(self) -> dict[str, object]:
        return {"iteration": self.iteration, "states": list(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration, self.states = state["iteration"], list(state["states"])

    def settings(self) -> dict[str, object]:
        """Settings of the optimizer for the next step."""
        return self.inference.settings_at(self.iteration, self.n_iterations)

    def __call__(self, net) -> None:
        if self.iteration in self.due:
            self.states.append(
                {
                    name.removeprefix("network."): value.detach().cpu().clone().numpy()
                    for name, value in net.steps_.weights().items()
                }
            )
        self.iteration += 1
        (group,) = net.optimizer_.param_groups
        group.update(self.settings())
        if self.observer is not None:
            self.observer.after_step(net, self.iteration - 1)


class DropoutTrainer(Trainer):
    """Trains one network with dropout; members are its weights with units dropped for good."""

    network_is = "Network"

    def train_all(self, random_state, task):
        n_members = self.job.spec.n_members
        seeds = random_state.randint(SEED_LIMIT, size=n_members).tolist()
        module = self._build(seeds[:1])
        net, guard = self._fit(module, seeds[:1], self.train[2], task)
        self.history = list(net.history)
        self.worse = torch.nonzero(guard.worse_).flatten().tolist()
        if guard.diverged_.any():
            raise ValueError(
                f"The network diverged. Try a smaller lr than {self.job.training.lr}, clip_norm, "
                "or other module parameters."
            )
        network: Any = self._build(seeds).network
        trained = {name: value[0] for name, value in weights_of(module.network).items()}
        buffers = network.named_buffers()
        masks = {name: mask.numpy() for name, mask in buffers if name.endswith("dropout_mask")}
        for member in range(n_members):
            own = {name: mask[member] for name, mask in masks.items()}
            self.weights[member] = {**trained, **own}
        if net.interrupted_:
            raise KeyboardInterrupt
