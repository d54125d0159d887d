# SPDX-License-Identifier: BSD-3-Clause
"""What the fit of a distiller is told: all that its estimator has, read once and frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..._data.schema import InputSchema
from ..._estimator.base import Fitted, NetEstimator, ObservedTask, fit_task, for_callbacks
from ..._estimator.warm_start import all_weights, in_dtype_of, scaling_of
from ..._method.task import Buffers, ClassificationTask, Task, prepare_to_compute
from ..._serialization.digest import digests
from ..._training.resume import NO_MATTER, resumable
from ..._training.stream import Stream
from ..._training.trainer import SEED_LIMIT, Training, n_epochs_in
from ..._utils.ranks import current_ranks
from ..._utils.validation import errors_about
from ..._utils.warnings import warn
from ...pruning import GroupLasso
from ...settings import Runtime, WeakLearnerSearch
from ...transfer import TransferMaker, TransferOnly, maker_given

# Parameters that ranks may have each their own of; the seed of rank 0 counts. A fitted teacher is
# not read, as it may be of any library.
_MAY_DIFFER = ("callbacks", "device", "memory", "random_state", "teacher", *NO_MATTER)


@dataclass(frozen=True, eq=False)
class StudentSettings:
    """Parameters of a distiller as they are when its fit begins; see the estimators.

    Those with a default are not of every distiller. `name` is that of the class, `kind` that of the
    task.
    """

    name: str
    kind: str
    teacher: Any
    transfer: Any
    transfer_only: bool
    teacher_cv: Any
    memory: Any
    max_epochs: int | str
    batch_size: Any
    normalize: bool | str
    checkpoint: Any
    verbose: int
    random_state: Any
    dtype: str | None  # None is that of X
    device: Any
    pruning: GroupLasso | None = None
    calibration_fraction: float | None = None
    warm_start: bool = False
    n_rounds: int = 0
    search: WeakLearnerSearch | None = None
    estimate: Any = None

    @classmethod
    def of(cls, estimator: NetEstimator) -> StudentSettings:
        """Read an estimator's parameters."""
        runtime = Runtime.of(estimator.runtime)
        takes_dtype = "dtype" not in estimator._parameter_table["runtime"].unread
        found = estimator.get_params(deep=False) | {
            "name": type(estimator).__name__,
            "kind": estimator._kind,
            "dtype": runtime.dtype if takes_dtype else None,
            "device": runtime.device,
            "checkpoint": runtime.checkpoint,
            "transfer": maker_given(estimator.transfer),
            "transfer_only": isinstance(estimator.transfer, TransferOnly),
        }
        names = [field.name for field in fields(cls) if field.name in found]
        return cls(**{name: found[name] for name in names})

    @property
    def is_repeatable(self) -> bool:
        """Whether the teacher is to be seeded, as a fit may be repeated or go on."""
        return self.random_state is not None or self.checkpoint is not None


class FitMode(NamedTuple):
    """Which part of a student's training a call is; without ``warm_start`` a fit is all of it."""

    before: Fitted | None = None  # what training goes on from
    is_pass: bool = False  # one pass over samples, which others may follow, as in `partial_fit`
    keeps_state: bool = False  # of the training, for a later one
    task: Task | None = None  # if it is known before y is

    @classmethod
    def of_fit(cls, settings: StudentSettings, before: Fitted | None) -> FitMode:
        """Return the mode of a call of `fit`, which ``warm_start`` decides about."""
        if not settings.warm_start:
            return cls()
        _refuse_pruning(settings, "warm_start=True")
        return cls(before, keeps_state=True, task=None if before is None else before.plan.task)

    @classmethod
    def of_pass(
        cls, settings: StudentSettings, before: Fitted | None, classes: object = None
    ) -> FitMode:
        """Return the mode of a call of `partial_fit`; ValueError for wrong `classes`."""
        _refuse_pruning(settings, "partial_fit")
        known: Any = None if before is None else before.plan.task
        if settings.kind == "classifier":
            known = _checked_classes(classes, known)
        elif classes is not None:
            raise ValueError(f"classes must be None for a regressor, got {classes!r}.")
        return cls(before, is_pass=True, keeps_state=True, task=known)

    def prepared(
        self, settings: StudentSettings, X: np.ndarray, task: Task
    ) -> tuple[np.ndarray, Task]:
        """Return checked samples in the dtype to compute in, and the task so adapted."""
        if self.before is not None:
            task = replace(task, dtype=self.before.plan.task.dtype)
            return in_dtype_of(self.before.module, X), task
        if settings.dtype is None:
            return X, task
        return prepare_to_compute(settings.dtype, settings.device, X, task)

    def scaling(self, settings: StudentSettings, task: Task, y, weight, dtype) -> Buffers:
        """Return the location and scale of the targets: those of the first fit."""
        if self.before is not None:
            return scaling_of(self.before.module)
        return task.scaling(y, weight, dtype, settings.normalize in (True, "y"))

    def adapted(self, training: Training) -> Training:
        """Return how to train: a pass has a constant learning rate, and all the time it takes."""
        return replace(training, lr_schedule=None, budget=None) if self.is_pass else training

    def epochs(self, max_epochs: int | str, n_planned: int) -> tuple[int, int, int]:
        """Return numbers of epochs, when `n_planned` are wanted in all.

        They are that of epochs before, of those to train now, and of those over which the weights
        of a loss change: the ones that the first fit was planned for.
        """
        n_before, n_of_first = 0, n_planned
        if self.before is not None:
            n_before = n_epochs_in(self.before.history)
            n_of_first = self.before.training_budget.n_epochs
        if self.is_pass:
            return n_before, 1, n_of_first
        if n_planned < n_before and max_epochs != "auto":
            raise ValueError(
                f"max_epochs must be at least {n_before} with warm_start=True, as the student has "
                f"been trained for so many; got {max_epochs!r}, {n_planned} epochs."
            )
        if n_planned <= n_before:
            warn(
                f"With warm_start=True, all of the {n_planned} epochs that "
                f"max_epochs={max_epochs!r} stands for are trained already, and the "
                "student stays as it is."
            )
        return n_before, max(0, n_planned - n_before), n_of_first


