# SPDX-License-Identifier: BSD-3-Clause
"""How the members of an ensemble come about: trained one by one, drawn by chains, or by dropout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from .._base import SEED_LIMIT, weights_of
from .._warnings import warn
from ..modules import weights_and_fan_ins
from ..samplers import kept_iterations

if TYPE_CHECKING:
    from ._ensemble import BayesianEnsemble


class Trainer:
    """What all ways of training share; each gives ``weights``, and may be interrupted.

    Parameters
    ----------
    estimator : BayesianEnsemble
    train, valid : tuple (X, y, weight)
        Arrays; an absent weight is None, and so is an absent `valid`.

    Attributes
    ----------
    weights : dict of int to dict of str to ndarray
        Parameters and buffers of each member that there is.
    n_restarts : ndarray of shape (n_members,)
    best_epochs : dict of int to int
    worse : list of int
        Networks that training has left worse than a constant prediction, by what they are called.
    history : list of dict
    n_blocks : int
        Stacks that are trained one after the other, if none diverges.
    """

    _ends_with = staticmethod(torch.all)  # of the networks of a stack, how many may diverge
    network_is = "Member"

    def __init__(self, estimator: BayesianEnsemble, train, valid):
        self.estimator = estimator
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        self.best_epochs: dict[int, int] = {}
        self.n_restarts = np.zeros(estimator.n_members, dtype=int)
        self.worse: list[int] = []
        self.history: list[dict] = []
        self.n_blocks = 1
        X, y, weight = train
        self.n_rows = len(X) if weight is None else float(weight.sum())
        self.dtype = X.dtype
        self.buffers = estimator._target_buffers(y, weight, X.dtype)
        self.train = self._as_tensors(train)
        self.valid = None if valid is None else self._as_tensors(valid)

    def train_all(self, random_state: np.random.RandomState, task) -> None:
        """Fill `weights`; the epochs are reported as subtasks of `task`."""
        raise NotImplementedError

    def _as_tensors(self, data) -> list[Any]:
        """Inputs, targets as the loss wants them, and weights of shape (1, n) or None."""
        X, y, weight = data
        y = self.estimator._encoded(y, self.buffers, self.dtype)
        weight = None if weight is None else weight[None].astype(self.dtype)
        tensor = partial(torch.tensor, device=self.estimator._device())
        return [None if array is None else tensor(array) for array in (X, y, weight)]

    def _build(self, seeds: list[int]) -> Any:
        buffers = {name: torch.tensor(value) for name, value in self.buffers.items()}
        return self.estimator._build_module(seeds, self.train[0].dtype, buffers)

    def _fit(self, module: Any, seeds: list[int], weight, task, stopping=None, **net_settings):
        """Train a stack whose networks have these seeds; gives the net, and its guard."""
        from .._engine import DivergenceGuard, Rows, TaskPerEpoch

        estimator = self.estimator
        X, y, _ = self.train
        # Not the seed of the weights again: the order of the rows is another random draw.
        order_seeds = [seed + SEED_LIMIT for seed in seeds]
        rows = Rows(X, (y,), weight, estimator.batch_size, order_seeds)
        guard = DivergenceGuard(stopping, self._ends_with)
        tasks = None if task is None else TaskPerEpoch(task, estimator)
        net_settings.setdefault("weight_decay", self._prior(module))
        net = estimator._train(
            module,
            estimator._objective(),
            rows,
            callbacks=[callback for callback in (tasks, stopping, guard) if callback is not None],
            **net_settings,
        )
        if net.interrupted_ and not any("train_loss" in row for row in net.history):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        return net, guard

    def _prior(self, module: nn.Module) -> list[tuple[nn.Parameter, float]]:
        """Weight decay of each layer that stands for the prior N(0, prior_scale^2 / fan_in)."""
        scale = self.estimator.prior_scale
        if np.isinf(scale):
            return []
        return [(w, fan_in / scale**2 / self.n_rows) for w, fan_in in weights_and_fan_ins(module)]


class EnsembleTrainer(Trainer):
    """Trains members block by block, anew where they diverge, and keeps what is trained."""

    def __init__(self, estimator, train, valid):
        super().__init__(estimator, train, valid)
        self.block_size = estimator._block_size(len(self.train[0]))
        self.n_blocks = -(-estimator.n_members // self.block_size)

    def train_all(self, random_state, task):
        estimator = self.estimator
        pending = list(range(estimator.n_members))
        for attempt in range(estimator.max_restarts + 1):
            seeds = random_state.randint(SEED_LIMIT, size=len(pending)).tolist()
            for block in _batched(list(zip(pending, seeds, strict=True)), self.block_size):
                self._train_block(dict(block), task if attempt == 0 else None)
            pending = [m for m in pending if m not in self.weights]
            if not pending:
                return
            if attempt < estimator.max_restarts:
                self.n_restarts[pending] += 1
                _warn_diverged(pending, "trained anew from another seed")
        if not self.weights:
            raise ValueError(
                f"Every member diverged, also after {estimator.max_restarts} restarts. Try a "
                f"smaller lr than {estimator.lr}, clip_norm, or other module parameters."
            )
        _warn_diverged(pending, f"left out after {estimator.max_restarts} restarts")

    def _train_block(self, seeds: dict[int, int], task) -> None:
        """Train the members that are the keys of `seeds`."""
        from .._engine import MemberEarlyStopping, Rows

        estimator = self.estimator
        valid = stopping = None
        if self.valid is not None:
            X_valid, y_valid, weight_valid = self.valid
            valid = Rows(X_valid, (y_valid,), weight_valid)
            stopping = MemberEarlyStopping(estimator._patience, estimator.tol)
        drawn = list(seeds.values())
        module = self._build(drawn)
        net, guard = self._fit(
            module, drawn, self._weights_of_rows(seeds), task, stopping, valid=valid
        )
        self.history += [{**row, "members": list(seeds)} for row in net.history]
        weights = weights_of(module.network)
        for k, member in enumerate(seeds):
            if not guard.diverged_[k]:
                self.weights[member] = {name: value[k] for name, value in weights.items()}
                if guard.worse_[k]:
                    self.worse.append(member)
                if stopping is not None:
                    self.best_epochs[member] = int(stopping.best_epoch_[k])
        if net.interrupted_:
            raise KeyboardInterrupt

    def _weights_of_rows(self, seeds: dict[int, int]) -> Tensor | None:
        """Weights of the training rows: shared, (1, n), or of each member's bootstrap, (S, n)."""
        X, _, weight = self.train
        if not self.estimator.bootstrap:
            return weight
        n = len(X)
        shares = np.full(n, 1 / n) if weight is None else weight[0].cpu().double().numpy()
        counts = [
            np.random.RandomState(seed).multinomial(n, shares / shares.sum())
            for seed in seeds.values()
        ]
        return torch.tensor(np.stack(counts)).to(X)


