# SPDX-License-Identifier: BSD-3-Clause
"""The base of distillers: parameters in common, and how one is fitted, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from torch import Tensor

from .._data.columns import COLUMN_PARAMETERS
from .._data.encoding import EMBEDDED_FROM
from .._estimator.base import (
    Fitted,
    ObservedTask,
    available_if,
    fit_task,
    with_callbacks,
)
from .._estimator.predicting import DistributionEstimator
from .._estimator.unwrapping import is_prefitted
from .._method.plan import NetworkSettings
from .._method.task import Task
from .._training.trainer import resumable
from .._utils.validation import Number, OneOf, SettingsRule, is_number
from ..families import Family, known_families
from ..pruning import GroupLasso
from ..settings import Runtime
from ..teachers import Teacher
from ..transfer import MAKERS, TransferMaker, TransferOnly, make_transfer
from ._spec import FitSpec, kind_of, read_fit
from ._student import calibrated
from ._teacher import fit_teacher, inside_wrappers

PRUNING = {"pruning": SettingsRule(GroupLasso, OneOf((None,)))}


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


def kind_of_distiller(distiller: BaseEstimator) -> str | None:
    """Return the kind of the teacher, and after `fit` that of the fitted student."""
    fitted = "_plan" in vars(distiller)
    return distiller._plan.task.kind if fitted else kind_of(distiller.teacher)


class Distiller(DistributionEstimator):
    """Base of the students of a teacher."""

    _plan_of: Callable[[Task], Any]  # the plan; it raises for parameters that do not go together
    # Gives the student after each stage of its training, by the members of the fitted teacher, or
    # None where the student learns while the teacher is fitted.
    _stages: Callable[[FitSpec, Any, ObservedTask], Iterator[Fitted]]

    _parameter_table = {
        **DistributionEstimator._parameter_table,
        "lr": Number(Real, 0, closed="neither", others=("auto",)),
        "max_epochs": Number(Integral, 1, others=("auto",)),
        "transfer": TransferRule(),
        "teacher_cv": FoldsRule(),
        "memory": MemoryRule(),
        **COLUMN_PARAMETERS,
    }

    _kind: Any = property(kind_of_distiller)

    # What transfer="auto" stands for, by the kind of the student, where it is not as usual.
    _auto_transfer: dict[str, TransferMaker | None] = {}
    _embedded_from = EMBEDDED_FROM  # samples of tables whose numbers are embedded, by kind
    _takes_streams = False  # whether X may give batches
    _takes_model_classes = False  # whether `module` may be several

    def fit(
        self,
        X: object,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        X_transfer: object = None,
        member_predictions: ArrayLike | None = None,
    ) -> Self:
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, as in :meth:`BayesianEnsembleRegressor.fit`. Only Hydra+ and
            :class:`DistributionDistiller` take batches.
        y : array-like of shape (n_samples,), default=None
            Targets, for regression also of shape (n_samples, n_targets), or class labels; None with
            batches.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in the teacher's fit and in the student's loss.
        X_transfer : array-like of shape (n_rows, n_features) or TransferSet, default=None
            Further samples, without labels, on which the student imitates the teacher, with weight
            1. In a cross-validation wrap them as :class:`skdistill.transfer.TransferSet`.
        member_predictions : array-like, default=None
            Predictions for X of a teacher's members, instead of a teacher: class probabilities of
            shape (n_samples, n_members, n_classes), columns in the order of the sorted labels; or
            means and variances, (n_samples, n_members, n_targets, 2), in units of y. `teacher`
            is "classifier" or "regressor" then, of Hydra+ None, and there are no transfer samples.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is invalid, or does not go with batches, the teacher is
            for another task, has no members or was fitted on other columns or classes, the module's
            output does not have the width that it should, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; during the student's training it is kept as trained so far.
        """
        return self._fit(X, y, sample_weight, X_transfer, member_predictions)

    @with_callbacks
    def _fit(self, *arguments: object, **part: object) -> Self:
        """Fit teacher and student; for `part` see :func:`read_fit`."""
        spec = read_fit(self, *arguments, **part)  # type: ignore[arg-type]  # checked there
        self._keep({"_input_schema": spec.schema, **spec.plan.task.fitted_attributes})
        fits_teacher = spec.plan.replays
        resumes = fits_teacher and not spec.is_pass and spec.checkpoint is not None
        with (
            fit_task(self, 2, *spec.arguments) as task,
            resumable(self, spec.random_state, spec.data)
            if resumes
            else nullcontext(spec.random_state) as random_state,
        ):
            fitted: Any = spec.before
            spec = replace(spec, random_state=random_state)
            predictions = fit_teacher(spec, task) if fits_teacher else None
            if predictions is not None and predictions.teacher is not None:
                self._keep({"teacher_": predictions.teacher})
            for fitted in self._stages(spec, predictions, task):
                self._keep(fitted.attributes)
            if spec.params.get("calibration_fraction") is not None:
                self._keep(calibrated(fitted, spec, clone(self)).attributes)
        return self

    def _default_teacher(self) -> BaseEstimator | None:
        """Return the unfitted estimator that ``teacher=None`` stands for, if it may be None."""
        return None

    def _recipe_of(self, *how: Any) -> Any:
        """Return how to build networks of a plan for samples of a shape, and their encoding."""
        defaults = self._module_defaults[self._kind]
        return NetworkSettings.of(self.get_params(deep=False), defaults).recipe(*how)


