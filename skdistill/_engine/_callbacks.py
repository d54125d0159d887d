# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks of the training loop, and the time that it takes."""

from __future__ import annotations

import dis
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from skorch.callbacks import Callback, PrintLog
from torch import Tensor

from .._utils.reporting import print_line
from ..modules import member_state
from ._rows import Batch

# Losses above that of a constant prediction c, in units of 1 + |c|.
_WORSE = 0.5  # beyond it a member is worse than a constant prediction
_EXPLOSION = 1e3  # beyond it a member has exploded

# Escape sequences by which skorch colours what it prints.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_EPOCHS_TO_RECOVER = 10  # epochs in a row that a member may be exploded without a new lowest loss


class StopTraining(KeyboardInterrupt):
    """A callback asks to end training, as skorch's callbacks do by a KeyboardInterrupt."""


def asks_to_stop(error: KeyboardInterrupt) -> bool:
    """Tell whether a callback's ``raise KeyboardInterrupt`` ends training, and not Ctrl-C.

    Ctrl-C never arrives at a raise: Python handles signals between instructions or within a call.
    """
    if isinstance(error, StopTraining):
        return True
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    instruction = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    in_a_callback = isinstance(trace.tb_frame.f_locals.get("self"), Callback)
    return in_a_callback and instruction == dis.opmap["RAISE_VARARGS"]


class EpochLog(PrintLog):
    """skorch's table of epochs, for ``verbose=2``."""

    def on_epoch_end(self, net, **kwargs):
        if net.verbose > 1:
            super().on_epoch_end(net, **kwargs)


def print_row(text: str) -> None:
    """Print a row of the table, without skorch's colours where the output is no terminal."""
    print_line(text if sys.stdout.isatty() else _COLOURS.sub("", text))


class _WithState(Callback):
    """A callback that training goes on from, whose state is some of its attributes."""

    _STATE: ClassVar[tuple[str, ...]]

    def state_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self._STATE}

    def load_state_dict(self, state: dict[str, object]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name])


@dataclass(eq=False, repr=False)
class MemberEarlyStopping(_WithState):
    """Keep each member's best weights, and end training when no member improves any more.

    A member stops after `patience` epochs in a row without a validation loss lower by `tol`.
    """

    _STATE = ("best_loss_", "best_epoch_", "stopped_", "best_")

    patience: int
    tol: float

    def on_train_begin(self, net, **kwargs):
        self.best_loss_ = torch.full((net.n_members,), math.inf)
        self.best_epoch_ = torch.zeros(net.n_members, dtype=torch.long)
        self.stopped_ = torch.zeros(net.n_members, dtype=torch.bool)
        self.best_ = {name: value.clone() for name, value in member_state(net.module_).items()}

    def on_epoch_end(self, net, **kwargs):
        epoch = len(net.history)
        loss = net.member_losses_["valid"].cpu()
        improved = (loss < self.best_loss_ - self.tol) & ~self.stopped_
        self.best_loss_ = torch.where(improved, loss, self.best_loss_)
        self.best_epoch_[improved] = epoch
        for name, value in member_state(net.module_).items():
            where = improved.to(value.device)
            self.best_[name][where] = value[where]
        self.stopped_ |= epoch - self.best_epoch_ >= self.patience
        if self.stopped_.all():
            raise StopTraining

    def on_train_end(self, net, **kwargs):
        net.module_.load_state_dict(self.best_, strict=False)


