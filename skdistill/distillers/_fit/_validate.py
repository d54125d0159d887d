# SPDX-License-Identifier: BSD-3-Clause
"""What is checked and decided before a distiller fits its teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_array, check_random_state

from ..._data.checks import check_trainable
from ..._data.columns import Columns, as_table, with_days
from ..._data.encoding import EMBEDDED_FROM, InputEncoding, InputSettings
from ..._estimator.base import NetworkSettings, checked_training, for_callbacks, reset_fitted
from ..._estimator.unwrapping import pipelines_around
from ..._estimator.warm_start import all_weights, same_recipe
from ..._method.plan import Plan, build_module
from ..._method.task import Buffers, Task
from ..._training.resume import resumable
from ..._training.stream import Stream, refuse_with_stream
from ..._training.trainer import SEED_LIMIT, Training
from ..._utils.ranks import current_ranks
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
from ._fit_mode import FitMode

# What transfer="auto" stands for, by the kind of the student; a class may have an `_auto_noise`.
_AUTO_NOISE = {
    "regressor": GaussianNoise(correlated=True, categorical="auto"),
    "classifier": GaussianNoise(scale=1.0, correlated=True),
}

# From more samples than so many on, "auto" is None for numbers: samples lie so close that new ones
# tell a student less than more epochs do. Of a stream, whose new samples the teacher is asked about
# in every epoch, this holds for fewer.
_MANY_ROWS, _MANY_STREAMED = 50_000, 10_000

# Rows, at most, that tell whether noise leaves a table as it is.
_ROWS_LOOKED_AT = 2_000


class FitArguments(NamedTuple):
    """X, y and weights as the user has given them to `fit`, for the fit of the teacher."""

    X: Any
    y: Any
    sample_weight: Any


class Setup(NamedTuple):
    """What is known before the teacher is fitted; X, y and weights of rows of positive weight."""

    arguments: FitArguments
    training: Training
    random_state: np.random.RandomState
    plan: Any
    recipe: Any
    scaling: Buffers
    X: np.ndarray
    y: np.ndarray  # encoded
    weight: np.ndarray
    X_transfer: np.ndarray
    maker: TransferMaker | None  # generates further rows for the teacher to predict
    member_predictions: np.ndarray | None  # (n, S, ...), encoded
    fit_mode: FitMode
    stream: Stream | None = None  # of which X, y and weight are examples then
    columns: Columns | None = None  # those of X that hold categories

    @property
    def dtype(self) -> np.dtype:
        """What is computed in."""
        return self.X.dtype

    @contextmanager
    def resumable(self, distiller: Any) -> Iterator[Setup]:
        """Let a fit go on from the distiller's checkpoint; gives the setup to go on with."""
        if self.fit_mode.is_pass:
            yield self
            return
        if current_ranks() is not None and distiller.checkpoint is not None:
            raise ValueError(
                "checkpoint must be None within data_parallel, whose ranks would write the same "
                f"file; got {distiller.checkpoint!r}."
            )
        if current_ranks() is not None and distiller.max_time is not None:
            raise ValueError(
                "max_time must be None within data_parallel, whose ranks take every step together "
                f"and have a clock each; got {distiller.max_time!r}."
            )
        X, y, sample_weight = self.arguments
        data = {
            "X": X,
            "y": y,
            "sample_weight": sample_weight,
            "X_transfer": self.X_transfer,
            "member_predictions": self.member_predictions,
        }
        if self.fit_mode.goes_on:
            data["the fitted student"] = all_weights(distiller.module_)
        with resumable(distiller, self.random_state, data) as random_state:
            yield self._replace(random_state=random_state)

    @property
    def example_of_X(self) -> Any:
        """Rows as the user has given them, for frames like theirs."""
        return self.arguments.X if self.stream is None else self.stream.first_X

    @property
    def for_callbacks(self) -> dict[str, Any]:
        """What scikit-learn's callbacks hear of, as keywords of their hooks."""
        return for_callbacks(*self.arguments)

    def draw_seeds(self, size: int) -> list[int]:
        """Draw seeds from `random_state`, which is that of the first of several ranks."""
        seeds = self.random_state.randint(SEED_LIMIT, size=size).tolist()
        ranks = current_ranks()
        return seeds if ranks is None else ranks.of_first(seeds)


