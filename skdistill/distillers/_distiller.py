# SPDX-License-Identifier: BSD-3-Clause
"""What all distillers share: how a student comes by its teacher, and by the rows to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone, is_classifier
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_memory
from torch import Tensor, nn

from .._base import SEED_LIMIT, Objective, check_trainable, check_weights, with_callbacks
from .._meta_estimators import is_prefitted
from .._predict import predict_members
from .._read_offs import DistributionEstimator
from .._rules import Number, OneOf, errors_about, is_number
from ..modules import weights_and_fan_ins
from ..pruning import GroupLasso, prune, widths
from ..teachers import (
    Teacher,
    align_classes,
    as_teacher,
    check_member_predictions,
    out_of_fold_members,
)
from ..transfer import TransferMaker, TransferSet, make_transfer
from ._fit_teacher import as_teacher_rows, fit_teacher, seed_where_unset

# For max_epochs="auto": how many rows the student is to see, and within how many epochs.
_ROWS_SEEN = 800_000
_EPOCHS_WITHIN = (50, 400)

Ask = Callable[[np.ndarray], np.ndarray]


class TransferRule:
    """What `transfer` may be."""

    def check(self, value: Any, name: str) -> None:
        try:
            if not (isinstance(value, str) and value == "auto"):
                make_transfer(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} It may also be 'auto'.") from None


class FoldsRule:
    """What `teacher_cv` may be."""

    def check(self, value: Any, name: str) -> None:
        is_count = is_number(value, Integral)
        is_folds = hasattr(value, "split") or isinstance(value, Iterable)
        are_no_folds = isinstance(value, (str, bytes, type, np.ndarray, Tensor))
        if are_no_folds or not (value is None or is_count or is_folds):
            raise TypeError(
                f"{name} must be None, a number of folds, a cross-validation splitter, or an "
                f"iterable of pairs of train and test rows; got {value!r}."
            )
        if is_count and value < 2:
            raise ValueError(f"{name} must be at least 2 folds, got {value!r}.")


class MemoryRule:
    """What `memory` may be."""

    def check(self, value: Any, name: str) -> None:
        if not (value is None or isinstance(value, str) or hasattr(value, "cache")):
            raise ValueError(
                f"{name} must be None, the path of a folder as a string, or a joblib.Memory, got "
                f"{value!r}."
            )


class Lesson(NamedTuple):
    """Rows with their labels and weights, and the rows of `X_transfer`.

    Attributes
    ----------
    X : ndarray of shape (n, ...)
    y : ndarray of shape (n, ...)
        As the loss compares it with the outputs.
    weight : ndarray of shape (n,)
    X_transfer : ndarray of shape (n_rows, ...)
    answers : ndarray of shape (n, S, ...) or None
        What the teacher says about X, as the loss takes it, if it is known and nobody is asked.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    X_transfer: np.ndarray
    answers: np.ndarray | None


# What students that may be pruned take besides.
PRUNING_PARAMETERS = {
    "group_lasso": Number(Real, 0),
    "prune_threshold": Number(Real, 0),
    "finetune_epochs": Number(Integral, 0, others=("auto",)),
}