@dataclass(eq=False, repr=False)
class DivergenceGuard(_WithState):
    r"""Find the members that have diverged, and those that are worse than a constant prediction.

    The yardstick is c, the loss of outputs of zero in the first epoch. A loss more than
    1,000 (1 + \|c\|) above c has exploded. A member has diverged if its loss is not finite, if it
    has exploded for ten epochs in a row without a new lowest value, or in the end, or if its last
    weights are not finite. It is worse than a constant if its last loss is more than
    (1 + \|c\|) / 2 above c. Members that `stopping`, a callback before this, has stopped are judged
    by their best epoch. Training ends when all (torch.all, or any) members have diverged.
    """

    _STATE = ("diverged_", "constant_", "last_", "lowest_", "n_exploded_")

    stopping: MemberEarlyStopping | None = None
    ends_with: Callable[[Tensor], Tensor] = torch.all

    def on_train_begin(self, net, **kwargs):
        self.diverged_ = torch.zeros(net.n_members, dtype=torch.bool)
        self.worse_ = torch.zeros_like(self.diverged_)
        self.constant_: Any = None
        self.last_ = torch.full((net.n_members,), math.inf)
        self.lowest_ = self.last_
        self.n_exploded_ = torch.zeros(net.n_members, dtype=torch.long)

    def on_epoch_end(self, net, **kwargs):
        loss = net.member_losses_["train"].cpu()
        if self.constant_ is None:
            self.constant_ = net.constant_losses_.cpu()
        is_stuck = self._is_above(_EXPLOSION, loss) & ~(loss < self.lowest_)
        self.n_exploded_ = torch.where(is_stuck, self.n_exploded_ + 1, 0)
        self.lowest_ = torch.fmin(self.lowest_, loss)
        diverged = ~loss.isfinite() | (self.n_exploded_ >= _EPOCHS_TO_RECOVER)
        is_kept = torch.ones_like(diverged)
        if self.stopping is not None:
            diverged &= ~self.stopping.stopped_
            is_kept = self.stopping.best_epoch_ == len(net.history)
        self.last_ = torch.where(is_kept, loss, self.last_)
        self.diverged_ |= diverged
        if self.ends_with(self.diverged_):
            raise StopTraining

    def _is_above(self, factor: float, loss: Tensor) -> Tensor:
        """Whether losses are more than `factor` times 1 + |c| above c."""
        return loss > self.constant_ + factor * (1.0 + self.constant_.abs())

    def on_train_end(self, net, **kwargs):
        for parameter in net.module_.parameters():
            is_finite = parameter.detach().isfinite().reshape(net.n_members, -1).all(1)
            self.diverged_ |= ~is_finite.cpu()
        if self.constant_ is not None:  # at least one epoch has ended
            self.diverged_ |= self._is_above(_EXPLOSION, self.last_)
            self.worse_ = self._is_above(_WORSE, self.last_) & ~self.diverged_


@dataclass(eq=False, repr=False)
class TimeLimit(Callback):
    """End a training when its time is up, with its schedules at their ends.

    `budget` is a :class:`skdistill._training.trainer.TimeBudget`. Progress is the share of the
    epochs that have ended, or of the time if that is more: the learning rate, if it anneals,
    follows half a cosine of it, and so do weights of a loss that change over the epochs. If time is
    up in the first epoch, training `is_short_`.
    """

    budget: Any
    anneals: bool

    def on_train_begin(self, net, **kwargs):
        self.is_short_ = False
        self.rates_ = [float(group["lr"]) for group in net.optimizer_.param_groups]

    def batches(self, net: Any, rows: Iterable[Batch]) -> Iterator[Batch]:
        """Give the minibatches of an epoch, until the time is up, with all schedules set."""
        objective, n_epochs, n_ended = net.criterion_, net.max_epochs, len(net.history) - 1
        epoch = n_ended
        for number, batch in enumerate(rows):
            left = self.budget.left
            if number and not left:
                self.is_short_ = n_ended == 0
                return
            is_first = not (n_ended or number)  # it has the first learning rate in any case
            share = 0.0 if is_first else 1.0 - (left / self.budget.seconds if left else 0.0)
            if self.anneals:
                progress = max(n_ended / n_epochs, share)
                factor = 0.5 * (1.0 + math.cos(math.pi * progress))
                for group, rate in zip(net.optimizer_.param_groups, self.rates_, strict=True):
                    if isinstance(group["lr"], Tensor):  # which a CUDA graph reads
                        group["lr"].fill_(factor * rate)
                    else:
                        group["lr"] = factor * rate
            if (now := min(int(share * n_epochs), n_epochs - 1)) > epoch:
                epoch = now
                objective.begin_epoch(objective.first_epoch + epoch)
            yield batch

    def on_epoch_end(self, net, **kwargs):
        if self.anneals:
            net.history.record("event_lr", float(net.optimizer_.param_groups[0]["lr"]))
        if not self.budget.left:
            raise StopTraining