def _recipe(
    distiller: Any, plan: Plan, row_shape: tuple[int, ...], inputs: InputEncoding | None
) -> Any:
    """Return how to build the networks of a plan."""
    return NetworkSettings.of(distiller).recipe(plan, row_shape, inputs)


def set_up(
    distiller: Any,
    plan_of: Callable[[Task], Plan],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    X_transfer: Any = None,
    member_predictions: Any = None,
    *,
    recipes_of: Callable[..., Any] = _recipe,
    modules: list[Any] | None = None,
    fit_mode_of: Callable[[Any], FitMode] | None = None,
    embedded_from: int = EMBEDDED_FROM,
) -> Setup:
    """Check everything that can be checked before the teacher is fitted, which takes time.

    Parameters
    ----------
    distiller : estimator
        Its parameters are checked, and it gets the attributes that describe X and y.
    plan_of : callable
        Makes the plan of the task, and raises for parameters that do not go together.
    X, y, sample_weight, X_transfer, member_predictions
        As given to `fit`.
    recipes_of : callable
        Returns how to build the networks of the plan for rows of a shape, and their encoding.
    modules : list, default=None
        The model classes where `module` may give several.
    fit_mode_of : callable, default=None
        Returns which part of the distiller's training this is; None is all of it.
    embedded_from : int, default=200
        Rows of a table that ``module__embeddings="auto"`` embeds, at least.
    """
    training = checked_training(distiller, modules)
    X = as_table(X)
    random_state = check_random_state(distiller.random_state)
    fit_mode = FitMode() if fit_mode_of is None else fit_mode_of(distiller)
    X_checked, y_checked, task = fit_mode.begin(distiller, X, y)
    plan = plan_of(task)
    weight = task.weights_of_rows(y_checked, sample_weight)
    # A slice copies nothing: X may be a memory map.
    kept: Any = slice(None) if weight is None or weight.all() else weight > 0
    rows, targets = X_checked[kept], y_checked[kept]
    kept_weight = None if weight is None else weight[kept]
    inputs = InputSettings.of(distiller).encoding(rows, targets, kept_weight, embedded_from)
    recipe = recipes_of(distiller, plan, rows.shape[1:], inputs)
    recipe = same_recipe(distiller._recipe, recipe) if fit_mode.goes_on else recipe
    maker = transfer_maker(distiller, len(rows), member_predictions is None, _MANY_ROWS)
    maker = maker_that_changes(distiller, maker, rows)
    transfer_rows = check_transfer_rows(distiller, X_transfer, rows, maker)
    # A module that does not fit is found before the teacher is fitted.
    check_student(distiller, plan, recipe, fit_mode, member_predictions is None)
    scaling = fit_mode.scaling(distiller, task, targets, kept_weight, rows.dtype)
    if member_predictions is not None:
        refuse_teacher(distiller, transfer_rows)
        members = _checked_members(member_predictions, len(X_checked), task)
        member_predictions = plan.encode_members(members[kept], scaling, rows.dtype)
    if np.asarray(y).shape[1:] == (1,):
        y = np.asarray(y).ravel()  # a column: warned of once, not by the teacher again
    return Setup(
        FitArguments(X, y, sample_weight),
        _keeping_time(distiller, fit_mode.adapted(training)),
        random_state,
        plan,
        recipe,
        scaling,
        rows,
        task.encode(targets, scaling, rows.dtype),
        np.ones(len(rows)) if kept_weight is None else kept_weight,
        transfer_rows,
        maker,
        member_predictions,
        fit_mode,
        columns=distiller._columns,
    )


def _keeping_time(distiller: Any, training: Training) -> Training:
    """Return how to train with time left, of `max_time`, for the student to calibrate on."""
    budget = training.budget
    if budget is None or getattr(distiller, "calibration_fraction", None) is None:
        return training
    return replace(training, budget=budget.keeping(budget.seconds / 2))


def _checked_members(given: Any, n_rows: int, task: Task) -> np.ndarray:
    """Check `member_predictions` for so many rows."""
    expected = task.shape_of_members
    return check_member_predictions(given, n_rows, name="member_predictions", **expected)


# What parameters must be where X gives batches, which are trained on as they are read.
_WITH_STREAM = {
    "transfer_only": False,
    "teacher_cv": None,
    "memory": None,
    "warm_start": False,
    "checkpoint": None,
    "calibration_fraction": None,
}


