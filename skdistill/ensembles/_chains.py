# SPDX-License-Identifier: BSD-3-Clause
"""Members that are not trained one by one: states of Markov chains, and draws of dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._estimator.base import ObservedTask
from .._method.plan import weights_of
from .._training.trainer import SEED_LIMIT
from ..samplers import kept_iterations
from ._members import Members, build_stack, train_stack
from ._spec import EnsembleSpec


def run_chains(
    spec: EnsembleSpec,
    members: Members,
    random_state: np.random.RandomState,
    task: ObservedTask | None,
    observer: Any = None,  # of the net's callbacks, with `after_step(net, iteration)`
) -> None:
    """Run chains side by side; member ``c * n_draws + d`` is draw d of chain c, if it is finite."""
    inference = spec.inference.resolved(spec.n_members if observer is None else None)
    seeds = random_state.randint(SEED_LIMIT, size=inference.n_chains + 1).tolist()
    noise = torch.Generator(spec.training.device).manual_seed(seeds.pop())
    n_iterations = spec.n_epochs * -(-spec.n_rows // spec.n_at_once)
    if observer is None:
        due = kept_iterations(inference, n_iterations, spec.n_members)
    else:
        due = inference.sampling_iterations(n_iterations)[-1:]
    keeper = _StateKeeper(inference, n_iterations, due, observer)
    module = build_stack(spec, seeds)
    settings: dict[str, Any] = {}
    if inference.prior_precision is not None:
        decay = inference.prior_precision / spec.total_weight
        settings["weight_decay"] = [(p, decay) for p in module.parameters()]
    own = {"n_rows": spec.total_weight, "generator": noise}
    net = train_stack(
        spec,
        module,
        seeds,
        task,
        observer=observer,
        ends_with=torch.any,
        phase=f"{len(seeds)} chain(s)",
        sampler=(inference.optimizer_class, {**inference.settings_at(0, n_iterations), **own}),
        after_step=keeper,
        **settings,
    )
    buffers = {name: value.cpu().numpy() for name, value in module.network.named_buffers()}
    kept = {
        chain * len(due) + draw: {name: value[chain] for name, value in (state | buffers).items()}
        for draw, state in enumerate(keeper.states)
        for chain in range(inference.n_chains)
    }
    is_finite = {n: all(np.isfinite(v).all() for v in kept[n].values()) for n in kept}
    members.add(
        Members(
            {number: weights for number, weights in kept.items() if is_finite[number]},
            worse=torch.nonzero(net.guard.worse_).flatten().tolist(),
            history=[{**row, "chains": list(range(len(seeds)))} for row in net.history],
        )
    )
    if net.interrupted_:
        raise KeyboardInterrupt
    if net.guard.diverged_.any():
        chains = torch.nonzero(net.guard.diverged_).flatten().tolist()
        size = inference.step_size
        reason = "finds none that is small enough" if size is None else "is too large"
        raise ValueError(
            f"inference__step_size={size!r} {reason}: chain(s) {chains} diverged before iteration "
            f"{keeper.iteration} of {n_iterations}, when {len(members.weights)} finite states had "
            "been kept."
        )
    if not members.weights:
        raise ValueError(
            f"A callback ended training at iteration {keeper.iteration} of {n_iterations}, with "
            f"inference__burn_in={inference.burn_in} before any state was kept."
        )


class _StateKeeper:
    """Called after each step of chains: keeps the states that are due, and sets the step size."""

    def __init__(self, inference, n_iterations: int, due: np.ndarray, observer=None):
        self.inference = inference
        self.n_iterations = n_iterations
        self.due = frozenset(due.tolist())
        self.observer = observer
        self.iteration = 0
        self.states: list[dict[str, np.ndarray]] = []  # weights, each of shape (n_chains, ...)

    def state_dict(self) -> dict[str, object]:
        return {"iteration": self.iteration, "states": list(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration, self.states = state["iteration"], list(state["states"])

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
        group.update(self.inference.settings_at(self.iteration, self.n_iterations))
        if self.observer is not None:
            self.observer.after_step(net, self.iteration - 1)


def train_dropout(
    spec: EnsembleSpec,
    members: Members,
    random_state: np.random.RandomState,
    task: ObservedTask | None,
) -> None:
    """Train one network with dropout; members are its weights with units dropped for good."""
    seeds = random_state.randint(SEED_LIMIT, size=spec.n_members).tolist()
    module = build_stack(spec, seeds[:1])
    net = train_stack(spec, module, seeds[:1], task)
    if net.guard.diverged_.any():
        raise ValueError(
            f"The network diverged. Try a smaller lr than {spec.training.lr}, clip_norm, or other "
            "module parameters."
        )
    trained = {name: value[0] for name, value in weights_of(module.network).items()}
    network: Any = build_stack(spec, seeds).network
    buffers = network.named_buffers()
    masks = {name: mask.numpy() for name, mask in buffers if name.endswith("dropout_mask")}
    members.add(
        Members(
            {
                number: {**trained, **{name: mask[number] for name, mask in masks.items()}}
                for number in range(spec.n_members)
            },
            worse=torch.nonzero(net.guard.worse_).flatten().tolist(),
            history=list(net.history),
        )
    )
    if net.interrupted_:
        raise KeyboardInterrupt
