# SPDX-License-Identifier: BSD-3-Clause
"""Training within a limit of time, and the estimate of how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from skorch.callbacks import Callback
from torch import Tensor

from .._utils.messages import duration, print_line
from ._callbacks import StopTraining
from ._rows import Batch

# So long steps are timed before the estimate is printed, and a shorter training has none.
_SECONDS_TIMED, _WORTH_TELLING = 0.5, 2.0


@dataclass(eq=False, repr=False)
class TimeLimit(Callback):
    """End a training when its time is up, with its schedules at their ends.

    The time runs from when this object is made, so that what a net needs to begin counts. `further`
    returns how many of the seconds are to be kept for what follows.

    How far training is, from 0 to 1, is the share of its epochs that have ended, or of its time if
    that is more. If it anneals, the learning rate follows half a cosine of it, and the weights of a
    loss that change over the epochs are those of the epoch that it stands for. The last epoch may
    be one of a part of the minibatches; at least one is trained on. If time is up in the first,
    training `is_short_`.
    """

    seconds: float
    clock: Callable[[], float]
    anneals: bool
    further: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        self.begin = self.clock()

    @property
    def left(self) -> float:
        """Seconds until the time is up."""
        kept = 0.0 if self.further is None else self.further()
        return max(0.0, self.seconds - kept - (self.clock() - self.begin))

    def on_train_begin(self, net, **kwargs):
        self.is_short_ = False
        self.rates_ = [float(group["lr"]) for group in net.optimizer_.param_groups]

    def batches(self, net: Any, rows: Iterable[Batch]) -> Iterator[Batch]:
        """Give the minibatches of an epoch, until the time is up, with all schedules set."""
        objective, n_epochs, n_ended = net.criterion_, net.max_epochs, len(net.history) - 1
        epoch = n_ended
        for number, batch in enumerate(rows):
            left = self.left
            if number and not left:
                self.is_short_ = n_ended == 0
                return
            is_first = not (n_ended or number)  # it has the first learning rate in any case
            share = 0.0 if is_first else 1.0 - (left / self.seconds if left else 0.0)
            self._set_rates(net, max(n_ended / n_epochs, share))
            if (now := min(int(share * n_epochs), n_epochs - 1)) > epoch:
                epoch = now
                objective.begin_epoch(objective.first_epoch + epoch)
            yield batch

    def _set_rates(self, net: Any, progress: float) -> None:
        """Set the learning rate, of which a CUDA graph reads a tensor."""
        if not self.anneals:
            return
        factor = 0.5 * (1.0 + math.cos(math.pi * progress))
        for group, rate in zip(net.optimizer_.param_groups, self.rates_, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(factor * rate)
            else:
                group["lr"] = factor * rate

    def on_epoch_end(self, net, **kwargs):
        if self.anneals:
            net.history.record("event_lr", float(net.optimizer_.param_groups[0]["lr"]))
        if not self.left:
            raise StopTraining


class DurationEstimate:
    """Print how long a training will take, once its first steps have been timed.

    The first step is not among them, as it prepares what the others use.
    """

    def __init__(self):
        self.n_timed, self.seconds, self.is_told = -1, 0.0, False

    def batches(self, net: Any, rows: Any) -> Iterator[Batch]:
        """Give the minibatches of an epoch, and time the steps in between."""
        begin = time.monotonic()
        for batch in rows:
            yield batch
            now = time.monotonic()
            self.n_timed += 1
            self.seconds += now - begin if self.n_timed else 0.0
            begin = now
            if self.seconds >= _SECONDS_TIMED and not self.is_told:
                self._tell(net, -(-len(rows) // rows.batch_size))

    def _tell(self, net: Any, n_steps_of_epoch: int) -> None:
        self.is_told = True
        n_steps = n_steps_of_epoch * (net.max_epochs + net.n_epochs_later)
        seconds = self.seconds / self.n_timed * n_steps
        if seconds < _WORTH_TELLING:
            return
        further = ", with what is trained after it" if net.n_epochs_later else ""
        line = f"{net.phase}: {net.max_epochs} epochs take about {duration(seconds)}{further}"
        if net.time_limit is not None:
            line += f"; max_time leaves {duration(net.seconds_allowed)}"
        print_line(line)
