# SPDX-License-Identifier: BSD-3-Clause
"""What the fit of a distiller is told: rules of its parameters, and all it has, read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from torch import Tensor

from ..._data.columns import COLUMN_PARAMETERS
from ..._data.schema import InputSchema
from ..._estimator.base import Fitted, NetEstimator, ObservedTask, fit_task, for_callbacks
from ..._estimator.predicting import DistributionEstimator
from ..._estimator.unwrapping import tags_of
from ..._estimator.warm_start import all_weights
from ..._method.task import Buffers, ClassificationTask, Task
from ..._training.resume import resumable
from ..._training.stream import Stream
from ..._training.trainer import SEED_LIMIT, Training
from ..._utils.settings import SettingsRule
from ..._utils.validation import Number, OneOf, errors_about, is_number
from ...families import Family, known_families
from ...pruning import GroupLasso
from ...settings import Runtime, WeakLearnerSearch
from ...transfer import MAKERS, TransferMaker, TransferOnly, make_transfer


class TransferRule:
    """Rule of `transfer`; `objects` are the settings that its names stand for."""

    objects = tuple(MAKERS.values())

    def check(self, value: object, name: str) -> None:
        try:
            given = value.transfer if isinstance(value, TransferOnly) else value
            if not (isinstance(given, str) and given == "auto"):
                make_transfer(given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} It may also be 'auto'.") from None


class FamilyRule:
    """Rule of `family`, whose name also depends on the teacher; `objects` as of `transfer`."""

    objects = tuple(known_families("regressor", "classifier").values())

    def check(self, value: object, name: str) -> None:
        if not isinstance(value, (str, Family)):
            raise TypeError(
                f"{name} must be a name, or a Family such as {self.objects[0].__name__}(), got "
                f"{value!r}."
            )


class FoldsRule:
    """Rule of `teacher_cv`."""

    def check(self, value: Any, name: str) -> None:
        is_count = is_number(value, Integral)
        is_folds = hasattr(value, "split") or isinstance(value, Iterable)
        are_no_folds = isinstance(value, (str, bytes, type, np.ndarray, Tensor))
        if are_no_folds or not (value is None or is_count or is_folds):
            raise TypeError(
                f"{name} must be None, a number of folds, a cross-validation splitter, or an "
                f"iterable of pairs of train and test samples; got {value!r}."
            )
        if is_count and value < 2:
            raise ValueError(f"{name} must be at least 2 folds, got {value!r}.")


class MemoryRule:
    """Rule of `memory`."""

    def check(self, value: object, name: str) -> None:
        if not (value is None or isinstance(value, str) or hasattr(value, "cache")):
            raise ValueError(
                f"{name} must be None, the path of a folder as a string, or a joblib.Memory, got "
                f"{value!r}."
            )


PARAMETER_TABLE = {
    **DistributionEstimator._parameter_table,
    "lr": Number(Real, 0, closed="neither", others=("auto",)),
    "max_epochs": Number(Integral, 1, others=("auto",)),
    "transfer": TransferRule(),
    "teacher_cv": FoldsRule(),
    "memory": MemoryRule(),
    **COLUMN_PARAMETERS,
}

STUDENT_PARAMETERS = {
    "calibration_fraction": Number(Real, 0, 1, closed="neither", others=(None,)),
    "runtime": SettingsRule(Runtime, OneOf((None,)), ("member_block",)),
    "batch_size": Number(Integral, 1, others=("auto",)),
    "warm_start": OneOf((True, False)),
    "ddof": OneOf((0, 1)),
}

PRUNING = {"pruning": SettingsRule(GroupLasso, OneOf((None,)))}


def kind_of(teacher: BaseEstimator) -> str | None:
    """Return "classifier" or "regressor" for a teacher, or for such a name; None for others."""
    if isinstance(teacher, str):
        return teacher if teacher in ("classifier", "regressor") else None
    if isinstance(teacher, type) or not hasattr(teacher, "get_params"):
        return None
    try:
        kind = tags_of(teacher).estimator_type
    except AttributeError:  # it has parameters but no tags: no estimator
        return None
    return kind if kind in ("classifier", "regressor") else None


def _kind(distiller: BaseEstimator) -> str | None:
    """Kind of a distiller: that of its teacher, and after `fit` that of the fitted student."""
    fitted = "_plan" in vars(distiller)
    return distiller._plan.task.kind if fitted else kind_of(distiller.teacher)


kind_as_teacher = property(_kind)


def check_kind(teacher: BaseEstimator, member_predictions: ArrayLike) -> None:
    """Raise TypeError unless it is a teacher, ValueError for a name without predictions."""
    if kind_of(teacher) is None:
        raise TypeError(
            "teacher must be a classifier or a regressor, or, with member_predictions, "
            "'classifier' or 'regressor'; skdistill.teachers.as_teacher makes one of a list of "
            f"fitted models, or of a torch module. Got {teacher!r}."
        )
    if isinstance(teacher, str) and member_predictions is None:
        raise ValueError(
            f"teacher={teacher!r} goes with member_predictions, which are None; without "
            "them teacher must be an estimator."
        )


@dataclass(frozen=True, eq=False)
class StudentSettings:
    """Parameters of a distiller when its fit begins; not all have those with a default here."""

    name: str  # of the class
    kind: str  # of the task
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
        runtime, transfer = Runtime.of(estimator.runtime), estimator.transfer
        transfer_only = isinstance(transfer, TransferOnly)
        takes_dtype = "dtype" not in estimator._parameter_table["runtime"].unread
        found = estimator.get_params(deep=False) | {
            "name": type(estimator).__name__,
            "kind": estimator._kind,
            "dtype": runtime.dtype if takes_dtype else None,
            "device": runtime.device,
            "checkpoint": runtime.checkpoint,
            "transfer": transfer.transfer if transfer_only else transfer,
            "transfer_only": transfer_only,
        }
        names = [field.name for field in fields(cls) if field.name in found]
        return cls(**{name: found[name] for name in names})


class FitMode(NamedTuple):
    """Which part of a student's training a call is; without ``warm_start`` a fit is all of it."""

    before: Fitted | None = None  # what training goes on from
    is_pass: bool = False  # one pass over samples, which others may follow, as in `partial_fit`
    keeps_state: bool = False  # of the training, for a later one
    task: Task | None = None  # if it is known before y is

    @classmethod
    def of(
        cls, settings: StudentSettings, before: Fitted | None, is_pass: bool, classes: object
    ) -> FitMode:
        """Return the mode of a call of `fit` or `partial_fit`; ValueError for wrong `classes`."""
        if not (is_pass or settings.warm_start):
            return cls()
        if settings.pruning is not None:
            why = "partial_fit" if is_pass else "warm_start=True"
            raise ValueError(
                f"pruning must be None with {why}, as units are removed when training ends; got "
                f"{settings.pruning!r}."
            )
        known: Any = None if before is None else before.plan.task
        if is_pass and settings.kind == "classifier":
            known = _checked_classes(classes, known)
        elif classes is not None:
            raise ValueError(f"classes must be None for a regressor, got {classes!r}.")
        return cls(before, is_pass, True, known)


