# SPDX-License-Identifier: BSD-3-Clause
"""A few settings, tried by the first members of an ensemble, for the parameter `tune`."""

import copy
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from .._data.encoding import MANY_ROWS
from .._estimator.calibration import Temperature
from .._utils.reporting import print_line, stage
from ..modules import PiecewiseLinear
from ._members import EveryMemberDiverged, Members, train_members
from ._out_of_bag import OutOfBag
from ._spec import EnsembleSpec

# How these were chosen: see doc/design.rst.
_N_TRIED = 4  # members that try each setting; those of the best one stay

# A factor of the prior scale, and other parameters, which stay if the user has set one of them.
_Tried = tuple[tuple[float, dict[str, Any]], ...]

_STRONGER = 0.3  # factor of the prior scale of classes
_SMOOTH = {"module__activation": "silu", "module__embeddings": None}
_TRIED: dict[str, _Tried] = {
    "regressor": ((1.0, {}), (2.0, {}), (1.0, _SMOOTH)),
    "classifier": ((1.0, {}), (_STRONGER, {}), (1.0, _SMOOTH)),
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
        (_STRONGER, {}),
        (1.0, {"module__embeddings": PiecewiseLinear(n_bins=16, bins="tree")}),
    ),
}

LEAST_TUNED, _OVERCONFIDENT = 10, 1.6  # members, temperature, from which on tune="auto" tries it


Trials = list[dict[str, Any]]  # of settings: `params`, and the `loss`


def best_of(trials: Trials) -> dict[str, Any]:
    """Return the trial of the least loss, the first of several."""
    return min(trials, key=itemgetter("loss"))


def best_of_trials(
    base: EnsembleSpec, spec: EnsembleSpec, members: Members, random_state: np.random.RandomState
) -> tuple[EnsembleSpec, Members, Trials]:
    """Train the first few members by each setting, from the same seeds, and return the best.

    The first is `spec`, whose `members` are filled; others are of the `base`, which is not planned.
    A trial is `params` and the `loss`, of left-out samples in nats, infinite if all diverged.
    """
    is_large = spec.n_rows >= MANY_ROWS
    settings: list[dict[str, Any]] = []
    for factor, change in (_TRIED_OF_MANY if is_large else _TRIED)[spec.kind]:
        params = {"prior_scale": spec.prior_scale * factor, **change}  # a flat prior remains so
        if "module__embeddings" in change and spec.kind == "regressor":
            # Embeddings decide how many epochs there are, but none has more than the fit.
            params["max_epochs"] = min(change.get("max_epochs", spec.n_epochs), spec.n_epochs)
        if params not in settings and all(map(spec.is_default, change)):
            settings.append(params)
    trials: Trials = []
    best = spec, members
    n_tried = min(_N_TRIED, spec.n_members)
    for number, params in enumerate(settings, 1):
        if spec.training.verbose > 1:
            print_line(f"tuning: setting {number} of {len(settings)}, {params}")
        tried = (base.planned(params), Members.before(spec)) if trials else best
        n_later = (len(settings) - number) * n_tried + spec.n_members - n_tried
        loss = _loss_of_trained(*tried, copy.deepcopy(random_state), n_tried, n_later)
        trials.append({"params": params, "loss": loss})
        if best_of(trials) is trials[-1]:
            best = tried
    return *best, trials


def best_of_priors(
    base: EnsembleSpec, spec: EnsembleSpec, members: Members, random_state: np.random.RandomState
) -> tuple[EnsembleSpec, Members, Trials]:
    """Return members, or others with a stronger prior if the first are overconfident and worse."""
    loss, calibration = _out_of_bag(spec, members)
    trials = [{"params": {"prior_scale": spec.prior_scale}, "loss": loss}]
    if calibration is None or calibration.temperature < _OVERCONFIDENT:
        return spec, members, trials
    params = {"prior_scale": spec.prior_scale * _STRONGER}
    if spec.training.verbose > 1:
        print_line(f"tuning: temperature {calibration.temperature:.2f}, so try {params}")
    other = base.planned(params), Members.before(spec)
    with stage(f"{spec.n_members} members with a stronger prior"):
        trials.append({"params": params, "loss": _loss_of_trained(*other, random_state)})
    return (*other, trials) if best_of(trials) is trials[-1] else (spec, members, trials)


def _loss_of_trained(spec: EnsembleSpec, members: Members, random_state, *numbers: int) -> float:
    """Train members, so many as :func:`train_members` takes `numbers`, and return their loss."""
    try:
        train_members(spec, members, random_state, None, *numbers)
    except EveryMemberDiverged:  # which another setting may not; the table tells of it
        return np.inf
    return _out_of_bag(spec, members)[0]


def _out_of_bag(spec: EnsembleSpec, members: Members) -> tuple[float, Temperature | None]:
    """Return the loss of samples that members have left out, and the temperature, if calibrated."""
    fitted = members.stacked(spec)
    seen = OutOfBag.of(fitted.module, sorted(members.weights), replace(spec, plan=fitted.plan))
    calibration = None if spec.calibrate is None else seen.temperature(spec.n_members)
    return seen.nll(calibration, spec.n_members), calibration
