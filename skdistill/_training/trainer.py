# SPDX-License-Identifier: BSD-3-Clause
"""How an estimator's parameters train a stack of networks: in time, and on from a checkpoint."""

from __future__ import annotations

import contextlib
import copy
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from .._method.plan import Objective
from .._utils.messages import name_of
from .._utils.process import is_forked, torch_threads
from .._utils.reporting import print_line
from .._utils.validation import did_you_mean, part_of
from .._utils.warnings import warn
from ..modules import GLOBAL_GENERATOR_LOCK, flop_per_row, parts_of, weights_and_fan_ins
from ..settings import Checkpoint, Optimizer, Runtime

# How these were chosen: see doc/design.rst.
SEED_LIMIT = 2**31 - 1
_SHARE_OF_BATCH, _BATCH_SIZES_WITHIN = 1 / 150, (32, 256)  # of all samples; batch_size="auto"
_RATE, _RATE_TIMES_INPUTS = 0.01, 1.5  # at most, of lr="auto"; times the inputs of a unit
_LEAST_EPOCHS = 10  # of max_epochs="auto"
_NEXT_TO_NOTHING = 0.01  # share of max_time, at which nothing further is begun
_FLOP_OF_THREADED_STEP = 2e8  # operations of a step from which on it is shared by threads

# They want a closure, sparse gradients, or matrices only.
_UNSUITED_OPTIMIZERS = frozenset({"LBFGS", "Muon", "Optimizer", "SparseAdam"})

# Arguments of modules and optimizers that are filled in.
FILLED_IN = frozenset({"in_features", "out_features", "generator", "params", "lr"})

# Parameters that change nothing about a fitted model.
NO_MATTER = ("checkpoint", "verbose", "n_threads", "n_jobs")


@dataclass(frozen=True)
class TimeBudget:
    """Seconds that training may take, by `max_time`, from `begin` on."""

    seconds: float
    begin: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - (time.monotonic() - self.begin))

    def less(self, seconds: float) -> TimeBudget:
        """Return the budget without so many seconds, for what follows training."""
        return replace(self, seconds=max(self.seconds - seconds, 0.0))

    def part(self, share: float) -> TimeBudget:
        """Return a budget of this share of the time that is left, which begins now."""
        return TimeBudget(self.left * share)


