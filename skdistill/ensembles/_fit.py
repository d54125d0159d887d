# SPDX-License-Identifier: BSD-3-Clause
"""Fitting an ensemble, from its parameters to its members."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.columns import COLUMN_PARAMETERS
from .._data.encoding import EMBEDDED_FROM, MANY_ROWS, InputSettings
from .._estimator.base import (
    Fitted,
    NetworkSettings,
    checked_training,
    fit_task,
    for_callbacks,
    reset_fitted,
    with_callbacks,
)
from .._estimator.batched import read_in_chunks
from .._estimator.predicting import DistributionEstimator
from .._estimator.warm_start import all_weights, in_dtype_of, is_trained, same_recipe, scaling_of
from .._method.plan import TrainingBudget, weights_of
from .._method.random_functions import RandomFunctions, find_functions
from .._method.task import TASKS, Task, prepare_to_compute, read_samples
from .._serialization.digest import digest
from .._training.resume import resumable
from .._training.stream import Stream, is_stream, refuse_with_stream
from .._training.trainer import Training
from .._utils.process import one_blas_thread, torch_threads
from .._utils.ranks import refuse_ranks
from .._utils.validation import Number, NumberOfJobs, OneOf, did_you_mean
from .._utils.warnings import warn
from ..modules import shares_weights
from ..samplers import SGHMC, SGLD, MCDropout
from ._diagnostics import diagnose
from ._out_of_bag import LEAST_ROWS, OutOfBag, Parts
from ._plan import EnsemblePlan
from ._training import (
    ChainObserver,
    ChainTrainer,
    Data,
    DropoutTrainer,
    EnsembleTrainer,
    Job,
    Trainer,
    amount_of_training,
    has_bins,
)
from ._tuning import best_of, best_of_trials

# Weights of a smaller mean are warned of: they were made to sum to one, it seems.
_LEAST_MEAN_WEIGHT = 0.1

# Samples, about, that tell whether a further fit has those of the one before, beside all targets.
_ROWS_LOOKED_AT = 1_000

_TRAINERS: dict[type, type[Trainer]] = {
    str: EnsembleTrainer,
    SGLD: ChainTrainer,
    SGHMC: ChainTrainer,
    MCDropout: DropoutTrainer,
}

# What parameters must be where members share weights, and are trained as one network.
_WITH_SHARING = {
    "inference": "deep_ensemble",
    "bootstrap": False,
    "warm_start": False,
    "tune": None,
}


class InferenceRule:
    """Rule of `inference`; `objects` are settings that may be given instead of the name."""

    objects = (SGLD, SGHMC, MCDropout)

    def check(self, value: Any, name: str) -> None:
        if type(value) in _TRAINERS and not isinstance(value, str):
            value.check()
        elif not (isinstance(value, str) and value == "deep_ensemble"):
            raise ValueError(
                f"{name} must be 'deep_ensemble', or an SGLD(...), SGHMC(...) or MCDropout(...) of "
                f"skdistill.samplers, an object and not its class; got {value!r}."
                + did_you_mean(value, ("deep_ensemble",))
            )


PARAMETER_TABLE = {
    **DistributionEstimator._parameter_table,
    "n_members": Number(Integral, 1),
    "max_epochs": Number(Integral, 1, others=("auto",)),
    "batch_size": Number(Integral, 1, others=("auto",)),
    "dtype": OneOf(("auto", "float32", "float64")),
    "inference": InferenceRule(),
    "prior_scale": Number(Real, 1e-15, 1e15, others=(np.inf,)),
    "bootstrap": OneOf((True, False)),
    "tune": OneOf((None, "oob")),
    "calibrate": OneOf(("auto", "oob", None)),
    "early_stopping": OneOf((True, False)),
    "validation_fraction": Number(Real, 0, 1, closed="neither"),
    "n_iter_no_change": Number(Integral, 1, others=("auto",)),
    "tol": Number(Real, 0),
    "max_restarts": Number(Integral, 0),
    "distance_aware": OneOf((True, False)),
    "member_block": Number(Integral, 1, others=("auto",)),
    "warm_start": OneOf((True, False)),
    "n_jobs": NumberOfJobs(),
    **COLUMN_PARAMETERS,
}


# Of `max_time`, kept for what follows training: a share for predictions of rows left out, and
# seconds for random functions, which took .35 on a core that was free, from so many samples on.
_SHARE_AFTER, _SECONDS_OF_FUNCTIONS, _SAMPLES_OF_FUNCTIONS, _MOST_AFTER = 0.03, 0.5, 2_000, 0.5

# What parameters must be where X gives batches, which are trained on as they are read.
_WITH_STREAM = {
    "inference": "deep_ensemble",
    "class_weight": None,
    "bootstrap": False,
    "early_stopping": False,
    "warm_start": False,
    "checkpoint": None,
    "tune": None,
}


@with_callbacks
def fit_ensemble(ensemble: Any, X, y, sample_weight=None, observer: ChainObserver | None = None):
    """Train the members of an ensemble, and return it.

    Parameters
    ----------
    ensemble : BayesianEnsembleClassifier or BayesianEnsembleRegressor
    X, y, sample_weight
        As in its `fit`.
    observer : ChainObserver, default=None
        Called with the samples of Markov chains; only the last of them become members then.
    """
    refuse_ranks(ensemble)
    training = checked_training(ensemble)
    given = for_callbacks(X, y, sample_weight)
    _check_settings(ensemble)
    if shares_weights(ensemble.module):
        _check_settings_of_sharing(ensemble)
    if is_stream(X):
        return _fit_on_stream(ensemble, training, X, y, sample_weight)
    if goes_on := ensemble.warm_start and is_trained(ensemble):
        _check_members_of_before(ensemble)
        X, y = read_samples(ensemble, X, y, reset=False)
        y, task = TASKS[ensemble._kind].check(y, ensemble._plan.task)
        X = in_dtype_of(ensemble.module_, X)
    else:
        reset_fitted(ensemble)
        X, y = read_samples(ensemble, X, y)
        y, task = TASKS[ensemble._kind].check(y)
        X, task = prepare_to_compute(ensemble.dtype, ensemble.device, X, task)
    if goes_on and ensemble.n_members == len(_numbers_of(ensemble)):
        warn(
            f"With warm_start=True, all of the n_members={ensemble.n_members} members are trained "
            "already, and stay as they are: fit trains none."
        )
        return ensemble
    vars(ensemble).update(task.fitted_attributes)
    weight = task.weights_of_rows(y, sample_weight, getattr(ensemble, "class_weight", None))
    if weight is not None and not weight.all():  # else X may be a memory map, and is not copied
        X, y, weight = (array[weight > 0] for array in (X, y, weight))
    _warn_of_small_weights(len(y) if weight is None else weight.sum(), len(y))
    random_state = check_random_state(ensemble.random_state)
    data = {"X": X, "y": y, "sample_weight": weight}
    if goes_on:
        data["the fitted members"] = all_weights(ensemble.module_)
    with resumable(ensemble, random_state, data) as random_state:
        _train_members(ensemble, training, task, Data(X, y, weight), random_state, observer, given)
    return ensemble


def _fit_on_stream(ensemble: Any, training: Training, X, y, sample_weight) -> Any:
    """Train the members of an ensemble on batches, and return it."""
    with_stream = (
        _WITH_STREAM if ensemble.calibrate == "auto" else {**_WITH_STREAM, "calibrate": None}
    )
    refuse_with_stream(ensemble, with_stream, {"y": y, "sample_weight": sample_weight})
    reset_fitted(ensemble)
    stream = Stream(ensemble, X)
    _warn_of_small_weights(stream.total_weight, stream.n_rows)
    vars(ensemble).update(stream.task.fitted_attributes)
    random_state = check_random_state(ensemble.random_state)
    given = for_callbacks(X, None)
    _train_members(ensemble, training, stream.task, stream, random_state, None, given)
    return ensemble


def _warn_of_small_weights(total: float, n_samples: int) -> None:
    """Warn of weights, those of classes included, beside which the prior outweighs the samples."""
    if total < _LEAST_MEAN_WEIGHT * n_samples:
        warn(
            f"The weights of the samples sum to {total:.3g}, and so count as {total:.3g} samples "
            f"beside the prior, although there are {n_samples}: the members will stay near it. "
            "Weights of mean 1, sample_weight * len(X) / sample_weight.sum(), count every sample "
            "once; class_weight multiplies them."
        )


def _train_members(
    ensemble: Any,
    training: Training,
    task: Task,
    data: Any,
    random_state: np.random.RandomState,
    observer: ChainObserver | None,
    given: dict[str, Any],
) -> None:
    """Train the members of an ensemble on Data or a Stream, and keep them.

    `given` is what scikit-learn's callbacks hear of.
    """
    from .._engine import TaskPerEpoch

    goes_on = is_trained(ensemble)
    training = _keeping_time(ensemble, training, data.n_rows)
    train, valid = split(ensemble, task, data, random_state)
    if goes_on:
        scaling = scaling_of(ensemble.module_)
    else:
        scaling = train.scaling(task, getattr(ensemble, "normalize_y", True))
    parts = Parts.drawn(task, train.y, random_state) if _leaves_out(ensemble, train) else None
    job_with = partial(_job, ensemble, training, task, (scaling, parts, train, valid))
    trainer = _trainer_of(ensemble)(job_with(_settings_found(ensemble)), observer)
    if goes_on:
        _adopt_members(trainer)
    with fit_task(ensemble, given, trainer.n_blocks * trainer.job.n_epochs) as context:
        try:
            if isinstance(trainer, EnsembleTrainer) and ensemble.tune and not goes_on:
                trainer, ensemble.tuning_ = best_of_trials(trainer, job_with, random_state)
            trainer.train_all(random_state, partial(TaskPerEpoch, context, ensemble, given))
        except (KeyboardInterrupt, Exception):  # of any kind: a worker may die, a cluster go away
            if trainer.weights:
                _keep_members(ensemble, trainer, random_state)
            raise
        _keep_members(ensemble, trainer, random_state)
        if trainer.worse:
            training.warn_of_worse(f"{trainer.network_is}(s) {trainer.worse} are")
        if isinstance(trainer, ChainTrainer):
            ensemble.sampler_diagnostics_ = (
                diagnose(ensemble, data.X) if observer is None else observer.diagnostics()
            )


def _job(
    ensemble: Any,
    training: Training,
    task: Task,
    rows: tuple[Any, ...],
    settings: dict[str, Any],
) -> Job:
    """Return what to train: an ensemble, with other settings, on `rows` in the order of Job's."""
    if settings:
        ensemble = copy.copy(ensemble).set_params(**settings)
        training = replace(Training.of(ensemble), budget=training.budget)
    *_, train, _ = rows
    plan = _plan_of(ensemble, task)
    if train.n_rows < plan.n_sharing:
        raise ValueError(
            f"X must have at least n_members={ensemble.n_members} rows to train on with "
            f"module={ensemble.module.__name__}, of whose members each has rows of its own; got "
            f"{train.n_rows}."
        )
    # Bins make members surer than they should be. Unless they are calibrated, bins are for large
    # tables (wine, validation rows: NLL .86 without, 1.13 with them; calibrated .920 and .921).
    embedded_from = EMBEDDED_FROM if _calibrates(ensemble, train) else MANY_ROWS
    inputs = train.inputs(InputSettings.of(ensemble), embedded_from)
    recipe = NetworkSettings.of(ensemble).recipe(plan, train.row_shape, inputs)
    if is_trained(ensemble):
        recipe = same_recipe(ensemble._recipe, recipe)
    n_epochs, batch_size = amount_of_training(ensemble, train.n_rows, has_bins(recipe))
    return Job(ensemble, training, n_epochs, batch_size, plan, recipe, *rows)


