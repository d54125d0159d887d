# SPDX-License-Identifier: BSD-3-Clause
"""Training the members of an ensemble in blocks, one after the other or side by side."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from .._data.encoding import MANY_ROWS
from .._method.plan import TrainingBudget, weights_of
from .._training.resume import TaskProgress, current_progress, progress_is
from .._training.stream import Stream
from .._training.trainer import SEED_LIMIT
from .._utils.messages import time_left
from .._utils.reporting import part, print_line
from .._utils.warnings import warn
from ..settings import EarlyStopping
from ._job import Data, Job, ValidatedByBrier, block_size, n_bins_of
from ._trainer import ChainObserver, Trainer

_ATTEMPTS = 3  # trainings at most of blocks whose samples a cluster loses with its workers
_PATIENCE_SHARE = 4  # epochs over the patience of n_iter_no_change="auto", see doc/design.rst
_LEAST_PATIENCE = 20  # epochs


class EveryMemberDiverged(ValueError):
    """No member is left, also after restarts."""


class TrainedBlock(NamedTuple):
    """What training a block of members gives: numbers and arrays, for any process."""

    members: list[int]  # numbers of all members of the block
    weights: dict[int, dict[str, np.ndarray]]  # of each member that has not diverged
    best_epochs: dict[int, int]  # only with early stopping
    worse: list[int]  # numbers of the members that are worse than a constant prediction
    history: list[dict]
    interrupted: bool  # by Ctrl-C


class EnsembleTrainer(Trainer):
    """Trains members block by block, and again from other seeds where they diverge.

    How members are grouped into blocks depends on sizes alone, and not on `n_jobs`: to rounding,
    a member's numbers depend on the others of its block.
    """

    def __init__(self, job: Job, observer: ChainObserver | None = None, n_trained: int = 0):
        device = job.training.device
        self.block_size = 1
        if job.plan.n_networks > 1:
            self.block_size = block_size(job.spec, job.recipe, device, job.train.n_rows)
        n_blocks = -(-(job.plan.n_networks - n_trained) // self.block_size)
        are_tasks = n_blocks > 1 and device.type == "cpu"
        self.n_jobs = effective_n_jobs(job.spec.n_jobs) if are_tasks else 1
        has_jobs = job.spec.n_jobs is not None or self.n_jobs > 1
        if are_tasks and has_jobs and job.training.n_threads == "auto":
            # Also for n_jobs=1: several threads round large matrix products in another way.
            job = job.with_training(n_threads=1)
        super().__init__(job, observer)
        self.n_blocks = n_blocks

    @property
    def validates_out_of_bag(self) -> bool:  # type: ignore[override]  # a constant in the base
        """Whether the samples that a member leaves out tell which epoch's weights it keeps.

        They do so for classes on large tables, see doc/design.rst.
        """
        job = self.job
        is_asked = job.parts is not None and job.valid is None
        return is_asked and job.plan.task.kind == "classifier" and job.train.n_rows >= MANY_ROWS

    def train_all(self, random_state, task, n_members: int | None = None, n_later: int = 0):
        """Train all members that are missing, or those of the first `n_members`.

        The fit trains `n_later` networks after them; for the time that these may take.
        """
        self.n_later = n_later
        spec, size = self.job.spec, self.block_size
        pending = list(range(n_members or self.job.plan.n_networks))
        for attempt in range(spec.max_restarts + 1):
            seeds = random_state.randint(SEED_LIMIT, size=len(pending)).tolist()
            # Members of an earlier fit have a seed each too, so that others have those that they
            # would have had without it.
            drawn = [(m, s) for m, s in zip(pending, seeds, strict=True) if m not in self.weights]
            blocks = [dict(drawn[k : k + size]) for k in range(0, len(drawn), size)]
            self._train_blocks(blocks, task if attempt == 0 else None)
            pending = [m for m in pending if m not in self.weights]
            if not pending:
                return
            if self.weights and self.job.training.is_out_of_time:
                break
            if attempt < spec.max_restarts:
                self.n_restarts[pending] += 1
                _warn_diverged(pending, "trained anew from another seed")
        if not self.weights:
            raise EveryMemberDiverged(
                f"Every member diverged, also after {spec.max_restarts} restarts. Try a "
                f"smaller lr than {spec.training.lr}, clip_norm, or other module parameters."
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
        threads = Threads()
        ended: list[TrainedBlock] = []
        trainer, begin = self._sharing_time(blocks), time.monotonic()
        tasks, n_members = list(zip(blocks, states, strict=True)), sum(map(len, blocks))

        def n_ended() -> int:
            return sum(len(block.members) for block in ended)

        try:
            with part(n_members / (n_members + self.n_later), lambda: n_ended() / n_members):
                for block, state in trainer._trained(tasks, threads):
                    if block.interrupted:
                        raise KeyboardInterrupt
                    ended.append(block)
                    if progress is not None:
                        progress.end_task(state)
                    if self.job.training.verbose > 1:
                        n_left = n_members - n_ended()
                        left = time_left(time.monotonic() - begin, n_ended(), n_left)
                        print_line(f"{n_ended()} of {n_members} members trained, {left}")
                    _report_epochs(block, task)
        except (KeyboardInterrupt, Exception) as error:
            error.add_note(
                f"Of {self.job.spec.n_members} members, {n_ended()} had been trained in this "
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
        trainer.job = self.job.with_training(budget=part)
        return trainer

    def _trained(
        self, blocks: list[tuple[dict[int, int], Any]], threads: Threads
    ) -> Iterator[tuple[TrainedBlock, Any]]:
        """Train blocks as tasks, and give them as they end.

        If a cluster has lost the samples, they are sent again for the blocks that are left.
        """
        left = {min(seeds): (seeds, state) for seeds, state in blocks}
        n_attempts = 0
        while left:
            try:
                tasks = self._tasks([*left.values()], threads)
                for block, state in as_they_end(tasks, self.n_jobs):
                    del left[min(block.members)]
                    yield block, state
            except Exception as error:  # of any kind: clusters have errors of their own
                # dask, which need not be installed, frees memory by keeping one copy of what it
                # holds several of, and gives a task up if the worker with the last one dies.
                kinds = {kind.__name__ for kind in type(error).__mro__}
                n_attempts += 1
                if n_attempts == _ATTEMPTS or "FutureCancelledError" not in kinds:
                    raise

    def _tasks(self, blocks: list[tuple[dict[int, int], Any]], threads: Threads) -> list[Any]:
        """The calls for joblib; threads share the samples, processes get arrays.

        Of a stream each task, whether in a thread or a process, reads the batches for itself.
        """
        backend, _ = get_active_backend()
        if getattr(backend, "supports_sharedmem", False):
            return [delayed(self.train_apart)(*block, threads) for block in blocks]
        train = self.job.train
        if isinstance(train, Stream):
            train.check_pickle(self.n_jobs)
            return [delayed(_train_in_process)(self.job, *block) for block in blocks]
        data: list[Any] = [*train, *(self.job.valid or ())]
        if hasattr(backend, "client"):
            # dask gets a copy to every worker, once: joblib would send it to one, and if that one
            # died, the array would be lost for all. Other backends share arrays by themselves.
            scatter = partial(backend.client.scatter, broadcast=True, hash=False)
            data = [None if array is None else scatter(array) for array in data]
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
        own = copy.copy(self)
        own.job = self.job.with_training(callbacks=callbacks, verbose=0, budget=budget)
        with progress_is(progress), nullcontext() if threads is None else threads.running():
            return own.train_block(seeds), progress

    def train_block(self, seeds: dict[int, int], task=None, n_later: int = 0) -> TrainedBlock:
        """Train the members that are the keys of `seeds`; `n_later` others come after them."""
        from .._engine import MemberEarlyStopping

        drawn, members = list(seeds.values()), list(seeds)
        valid, stopping = self._validation_rows(members), None
        if valid is not None:
            given = self.job.spec.early_stopping or EarlyStopping()
            patience: Any = given.n_iter_no_change
            if patience == "auto":
                patience = max(_LEAST_PATIENCE, self.job.n_epochs // _PATIENCE_SHARE)
            stopping = MemberEarlyStopping(patience, given.tol)
        module = self._build(drawn, members)
        smooth = [k for k, member in enumerate(members) if member in self.smooth]
        n_bins = n_bins_of(self.job.recipe) if smooth else 0
        numbers = self.job.plan.members_of(members)
        phase = f"members {numbers[0] + 1} to {numbers[-1] + 1} of {self.job.spec.n_members}"
        objective = self.job.plan.objective(module, TrainingBudget())
        if self.validates_out_of_bag:
            objective = ValidatedByBrier(objective)
        net, guard = self._fit(
            module,
            drawn,
            self._weights_of_rows(seeds),
            task,
            stopping,
            numbers,
            valid=valid,
            objective=objective,
            share=len(seeds) / (len(seeds) + n_later),
            phase=phase,
            after_step=SmoothWithoutBins(smooth, n_bins) if n_bins else None,
        )
        weights = weights_of(module.network)
        kept = {member: k for k, member in enumerate(members) if not guard.diverged_[k]}
        best = {}
        if stopping is not None:
            best = {m: int(stopping.best_epoch_[k]) for m, k in kept.items()}
        return TrainedBlock(
            members=members,
            weights={m: {name: v[k] for name, v in weights.items()} for m, k in kept.items()},
            best_epochs=best,
            worse=[m for m, k in kept.items() if guard.worse_[k]],
            history=list(net.history),
            interrupted=net.interrupted_,
        )

    def _validation_rows(self, members: list[int]) -> Any:
        """The samples that tell each member's best epoch: those held out, or that it leaves out."""
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
        """Weights of the training samples: shared, (1, n), or of each member, (S, n).

        A member's own are 0 for the rows that it leaves out, and counts of its bootstrap sample.
        """
        X, _, weight = self.train
        parts, bootstrap = self.job.parts, self.job.spec.bootstrap is True
        if parts is None and not bootstrap:
            return weight  # None of a stream, which has its own
        own = X.new_empty(len(seeds), len(X))
        for weights, (member, seed) in zip(own, seeds.items(), strict=True):
            shares = np.ones(len(X)) if weight is None else weight[0].cpu().double().numpy()
            if parts is not None:
                shares = shares * parts.are_seen([member])[0]
            if bootstrap:  # as many draws as samples have a share, in proportion to it
                random, n_drawn = np.random.RandomState(seed), np.count_nonzero(shares)
                shares = random.multinomial(n_drawn, shares / shares.sum())
            weights.copy_(torch.from_numpy(shares))
        return own


