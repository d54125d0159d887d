# SPDX-License-Identifier: BSD-3-Clause
"""A student that is taught while its teacher's chains run (GPED, Algorithm 1).

The chains are trained by the engine's loop, and so is the student: every hundred steps of its own
at most, and at the end of each of the chains' epochs, it trains for one epoch on the minibatches
that the chains' samples have answered since. The student has no influence on the chains, so this
is what alternating single steps would give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._engine import (
    Batch,
    Callback,
    Checkpoint,
    DivergenceGuard,
    Rows,
    StackNet,
    suited_threads,
)
from .._training import draws_globally
from ._gped_estimates import (
    RunningMean,
    Targets,
    pooled_members,
    targets_of,
    variance_columns,
)

# Minibatches that wait for the student, at most: so many, and about so many bytes of their rows.
_N_WAITING = 100
_WAITING_BYTES = 2**25


class DrawnRows(Rows):
    """Rows in whose places new ones are drawn when they are dealt.

    Parameters
    ----------
    X, targets, weight, batch_size, seeds
        As in :class:`Rows`.
    draw : callable or None
        What a transfer maker has prepared; None leaves the rows as they are.
    """

    def __init__(self, X, targets, weight, batch_size, seeds, draw):
        super().__init__(X, targets, weight, batch_size, seeds)
        self.draw = draw
        self.draw_generator = torch.Generator(X.device).manual_seed(seeds[0] + 1)

    def take(self, index: Tensor) -> Batch:
        X, rest = super().take(index)
        return (X if self.draw is None else self.draw(X, index, self.draw_generator)), rest

    def state(self) -> list[Tensor]:
        return [*super().state(), self.draw_generator.get_state()]

    def load_state(self, state: list[Tensor]) -> None:
        super().load_state(state[:-1])
        self.draw_generator.set_state(state[-1])


class Stream:
    """Minibatches of rows without end, pass after pass."""

    def __init__(self, rows: Rows):
        self.rows = rows
        self._begin_pass()

    def _begin_pass(self) -> None:
        self.at_begin = self.rows.state()
        self.n_dealt = 0
        self.batches: Iterator[Batch] = iter(self.rows)

    def __next__(self) -> Batch:
        batch = next(self.batches, None)
        if batch is None:
            self._begin_pass()
            batch = next(self.batches)
        self.n_dealt += 1
        return batch

    def state(self) -> dict[str, Any]:
        """Return where in which pass it is."""
        return {"at_begin": self.at_begin, "n_dealt": self.n_dealt}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.rows.load_state(state["at_begin"])
        self._begin_pass()
        for _ in range(state["n_dealt"]):
            next(self)


class Waiting:
    """Minibatches that wait for the student; iterating is one epoch of its training."""

    def __init__(self, limit: int):
        self.limit = limit
        self.batches: list[Batch] = []

    def __len__(self) -> int:
        return sum(X.shape[1] for X, _ in self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    @property
    def is_full(self) -> bool:
        return len(self.batches) >= self.limit


def n_waiting(rows: Rows) -> int:
    """Return how many minibatches of rows may wait."""
    return max(1, min(_N_WAITING, _WAITING_BYTES // (rows.batch_size * rows.X[:1].nbytes)))


def n_epochs(due: np.ndarray, epoch_length: int, limit: int) -> int:
    """Return how many epochs the student trains for, beside chains with epochs of that length."""
    n_steps = np.bincount(due // epoch_length)
    return int((-(-n_steps // limit)).sum())


class Monitor:
    """Running expectations of the teacher on rows of interest.

    Parameters
    ----------
    rows : Tensor of shape (n_monitor, ...)
    batch_size : int
        How many of them to ask about at a time.
    expectations : sequence of Expectation
    n_values : list of int
        How many values each g gives.
    """

    def __init__(self, rows: Tensor, batch_size: int, expectations, n_values: list[int]):
        self.expectations = expectations
        self.n_values = n_values
        variances = variance_columns(expectations, n_values)
        self.running = RunningMean(len(rows), sum(n_values), rows.device, math.inf, variances)
        index = torch.arange(len(rows), device=rows.device)
        self.chunks = list(zip(index.split(batch_size), rows.split(batch_size), strict=True))

    def update(self, answer: Callable[[Tensor], Any]) -> None:
        """Add the members that `answer` gives for rows (1, m, ...)."""
        for index, rows in self.chunks:
            members = answer(rows.unsqueeze(0))
            self.running.update(index, *pooled_members(self.expectations, members))

    def values(self) -> Tensor:
        """Return what a student should say about the rows, (n_monitor, n_outputs)."""
        return targets_of(self.expectations, self.n_values, self.running.means())


class StudentStopped(Exception):
    """The student has diverged, or Ctrl-C was pressed while it was taught."""


class OnlineDistillation(Callback):
    """Callback of the net that runs the chains, which teaches another net, the student.

    Parameters
    ----------
    student : StackNet
        Initialised, with a :class:`DivergenceGuard` as its callback "guard".
    stream : Stream
        Minibatches of the transfer set D', whose only target is the place of each row in it.
    targets : Targets
    members_of : callable
        Takes the chains' module and its outputs (S, m, p) to members.
    due : ndarray of int
        Iterations of the chains, counted from 0, after whose update the student takes a step.
    n_threads : int or "auto"
        Threads of torch for the student, see :func:`suited_threads`.

    Attributes
    ----------
    monitor : Monitor or None
        May be set; it is shown the chains' samples whenever the student has been taught by them.
    checkpoint : Checkpoint or None
        May be set; the state of both nets is written to it, and read from it when they begin.
    is_loading : bool
        Whether a state that was read is being loaded, until the chains' first epoch.
    """

    def __init__(
        self,
        student: StackNet,
        stream: Stream,
        targets: Targets,
        members_of: Callable[[Any, Tensor], Any],
        due: np.ndarray,
        n_threads: int | str,
    ):
        self.student = student
        self.guard: DivergenceGuard = dict(student.callbacks_)["guard"]
        self.stream = stream
        self.targets = targets
        self.members_of = members_of
        self.due = due
        self.n_threads = n_threads
        self.monitor: Monitor | None = None
        self.checkpoint: Checkpoint | None = None
        self.is_loading = False

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.chain_rows = X
        self.is_due = frozenset(self.due.tolist())
        self.waiting = Waiting(n_waiting(self.stream.rows))
        saved = None if self.checkpoint is None else self.checkpoint.read()
        if saved is not None:
            self.is_loading = True
            self._load_state(net, saved)

    def on_epoch_begin(self, net, **kwargs):
        self.is_loading = False

    def after_step(self, net: StackNet, iteration: int) -> None:
        """Predict a minibatch by the chains' samples if they are due, and train the student."""
        if iteration in self.is_due:
            self._predict_next_batch(net)
        if self.waiting.is_full:
            self._train_student(net)

    def _predict_next_batch(self, net: StackNet) -> None:
        """Predict the next minibatch of D' by the chains' last samples (lines 7 to 11)."""
        X, ((index,), weight) = next(self.stream)
        outputs = net.outputs_now(X)
        if not outputs.isfinite().all():
            return  # a chain has diverged, as its guard will say when the epoch ends
        targets = self.targets.update(self.members_of(net.module_, outputs), index.squeeze(0))
        self.waiting.batches.append((X, ((targets.unsqueeze(0),), weight)))

    def _train_student(self, net: StackNet) -> None:
        """Train the student on the minibatches that wait (line 12)."""
        with suited_threads(self.student.flop_per_step, self.n_threads):
            self.student.fit_loop(self.waiting, epochs=1)
        self.waiting.batches.clear()
        if self.student.interrupted_ or self.guard.diverged_.any():
            raise StudentStopped  # no KeyboardInterrupt, which would end the chains quietly
        if self.monitor is not None:
            self.monitor.update(lambda rows: self.members_of(net.module_, net.outputs_now(rows)))

    def on_epoch_end(self, net, **kwargs):
        if self.waiting.batches:
            self._train_student(net)
        is_last = len(net.history) == net.max_epochs  # then the chains' last states are kept
        if self.checkpoint is not None and self.checkpoint.is_due and not is_last:
            self.checkpoint.write(self._state(net))

    def _state(self, net: StackNet) -> dict[str, Any]:
        """All that both nets go on from, between two epochs of the chains."""
        return {
            "chains": net.state(),
            "chain_rows": self.chain_rows.state(),
            "iteration": net.after_step.iteration,  # the chains' own count
            "student": self.student.state(),
            "stream": self.stream.state(),
            "targets": self.targets.state(),
            "monitor": None if self.monitor is None else self.monitor.running.state(),
            "random": torch.get_rng_state() if self._draws(net) else None,
        }

    def _load_state(self, net: StackNet, saved: dict[str, Any]) -> None:
        net.state_to_load_ = saved["chains"]
        self.chain_rows.load_state(saved["chain_rows"])
        net.after_step.iteration = saved["iteration"]
        self.student.load_state(saved["student"])
        self.stream.load_state(saved["stream"])
        self.targets.load_state(saved["targets"])
        if self.monitor is not None:
            self.monitor.running.load_state(saved["monitor"])
        if self._draws(net):
            torch.set_rng_state(saved["random"])

    def _draws(self, net: StackNet) -> bool:
        """Whether one of the two draws from torch's global generator, which has a seed then."""
        return draws_globally(net.module_) or draws_globally(self.student.module_)
