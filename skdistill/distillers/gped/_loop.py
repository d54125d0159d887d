# SPDX-License-Identifier: BSD-3-Clause
"""A student that is trained while its teacher's chains run (GPED, Algorithm 1).

Both are trained by the engine's loop. The chains' samples predict minibatches of the transfer set;
after at most a hundred of them, and at the end of each of the chains' epochs, the student trains
for one epoch on those it has not seen yet. It has no influence on the chains, so the result is the
same as with alternating single steps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._engine import Batch, Callback, CheckpointFile, DivergenceGuard, Rows, StackNet
from ..._training.trainer import draws_globally, suited_threads
from ...ensembles import RunningRHat, SamplerDiagnostics, diagnosed_rows
from ._estimates import RunningMean, Targets, pooled_members, targets_of

# Limits of the minibatches that are buffered for the student: their number, and about the bytes
# of their rows.
_N_BUFFERED = 100
_BUFFER_BYTES = 2**25

# Epochs of the chains are taken together until they have about so many iterations: to begin and end
# an epoch of the student costs as much as some of its steps.
_ITERATIONS_TOGETHER = 20

# In a long epoch of the chains, each hundredth of their samples counts for R-hat and `X_monitor`.
_NOTED_EVERY = 100


class Stream:
    """Minibatches of rows without end, pass after pass."""

    def __init__(self, rows: Rows):
        self.rows = rows
        self.n_batches = -(-len(rows) // rows.batch_size)
        self._begin_pass()

    def _begin_pass(self) -> None:
        self.at_begin = self.rows.state()
        self.n_taken = 0
        self.batches: Iterator[Batch] = iter(self.rows)

    def __next__(self) -> Batch:
        batch = next(self.batches, None)
        if batch is None:
            self._begin_pass()
            batch = next(self.batches)
        self.n_taken += 1
        return batch

    def take(self, n: int) -> Iterator[Batch]:
        """Yield the next `n` minibatches, but fewer at the end of a pass: no row comes twice."""
        yield next(self)
        for _ in range(min(n - 1, self.n_batches - self.n_taken)):
            yield next(self)

    def state(self) -> dict[str, object]:
        """Return where in which pass it is."""
        return {"at_begin": self.at_begin, "n_taken": self.n_taken}

    def load_state(self, state: dict[str, Any]) -> None:
        self.rows.load_state(state["at_begin"])
        self._begin_pass()
        for _ in range(state["n_taken"]):
            next(self)


class Buffer:
    """Minibatches that the student has not seen yet; iterating is one epoch of its training."""

    def __init__(self, limit: int):
        self.limit = limit
        self.batches: list[Batch] = []

    def __len__(self) -> int:
        return sum(X.shape[1] for X, _ in self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    def add(self, inputs: Tensor, targets: Tensor, weight: Tensor | None) -> None:
        """Keep a minibatch; inputs and weight are copied, as the next minibatch overwrites them."""
        kept = None if weight is None else weight.clone()
        self.batches.append((inputs.clone(), ((targets,), kept)))

    @property
    def is_full(self) -> bool:
        return len(self.batches) >= self.limit


def buffer_size(rows: Rows) -> int:
    """Return how many minibatches of these rows are buffered at most."""
    return max(1, min(_N_BUFFERED, _BUFFER_BYTES // (rows.batch_size * rows.X[:1].nbytes)))


def epochs_together(epoch_length: int) -> int:
    """Return after how many epochs of the chains, of that length, the student is trained."""
    return max(1, _ITERATIONS_TOGETHER // epoch_length)


def n_epochs(due: np.ndarray, epoch_length: int, limit: int) -> int:
    """Return how many epochs the student trains for, beside chains with epochs of that length."""
    n_steps = np.bincount(due // (epoch_length * epochs_together(epoch_length)))
    return int((-(-n_steps // limit)).sum())


def noted_iterations(due: np.ndarray, epoch_length: int) -> np.ndarray:
    """Return the last iteration of each of the chains' epochs that is due, and some before it."""
    epoch = due // epoch_length
    is_last = np.append(np.diff(epoch) > 0, True)
    number_in_epoch = np.arange(1, len(due) + 1) - np.searchsorted(epoch, epoch)
    return due[is_last | (number_in_epoch % _NOTED_EVERY == 0)]


class Monitor:
    """Running expectations of the teacher on the rows (n_monitor, ...) of `X_monitor`.

    `n_values` are the numbers of values of the expectations.
    """

    def __init__(self, rows: Tensor, batch_size: int, expectations, n_values: list[int]):
        self.expectations = expectations
        self.n_values = n_values
        self.running = RunningMean.of(expectations, n_values, len(rows), rows.device, math.inf)
        index = torch.arange(len(rows), device=rows.device)
        self.chunks = list(zip(index.split(batch_size), rows.split(batch_size), strict=True))

    def update(self, predict: Callable[[Tensor], Any]) -> None:
        """Add the members' predictions; `predict` takes rows (1, m, ...)."""
        for index, rows in self.chunks:
            members = predict(rows.unsqueeze(0))
            self.running.update(index, *pooled_members(self.expectations, members))

    def values(self) -> Tensor:
        """Return the targets of a student for the rows, (n_monitor, n_outputs)."""
        return targets_of(self.expectations, self.n_values, self.running.means())


def _numbers(members: Tensor | tuple[Tensor, ...]) -> np.ndarray:
    """What members predict, their probabilities or means and variances, (S, n, n_values)."""
    values = members if isinstance(members, Tensor) else torch.cat(members, dim=-1)
    return values.cpu().numpy()