def _keeping_time(ensemble: Any, training: Training, n_rows: int) -> Training:
    """Return how to train with time left, of `max_time`, for what comes after."""
    budget = training.budget
    if budget is None:
        return training
    share = min(1.0, n_rows / _SAMPLES_OF_FUNCTIONS) if ensemble.distance_aware else 0.0
    seconds = _SHARE_AFTER * budget.seconds + share * _SECONDS_OF_FUNCTIONS
    return replace(training, budget=budget.keeping_for_work(seconds, _MOST_AFTER))


def _settings_found(ensemble: Any) -> dict[str, Any]:
    """Return the settings that tuning has found in a fit that this one goes on from."""
    trials = getattr(ensemble, "tuning_", None)
    return best_of(trials)["params"] if trials else {}


def _leaves_out(ensemble: Any, train: Any) -> bool:
    """Tell whether each member is to leave out some rows; further members do as the first ones."""
    if is_trained(ensemble):
        return hasattr(ensemble, "calibration_") or hasattr(ensemble, "tuning_")
    return _calibrates(ensemble, train) or ensemble.tune is not None


def _calibrates(ensemble: Any, train: Any) -> bool:
    """Tell whether `calibrate` asks for a calibration, given the training rows."""
    if ensemble.calibrate != "auto":
        return ensemble.calibrate is not None
    is_usual = ensemble.inference == "deep_ensemble" and isinstance(train, Data)
    if shares_weights(ensemble.module):
        # The rows cost members for numbers more than the temperature gives: on validation rows
        # RMSE and NLL rose by .8 % and .014 (california, 100 epochs), .5 % and .022 (house).
        return is_usual and ensemble._kind == "classifier" and train.n_rows >= MANY_ROWS
    return is_usual and train.n_rows >= LEAST_ROWS


