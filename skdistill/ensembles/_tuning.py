# SPDX-License-Identifier: BSD-3-Clause
"""A few settings, tried by the first members of an ensemble, for the parameter `tune`."""

import copy
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from .._data.encoding import MANY_ROWS
from .._utils.reporting import print_line
from ..modules import PiecewiseLinear
from ._blocks import EnsembleTrainer, EveryMemberDiverged
from ._job import Job
from ._out_of_bag import OutOfBag

# So many members try each setting, and those of the best one stay: each further setting costs an
# ensemble of 20 a fifth of its time.
_N_TRIED = 4

# What is tried: by what the scale of the prior is multiplied, and what else is changed. Each helped
# on some tables, and not on others. A change is left out if the user has set one of its parameters.
_Tried = tuple[tuple[float, dict[str, Any]], ...]

_SMOOTH = {"module__activation": "silu", "module__embeddings": None}
_TRIED: dict[str, _Tried] = {
    "regressor": ((1.0, {}), (2.0, {}), (1.0, _SMOOTH)),
    "classifier": ((1.0, {}), (0.3, {}), (1.0, _SMOOTH)),
}

# Of many samples more can be learnt than the default networks hold.
_TRIED_OF_MANY: dict[str, _Tried] = {
    "regressor": (
        (1.0, {}),
        (
            10 / 3,
            {
                "module__hidden_units": (128, 128),
                "module__activation": "relu",
                "module__embeddings": PiecewiseLinear(n_bins=32),
                "lr": 0.003,
                "max_epochs": 40,
            },
        ),
    ),
    "classifier": (
        (1.0, {}),
        (0.3, {}),
        (1.0, {"module__embeddings": PiecewiseLinear(n_bins=16, bins="tree")}),
    ),
}

# By tune="auto" the first LEAST_TUNED members of a classifier try a stronger prior, which suits
# noisy labels, if the usual one has made them overconfident. (Temperature and change of the log
# loss of held-out samples: adult 3.5, -.028; spambase 2.8, -.013; synthetic 2.2, -.021; covtype
# 2.2, +.013; breast cancer 1.6, -.006; satimage 1.5, +.030; pendigits .8, +.012; digits .7, +.016.)
LEAST_TUNED = 10
_TRIED_BY_DEFAULT: _Tried = ((1.0, {}), (0.3, {}))
_OVERCONFIDENT = 1.6


def settings_to_try(job: Job) -> list[dict[str, object]]:
    """Return parameters to replace in turn, first by those given; a flat prior remains so.

    Of numbers, embeddings decide how many epochs there are, but none has more than the job.
    """
    spec, is_large = job.spec, job.train.n_rows >= MANY_ROWS
    settings: list[dict[str, Any]] = []
    tried = (_TRIED_OF_MANY if is_large else _TRIED)[spec.kind]
    for factor, change in _TRIED_BY_DEFAULT if spec.tune == "auto" else tried:
        params = {"prior_scale": spec.prior_scale * factor, **change}
        if "module__embeddings" in change and spec.kind == "regressor":
            params["max_epochs"] = min(change.get("max_epochs", job.n_epochs), job.n_epochs)
        if params not in settings and all(map(spec.is_default, change)):
            settings.append(params)
    return settings


def best_of(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the trial of the least loss, the first of several."""
    return min(trials, key=itemgetter("loss"))


def best_of_trials(
    first: EnsembleTrainer, job_with: Callable[[dict[str, Any]], Job], random_state
) -> tuple[EnsembleTrainer, list[dict[str, Any]]]:
    """Train the first few members by each setting, from the same seeds, and return the best.

    `first` trains by the settings given, and `job_with` returns the job with others. `random_state`
    stays as it is, for ``train_all`` of the trainer returned, which has members already. Beside it
    stand, of each setting, `params`, and the `loss`: the negative log-likelihood, in nats, of
    samples that the members have left out, on the scale of training; infinite if all diverged.
    """
    best = first
    trials: list[dict[str, Any]] = []
    settings, n_members = settings_to_try(first.job), first.job.spec.n_members
    by_default = first.job.spec.tune == "auto"
    n_tried = LEAST_TUNED if by_default else min(_N_TRIED, n_members)
    for number, params in enumerate(settings, 1):
        if first.job.training.verbose > 1:
            print_line(f"tuning: setting {number} of {len(settings)}, {params}")
        trainer = EnsembleTrainer(job_with(params)) if trials else first
        n_later = (len(settings) - number) * n_tried + n_members - n_tried
        try:
            trainer.train_all(copy.deepcopy(random_state), None, n_tried, n_later)
        except EveryMemberDiverged:  # which another setting may not; the table tells of it
            loss, calibration = np.inf, None
        else:
            _, module = trainer.stacked()
            seen = OutOfBag.of(module, sorted(trainer.weights), trainer.job)
            calibrates = trainer.job.spec.calibrate is not None
            calibration = seen.temperature(n_members) if calibrates else None
            loss = seen.nll(calibration, n_members)
        trials.append({"params": params, "loss": loss})
        if best_of(trials) is trials[-1]:
            best = trainer
        if by_default and calibration is not None and calibration.temperature < _OVERCONFIDENT:
            break
    return best, trials