class ChainTrainer(Trainer):
    """Runs Markov chains side by side and keeps their states as members.

    Members of the same chain follow one another: member ``c * n_draws + d`` is draw d of chain c.
    """

    _ends_with = staticmethod(torch.any)
    network_is = "Chain"

    def train_all(self, random_state, task):
        estimator, inference = self.estimator, self.estimator.inference
        seeds = random_state.randint(SEED_LIMIT, size=inference.n_chains + 1).tolist()
        noise = torch.Generator(estimator._device()).manual_seed(seeds.pop())
        n_iterations = estimator.n_epochs_ * -(-len(self.train[0]) // estimator.batch_size)
        keeper = _StateKeeper(
            inference, n_iterations, kept_iterations(inference, n_iterations, estimator.n_members)
        )
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
            optimizer=(
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
        if guard.diverged_.any():
            chains = torch.nonzero(guard.diverged_).flatten().tolist()
            raise ValueError(
                f"inference__step_size={inference.step_size!r} is too large: chain(s) {chains} "
                f"diverged before iteration {keeper.iteration} of {n_iterations}, when "
                f"{len(self.weights)} finite states had been kept."
            )
        if not self.weights:
            raise ValueError(
                f"A callback ended training at iteration {keeper.iteration} of {n_iterations}, "
                f"with inference__burn_in={inference.burn_in} before any state was kept."
            )

    def _keep(self, keeper: _StateKeeper, module: Any) -> None:
        """Make members of the states, in the order of the chains; finite ones only."""
        buffers = {name: value.cpu().numpy() for name, value in module.network.named_buffers()}
        n_chains = self.estimator.inference.n_chains
        for draw, state in enumerate(keeper.states):
            for chain in range(n_chains):
                member = {name: value[chain] for name, value in (state | buffers).items()}
                if all(np.isfinite(value).all() for value in member.values()):
                    self.weights[chain * keeper.n_draws + draw] = member


class _StateKeeper:
    """Called after each step of chains: keeps states when they are due, sets the next step.

    Attributes
    ----------
    iteration : int
        Steps so far.
    states : list of dict of str to ndarray
        Weights of the chains' networks, each of shape (n_chains, ...).
    """

    def __init__(self, inference, n_iterations: int, due: np.ndarray):
        self.inference = inference
        self.n_iterations = n_iterations
        self.due = frozenset(due.tolist())
        self.n_draws = len(due)
        self.iteration = 0
        self.states: list[dict[str, np.ndarray]] = []

    def settings(self) -> dict[str, float]:
        """Settings of the optimizer for the next step."""
        return {
            **self.inference.optimizer_settings(),
            "lr": self.inference.step_size_at(self.iteration, self.n_iterations),
            "temperature": self.inference.temperature_at(self.iteration, self.n_iterations),
        }

    def __call__(self, net) -> None:
        if self.iteration in self.due:
            weights = net.weights_now().items()
            self.states.append(
                {
                    name.removeprefix("network."): value.detach().cpu().clone().numpy()
                    for name, value in weights
                }
            )
        self.iteration += 1
        (group,) = net.optimizer_.param_groups
        group.update(self.settings())


class DropoutTrainer(Trainer):
    """Trains one network with dropout; members are its weights with units dropped for good."""

    network_is = "Network"

    def train_all(self, random_state, task):
        estimator = self.estimator
        seeds = random_state.randint(SEED_LIMIT, size=estimator.n_members).tolist()
        module = self._build(seeds[:1])
        net, guard = self._fit(module, seeds[:1], self.train[2], task)
        self.history = list(net.history)
        self.worse = torch.nonzero(guard.worse_).flatten().tolist()
        if guard.diverged_.any():
            raise ValueError(
                f"The network diverged. Try a smaller lr than {estimator.lr}, clip_norm, or other "
                "module parameters."
            )
        network: Any = self._build(seeds).network
        trained = {name: value[0] for name, value in weights_of(module.network).items()}
        masks = [(k, v) for k, v in network.named_buffers() if k.endswith("dropout_mask")]
        drawn = {name: mask.numpy() for name, mask in masks}
        for member in range(estimator.n_members):
            own = {name: value[member] for name, value in drawn.items()}
            self.weights[member] = {**trained, **own}
        if net.interrupted_:
            raise KeyboardInterrupt


def _batched(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _warn_diverged(members: list[int], consequence: str) -> None:
    warn(
        f"The loss of member(s) {members} became infinite, not a number, or exploded; they are "
        f"{consequence}. A smaller lr or clip_norm may help.",
        ConvergenceWarning,
    )