@dataclass(frozen=True)
class Training:
    """How stacks are trained: an estimator's parameters, checked.

    `optimizer_settings` and `callback_settings` are the parameters ``optimizer__<name>`` and
    ``callbacks__<callback>__<name>``. ``lr="auto"`` is divided by `low_noise_factor`.
    """

    optimizer: type[torch.optim.Optimizer]
    optimizer_settings: dict[str, Any]
    lr: float | str
    lr_schedule: str | None
    clip_norm: float | None
    callbacks: Sequence[Any]
    callback_settings: dict[str, Any]
    device: torch.device
    compile: bool | str
    n_threads: int | str
    verbose: int
    budget: TimeBudget | None = None
    low_noise_factor: float = 1.0  # above 1 where the teacher predicts next to no variance

    @classmethod
    def of(cls, params: dict[str, Any], clip_norm: float | None = None) -> Training:
        """Read an estimator's parameters, and raise a TypeError or ValueError for what is wrong.

        `clip_norm` is what "auto" stands for.
        """
        callbacks = () if params["callbacks"] is None else params["callbacks"]
        if not (isinstance(callbacks, (list, tuple)) and all(map(_is_callback, callbacks))):
            raise TypeError(
                "callbacks must be a list of skorch callbacks or of (name, callback) pairs, got "
                f"{callbacks!r}."
            )
        steps = Optimizer.of(params["optimizer"])
        optimizer: Any = steps.kind
        if isinstance(optimizer, str):
            optimizer = vars(torch.optim).get(optimizer)
        is_class = isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer)
        if not is_class or optimizer.__name__ in _UNSUITED_OPTIMIZERS:
            raise ValueError(
                "optimizer must be a torch optimizer class or the name of one in torch.optim, "
                f"such as 'Adam', and none of {sorted(_UNSUITED_OPTIMIZERS)}; got {steps.kind!r}."
                + did_you_mean(steps.kind, {*vars(torch.optim)} - _UNSUITED_OPTIMIZERS)
            )
        given = part_of(params, "optimizer")
        check_signature(optimizer, given, "optimizer")
        runtime = Runtime.of(params["runtime"])
        device = device_of(runtime.device)
        try:
            weight = torch.zeros(1, device=device)
            weight.cpu()  # fails on a device without values, such as "meta"
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"runtime__device must be one that torch can use here, got {str(device)!r} "
                f"({error}). Runtime(device='auto') takes a GPU where there is one, else the CPU."
            ) from error
        if given and optimizer.__module__.startswith("torch."):
            weight.requires_grad_().sum().backward()
            lr = _RATE if params["lr"] == "auto" else params["lr"]
            try:  # settings may fail at the first step only
                optimizer([weight], **{"lr": lr, **given}).step()
            except Exception as error:  # whatever an optimizer does with what it does not expect
                named = {f"optimizer__{name}": value for name, value in given.items()}
                raise ValueError(f"{optimizer.__name__} cannot take {named}: {error}") from error
        return cls(
            optimizer=optimizer,
            optimizer_settings=given,
            callbacks=callbacks,
            callback_settings=part_of(params, "callbacks"),
            device=device,
            compile=runtime.compile,
            n_threads=runtime.n_threads,
            budget=None if params["max_time"] is None else TimeBudget(params["max_time"]),
            lr=params["lr"],
            lr_schedule=steps.lr_schedule,
            clip_norm=clip_norm if steps.clip_norm == "auto" else steps.clip_norm,
            verbose=params["verbose"],
        )

    @property
    def is_out_of_time(self) -> bool:
        """Whether `max_time` leaves no time for further training."""
        budget = self.budget
        return budget is not None and budget.left <= _NEXT_TO_NOTHING * budget.seconds

    def net(
        self,
        module: nn.Module,
        objective: Objective,
        n_epochs: int,
        callbacks: Sequence[Any] = (),
        sampler: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        time_limit: Any = None,
        stopping: Any = None,
        ends_with: Callable[[Tensor], Tensor] = torch.all,
        **net_settings,
    ) -> Any:
        """Return the skorch net around a stack, with a guard of divergence.

        `sampler`, an optimizer class and its settings, replaces the user's optimizer and schedule.
        `stopping` is a MemberEarlyStopping; training ends when all, or any, networks have diverged.
        """
        from .. import _engine  # skorch takes most of a second to import, and predicting needs none

        optimizer, settings = sampler or (self.optimizer, self.optimizer_settings)
        lr = learning_rate_for(self.lr, module, self.low_noise_factor)
        step = "compiled" if self.compile else "eager"
        if self.compile == "auto":
            # An optimizer that is not made for capture would freeze its learning rate in the graph.
            capturable = "capturable" in inspect.signature(optimizer).parameters
            step = "captured" if self.device.type == "cuda" and capturable else "eager"
        if sampler is None:
            settings = {**optimizer_defaults(optimizer, lr, step, self.device), **settings}
            if self.lr_schedule == "cosine" and time_limit is None:
                cosine = _engine.LRScheduler("CosineAnnealingLR", T_max=n_epochs)
                callbacks = [("lr_schedule", cosine), *callbacks]
        guard = _engine.DivergenceGuard(stopping, ends_with)
        ours = [one for one in (time_limit, stopping, guard) if one is not None]
        return _engine.StackNet(
            module,
            objective,
            optimizer=optimizer,
            lr=lr,
            max_epochs=n_epochs,
            clip_norm=self.clip_norm,
            step=step,
            time_limit=time_limit,
            guard=guard,
            **net_settings,
            callbacks=[*self.callbacks, *ours, *callbacks],
            device=str(self.device),
            verbose=self.verbose,
            **{f"optimizer__{name}": value for name, value in settings.items()},
            **{f"callbacks__{name}": value for name, value in self.callback_settings.items()},
        )

    def fit(
        self,
        module: nn.Module,
        objective: Objective,
        rows: Any,
        n_epochs: int,
        valid: Any = None,
        share: float = 1.0,
        **net_settings,
    ) -> Any:
        """Train a stack on `rows` and return its net; the caller's threads and seeds are kept.

        `share` is that of the rest of the stage, and of the time left, with `max_time`.
        """
        module = module.to(self.device)  # in place; samples are encoded before the net is made
        flop = flop_per_step(module, rows)
        for dealt in (rows, valid):
            if dealt is not None:
                dealt.encode_by(parts_of(module)[1])
        progress = PROGRESS.get()
        if progress is not None:
            from .._engine import SavedTraining

            number = progress.next_number()
            saved = SavedTraining(progress, number, rows, draws_globally(module))
            net_settings["callbacks"] = [*net_settings.get("callbacks", ()), saved]
        net_settings |= {"batch_size": rows.batch_size, "flop_per_step": flop}
        limit: Any = None
        if self.budget is not None:
            from .._engine import TimeLimit

            limit = TimeLimit(self.budget.part(share), self.lr_schedule == "cosine")
        net = self.net(module, objective, n_epochs, time_limit=limit, **net_settings)
        if self.verbose > 1:
            print_line(f"{net.phase}:")
        with (
            suited_threads(flop, self.n_threads),
            own_dropout(module, rows.seeds[0]),
        ):
            net.fit(rows, valid)
        if limit is not None and limit.is_short_:
            warn(
                f"max_time was too short: it ended {net.phase} before the first epoch did, so that "
                "some samples were not trained on. Give more time, fewer members or smaller "
                "networks.",
                ConvergenceWarning,
            )
        return net

    def warn_of_worse(self, who_is: str, lr: float | None = None) -> None:
        """Warn that a network trained at the rate `lr` is worse than a constant prediction."""
        warn(
            f"{who_is} worse than a constant prediction on the training samples: the last loss is "
            f"far above that of outputs of zero. Try a smaller lr than {lr or self.lr}, clip_norm, "
            "more epochs, or X with scaled columns.",
            ConvergenceWarning,
        )


