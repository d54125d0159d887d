# SPDX-License-Identifier: BSD-3-Clause
"""Training the members of an ensemble in blocks, one after the other or side by side."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from .._estimator.base import Fitted, ObservedTask
from .._method.plan import TrainingBudget, as_tensors, build_module, rebuild_module, weights_of
from .._training.samples import Samples, Stream, rows_of_stream
from .._training.trainer import (
    PROGRESS,
    SEED_LIMIT,
    Progress,
    TimeBudget,
    n_epochs_in,
    on_device,
    progress_is,
)
from .._utils.messages import time_left
from .._utils.reporting import print_line
from .._utils.warnings import warn
from ..modules import weights_and_fan_ins
from ..settings import EarlyStopping
from ._out_of_bag import N_PARTS
from ._perturbations import noise_of_targets, random_weights, stratified
from ._spec import EnsembleSpec, ValidatedBy, brier_score, n_bins_of

_PATIENCE_SHARE = 4  # epochs over the patience of n_iter_no_change="auto", see doc/design.rst
_LEAST_PATIENCE = 20  # epochs


class EveryMemberDiverged(ValueError):
    """No member is left, also after restarts."""


@dataclass(eq=False)
class Members:
    """The networks that have been trained so far, of an ensemble or of a block of it.

    They are numpy arrays and plain Python, for any process. A network is a member, or all members
    that share its weights.
    """

    weights: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)  # by their numbers
    best_epochs: dict[int, int] = field(default_factory=dict)  # only with early stopping
    n_restarts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # of all
    worse: list[int] = field(default_factory=list)  # than a constant prediction, after training
    history: list[dict[str, Any]] = field(default_factory=list)
    is_interrupted: bool = False  # by Ctrl-C

    @classmethod
    def before(cls, spec: EnsembleSpec) -> Members:
        """Return the members of the fit that training goes on from, if any."""
        members = cls(n_restarts=np.zeros(spec.plan.n_networks, dtype=int))
        if spec.before is not None:
            facts, numbers = spec.before.facts, spec.numbers_before
            epochs = facts.get("best_epochs_", np.full(len(numbers), facts["n_epochs_"]))
            for k, number in enumerate(numbers):
                stacked = weights_of(spec.before.module.network)
                members.weights[number] = {name: value[k] for name, value in stacked.items()}
                members.best_epochs[number] = int(epochs[k])
            members.n_restarts[: len(facts["n_restarts_"])] = facts["n_restarts_"]
            members.history = list(spec.before.history)
        return members

    def add(self, block: Members) -> None:
        """Keep the members of a block, also of one that was interrupted."""
        self.weights.update(block.weights)
        self.best_epochs.update(block.best_epochs)
        self.worse += block.worse
        self.history += block.history

    def stacked(
        self, spec: EnsembleSpec, calibration: object = None, functions: object = None
    ) -> Fitted:
        """Return the stack of the members, in their order."""
        numbers = sorted(self.weights)
        members = [self.weights[number] for number in numbers]
        values = {
            f"network.{name}": np.ascontiguousarray(np.stack([member[name] for member in members]))
            for name in members[0]  # else products of a pickled model may round in another way
        }
        plan = replace(spec.plan_of(numbers), calibration=calibration)
        recipe = replace(spec.recipe, functions=functions)
        module = rebuild_module(plan, recipe, {**values, **spec.scaling}).to(spec.training.device)
        return Fitted(plan, recipe, module, self.history, TrainingBudget())


def train_members(
    spec: EnsembleSpec,
    members: Members,
    random_state: np.random.RandomState,
    task: ObservedTask | None,
    n_members: int | None = None,
    n_later: int = 0,
) -> None:
    """Train all members that are missing, or those of the first `n_members`, block by block.

    Those that diverge are trained again from other seeds. The fit trains `n_later` networks after
    them; for the time that these may take. How members are grouped into blocks depends on sizes
    alone, and not on `n_jobs`: to rounding, a member's numbers depend on the others of its block.
    """
    size, pending = spec.block_size, list(range(n_members or spec.plan.n_networks))

    def warn_diverged(consequence: str) -> None:
        warn(
            f"The loss of member(s) {pending} became infinite, not a number, or exploded; they are "
            f"{consequence}. A smaller lr or clip_norm may help.",
            ConvergenceWarning,
        )

    for attempt in range(spec.max_restarts + 1):
        seeds = random_state.randint(SEED_LIMIT, size=len(pending)).tolist()
        # Members of an earlier fit have a seed each too, so that others have those that they would
        # have had without it.
        drawn = [(m, s) for m, s in zip(pending, seeds, strict=True) if m not in members.weights]
        blocks = [dict(drawn[k : k + size]) for k in range(0, len(drawn), size)]
        told = task if attempt == 0 else None
        if spec.n_tasks > 1 and len(blocks) > 1:
            _train_side_by_side(spec, members, blocks, told, n_later)
        else:
            n_left = len(drawn) + n_later
            for block in blocks:
                n_left -= len(block)
                trained = train_block(spec, block, told, n_left)
                members.add(trained)
                if trained.is_interrupted:
                    raise KeyboardInterrupt
        pending = [m for m in pending if m not in members.weights]
        if not pending:
            return
        if members.weights and spec.training.is_out_of_time:
            break
        if attempt < spec.max_restarts:
            members.n_restarts[pending] += 1
            warn_diverged("trained anew from another seed")
    if not members.weights:
        raise EveryMemberDiverged(
            f"Every member diverged, also after {spec.max_restarts} restarts. Try a smaller lr "
            f"than {spec.training.lr}, clip_norm, or other module parameters."
        )
    warn_diverged(f"left out after {attempt} restarts")


def train_block(
    spec: EnsembleSpec,
    seeds: dict[int, int],
    task: ObservedTask | None = None,
    n_later: int = 0,
) -> Members:
    """Train the members that are the keys of `seeds`; `n_later` others come after them."""
    from .._engine import MemberEarlyStopping, Rows

    numbers, plan = list(seeds), spec.plan
    # The samples that tell each member's best epoch: those held out, or that it leaves out.
    valid: Any = None
    stopping: Any = None
    if spec.valid is not None or spec.validates_out_of_bag:
        X, y, weight = spec.train if spec.valid is None else spec.valid
        y = plan.task.encode(y, spec.scaling, spec.dtype)
        X, y, weight = tensors_of(spec, X, y, weight)
        if spec.valid is None and spec.parts is not None:
            left_out = torch.as_tensor(spec.parts.left_out(numbers), device=X.device)
            valid = Rows(X, (y,), weight, batch_size=1024, places=left_out)
        else:
            valid = Rows(X, (y,), weight)
        given = spec.early_stopping or EarlyStopping()
        patience: Any = given.n_iter_no_change
        if patience == "auto":
            patience = max(_LEAST_PATIENCE, spec.n_epochs // _PATIENCE_SHARE)
        stopping = MemberEarlyStopping(patience, given.tol)
    smooth = [k for k, number in enumerate(numbers) if number in spec.smooth]
    n_bins = n_bins_of(spec.recipe) if smooth else 0

    @torch.no_grad()
    def keep_without_bins(net: Any) -> None:  # the weights of bins of smooth networks stay zero
        weight = net.steps_.weights()["network.0.weight"]  # (S, n_inputs, n_units)
        weight[smooth, -n_bins:] = 0.0

    members = plan.members_of(numbers)
    module = build_stack(spec, list(seeds.values()), numbers)
    net = train_stack(
        spec,
        module,
        list(seeds.values()),
        task,
        numbers,
        stopping=stopping,
        valid=valid,
        share=len(seeds) / (len(seeds) + n_later),
        phase=f"members {members[0] + 1} to {members[-1] + 1} of {spec.n_members}",
        after_step=keep_without_bins if n_bins else None,
    )
    weights = weights_of(module.network)
    kept = {number: k for k, number in enumerate(numbers) if not net.guard.diverged_[k]}
    return Members(
        {m: {name: value[k] for name, value in weights.items()} for m, k in kept.items()},
        {} if stopping is None else {m: int(stopping.best_epoch_[k]) for m, k in kept.items()},
        worse=[m for m, k in kept.items() if net.guard.worse_[k]],
        history=[{**row, "members": members} for row in net.history],
        is_interrupted=net.interrupted_,
    )


def build_stack(spec: EnsembleSpec, seeds: list[int], numbers: Sequence[int] = ()) -> Any:
    """Build the stack of networks of these seeds; numbers are of members with their own weights."""
    plan, dtype = spec.plan_of(numbers) if numbers else spec.plan, getattr(torch, spec.dtype.name)
    return build_module(plan, spec.recipe, seeds, dtype, as_tensors(spec.scaling))


def tensors_of(spec: EnsembleSpec, X: Any, y: Any, weight: Any) -> list[Any]:
    """Return samples, encoded targets and weights, (n,) or (S, n), as tensors on the device."""
    weight = None if weight is None else np.atleast_2d(weight).astype(spec.dtype, copy=False)
    device = spec.training.device
    return [None if array is None else on_device(array, device=device) for array in (X, y, weight)]


def train_stack(
    spec: EnsembleSpec,
    module: Any,
    seeds: list[int],
    task: ObservedTask | None,
    numbers: Sequence[int] = (),
    *,
    observer: Any = None,
    **settings: Any,
) -> Any:
    """Train a stack whose networks have these seeds, and return its net.

    The data of networks of these `numbers` are perturbed. Further `settings` are those of
    :meth:`Training.fit`.
    """
    from .._engine import Rows

    plan, train, perturbed = spec.plan, spec.train, spec.plan.members_of(numbers)
    # Not the seed of the weights again: the order of the samples is another random draw.
    order_seeds = [seed + SEED_LIMIT for seed in seeds]

    def dealt(
        samples: Samples, weight: Any, number: int = 0, mean_weight: float | None = None
    ) -> Rows:
        """Encoded samples as the engine takes them, perturbed: a stretch of them by its number."""
        X, y, weight = tensors_of(spec, samples.X, samples.y, weight)
        own_targets: tuple[Tensor, ...] = ()
        if spec.perturbation_seed is not None and perturbed:
            uniform = stratified([spec.perturbation_seed, number], perturbed, tuple(y.shape))
            if spec.kind == "regressor":  # noise of targets, (S, n, t)
                noise = noise_of_targets(uniform, samples.weight)
                own_targets = (torch.from_numpy(noise).to(y),)
            else:  # factors of weights, (S, n)
                factor = torch.from_numpy(random_weights(uniform, samples.weight))
                factor = factor.to(y.device, X.dtype)
                weight = factor if weight is None else weight * factor
        return Rows(
            X,
            (y,),
            weight,
            spec.n_at_once,
            order_seeds,
            mean_weight=mean_weight,
            by_place=plan.n_sharing > 1,
            own_targets=own_targets,
        )

    if isinstance(train, Stream):
        mean_weight = train.total_weight / train.n_rows

        def deal(stretch: Any, number: int) -> Rows:
            stretch = stretch if train.is_weighted else stretch._replace(weight=None)
            return dealt(stretch, stretch.weight, number, mean_weight)

        rows = rows_of_stream(train, spec.scaling, spec.n_at_once, order_seeds, deal)
    else:
        encoded = train._replace(y=plan.task.encode(train.y, spec.scaling, spec.dtype))
        rows = dealt(encoded, weights_of_rows(spec, dict(zip(numbers, seeds, strict=False))))

    # Weight decay of each layer that stands for the prior N(0, prior_scale^2 / fan_in).
    if "weight_decay" not in settings:
        n_seen = spec.total_weight * (1 if spec.parts is None else 1 - 1 / N_PARTS)
        scale = spec.prior_scale
        layers = [] if np.isinf(scale) else weights_and_fan_ins(module)
        decays = [(w, fan_in / scale**2 / n_seen) for w, fan_in in layers]
        if decays and plan.n_sharing > 1:  # whose loss is the mean of the members' losses
            own = module.network.heads.weight
            decays = [(w, d / plan.n_sharing if w is own else d) for w, d in decays]
        settings["weight_decay"] = decays

    def in_training(net: Any) -> Fitted:
        trained = replace(spec.plan_of(numbers), n_networks=net.n_members)
        return Fitted.in_training(trained, spec.recipe, net, TrainingBudget())

    objective = plan.objective(module, TrainingBudget())
    if spec.validates_out_of_bag:
        objective = ValidatedBy(objective, brier_score)
    per_epoch = None if task is None else task.per_epoch(in_training)
    callbacks = [c for c in (per_epoch, observer) if c is not None]
    how = module, objective, rows, spec.n_epochs
    net = spec.training.fit(*how, callbacks=callbacks, **settings)
    if net.interrupted_ and not n_epochs_in(net.history):
        raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
    return net


def weights_of_rows(spec: EnsembleSpec, seeds: dict[int, int]) -> np.ndarray | None:
    """Weights of the training samples: shared, (n,), or of each member, (S, n).

    A member's own are 0 for the rows that it leaves out, and counts of its bootstrap sample.
    """
    weight = None if spec.train.weight is None else spec.train.weight.astype(spec.dtype)
    if spec.parts is None and spec.bootstrap is not True:
        return weight
    own = np.empty((len(seeds), spec.n_rows), spec.dtype)
    for weights, (number, seed) in zip(own, seeds.items(), strict=True):
        shares = np.ones(spec.n_rows) if weight is None else weight.astype(np.float64)
        if spec.parts is not None:
            shares = shares * spec.parts.are_seen([number])[0]
        if spec.bootstrap is True:  # as many draws as samples have a share, in proportion to it
            random, n_drawn = np.random.RandomState(seed), np.count_nonzero(shares)
            shares = random.multinomial(n_drawn, shares / shares.sum())
        weights[:] = shares
    return own


# --- blocks as tasks of joblib


def _train_side_by_side(
    spec: EnsembleSpec,
    members: Members,
    blocks: list[dict[int, int]],
    task: ObservedTask | None,
    n_later: int,
) -> None:
    """Train blocks as tasks; those that have ended are kept whatever becomes of the others."""
    from .._engine import StopTraining

    progress, begin, n_members = PROGRESS.get(), time.monotonic(), sum(map(len, blocks))
    states = [None if progress is None else progress.next_task() for _ in blocks]
    if spec.training.budget is not None:  # of which each block has its part
        n_in_turn = -(-len(blocks) // spec.n_tasks)
        budget = spec.training.budget.part(n_members / (n_members + n_later) / n_in_turn)
        spec = replace(spec, training=replace(spec.training, budget=budget))
    sizes = {min(seeds): len(seeds) for seeds in blocks}  # by the first number of their members
    ended: dict[int, Members] = {}  # likewise
    threads = Threads()

    def n_ended() -> int:
        return sum(sizes[first] for first in ended)

    try:
        tasks = _tasks(spec, list(zip(blocks, states, strict=True)), threads)
        for first, block, state in as_they_end(tasks, spec.n_tasks):
            if block.is_interrupted:
                raise KeyboardInterrupt
            ended[first] = block
            if progress is not None:
                progress.keep(state)
            if spec.training.verbose > 1:
                until = time_left(time.monotonic() - begin, n_ended(), n_members - n_ended())
                print_line(f"{n_ended()} of {n_members} members trained, {until}")
            if task is not None:  # scikit-learn's callbacks are told of its epochs
                per_epoch = task.per_epoch()
                for _ in block.history:
                    per_epoch.on_epoch_begin(None)
                    with suppress(StopTraining):  # too late: the block has ended
                        per_epoch.on_epoch_end(None)
    except (KeyboardInterrupt, Exception) as error:
        error.add_note(
            f"Of {spec.n_members} members, {n_ended()} had been trained in this round of "
            f"{len(blocks)} blocks with n_jobs={spec.n_tasks}; they are kept."
        )
        raise
    finally:
        for first in sorted(ended):
            members.add(ended[first])
        threads.stop()


def _tasks(
    spec: EnsembleSpec, blocks: list[tuple[dict[int, int], Any]], threads: Threads
) -> list[Any]:
    """The calls for joblib; threads share the samples, processes get arrays.

    Of a stream each task, whether in a thread or a process, reads the batches for itself.
    """
    backend, _ = get_active_backend()
    if getattr(backend, "supports_sharedmem", False):
        return [delayed(_train_apart)(spec, *block, threads) for block in blocks]
    spec = replace(spec, before=None)
    if isinstance(spec.train, Stream):
        spec.train.check_pickle(spec.n_tasks)
        return [delayed(_train_apart)(spec, *block, None) for block in blocks]
    data: list[Any] = [*spec.train, *(spec.valid or ())]
    if hasattr(backend, "client"):
        # dask gets a copy to every worker, once: joblib would send it to one, and if that one died,
        # the array would be lost for all. Other backends share arrays by themselves.
        scatter = partial(backend.client.scatter, broadcast=True, hash=False)
        data = [None if array is None else scatter(array) for array in data]
    spec = replace(spec, train=None, valid=None)
    return [delayed(_train_apart)(spec, *block, None, *data) for block in blocks]


def _train_apart(
    spec: EnsembleSpec,
    seeds: dict[int, int],
    progress: Progress | None,
    threads: Threads | None,
    *data: Any,
) -> tuple[int, Members, Progress | None]:
    """Train a block beside others: with callbacks of its own, and nothing printed.

    In another process `data` are X, y and weight of samples for training, and for validation.
    """
    from .._engine import StopWhen

    if data:
        valid = Samples(*data[3:]) if data[3:] else None
        spec = replace(spec, train=Samples(*data[:3]), valid=valid)
    training = spec.training
    callbacks = copy.deepcopy(list(training.callbacks))
    if threads is not None:
        callbacks.append(StopWhen(threads.stopping))
    budget = None if training.budget is None else TimeBudget(training.budget.seconds)
    training = replace(training, callbacks=callbacks, verbose=0, budget=budget)
    with progress_is(progress), nullcontext() if threads is None else threads.running():
        return min(seeds), train_block(replace(spec, training=training), seeds), progress


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
