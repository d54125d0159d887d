# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of a fitted student on rows that were held out, for `calibration_fraction`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from ..._data.checks import check_weights
from ..._estimator.batched import read_in_chunks, rows_first
from ..._estimator.calibration import fit_calibration
from ..._estimator.warm_start import scaling_of
from ..._utils.validation import errors_about
from ..._utils.warnings import warn
from ._fit_mode import FitMode
from ._teacher import distribution_of, networks_and_functions, predictor_of
from ._validate import FitArguments, Setup


def calibrate(distiller: Any, setup: Setup) -> None:
    """Calibrate the fitted student as `calibration_fraction` says, if it does.

    A second student, of a second teacher unless that is fitted already, learns without a share of
    the rows, on which it is calibrated. The first one keeps all rows, and takes the values over.
    """
    if distiller.calibration_fraction is None:
        return
    kept, held_out = split_rows(distiller, setup)
    pilot = clone(distiller).set_params(calibration_fraction=None, checkpoint=None)
    pilot.set_params(warm_start=False)
    if setup.training.budget is not None:
        pilot.set_params(max_time=setup.training.budget.keeping(0.0).part(1.0).seconds)
    pilot.fit(*kept, X_transfer=setup.X_transfer if len(setup.X_transfer) else None)
    task, module = pilot._plan.task, pilot.module_
    X, y, _ = FitMode(goes_on=True, task=task).begin(pilot, held_out.X, held_out.y)
    weight = task.weights_of_rows(y, held_out.sample_weight)
    setup = setup._replace(scaling=scaling_of(module))
    networks, *_ = networks_and_functions(pilot.teacher_, setup)
    members = predictor_of(networks, setup)(X)
    outputs = read_in_chunks(module, X, rows_first)
    found = fit_calibration(
        module.read(torch.from_numpy(outputs).transpose(0, 1).double()),
        distribution_of(task, torch.from_numpy(members).double()),
        torch.from_numpy(task.encode(y, setup.scaling, np.float64)),
        torch.ones(len(X)).double() if weight is None else torch.from_numpy(weight),
    )
    if np.min(found.power) == 0:
        warn(
            "The student's epistemic uncertainty does not rise with its members' on the rows that "
            "calibration_fraction holds out, and is constant now.",
        )
    distiller.calibration_ = distiller.module_.calibration = found
    distiller._plan = replace(distiller._plan, calibration=found)


def split_rows(distiller: Any, setup: Setup) -> tuple[FitArguments, FitArguments]:
    """Return what a student is fitted on that is to be calibrated, and the rows held out."""
    X, y, sample_weight = setup.arguments
    y = np.asarray(y)
    weight = check_weights(sample_weight, len(y))
    given = [X, y] if weight is None else [X, y, weight]
    (seed,) = setup.draw_seeds(1)
    is_classifier = distiller._kind == "classifier"
    with errors_about("calibration_fraction"):
        parts = train_test_split(
            *given,
            test_size=distiller.calibration_fraction,
            random_state=seed,
            stratify=y if is_classifier else None,
        )
    kept, held_out = (FitArguments(*[*part, None][:3]) for part in (parts[::2], parts[1::2]))
    if is_classifier and (missing := set(distiller.classes_.tolist()) - set(kept.y)):
        raise ValueError(
            f"calibration_fraction={distiller.calibration_fraction!r} leaves no row of the classes "
            f"{sorted(missing)} to fit on; hold out fewer."
        )
    check_weights(held_out.sample_weight, len(held_out.y), "sample_weight of the rows held out")
    return kept, held_out