def _trainer_of(ensemble: Any) -> type[Trainer]:
    """Return the way of training for `inference`."""
    return _TRAINERS[type(ensemble.inference)]


def _check_settings(ensemble: Any) -> None:
    """Raise a ValueError for parameters that do not go with others."""
    if ensemble.inference == "deep_ensemble":
        return
    kind = type(ensemble.inference).__name__
    for name in ("bootstrap", "early_stopping", "warm_start"):
        if getattr(ensemble, name):
            raise ValueError(f"{name} must be False with inference={kind}(...), got True.")
    if ensemble.tune is not None:
        raise ValueError(f"tune must be None with inference={kind}(...), got {ensemble.tune!r}.")
    if ensemble.calibrate == "oob":
        raise ValueError(
            f"calibrate must be 'auto' or None with inference={kind}(...), whose members see all "
            "rows; got 'oob'."
        )
    if _trainer_of(ensemble) is ChainTrainer and ensemble.max_time is not None:
        raise ValueError(
            f"max_time must be None with inference={kind}(...), whose burn-in and step size follow "
            f"the max_epochs that all chains run for; got {ensemble.max_time!r}."
        )
    if _trainer_of(ensemble) is ChainTrainer and ensemble.clip_norm is not None:
        raise ValueError(
            f"clip_norm must be None with inference={kind}(...), whose chains would no longer "
            f"draw from the posterior; got {ensemble.clip_norm!r}."
        )


