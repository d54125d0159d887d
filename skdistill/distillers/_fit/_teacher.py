# SPDX-License-Identifier: BSD-3-Clause
"""Fitting the teacher of a distiller, and predicting with the teacher's members."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_memory

from ..._data.columns import Columns, date_columns
from ..._estimator.functions import predict_members
from ..._estimator.unwrapping import (
    ensemble_inside,
    has_members,
    is_prefitted,
    seed_where_unset,
    weights_for,
    with_inside,
)
from ..._method.plan import rebuild_module, weights_of
from ..._method.random_functions import LEAST_SAMPLES, RandomFunctions
from ..._method.task import RegressionTask
from ..._utils.messages import print_line
from ..._utils.ranks import current_ranks
from ...distributions import EmpiricalCategorical, EmpiricalGaussian
from ...ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ...samplers import SGHMC, SGLD
from ...teachers import (
    MixedModels,
    Teacher,
    align_classes,
    as_teacher,
    check_member_predictions,
    out_of_fold_members,
)
from ._kinds import kind_of
from ._teacher_checks import Predict, model_of, warn_of_answers, warn_of_refit
from ._validate import FitArguments, Setup, check_names

# Of `max_time`, for the teacher. Without it default ensembles of 500 to 20,000 samples took a half
# to two thirds of the time of a fit for numbers, and a fifth to a third for classes.
_SHARE_OF_TEACHER = 0.5

_ENSEMBLES = (BayesianEnsembleClassifier, BayesianEnsembleRegressor)


class MemberPredictions(NamedTuple):
    """Predictions of a teacher's members, encoded for the student's objective."""

    of_X: np.ndarray | None  # for X, (n, S, ...), if they are known already
    predict: Predict | None  # rows (m, ...) to predictions (m, S, ...); None without a teacher
    functions: RandomFunctions | None = None  # of the teacher, which the student has too
    found_share: float = 0.0  # of the variance of functions that the student finds for itself

    def count(self, X: np.ndarray) -> int:
        """Return the number of members."""
        counts = [] if self.predict is None else [self.predict(X[:1]).shape[1]]
        counts += [] if self.of_X is None else [self.of_X.shape[1]]
        if counts[0] != counts[-1]:
            raise ValueError(
                "teacher must have as many members when it is fitted on all rows as on the folds "
                f"of teacher_cv; got {counts[0]} and {counts[1]}."
            )
        return counts[0]


def fit_teacher_of(
    distiller: Any, setup: Setup, context: Any, default: Callable[[], Any] | None = None
) -> MemberPredictions:
    """Fit `teacher_` of a distiller, unless there are `member_predictions`, and predict with it.

    Parameters
    ----------
    distiller : estimator
    setup : Setup
    context : sklearn.callback.CallbackContext
        The task whose subtask the fit is.
    default : callable, default=None
        Makes the teacher that ``teacher=None`` stands for.

    Notes
    -----
    Of several ranks that train the student together, the first fits the teacher for all.
    """
    ranks = current_ranks()
    once: Callable[..., Any] = _at_once if ranks is None else ranks.on_first
    (seed,) = setup.draw_seeds(1)
    if setup.member_predictions is not None:
        return MemberPredictions(setup.member_predictions, None)
    teacher = unfitted_teacher(distiller, default)
    goes_on = setup.fit_mode.goes_on and hasattr(distiller, "teacher_")
    if distiller.random_state is not None or distiller.checkpoint is not None:
        seed_where_unset(teacher, seed)
    _share_time(teacher, distiller, setup)
    subtask = context.subcontext(task_name="teacher")
    of_X = None
    if distiller.teacher_cv is not None:
        of_X = once(partial(_out_of_fold, distiller, teacher, setup, seed))
    model = model_of(teacher)
    if not goes_on:
        warn_of_refit(distiller.teacher)
        memory = check_memory(None if is_prefitted(model) else distiller.memory)
        fit = memory.cache(fit_teacher, ignore=["context", "student"])
        if distiller.verbose:
            print_line(f"teacher: {type(model).__name__}")
        given = _arguments_for(model, setup)
        fit = partial(fit, teacher, *given, subtask, distiller)
        # One that is fitted already, and may have no pickle, is not sent.
        distiller.teacher_ = fit() if is_prefitted(model) else once(fit)
    check_teacher(distiller)
    if not goes_on:
        answer = predictor_of(distiller.teacher_, setup, setup.plan.task)
        warn_of_answers(distiller, setup, model, given, answer)
    networks, functions, share = networks_and_functions(distiller.teacher_, setup)
    return MemberPredictions(of_X, predictor_of(networks, setup), functions, share)


def networks_and_functions(teacher: Any, setup: Setup) -> tuple[Any, RandomFunctions | None, float]:
    """Divide a fitted ensemble, or a mixture with some, into its networks and random functions.

    The student imitates the networks, and has the same functions. It finds its own where an
    ensemble reads another table or predicts another target, as in a Pipeline, or is one of several
    models: then they are None, and last is the share of their variance, which is 0 else. The
    teacher is all there is if it has none, or if the student predicts no distribution that they
    displace, or has too few samples to find its own.
    """
    is_table = len(setup.recipe.row_shape) == 1
    if not (setup.plan.takes_functions and is_table):
        return teacher, None, 0.0
    model = inside_wrappers(teacher, FrozenEstimator)
    if isinstance(model, _ENSEMBLES) and _reads_as_student(model, setup):
        networks, n_functions = _without_functions(model)
        return networks, model._recipe.functions if n_functions else None, 0.0
    if len(setup.X) < LEAST_SAMPLES:
        return teacher, None, 0.0
    mixture = ensemble_inside(teacher, (Teacher,))
    if mixture is None:
        networks, n_functions = _without_functions(teacher)
        return networks, None, float(n_functions > 0)
    if not isinstance(mixture.estimator_, MixedModels) or mixture.max_members is not None:
        return teacher, None, 0.0
    copied = copy.copy(mixture)
    copied.estimator_, share = mixture.estimator_.without_functions(_without_functions)
    return with_inside(teacher, copied), None, share


def _reads_as_student(model: Any, setup: Setup) -> bool:
    """Tell whether an ensemble has the same table as its student."""
    return model._recipe.row_shape == setup.recipe.row_shape and model._columns == setup.columns


def _without_functions(model: Any) -> tuple[Any, int]:
    """Return a fitted model without the random functions of the ensemble in it, and their number.

    It is the model itself, and 0, if there are none.
    """
    ensemble = ensemble_inside(model, _ENSEMBLES)
    functions = None if ensemble is None else ensemble._recipe.functions
    if functions is None:
        return model, 0
    networks = copy.copy(ensemble)
    networks._recipe = replace(ensemble._recipe, functions=None)
    module = rebuild_module(ensemble._plan, networks._recipe, weights_of(ensemble.module_))
    networks.module_ = module.to(next(ensemble.module_.parameters()).device)
    return with_inside(model, networks), len(functions.members)


def inside_wrappers(model: Any, *wrappers: Any) -> Any:
    """Return the model in any number of wrappers."""
    while isinstance(model, wrappers):
        model = model.estimator
    return model


def _at_once(act: Callable[[], Any]) -> Any:
    return act()


def _arguments_for(model: Any, setup: Setup) -> FitArguments:
    """Return what the teacher is fitted on: of a stream, examples if the model is fitted already.

    It is a ValueError if the model is not, and does not take batches.
    """
    stream = setup.stream
    if stream is None or isinstance(model, _ENSEMBLES):
        return setup.arguments
    if not is_prefitted(model):
        raise ValueError(
            "teacher must be fitted, in a FrozenEstimator, or be a BayesianEnsembleClassifier or "
            f"BayesianEnsembleRegressor where X gives batches; got {model!r}."
        )
    X, y, weight = stream.examples
    names = getattr(model, "feature_names_in_", None)
    as_frame = frames_like(stream.first_X, names, setup.columns)
    return FitArguments(as_frame(X), y, weight if stream.is_weighted else None)


def has_fitted_teacher(distiller: Any) -> bool:
    """Tell whether `teacher` is fitted already; an AttributeError says what to do if it is not.

    It is a condition for ``available_if``, as scikit-learn asks of what needs it.
    """
    teacher = distiller.teacher
    if kind_of(teacher) is None or isinstance(teacher, str) or not is_prefitted(model_of(teacher)):
        raise AttributeError(
            "teacher must be fitted for partial_fit, which does not fit it on a part of the rows: "
            f"write teacher=FrozenEstimator(fitted). Got {teacher!r}."
        )
    return True


def _out_of_fold(distiller: Any, teacher: Any, setup: Setup, seed: int) -> np.ndarray:
    """Out-of-fold predictions of members for X, encoded, with `teacher_cv`."""
    predict = check_memory(distiller.memory).cache(out_of_fold_members, ignore=["verbose"])
    has_ensemble = ensemble_inside(teacher, _ENSEMBLES, fitted=False) is not None
    if setup.plan.takes_functions and has_ensemble:
        teacher = clone(teacher)
        ensemble_inside(teacher, _ENSEMBLES, fitted=False).set_params(distance_aware=False)
    X, y, sample_weight = setup.arguments
    members = predict(
        teacher,
        X,
        y,
        cv=distiller.teacher_cv,
        sample_weight=sample_weight,
        # A seed of chance would keep the predictions from being found in the memory again.
        random_state=None if distiller.random_state is None else seed,
        name="teacher_cv",
        verbose=distiller.verbose,
    )
    members = _checked(setup, members, len(members), teacher)
    weight = setup.plan.task.weights_of_rows(members, sample_weight)
    kept = members if weight is None else members[weight > 0]
    return setup.plan.encode_members(kept, setup.scaling, setup.dtype)


def unfitted_teacher(distiller: Any, default: Callable[[], Any] | None = None) -> Any:
    """Return a copy of `teacher` to fit; raise for one of the other kind."""
    if distiller.teacher is None and default is not None:
        return default()
    found = kind_of(distiller.teacher)
    if found != distiller._kind:
        raise ValueError(
            f"teacher must be a {distiller._kind} to teach {type(distiller).__name__}; "
            f"{type(distiller.teacher).__name__} is a {found}."
        )
    return as_teacher(clone(distiller.teacher))


def check_teacher(distiller: Any) -> None:
    """Hold the columns and classes that `teacher_` knows against those of X and y."""
    teacher, n_columns = distiller.teacher_, distiller.n_features_in_
    n_features = getattr(teacher, "n_features_in_", n_columns)
    if n_features != n_columns:
        raise ValueError(f"teacher was fitted on {n_features} columns, but X has {n_columns}.")
    check_names(distiller, getattr(teacher, "feature_names_in_", None), "teacher was fitted on")
    if is_classifier(distiller):
        classes, found = distiller.classes_.tolist(), np.asarray(teacher.classes_).tolist()
        if set(classes) != set(found):
            raise ValueError(f"teacher must know the classes of y, {classes}; it knows {found}.")


def predictor_of(teacher: Any, setup: Setup, encoder: Any = None) -> Predict:
    """Return what predicts rows with the members of a fitted teacher.

    Predictions are encoded by the plan, for the student's objective, or by another `encoder`: the
    task leaves them what they are.
    """
    as_frame = frames_like(
        setup.example_of_X, getattr(teacher, "feature_names_in_", None), setup.columns
    )
    encoder = setup.plan if encoder is None else encoder
    labels = getattr(setup.plan.task, "labels", None)

    def predict(rows: np.ndarray) -> np.ndarray:
        members = predict_members(teacher, as_frame(rows))
        if labels is not None:
            members = align_classes(members, teacher.classes_, labels)
        members = _checked(setup, members, len(rows), teacher)
        return encoder.encode_members(members, setup.scaling, setup.dtype)

    return predict


def distribution_of(task: Any, members: torch.Tensor) -> Any:
    """Return encoded predictions of members, (n, S, ...), as a distribution."""
    members = members.transpose(0, 1)
    if isinstance(task, RegressionTask):
        return EmpiricalGaussian(*members.unbind(-1))
    return EmpiricalCategorical(members)


def _checked(setup: Setup, members: Any, n_rows: int, teacher: Any) -> np.ndarray:
    """Check members' predictions for `n_rows` rows."""
    name = f"the predictions of teacher {type(teacher).__name__}"
    kind = setup.plan.task.shape_of_members
    return check_member_predictions(members, n_rows, name=name, **kind)