@dataclass(frozen=True)
class SmoothWithoutBins:
    """Called after each step: the weights of bins of smooth networks stay zero."""

    places: list[int]  # of the smooth networks in their block
    n_bins: int

    @torch.no_grad()
    def __call__(self, net: Any) -> None:
        weight = net.steps_.weights()["network.0.weight"]  # (S, n_inputs, n_units)
        weight[self.places, -self.n_bins :] = 0.0


def _train_in_process(job, seeds, progress, *data):
    """Train a block in a process of its own, of a job whose samples come as arguments, if any."""
    if data:  # X, y and weight of training samples, and of validation samples
        job = Job._make((*job, Data(*data[:3]), Data(*data[3:]) if data[3:] else None))
    return EnsembleTrainer(job).train_apart(seeds, progress, threads=None)


def _report_epochs(block: TrainedBlock, task) -> None:
    """Tell scikit-learn's callbacks of the epochs of a block that has ended as a task."""
    from .._engine import StopTraining

    if task is None:
        return
    per_epoch = task.per_epoch()
    for _ in block.history:
        per_epoch.on_epoch_begin(None)
        with suppress(StopTraining):  # too late: the block has ended
            per_epoch.on_epoch_end(None)


def _warn_diverged(members: list[int], consequence: str) -> None:
    warn(
        f"The loss of member(s) {members} became infinite, not a number, or exploded; they are "
        f"{consequence}. A smaller lr or clip_norm may help.",
        ConvergenceWarning,
    )