def set_up_stream(
    distiller: Any,
    plan_of: Callable[[Task], Plan],
    X: Any,
    y: Any,
    sample_weight: Any,
    X_transfer: Any,
    member_predictions: Any,
    *,
    fit_mode_of: Callable[[Any], FitMode],
) -> Setup:
    """Do what :func:`set_up` does where X gives batches, which are read once for it."""
    training = checked_training(distiller)
    arguments = {"y": y, "sample_weight": sample_weight, "X_transfer": X_transfer}
    arguments["member_predictions"] = member_predictions
    refuse_with_stream(distiller, _WITH_STREAM, arguments)
    fit_mode = fit_mode_of(distiller)
    if fit_mode.is_pass:
        raise TypeError("X must be an array or a frame in partial_fit; fit takes batches.")
    # Refused before X is read, which takes long; only then its rows are counted.
    maker = transfer_maker(distiller, 0, True, _MANY_STREAMED)
    if not (maker is None or type(maker) is GaussianNoise):
        raise ValueError(
            "transfer must be 'auto', 'noise' or None where X gives batches, since others draw "
            f"from all rows; got {distiller.transfer!r}."
        )
    random_state = check_random_state(distiller.random_state)
    reset_fitted(distiller)
    stream = Stream(distiller, X)
    maker = transfer_maker(distiller, stream.n_rows, True, _MANY_STREAMED)
    vars(distiller).update(stream.task.fitted_attributes)
    plan = plan_of(stream.task)
    inputs = stream.inputs(InputSettings.of(distiller), EMBEDDED_FROM)
    recipe = _recipe(distiller, plan, stream.row_shape, inputs)
    check_student(distiller, plan, recipe, fit_mode, True)
    scaling = stream.scaling(stream.task, getattr(distiller, "normalize_y", True))
    examples = stream.encoded_examples(scaling)
    maker = maker_that_changes(distiller, maker, examples.X)
    return Setup(
        FitArguments(X, None, None),
        training,
        random_state,
        plan,
        recipe,
        scaling,
        *examples,
        X_transfer=examples.X[:0],
        maker=maker,
        member_predictions=None,
        fit_mode=fit_mode,
        stream=stream,
        columns=distiller._columns,
    )


def check_student(
    distiller: Any, plan: Plan, recipe: Any, fit_mode: FitMode, has_teacher: bool
) -> None:
    """Raise a ValueError for modules that do not fit, and for what needs others than these."""
    module = build_module(plan, recipe, [0], torch.float64)
    group_lasso(distiller, module)
    share = getattr(distiller, "calibration_fraction", None)
    if share is None:
        return
    refused = {"member_predictions": not has_teacher, "partial_fit": fit_mode.is_pass}
    for what, is_given in refused.items():
        if is_given:
            raise ValueError(f"calibration_fraction must be None with {what}; got {share!r}.")
    found = module.distribution(torch.zeros(1, *recipe.row_shape, dtype=torch.float64))
    if not isinstance(found, Calibratable):
        raise ValueError(
            f"calibration_fraction must be None for a student that predicts a "
            f"{type(found).__name__}, whose epistemic part cannot be changed for each target by "
            f"itself; got {share!r}."
        )


def group_lasso(distiller: Any, module: Any) -> ProximalStep | None:
    """Return the proximal step, if there is one; raise for modules that cannot be pruned."""
    pruning = getattr(distiller, "pruning", None)  # a booster has none
    return None if pruning is None else ProximalStep(module, pruning.strength)


def transfer_maker(
    distiller: Any, n_rows: int, has_teacher: bool, many: int
) -> TransferMaker | None:
    """Return what generates rows for the teacher to predict; None without a teacher."""
    auto = getattr(distiller, "_auto_noise", _AUTO_NOISE[distiller._kind])
    if isinstance(distiller.transfer, str) and distiller.transfer == "auto":
        if not has_teacher or (distiller._kind == "regressor" and n_rows > many):
            return None
        return auto
    maker = make_transfer(distiller.transfer)
    if isinstance(maker, Disagreement) and maker.base is None:
        maker = clone(maker).set_params(base=auto)
    if maker is not None and not has_teacher:
        raise ValueError(
            "transfer must be 'auto' or None with member_predictions, which are known for X "
            f"alone; got {distiller.transfer!r}."
        )
    return maker