def fit_teacher(teacher, X, y, sample_weight, context, student):
    """Fit a teacher as a task of its student, with the weights for the last step of a Pipeline."""
    pass_on_verbose(teacher, student)
    with task_of_teacher(teacher, X, y, context, student):
        teacher.fit(X, y, **weights_for(teacher, sample_weight))
    return teacher


def pass_on_verbose(teacher: Any, student: Any) -> None:
    """Let a teacher of ours, or a search over one, print as much as its student.

    Most of the time of a fit is often the teacher's. It may be the last step of a Pipeline.
    """
    model = _last_step(teacher)
    if has_members(model) and "verbose" in model.get_params(deep=False):
        model.set_params(verbose=max(model.verbose, student.verbose))


def _share_time(teacher: Any, student: Any, setup: Setup) -> None:
    """Give an unfitted teacher of ours, unless it has a `max_time`, a part of its student's.

    The fits of `teacher_cv` share it. Others, such as forests or Markov chains, take as long as
    they do, and the student has what is left.
    """
    budget, model = setup.training.budget, _last_step(teacher)
    if budget is None or is_prefitted(model) or not has_members(model):
        return
    params = model.get_params(deep=False)
    runs_chains = isinstance(params.get("inference"), (SGLD, SGHMC))
    if runs_chains or params.get("max_time", ...) is not None:
        return
    n_fits, cv = 1, student.teacher_cv
    if isinstance(cv, Iterator):  # which can be counted once
        n_fits += length_hint(cv, 5)
    elif cv is not None:
        n_fits += check_cv(cv, setup.y).get_n_splits(setup.X, setup.y)
    model.set_params(max_time=budget.of_whole(_SHARE_OF_TEACHER / n_fits))