class Threads:
    """Tasks that run as threads: asked to stop, and waited for.

    joblib ends its processes, but leaves its threads running; Python aborts if it ends before them.
    """

    def __init__(self):
        self.stopping = threading.Event()
        self._n_running = 0
        self._changed = threading.Condition()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Stand around a task, which is to end soon when ``stopping`` is set."""
        with self._changed:
            if self.stopping.is_set():
                raise RuntimeError("No task may begin after the fit has ended.")
            self._n_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify()

    def stop(self) -> None:
        """Ask the tasks to stop, and return when the last one has; Ctrl-C ends the waiting."""
        with self._changed:
            self.stopping.set()
            self._changed.wait_for(lambda: not self._n_running)


def as_they_end(tasks: Sequence[object], n_jobs: int) -> Iterator[Any]:
    """Run tasks of joblib, and yield what each returns as soon as it has ended, in any order.

    From backends that cannot do so, such as ray's, results come together for every `n_jobs` tasks.
    """
    backend, _ = get_active_backend()
    settings = {"n_jobs": n_jobs, "batch_size": 1}
    if backend.supports_return_generator:
        run = Parallel(**settings, return_as="generator_unordered")
        with closing(run(tasks)) as results:
            yield from results
        return
    with Parallel(**settings) as run:
        for start in range(0, len(tasks), n_jobs):
            yield from run(tasks[start : start + n_jobs])
