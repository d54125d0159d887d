# SPDX-License-Identifier: BSD-3-Clause
"""Training the members of an ensemble: in blocks, as draws of chains, or as draws of dropout."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import delayed
from torch import Tensor, nn

from .._data.encoding import MANY_ROWS, InputEncoding, InputSettings
from .._estimator.base import Fitted
from .._method.plan import (
    NetworkRecipe,
    TrainingBudget,
    as_tensors,
    build_module,
    rebuild_module,
    weights_of,
)
from .._method.task import Buffers
from .._training.resume import TaskProgress, current_progress, progress_is
from .._training.stream import Part, Stream, rows_of_stream
from .._training.trainer import (
    SEED_LIMIT,
    Training,
    batch_size_for,
    has_epochs,
    n_epochs_for,
    on_device,
)
from .._utils.messages import print_line, time_left
from .._utils.warnings import warn
from ..modules import shares_weights, weights_and_fan_ins, widest_activation
from ..samplers import SGHMC, SGLD, kept_iterations
from ._diagnostics import SamplerDiagnostics
from ._jobs import Threads, as_they_end, has_lost_rows, on_workers, shares_memory
from ._out_of_bag import N_PARTS, Parts
from ._plan import EnsemblePlan, ValidatedByBrier

# On a CPU as many members are trained together as have about this many activations in their widest
# layer; with more of them the work no longer fits the cache.
_BLOCK_ACTIVATIONS = 2**19

# A fit of at least so many activations in all takes seconds, so that further blocks, to be trained
# side by side, save more than starting processes costs. Blocks of fewer members would cost a fit on
# one core more than a few percent, as each step has a fixed price.
_FIT_ACTIVATIONS = 2**27
_LEAST_BLOCK = 10

# How often blocks are trained, at most, whose rows a cluster loses with its workers.
_ATTEMPTS = 3

# For max_epochs="auto": epochs, and rows at most that a member is shown on large tables.
_EPOCHS = {"regressor": 100, "classifier": 50}
_ROWS_SEEN_AT_MOST = 3_000_000

# Networks for numbers learn faster from bins: on small tables they are shown so many rows, in not
# less than a half of the epochs. (NLL of validation rows, 100 epochs and fewer: wine .959 and .933
# with 47, a robot arm of 4,000 rows -1.398 and -1.396 with 60; but california, 13,209 rows, .435
# and .462 with 50; protein, 20,000 rows, 2.655 and 2.672 with 70.) From 10,000 rows on epochs rise
# in proportion to the rows until there are all.
_ROWS_SEEN_IN_BINS, _ROWS_OF_HALF = 80_000, 10_000

# Where members share weights an epoch trains each member on a share of the rows only. So there are
# more of them, for about twice the time of one network, and more rows in a minibatch.
_MORE_EPOCHS_OF_SHARED = 2
_SHARED_BATCH_SIZE = 128

# For n_iter_no_change="auto": a part of all epochs, as the learning rate falls over all of them and
# with it the loss, after a long stretch on which noise alone decides about the lowest loss so far.
_PATIENCE_SHARE = 4
_LEAST_PATIENCE = 20


class Data(NamedTuple):
    """Rows, their targets and their weights, which may be None."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def total_weight(self) -> float:
        return len(self.X) if self.weight is None else float(self.weight.sum())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """What is computed in."""
        return self.X.dtype

    def scaling(self, task: Any, normalize_y: bool) -> Buffers:
        """Location and scale of the targets, for the module's buffers."""
        return task.scaling(self.y, self.weight, self.dtype, normalize_y)

    def inputs(self, settings: InputSettings, embedded_from: int) -> InputEncoding | None:
        """Return how the ensemble's parameters ask for rows to be encoded."""
        return settings.encoding(self.X, self.y, self.weight, embedded_from)

    def at(self, rows: np.ndarray) -> Data:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Data(self.X[rows], self.y[rows], weight)


class EveryMemberDiverged(ValueError):
    """No member is left, also after restarts."""


class Job(NamedTuple):
    """An ensemble to train, with its plan, its training parameters and its data.

    `parts` says which rows each member leaves out, None that it has them all.
    """

    ensemble: Any
    training: Training
    n_epochs: int
    batch_size: int
    plan: EnsemblePlan
    recipe: NetworkRecipe
    scaling: Buffers
    parts: Parts | None
    train: Data | Stream
    valid: Data | None


