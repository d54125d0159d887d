# SPDX-License-Identifier: BSD-3-Clause
"""Fitting an ensemble, from its parameters to its members."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.checks import is_stream
from .._data.encoding import MANY_ROWS, InputSettings
from .._estimator.base import Fitted, fit_task, with_callbacks
from .._estimator.batched import read_in_chunks
from .._estimator.warm_start import all_weights, scaling_of
from .._method.random_functions import find_functions
from .._serialization.digest import digest
from .._training.samples import Samples, Stream, read_in_memory, refuse_with_stream
from .._training.trainer import SEED_LIMIT, resumable
from .._utils.process import one_blas_thread, torch_threads
from .._utils.reporting import stage
from .._utils.warnings import warn
from ..modules import MLP, shares_weights
from ..samplers import MCDropout
from ._chains import run_chains, train_dropout
from ._diagnostics import diagnose
from ._members import Members, train_members
from ._out_of_bag import LEAST_ROWS, OutOfBag, Parts
from ._perturbations import N_STRATA
from ._spec import EnsembleSpec
from ._tuning import LEAST_TUNED, Trials, best_of, best_of_priors, best_of_trials

_LEAST_MEAN_WEIGHT = 0.1  # weights of a smaller mean are warned of, as if made to sum to one
_ROWS_LOOKED_AT = 1_000  # samples, about, by which data are compared with those of the last fit

# Of max_time, kept for what follows training: a share, seconds, samples, a share; doc/design.rst.
_SHARE_AFTER, _SECONDS_OF_FUNCTIONS, _SAMPLES_OF_FUNCTIONS, _MOST_AFTER = 0.03, 0.5, 2_000, 0.5

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
def fit_ensemble(ensemble: BaseEstimator, X, y, sample_weight=None, observer: Any = None):
    """Train the members of an ensemble, and return it.

    An observer is a callback of the net that runs Markov chains, with `after_step(net, iteration)`
    and a RunningRHat `r_hat`; only their last samples become members then.
    """
    read, given = EnsembleSpec.of(ensemble), (X, y, sample_weight)
    if is_stream(X):
        params, neutral = ensemble.get_params(), dict(_WITH_STREAM)
        for name in ("calibrate", "tune"):
            if getattr(read, name) == "oob":
                neutral[f"inference__{name}"] = None
        if read.trains_each:
            params["inference"] = "deep_ensemble"
        if read.bootstrap == "auto":
            params["inference__bootstrap"] = False
        refuse_with_stream(params, neutral, {"y": y, "sample_weight": sample_weight})
    before = Fitted.of(ensemble) if read.warm_start else None
    if before is None:
        ensemble._reset()
    else:
        numbers = before.facts.get("_member_numbers", range(before.facts["n_members_"]))
        read = replace(read, before=before, numbers_before=tuple(numbers))
        plan: Any = before.plan
        if "sampler_diagnostics_" in before.facts or plan.dropout_rate is not None:
            raise ValueError(
                "warm_start must be False where the fitted members are those of an SGLD(...), "
                "SGHMC(...) or MCDropout(...), to which none can be added; got True."
            )
        n_before = read.numbers_before[-1] + 1
        if read.n_members < n_before:
            raise ValueError(
                f"n_members must be at least {n_before}, as many as have been trained, with "
                f"warm_start=True; got {read.n_members}."
            )

    data: Any
    identity: dict[str, Any] = {}  # what a fit that goes on from a checkpoint is to have again
    if is_stream(X):
        data = Stream(ensemble, X)
        task, schema, dtype = data.task, data.schema, data.dtype
    else:
        how = sample_weight, read.class_weight, before
        data, _, schema, task = read_in_memory(ensemble, X, y, *how)
        dtype, identity = data.X.dtype, {**data._asdict()}
        identity["sample_weight"] = identity.pop("weight")
        if before is not None:
            identity["the fitted members"] = all_weights(before.module)
    n_rows, total_weight = data.n_rows, data.total_weight
    if before is not None and read.n_members == len(read.numbers_before):
        warn(
            f"With warm_start=True, all of the n_members={read.n_members} members are trained "
            "already, and stay as they are: fit trains none."
        )
        return ensemble
    if total_weight < _LEAST_MEAN_WEIGHT * n_rows:  # those of classes included
        warn(
            f"The weights of the samples sum to {total_weight:.3g}, and so count as "
            f"{total_weight:.3g} samples beside the prior, although there are {n_rows}: the "
            "members will stay near it. Weights of mean 1, sample_weight * len(X) / "
            "sample_weight.sum(), count every sample once; class_weight multiplies them."
        )
    ensemble._keep({"_input_schema": schema, **task.fitted_attributes})
    training = read.training
    if (budget := training.budget) is not None:  # time is left for what comes after training
        share = min(1.0, n_rows / _SAMPLES_OF_FUNCTIONS) if read.distance_aware else 0.0
        seconds = _SHARE_AFTER * budget.seconds + share * _SECONDS_OF_FUNCTIONS
        budget = budget.less(min(seconds, _MOST_AFTER * budget.seconds))
        training = replace(training, budget=budget)
    inputs = InputSettings.of(ensemble.get_params(deep=False), read.kind, schema.columns)
    read = replace(read, training=training, inputs=inputs, task=task, dtype=dtype, train=data)

    random_state = check_random_state(ensemble.random_state)
    with resumable(ensemble, random_state, identity) as random_state:
        # With samples, but not planned yet, so that other parameters can be tried; and planned.
        base = with_samples(read, random_state)
        tuned = {} if before is None else before.facts
        spec = base.planned(best_of(tuned["tuning_"])["params"] if "tuning_" in tuned else {})
        members, trials = Members.before(spec), None
        name = "Markov chains"
        if not spec.runs_chains:
            n_left = spec.n_members - len(members.weights)
            name = f"{n_left} members{', tuned' if spec.tune == 'oob' else ''}"
        with fit_task(ensemble, spec.n_blocks * spec.n_epochs, *given) as observed:
            try:
                with stage(name):
                    if spec.tune == "oob":
                        tried = base, spec, members, random_state
                        spec, members, trials = best_of_trials(*tried)
                    begin = copy.deepcopy(random_state)
                    if spec.runs_chains:
                        run_chains(spec, members, random_state, observed, observer)
                    elif isinstance(spec.inference, MCDropout):
                        train_dropout(spec, members, random_state, observed)
                    else:
                        train_members(spec, members, random_state, observed)
                if spec.tune == "auto":
                    spec, members, trials = best_of_priors(base, spec, members, begin)
            finally:  # what an interrupt, or a worker that dies, has left is kept too
                if members.weights:
                    ensemble._keep(fitted(spec, members, trials, random_state).attributes)
            if members.worse:
                kind = "Member" if spec.trains_each else "Chain" if spec.runs_chains else "Network"
                read.training.warn_of_worse(f"{kind}(s) {members.worse} are")
            if spec.runs_chains:
                if observer is None:
                    diagnostics = diagnose(ensemble.module_, spec)
                else:
                    diagnostics = observer.r_hat.diagnostics()
                ensemble._keep({"sampler_diagnostics_": diagnostics})
    return ensemble


def with_samples(spec: EnsembleSpec, random_state: np.random.RandomState) -> EnsembleSpec:
    """Return a fit with its samples divided: those held out, and those that members leave out."""
    before, task, train, valid = spec.before, spec.task, spec.train, None
    if spec.early_stopping is not None:
        labels = task.decode(train.y) if task.kind == "classifier" else None
        share, rows = spec.early_stopping.validation_fraction, np.arange(len(train.X))
        try:
            halves = train_test_split(
                rows, test_size=share, random_state=random_state, stratify=labels
            )
        except ValueError as error:
            raise ValueError(
                f"inference__early_stopping cannot hold out validation_fraction={share} of the "
                f"samples{'' if labels is None else ' of every class'}. {error}"
            ) from error
        train, valid = map(train.at, halves)
    has_shared, normalizes_y = shares_weights(spec.networks.module), spec.normalize in (True, "y")
    is_table, n_rows = isinstance(train, Samples), train.n_rows
    if before is not None:  # further members leave out samples as the first do
        scaling, tune = scaling_of(before.module), None
        calibrates = "calibration_" in before.facts
        leaves_out = calibrates or "tuning_" in before.facts
    else:
        scaling = train.scaling(task, normalizes_y)
        calibrates = spec.calibrate is not None
        if spec.calibrate == "auto":
            # Held-out samples cost regressors that share weights more than a temperature gives them
            # (doc/design.rst).
            is_suited = n_rows >= MANY_ROWS and spec.kind == "classifier"
            is_suited = is_suited if has_shared else n_rows >= LEAST_ROWS
            calibrates = spec.trains_each and is_table and is_suited
        tune = spec.tune
        if tune == "auto":
            is_tuned = (
                spec.kind == "classifier"
                and spec.n_members >= LEAST_TUNED
                and spec.is_default("prior_scale")
                and spec.training.budget is None
                and not has_shared
                and calibrates
            )
            tune = "auto" if is_tuned else None
        leaves_out = calibrates or tune is not None
    perturbs = spec.trains_each and spec.bootstrap == "auto"
    seed, parts = None, None
    if leaves_out or (perturbs and n_rows >= LEAST_ROWS):
        seed = int(random_state.randint(SEED_LIMIT))
        if leaves_out:
            parts = Parts.drawn(task, train.y, seed, 1 if has_shared else spec.n_members)
    smooth: set[int] = set()
    layers = ("module__activation", "module__embeddings", "module__residual")
    if (
        calibrates
        and tune is None
        and spec.kind == "regressor"
        and n_rows < MANY_ROWS
        and perturbs
        and spec.training.budget is None
        and spec.networks.module is MLP
        and all(map(spec.is_default, layers))
    ):
        smooth = {n for n in range(spec.n_members) if n // N_STRATA % 2}
    if before is not None:
        plan: Any = before.plan
        numbers = spec.numbers_before
        known = {n for n, is_one in zip(numbers, plan.are_smooth, strict=False) if is_one}
        smooth = known | {n for n in smooth if n > numbers[-1]}
    is_validated = spec.trains_each and parts is not None and valid is None
    return replace(
        spec,
        train=train,
        valid=valid,
        n_rows=n_rows,
        total_weight=train.total_weight,
        scaling=scaling,
        parts=parts,
        perturbation_seed=seed if perturbs and n_rows >= LEAST_ROWS else None,
        calibrates=calibrates,
        validates_out_of_bag=is_validated and spec.kind == "classifier" and n_rows >= MANY_ROWS,
        tune=tune,
        smooth=frozenset(smooth),
    )


# Its many small operations would wait for threads where other processes keep the cores busy.
@one_blas_thread()
@torch_threads(1)
def fitted(
    spec: EnsembleSpec,
    members: Members,
    trials: Trials | None,
    random_state: np.random.RandomState,
) -> Fitted:
    """Stack the members that have been trained, calibrated, with functions off the data."""
    numbers, n_sharing = sorted(members.weights), spec.plan.n_sharing
    own, before = spec.plan.members_of(numbers), spec.before
    before_facts = {} if before is None else before.facts
    facts = {
        "_member_numbers": own,
        "n_members_": len(own),
        "n_epochs_": spec.n_epochs,
        "n_restarts_": members.n_restarts.repeat(n_sharing),
    }
    if spec.training.budget is not None:
        facts["n_epochs_"] = max(row["epoch"] for row in members.history)
    if spec.early_stopping or spec.validates_out_of_bag:
        best = np.array([members.best_epochs[number] for number in numbers])
        facts["best_epochs_"] = best.repeat(n_sharing)
    if trials is not None:
        facts["tuning_"] = trials
    plain = members.stacked(spec)  # as trained
    module: Any = plain.module

    # What members predict for samples that they left out.
    out_of_bag = None
    if spec.calibrates and spec.parts is not None:
        train, parts = spec.train, spec.parts
        some = train.X[:: -(-spec.n_rows // _ROWS_LOOKED_AT)]
        drawn, first = digest((some, train.y, parts.of_row[0], parts.n_together)), 0
        if before is not None and before_facts.get("_parts_drawn") != drawn:
            first = spec.numbers_before[-1] + 1  # those of before left out other samples
        if first <= numbers[-1]:  # else an interrupt has left no further member
            out_of_bag = OutOfBag.of(module, numbers, replace(spec, plan=plain.plan), first)

    # Functions by which members differ away from the samples.
    functions, are_classes = None, spec.kind == "classifier"
    if spec.distance_aware and len(spec.recipe.row_shape) == 1 and len(own) > 1:
        functions = spec.recipe.functions
        if before is None:
            X, y, _ = spec.train.in_memory

            def mean_log_probs(outputs: Tensor, rows: Tensor) -> Tensor:
                mean: Tensor = module.of_outputs(outputs, rows).log_probs.mean(0)
                return mean

            functions = find_functions(
                X,
                y,
                None if spec.inputs is None else spec.inputs.n_categories,
                partial(
                    read_in_chunks, module, read=mean_log_probs if are_classes else module.mean
                ),
                None if out_of_bag is None else out_of_bag.squared_error(),
                are_classes,
                random_state,
            )
        functions = None if functions is None else functions.of_members(own)
    if out_of_bag is not None:
        added: np.ndarray | float = 0.0  # by functions, to the variance of samples, (t,), scaled
        if functions is not None and not are_classes:
            scale = functions.scale / spec.scaling.get("y_scale", 1.0)
            added = np.square(scale) * functions.left_out
        facts["calibration_"] = out_of_bag.temperature(len(own), added)
        facts["_parts_drawn"] = drawn if first == 0 else None
    calibration = facts.get("calibration_", before_facts.get("calibration_"))
    return replace(members.stacked(spec, calibration, functions), facts=facts)
