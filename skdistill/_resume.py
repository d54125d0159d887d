# SPDX-License-Identifier: BSD-3-Clause
"""Going on with a fit that was killed.

A fit that goes on runs again from its beginning, with the same seeds. Each of its trainings that
had ended, those of its teacher included, is restored from the checkpoint instead of run. The one
that was interrupted goes on after the last epoch that was saved. So what an estimator does between
trainings needs no saving of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any

import numpy as np

# Parameters that change nothing about a fitted model.
NO_MATTER = ("checkpoint", "checkpoint_every", "verbose", "n_threads")


class Progress:
    """The trainings of a fit, one after the other, and the checkpoint that they are saved in.

    Parameters
    ----------
    checkpoint : Checkpoint
    """

    def __init__(self, checkpoint: Any):
        self.checkpoint = checkpoint
        self.n_begun = 0  # trainings
        self.is_loading = False
        self.trainings: list[dict[str, Any]]
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

    def restored(self, given: Any, drawn_from: np.random.RandomState) -> np.random.RandomState:
        """Return the generator of the fit, as it was when the fit began; `given` may be a seed."""
        if isinstance(given, Integral):
            return drawn_from
        if self.random_state is None:
            self.random_state = copy.deepcopy(drawn_from)
            return drawn_from
        return copy.deepcopy(self.random_state)

    def next_training(self, rows: Any, draws_globally: bool) -> Any:
        """Return the callback that restores and saves the training that is about to begin."""
        from ._engine import SavedTraining

        self.n_begun += 1
        return SavedTraining(self, self.n_begun - 1, rows, draws_globally)

    def saved(self, number: int) -> dict[str, Any] | None:
        """Return the state of a training, if there is one."""
        self.is_loading = number < len(self.trainings)
        return self.trainings[number] if self.is_loading else None

    def end_epoch(self, number: int, state: Any) -> None:
        """Write what `state` returns of a training, if it is time to."""
        self.is_loading = False
        if self.checkpoint.is_due():
            trainings = [*self.trainings[:number], state()]
            self.checkpoint.write({"trainings": trainings, "random_state": self.random_state})

    def end_training(self, number: int, state: dict[str, Any]) -> None:
        """Keep the state of a training that has ended, for the next writing."""
        if not self.is_loading:  # else it is that which was restored, and others may follow it
            self.trainings[number:] = [copy.deepcopy(state)]
        self.is_loading = False


_ACTIVE: ContextVar[Progress | None] = ContextVar("progress of the outermost fit", default=None)


def current_progress() -> Progress | None:
    """Return the progress of the fit that is running, if it has a checkpoint."""
    return _ACTIVE.get()


@contextmanager
def resumable(
    estimator: Any, random_state: np.random.RandomState, data: dict[str, Any]
) -> Iterator[np.random.RandomState]:
    """Let a fit go on from the estimator's checkpoint, and save what it trains there.

    Within the fit of another estimator that has a checkpoint, as a teacher's is within its
    student's, everything is saved in that one's.

    Parameters
    ----------
    estimator : NetEstimator
        Its parameters `checkpoint` and `checkpoint_every` are used.
    random_state : RandomState
        The generator of the fit, of which nothing has been drawn yet.
    data : dict
        What `fit` was given; it must be the same when the fit goes on.

    Yields
    ------
    random_state : RandomState
        The generator to use.
    """
    if estimator.checkpoint is None or current_progress() is not None:
        yield random_state
        return
    from ._engine import Checkpoint
    from ._fingerprint import digests

    arrays = {k: None if value is None else np.asarray(value) for k, value in data.items()}
    belongs_to = digests(estimator, arrays, NO_MATTER)
    with Checkpoint(estimator.checkpoint, estimator.checkpoint_every, belongs_to) as checkpoint:
        progress = Progress(checkpoint)
        token = _ACTIVE.set(progress)
        try:
            yield progress.restored(estimator.random_state, random_state)
        except Exception as error:  # of any kind: a state that does not fit fails anywhere
            if progress.is_loading:
                raise checkpoint.misfit(error) from error
            raise
        finally:
            _ACTIVE.reset(token)
        checkpoint.remove()
