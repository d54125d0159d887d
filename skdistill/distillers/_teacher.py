# SPDX-License-Identifier: BSD-3-Clause
"""Fitting the teacher of a distiller, and predicting with the teacher's members."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, check_memory

from .._data.columns import Columns, date_columns, feature_names_of
from .._estimator.base import ObservedTask
from .._estimator.functions import predict_members
from .._estimator.unwrapping import (
    ensemble_inside,
    final_step,
    has_members,
    is_prefitted,
    is_search,
    seed_where_unset,
    tags_of,
    weights_for,
    with_inside,
)
from .._method.plan import rebuild_module, weights_of
from .._method.random_functions import LEAST_SAMPLES, Predict, RandomFunctions
from .._method.task import RegressionTask, Task
from .._utils.reporting import stage
from .._utils.warnings import warn
from ..distributions import Distribution, EmpiricalCategorical, EmpiricalGaussian
from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ..samplers import SGHMC, SGLD
from ..teachers import (
    MixedModels,
    Teacher,
    align_classes,
    as_teacher,
    check_member_predictions,
    interpolates,
    out_of_fold_members,
)
from ._spec import FitArguments, FitSpec, check_names, kind_of

# See doc/design.rst.
_SHARE_OF_TEACHER = 0.5  # of `max_time`
_ROWS_LOOKED_AT, _LEAST_ROWS = 1_000, 20  # samples, at most and at least, that judge a teacher

_ENSEMBLES = (BayesianEnsembleClassifier, BayesianEnsembleRegressor)


class MemberPredictions(NamedTuple):
    """Predictions of a teacher's members, encoded for the student's objective."""

    of_X: np.ndarray | None  # for X, (n, S, ...), if they are known already
    predict: Any  # samples (m, ...) to predictions (m, S, ...); None without a teacher
    functions: RandomFunctions | None = None  # of the teacher, which the student has too
    share_of_functions: float = 0.0  # of their variance, which the student finds for itself
    teacher: Any = None  # fitted
    is_ensemble: bool = True  # of ours, or unknown

    def count(self, X: np.ndarray) -> int:
        """Return the number of members."""
        counts = [] if self.predict is None else [self.predict(X[:1]).shape[1]]
        counts += [] if self.of_X is None else [self.of_X.shape[1]]
        if counts[0] != counts[-1]:
            raise ValueError(
                "teacher must have as many members when it is fitted on all samples as on the "
                f"folds of teacher_cv; got {counts[0]} and {counts[1]}."
            )
        return counts[0]


def fit_teacher(spec: FitSpec, task: ObservedTask) -> MemberPredictions:
    """Fit the teacher, as a part of `task`, unless there are `member_predictions`."""
    (seed,) = spec.draw_seeds(1)
    if spec.member_predictions is not None:
        return MemberPredictions(spec.member_predictions, None)
    params, teacher, task = spec.params, unfitted_teacher(spec, seed), task.subtask("teacher")
    model, cv = inside_wrappers(teacher, Teacher), params["teacher_cv"]
    is_fitted_before, last = is_prefitted(model), _last_step(model)
    budget, is_ours = spec.training.budget, has_members(last) or isinstance(last, MixedModels)
    settings = last.get_params(deep=False) if is_ours and not is_fitted_before else {}
    runs_chains = isinstance(settings.get("inference"), (SGLD, SGHMC))
    if budget is not None and settings.get("max_time", ...) is None and not runs_chains:
        # A teacher of ours gets a part of its student's time, which the fits of the folds share.
        n_fits = 1
        if isinstance(cv, Iterator):  # which can be counted once
            n_fits += length_hint(cv, 5)
        elif cv is not None:
            n_fits += check_cv(cv, spec.y).get_n_splits(spec.X, spec.y)
        last.set_params(max_time=budget.seconds * _SHARE_OF_TEACHER / n_fits)
    of_folds = None if cv is None else clone(teacher)  # the fit changes `verbose`
    fitted = None if spec.before is None else spec.before.facts.get("teacher_")
    if fitted is None:
        given, stream = spec.arguments, spec.stream
        if stream is not None and not isinstance(model, _ENSEMBLES):
            if not is_fitted_before:
                raise ValueError(
                    "teacher must be fitted, in a FrozenEstimator, or be a "
                    "BayesianEnsembleClassifier or BayesianEnsembleRegressor where X gives "
                    f"batches; got {model!r}."
                )
            X, y, weight = stream.examples
            as_frame = frames_like(stream.first_X, feature_names_of(model), spec.schema.columns)
            given = FitArguments(as_frame(X), y, weight if stream.is_weighted else None)
        ensemble = None if is_search(model) else ensemble_inside(model, _ENSEMBLES, fitted=False)
        shown: Any = stage(f"teacher, {type(model).__name__}")
        if is_fitted_before:
            shown = nullcontext()
        elif ensemble is not None:
            shown = stage(f"teacher, {ensemble.n_members} members")
        warn_of_refit(spec.teacher)
        memory = check_memory(None if is_fitted_before else params["memory"])
        with shown:
            fit = memory.cache(fit_on_samples, ignore=["task", "verbose"])
            fitted = fit(teacher, *given, task, params["verbose"])
        check_teacher(fitted, spec)
        # Ensembles of this package, which are no Teacher, are regularised.
        if cv is None and isinstance(final_step(fitted)[0], Teacher):
            _warn_of_interpolation(fitted, given, is_fitted_before)
        if is_fitted_before:
            _warn_of_useless(spec, fitted)
    else:
        check_teacher(fitted, spec)
    of_X = None if of_folds is None else _out_of_fold(spec, of_folds, fitted, seed)
    networks, functions, share = networks_and_functions(fitted, spec)
    is_ensemble = isinstance(inside_wrappers(fitted, FrozenEstimator), _ENSEMBLES)
    predict = predictor_of(networks, spec)
    return MemberPredictions(of_X, predict, functions, share, fitted, is_ensemble)


def fit_on_samples(teacher, X, y, sample_weight, task, verbose):
    """Fit a teacher as a task of its student; one of ours prints as much as its student."""
    model = _last_step(teacher)
    if has_members(model) and "verbose" in model.get_params(deep=False):
        model.set_params(verbose=max(model.verbose, verbose))
    with task.fitting(teacher, X, y):
        teacher.fit(X, y, **weights_for(teacher, sample_weight))
    return teacher


def _out_of_fold(spec: FitSpec, teacher: Any, fitted: Any, seed: int) -> np.ndarray:
    """Return encoded predictions for X of clones of a teacher that have not seen the sample."""
    params, plan = spec.params, spec.plan
    X, y, sample_weight = spec.arguments
    ensemble, (scaled, _) = ensemble_inside(teacher, _ENSEMBLES, fitted=False), final_step(fitted)
    if plan.takes_functions and ensemble is not None:
        ensemble.set_params(distance_aware=False)
    if isinstance(scaled, Teacher):
        final_step(teacher)[0].set_params(epistemic_scale=None)
    with stage("out-of-fold predictions"):
        members = check_memory(params["memory"]).cache(out_of_fold_members, ignore=["verbose"])(
            teacher,
            X,
            y,
            cv=params["teacher_cv"],
            sample_weight=sample_weight,
            # A seed of chance would keep the predictions from being found in the memory again.
            random_state=None if params["random_state"] is None else seed,
            name="teacher_cv",
            verbose=params["verbose"],
        )
    name = f"the predictions of teacher {type(teacher).__name__}"
    shape = plan.task.shape_of_members
    members = check_member_predictions(members, len(members), name=name, **shape)
    if isinstance(scaled, Teacher):
        members = scaled.on_scale(members)
    weight = plan.task.weights_of_rows(members, sample_weight)
    members = members if weight is None else members[weight > 0]
    return plan.encode_members(members, spec.scaling, spec.X.dtype)


def unfitted_teacher(spec: FitSpec, seed: int) -> BaseEstimator:
    """Return a copy of the teacher to fit, seeded if the fit may be repeated or go on."""
    if (found := kind_of(spec.teacher)) != spec.kind:
        raise ValueError(
            f"teacher must be a {spec.kind} to teach {spec.name}; {type(spec.teacher).__name__} "
            f"is a {found}."
        )
    teacher = as_teacher(clone(spec.teacher))
    if spec.params["random_state"] is not None or spec.checkpoint is not None:
        seed_where_unset(teacher, seed)
    return teacher


def _last_step(teacher: BaseEstimator) -> BaseEstimator:
    """Return the model of a teacher, which may be the last step of a Pipeline."""
    model = inside_wrappers(teacher, Teacher)
    while isinstance(model, Pipeline):
        model = model[-1]
    return model


def _warn_of_interpolation(fitted: Any, given: FitArguments, is_fitted_before: bool) -> None:
    """Warn of a teacher that nearly hits its targets."""
    if not interpolates(fitted, *given):
        return
    name = type(final_step(inside_wrappers(fitted, Teacher))[0]).__name__
    if is_fitted_before:
        warn(
            f"The fitted teacher, {name}, nearly hits the targets given to fit, as it hits those "
            "that it was fitted on: its variance for these samples may say little of the others. "
            "Give fit samples that the teacher has not seen; or give it the model unfitted, with "
            "teacher_cv=5, so that models that have not seen a sample answer for it."
        )
    else:
        warn(
            f"The teacher, {name}, nearly hits the targets that it was fitted on, so that its "
            "variance for these samples may say little of the others. teacher_cv=5 lets models "
            "that have not seen a sample answer for it, and so does a teacher fitted on other "
            "samples, in a FrozenEstimator."
        )


def warn_of_refit(teacher: BaseEstimator) -> None:
    """Warn of a fitted teacher that is fitted anew."""
    model = inside_wrappers(teacher, Teacher)

    is_fitted = False
    for found in () if is_prefitted(model) else (teacher, model):
        with suppress(NotFittedError, TypeError):  # the latter of what has no fit
            check_is_fitted(found)
            # Others count as fitted always.
            is_fitted |= tags_of(final_step(found)[0]).requires_fit
    if not is_fitted:
        return
    again = " The search runs again; best_estimator_ is the model that it has found."
    warn(
        f"teacher is a fitted {type(model).__name__}, and a clone of it is fitted anew. To keep "
        "the fitted one, write teacher=FrozenEstimator(teacher)." + again * is_search(model)
    )


def check_teacher(teacher: BaseEstimator, spec: FitSpec) -> None:
    """Hold the columns and classes that a fitted teacher knows against those of X and y."""
    n_columns, task = spec.X.shape[1], spec.plan.task
    if hasattr(teacher, "n_features_in_") and teacher.n_features_in_ != n_columns:
        raise ValueError(
            f"teacher was fitted on {teacher.n_features_in_} columns, but X has {n_columns}."
        )
    check_names(spec, feature_names_of(teacher), "teacher was fitted on")
    if task.kind == "classifier":
        classes, found = task.labels.tolist(), np.asarray(teacher.classes_).tolist()
        if set(classes) != set(found):
            raise ValueError(f"teacher must know the classes of y, {classes}; it knows {found}.")


def _warn_of_useless(spec: FitSpec, fitted: Any) -> None:
    """Warn of a fitted teacher whose members predict X and y no better than a constant would."""
    some = slice(None, None, max(1, -(-len(spec.X) // _ROWS_LOOKED_AT)))
    X, y, weight = spec.X[some], spec.y[some], spec.weight[some]
    if len(X) < _LEAST_ROWS or not np.ptp(y, axis=0).any():
        return
    members = predictor_of(fitted, spec, spec.plan.task)(X)
    name = type(final_step(inside_wrappers(fitted, Teacher))[0]).__name__
    if isinstance(spec.plan.task, RegressionTask):  # (n, S, t, 2)
        r2 = r2_score(y, members[..., 0].mean(axis=1), sample_weight=weight)
        loss, words = 1 - r2, f"an R2 of {round(r2, 3) + 0.0:g}"
    else:
        # Log probabilities (n, S, K). Of two losses the smaller one counts: a teacher of rare
        # classes may say the most frequent one always, and one with trees may be sure and wrong.
        proba = np.exp(members.astype(np.float64)).mean(axis=1)
        proba /= proba.sum(axis=1, keepdims=True)  # those of float32 sum to one to 1e-7 only
        labels = np.arange(proba.shape[1])
        shares = np.bincount(y, weight, len(labels)) / weight.sum()
        log_losses = [
            log_loss(y, p, labels=labels, sample_weight=weight)
            for p in (proba, np.broadcast_to(shares, proba.shape))
        ]
        accuracy = accuracy_score(y, proba.argmax(axis=1), sample_weight=weight)
        loss = min(log_losses[0] / log_losses[1], (1 - accuracy) / (1 - shares.max()))
        words = (
            f"an accuracy of {accuracy:.3g} (the most frequent class has a share of "
            f"{shares.max():.3g})"
        )
    if loss < 1:
        return
    warn(
        f"The fitted teacher, {name}, gets other samples than it "
        f"was fitted on, or has learnt nothing: it has {words} for X and y. Have they been scaled, "
        "as by a Pipeline around the student, or have they other units or another order of "
        "columns? Students scale their columns themselves (normalize=True), so give fit the "
        "samples as they came, and put what the teacher needs into it: "
        "teacher=FrozenEstimator(make_pipeline(scaler, model).fit(X, y))."
    )


def predictor_of(teacher: BaseEstimator, spec: FitSpec, encoder: Any = None) -> Predict:
    """Return what predicts samples with members of a fitted teacher, encoded by the plan."""
    example = spec.arguments.X if spec.stream is None else spec.stream.first_X
    as_frame = frames_like(example, feature_names_of(teacher), spec.schema.columns)
    encoder = spec.plan if encoder is None else encoder
    task = spec.plan.task
    labels = task.labels if task.kind == "classifier" else None
    name = f"the predictions of teacher {type(teacher).__name__}"

    def predict(rows: np.ndarray) -> np.ndarray:
        members = predict_members(teacher, as_frame(rows))
        if labels is not None:
            members = align_classes(members, teacher.classes_, labels)
        members = check_member_predictions(members, len(rows), name=name, **task.shape_of_members)
        return encoder.encode_members(members, spec.scaling, spec.X.dtype)

    return predict


def frames_like(X, names, columns: Columns | None = None) -> Callable[[np.ndarray], Any]:
    """Return what turns arrays into frames of X's library, if the teacher needs them."""
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