def _checked_classes(classes: object, known: ClassificationTask | None) -> ClassificationTask:
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


def _refuse_pruning(settings: StudentSettings, why: str) -> None:
    if settings.pruning is not None:
        raise ValueError(
            f"pruning must be None with {why}, as units are removed when training ends; got "
            f"{settings.pruning!r}."
        )


class FitArguments(NamedTuple):
    """X, y and weights as the user has given them to `fit`, for the fit of the teacher."""

    X: Any
    y: Any
    sample_weight: Any


@dataclass(frozen=True, eq=False)
class FitSpec:
    """Everything that a fit needs; X, y and weight are of the samples of positive weight."""

    settings: StudentSettings
    mode: FitMode
    training: Training
    arguments: FitArguments
    random_state: np.random.RandomState
    schema: InputSchema  # of X
    plan: Any
    recipe: Any
    scaling: Buffers
    X: np.ndarray
    y: np.ndarray  # encoded
    weight: np.ndarray
    X_transfer: np.ndarray
    maker: TransferMaker | None = None  # generates further samples for the teacher to predict
    member_predictions: np.ndarray | None = None  # (n, S, ...), encoded
    stream: Stream | None = None  # of which X, y and weight are examples then
    more_epochs: float = 1.0  # times those that max_epochs="auto" stands for

    @property
    def facts(self) -> dict[str, object]:
        """Attributes of the estimator that are known before it is trained."""
        return {"_input_schema": self.schema, **self.plan.task.fitted_attributes}

    @property
    def dtype(self) -> np.dtype:
        """What is computed in."""
        return self.X.dtype

    @property
    def draws_as_usual(self) -> bool:
        """Whether it is left to the fit how further samples are drawn, which may be of any kind."""
        transfer = self.settings.transfer
        is_auto = isinstance(transfer, str) and transfer == "auto"
        return is_auto and self.maker is not None and self.stream is None

    @property
    def example_of_X(self) -> Any:
        """Samples as the user has given them, for frames like theirs."""
        return self.arguments.X if self.stream is None else self.stream.first_X

    @property
    def data(self) -> dict[str, object]:
        """What the fit was given, by name: it must be the same when it goes on."""
        data = self.arguments._asdict() | {"X_transfer": self.X_transfer}
        data["member_predictions"] = self.member_predictions
        if self.mode.before is not None:
            data["the fitted student"] = all_weights(self.mode.before.module)
        return {k: None if value is None else np.asarray(value) for k, value in data.items()}

    def draw_seeds(self, size: int) -> list[int]:
        """Draw seeds from `random_state`, which is that of the first of several ranks."""
        seeds = self.random_state.randint(SEED_LIMIT, size=size).tolist()
        ranks = current_ranks()
        return seeds if ranks is None else ranks.of_first(seeds)


@contextmanager
def begun(
    estimator: NetEstimator, spec: FitSpec, *, resumes: bool = True
) -> Iterator[tuple[FitSpec, ObservedTask]]:
    """Begin a fit, or go on from the estimator's checkpoint, and end it: of teacher and student."""
    resumes = resumes and not spec.mode.is_pass and spec.settings.checkpoint is not None
    if (ranks := current_ranks()) is not None:
        _refuse_with_ranks(spec)
        ranks.check_same(digests(estimator, {}, _MAY_DIFFER))
    given = for_callbacks(*spec.arguments)
    with (
        fit_task(estimator, given, 2) as task,
        resumable(estimator, spec.random_state, spec.data)
        if resumes
        else nullcontext(spec.random_state) as random_state,
    ):
        yield replace(spec, random_state=random_state), task


def _refuse_with_ranks(spec: FitSpec) -> None:
    """Raise a ValueError for what several processes cannot have that train a student together."""
    if spec.mode.is_pass:
        return
    if spec.settings.checkpoint is not None:
        raise ValueError(
            "runtime__checkpoint must be None within data_parallel, whose ranks would write the "
            f"same file; got {spec.settings.checkpoint!r}."
        )
    if (budget := spec.training.budget) is not None:
        raise ValueError(
            "max_time must be None within data_parallel, whose ranks take every step together "
            f"and have a clock each; got {budget.seconds!r}."
        )
