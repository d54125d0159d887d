# SPDX-License-Identifier: BSD-3-Clause
"""What a distiller knows before its teacher is fitted: checked rows, and what the student is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state

from .._checks import check_trainable
from .._estimator import checked_training, forget, recipe_for
from .._plans import Plan, build_module
from .._rules import errors_about
from .._tasks import TASKS, Buffers, Task
from .._training import SEED_LIMIT, Training
from ..pruning import GroupLasso
from ..teachers import check_member_predictions
from ..transfer import TransferMaker, TransferSet, make_transfer


class Given(NamedTuple):
    """What the user gave to `fit`, as the teacher is to have it."""

    X: Any
    y: Any
    sample_weight: Any


class Setup(NamedTuple):
    """What there is before a teacher is fitted.

    Attributes
    ----------
    given : Given
    training : Training
        How stacks are trained.
    random_state : RandomState
    plan : Plan
        What the student is made of.
    recipe : NetworkRecipe
        How its networks are built.
    scaling : dict of str to ndarray
        Of the targets.
    X : ndarray of shape (n, ...)
        Rows whose weight is positive.
    y : ndarray of shape (n, ...)
        Their targets, encoded.
    weight : ndarray of shape (n,)
    X_transfer : ndarray of shape (n_transfer, ...)
    maker : TransferMaker or None
        Makes rows to ask the teacher about.
    member_predictions : ndarray of shape (n, S, ...) or None
        What the user gave instead of a teacher, encoded.
    """

    given: Given
    training: Training
    random_state: np.random.RandomState
    plan: Any
    recipe: Any
    scaling: Buffers
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    X_transfer: np.ndarray
    maker: TransferMaker | None
    member_predictions: np.ndarray | None

    @property
    def dtype(self) -> np.dtype:
        """What is computed in."""
        return self.X.dtype

    def draw_seeds(self, size: int) -> list[int]:
        """Draw seeds from `random_state`."""
        return self.random_state.randint(SEED_LIMIT, size=size).tolist()


def set_up(
    distiller: Any,
    plan_of: Callable[[Task], Plan],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    X_transfer: Any = None,
    member_predictions: Any = None,
    *,
    auto_transfer: TransferMaker | None = None,
    recipes_of: Callable[[Any, Plan, tuple[int, ...]], Any] = recipe_for,
    modules: list[Any] | None = None,
) -> Setup:
    """Check everything that can be checked before a teacher takes its time.

    Parameters
    ----------
    distiller : estimator
        Whose parameters to use. It gets what `fit` learns of X and y, as attributes.
    plan_of : callable
        Makes the plan of the task, and raises for parameters that do not go together.
    X, y, sample_weight, X_transfer, member_predictions
        As given to `fit`.
    auto_transfer : TransferMaker, default=None
        What ``transfer="auto"`` is; None is noise.
    recipes_of : callable
        Says how to build the networks of the plan for rows of a shape.
    modules : list, default=None
        The model classes where `module` may give several.
    """
    training = checked_training(distiller, modules)
    random_state = check_random_state(distiller.random_state)
    forget(distiller)
    X_checked, y_checked, task = TASKS[distiller._kind].check(distiller, X, y)
    vars(distiller).update(task.fitted_attributes)
    plan = plan_of(task)
    recipe = recipes_of(distiller, plan, X_checked.shape[1:])
    weight = task.weights_of_rows(y_checked, sample_weight)
    kept = np.ones(len(X_checked), dtype=bool) if weight is None else weight > 0
    rows, targets = X_checked[kept], y_checked[kept]
    transfer_rows = check_transfer_rows(distiller, X_transfer, rows)
    maker = transfer_maker(distiller, member_predictions is None, auto_transfer)
    if maker is not None:
        maker.check(rows.shape)
    # A module that does not fit is found before the teacher takes its time.
    group_lasso(distiller, build_module(plan, recipe, [0], torch.float64))
    kept_weight = None if weight is None else weight[kept]
    normalize_y = getattr(distiller, "normalize_y", True)
    scaling = task.scaling(targets, kept_weight, rows.dtype, normalize_y)
    if member_predictions is not None:
        refuse_teacher(distiller, transfer_rows)
        members = check_member_predictions(
            member_predictions, len(X_checked), name="member_predictions", **task.shape_of_members
        )
        member_predictions = plan.encode_members(members[kept], scaling, rows.dtype)
    if np.asarray(y).shape[1:] == (1,):
        y = np.asarray(y).ravel()  # a column: warned of once, not by the teacher again
    return Setup(
        Given(X, y, sample_weight),
        training,
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
    )


def group_lasso(distiller: Any, module: Any) -> GroupLasso | None:
    """Return the proximal step, if there is to be one; raise for what cannot be pruned."""
    strength = getattr(distiller, "group_lasso", 0)
    return GroupLasso(module, strength) if strength else None


def transfer_maker(
    distiller: Any, has_teacher: bool, auto: TransferMaker | None
) -> TransferMaker | None:
    """Return what makes rows to ask the teacher about; nothing where there is none to ask."""
    if isinstance(distiller.transfer, str) and distiller.transfer == "auto":
        return (auto or make_transfer("noise")) if has_teacher else None
    maker = make_transfer(distiller.transfer)
    if maker is not None and not has_teacher:
        raise ValueError(
            "transfer must be 'auto' or None with member_predictions, as nobody can be asked "
            f"about other rows than X; got {distiller.transfer!r}."
        )
    return maker


def refuse_teacher(distiller: Any, transfer_rows: np.ndarray) -> None:
    """Raise a ValueError for a teacher, or rows to ask it about, beside its predictions."""
    is_kind = isinstance(distiller.teacher, str) and distiller.teacher == distiller._kind
    has_teacher = distiller.teacher is not None and not is_kind
    if has_teacher or distiller.teacher_cv is not None or len(transfer_rows):
        raise ValueError(
            "member_predictions come instead of a teacher: teacher, teacher_cv and X_transfer "
            f"must be None; got teacher={distiller.teacher!r}, teacher_cv="
            f"{distiller.teacher_cv!r} and X_transfer with {len(transfer_rows)} rows."
        )


def check_transfer_rows(distiller: Any, X_transfer: Any, X: np.ndarray) -> np.ndarray:
    """Return the rows of `X_transfer`, checked to be like X; none for None."""
    if isinstance(X_transfer, TransferSet):
        X_transfer = X_transfer.rows
    row_shape = X.shape[1:]
    if X_transfer is None:
        is_auto = isinstance(distiller.transfer, str) and distiller.transfer == "auto"
        maker = None if is_auto else make_transfer(distiller.transfer)
        if distiller.transfer_only and (maker is None or maker.keeps_labels):
            raise ValueError(
                "transfer_only=True needs X_transfer in fit, or a transfer that makes rows; "
                f"got None and transfer={distiller.transfer!r}."
            )
        return np.empty((0, *row_shape), dtype=X.dtype)
    names = getattr(X_transfer, "columns", None)
    with errors_about("X_transfer"):
        if len(X_transfer) == 0:
            raise ValueError("X_transfer must have at least one row, or be None; got none.")
        rows = check_array(X_transfer, dtype=X.dtype, input_name="X_transfer", allow_nd=True)
    if rows.shape[1:] != row_shape:
        raise ValueError(
            f"X_transfer must have {row_shape[0]} columns as X has, got {rows.shape[1]}."
            if rows.ndim == len(row_shape) + 1 == 2
            else f"X_transfer must have rows of shape {row_shape} as X has, got {rows.shape[1:]}."
        )
    check_names(distiller, names, "X_transfer has")
    check_trainable(rows, X.dtype, "X_transfer")
    return rows


def check_names(distiller: Any, names: Any, whose: str) -> None:
    """Hold the names of columns, if there are any, against those of X."""
    own_names = getattr(distiller, "feature_names_in_", None)
    if names is not None and own_names is not None and list(names) != list(own_names):
        raise ValueError(f"{whose} the columns {list(names)}, but X has {list(own_names)}.")
