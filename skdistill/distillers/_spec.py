# SPDX-License-Identifier: BSD-3-Clause
"""The state of a distiller's fit as one value, read and checked before the teacher is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, check_random_state

from .._data.checks import check_trainable, is_stream
from .._data.columns import as_table, names_of_columns, with_days
from .._data.encoding import InputSettings
from .._data.schema import InputSchema
from .._estimator.base import Fitted, checked_training
from .._estimator.unwrapping import tags_of
from .._estimator.warm_start import all_weights, same_recipe, scaling_of
from .._method.plan import build_module
from .._method.task import Buffers, ClassificationTask
from .._training.samples import Stream, read_in_memory, refuse_with_stream
from .._training.trainer import SEED_LIMIT, Training
from .._utils.validation import errors_about
from .._utils.warnings import warn
from ..distributions import Calibratable
from ..pruning import ProximalStep
from ..settings import Runtime
from ..teachers import check_member_predictions
from ..transfer import (
    GaussianNoise,
    TransferMaker,
    TransferOnly,
    TransferSet,
    filled,
    make_transfer,
    numbered,
)

# What transfer="auto" stands for, by the kind of the student.
AUTO_NOISE: dict[str, TransferMaker] = {
    "regressor": GaussianNoise(correlated=True, categorical="auto"),
    "classifier": GaussianNoise(scale=1.0, correlated=True),
}

# See doc/design.rst.
_MANY_ROWS, _MANY_STREAMED = 50_000, 10_000  # samples, streamed ones, above which "auto" is None
_ROWS_LOOKED_AT = 2_000  # samples, at most, that tell whether noise leaves a table as it is
_LEAST_TO_SPREAD, _OTHER_UNIT = 10, 10.0  # samples, and ratio of ranges, that tell of other units

# What parameters must be where X gives batches, which are trained on as they are read.
_WITH_STREAM: dict[str, Any] = dict.fromkeys(
    ("teacher_cv", "memory", "runtime__checkpoint", "calibration_fraction")
) | {"warm_start": False}


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


class FitArguments(NamedTuple):
    """X, y and weights as the user has given them to `fit`, for the fit of the teacher."""

    X: Any
    y: Any
    sample_weight: Any


@dataclass(frozen=True, eq=False)
class FitSpec:
    """Everything that a fit needs; X, y and weight are of the samples of positive weight."""

    name: str  # of the estimator's class
    kind: str  # "classifier" or "regressor"
    params: dict[str, Any]  # of the estimator
    transfer: Any  # the parameter, without TransferOnly
    transfer_only: bool
    checkpoint: Any  # the parameter
    teacher: Any  # the parameter, or the estimator that None stands for
    training: Training
    random_state: np.random.RandomState
    before: Fitted | None  # the fit that training goes on from
    is_pass: bool  # one pass over samples, which others may follow, as in `partial_fit`
    arguments: FitArguments
    schema: InputSchema  # of X
    plan: Any
    recipe: Any
    scaling: Buffers
    X: np.ndarray
    y: np.ndarray  # encoded
    weight: np.ndarray
    X_transfer: np.ndarray
    stream: Stream | None  # of which X, y and weight are examples then
    X_monitor: np.ndarray | None = None  # of GPED
    maker: TransferMaker | None = None  # generates further samples for the teacher to predict
    member_predictions: np.ndarray | None = None  # (n, S, ...), encoded
    more_epochs: float = 1.0  # times those that max_epochs="auto" stands for

    @property
    def data(self) -> dict[str, object]:
        """What the fit was given, by name: it must be the same when it goes on."""
        data = self.arguments._asdict() | {"X_transfer": self.X_transfer}
        data["member_predictions"] = self.member_predictions
        if self.before is not None:
            data["the fitted student"] = all_weights(self.before.module)
        return {k: None if value is None else np.asarray(value) for k, value in data.items()}

    def draw_seeds(self, size: int) -> list[int]:
        """Draw seeds from `random_state`."""
        return self.random_state.randint(SEED_LIMIT, size=size).tolist()


def read_fit(
    estimator: Any,
    X: Any,
    y: object,
    sample_weight: object = None,
    X_transfer: object = None,
    member_predictions: object = None,
    *,
    is_pass: bool = False,
    classes: object = None,
    X_monitor: object = None,
) -> FitSpec:
    """Read what a fit needs, and check all that can be before it takes time; it ends here."""
    params, has_teacher = estimator.get_params(deep=False), member_predictions is None
    teacher = params["teacher"]
    teacher = estimator._default_teacher() if teacher is None else teacher
    if kind_of(teacher) is None:
        raise TypeError(
            "teacher must be a classifier or a regressor, or, with member_predictions, "
            "'classifier' or 'regressor'; skdistill.teachers.FittedModels makes one of fitted "
            f"models, or of torch modules. Got {teacher!r}."
        )
    if isinstance(teacher, str) and has_teacher:
        raise ValueError(
            f"teacher={teacher!r} goes with member_predictions, which are None; without "
            "them teacher must be an estimator."
        )
    modules = params["module"]
    if not (estimator._takes_model_classes and isinstance(modules, (list, tuple))):
        modules = [modules]
    training = checked_training(estimator, modules)
    transfer_only = isinstance(params["transfer"], TransferOnly)
    transfer = params["transfer"].transfer if transfer_only else params["transfer"]
    is_streamed = estimator._takes_streams and is_stream(X)
    if is_streamed:
        given = {"y": y, "sample_weight": sample_weight, "X_transfer": X_transfer}
        given["member_predictions"] = member_predictions
        refuse_with_stream(estimator.get_params(), _WITH_STREAM, given)
        if is_pass:
            raise TypeError("X must be an array or a frame in partial_fit; fit takes batches.")
    goes_on, share = is_pass or params.get("warm_start", False), params.get("calibration_fraction")
    before = Fitted.of(estimator) if goes_on else None
    pruning, random_state = params.get("pruning"), check_random_state(params["random_state"])
    runtime = Runtime.of(params["runtime"])
    if goes_on and pruning is not None:
        why = "partial_fit" if is_pass else "warm_start=True"
        raise ValueError(
            f"pruning must be None with {why}, as units are removed when training ends; got "
            f"{pruning!r}."
        )
    if before is None:
        estimator._reset()
    kind = estimator._kind
    auto = estimator._auto_transfer.get(kind, AUTO_NOISE[kind])
    if isinstance(transfer, str) and transfer == "auto":
        maker = auto if has_teacher else None
    else:
        maker = make_transfer(transfer)
        if maker is not None and not has_teacher:
            raise ValueError(
                "transfer must be 'auto' or None with member_predictions, which are known for X "
                f"alone; got {transfer!r}."
            )
    known: Any = None if before is None else before.plan.task
    if is_pass and kind == "classifier":
        if classes is None and known is None:
            raise ValueError(
                "classes must be the labels of all classes in the first call of partial_fit, whose "
                "y may lack some; got None."
            )
        if classes is not None:
            with errors_about("classes"):
                given_classes = ClassificationTask.of_labels(classes, "classes")
            if known is not None and not np.array_equal(given_classes.labels, known.labels):
                raise ValueError(
                    f"classes must be None or those of the fit before, {known.labels.tolist()}; "
                    f"got {given_classes.labels.tolist()}."
                )
            known = given_classes
    elif classes is not None:
        raise ValueError(f"classes must be None for a regressor, got {classes!r}.")
    n_embedded = estimator._embedded_from[kind]
    normalize_y, kept = params["normalize"] in (True, "y"), None

    stream, weight = None, None
    if is_streamed:
        is_noise = maker is None or type(maker) is GaussianNoise
        if transfer_only or not is_noise:
            raise ValueError(
                "transfer must be 'auto', 'noise' or None where X gives batches, since others draw "
                f"from all samples; got {params['transfer']!r}."
            )
        stream = Stream(estimator, X)
        schema, task, row_shape = stream.schema, stream.task, stream.row_shape
        reading = InputSettings.of(params, kind, schema.columns)
        plan, inputs = estimator._plan_of(task), stream.inputs(reading, n_embedded)
        recipe = estimator._recipe_of(plan, row_shape, inputs)
        scaling = stream.scaling(task, normalize_y)
        rows, encoded, weight = stream.encoded_examples(scaling)
        n_rows, many, arguments = stream.n_rows, _MANY_STREAMED, FitArguments(X, None, None)
    else:
        X = as_table(X)
        how = {"known": known, "is_pass": is_pass}
        read, kept, schema, task = read_in_memory(
            estimator, X, y, sample_weight, None, before, **how
        )
        (rows, targets, weight), plan = read, estimator._plan_of(task)
        reading = InputSettings.of(params, kind, schema.columns)
        inputs = read.inputs(reading, n_embedded)
        recipe = estimator._recipe_of(plan, rows.shape[1:], inputs)
        if before is None:
            scaling = read.scaling(task, normalize_y)
            is_scaled = is_pass and scaling and normalize_y
            if is_scaled and (targets == targets[0]).all(axis=0).any():
                warn(
                    "y of the first call of partial_fit is constant, and all later y keep its "
                    "scale, 1. Where they vary, begin with samples that tell their scale."
                )
        else:
            recipe, scaling = same_recipe(before.recipe, recipe), scaling_of(before.module)
        if np.asarray(y).shape[1:] == (1,):
            y = np.asarray(y).ravel()  # a column: warned of once, not by the teacher again
        encoded = task.encode(targets, scaling, rows.dtype)
        weight = np.ones(len(rows)) if weight is None else weight
        n_rows, many, arguments = len(rows), _MANY_ROWS, FitArguments(X, y, sample_weight)

    if is_pass:  # whose learning rate is constant, and which has all the time it takes
        training = replace(training, lr_schedule=None, budget=None)
    elif (budget := training.budget) and share is not None:
        # Half of the time is for the second student, by which this one is calibrated.
        training = replace(training, budget=budget.less(budget.seconds / 2))
    of_estimator = type(estimator).__name__, kind, params, transfer, transfer_only
    of_training = runtime.checkpoint, teacher, training, random_state
    of_data: Any = arguments, schema, plan, recipe, scaling, rows, encoded, weight, rows[:0], stream
    spec = FitSpec(*of_estimator, *of_training, before, is_pass, *of_data)
    if transfer == "auto" and kind == "regressor" and n_rows > many:
        maker = None
    maker = maker_that_changes(spec, maker)
    if X_transfer is not None:
        spec = replace(spec, X_transfer=check_further_rows(spec, X_transfer, "X_transfer"))
    elif transfer_only and (maker is None or maker.keeps_labels):
        raise ValueError(
            "transfer=TransferOnly(...) needs X_transfer in fit, or a transfer that makes samples; "
            f"got None and TransferOnly({transfer!r})."
        )
    if X_monitor is not None:
        if not has_teacher:
            raise ValueError(
                "X_monitor must be None with member_predictions, which are for X alone."
            )
        spec = replace(spec, X_monitor=check_further_rows(spec, X_monitor, "X_monitor"))
    # A module that does not fit is found here, before the teacher is fitted.
    module = build_module(plan, recipe, [0], torch.float64)
    if pruning is not None:
        # It raises for modules that cannot be pruned.
        ProximalStep(module, pruning.strength, pruning.weighted)
    if share is not None:
        if is_pass or not has_teacher:
            what = "partial_fit" if is_pass else "member_predictions"
            raise ValueError(f"calibration_fraction must be None with {what}; got {share!r}.")
        found = module.distribution(torch.zeros(1, *recipe.row_shape, dtype=torch.float64))
        if not isinstance(found, Calibratable):
            raise ValueError(
                f"calibration_fraction must be None for a student that predicts a "
                f"{type(found).__name__}, whose epistemic part cannot be changed for each target "
                f"by itself; got {share!r}."
            )
    if not has_teacher:
        is_kind = isinstance(teacher, str) and teacher == kind
        is_teacher = params["teacher"] is not None and not is_kind
        if is_teacher or params["teacher_cv"] is not None or len(spec.X_transfer):
            raise ValueError(
                "member_predictions come instead of a teacher: teacher, teacher_cv and X_transfer "
                f"must be None; got teacher={params['teacher']!r}, teacher_cv="
                f"{params['teacher_cv']!r} and X_transfer with {len(spec.X_transfer)} samples."
            )
        members = check_member_predictions(
            member_predictions, len(arguments.y), name="member_predictions", **task.shape_of_members
        )
        members = plan.encode_members(members[kept], scaling, rows.dtype)
        return replace(spec, maker=maker, member_predictions=members)
    return replace(spec, maker=maker)


def maker_that_changes(spec: FitSpec, maker: TransferMaker | None) -> TransferMaker | None:
    """Return a transfer-set generator, checked and told of categories; None without effect."""
    if maker is None:
        return None
    rows, columns = spec.X, spec.schema.columns
    maker = numbered(maker, spec.schema.names)
    maker.check(rows.shape)
    if not len(rows):
        return maker
    # A copy: X may be a memory map.
    some = torch.from_numpy(rows[:: -(-len(rows) // _ROWS_LOOKED_AT)].copy())
    some = filled(some) if some.ndim == 2 else some
    maker = maker if columns is None else _knowing(maker, some, list(columns.categories))
    return maker if maker.changes(some) else None


def _knowing(maker: TransferMaker, some: torch.Tensor, categorical: Sequence[int]) -> TransferMaker:
    """Return a maker that treats further columns as categorical."""
    settings: dict[str, Any] = maker.get_params(deep=False)
    changed: dict[str, Any] = {}
    if "categorical" in settings:
        variables, mask = maker._variables(some.shape), maker._is_categorical(some)
        of_maker = [] if mask is None else mask.nonzero().flatten().tolist()
        for column in [*of_maker, *categorical]:
            if not any(column in variable for variable in variables):
                variables.append((column,))
        changed["categorical"] = variables
    if settings.get("base") is not None:
        changed["base"] = _knowing(settings["base"], some, categorical)
    return clone(maker).set_params(**changed)


def check_further_rows(spec: FitSpec, given: Any, name: str) -> np.ndarray:
    """Return samples, an array or a TransferSet, checked to have the shape and columns of X."""
    X, columns = spec.X, spec.schema.columns
    given = given.rows if isinstance(given, TransferSet) else given
    row_shape = X.shape[1:]
    with errors_about(name):
        if len(given) == 0:
            raise ValueError(f"{name} must have at least one sample, or be None; got none.")
        names = names_of_columns(given)
        given = with_days(as_table(given, name))
        given = given if columns is None else columns.encode(given, is_training=True)
        reads_missing = spec.params["normalize"] in (True, "X")
        may_lack = "allow-nan" if X.ndim == 2 and reads_missing else True
        settings = {"allow_nd": True, "ensure_all_finite": may_lack}
        rows = check_array(given, dtype=X.dtype, input_name=name, **settings)
    if rows.shape[1:] != row_shape:
        raise ValueError(
            f"{name} must have {row_shape[0]} columns as X has, got {rows.shape[1]}."
            if rows.ndim == len(row_shape) + 1 == 2
            else f"{name} must have samples of shape {row_shape} as X has, got {rows.shape[1:]}."
        )
    check_names(spec, names, f"{name} has")
    check_trainable(rows, X.dtype, name)
    if X.ndim > 2:
        return rows
    # Samples of other units are all beyond X by more than its range, or their range is ten times as
    # wide, or a tenth, in most features.
    low, high = np.fmin.reduce(X), np.fmax.reduce(X)
    bottom, top = np.fmin.reduce(rows), np.fmax.reduce(rows)
    widths = high - low, top - bottom
    is_other = (top < low - widths[0]) | (bottom > high + widths[0])
    if len(rows) >= _LEAST_TO_SPREAD:
        is_other |= np.maximum(*widths) > _OTHER_UNIT * np.minimum(*widths)
    if 2 * np.count_nonzero(is_other & (widths[0] > 0)) > X.shape[1]:
        warn(
            f"{name} seems to have other units than X in most features: has one of them been "
            "scaled, and not the other? A Pipeline transforms X only. So that its steps transform "
            f"{name} too, call sklearn.set_config(enable_metadata_routing=True) and the student's "
            f"set_fit_request({name}=True), and give Pipeline(..., transform_input=['{name}'])."
        )
    return rows


def check_names(spec: FitSpec, names: Iterable[str] | None, whose: str) -> None:
    """Hold the names of columns, if there are any, against those of X."""
    own_names = spec.schema.names
    if names is not None and own_names is not None and list(names) != list(own_names):
        raise ValueError(f"{whose} the columns {list(names)}, but X has {list(own_names)}.")
