# SPDX-License-Identifier: BSD-3-Clause
"""Training the members of an ensemble as draws of Markov chains, or as draws of dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._method.plan import weights_of
from .._training.trainer import SEED_LIMIT
from ..modules import DistributionStack
from ..samplers import kept_iterations
from ._trainer import Trainer


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
            decay = inference.prior_precision / self.n_rows
            settings["weight_decay"] = [(p, decay) for p in module.parameters()]
        net, guard = self._fit(
            module,
            seeds,
            self.train[2],
            task,
            phase=f"{len(seeds)} chain(s)",
            sampler=(
                inference.optimizer_class,
                {**keeper.settings(), "n_rows": self.n_rows, "generator": noise},
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
        n_chains = keeper.inference.n_chains
        for draw, state in enumerate(keeper.states):
            for chain in range(n_chains):
                member = {name: value[chain] for name, value in (state | buffers).items()}
                if all(np.isfinite(value).all() for value in member.values()):
                    self.weights[chain * keeper.n_draws + draw] = member


class _StateKeeper:
    """Called after each step of chains: keeps the states that are due, and sets the step size.

    Attributes
    ----------
    iteration : int
        Steps so far.
    states : list of dict of str to ndarray
        Weights of the chains' networks, each of shape (n_chains, ...).
    """

    def __init__(self, inference, n_iterations: int, due: np.ndarray, observer=None):
        self.inference = inference
        self.n_iterations = n_iterations
        self.due = frozenset(due.tolist())
        self.n_draws = len(due)
        self.observer = observer
        self.iteration = 0
        self.states: list[dict[str, np.ndarray]] = []

    def state_dict(self) -> dict[str, object]:
        return {"iteration": self.iteration, "states": list(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration, self.states = state["iteration"], list(state["states"])

    def settings(self) -> dict[str, object]:
        """Settings of the optimizer for the next step."""
        return self.inference.settings_at(self.iteration, self.n_iterations)

    def __call__(self, net) -> None:
        if self.iteration in self.due:
            weights = net.steps_.weights().items()
            self.states.append(
                {
                    name.removeprefix("network."): value.detach().cpu().clone().numpy()
                    for name, value in weights
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
        masks = [(k, v) for k, v in network.named_buffers() if k.endswith("dropout_mask")]
        drawn = {name: mask.numpy() for name, mask in masks}
        for member in range(n_members):
            own = {name: value[member] for name, value in drawn.items()}
            self.weights[member] = {**trained, **own}
        if net.interrupted_:
            raise KeyboardInterrupt
