# SPDX-License-Identifier: BSD-3-Clause
"""Which part of a student's training a call of ``fit`` or ``partial_fit`` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..._data.schema import add_to_summary
from ..._estimator.base import reset_fitted
from ..._estimator.warm_start import in_dtype_of, is_trained, scaling_of
from ..._method.task import (
    TASKS,
    Buffers,
    ClassificationTask,
    Task,
    prepare_to_compute,
    read_samples,
)
from ..._training.trainer import Training, n_epochs_in
from ..._utils.validation import errors_about
from ..._utils.warnings import warn
from ...settings import Runtime


class FitMode(NamedTuple):
    """A part of a student's training; that of `fit` without ``warm_start`` is all of it.

    Parameters
    ----------
    goes_on : bool
        Whether training goes on from the fitted student.
    is_pass : bool
        Whether it is one pass over rows, after which others may follow: that of `partial_fit`.
    keeps_state : bool
        Whether the state of the training is kept for a later one.
    task : RegressionTask, ClassificationTask or None
        The task, if it is known before y is.
    """

    goes_on: bool = False
    is_pass: bool = False
    keeps_state: bool = False
    task: Task | None = None

    @classmethod
    def of_fit(cls, distiller: Any) -> FitMode:
        """Return the mode of a call of `fit`, which ``warm_start`` decides about."""
        if not distiller.warm_start:
            return cls()
        _refuse_pruning(distiller, "warm_start=True")
        if not is_trained(distiller):
            return cls(keeps_state=True)
        return cls(goes_on=True, keeps_state=True, task=distiller._plan.task)

    @classmethod
    def of_pass(cls, distiller: Any, classes: Any = None) -> FitMode:
        """Return the mode of a call of `partial_fit`; ValueError for wrong `classes`."""
        _refuse_pruning(distiller, "partial_fit")
        goes_on = is_trained(distiller)
        known = distiller._plan.task if goes_on else None
        if distiller._kind == "classifier":
            known = _checked_classes(classes, known)
        elif classes is not None:
            raise ValueError(f"classes must be None for a regressor, got {classes!r}.")
        return cls(goes_on, is_pass=True, keeps_state=True, task=known)

    def begin(self, distiller: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, Task]:
        """Check X and y, and note what they tell; forget an earlier fit unless this one goes on."""
        if not self.goes_on:
            reset_fitted(distiller)
        check: Callable[..., Any] = TASKS[distiller._kind].check
        given = X
        X, y = read_samples(distiller, X, y, reset=not self.goes_on)
        y, task = check(y, self.task)
        if self.is_pass and self.goes_on:
            add_to_summary(distiller, given, X)
        vars(distiller).update(task.fitted_attributes)
        if self.goes_on:
            X, task = (
                in_dtype_of(distiller.module_, X),
                replace(task, dtype=distiller._plan.task.dtype),
            )
        elif "dtype" not in distiller._parameter_table["runtime"].unread:
            runtime = Runtime.of(distiller.runtime)
            X, task = prepare_to_compute(runtime.dtype, runtime.device, X, task)
        return X, y, task

    def scaling(self, distiller: Any, task: Task, targets, weight, dtype) -> Buffers:
        """Return the location and scale of the targets: those of the first fit."""
        if self.goes_on:
            return scaling_of(distiller.module_)
        return task.scaling(targets, weight, dtype, getattr(distiller, "normalize_y", True))

    def adapted(self, training: Training) -> Training:
        """Return how to train: a pass has a constant learning rate, and all the time it takes."""
        return replace(training, lr_schedule=None, budget=None) if self.is_pass else training

    def epochs(self, distiller: Any, n_planned: int) -> tuple[int, int, int]:
        """Return numbers of epochs, when `n_planned` are wanted in all.

        They are that of epochs before, of those to train now, and of those over which the weights
        of a loss change: the ones that the first fit was planned for.
        """
        n_before = n_epochs_in(distiller.history_) if self.goes_on else 0
        n_of_first = distiller._training_budget.n_epochs if self.goes_on else n_planned
        if self.is_pass:
            return n_before, 1, n_of_first
        if n_planned < n_before and distiller.max_epochs != "auto":
            raise ValueError(
                f"max_epochs must be at least {n_before} with warm_start=True, as the student has "
                f"been trained for so many; got {distiller.max_epochs!r}, {n_planned} epochs."
            )
        if n_planned <= n_before:
            warn(
                f"With warm_start=True, all of the {n_planned} epochs that "
                f"max_epochs={distiller.max_epochs!r} stands for are trained already, and the "
                "student stays as it is."
            )
        return n_before, max(0, n_planned - n_before), n_of_first


def _checked_classes(classes: Any, known: ClassificationTask | None) -> ClassificationTask:
    """Return the task that `classes` stand for; `known` is that of the fit before, if any."""
    if classes is None:
        if known is not None:
            return known
        raise ValueError(
            "classes must be the labels of all classes in the first call of partial_fit, whose y "
            "may lack some; got None."
        )
    with errors_about("classes"):
        given = ClassificationTask.of_labels(classes, "classes")
    if known is not None and not np.array_equal(given.labels, known.labels):
        raise ValueError(
            f"classes must be None or those of the fit before, {known.labels.tolist()}; got "
            f"{given.labels.tolist()}."
        )
    return given


def _refuse_pruning(distiller: Any, why: str) -> None:
    if distiller.pruning is not None:
        raise ValueError(
            f"pruning must be None with {why}, as units are removed when training ends; got "
            f"{distiller.pruning!r}."
        )