class TrainedBlock(NamedTuple):
    """What training a block of members gives: numbers and arrays, for any process.

    Parameters
    ----------
    members : list of int
        Numbers of all members of the block.
    weights : dict of int to dict of str to ndarray
        Parameters and buffers of each member that has not diverged.
    best_epochs : dict of int to int
        Only with early stopping.
    worse : list of int
        Numbers of the members that are worse than a constant prediction.
    history : list of dict
    interrupted : bool
        Whether Ctrl-C ended the training.
    """

    members: list[int]
    weights: dict[int, dict[str, np.ndarray]]
    best_epochs: dict[int, int]
    worse: list[int]
    history: list[dict]
    interrupted: bool


class ChainObserver(Protocol):
    """Watches Markov chains: a skorch callback of the net that runs them, and a hook."""

    def after_step(self, net: Any, iteration: int) -> None:
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
    n_later : int
        Networks that the fit trains after those of a call of `train_all`; for the time that these
        may take. May be set.
    """

    _ends_with = staticmethod(torch.all)  # training ends when all, or any, networks have diverged
    network_is = "Member"
    validates_out_of_bag = False  # whether the rows that a network leaves out tell its best epoch

    def __init__(self, job: Job, observer: ChainObserver | None = None):
        self.job = job
        self.observer = observer
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        self.best_epochs: dict[int, int] = {}
        self.n_restarts = np.zeros(job.plan.n_networks, dtype=int)
        self.worse: list[int] = []
        self.history: list[dict] = []
        self.n_blocks = 1
        self.n_later = 0
        self.n_rows = job.train.total_weight
        self.dtype = job.train.dtype
        self.train: list[Any] = [None] * 3  # of a stream
        if isinstance(job.train, Data):
            self.train = self._as_tensors(job.train)
        self.valid = None if job.valid is None else self._as_tensors(job.valid)

    @abstractmethod
    def train_all(self, random_state: np.random.RandomState, task) -> None:
        """Fill `weights`.

        `task` makes the callback that reports epochs, given what :meth:`_attributes` returns.
        """

    def stacked(
        self, calibration: Any = None, recipe: NetworkRecipe | None = None
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

    def _build(self, seeds: list[int]) -> Any:
        buffers = as_tensors(self.job.scaling)
        dtype = getattr(torch, self.dtype.name)
        return build_module(self.job.plan, self.job.recipe, seeds, dtype, buffers)

    def _fit(self, module: Any, seeds: list[int], weight, task, stopping=None, **net_settings):
        """Train a stack whose networks have these seeds; return the net and its guard."""
        from .._engine import DivergenceGuard

        plan = self.job.plan
        # Not the seed of the weights again: the order of the rows is another random draw.
        order_seeds = [seed + SEED_LIMIT for seed in seeds]
        rows = self._rows(weight, order_seeds)
        guard = DivergenceGuard(stopping, self._ends_with)
        per_epoch = None if task is None else task(self._attributes)
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

    def _attributes(self, net: Any) -> dict[str, Any]:
        """Attributes of the ensemble of the networks that a net trains, as they are now."""
        plan = replace(self.job.plan, n_networks=net.n_members)
        return Fitted.in_training(plan, self.job.recipe, net, TrainingBudget()).attributes

    def _rows(self, weight: Tensor | None, seeds: list[int]) -> Any:
        """The training rows as the engine takes them; of a stream, `weight` is its own."""
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
        scale = self.job.ensemble.prior_scale
        if np.isinf(scale):
            return []
        n_rows = self.n_rows * (1 if self.job.parts is None else 1 - 1 / N_PARTS)
        decays = [(w, fan_in / scale**2 / n_rows) for w, fan_in in weights_and_fan_ins(module)]
        if self.job.plan.n_sharing > 1:
            own = module.network.heads.weight
            decays = [(w, d / self.job.plan.n_sharing if w is own else d) for w, d in decays]
        return decays


class EnsembleTrainer(Trainer):
    """Trains members block by block, and again from other seeds where they diverge.

    How members are grouped into blocks depends on sizes alone, and not on `n_jobs`: to rounding,
    a member's numbers depend on the others of its block.
    """

    def __init__(self, job, observer=None):
        device = job.training.device
        self.block_size = 1
        if job.plan.n_networks > 1:
            self.block_size = block_size(job.ensemble, job.recipe, device, job.train.n_rows)
        n_trained = getattr(job.ensemble, "n_members_", 0)  # in a fit that this one goes on from
        n_blocks = -(-(job.plan.n_networks - n_trained) // self.block_size)
        are_tasks = n_blocks > 1 and device.type == "cpu"
        self.n_jobs = effective_n_jobs(job.ensemble.n_jobs) if are_tasks else 1
        has_jobs = job.ensemble.n_jobs is not None or self.n_jobs > 1
        if are_tasks and has_jobs and job.training.n_threads == "auto":
            # Also for n_jobs=1: several threads round large matrix products in another way.
            job = job._replace(training=replace(job.training, n_threads=1))
        super().__init__(job, observer)
        self.n_blocks = n_blocks

    @property
    def _patience(self) -> int:
        """Epochs without improvement after which a member stops."""
        ensemble = self.job.ensemble
        if ensemble.n_iter_no_change != "auto":
            return ensemble.n_iter_no_change
        return max(_LEAST_PATIENCE, self.job.n_epochs // _PATIENCE_SHARE)

    @property
    def validates_out_of_bag(self) -> bool:  # type: ignore[override]  # a constant in the base
        """Whether the rows that a member leaves out tell which epoch's weights it keeps.

        So the log loss of adult's validation rows fell from .335 to .312, and those of letter,
        magic and covtype changed by less than 1 %. Members for numbers that have overfitted are
        better together than those of their best epochs (california: RMSE .470 and .484), and so
        are those that share weights, although they are judged together.
        """
        job = self.job
        is_asked = job.parts is not None and job.valid is None
        return is_asked and job.plan.task.kind == "classifier" and job.train.n_rows >= MANY_ROWS

    def train_all(self, random_state, task, n_members: int | None = None):
        """Train all members that are missing, or those of the first `n_members`."""
        ensemble = self.job.ensemble
        pending = list(range(n_members or self.job.plan.n_networks))
        for attempt in range(ensemble.max_restarts + 1):
            seeds = random_state.randint(SEED_LIMIT, size=len(pending)).tolist()
            # Members of an earlier fit have a seed each too, so that others have those that they
            # would have had without it.
            drawn = [(m, s) for m, s in zip(pending, seeds, strict=True) if m not in self.weights]
            blocks = [dict(block) for block in _batched(drawn, self.block_size)]
            self._train_blocks(blocks, task if attempt == 0 else None)
            pending = [m for m in pending if m not in self.weights]
            if not pending:
                return
            if self.weights and self.job.training.is_out_of_time:
                break
            if attempt < ensemble.max_restarts:
                self.n_restarts[pending] += 1
                _warn_diverged(pending, "trained anew from another seed")
        if not self.weights:
            raise EveryMemberDiverged(
                f"Every member diverged, also after {ensemble.max_restarts} restarts. Try a "
                f"smaller lr than {ensemble.lr}, clip_norm, or other module parameters."
            )
        _warn_diverged(pending, f"left out after {attempt} restarts")

    def _train_blocks(self, blocks: list[dict[int, int]], task) -> None:
        """Train blocks, each given as seeds by the numbers of its members, and keep the members."""
        if self.n_jobs > 1 and len(blocks) > 1:
            self._train_side_by_side(blocks, task)
            return
        n_left = sum(map(len, blocks)) + self.n_later
        for seeds in blocks:
            n_left -= len(seeds)
            block = self.train_block(seeds, task, n_left)
            self._keep(block)
            if block.interrupted:
                raise KeyboardInterrupt

    def _keep(self, block: TrainedBlock) -> None:
        self.weights.update(block.weights)
        self.best_epochs.update(block.best_epochs)
        self.worse += block.worse
        members = self.job.plan.members_of(block.members)
        self.history += [{**row, "members": members} for row in block.history]

    # --- blocks as tasks of joblib

    def _train_side_by_side(self, blocks: list[dict[int, int]], task) -> None:
        """Train blocks as tasks; those that have ended are kept whatever becomes of the others."""
        progress = current_progress()
        states = [None] * len(blocks) if progress is None else progress.next_tasks(len(blocks))
        threads, ended = Threads(), []
        trainer = self._sharing_time(blocks)
        report = _BlockReport(self.job, task, sum(map(len, blocks)))
        try:
            for block, state in trainer._trained(list(zip(blocks, states, strict=True)), threads):
                if block.interrupted:
                    raise KeyboardInterrupt
                ended.append(block)
                if progress is not None:
                    progress.end_task(state)
                report(block)
        except (KeyboardInterrupt, Exception) as error:
            n_ended = sum(len(block.members) for block in ended)
            error.add_note(
                f"Of {self.job.ensemble.n_members} members, {n_ended} had been trained in this "
                f"round of {len(blocks)} blocks with n_jobs={self.n_jobs}; they are kept."
            )
            raise
        finally:
            for block in sorted(ended, key=lambda block: block.members[0]):
                self._keep(block)
            threads.stop()

    def _sharing_time(self, blocks: list[dict[int, int]]) -> EnsembleTrainer:
        """Return the trainer of blocks side by side, each of which has its part of the time."""
        training = self.job.training
        if training.budget is None:
            return self
        n_networks = sum(map(len, blocks))
        n_in_turn = -(-len(blocks) // self.n_jobs)
        part = training.budget.part(n_networks / (n_networks + self.n_later) / n_in_turn)
        trainer = copy.copy(self)
        trainer.job = self.job._replace(training=replace(training, budget=part))
        return trainer

    def _trained(
        self, blocks: list[tuple[dict[int, int], Any]], threads: Threads
    ) -> Iterator[tuple[TrainedBlock, Any]]:
        """Train blocks as tasks, and give them as they end.

        If a cluster has lost the rows, they are sent again for the blocks that are left.
        """
        left = {min(seeds): (seeds, state) for seeds, state in blocks}
        n_attempts = 0
        while left:
            try:
                tasks = self._tasks([*left.values()], threads)
                for block, state in as_they_end(tasks, self.n_jobs):
                    del left[min(block.members)]
                    yield block, state
            except Exception as error:  # dask, which need not be installed, has a class for it
                n_attempts += 1
                if n_attempts == _ATTEMPTS or not has_lost_rows(error):
                    raise

    def _tasks(self, blocks: list[tuple[dict[int, int], Any]], threads: Threads) -> list[Any]:
        """The calls for joblib; threads share the rows, processes get arrays.

        Of a stream each task, whether in a thread or a process, reads the batches for itself.
        """
        if shares_memory():
            return [delayed(self.train_apart)(*block, threads) for block in blocks]
        train = self.job.train
        if isinstance(train, Stream):
            train.check_pickle(self.n_jobs)
            return [delayed(_train_in_process)(self.job, *block) for block in blocks]
        data = [on_workers(array) for array in (*train, *(self.job.valid or ()))]
        return [delayed(_train_in_process)(self.job[:-2], *block, *data) for block in blocks]

    def train_apart(
        self, seeds: dict[int, int], progress: TaskProgress | None, threads: Threads | None
    ) -> tuple[TrainedBlock, TaskProgress | None]:
        """Train a block beside others: with callbacks of its own, and nothing printed."""
        from .._engine import StopWhen

        callbacks = copy.deepcopy(list(self.job.training.callbacks))
        if threads is not None:
            callbacks.append(StopWhen(threads.stopping))
        budget = self.job.training.budget
        budget = None if budget is None else budget.anew()
        training = replace(self.job.training, callbacks=callbacks, verbose=0, budget=budget)
        own = copy.copy(self)
        own.job = self.job._replace(training=training)
        with progress_is(progress), nullcontext() if threads is None else threads.running():
            return own.train_block(seeds), progress

    def train_block(self, seeds: dict[int, int], task=None, n_later: int = 0) -> TrainedBlock:
        """Train the members that are the keys of `seeds`; `n_later` others come after them."""
        from .._engine import MemberEarlyStopping

        drawn, members = list(seeds.values()), list(seeds)
        valid, stopping = self._validation_rows(members), None
        if valid is not None:
            stopping = MemberEarlyStopping(self._patience, self.job.ensemble.tol)
        module = self._build(drawn)
        numbers = self.job.plan.members_of(members)
        phase = f"members {numbers[0] + 1} to {numbers[-1] + 1} of {self.job.ensemble.n_members}"
        lines = {"phase": phase, "n_epochs_later": self.job.n_epochs * n_later / len(seeds)}
        weight = self._weights_of_rows(seeds)
        objective = self.job.plan.objective(module, TrainingBudget())
        if self.validates_out_of_bag:
            objective = ValidatedByBrier(objective)
        share = len(seeds) / (len(seeds) + n_later)
        settings = {"valid": valid, "objective": objective, "share": share, **lines}
        net, guard = self._fit(module, drawn, weight, task, stopping, **settings)
        weights = weights_of(module.network)
        is_left = {member: k for k, member in enumerate(members) if not guard.diverged_[k]}
        best = (
            {}
            if stopping is None
            else {m: int(stopping.best_epoch_[k]) for m, k in is_left.items()}
        )
        return TrainedBlock(
            members=members,
            weights={m: {name: v[k] for name, v in weights.items()} for m, k in is_left.items()},
            best_epochs={m: int(best[m]) for m in is_left if m in best},
            worse=[m for m, k in is_left.items() if guard.worse_[k]],
            history=list(net.history),
            interrupted=net.interrupted_,
        )

    def _validation_rows(self, members: list[int]) -> Any:
        """The rows that tell each member's best epoch: those held out, or that it leaves out."""
        from .._engine import OwnRows, Rows

        if self.valid is not None:
            X, y, weight = self.valid
            return Rows(X, (y,), weight)
        parts = self.job.parts
        if parts is None or not self.validates_out_of_bag:
            return None
        X, y, weight = self.train
        left_out = torch.as_tensor(parts.left_out(members), device=X.device)
        return OwnRows(X, (y,), left_out, weight)

    def _weights_of_rows(self, seeds: dict[int, int]) -> Tensor | None:
        """Weights of the training rows: shared, (1, n), or of each member, (S, n).

        A member's own are 0 for the rows that it leaves out, and counts of its bootstrap sample.
        """
        X, _, weight = self.train
        parts, bootstrap = self.job.parts, self.job.ensemble.bootstrap
        if parts is None and not bootstrap:
            return weight  # None of a stream, which has its own
        shares = np.ones((1, len(X))) if weight is None else weight.cpu().double().numpy()
        are_seen = np.ones((len(seeds), 1)) if parts is None else parts.are_seen(list(seeds))
        shares = shares * are_seen
        if bootstrap:
            drawn = zip(seeds.values(), shares, strict=True)
            shares = np.stack([_counts_of_rows(seed, share) for seed, share in drawn])
        return torch.tensor(shares).to(X)