def _check_settings_of_sharing(ensemble: Any) -> None:
    """Raise a ValueError for parameters that do not go with members that share weights."""
    name = ensemble.module.__name__
    for parameter, value in _WITH_SHARING.items():
        given = getattr(ensemble, parameter)
        if given not in (value, "auto"):
            raise ValueError(
                f"{parameter} must be {value!r} with module={name}, whose members share weights; "
                f"got {given!r}."
            )
    if "module__n_members" in vars(ensemble):
        raise ValueError(
            f"module__n_members must not be given with module={name}: n_members is their number."
        )
    if ensemble.batch_size != "auto" and ensemble.batch_size < ensemble.n_members:
        raise ValueError(
            f"batch_size must be at least n_members={ensemble.n_members} with module={name}, since "
            f"each row of a minibatch trains one member; got {ensemble.batch_size}."
        )


def _numbers_of(ensemble: Any) -> list[int]:
    """Return the numbers of the fitted members; some may have diverged, or been interrupted."""
    return getattr(ensemble, "_member_numbers", list(range(ensemble.n_members_)))


def _check_members_of_before(ensemble: Any) -> None:
    """Raise a ValueError unless members can be added to the fitted ones."""
    if hasattr(ensemble, "sampler_diagnostics_") or ensemble._plan.dropout_rate is not None:
        raise ValueError(
            "warm_start must be False where the fitted members are those of an SGLD(...), "
            "SGHMC(...) or MCDropout(...), to which none can be added; got True."
        )
    numbers = _numbers_of(ensemble)
    if ensemble.n_members <= numbers[-1]:
        raise ValueError(
            f"n_members must be at least {numbers[-1] + 1}, as many as have been trained, with "
            f"warm_start=True; got {ensemble.n_members}."
        )


def _adopt_members(trainer: Trainer) -> None:
    """Give a trainer the fitted members of its ensemble, which it is to leave as they are."""
    ensemble = trainer.job.ensemble
    numbers, weights = _numbers_of(ensemble), weights_of(ensemble.module_.network)
    epochs = getattr(ensemble, "best_epochs_", np.full(len(numbers), ensemble.n_epochs_))
    for k, number in enumerate(numbers):
        trainer.weights[number] = {name: value[k] for name, value in weights.items()}
        trainer.best_epochs[number] = int(epochs[k])
    trainer.n_restarts[: len(ensemble.n_restarts_)] = ensemble.n_restarts_
    trainer.history = list(ensemble.history_)


def _plan_of(ensemble: Any, task: Task) -> EnsemblePlan:
    """Return the plan of the ensemble."""
    inference = ensemble.inference
    rate = inference.rate if isinstance(inference, MCDropout) else None
    runs_chains = _trainer_of(ensemble) is ChainTrainer
    beta = 0.0 if runs_chains else getattr(ensemble, "beta", 0.0)
    if shares_weights(ensemble.module):
        return EnsemblePlan(task, 1, beta, n_sharing=ensemble.n_members)
    return EnsemblePlan(task, ensemble.n_members, beta, rate)


