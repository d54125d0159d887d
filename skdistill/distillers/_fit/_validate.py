# SPDX-License-Identifier: BSD-3-Clause
"""What is read, checked and decided before a distiller fits its teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_array, check_random_state

from ..._data.checks import check_trainable
from ..._data.columns import as_table, names_of_columns, with_days
from ..._data.encoding import EMBEDDED_FROM, InputSettings
from ..._estimator.base import Fitted, NetEstimator, NetworkSettings, checked_training
from ..._estimator.warm_start import in_dtype_of, same_recipe, scaling_of
from ..._method.plan import Plan, build_module
from ..._method.task import TASKS, Task, prepare_to_compute, read_samples
from ..._training.stream import Stream, refuse_with_stream
from ..._utils.validation import errors_about
from ..._utils.warnings import warn
from ...distributions import Calibratable
from ...pruning import ProximalStep
from ...teachers import check_member_predictions
from ...transfer import (
    Disagreement,
    GaussianNoise,
    TransferMaker,
    TransferSet,
    filled,
    make_transfer,
    numbered,
)
from ._spec import FitArguments, FitMode, FitSpec, StudentSettings
from ._teacher import check_names

# What transfer="auto" stands for, by the kind of the student.
AUTO_NOISE = {
    "regressor": GaussianNoise(correlated=True, categorical="auto"),
    "classifier": GaussianNoise(scale=1.0, correlated=True),
}

# From more samples than so many on, "auto" is None for numbers: samples lie so close that new ones
# tell a student less than more epochs do. Of a stream, whose new samples the teacher is asked about
# in every epoch, this holds for fewer.
_MANY_ROWS, _MANY_STREAMED = 50_000, 10_000

# Samples, at most, that tell whether noise leaves a table as it is.
_ROWS_LOOKED_AT = 2_000

# Further samples, at least, and the factor between widths of ranges, that tell of other units.
_LEAST_TO_SPREAD, _OTHER_UNIT = 10, 10.0

# What parameters must be where X gives batches, which are trained on as they are read.
_WITH_STREAM = {
    "teacher_cv": None,
    "memory": None,
    "warm_start": False,
    "runtime__checkpoint": None,
    "calibration_fraction": None,
}


def fit_spec(
    estimator: NetEstimator,
    plan_of: Callable[[Task], Plan],
    X: Any,
    y: object,
    sample_weight: object,
    X_transfer: object,
    member_predictions: object,
    *,
    is_pass: bool = False,
    classes: object = None,
    recipe_of: Callable[..., Any] | None = None,
    modules: list[object] | None = None,
    embedded_from: int = EMBEDDED_FROM,
    auto_transfer: TransferMaker | None = None,
) -> FitSpec:
    """Read what the fit of a distiller needs, and check all that can be before it takes time.

    Nothing that the fit calls later gets the estimator. `plan_of` makes the plan of the task, and
    `recipe_of` tells how to build networks for rows of a shape, and their encoding; `is_pass` is
    True and `classes` are given in `partial_fit`. `modules` are the model classes where `module`
    may give several; tables of `embedded_from` samples and more are embedded, and `auto_transfer`
    is what ``transfer="auto"`` stands for, unless it is as usual.
    """
    training, fitted = checked_training(estimator, modules), Fitted.of(estimator)
    settings = StudentSettings.of(estimator)
    mode = FitMode.of(settings, fitted, is_pass, classes)
    before, random_state = mode.before, check_random_state(settings.random_state)
    X = as_table(X)
    if before is None:
        estimator._reset()
        settings = replace(settings, kind=estimator._kind)  # that of the teacher, not of before
    known = None if before is None else estimator._input_schema
    rows, y_read, schema = read_samples(estimator, X, y, known)
    check: Callable[..., Any] = TASKS[settings.kind].check
    targets, task = check(y_read, mode.task)
    if before is not None:
        schema = schema.with_further(X, rows) if mode.is_pass else schema
        rows, task = in_dtype_of(before.module, rows), replace(task, dtype=before.plan.task.dtype)
    elif settings.dtype is not None:
        rows, task = prepare_to_compute(settings.dtype, settings.device, rows, task)
    plan = plan_of(task)
    given = task.weights_of_rows(targets, sample_weight)
    # A slice copies nothing: X may be a memory map.
    kept: Any = slice(None) if given is None or given.all() else given > 0
    rows, targets, weight = rows[kept], targets[kept], None if given is None else given[kept]
    params, defaults = estimator.get_params(deep=False), estimator._module_defaults[settings.kind]
    reading = InputSettings.of(params, settings.kind, schema.columns)
    inputs = reading.encoding(rows, targets, weight, embedded_from)
    recipe_of = recipe_of or NetworkSettings.of(params, defaults).recipe
    recipe = recipe_of(plan, rows.shape[1:], inputs)
    if before is None:
        is_scaled = settings.normalize in (True, "y")
        scaling = task.scaling(targets, weight, rows.dtype, is_scaled)
        if mode.is_pass and scaling and is_scaled and (targets == targets[0]).all(axis=0).any():
            warn(
                "y of the first call of partial_fit is constant, and all later y keep its scale, "
                "1. Where they vary, begin with samples that tell their scale."
            )
    else:
        recipe, scaling = same_recipe(before.recipe, recipe), scaling_of(before.module)
    if np.asarray(y).shape[1:] == (1,):
        y = np.asarray(y).ravel()  # a column: warned of once, not by the teacher again
    read_once = settings, mode, training, FitArguments(X, y, sample_weight), random_state
    samples = rows, task.encode(targets, scaling, rows.dtype)
    weight = np.ones(len(rows)) if weight is None else weight
    spec = FitSpec(*read_once, schema, plan, recipe, scaling, *samples, weight, rows[:0])
    return _with_transfer(spec, auto_transfer, X_transfer, member_predictions, kept)


def stream_spec(
    estimator: NetEstimator,
    plan_of: Callable[[Task], Plan],
    X: ArrayLike,
    *arguments: object,
    is_pass: bool = False,
    classes: object = None,
    auto_transfer: TransferMaker | None = None,
) -> FitSpec:
    """Do what :func:`fit_spec` does where X gives batches, which are read once for it."""
    training, settings = checked_training(estimator), StudentSettings.of(estimator)
    names = "y", "sample_weight", "X_transfer", "member_predictions"
    given = dict(zip(names, arguments, strict=True))
    refuse_with_stream(estimator.get_params(), _WITH_STREAM, given)
    mode = FitMode.of(settings, Fitted.of(estimator), is_pass, classes)
    if is_pass:
        raise TypeError("X must be an array or a frame in partial_fit; fit takes batches.")
    # Refused before X is read, which takes long; only then its samples are counted.
    maker = transfer_maker(settings, auto_transfer, 0, True, _MANY_STREAMED)
    if settings.transfer_only or not (maker is None or type(maker) is GaussianNoise):
        raise ValueError(
            "transfer must be 'auto', 'noise' or None where X gives batches, since others draw "
            f"from all samples; got {estimator.transfer!r}."
        )
    random_state = check_random_state(settings.random_state)
    estimator._reset()
    settings = replace(settings, kind=estimator._kind)  # that of the teacher, not of before
    stream = Stream(estimator, X)
    plan = plan_of(stream.task)
    params, defaults = estimator.get_params(deep=False), estimator._module_defaults[settings.kind]
    reading = InputSettings.of(params, settings.kind, stream.schema.columns)
    inputs = stream.inputs(reading, EMBEDDED_FROM)
    recipe = NetworkSettings.of(params, defaults).recipe(plan, stream.row_shape, inputs)
    scaling = stream.scaling(stream.task, settings.normalize in (True, "y"))
    examples = stream.encoded_examples(scaling)
    read_once = settings, mode, training, FitArguments(X, None, None), random_state
    parts = *read_once, stream.schema, plan, recipe, scaling, *examples
    spec = FitSpec(*parts, examples.X[:0], stream=stream)
    check_student(spec, True)
    maker = transfer_maker(settings, auto_transfer, stream.n_rows, True, _MANY_STREAMED)
    return replace(spec, maker=maker_that_changes(spec, maker))


def _with_transfer(
    spec: FitSpec, auto: TransferMaker | None, X_transfer: Any, member_predictions: Any, kept: Any
) -> FitSpec:
    """Return what to fit with further samples, and with predictions of members if they are given.

    A module that does not fit is found here, before the teacher is fitted. `kept` are the samples
    of positive weight.
    """
    settings, training, has_teacher = spec.settings, spec.training, member_predictions is None
    if spec.mode.is_pass:  # whose learning rate is constant, and which has all the time it takes
        training = replace(training, lr_schedule=None, budget=None)
    elif (budget := training.budget) and settings.calibration_fraction is not None:
        # Half of the time is for the second student, by which this one is calibrated.
        training = replace(training, budget=budget.keeping(budget.seconds / 2))
    maker = transfer_maker(settings, auto, len(spec.X), has_teacher, _MANY_ROWS)
    maker = maker_that_changes(spec, maker)
    further = spec.X[:0]
    if X_transfer is not None:
        further = check_further_rows(spec, X_transfer, "X_transfer")
    elif settings.transfer_only and (maker is None or maker.keeps_labels):
        raise ValueError(
            "transfer=TransferOnly(...) needs X_transfer in fit, or a transfer that makes samples; "
            f"got None and TransferOnly({settings.transfer!r})."
        )
    check_student(spec, has_teacher)
    spec = replace(spec, training=training, maker=maker, X_transfer=further)
    if has_teacher:
        return spec
    is_kind = isinstance(settings.teacher, str) and settings.teacher == settings.kind
    is_teacher = settings.teacher is not None and not is_kind
    if is_teacher or settings.teacher_cv is not None or len(further):
        raise ValueError(
            "member_predictions come instead of a teacher: teacher, teacher_cv and X_transfer "
            f"must be None; got teacher={settings.teacher!r}, teacher_cv="
            f"{settings.teacher_cv!r} and X_transfer with {len(further)} samples."
        )
    expected, n_rows = spec.plan.task.shape_of_members, len(spec.arguments.y)
    members = check_member_predictions(
        member_predictions, n_rows, name="member_predictions", **expected
    )
    encoded = spec.plan.encode_members(members[kept], spec.scaling, spec.X.dtype)
    return replace(spec, member_predictions=encoded)


def check_student(spec: FitSpec, has_teacher: bool) -> None:
    """Raise a ValueError for modules that do not fit, and for what needs others than these."""
    module = build_module(spec.plan, spec.recipe, [0], torch.float64)
    share, pruning = spec.settings.calibration_fraction, spec.settings.pruning
    if pruning is not None:
        ProximalStep(module, pruning.strength)  # it raises for modules that cannot be pruned
    if share is None:
        return
    refused = {"member_predictions": not has_teacher, "partial_fit": spec.mode.is_pass}
    for what, is_given in refused.items():
        if is_given:
            raise ValueError(f"calibration_fraction must be None with {what}; got {share!r}.")
    found = module.distribution(torch.zeros(1, *spec.recipe.row_shape, dtype=torch.float64))
    if not isinstance(found, Calibratable):
        raise ValueError(
            f"calibration_fraction must be None for a student that predicts a "
            f"{type(found).__name__}, whose epistemic part cannot be changed for each target by "
            f"itself; got {share!r}."
        )


def transfer_maker(
    settings: StudentSettings, auto: TransferMaker | None, n_rows: int, has_teacher: bool, many: int
) -> TransferMaker | None:
    """Return what generates samples for the teacher to predict; None without a teacher."""
    auto = auto or AUTO_NOISE[settings.kind]
    if isinstance(settings.transfer, str) and settings.transfer == "auto":
        if not has_teacher or (settings.kind == "regressor" and n_rows > many):
            return None
        return auto
    maker = make_transfer(settings.transfer)
    if isinstance(maker, Disagreement) and maker.base is None:
        maker = clone(maker).set_params(base=auto)
    if maker is not None and not has_teacher:
        raise ValueError(
            "transfer must be 'auto' or None with member_predictions, which are known for X "
            f"alone; got {settings.transfer!r}."
        )
    return maker


def maker_that_changes(spec: FitSpec, maker: TransferMaker | None) -> TransferMaker | None:
    """Check the maker, and return it, or None for one that leaves samples as they are.

    The codes of columns that hold categories are left alone, or exchanged.
    """
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
        reads_missing = spec.settings.normalize in (True, "X")
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
    if X.ndim == 2:
        _warn_of_other_units(X, rows, name)
    return rows


def _warn_of_other_units(X: np.ndarray, rows: np.ndarray, name: str) -> None:
    """Warn of further samples that seem to have other units than X, in most features.

    They are all beyond X by more than its range, or their range is ten times as wide, or a tenth.
    """
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