def n_epochs_in(history: Sequence[dict]) -> int:
    """Return how many epochs of a history have ended."""
    return sum("train_loss" in row for row in history)


def flop_per_step(module: nn.Module, rows: Any) -> float:
    """Floating-point operations of a training step, forward and backward."""
    return 3 * rows.batch_size * flop_per_row(module, rows.X.shape[1:])


def n_epochs_for(
    max_epochs: int | str, n_rows: int, n_seen: int, low: int, high: int, n_seen_at_most: int
) -> int:
    """Return `max_epochs`; "auto" is `n_seen` samples in all, but `low` to `high` epochs.

    On large tables, "auto" is fewer than `low` epochs: `n_seen_at_most` samples in all, but at
    least 10 epochs.
    """
    if max_epochs != "auto":
        return int(max_epochs)
    most = max(_LEAST_EPOCHS, n_seen_at_most // n_rows)
    return min(max(n_seen // n_rows, low), high, most)


def learning_rate_for(lr: float | str, module: nn.Module, low_noise_factor: float = 1.0) -> float:
    """Return `lr`; "auto" is .01, less for more than 150 inputs, over the factor."""
    if lr != "auto":
        return float(lr)
    n_inputs = max((fan_in for _, fan_in in weights_and_fan_ins(module)), default=1)
    return min(_RATE, _RATE_TIMES_INPUTS / n_inputs) / low_noise_factor


def batch_size_for(batch_size: int | str, n_rows: int) -> int:
    """Return `batch_size`; "auto" is 32 samples, from 4,800 on more, and 256 from 38,400 on."""
    if batch_size != "auto":
        return int(batch_size)
    least, most = _BATCH_SIZES_WITHIN
    return min(max(least, int(n_rows * _SHARE_OF_BATCH)), most)


def optimizer_defaults(
    optimizer: type[torch.optim.Optimizer], lr: float, step: str, device: torch.device
) -> dict:
    """Settings that make an optimizer fast, of those that it has."""
    accepted = inspect.signature(optimizer).parameters
    settings: dict[str, Any] = {"fused": True} if "fused" in accepted else {}
    if step == "captured":
        # A graph reads the learning rate anew at each replay only if it is a tensor.
        settings |= {"capturable": True, "lr": torch.tensor(float(lr), device=device)}
    return settings


def device_of(device: Any) -> torch.device:
    """Return a torch device; "auto" is CUDA if there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"runtime__device must be 'auto' or a torch device such as 'cpu', got {device!r}."
            + did_you_mean(device, ("auto", "cpu", "cuda", "mps"))
        ) from error


def _is_callback(value: Any) -> bool:
    """Tell whether a value is a callback, its class, or a name and one of these, or None."""
    is_pair = isinstance(value, tuple) and len(value) == 2
    callback = value[1] if is_pair else value
    return (is_pair and callback is None) or hasattr(callback, "set_params")


def check_signature(build: Callable, given: Mapping[str, object], prefix: str) -> None:
    """Raise a ValueError for arguments ``prefix__<name>`` that `build` does not take."""
    try:
        accepted = inspect.signature(build).parameters
    except ValueError as error:
        raise TypeError(f"{prefix} must tell which arguments it takes: {error}.") from error
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        return
    unknown = sorted(set(given) - set(accepted))
    if unknown:
        known = [f"{prefix}__{name}" for name in accepted if name not in FILLED_IN]
        given_wrongly = [f"{prefix}__{name}" for name in unknown]
        raise ValueError(
            f"{name_of(build)} takes no {given_wrongly}; it takes {known}."
            f"{did_you_mean(given_wrongly[0], known)}"
        )


@contextlib.contextmanager
def suited_threads(flop_per_step: float, n_threads: int | str = "auto") -> Iterator[None]:
    """Use `n_threads` threads; "auto" is one for a small training step, as in a forked child."""
    is_small = flop_per_step < _FLOP_OF_THREADED_STEP
    automatic = 1 if is_small else torch.get_num_threads()
    number = automatic if n_threads == "auto" else int(n_threads)
    if number > 1 and is_forked():
        warn(
            f"n_threads={number} has no effect in a forked process, which goes on with one "
            "thread. Start processes by 'spawn' or 'forkserver' for more."
        )
    with torch_threads(number):
        yield


@contextlib.contextmanager
def own_dropout(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed torch's global generator for modules that draw from it alone, and restore its state."""
    if not draws_globally(module):
        yield
        return
    with GLOBAL_GENERATOR_LOCK.held(), torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def draws_globally(module: nn.Module) -> bool:
    """Tell whether a stack may draw from torch's global generator, for dropout."""
    return any(getattr(part, "draws_globally", False) for part in module.modules())


def on_device(
    values: np.ndarray, n_copies: int = 1, *, device: torch.device, dtype: np.dtype | None = None
) -> Tensor:
    """Return an array as a tensor on a device, `n_copies` of it one after the other.

    On a CPU a single one shares its memory. `dtype`, of numpy, is for real numbers only.
    """
    is_real = dtype is not None and np.issubdtype(values.dtype, np.floating)
    wanted = dtype if is_real else values.dtype
    if n_copies > 1:
        copies = np.concatenate([values] * n_copies, dtype=wanted, casting="unsafe")
    else:
        copies = np.asarray(values, dtype=wanted, order="C")
    # torch warns of an array that is read-only; a filter of warnings would be that of all threads.
    interface = dict(copies.__array_interface__)
    interface["data"] = interface["data"][0], False
    writable: Any = SimpleNamespace(array=copies, __array_interface__=interface)
    return torch.from_numpy(np.asarray(writable)).to(device)


# --- going on with a fit that was killed
#
# It runs again from its beginning, with the same seeds. Each of its trainings that had ended, those
# of its teacher included, is restored from the checkpoint instead of run. The one that was
# interrupted goes on after the last epoch that was saved. So what an estimator does between
# trainings needs no saving of its own.


class Progress:
    """The trainings of a fit, one after the other, by number, and the file they are saved in.

    That of a training which runs as a task, maybe in another process, has no file: at the end it
    is given to :meth:`keep` of the fit's.
    """

    def __init__(self, checkpoint: Any = None, first: int = 0, trainings: Any = None):
        self.checkpoint = checkpoint  # CheckpointFile
        self.n_begun = first  # trainings
        self.is_loading = False
        self.trainings: dict[int, dict[str, Any]] = trainings or {}  # states of those saved
        self.random_state: np.random.RandomState | None = None
        saved = None if checkpoint is None else checkpoint.read()
        match saved:
            case None:
                pass
            case {"trainings": dict(trainings), "random_state": random_state}:
                self.trainings, self.random_state = trainings, random_state
            case _:
                raise checkpoint.misfit(ValueError("it has no trainings"))

    def restored(self, given: object, drawn_from: np.random.RandomState) -> np.random.RandomState:
        """Return the generator of the fit, as it was when the fit began; `given` may be a seed."""
        if isinstance(given, Integral):
            return drawn_from
        if self.random_state is None:
            self.random_state = copy.deepcopy(drawn_from)
            return drawn_from
        return copy.deepcopy(self.random_state)

    def next_number(self) -> int:
        """Return how many trainings of the fit come before the one that is about to begin."""
        self.n_begun += 1
        return self.n_begun - 1

    def next_task(self) -> Progress:
        """Return what the next training goes on from, if it runs as a task."""
        number = self.next_number()
        return Progress(None, number, {n: s for n, s in self.trainings.items() if n == number})

    def saved(self, number: int) -> dict[str, Any] | None:
        state = self.trainings.get(number)
        self.is_loading = state is not None
        return state

    def end_epoch(self, number: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write what `state` returns of a training, if it is time to."""
        self.is_loading = False
        if self.checkpoint is not None and self.checkpoint.is_due():
            self._write({**self.trainings, number: state()})

    def end_training(self, number: int, state: dict[str, Any]) -> None:
        """Keep the state of a training that has ended, for the next writing."""
        if not self.is_loading:  # else it is that which was restored
            self.trainings = {**self.trainings, number: copy.deepcopy(state)}
        self.is_loading = False

    def keep(self, task: Progress) -> None:
        """Write the state of a training that has ended as a task."""
        self.trainings |= task.trainings
        self._write(self.trainings)

    def _write(self, trainings: dict[int, dict[str, Any]]) -> None:
        self.checkpoint.write({"trainings": trainings, "random_state": self.random_state})


PROGRESS: ContextVar[Progress | None] = ContextVar("of what runs, with a checkpoint", default=None)


@contextlib.contextmanager
def progress_is(progress: Progress | None) -> Iterator[None]:
    """Make `progress` the current one."""
    token = PROGRESS.set(progress)
    try:
        yield
    finally:
        PROGRESS.reset(token)


@contextlib.contextmanager
def resumable(
    estimator: BaseEstimator, random_state: np.random.RandomState, data: Mapping[str, object]
) -> Iterator[np.random.RandomState]:
    """Let a fit go on from the estimator's checkpoint, and yield the generator to use.

    A teacher's fit within its student's is saved in the student's checkpoint. `data` are what `fit`
    was given, and must be the same when the fit goes on.
    """
    wanted = Runtime.of(estimator.runtime).checkpoint
    if wanted is None or PROGRESS.get() is not None:
        yield random_state
        return
    from .._engine import CheckpointFile
    from .._serialization.digest import digests

    arrays = {k: None if value is None else np.asarray(value) for k, value in data.items()}
    belongs_to, wanted = digests(estimator, arrays, NO_MATTER), Checkpoint.of(wanted)
    with CheckpointFile(wanted.path, wanted.every, belongs_to) as checkpoint:
        progress = Progress(checkpoint)
        try:
            with progress_is(progress):
                yield progress.restored(estimator.random_state, random_state)
        except Exception as error:  # of any kind: a state that does not fit fails anywhere
            if progress.is_loading:
                raise checkpoint.misfit(error) from error
            raise
        checkpoint.remove()