def split(ensemble: Any, task: Task, data: Any, random_state) -> tuple[Any, Data | None]:
    """Return training rows, and validation rows or None."""
    if not ensemble.early_stopping:
        return data, None
    labels = task.decode(data.y) if task.kind == "classifier" else None
    fraction = ensemble.validation_fraction
    try:
        train, valid = train_test_split(
            np.arange(len(data.X)), test_size=fraction, random_state=random_state, stratify=labels
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out validation_fraction={fraction} of the rows"
            f"{'' if labels is None else ' of every class'}. {error}"
        ) from error
    return data.at(train), data.at(valid)


# Its many small operations would wait for threads where other processes keep the cores busy.
@one_blas_thread()
@torch_threads(1)
def _keep_members(ensemble: Any, trainer: Trainer, random_state: np.random.RandomState) -> None:
    """Stack the members that were trained, and keep them as the fitted module."""
    job, numbers = trainer.job, sorted(trainer.weights)
    networks = replace(job.recipe, functions=None)
    out_of_bag, (_, module) = None, trainer.stacked(None, networks)  # as trained
    has_further = is_trained(ensemble) and hasattr(ensemble, "calibration_")
    if has_further or (not is_trained(ensemble) and _calibrates(ensemble, job.train)):
        train: Any = job.train
        some = train.X[:: -(-train.n_rows // _ROWS_LOOKED_AT)]
        drawn = digest((some, train.y, job.parts))
        first = _first_that_left_out(ensemble, drawn) if has_further else 0
        if first <= numbers[-1]:  # else an interrupt has left none that is further
            out_of_bag = OutOfBag.of(module, numbers, job, first)
            ensemble._parts_drawn = drawn if first == 0 else None
    ensemble._member_numbers = job.plan.members_of(numbers)
    ensemble.n_members_, n_sharing = len(ensemble._member_numbers), job.plan.n_sharing
    ensemble.n_epochs_, ensemble.n_restarts_ = job.n_epochs, trainer.n_restarts.repeat(n_sharing)
    if job.training.budget is not None:
        ensemble.n_epochs_ = max(row["epoch"] for row in trainer.history)
    if ensemble.early_stopping or trainer.validates_out_of_bag:
        best = np.array([trainer.best_epochs[number] for number in numbers])
        ensemble.best_epochs_ = best.repeat(n_sharing)
    functions = _functions_of(ensemble, job, module, out_of_bag, random_state)
    if out_of_bag is not None:
        ensemble.calibration_ = out_of_bag.temperature(_added_variance(functions, job))
    recipe = replace(job.recipe, functions=functions)
    plan, module = trainer.stacked(getattr(ensemble, "calibration_", None), recipe)
    ensemble._keep(Fitted(plan, recipe, module, trainer.history, TrainingBudget()))


def _first_that_left_out(ensemble: Any, drawn: str) -> int:
    """Return the first member that has left out rows of the parts that a further fit has drawn.

    It is the first of all with the same samples and seed, else the first of the further ones.
    """
    is_same = getattr(ensemble, "_parts_drawn", None) == drawn
    return 0 if is_same else _numbers_of(ensemble)[-1] + 1


def _functions_of(
    ensemble: Any,
    job: Job,
    module: Any,
    out_of_bag: OutOfBag | None,
    random_state: np.random.RandomState,
) -> RandomFunctions | None:
    """Return the functions by which members differ away from the training samples, if they do."""
    members = ensemble._member_numbers
    is_table = len(job.train.row_shape) == 1
    if not (ensemble.distance_aware and is_table and len(members) > 1):
        return None
    found = job.recipe.functions
    if not is_trained(ensemble):
        X, y, _ = job.train if isinstance(job.train, Data) else job.train.checked_examples
        columns = ensemble._columns
        n_categories = None if columns is None else columns.n_categories
        are_classes = job.plan.task.kind == "classifier"

        def mean_log_probs(outputs: Tensor, rows: Tensor) -> Tensor:
            mean: Tensor = module.of_outputs(outputs, rows).log_probs.mean(0)
            return mean

        read = mean_log_probs if are_classes else module.mean
        predict = partial(read_in_chunks, module, read=read)
        held_out_error = None if out_of_bag is None else out_of_bag.squared_error()
        found = find_functions(
            X, y, n_categories, predict, held_out_error, are_classes, random_state
        )
    return None if found is None else found.of_members(members)


def _added_variance(functions: RandomFunctions | None, job: Job) -> np.ndarray | float:
    """Return what functions add to the variance at samples like those of training, (t,), scaled."""
    if functions is None or job.plan.task.kind == "classifier":
        return 0.0
    scale = functions.scale / job.scaling.get("y_scale", 1.0)
    return np.square(scale) * functions.left_out
