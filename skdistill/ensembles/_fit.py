# SPDX-License-Identifier: BSD-3-Clause
"""Fitting an ensemble, from its parameters to its members."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.encoding import EMBEDDED_FROM, MANY_ROWS, InputSettings
from .._data.schema import InputSchema
from .._estimator.base import (
    Fitted,
    ObservedTask,
    fit_task,
    for_callbacks,
    with_callbacks,
)
from .._estimator.batched import read_in_chunks
from .._estimator.warm_start import all_weights, in_dtype_of, same_recipe, scaling_of
from .._method.plan import TrainingBudget, weights_of
from .._method.random_functions import RandomFunctions, find_functions
from .._method.task import TASKS, Task, prepare_to_compute, read_samples
from .._serialization.digest import digest
from .._training.resume import resumable
from .._training.stream import Stream, is_stream, refuse_with_stream
from .._training.trainer import SEED_LIMIT
from .._utils.process import one_blas_thread, torch_threads
from .._utils.reporting import stage
from .._utils.warnings import warn
from ..modules import DistributionStack, shares_weights
from ..samplers import MCDropout
from ..settings import Runtime
from ._blocks import EnsembleTrainer
from ._diagnostics import diagnose
from ._job import Data, EnsemblePlan, Job, amount_of_training, has_bins, learning_rate
from ._out_of_bag import LEAST_ROWS, OutOfBag, Parts
from ._spec import EnsembleSpec
from ._trainer import ChainObserver, ChainTrainer, DropoutTrainer, Trainer
from ._tuning import LEAST_TUNED, best_of, best_of_priors, best_of_trials

_LEAST_MEAN_WEIGHT = 0.1  # weights of a smaller mean are warned of, as if made to sum to one
_ROWS_LOOKED_AT = 1_000  # samples, about, by which data are compared with those of the last fit

# What parameters must be where X gives batches, which are trained on as they are read.
_WITH_STREAM = {
    "inference": "deep_ensemble",
    "class_weight": None,
    "warm_start": False,
    "runtime__checkpoint": None,
    "inference__bootstrap": False,
    "inference__early_stopping": False,
}


@with_callbacks
def fit_ensemble(
    ensemble: BaseEstimator, X, y, sample_weight=None, observer: ChainObserver | None = None
):
    """Train the members of an ensemble, and return it.

    An observer is called with the samples of Markov chains; only the last of them become members
    then.
    """
    spec, given = EnsembleSpec.of(ensemble), for_callbacks(X, y, sample_weight)
    if is_stream(X):
        _refuse_with_stream(spec, ensemble.get_params(), {"y": y, "sample_weight": sample_weight})
    before = Fitted.of(ensemble) if spec.warm_start else None
    if before is None:
        ensemble._reset()
    else:
        _check_members_of_before(before, spec)
    data, task, schema = _read(ensemble, spec, before, X, y, sample_weight)
    if before is not None and spec.n_members == len(_numbers_in(before)):
        warn(
            f"With warm_start=True, all of the n_members={spec.n_members} members are trained "
            "already, and stay as they are: fit trains none."
        )
        return ensemble
    _warn_of_small_weights(data)
    ensemble._keep({"_input_schema": schema, **task.fitted_attributes})
    inputs = InputSettings.of(ensemble.get_params(deep=False), spec.kind, schema.columns)
    spec = replace(spec, inputs=inputs).keeping_time(data.n_rows)
    random_state = check_random_state(ensemble.random_state)
    with resumable(ensemble, random_state, _identity(data, before)) as random_state:
        fit = EnsembleFit(spec, task, data, before, random_state, observer)
        n_subtasks = fit.trainer.n_blocks * fit.trainer.job.n_epochs
        with fit_task(ensemble, given, n_subtasks) as observed:
            try:
                fit.run(observed)
            finally:  # what an interrupt, or a worker that dies, has left is kept too
                if fit.trainer.weights:
                    ensemble._keep(fit.fitted().attributes)
            if fit.trainer.worse:
                spec.training.warn_of_worse(f"{fit.trainer.network_is}(s) {fit.trainer.worse} are")
            if spec.runs_chains:
                found = (
                    diagnose(ensemble.module_, fit.trainer.job)
                    if observer is None
                    else observer.diagnostics()
                )
                ensemble._keep({"sampler_diagnostics_": found})
    return ensemble


def _refuse_with_stream(spec: EnsembleSpec, params: dict[str, object], given: dict) -> None:
    """Raise a ValueError for parameters and arguments that do not go with batches."""
    of_bag = {"calibrate": spec.calibrate, "tune": spec.tune}
    not_there = {f"inference__{name}": None for name, value in of_bag.items() if value == "oob"}
    if spec.trains_each:
        params = params | {"inference": "deep_ensemble"}
    if spec.bootstrap == "auto":
        params = params | {"inference__bootstrap": False}
    refuse_with_stream(params, {**_WITH_STREAM, **not_there}, given)


def _read(
    ensemble, spec: EnsembleSpec, before: Fitted | None, X, y, sample_weight
) -> tuple[Data | Stream, Task, InputSchema]:
    """Check X and y, and return them with what they tell; leave out samples of weight 0."""
    if is_stream(X):
        stream = Stream(ensemble, X)
        return stream, stream.task, stream.schema
    if before is None:
        X, y, schema = read_samples(ensemble, X, y)
        y, task = TASKS[ensemble._kind].check(y)
        runtime = Runtime.of(ensemble.runtime)
        X, task = prepare_to_compute(runtime.dtype, runtime.device, X, task)
    else:
        X, y, schema = read_samples(ensemble, X, y, ensemble._input_schema)
        known: Any = before.plan.task
        y, task = TASKS[ensemble._kind].check(y, known)
        X = in_dtype_of(before.module, X)
    weight = task.weights_of_rows(y, sample_weight, spec.class_weight)
    data = Data(X, y, weight)
    # X may be a memory map, and is copied only if need be.
    return (data if weight is None or weight.all() else data.at(weight > 0)), task, schema


def _identity(data: Data | Stream, before: Fitted | None) -> dict[str, Any]:
    """Return what a fit that goes on from a checkpoint is to have again; streams have none."""
    if isinstance(data, Stream):
        return {}
    own = {"X": data.X, "y": data.y, "sample_weight": data.weight}
    return own if before is None else {**own, "the fitted members": all_weights(before.module)}


def _warn_of_small_weights(data: Data | Stream) -> None:
    """Warn of weights, those of classes included, beside which the prior outweighs the samples."""
    total, n_samples = data.total_weight, data.n_rows
    if total < _LEAST_MEAN_WEIGHT * n_samples:
        warn(
            f"The weights of the samples sum to {total:.3g}, and so count as {total:.3g} samples "
            f"beside the prior, although there are {n_samples}: the members will stay near it. "
            "Weights of mean 1, sample_weight * len(X) / sample_weight.sum(), count every sample "
            "once; class_weight multiplies them."
        )


class EnsembleFit:
    """One fit of an ensemble, which may go on from `before`.

    Its `trainer` has the members that have been trained so far.
    """

    def __init__(
        self, spec: EnsembleSpec, task: Task, data, before: Fitted | None, random_state, observer
    ):
        self.spec, self.before, self.random_state = spec, before, random_state
        self.trials: list[dict[str, Any]] | None = None
        train, valid = split(spec, task, data, random_state)
        tuned = None
        if before is None:
            scaling = train.scaling(task, spec.normalize in (True, "y"))
            self.calibrates = _calibrates(spec, train)
            self.tune = _tune(spec, train)
            leaves_out = self.calibrates or self.tune is not None
        else:  # further members leave out samples as the first do
            scaling, tuned = scaling_of(before.module), before.facts.get("tuning_")
            self.tune = None
            self.calibrates = "calibration_" in before.facts
            leaves_out = self.calibrates or "tuning_" in before.facts
        perturbs, parts, seed = spec.perturbs and train.n_rows >= LEAST_ROWS, None, 0
        if leaves_out or perturbs:
            seed = int(random_state.randint(SEED_LIMIT))
        if leaves_out:
            n_networks = 1 if shares_weights(spec.networks.module) else spec.n_members
            parts = Parts.drawn(task, train.y, seed, n_networks)
        two_kinds = self.calibrates and self.tune is None and spec.may_have_two_kinds(train.n_rows)
        samples = (scaling, parts, seed if perturbs else None, two_kinds, train, valid)
        self.job_with = partial(_job, spec, task, before, samples)
        self.trainer = self._trainer(
            self.job_with(best_of(tuned)["params"] if tuned else {}), observer
        )

    @property
    def name(self) -> str:
        """What to call the training that is to come."""
        if self.spec.runs_chains:
            return "Markov chains"
        n_members = self.spec.n_members - len(self.trainer.weights)
        return f"{n_members} members" + (", tuned" if self.tune == "oob" else "")

    def run(self, observed: ObservedTask) -> None:
        """Train the members; `trainer` has them, also those before an interrupt."""
        trainer: Any = self.trainer  # an EnsembleTrainer where it is tuned
        with stage(self.name):
            if self.tune == "oob":
                trainer, self.trials = best_of_trials(trainer, self.job_with, self.random_state)
                self.trainer = trainer
            begin = copy.deepcopy(self.random_state)
            trainer.train_all(self.random_state, observed)
        if self.tune == "auto":
            self.trainer, self.trials = best_of_priors(trainer, self.job_with, begin)

    def _trainer(self, job: Job, observer: ChainObserver | None) -> Trainer:
        """Return what trains the members, of which those of before stay as they are."""
        if self.spec.runs_chains:
            return ChainTrainer(job, observer)
        if isinstance(self.spec.inference, MCDropout):
            return DropoutTrainer(job)
        if self.before is None:
            return EnsembleTrainer(job)
        facts, numbers = self.before.facts, _numbers_in(self.before)
        trainer = EnsembleTrainer(job, n_trained=len(numbers))
        weights = weights_of(self.before.module.network)
        epochs = facts.get("best_epochs_", np.full(len(numbers), facts["n_epochs_"]))
        for k, number in enumerate(numbers):
            trainer.weights[number] = {name: value[k] for name, value in weights.items()}
            trainer.best_epochs[number] = int(epochs[k])
        plan: Any = self.before.plan
        smooth = {n for n, is_one in zip(numbers, plan.are_smooth, strict=False) if is_one}
        trainer.smooth = smooth | {n for n in trainer.smooth if n > numbers[-1]}
        trainer.n_restarts[: len(facts["n_restarts_"])] = facts["n_restarts_"]
        trainer.history = list(self.before.history)
        return trainer

    # Its many small operations would wait for threads where other processes keep the cores busy.
    @one_blas_thread()
    @torch_threads(1)
    def fitted(self) -> Fitted:
        """Stack the members that have been trained, calibrated, with functions off the data."""
        trainer, job, numbers = self.trainer, self.trainer.job, sorted(self.trainer.weights)
        members, n_sharing = job.plan.members_of(numbers), job.plan.n_sharing
        facts = {
            "_member_numbers": members,
            "n_members_": len(members),
            "n_epochs_": job.n_epochs,
            "n_restarts_": trainer.n_restarts.repeat(n_sharing),
        }
        if job.training.budget is not None:
            facts["n_epochs_"] = max(row["epoch"] for row in trainer.history)
        if self.spec.early_stopping or trainer.validates_out_of_bag:
            best = np.array([trainer.best_epochs[number] for number in numbers])
            facts["best_epochs_"] = best.repeat(n_sharing)
        if self.trials is not None:
            facts["tuning_"] = self.trials
        plan, module = trainer.stacked(None, replace(job.recipe, functions=None))  # as trained
        out_of_bag, drawn = self._out_of_bag(plan, module, numbers)
        functions = self._functions(module, members, out_of_bag)
        if out_of_bag is not None:
            added: np.ndarray | float = (
                0.0  # by functions, to the variance of samples, (t,), scaled
            )
            if functions is not None and job.plan.task.kind == "regressor":
                scale = functions.scale / job.scaling.get("y_scale", 1.0)
                added = np.square(scale) * functions.left_out
            facts["calibration_"] = out_of_bag.temperature(len(members), added)
            facts["_parts_drawn"] = drawn
        before = {} if self.before is None else self.before.facts
        calibration = facts.get("calibration_", before.get("calibration_"))
        recipe = replace(job.recipe, functions=functions)
        plan, module = trainer.stacked(calibration, recipe)
        return Fitted(plan, recipe, module, trainer.history, TrainingBudget(), facts)

    def _out_of_bag(
        self, plan: EnsemblePlan, module: DistributionStack, numbers: list[int]
    ) -> tuple[OutOfBag | None, str | None]:
        """Return what members predict for samples that they left out, and these parts' digest."""
        if not self.calibrates:
            return None, None
        job, before = self.trainer.job._replace(plan=plan), self.before
        train, parts = cast(Data, job.train), cast(Parts, job.parts)
        some = train.X[:: -(-train.n_rows // _ROWS_LOOKED_AT)]
        drawn, first = digest((some, train.y, parts.of_row[0], parts.n_together)), 0
        if before is not None and before.facts.get("_parts_drawn") != drawn:
            first = _numbers_in(before)[-1] + 1  # those of before left out other samples
        if first > numbers[-1]:
            return None, None  # an interrupt has left no further member
        return OutOfBag.of(module, numbers, job, first), drawn if first == 0 else None

    def _functions(
        self, module: Any, members: list[int], out_of_bag: OutOfBag | None
    ) -> RandomFunctions | None:
        """Return the functions by which members differ away from the samples, if they do."""
        job, inputs = self.trainer.job, self.spec.inputs
        is_table = len(job.train.row_shape) == 1
        if not (self.spec.distance_aware and is_table and len(members) > 1):
            return None
        found = job.recipe.functions
        if self.before is None:
            X, y, _ = job.train if isinstance(job.train, Data) else job.train.checked_examples
            are_classes = job.plan.task.kind == "classifier"

            def mean_log_probs(outputs: Tensor, rows: Tensor) -> Tensor:
                mean: Tensor = module.of_outputs(outputs, rows).log_probs.mean(0)
                return mean

            predict = partial(
                read_in_chunks, module, read=mean_log_probs if are_classes else module.mean
            )
            error = None if out_of_bag is None else out_of_bag.squared_error()
            n_categories = None if inputs is None else inputs.n_categories
            found = find_functions(
                X, y, n_categories, predict, error, are_classes, self.random_state
            )
        return None if found is None else found.of_members(members)


def _job(
    spec: EnsembleSpec, task: Task, before: Fitted | None, samples: tuple[Any, ...], settings: dict
) -> Job:
    """Return what to train, with other settings, on `samples` in the order of Job's."""
    spec = spec.with_parameters(settings)
    *_, train, _ = samples
    rate = spec.inference.rate if isinstance(spec.inference, MCDropout) else None
    beta = 0.0 if spec.runs_chains else spec.beta
    if shares_weights(spec.networks.module):
        plan = EnsemblePlan(task, 1, beta, n_sharing=spec.n_members)
    else:
        plan = EnsemblePlan(task, spec.n_members, beta, rate)
    if train.n_rows < plan.n_sharing:
        raise ValueError(
            f"X must have at least n_members={spec.n_members} samples to train on with "
            f"module={spec.networks.module.__name__}, of whose members each has samples of its "
            f"own; got {train.n_rows}."
        )
    # Bins make members overconfident: uncalibrated, they are for large tables (doc/design.rst).
    embedded_from = EMBEDDED_FROM[spec.kind] if _calibrates(spec, train) else MANY_ROWS
    inputs = train.inputs(spec.inputs, embedded_from)
    recipe = spec.networks.recipe(plan, train.row_shape, inputs)
    if before is not None:
        recipe = same_recipe(before.recipe, recipe)
    n_epochs, batch_size = amount_of_training(spec, train.n_rows, has_bins(recipe))
    lr = learning_rate(spec, n_epochs, train.n_rows, has_bins(recipe))
    spec = replace(spec, training=replace(spec.training, lr=lr))
    return Job(spec, n_epochs, batch_size, plan, recipe, *samples)


def _calibrates(spec: EnsembleSpec, train: Any) -> bool:
    """Tell whether `calibrate` asks for a calibration, given the training samples."""
    if spec.calibrate != "auto":
        return spec.calibrate is not None
    is_usual = spec.trains_each and isinstance(train, Data)
    if shares_weights(spec.networks.module):
        # Held-out samples cost regressors more than a temperature gives them (doc/design.rst).
        return is_usual and spec.kind == "classifier" and train.n_rows >= MANY_ROWS
    return is_usual and train.n_rows >= LEAST_ROWS


def _tune(spec: EnsembleSpec, train: Any) -> str | None:
    """Return how `tune` asks for settings to be tried, given the training samples."""
    if spec.tune != "auto":
        return spec.tune
    is_tuned = (
        spec.kind == "classifier"
        and spec.n_members >= LEAST_TUNED
        and spec.is_default("prior_scale")
        and spec.training.budget is None
        and not shares_weights(spec.networks.module)
        and _calibrates(spec, train)
    )
    return "auto" if is_tuned else None


def _numbers_in(before: Fitted) -> list[int]:
    """Return the numbers of the fitted members; some may have diverged, or been interrupted."""
    facts = before.facts
    return list(facts.get("_member_numbers", range(facts["n_members_"])))


def _check_members_of_before(before: Fitted, spec: EnsembleSpec) -> None:
    """Raise a ValueError unless members can be added to the fitted ones."""
    plan: Any = before.plan
    if "sampler_diagnostics_" in before.facts or plan.dropout_rate is not None:
        raise ValueError(
            "warm_start must be False where the fitted members are those of an SGLD(...), "
            "SGHMC(...) or MCDropout(...), to which none can be added; got True."
        )
    numbers = _numbers_in(before)
    if spec.n_members <= numbers[-1]:
        raise ValueError(
            f"n_members must be at least {numbers[-1] + 1}, as many as have been trained, with "
            f"warm_start=True; got {spec.n_members}."
        )


def split(
    spec: EnsembleSpec, task: Task, data: Any, random_state: np.random.RandomState
) -> tuple[Any, Data | None]:
    """Return training samples, and validation samples or None."""
    if spec.early_stopping is None:
        return data, None
    labels = task.decode(data.y) if task.kind == "classifier" else None
    fraction = spec.early_stopping.validation_fraction
    try:
        train, valid = train_test_split(
            np.arange(len(data.X)), test_size=fraction, random_state=random_state, stratify=labels
        )
    except ValueError as error:
        raise ValueError(
            f"inference__early_stopping cannot hold out validation_fraction={fraction} of the "
            f"samples{'' if labels is None else ' of every class'}. {error}"
        ) from error
    return data.at(train), data.at(valid)
