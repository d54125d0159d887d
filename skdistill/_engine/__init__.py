# SPDX-License-Identifier: BSD-3-Clause
"""The one training loop: a stack of networks inside one skorch net.

skorch gives the shell (history, callbacks, schedulers, optimiser settings). Within an epoch the net
runs a loop of its own over slices of tensors, unless a callback listens to batches. The loss is the
sum over members of each member's mean over samples, so that members do not influence each other:
training a stack gives what training its members one by one would give.

This package alone imports skorch, which takes most of a second. Predicting does not need it, so
estimators import the package inside the functions that train.
"""

from __future__ import annotations

from skorch.callbacks import Callback, LRScheduler
from skorch.history import History

from ._answers import AnswersOnFile
from ._callbacks import (
    ContinuedTraining,
    DivergenceGuard,
    MemberEarlyStopping,
    SavedTraining,
    StopTraining,
    StopWhen,
    TaskPerEpoch,
    TimeLimit,
)
from ._checkpoint import CheckpointFile
from ._net import StackNet
from ._rows import Batch, DistillationRows, Rows, StreamedRows, drawn_rows