def _last_step(teacher: Any) -> Any:
    """Return the model of a teacher, which may be the last step of a Pipeline."""
    model = model_of(teacher)
    while isinstance(model, Pipeline):
        model = model[-1]
    return model


@contextlib.contextmanager
def task_of_teacher(teacher, X, y, context, student):
    """Tell scikit-learn's callbacks of a student that its teacher is fitted."""
    is_fitted_before = isinstance(teacher, FrozenEstimator)
    propagated = context.propagate_callback_context
    with contextlib.nullcontext() if is_fitted_before else propagated(teacher):
        context.call_on_fit_task_begin(estimator=student, X=X, y=y)
        yield
        context.call_on_fit_task_end(estimator=student, X=X, y=y)


def frames_like(X, names, columns: Columns | None = None) -> Callable[[np.ndarray], Any]:
    """Return what turns an array into a frame of X's library, for a teacher with named columns.

    Where columns of X hold categories or dates, whatever the teacher, their codes and days become
    these again.
    """
    if columns is None and date_columns(X):
        columns = Columns(np.shape(X)[1], {})
    if columns is not None:
        return lambda rows: columns.decode(rows, X)
    if names is None:
        return lambda rows: rows
    if not hasattr(X, "columns"):
        import pandas as pd  # the teacher has seen a frame, so there is a library of frames

        return lambda rows: pd.DataFrame(rows, columns=list(names))
    keyword = "schema" if type(X).__module__.startswith("polars") else "columns"
    return lambda rows: type(X)(rows, **{keyword: list(names)})