class Distiller(DistributionEstimator):
    """Student of a teacher; subclasses say what it is made of and what it minimises."""

    group_lasso = 0.0  # of students that have no such parameter

    _parameter_table = {
        **DistributionEstimator._parameter_table,
        "max_epochs": Number(Integral, 1, others=("auto",)),
        "transfer": TransferRule(),
        "transfer_only": OneOf((True, False)),
        "teacher_cv": FoldsRule(),
        "memory": MemoryRule(),
    }

    @with_callbacks
    def fit(self, X, y, sample_weight=None, X_transfer=None, member_predictions=None):
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised; images or series of shape (n_samples, ...) if `module` takes
            them. float32 is computed in float32, all else in float64. Predictions have the same
            dtype, but are float64 where float32 would round targets that are far from 0.
        y : array-like of shape (n_samples,)
            Targets, for regression also of shape (n_samples, n_targets), or class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the teacher's fit and in the student's loss.
        X_transfer : array-like of shape (n_rows, n_features) or TransferSet, default=None
            Further rows, without labels, on which the student imitates the teacher, with weight
            1. In a cross-validation wrap them as :class:`skdistill.transfer.TransferSet`.
        member_predictions : array-like, default=None
            What the members of a teacher say about X, instead of a teacher: class probabilities of
            shape (n_samples, n_members, n_classes), columns in the order of the sorted labels; or
            means and variances, (n_samples, n_members, n_targets, 2), in units of y. No teacher
            is fitted then, and nobody can be asked about other rows.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is not what it may be, the teacher is for another task,
            has no members or was fitted on other columns or classes, the module's output does not
            have the width that it should, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; during the student's training with what was trained kept.
        """
        self._check_parameters()
        self._check_weights_of_terms()
        random_state = check_random_state(self.random_state)
        for name in ("teacher_", "history_"):
            self.__dict__.pop(name, None)
        raw_X, raw_y = X, y
        X, y, weight = self._validate_fit_data(X, y, sample_weight)
        n, *n_targets = np.asarray(raw_y).shape
        if n_targets == [1]:
            raw_y = np.asarray(raw_y).ravel()  # a column: warned of once, not by the teacher again
        X_transfer = self._validate_transfer(X_transfer, X.dtype)
        maker = self._transfer_maker(member_predictions is None)
        if maker is not None:
            maker.check(X.shape)
        # A module that does not fit is found before the teacher takes its time.
        self._group_lasso(self._build_module([0], torch.float64))
        buffers = self._target_buffers(y, weight, X.dtype)
        task = self._init_callback_context(max_subtasks=2)
        task.call_on_fit_task_begin(estimator=self, X=raw_X, y=raw_y)
        seed = int(random_state.randint(SEED_LIMIT))
        if member_predictions is None:
            answers = self._fit_teacher(raw_X, raw_y, sample_weight, task, seed)
            ask = self._question(raw_X, buffers, X.dtype)
        else:
            self._refuse_questions(X_transfer)
            answers, ask = self._checked_members(member_predictions, n, "member_predictions"), None
        if answers is not None:
            given = check_weights(sample_weight, n)
            answers = answers if given is None else answers[given > 0]
            answers = self._encoded_members(answers, buffers, X.dtype)
        weight = np.ones(len(X)) if weight is None else weight
        lesson = Lesson(X, self._encoded(y, buffers, X.dtype), weight, X_transfer, answers)
        self._distil(lesson, ask, maker, buffers, task, random_state)
        task.call_on_fit_task_end(estimator=self, X=raw_X, y=raw_y)
        return self

    # --- what subclasses say ----------------------------------------------------------------

    def _default_teacher(self) -> Any:
        """Return the teacher that ``teacher=None`` stands for."""
        raise NotImplementedError

    def _check_weights_of_terms(self) -> None:
        """Hold parameters against each other that the table cannot."""

    def _student_objective(self, n_members: int) -> Objective:
        """What the student minimises, with that many members to imitate."""
        raise NotImplementedError

    def _count_networks(self, n_members: int) -> int:
        """How many seeds the student's network is built from; noted as a fitted attribute."""
        raise NotImplementedError

    def _set_start(self, module: nn.Module, lesson: Lesson, ask: Ask | None) -> None:
        """Set where the student begins, if it matters."""

    # --- the teacher ------------------------------------------------------------------------

    def _fit_teacher(self, X, y, sample_weight, task, seed: int) -> np.ndarray | None:
        """Fit `teacher_`; give its out-of-fold answers if they are wanted."""
        teacher = self._unfitted_teacher()
        if self.random_state is not None:
            seed_where_unset(teacher, seed)
        subtask = task.subcontext(task_name="teacher")
        model = teacher.estimator if isinstance(teacher, Teacher) else teacher
        memory = None if is_prefitted(model) else self.memory
        fit = check_memory(memory).cache(fit_teacher, ignore=["task", "student"])
        answers = None
        if self.teacher_cv is not None:
            ask = check_memory(self.memory).cache(out_of_fold_members)
            # A seed of chance would keep the answers from being found in the memory again.
            folds_seed = None if self.random_state is None else seed
            answers = ask(
                teacher,
                X,
                y,
                cv=self.teacher_cv,
                sample_weight=sample_weight,
                random_state=folds_seed,
                name="teacher_cv",
            )
            name = f"the answers of teacher {type(teacher).__name__}"
            answers = self._checked_members(answers, len(answers), name)
        self.teacher_ = fit(teacher, X, y, sample_weight, subtask, self)
        self._check_teacher()
        return answers

    def _unfitted_teacher(self) -> Any:
        """A copy of `teacher` to fit, held against the student's task."""
        if self.teacher is None:
            return self._default_teacher()
        if isinstance(self.teacher, type) or not hasattr(self.teacher, "get_params"):
            raise TypeError(
                "teacher must be an estimator; skdistill.teachers.as_teacher makes one of a list "
                f"of fitted models, or of a torch module. Got {self.teacher!r}."
            )
        teacher = as_teacher(clone(self.teacher))
        kinds = ("regressor", "classifier")
        wanted, found = (kinds[is_classifier(model)] for model in (self, teacher))
        if wanted != found:
            raise ValueError(
                f"teacher must be a {wanted} to teach {type(self).__name__}; "
                f"{type(self.teacher).__name__} is a {found}."
            )
        return teacher

    def _check_teacher(self) -> None:
        """Hold the columns and classes that `teacher_` knows against those of X and y."""
        n_features = getattr(self.teacher_, "n_features_in_", self.n_features_in_)
        if n_features != self.n_features_in_:
            raise ValueError(
                f"teacher was fitted on {n_features} columns, but X has {self.n_features_in_}."
            )
        names = getattr(self.teacher_, "feature_names_in_", None)
        self._check_names(names, "teacher was fitted on")
        if is_classifier(self):
            own, known = self.classes_.tolist(), np.asarray(self.teacher_.classes_).tolist()
            if set(own) != set(known):
                raise ValueError(f"teacher must know the classes of y, {own}; it knows {known}.")

    def _check_names(self, names, whose: str) -> None:
        """Hold the names of columns, if there are any, against those of X."""
        own_names = getattr(self, "feature_names_in_", None)
        if names is not None and own_names is not None and list(names) != list(own_names):
            raise ValueError(f"{whose} the columns {list(names)}, but X has {list(own_names)}.")

    def _question(self, X, buffers: dict, dtype) -> Ask:
        """How to ask `teacher_` about rows; its answers come as the loss takes them."""
        dress = as_teacher_rows(X, getattr(self.teacher_, "feature_names_in_", None))
        name = f"the answers of teacher {type(self.teacher_).__name__}"

        def ask(rows: np.ndarray) -> np.ndarray:
            members = predict_members(self.teacher_, dress(rows))
            if is_classifier(self):
                members = align_classes(members, self.teacher_.classes_, self.classes_)
            members = self._checked_members(members, len(rows), name)
            return self._encoded_members(members, buffers, dtype)

        return ask

    def _checked_members(self, members, n_rows: int, name: str) -> np.ndarray:
        kind = (
            {"n_classes": len(self.classes_)}
            if is_classifier(self)
            else {"n_targets": self.n_outputs_}
        )
        return check_member_predictions(members, n_rows, name=name, **kind)

    # --- the rows ---------------------------------------------------------------------------

    def _transfer_maker(self, can_ask: bool) -> TransferMaker | None:
        """What makes rows to ask the teacher about; nothing where it cannot be asked."""
        if self.transfer == "auto":
            return make_transfer("noise") if can_ask else None
        maker = make_transfer(self.transfer)
        if maker is not None and not can_ask:
            raise ValueError(
                "transfer must be 'auto' or None with member_predictions, as nobody can be asked "
                f"about other rows than X; got {self.transfer!r}."
            )
        return maker

    def _refuse_questions(self, X_transfer) -> None:
        if self.teacher is not None or self.teacher_cv is not None or len(X_transfer):
            raise ValueError(
                "member_predictions come instead of a teacher: teacher, teacher_cv and X_transfer "
                f"must be None; got teacher={self.teacher!r}, teacher_cv={self.teacher_cv!r} and "
                f"X_transfer with {len(X_transfer)} rows."
            )

    def _validate_transfer(self, X_transfer, dtype) -> np.ndarray:
        """Transfer rows as an array of shape (n_rows, ...); none for None."""
        if isinstance(X_transfer, TransferSet):
            X_transfer = X_transfer.rows
        if X_transfer is None:
            maker = None if self.transfer == "auto" else make_transfer(self.transfer)
            if self.transfer_only and (maker is None or maker.keeps_labels):
                raise ValueError(
                    "transfer_only=True needs X_transfer in fit, or a transfer that makes rows; "
                    f"got None and transfer={self.transfer!r}."
                )
            return np.empty((0, *self._row_shape), dtype=dtype)
        names = getattr(X_transfer, "columns", None)
        with errors_about("X_transfer"):
            if len(X_transfer) == 0:
                raise ValueError("X_transfer must have at least one row, or be None; got none.")
            X_transfer = check_array(
                X_transfer, dtype=dtype, input_name="X_transfer", allow_nd=True
            )
        if X_transfer.shape[1:] != self._row_shape:
            raise ValueError(
                f"X_transfer must have {self._row_shape[0]} columns as X has, got "
                f"{X_transfer.shape[1]}."
                if X_transfer.ndim == len(self._row_shape) + 1 == 2
                else f"X_transfer must have rows of shape {self._row_shape} as X has, got "
                f"{X_transfer.shape[1:]}."
            )
        self._check_names(names, "X_transfer has")
        check_trainable(X_transfer, dtype, "X_transfer")
        return X_transfer

    def _rows_with_transfer(self, lesson: Lesson, ask: Ask | None) -> tuple:
        """X and `X_transfer` in one, with labels, weights, answers and whether they have a label.

        Answers are None where the teacher is still to be asked.
        """
        X, y, weight, X_transfer, answers = lesson
        labelled = np.repeat([1.0, 0.0], [len(X), len(X_transfer)])
        if answers is not None and len(X_transfer) and ask is not None:
            answers = np.concatenate([answers, ask(X_transfer)])
        weight = np.concatenate([weight, np.ones(len(X_transfer))])
        X = np.concatenate([X, X_transfer])
        y = np.concatenate([y, np.zeros((len(X_transfer), *y.shape[1:]), dtype=y.dtype)])
        if self.transfer_only and len(X_transfer):
            kept = labelled == 0
            X, y, weight, labelled = (a[kept] for a in (X, y, weight, labelled))
            answers = None if answers is None else answers[kept]
        return X, y, weight, answers, labelled

    def _taught_rows(self, lesson: Lesson, ask: Ask | None, maker, seed: int):
        """Rows to learn from, with their labels and whether they have one."""
        from .._engine import TaughtRows

        X, y, weight, answers, labelled = self._rows_with_transfer(lesson, ask)
        n_kept = 0
        stays = answers is not None or not (maker is None or maker.keeps_labels)
        if maker is not None and stays and not self.transfer_only:
            n_kept = len(X)
            X, y, weight = (np.concatenate([a, a]) for a in (X, y, weight))
            labelled = np.concatenate([labelled, np.zeros(n_kept)])

        drawn_only = maker is not None and n_kept == 0

        def on_device(values: np.ndarray) -> Tensor:
            is_real = np.issubdtype(values.dtype, np.floating)
            return torch.tensor(
                values.astype(X.dtype) if is_real else values, device=self._device()
            )

        rows, weights = on_device(X), on_device(weight)
        is_weighted = not (weight == weight[0]).all()
        return TaughtRows(
            rows,
            (on_device(y), on_device(labelled)),
            weights[None] if is_weighted else None,
            self.batch_size,
            [seed],
            teacher=ask,
            answers=None if answers is None or drawn_only else on_device(answers),
            draw=None if maker is None else maker.prepare(rows, weights if is_weighted else None),
            n_kept=n_kept,
        )

    # --- the student ------------------------------------------------------------------------

    def _distil(self, lesson: Lesson, ask, maker, buffers, task, random_state) -> None:
        """Train the student on the teacher's answers."""
        from .._engine import DivergenceGuard, TaskPerEpoch

        known = [] if lesson.answers is None else [lesson.answers.shape[1]]
        asked = [] if ask is None else [ask(lesson.X[:1]).shape[1]]
        n_members = (asked + known)[0]
        if n_members != (asked + known)[-1]:
            raise ValueError(
                "teacher must have as many members when it is fitted on all rows as on the folds "
                f"of teacher_cv; got {n_members} and {known[0]}."
            )
        n_networks = self._count_networks(n_members)
        seeds = random_state.randint(SEED_LIMIT, size=n_networks + 1).tolist()
        rows = self._taught_rows(lesson, ask, maker, seeds.pop())
        tensors = {name: torch.tensor(value) for name, value in buffers.items()}
        module = self._build_module(seeds, rows.X.dtype, tensors)
        self._set_start(module, lesson, ask)
        self.n_epochs_ = self._count_epochs(len(rows))
        n_more = self._count_finetune_epochs()
        subtask = task.subcontext(task_name="student", max_subtasks=self.n_epochs_ + n_more)
        subtask.call_on_fit_task_begin(estimator=self)
        objective = self._student_objective(n_members)

        def train(module, **settings):
            guard = DivergenceGuard()
            net = self._train(
                module,
                objective,
                rows,
                callbacks=[TaskPerEpoch(subtask, self), guard],
                weight_decay=[(w, self.weight_decay) for w, _ in weights_and_fan_ins(module)],
                **settings,
            )
            self._keep(net, module, guard)

        train(module, after_step=self._group_lasso(module))
        if self.group_lasso:
            self._remove_silent_units()
        if n_more:
            objective.first_epoch = self.n_epochs_  # what grows over the epochs has grown
            train(self.module_, n_epochs=n_more)
        subtask.call_on_fit_task_end(estimator=self)

    def _group_lasso(self, module) -> GroupLasso | None:
        """The proximal step, if there is to be one; a ValueError for what cannot be pruned."""
        return GroupLasso(module, self.group_lasso) if self.group_lasso else None

    def _count_finetune_epochs(self) -> int:
        if not self.group_lasso:
            return 0
        return self.n_epochs_ // 2 if self.finetune_epochs == "auto" else self.finetune_epochs

    def _remove_silent_units(self) -> None:
        """Make the fitted module smaller, and note its form for unpickling."""
        self._set_module(prune(self.module_, self.prune_threshold))
        self._recipe["widths"] = widths(self.module_)

    def _count_epochs(self, n_rows: int) -> int:
        if self.max_epochs != "auto":
            return self.max_epochs
        low, high = _EPOCHS_WITHIN
        return min(max(_ROWS_SEEN // n_rows, low), high)