class StudentStopped(Exception):
    """The student has diverged, or Ctrl-C was pressed while it was trained."""


@dataclass(eq=False, repr=False)
class OnlineDistillation(Callback):
    """Callback of the net that runs the chains, which trains another net, the student."""

    student: StackNet  # initialised, with a DivergenceGuard as its callback "guard"
    stream: Stream  # of the transfer set D', whose only target is the place of each row in it
    targets: Targets
    members_of: Callable[[Any, Tensor], Any]  # of the chains' module and its outputs (S, m, p)
    due: np.ndarray  # iterations of the chains, from 0, after which the student takes a step
    epoch_length: int  # iterations of an epoch of the chains
    n_asked: int  # minibatches that the chains predict for each step of the student
    n_threads: int | str  # of torch for the student, see `suited_threads`
    monitor: Monitor | None = None  # updated with the samples that `noted_iterations` names
    checkpoint: CheckpointFile | None = None  # of the state of both nets

    def __post_init__(self) -> None:
        self.guard: DivergenceGuard = dict(self.student.callbacks_)["guard"]
        self.noted = noted_iterations(self.due, self.epoch_length)
        self.n_together = epochs_together(self.epoch_length)
        self.is_loading = False  # whether a state was read that has not been trained on yet

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.chain_rows = X
        self.is_due = frozenset(self.due.tolist())
        self.diagnosed = net.module_.encode(diagnosed_rows(X.X)).unsqueeze(0)
        self.is_noted = frozenset(self.noted.tolist())
        self.r_hat = RunningRHat(len(self.noted))
        self.buffer = Buffer(buffer_size(self.stream.rows))
        saved = None if self.checkpoint is None else self.checkpoint.read()
        if saved is not None:
            self.is_loading = True
            self._load_state(net, saved)

    def after_step(self, net: StackNet, iteration: int) -> None:
        """Predict a minibatch by the chains' samples if they are due, and train the student."""
        if iteration in self.is_due:
            self._predict_next_batch(net)
        if iteration in self.is_noted:
            self._note(net)
        if self.buffer.is_full:
            self._train_student()

    def _predict_next_batch(self, net: StackNet) -> None:
        """Predict the next minibatches of D' by the chains' last samples (lines 7 to 11).

        The student learns from the first of them; of the others the running means are updated.
        """
        for k, (X, ((index,), weight)) in enumerate(self.stream.take(self.n_asked)):
            outputs = net.steps_.outputs(net.module_.encode(X))
            if not outputs.isfinite().all():
                return  # a chain has diverged; its guard ends training after the epoch
            targets = self.targets.update(self.members_of(net.module_, outputs), index.squeeze(0))
            if k == 0:
                inputs = self.student.module_.encode(X)
                self.buffer.add(inputs, targets.unsqueeze(0), weight)

    def _note(self, net: StackNet) -> None:
        """Add what the chains' samples predict for X and `X_monitor`."""
        self.r_hat.update(_numbers(self._members(net, self.diagnosed)))
        if self.monitor is not None:
            self.monitor.update(lambda rows: self._members(net, net.module_.encode(rows)))

    def _train_student(self) -> None:
        """Train the student on the minibatches in the buffer (line 12)."""
        with suited_threads(self.student.flop_per_step, self.n_threads):
            self.student.fit_loop(self.buffer, epochs=1)
        self.buffer.batches.clear()
        if self.student.interrupted_ or self.guard.diverged_.any():
            raise StudentStopped  # no KeyboardInterrupt, which would end the chains quietly

    def _members(self, net: StackNet, inputs: Tensor) -> Any:
        """What the chains' last samples predict for encoded rows (1, m, ...)."""
        return self.members_of(net.module_, net.steps_.outputs(inputs))

    def diagnostics(self) -> SamplerDiagnostics:
        """Return the chains' R-hat, by a sample of each of their epochs, or several."""
        return self.r_hat.diagnostics()

    def on_epoch_end(self, net, **kwargs):
        is_last = len(net.history) == net.max_epochs  # then the chains' last states are kept
        if len(net.history) % self.n_together and not is_last:
            return
        if self.buffer.batches:
            self._train_student()
        self.is_loading = False
        if self.checkpoint is not None and self.checkpoint.is_due() and not is_last:
            self.checkpoint.write(self._state(net))

    def _state(self, net: StackNet) -> dict[str, object]:
        """The state of both nets between two epochs of the chains."""
        return {
            "chains": net.state(),
            "chain_rows": self.chain_rows.state(),
            "student": self.student.state(),
            "stream": self.stream.state(),
            "targets": self.targets.state(),
            "r_hat": self.r_hat.state(),
            "monitor": None if self.monitor is None else self.monitor.running.state(),
            "random": torch.get_rng_state() if self._draws(net) else None,
        }

    def _load_state(self, net: StackNet, saved: dict[str, Any]) -> None:
        net.go_on_from(saved["chains"])
        self.chain_rows.load_state(saved["chain_rows"])
        self.student.load_state(saved["student"])
        self.stream.load_state(saved["stream"])
        self.targets.load_state(saved["targets"])
        self.r_hat.load_state(saved["r_hat"])
        if self.monitor is not None:
            self.monitor.running.load_state(saved["monitor"])
        if self._draws(net):
            torch.set_rng_state(saved["random"])

    def _draws(self, net: StackNet) -> bool:
        """Whether a net draws from torch's global generator, which has a seed then."""
        return draws_globally(net.module_) or draws_globally(self.student.module_)
