# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of a fitted student on samples that were held out, for `calibration_fraction`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split

from ..._data.checks import check_weights
from ..._estimator.base import Fitted
from ..._estimator.batched import read_in_chunks, rows_first
from ..._estimator.calibration import fit_calibration
from ..._estimator.warm_start import in_dtype_of, scaling_of
from ..._method.task import TASKS, read_samples
from ..._utils.validation import errors_about
from ..._utils.warnings import warn
from ...settings import Runtime
from ._spec import FitArguments, FitSpec
from ._student import read_by
from ._teacher import distribution_of, networks_and_functions, predictor_of


def calibrated(fitted: Fitted, spec: FitSpec, pilot: BaseEstimator) -> Fitted:
    """Return a fitted student calibrated as `calibration_fraction` says.

    A second student, `pilot`, of a second teacher unless that is fitted already, learns without a
    share of the samples, on which it is calibrated. The first one keeps all of them, and takes the
    values over.
    """
    kept, held_out = split_rows(spec)
    runtime = replace(Runtime.of(pilot.runtime), checkpoint=None)
    pilot.set_params(calibration_fraction=None, runtime=runtime, warm_start=False)
    if spec.training.budget is not None:
        pilot.set_params(max_time=spec.training.budget.keeping(0.0).part(1.0).seconds)
    pilot.fit(*kept, X_transfer=spec.X_transfer if len(spec.X_transfer) else None)
    task, module = pilot._plan.task, pilot.module_
    X, y, _ = read_samples(pilot, held_out.X, held_out.y, pilot._input_schema)
    X, (y, _) = in_dtype_of(module, X), TASKS[spec.settings.kind].check(y, task)
    weight = task.weights_of_rows(y, held_out.sample_weight)
    spec = replace(spec, scaling=scaling_of(module))
    networks, *_ = networks_and_functions(pilot.teacher_, spec)
    members = predictor_of(networks, spec)(X)
    outputs = read_in_chunks(module, X, rows_first)
    found = fit_calibration(
        module.read(torch.from_numpy(outputs).transpose(0, 1).double()),
        distribution_of(task, torch.from_numpy(members).double()),
        torch.from_numpy(task.encode(y, spec.scaling, np.float64)),
        torch.ones(len(X)).double() if weight is None else torch.from_numpy(weight),
    )
    if np.min(found.power) == 0:
        warn(
            "The student's epistemic uncertainty does not rise with its members' on the samples "
            "that calibration_fraction holds out, and is constant now.",
        )
    plan: Any = fitted.plan
    return read_by(replace(plan, calibration=found), fitted, calibration_=found)


def split_rows(spec: FitSpec) -> tuple[FitArguments, FitArguments]:
    """Return what a student is fitted on that is to be calibrated, and the samples held out."""
    X, y, sample_weight = spec.arguments
    y, share = np.asarray(y), spec.settings.calibration_fraction
    weight = check_weights(sample_weight, len(y))
    given = [X, y] if weight is None else [X, y, weight]
    (seed,) = spec.draw_seeds(1)
    is_classifier = spec.settings.kind == "classifier"
    with errors_about("calibration_fraction"):
        parts = train_test_split(
            *given, test_size=share, random_state=seed, stratify=y if is_classifier else None
        )
    kept, held_out = (FitArguments(*[*part, None][:3]) for part in (parts[::2], parts[1::2]))
    if is_classifier and (missing := {*spec.plan.task.labels.tolist()} - set(kept.y)):
        raise ValueError(
            f"calibration_fraction={share!r} leaves no sample of the classes {sorted(missing)} to "
            "fit on; hold out fewer."
        )
    check_weights(held_out.sample_weight, len(held_out.y), "sample_weight of the samples held out")
    return kept, held_out
