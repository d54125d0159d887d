# SPDX-License-Identifier: BSD-3-Clause
"""A few settings, tried by the first members of an ensemble, for the parameter `tune`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..modules import MLP
from ._out_of_bag import OutOfBag
from ._training import EnsembleTrainer, EveryMemberDiverged, Job

# So many members try each setting, and those of the best one stay: with 5 settings, 20 members take
# twice the time of an ensemble that is not tuned.
_N_TRIED = 5

# By what a parameter is multiplied, or replaced with, one at a time beside the settings given.
_FACTORS: dict[str, tuple[float, ...]] = {"prior_scale": (0.5, 2.0)}


class Trial(NamedTuple):
    """A setting that was tried.

    Parameters
    ----------
    params : dict
        Parameters of the estimator that differ from those given.
    loss : float
        Negative log-likelihood, in nats, of the rows that the members have left out, on the scale
        of training; infinite if all members diverged.
    """

    params: dict[str, Any]
    loss: float


def settings_to_try(ensemble: Any) -> Iterator[dict[str, Any]]:
    """Parameters to replace in turn; first none."""
    yield {}
    for name, factors in _FACTORS.items():
        value = getattr(ensemble, name)
        yield from ({name: value * factor} for factor in factors if np.isfinite(value))
    if ensemble.module is MLP:
        yield {"module__activation": "silu"}


def best_of_trials(
    first: EnsembleTrainer,
    job_with: Callable[[dict[str, Any]], Job],
    random_state: np.random.RandomState,
) -> tuple[EnsembleTrainer, list[Trial]]:
    """Train the first few members by each setting, from the same seeds, and return the best.

    Parameters
    ----------
    first : EnsembleTrainer
        Trains by the settings given.
    job_with : callable
        Returns the job with other settings.
    random_state : RandomState
        As ``train_all`` of the trainer returned is to get it; it stays as it is.

    Returns
    -------
    best : EnsembleTrainer
        With the members that it has trained.
    trials : list of Trial
    """
    best, trials = first, []
    for params in settings_to_try(first.job.ensemble):
        trainer = EnsembleTrainer(job_with(params)) if params else first
        loss = _loss_of(trainer, copy.deepcopy(random_state))
        if loss < min((trial.loss for trial in trials), default=np.inf):
            best = trainer
        trials.append(Trial(params, loss))
    return best, trials


def _loss_of(trainer: EnsembleTrainer, random_state: np.random.RandomState) -> float:
    """Train a few members, and judge them on the rows that they have left out."""
    n_members = min(_N_TRIED, trainer.job.ensemble.n_members)
    try:
        trainer.train_all(random_state, None, n_members)
    except EveryMemberDiverged:  # which another setting may not; the table tells of it
        return np.inf
    _, module = trainer.stacked()
    seen = OutOfBag.of(module, sorted(trainer.weights), trainer.job)
    is_calibrated = trainer.job.ensemble.calibrate is not None
    return seen.nll(seen.temperature() if is_calibrated else None)