def _counts_of_rows(seed: int, shares: np.ndarray) -> np.ndarray:
    """Draw as many rows as have a share, in proportion to it, and count how often each is drawn."""
    n_drawn = np.count_nonzero(shares)
    return np.random.RandomState(seed).multinomial(n_drawn, shares / shares.sum())


class ChainTrainer(Trainer):
    """Runs Markov chains side by side and keeps their states as members.

    Members of the same chain follow one another: member ``c * n_draws + d`` is draw d of chain c.
    """

    _ends_with = staticmethod(torch.any)
    network_is = "Chain"

    def train_all(self, random_state, task):
        ensemble = self.job.ensemble
        n_members = ensemble.n_members if self.observer is None else None
        inference = ensemble.inference.resolved(n_members)
        seeds = random_state.randint(SEED_LIMIT, size=inference.n_chains + 1).tolist()
        noise = torch.Generator(self.job.training.device).manual_seed(seeds.pop())
        n_iterations = self.job.n_epochs * -(-len(self.train[0]) // self.job.batch_size)
        if self.observer is None:
            due = kept_iterations(inference, n_iterations, ensemble.n_members)
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

    def _keep(self, keeper: _StateKeeper, module: Any) -> None:
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

    def state_dict(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "states": list(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration, self.states = state["iteration"], list(state["states"])

    def settings(self) -> dict[str, Any]:
        """Settings of the optimizer for the next step."""
        return self.inference.settings_at(self.iteration, self.n_iterations)

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
        if self.observer is not None:
            self.observer.after_step(net, self.iteration - 1)


class DropoutTrainer(Trainer):
    """Trains one network with dropout; members are its weights with units dropped for good."""

    network_is = "Network"

    def train_all(self, random_state, task):
        ensemble = self.job.ensemble
        seeds = random_state.randint(SEED_LIMIT, size=ensemble.n_members).tolist()
        module = self._build(seeds[:1])
        net, guard = self._fit(module, seeds[:1], self.train[2], task)
        self.history = list(net.history)
        self.worse = torch.nonzero(guard.worse_).flatten().tolist()
        if guard.diverged_.any():
            raise ValueError(
                f"The network diverged. Try a smaller lr than {ensemble.lr}, clip_norm, or other "
                "module parameters."
            )
        network: Any = self._build(seeds).network
        trained = {name: value[0] for name, value in weights_of(module.network).items()}
        masks = [(k, v) for k, v in network.named_buffers() if k.endswith("dropout_mask")]
        drawn = {name: mask.numpy() for name, mask in masks}
        for member in range(ensemble.n_members):
            own = {name: value[member] for name, value in drawn.items()}
            self.weights[member] = {**trained, **own}
        if net.interrupted_:
            raise KeyboardInterrupt


def _train_in_process(job, seeds, progress, *data):
    """Train a block in a process of its own, of a job whose rows come as arguments, if any."""
    if data:  # X, y and weight of training rows, and of validation rows
        job = Job._make((*job, Data(*data[:3]), Data(*data[3:]) if data[3:] else None))
    return EnsembleTrainer(job).train_apart(seeds, progress, threads=None)


class _BlockReport:
    """Tells the user, and scikit-learn's callbacks, of blocks that have ended as tasks.

    Parameters
    ----------
    job : Job
    task : callable or None
        Each epoch of a block becomes a subtask of it; None for none.
    n_members : int
        Members that are being trained.
    """

    def __init__(self, job: Job, task, n_members: int):
        self.job = job
        self.task = task
        self.n_members = n_members
        self.n_ended = 0
        self.begin = time.monotonic()

    def __call__(self, block: TrainedBlock) -> None:
        from .._engine import StopTraining

        self.n_ended += len(block.members)
        if self.job.training.verbose:
            n_left = self.n_members - self.n_ended
            left = time_left(time.monotonic() - self.begin, self.n_ended, n_left)
            print_line(f"{self.n_ended} of {self.n_members} members trained, {left}")
        if self.task is not None:
            per_epoch = self.task()
            for _ in block.history:
                per_epoch.on_epoch_begin(None)
                with suppress(StopTraining):  # too late: the block has ended
                    per_epoch.on_epoch_end(None)


def has_bins(recipe: NetworkRecipe) -> bool:
    """Tell whether networks get piecewise-linear encodings."""
    return recipe.inputs is not None and recipe.inputs.has_bins


def amount_of_training(ensemble: Any, n_rows: int, are_in_bins: bool = False) -> tuple[int, int]:
    """Return the number of epochs and the rows of a minibatch, for so many rows.

    Chains have the same on large tables: their step size is suited to a size of minibatches, and
    with fewer epochs they would end before they are where they should be.
    """
    n_of_small, most, batch_size = _EPOCHS[ensemble._kind], _ROWS_SEEN_AT_MOST, ensemble.batch_size
    n_seen, least = 0, n_of_small
    if shares_weights(ensemble.module):
        n_of_small, most = (_MORE_EPOCHS_OF_SHARED * number for number in (n_of_small, most))
        least = n_of_small
        if batch_size == "auto":
            batch_size = max(_SHARED_BATCH_SIZE, batch_size_for("auto", n_rows), ensemble.n_members)
    elif are_in_bins and ensemble._kind == "regressor":
        half = n_of_small // 2
        n_seen = _ROWS_SEEN_IN_BINS
        least = min(max(half, half * n_rows // _ROWS_OF_HALF), n_of_small)
    if isinstance(ensemble.inference, (SGLD, SGHMC)):
        n_rows = 1
    return (
        n_epochs_for(ensemble.max_epochs, n_rows, n_seen, least, n_of_small, most),
        batch_size_for(batch_size, n_rows),
    )


def block_size(ensemble: Any, recipe: NetworkRecipe, device: torch.device, n_rows: int) -> int:
    """Return how many members to train together on so many rows."""
    if ensemble.member_block != "auto":
        return ensemble.member_block
    if device.type != "cpu":
        return ensemble.n_members
    (member,) = recipe.build([0])
    widest = widest_activation(member, recipe.input_shape)
    n_epochs, batch_size = amount_of_training(ensemble, n_rows, has_bins(recipe))
    most = max(1, _BLOCK_ACTIVATIONS // (min(batch_size, n_rows) * widest))
    n_members = ensemble.n_members
    is_long = n_rows * n_epochs * n_members * widest >= _FIT_ACTIVATIONS
    n_blocks = n_members // _LEAST_BLOCK if is_long else 1
    return min(most, -(-n_members // n_blocks)) if n_blocks > 1 else most


def _batched(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _warn_diverged(members: list[int], consequence: str) -> None:
    warn(
        f"The loss of member(s) {members} became infinite, not a number, or exploded; they are "
        f"{consequence}. A smaller lr or clip_norm may help.",
        ConvergenceWarning,
    )