def _checked_classes(classes: object, known: ClassificationTask | None) -> ClassificationTask:
    """Return the task that `classes` stand for, or the `known` one of the fit before."""
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
    def data(self) -> dict[str, object]:
        """What the fit was given, by name: it must be the same when it goes on."""
        data = self.arguments._asdict() | {"X_transfer": self.X_transfer}
        data["member_predictions"] = self.member_predictions
        if self.mode.before is not None:
            data["the fitted student"] = all_weights(self.mode.before.module)
        return {k: None if value is None else np.asarray(value) for k, value in data.items()}

    def draw_seeds(self, size: int) -> list[int]:
        """Draw seeds from `random_state`."""
        return self.random_state.randint(SEED_LIMIT, size=size).tolist()


@contextmanager
def begun(
    estimator: NetEstimator, spec: FitSpec, *, resumes: bool = True
) -> Iterator[tuple[FitSpec, ObservedTask]]:
    """Begin a fit, or go on from the estimator's checkpoint, and end it: of teacher and student.

    The estimator keeps what is known of it before it is trained.
    """
    estimator._keep({"_input_schema": spec.schema, **spec.plan.task.fitted_attributes})
    resumes = resumes and not spec.mode.is_pass and spec.settings.checkpoint is not None
    with (
        fit_task(estimator, for_callbacks(*spec.arguments), 2) as task,
        resumable(estimator, spec.random_state, spec.data)
        if resumes
        else nullcontext(spec.random_state) as random_state,
    ):
        yield replace(spec, random_state=random_state), task
