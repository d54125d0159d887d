# SPDX-License-Identifier: BSD-3-Clause
"""Going on with a fit that was killed, and the time that a fit may take.

A fit that goes on runs again from its beginning, with the same seeds. Each of its trainings that
had ended, those of its teacher included, is restored from the checkpoint instead of run. The one
that was interrupted goes on after the last epoch that was saved. So what an estimator does between
trainings needs no saving of its own.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..settings import Checkpoint, Runtime

# Parameters that change nothing about a fitted model.
NO_MATTER = ("checkpoint", "verbose", "n_threads", "n_jobs")

_LEAST = 1e-6  # seconds of a part of a budget
_NEXT_TO_NOTHING = 0.01  # share of the time, at which nothing further is begun
# Factor by which other processes slow a fit; seconds that tell it; share of training kept for it.
_MOST_SLOWED, _SECONDS_TO_TELL, _MOST_FURTHER = 4.0, 0.1, 0.5


class Progress:
    """The trainings of a fit, one after the other, and the CheckpointFile they are saved in."""

    def __init__(self, checkpoint: Any):
        self.checkpoint = checkpoint
        self.n_begun = 0  # trainings
        self.is_loading = False
        self.seconds_restored = 0.0  # that the trainings have taken that were restored
        self.trainings: list[dict[str, Any] | None]
        self.random_state: np.random.RandomState | None
        saved = checkpoint.read()
        match {"trainings": [], "random_state": None} if saved is None else saved:
            case {
                "trainings": list(trainings),
                "random_state": (None | np.random.RandomState()) as random_state,
            }:
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

    def next_tasks(self, n_tasks: int) -> list[TaskProgress]:
        """Return what trainings that run side by side, as tasks of their own, go on from."""
        first, self.n_begun = self.n_begun, self.n_begun + n_tasks
        return [TaskProgress(k, self._state_of(k)) for k in range(first, self.n_begun)]

    def saved(self, number: int) -> dict[str, Any] | None:
        state = self._state_of(number)
        self.is_loading = state is not None
        self.seconds_restored += (state or {}).get("seconds", 0.0)
        return state

    def end_epoch(self, number: int, state: Any) -> None:
        """Write what `state` returns of a training, if it is time to."""
        self.is_loading = False
        if self.checkpoint.is_due():
            self._write(self._with(number, state()))

    def end_training(self, number: int, state: dict[str, object]) -> None:
        """Keep the state of a training that has ended, for the next writing."""
        if not self.is_loading:  # else it is that which was restored
            self.trainings = self._with(number, copy.deepcopy(state))
        self.is_loading = False

    def end_task(self, task: TaskProgress) -> None:
        """Write the state of a training that has ended as a task."""
        if task.state is not None:
            self.trainings = self._with(task.number, task.state)
            self._write(self.trainings)

    def _state_of(self, number: int) -> dict[str, Any] | None:
        return self.trainings[number] if number < len(self.trainings) else None

    def _with(self, number: int, state: dict[str, object]) -> list[dict[str, Any] | None]:
        """The trainings with this state of one; None are those that have not been saved."""
        n_missing = max(0, number + 1 - len(self.trainings))
        trainings = [*self.trainings, *[None] * n_missing]
        trainings[number] = state
        return trainings

    def _write(self, trainings: list[dict[str, Any] | None]) -> None:
        self.checkpoint.write({"trainings": trainings, "random_state": self.random_state})


class TaskProgress:
    """The progress of one training that runs as a task, maybe in another process.

    Its `state` at the end is handed to :meth:`Progress.end_task`, which writes it.
    """

    def __init__(self, number: int, state: dict[str, Any] | None):
        self.number = number
        self.state = state
        self.seconds_restored = 0.0

    def next_number(self) -> int:
        return self.number

    def saved(self, number: int) -> dict[str, Any] | None:
        self.seconds_restored += (self.state or {}).get("seconds", 0.0)
        return self.state

    def end_epoch(self, number: int, state: object) -> None:
        """Keep nothing: the process that writes has the whole training at its end."""

    def end_training(self, number: int, state: dict[str, object]) -> None:
        self.state = copy.deepcopy(state)


_ACTIVE: ContextVar[Any] = ContextVar("progress of the outermost fit", default=None)


def current_progress() -> Any:
    """Return the Progress, or TaskProgress, of what is running, if it has a checkpoint."""
    return _ACTIVE.get()


def clock() -> float:
    """Return the time in seconds, from any beginning; what was restored has taken its time too."""
    progress = current_progress()
    return time.monotonic() + (0.0 if progress is None else progress.seconds_restored)


@contextmanager
def progress_is(progress: Progress | TaskProgress | None) -> Iterator[None]:
    """Make `progress` the current one."""
    token = _ACTIVE.set(progress)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def resumable(
    estimator: BaseEstimator, random_state: np.random.RandomState, data: Mapping[str, object]
) -> Iterator[np.random.RandomState]:
    """Let a fit go on from the estimator's checkpoint, and yield the generator to use.

    A teacher's fit within its student's is saved in the student's checkpoint. `data` are what `fit`
    was given, and must be the same when the fit goes on.
    """
    wanted = Checkpoint.of(Runtime.of(estimator.runtime).checkpoint)
    if wanted is None or current_progress() is not None:
        yield random_state
        return
    from .._engine import CheckpointFile
    from .._serialization.digest import digests

    arrays = {k: None if value is None else np.asarray(value) for k, value in data.items()}
    belongs_to = digests(estimator, arrays, NO_MATTER)
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


@dataclass(frozen=True)
class TimeBudget:
    """Seconds that a fit may take, by `max_time`, counted from `begin` by :func:`clock`.

    `after` seconds of them are kept for what follows training, of which `work` are work, which
    takes longer where others use the processor too.
    """

    seconds: float
    after: float = 0.0
    work: float = 0.0
    begin: float = field(default_factory=clock)

    @property
    def left(self) -> float:
        """Seconds that are left for training."""
        return max(0.0, self.seconds - self.after - (clock() - self.begin))

    @property
    def is_spent(self) -> bool:
        return self.left <= _NEXT_TO_NOTHING * self.seconds

    def keeping(self, after: float) -> TimeBudget:
        """Return the budget with so many seconds kept for what follows training."""
        return replace(self, after=after, work=0.0)

    def keeping_for_work(self, seconds: float, most: float) -> TimeBudget:
        """Return the budget with time kept for so many seconds of work, at most a share of all."""
        work = min(seconds, most * self.seconds)
        return replace(self, after=work, work=work)

    def further_for_work(self, share: float) -> Callable[[], float]:
        """Return what tells in a training how much more time to keep for a share of the work.

        A thread that waits for a processor in training waits for it in the work that follows.
        """
        begin, begin_of_work = clock(), time.thread_time()  # the latter of work
        most = _MOST_FURTHER * share * self.left

        def further() -> float:
            passed = clock() - begin
            if passed < _SECONDS_TO_TELL:
                return 0.0
            worked = max(time.thread_time() - begin_of_work, passed / _MOST_SLOWED)
            return min(share * self.work * max(0.0, passed / worked - 1.0), most)

        return further

    def part(self, share: float) -> TimeBudget:
        """Return a budget of this share of the time that is left, which begins now."""
        return TimeBudget(max(self.left * share, _LEAST))

    def of_whole(self, share: float) -> float:
        """Return this share of all the time for training, the same however much is left."""
        return max((self.seconds - self.after) * share, _LEAST)

    def anew(self) -> TimeBudget:
        """Return as many seconds that begin now, on another machine perhaps."""
        return TimeBudget(self.seconds)