def distribution_of(task: Task, members: torch.Tensor) -> Distribution:
    """Return encoded predictions of members, (n, S, ...), as a distribution."""
    members = members.transpose(0, 1)
    if isinstance(task, RegressionTask):
        return EmpiricalGaussian(*members.unbind(-1))
    return EmpiricalCategorical(members)


def networks_and_functions(
    teacher: BaseEstimator, spec: FitSpec
) -> tuple[BaseEstimator, RandomFunctions | None, float]:
    """Divide a fitted ensemble, or a mixture with some, into its networks and random functions.

    The student imitates the networks, and has the same functions. Of an ensemble in a Pipeline or
    mixture it finds its own: then they are None, and last is the share of their variance, 0 else.
    The teacher is all there is if the student has no use for functions, or too few samples.
    """
    row_shape = spec.recipe.row_shape
    if not spec.plan.takes_functions or len(row_shape) != 1:
        return teacher, None, 0.0
    model = inside_wrappers(teacher, FrozenEstimator)
    if isinstance(model, _ENSEMBLES):
        table = model._recipe.row_shape, model._input_schema.columns
        if table == (row_shape, spec.schema.columns):
            networks, n_functions = _without_functions(model)
            return networks, model._recipe.functions if n_functions else None, 0.0
    if len(spec.X) < LEAST_SAMPLES:
        return teacher, None, 0.0
    mixture = ensemble_inside(teacher, (Teacher,))
    if mixture is None:
        networks, n_functions = _without_functions(teacher)
        return networks, None, float(n_functions > 0)
    if not isinstance(mixture.estimator_, MixedModels) or mixture.max_members is not None:
        return teacher, None, 0.0
    copied = copy.copy(mixture)
    copied.estimator_, share = mixture.estimator_._without_functions(_without_functions)
    return with_inside(teacher, copied), None, share


def _without_functions(model: BaseEstimator) -> tuple[BaseEstimator, int]:
    """Return a fitted model without random functions of the ensemble in it, and their number."""
    ensemble = ensemble_inside(model, _ENSEMBLES)
    functions = None if ensemble is None else ensemble._recipe.functions
    if functions is None:
        return model, 0
    recipe = replace(ensemble._recipe, functions=None)
    module = rebuild_module(ensemble._plan, recipe, weights_of(ensemble.module_))
    module = module.to(next(ensemble.module_.parameters()).device)
    networks = object.__new__(type(ensemble))  # a copy would build the module twice
    networks.__dict__.update({**vars(ensemble), "_recipe": recipe, "module_": module})
    return with_inside(model, networks), len(functions.members)


def inside_wrappers(model: object, *wrappers: Any) -> BaseEstimator:
    """Return the model in any number of wrappers."""
    while isinstance(model, wrappers):
        model = model.estimator
    return model