def has_fitted_teacher(distiller: BaseEstimator) -> bool:
    """Condition for ``available_if``: the teacher is fitted already."""
    teacher = distiller.teacher
    is_model = kind_of(teacher) is not None and not isinstance(teacher, str)
    if not (is_model and is_prefitted(inside_wrappers(teacher, Teacher))):
        raise AttributeError(
            "teacher must be fitted for partial_fit, which does not fit it on a part of the "
            f"samples: write teacher=FrozenEstimator(fitted). Got {teacher!r}."
        )
    return True


class IncrementalDistiller(Distiller):
    """Base of the students that can be trained further, on batches, and be calibrated."""

    _parameter_table = {
        **Distiller._parameter_table,
        **PRUNING,
        "calibration_fraction": Number(Real, 0, 1, closed="neither", others=(None,)),
        "runtime": SettingsRule(Runtime, OneOf((None,)), ("member_block",)),
        "batch_size": Number(Integral, 1, others=("auto",)),
        "warm_start": OneOf((True, False)),
        "ddof": OneOf((0, 1)),
    }
    _module_defaults = {  # see doc/design.rst
        "classifier": {"hidden_units": (192, 128), "activation": ("relu", "silu")},
        "regressor": {"hidden_units": (128, 128), "activation": ("tanh", "silu")},
    }
    _takes_streams = True

    @available_if(has_fitted_teacher)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Train for one epoch on the given samples, going on from the calls before, or from `fit`.

        The classes, the location and scale of the targets, and `teacher_` are those of the first
        call. The optimizer's state, the order of the samples and the noise go on from call to call,
        also through pickle and :func:`skdistill.save`; after a `fit` with ``warm_start=False`` they
        begin anew. `transfer` generates samples from the given ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, computed in the dtype of the first call.
        y : array-like of shape (n_samples,)
            Targets, for regression also of shape (n_samples, n_targets), or class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, compared with each other within the call.
        classes : array-like of shape (n_classes,), default=None
            The labels of all classes that y will hold. A classifier's first call needs them.

        Returns
        -------
        self

        Raises
        ------
        AttributeError
            If `teacher` is not fitted: write ``teacher=FrozenEstimator(fitted)``.
        TypeError, ValueError
            As in `fit`; if y holds a label that is not in `classes`, or X other columns than
            before. The student stays as it was.

        Notes
        -----
        Each call counts as an epoch: in `n_epochs_`, in `history_`, and for weights of the loss and
        temperatures that change over the epochs, up to `max_epochs` calls. The learning rate is
        `lr`, without `lr_schedule`, as the last call is not known. `checkpoint` and `max_time` are
        for `fit` alone. A student that is still worse than a constant is not warned of.
        """
        return self._fit(X, y, sample_weight, is_pass=True, classes=classes)