@dataclass(eq=False, repr=False)
class TaskPerEpoch(Callback):
    """Report every epoch to scikit-learn's callbacks as one task, a subtask of `context`.

    `given` has X, y and metadata of `fit`, as keywords of the hooks. `attributes` takes the net to
    the fitted attributes of an estimator, for callbacks that ask for one (``ScoringMonitor``).
    """

    context: Any
    estimator: Any
    given: dict[str, Any]
    attributes: Callable[[Any], dict[str, Any]] | None = None

    def on_epoch_begin(self, net, **kwargs):
        self.task_ = self.context.subcontext(task_name="epoch")
        self.task_.call_on_fit_task_begin(estimator=self.estimator, **self.given)

    def on_epoch_end(self, net, **kwargs):
        fitted = None if self.attributes is None or net is None else partial(self.attributes, net)
        if self.task_.call_on_fit_task_end(
            estimator=self.estimator, **self.given, reconstruction_attributes=fitted
        ):
            raise StopTraining


@dataclass(eq=False, repr=False)
class StopWhen(Callback):
    """End training after the epoch in which another thread has set an event."""

    event: threading.Event

    def on_epoch_end(self, net, **kwargs):
        if self.event.is_set():
            raise StopTraining


@dataclass(eq=False, repr=False)
class SavedTraining(Callback):
    """Restore a training from a checkpoint, and save it there; comes after all other callbacks."""

    progress: Any  # of the fit, a skdistill._training.trainer.Progress
    number: int  # of trainings that come before this one
    rows: Any
    draws_globally: bool

    def on_train_begin(self, net, **kwargs):
        saved = self.progress.saved(self.number)
        if saved is None:
            return
        net.go_on_from(saved["net"])
        self.rows.load_state(saved["rows"])
        if self.draws_globally:
            torch.set_rng_state(saved["random"])

    def on_epoch_end(self, net, **kwargs):
        self.progress.end_epoch(self.number, lambda: self._state(net))

    def on_train_end(self, net, **kwargs):
        if not net.interrupted_:
            self.progress.end_training(self.number, self._state(net, has_ended=True))

    def _state(self, net, has_ended: bool = False) -> dict[str, object]:
        return {
            "net": net.state() | {"has_ended": has_ended or net.asked_to_stop_},
            "rows": self.rows.state(),
            "random": torch.get_rng_state() if self.draws_globally else None,
        }


@dataclass(eq=False, repr=False)
class ContinuedTraining(Callback):
    """Begin a training in the state in which another ended, and note the one in which it ends.

    From `before`, the `state_` of the other training, go on the optimizer's moments, if it is of
    the same class, and the generators, if there are as many.
    """

    rows: Any
    draws_globally: bool
    before: dict[str, Any] | None = None

    def on_train_begin(self, net, **kwargs):
        if self.before is None:
            return
        found = _changed(self.before, np.ndarray, torch.tensor)  # copies
        if found["optimizer"] == _class_name(net.optimizer_):
            settings = net.optimizer_.state_dict()["param_groups"]
            net.optimizer_.load_state_dict({"state": found["moments"], "param_groups": settings})
            net.optimizer_.step()  # without gradients: only tells schedules that there was a step
        states = found["rows"], self.rows.state()
        if [state.shape for state in states[0]] == [state.shape for state in states[1]]:
            self.rows.load_state(found["rows"])
        if self.draws_globally:
            torch.set_rng_state(found["random"])

    def on_train_end(self, net, **kwargs):
        state = {
            "optimizer": _class_name(net.optimizer_),
            "moments": net.optimizer_.state_dict()["state"],
            "rows": self.rows.state(),
            "random": torch.get_rng_state() if self.draws_globally else None,
        }
        self.state_ = _changed(state, Tensor, lambda tensor: tensor.cpu().numpy().copy())


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _changed(value: object, kind: type, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to all values of a kind in dicts, lists and tuples; tuples become lists."""
    if isinstance(value, dict):
        return {key: _changed(item, kind, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_changed(item, kind, change) for item in value]
    return change(value) if isinstance(value, kind) else value