def maker_that_changes(
    distiller: Any, maker: TransferMaker | None, rows: np.ndarray
) -> TransferMaker | None:
    """Check the maker, and return it, or None for one that leaves rows as they are.

    The codes of columns that hold categories are left alone, or exchanged.
    """
    columns: Columns | None = distiller._columns
    if maker is not None:
        maker = numbered(maker, getattr(distiller, "feature_names_in_", None))
        maker.check(rows.shape)
    if maker is None or not len(rows):
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
        variables = maker._variables_of(some)
        known = {column for variable in variables for column in variable}
        further = [(column,) for column in categorical if column not in known]
        changed["categorical"] = [*variables, *further]
    if settings.get("base") is not None:
        changed["base"] = _knowing(settings["base"], some, categorical)
    return clone(maker).set_params(**changed)


def refuse_teacher(distiller: Any, transfer_rows: np.ndarray) -> None:
    """Raise a ValueError for a teacher, or rows for it to predict, beside its predictions."""
    is_kind = isinstance(distiller.teacher, str) and distiller.teacher == distiller._kind
    has_teacher = distiller.teacher is not None and not is_kind
    if has_teacher or distiller.teacher_cv is not None or len(transfer_rows):
        raise ValueError(
            "member_predictions come instead of a teacher: teacher, teacher_cv and X_transfer "
            f"must be None; got teacher={distiller.teacher!r}, teacher_cv="
            f"{distiller.teacher_cv!r} and X_transfer with {len(transfer_rows)} rows."
        )


def check_transfer_rows(
    distiller: Any, X_transfer: Any, X: np.ndarray, maker: TransferMaker | None
) -> np.ndarray:
    """Return the rows of `X_transfer`, checked; none for None."""
    if X_transfer is not None:
        return check_further_rows(distiller, X_transfer, X, "X_transfer")
    if distiller.transfer_only and (maker is None or maker.keeps_labels):
        raise ValueError(
            "transfer_only=True needs X_transfer in fit, or a transfer that makes rows; "
            f"got None and transfer={distiller.transfer!r}."
        )
    return X[:0]


def check_further_rows(distiller: Any, given: Any, X: np.ndarray, name: str) -> np.ndarray:
    """Return rows, an array or a TransferSet, checked to have the shape and columns of X."""
    _warn_of_steps_left_out(distiller, name)
    given = given.rows if isinstance(given, TransferSet) else given
    row_shape = X.shape[1:]
    with errors_about(name):
        if len(given) == 0:
            raise ValueError(f"{name} must have at least one row, or be None; got none.")
        columns, names = distiller._columns, getattr(given, "columns", None)
        given = with_days(as_table(given, name))
        given = given if columns is None else columns.encode(given, is_training=True)
        may_lack = "allow-nan" if X.ndim == 2 and distiller.normalize_X else True
        settings = {"allow_nd": True, "ensure_all_finite": may_lack}
        rows = check_array(given, dtype=X.dtype, input_name=name, **settings)
    if rows.shape[1:] != row_shape:
        raise ValueError(
            f"{name} must have {row_shape[0]} columns as X has, got {rows.shape[1]}."
            if rows.ndim == len(row_shape) + 1 == 2
            else f"{name} must have rows of shape {row_shape} as X has, got {rows.shape[1:]}."
        )
    check_names(distiller, names, f"{name} has")
    check_trainable(rows, X.dtype, name)
    return rows


def _warn_of_steps_left_out(distiller: Any, name: str) -> None:
    """Warn of further rows, the argument `name`, where a Pipeline has transformed X only."""
    if all(name in (pipeline.transform_input or ()) for pipeline in pipelines_around()):
        return
    warn(
        f"{name} is used as it was given, while the steps of a Pipeline before "
        f"{type(distiller).__name__} have transformed X. So that they transform {name} too, call "
        "sklearn.set_config(enable_metadata_routing=True) and the student's "
        f"set_fit_request({name}=True), and give Pipeline(..., transform_input=['{name}'])."
    )


def check_names(distiller: Any, names: Any, whose: str) -> None:
    """Hold the names of columns, if there are any, against those of X."""
    own_names = getattr(distiller, "feature_names_in_", None)
    if names is not None and own_names is not None and list(names) != list(own_names):
        raise ValueError(f"{whose} the columns {list(names)}, but X has {list(own_names)}.")
