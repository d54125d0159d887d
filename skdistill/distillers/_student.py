# SPDX-License-Identifier: BSD-3-Clause
"""The samples that a student learns from, and its training on the members' predictions there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from torch import nn

from .._data.checks import check_weights
from .._data.encoding import InputEncoding
from .._estimator.base import Fitted, ObservedTask
from .._estimator.batched import as_rows, read_in_chunks, rows_first
from .._estimator.calibration import ApproximationError, fit_calibration
from .._estimator.warm_start import load_weights, scaling_of
from .._method.plan import NetworkRecipe, Plan, TrainingBudget, as_tensors, build_module
from .._method.random_functions import (
    LEAST_SAMPLES,
    Predict,
    RandomFunctions,
    UnknownColumns,
    find_functions,
    find_unknown,
)
from .._method.task import TASKS, Task, read_samples
from .._training.samples import Samples, Stream, in_dtype_of, rows_of_stream
from .._training.trainer import Training, batch_size_for, draws_globally, n_epochs_in, on_device
from .._utils.process import rows_asked, rows_in_memory
from .._utils.reporting import stage
from .._utils.validation import errors_about
from .._utils.warnings import warn
from ..distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ..losses import moments
from ..modules import (
    DistributionStack,
    count_flop,
    first_parameter,
    n_parameters,
)
from ..pruning import ProximalStep, prune, widths
from ..settings import Runtime
from ..teachers import MixedModels, Teacher, in_chunks, splits_of
from ..transfer import Munge, filled, nearest_rows, prepare_with_missing
from ._spec import AUTO_NOISE, FitArguments, FitSpec, maker_that_changes
from ._teacher import (
    MemberPredictions,
    distribution_of,
    inside_wrappers,
    networks_and_functions,
    predictor_of,
)

# See doc/design.rst.
_SEEN_PER_ROOT = 9_000  # samples that max_epochs="auto" shows a student, over the root of n
_EPOCHS_WITHIN = (10, 400)  # limits of these epochs
_ORDINARY_VARIANCE, _LARGEST_FACTOR = 3e-3, 4.0  # of y, standardised; limit of the low-noise factor
_ROWS_FOR_START = 256  # samples, at most, whose predictions set where training begins
_ROWS_FOR_ERROR = 4096  # samples, at most, that measure a student's error in its teacher's mean
_N_DRAWS = 20  # where columns are unknown, for students that have no members
_BATCH_SIZE, _MOST_OF_TABLE = 128, 1 / 3  # samples of batch_size="auto", and their share at most
_MOST_COPIES, _POOL_SIZE, _POOL_BYTES = 20, 100_000, 2**28  # limits: copies of X, samples, bytes
_MOST_OF_FEATURE, _LEAST_OF_FEATURE, _MOST_STEPS = 64, 8, 256  # step inputs: a feature's, and all
_CELLS = 4  # of neighbouring thresholds, for each threshold that is taken
_MORE_EPOCHS = 2.0  # of students of trees, times those of others
_SHARE_OF_MUNGE = 0.5  # of the transfer samples, for students of trees


def train_student(
    spec: FitSpec, plan: Plan, predictions: MemberPredictions, task: ObservedTask, **facts: object
) -> Iterator[Fitted]:
    """Train a student, and prune it with `pruning`; give it after each of these stages.

    So its estimator can keep what has been reached if a later stage fails, or on Ctrl-C. `plan` is
    that of `spec`, completed by what is known of the teacher; `facts` become attributes.
    """
    from .._engine import ContinuedTraining

    before, pruning = spec.before, spec.params["pruning"]
    with stage("transfer samples"):
        if not predictions.is_ensemble:
            spec = adapted_to_teacher(spec, predictions.teacher)
        seeds = spec.draw_seeds(plan.n_networks + 1)
        rows, total_weight = training_rows(spec, predictions, seeds.pop())
        recipe, module = _initial(spec, plan, predictions, seeds, rows.X.dtype)
        factor, n_before, n_epochs, n_of_first = _planned(spec, predictions, len(rows))
    if n_epochs == 0:
        return
    budget = TrainingBudget(n_of_first, total_weight, factor)
    objective = plan.objective(module, budget)
    objective.first_epoch = n_before
    continued, share = None, predictions.share_of_functions
    if spec.is_pass or spec.params.get("warm_start", False):
        # There is no state where warm_start has come later.
        state = None if before is None else before.facts.get("_training_state")
        continued = ContinuedTraining(rows, draws_globally(module), state)
    student = Student(
        replace(spec.training, low_noise_factor=factor),
        plan,
        recipe,
        budget,
        n_before + n_epochs,
        facts,
        [] if before is None else before.history,
        continued,
        spec.is_pass,
        spec.X,
        OwnFunctions(spec, share, predictions.teacher) if share > 0 else None,
    )
    finetune_epochs = 0 if pruning is None else pruning.finetune_epochs
    n_more = n_epochs if finetune_epochs == "auto" else int(finetune_epochs)
    n_all = n_epochs + n_more
    task = task.subtask("student", max_subtasks=n_all)
    lasso = None if pruning is None else ProximalStep(module, pruning.strength, pruning.weighted)
    with task.running(), stage(f"student, {n_all} epochs"):
        how: dict[str, Any] = {"proximal": lasso, "share": n_epochs / n_all}
        per_epoch = task.per_epoch(student.in_training)
        fitted = yield from student.train(module, objective, rows, n_epochs, [per_epoch], **how)
        if pruning is None:
            return
        student, fitted = student.pruned(fitted, pruning.threshold)
        yield fitted
        if not n_more:
            return
        module = fitted.module
        if pruning.restart:
            smaller = replace(spec, recipe=student.recipe)
            _, module = _initial(smaller, plan, predictions, seeds, rows.X.dtype)
            objective = plan.objective(module, budget)
        else:
            objective.first_epoch = n_epochs  # weights that grow over the epochs have grown
        how, per_epoch = {"phase": "student after pruning"}, task.per_epoch(student.in_training)
        yield from student.train(module, objective, rows, n_more, [per_epoch], **how)


def adapted_to_teacher(spec: FitSpec, teacher: object) -> FitSpec:
    """Return the spec for the student of this fitted teacher, which is no ensemble of ours.

    Trees change at thresholds, where the inputs of their student step. Of trees, and of models of
    several kinds, ``transfer="auto"`` takes half of the samples from between neighbours.
    """
    if len(spec.recipe.row_shape) != 1:
        return spec
    splits = splits_of(teacher)
    model = inside_wrappers(teacher, FrozenEstimator)
    model = model.estimator_ if isinstance(model, Teacher) else model
    has_trees = len(splits.features) > 0
    if has_trees:
        takes_embeddings = "embeddings" in inspect.signature(spec.recipe.module).parameters
        is_auto = spec.recipe.settings.get("embeddings", "auto") == "auto"
        if spec.before is None and takes_embeddings and is_auto:
            # The inputs also step at the splits of the largest gain.
            size = _MOST_STEPS // len(np.unique(splits.features))
            size = min(_MOST_OF_FEATURE, max(_LEAST_OF_FEATURE, size))
            thresholds = [
                best_thresholds(splits.thresholds[own], splits.gains[own], size)
                for own in (splits.features == column for column in range(spec.X.shape[1]))
            ]
            inputs = InputEncoding.with_steps(spec.recipe.inputs, spec.X, thresholds)
            settings = spec.recipe.settings | {"in_features": inputs.n_inputs}
            spec = replace(spec, recipe=replace(spec.recipe, inputs=inputs, settings=settings))
        spec = replace(spec, more_epochs=_MORE_EPOCHS)
    is_auto_transfer = spec.transfer == "auto" and spec.maker is not None and spec.stream is None
    if is_auto_transfer and (has_trees or isinstance(model, MixedModels)):
        maker = Munge(base=AUTO_NOISE[spec.kind], share=_SHARE_OF_MUNGE)
        spec = replace(spec, maker=maker_that_changes(spec, maker))
    return spec


def best_thresholds(thresholds: np.ndarray, gains: np.ndarray, size: int) -> np.ndarray:
    """Return at most `size` thresholds of a feature, those of the largest gain, one a cell."""
    values, which = np.unique(thresholds, return_inverse=True)
    totals = np.bincount(which, weights=gains)
    n_cells = min(len(values), _CELLS * size)
    cell = np.arange(len(values)) * n_cells // max(len(values), 1)
    order = np.lexsort((-totals, cell))
    _, first = np.unique(cell[order], return_index=True)
    of_cells = np.bincount(cell, weights=totals)
    return values[order[first]][np.argsort(-of_cells, kind="stable")[:size]]


def training_set(spec: FitSpec, predictions: MemberPredictions) -> tuple[Any, ...]:
    """Join X and `X_transfer`: samples, targets, weights, members or None, 1 where labelled."""
    X, y, weight, transfer = spec.X, spec.y, spec.weight, spec.X_transfer
    n_transfer, members = len(transfer), predictions.of_X
    labelled = np.repeat([1.0, 0.0], [len(X), n_transfer])
    if not n_transfer:
        return X, y, weight, members, labelled
    if members is not None and predictions.predict is not None:
        members = np.concatenate([members, predictions.predict(transfer)])
    joined = (
        np.concatenate([X, transfer]),
        np.concatenate([y, np.zeros((n_transfer, *y.shape[1:]), dtype=y.dtype)]),
        np.concatenate([weight, np.ones(n_transfer)]),
        members,
        labelled,
    )
    first = len(X) if spec.transfer_only else 0
    return tuple(None if array is None else array[first:] for array in joined)


def training_rows(spec: FitSpec, predictions: MemberPredictions, seed: int) -> tuple[Any, float]:
    """Return the training set as the engine takes it, and the sum of the weights of its samples.

    Transfer samples are generated and predicted once, for several copies of the training set, or
    for each minibatch where these would take too much memory.
    """
    from .._engine import AnswersOnFile, DistillationRows, StreamedRows, drawn_rows

    if spec.stream is not None:
        return streamed_rows(spec, spec.stream, predictions, seed), spec.stream.total_weight
    X, y, weight, members, labelled = training_set(spec, predictions)
    maker, transfer_only, total_weight = spec.maker, spec.transfer_only, float(weight.sum())
    n_repeats, n_kept = 1, 0
    is_kept = members is not None or not (maker is None or maker.keeps_labels)
    if maker is not None and is_kept and not transfer_only:
        n_repeats, n_kept = 2, len(X)
        labelled = np.concatenate([labelled, np.zeros(n_kept)])
    if maker is not None and n_kept == 0:
        members = None  # no sample stays as it is
    put = partial(on_device, device=spec.training.device, dtype=X.dtype)
    weights = None if (weight == weight[0]).all() else put(weight, n_repeats)
    inputs, known = put(X, n_repeats), None if members is None else put(members)
    draw = spec.maker and prepare_with_missing(spec.maker, inputs, weights)
    batch_size = _batch_size(spec.params["batch_size"], len(X))
    dealt: dict[str, Any] = {"batch_size": batch_size, "seeds": [seed]}
    deal: Callable[..., Any] = partial(
        DistillationRows,
        targets=(put(y, n_repeats), put(labelled)),
        weight=None if weights is None else weights[None],
        teacher=predictions.predict,
        **dealt,
    )
    n_copies = min(_MOST_COPIES, max(2, _POOL_SIZE // len(X)), _POOL_BYTES // inputs.nbytes)
    fits = draw is None or n_copies * len(inputs) <= rows_in_memory(predictions.predict(X[:1]))
    if draw is None or n_copies < 2:
        return deal(inputs, predictions=known, draw=draw, n_kept=n_kept), total_weight
    answers = None if fits else AnswersOnFile(n_copies * len(inputs))
    if n_kept and known is None and fits:
        known = deal(inputs[:n_kept]).predictions

    @cache
    def copy(number: int) -> Any:
        if number == 0 and n_kept == 0 and not transfer_only:
            return deal(inputs, answers=answers)
        drawn = drawn_rows(inputs[n_kept:], draw, seed + 1 + number)
        return deal(torch.cat([inputs[:n_kept], drawn]), known=known, answers=answers)

    copies = StreamedRows(lambda epoch: [copy(epoch % n_copies)], len(inputs), X=inputs, **dealt)
    return copies, total_weight


def streamed_rows(spec: FitSpec, stream: Stream, predictions: MemberPredictions, seed: int) -> Any:
    """Return the rows of a stream as the engine takes them, with the noise that `transfer` adds."""
    from .._engine import AnswersOnFile, DistillationRows

    put = partial(on_device, device=spec.training.device, dtype=stream.dtype)
    batch_size = _batch_size(spec.params["batch_size"], stream.n_rows)
    mean_weight = stream.total_weight / stream.n_rows
    # The spread of the columns, and their correlations, are those of the examples.
    weight = put(spec.weight) if stream.is_weighted else None
    draw = spec.maker and prepare_with_missing(spec.maker, put(spec.X), weight)
    # Memory is bounded, whatever fits it: a file in any case. Samples with noise are new ones.
    answers = AnswersOnFile(stream.n_rows) if draw is None else None

    def deal(part: Samples, number: int) -> Any:
        return DistillationRows(
            put(part.X),
            (put(part.y), put(np.ones(len(part.X)))),
            put(part.weight)[None] if stream.is_weighted else None,
            batch_size,
            [seed],
            teacher=predictions.predict,
            answers=answers,
            draw=draw,
            mean_weight=mean_weight,
        )

    return rows_of_stream(stream, spec.scaling, batch_size, [seed], deal)


def _batch_size(batch_size: int | str, n_rows: int) -> int:
    """Return the number of samples of a minibatch."""
    size = batch_size_for(batch_size, n_rows)
    if batch_size == "auto":
        size = max(size, min(_BATCH_SIZE, int(n_rows * _MOST_OF_TABLE)))
    return size


def _initial(
    spec: FitSpec, plan: Plan, predictions: MemberPredictions, seeds: list[int], dtype: torch.dtype
) -> tuple[NetworkRecipe, DistributionStack]:
    """Return the recipe of the student, with functions of the teacher, and the module to train."""
    recipe, functions, before = spec.recipe, predictions.functions, spec.before
    if functions is not None:
        if plan.n_heads > 1:
            known, numbers = functions.members, range(plan.n_heads)
            functions = functions.of_members([known[head % len(known)] for head in numbers])
        recipe = replace(recipe, functions=functions)
    module = build_module(plan, recipe, seeds, dtype, as_tensors(spec.scaling))
    if before is not None:
        load_weights(module, before.module)
    elif plan.has_start:
        plan.start(module, *map(torch.as_tensor, first_predictions(spec, predictions)))
    return recipe, module


def first_predictions(spec: FitSpec, predictions: MemberPredictions) -> tuple[Any, Any]:
    """Predictions of members for some samples, and the weights of these samples."""
    if predictions.of_X is not None or predictions.predict is None:
        return predictions.of_X, spec.weight
    every = -(-len(spec.X) // _ROWS_FOR_START)
    rows, size = spec.X[::every], rows_asked(predictions.predict(spec.X[:1]))
    answers = [predictions.predict(rows[i : i + size]) for i in range(0, len(rows), size)]
    return np.concatenate(answers), spec.weight[::every]


def _planned(
    spec: FitSpec, predictions: MemberPredictions, n_rows: int
) -> tuple[float, int, int, int]:
    """Return the low-noise factor, and how many epochs were before, are now, and the first planned.

    Smaller steps need more epochs: they are smaller by no more than `max_epochs` exceeds "auto".
    """
    before, max_epochs, factor = spec.before, spec.params["max_epochs"], 1.0
    # "auto" shows samples in proportion to the root of their number.
    low, high = _EPOCHS_WITHIN
    usual = min(max(_SEEN_PER_ROOT / math.sqrt(n_rows), low), high)
    most = math.inf if max_epochs == "auto" else int(max_epochs) / round(usual)
    if not spec.is_pass and spec.kind == "regressor" and most > 1:
        members, weight = first_predictions(spec, predictions)
        if np.ndim(members) == 4:  # no expectations, of GPED
            factor = min(low_noise_factor(members, weight), most)
    more_epochs = factor * max(1.0, 2 * factor / _LARGEST_FACTOR) * spec.more_epochs
    n_planned = round(usual * more_epochs) if max_epochs == "auto" else int(max_epochs)
    n_before, n_of_first = 0, n_planned
    if before is not None:
        n_before, n_of_first = n_epochs_in(before.history), before.training_budget.n_epochs
    if spec.is_pass:
        return factor, n_before, 1, n_of_first
    if n_planned < n_before and max_epochs != "auto":
        raise ValueError(
            f"max_epochs must be at least {n_before} with warm_start=True, as the student has "
            f"been trained for so many; got {max_epochs!r}, {n_planned} epochs."
        )
    if n_planned <= n_before:
        warn(
            f"With warm_start=True, all of the {n_planned} epochs that max_epochs={max_epochs!r} "
            "stands for are trained already, and the student stays as it is."
        )
    return factor, n_before, max(0, n_planned - n_before), n_of_first


def low_noise_factor(predictions: np.ndarray, weight: np.ndarray) -> float:
    """Return what divides the rate, by members (n, M, t, 2) of standardised targets."""
    every = -(-len(predictions) // _ROWS_FOR_START)
    members = torch.as_tensor(predictions[::every]).double().transpose(0, 1)
    total, _ = moments(Gaussian(*members.unbind(-1)))
    least = _ORDINARY_VARIANCE / _LARGEST_FACTOR**4
    log_variance = total.variance.clamp(min=least).log().mean(-1).numpy()
    variance = math.exp(np.average(log_variance, weights=weight[::every]))
    # Rounded, as answers to portions of other sizes are, so that these do not matter.
    return max(1.0, round((_ORDINARY_VARIANCE / variance) ** 0.25, 2))


@dataclass(frozen=True, eq=False)
class Student:
    """How a student is trained, and what is told of it then."""

    training: Training
    plan: Any
    recipe: Any
    training_budget: TrainingBudget
    n_epochs: int  # those of fits before included; with `max_time` they may become fewer
    facts: dict[str, Any] = field(default_factory=dict)  # further attributes of its estimator
    history: list[dict[str, Any]] = field(default_factory=list)  # of fits before
    continued: Any = None  # ContinuedTraining, whose state becomes an attribute too
    is_pass: bool = False  # one of several: nobody is warned yet of a bad student
    X: np.ndarray | None = None  # of a table: by them is known what the answer owes to a feature
    own_functions: OwnFunctions | None = None

    def in_training(self, net: object) -> Fitted:
        """Return the student that a net trains, as it is now."""
        fitted = Fitted.in_training(self.plan, self.recipe, net, self.training_budget)
        return replace(fitted, facts=self.facts | {"n_epochs_": self.n_epochs})

    def train(
        self, module, objective, rows, n_epochs, callbacks=(), phase="student", **settings
    ) -> Generator[Fitted, None, Fitted]:
        """Train the module, and give it; `settings` are those of :meth:`Training.fit`."""
        net = self.training.fit(
            module,
            objective,
            rows,
            n_epochs,
            callbacks=[*callbacks, *([self.continued] if self.continued else [])],
            phase=phase,
            **settings,
        )
        return (yield from self.trained(module, net))

    def trained(self, module: DistributionStack, net: Any) -> Generator[Fitted, None, Fitted]:
        """Give the module that a net has trained, and raise Ctrl-C again."""
        if net.interrupted_ and (net.guard.diverged_.any() or not n_epochs_in(net.history)):
            raise KeyboardInterrupt  # there is nothing to keep
        if net.guard.diverged_.any():
            raise ValueError(
                "The student's loss became infinite, not a number, or exploded. Try a smaller lr "
                f"than {net.lr} or clip_norm than {net.clip_norm}; teacher_, if any, is kept."
            )
        n_before = len(self.history)
        new = ({**row, "epoch": n_before + number} for number, row in enumerate(net.history, 1))
        fitted = self._fitted(module, [*self.history, *new])
        yield fitted
        if net.interrupted_:
            raise KeyboardInterrupt
        if net.guard.worse_.any() and not self.is_pass:
            self.training.warn_of_worse("The student is", net.lr)
        return fitted

    def pruned(self, fitted: Fitted, threshold: float) -> tuple[Student, Fitted]:
        """Remove the silent units of a trained student; return how it is trained further too."""
        module = prune(fitted.module, threshold)
        smaller = replace(
            self,
            recipe=replace(self.recipe, widths=widths(module)),
            history=fitted.history,
            n_epochs=fitted.facts["n_epochs_"],
        )
        return smaller, smaller._fitted(module, fitted.history)

    def _fitted(self, module: nn.Module, history: list[dict[str, Any]]) -> Fitted:
        module.zero_grad()  # it keeps no gradients
        recipe = self.recipe
        if self.X is not None:
            how = self.plan.task, self.X, self.own_functions
            recipe = replace(recipe, functions=widen_where_unknown(module, recipe, *how))
        facts = self.facts | {
            "n_epochs_": min(self.n_epochs, n_epochs_in(history)),
            "n_parameters_": n_parameters(module),
            "flops_": count_flop(module, recipe.row_shape),
        }
        if self.continued is not None:
            facts["_training_state"] = self.continued.state_
        return Fitted(self.plan, recipe, module, history, self.training_budget, facts)


def widen_where_unknown(
    module: Any, recipe: NetworkRecipe, task: Task, X: np.ndarray, own: OwnFunctions | None = None
) -> Any:
    """Let a trained module widen its answer where columns are unknown; return by which functions.

    Random functions, of the teacher or those that `own` finds, do that already; so do the functions
    of passes before over few samples. Models of images and series are left as they are.
    """
    known: UnknownColumns | None = recipe.functions
    is_kept = isinstance(known, RandomFunctions) or (known and len(X) < LEAST_SAMPLES)
    if is_kept or len(recipe.row_shape) != 1:
        return known

    def with_functions(functions: UnknownColumns | None) -> Any:
        found = None if functions is None else functions.module()
        module.register_module("functions", found and found.to(first_parameter(module).device))
        return module

    with_functions(None)
    are_classes = task.kind == "classifier"

    def log_mean(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = module.of_outputs(outputs, rows).log_mean
        return found

    predict = partial(read_in_chunks, module, read=log_mean if are_classes else module.mean)
    found: UnknownColumns | None = None if own is None else own.find(predict)
    if found is None:
        found = find_unknown(X, predict, are_classes, np.random.RandomState(0))
    with torch.inference_mode():
        example = module.distribution(as_rows(module, X, slice(1)))
    is_empirical = isinstance(example, (EmpiricalCategorical, EmpiricalGaussian))
    n_members = example.members.shape[1] if is_empirical else 1
    found = found.of_members(range(n_members if n_members > 1 else _N_DRAWS))

    def read(outputs: torch.Tensor, rows: torch.Tensor) -> Any:
        return module.of_outputs(outputs, rows).uncertainty().epistemic

    def epistemic(functions: UnknownColumns, rows: np.ndarray) -> Any:
        return read_in_chunks(with_functions(functions), rows, read=read)

    if own is not None and isinstance(found, RandomFunctions):
        found = found.growing_as(X, epistemic, own.epistemic)
    with_functions(found)
    return found


class OwnFunctions(NamedTuple):
    """How a student finds random functions of its own, which its teacher has in another form."""

    spec: FitSpec
    share: float  # of their variance, see :func:`networks_and_functions`
    teacher: Any

    def find(self, predict: Predict) -> RandomFunctions | None:
        """Find functions for what predicts so; None where the table has none."""
        spec = self.spec
        y, scaling, columns = spec.y, spec.scaling, spec.schema.columns
        are_classes = spec.plan.task.kind == "classifier"
        if not are_classes:
            y = y * scaling["y_scale"] + scaling["y_loc"]
        n_categories = None if columns is None else columns.n_categories
        rng = np.random.RandomState(0)
        found = find_functions(spec.X, y, n_categories, predict, None, are_classes, rng)
        return None if found is None else found.times(math.sqrt(self.share))

    def epistemic(self, X: np.ndarray) -> np.ndarray:
        """Epistemic part of the teacher's uncertainty, functions included, (n,) or (n, t)."""
        task = self.spec.plan.task
        members = torch.as_tensor(predictor_of(self.teacher, self.spec, task)(X))
        found: np.ndarray = distribution_of(task, members).uncertainty().epistemic.numpy()
        is_numeric = task.kind == "regressor"
        return found * np.square(self.spec.scaling["y_scale"]) if is_numeric else found


def with_approximation_error(
    fitted: Fitted, spec: FitSpec, predictions: MemberPredictions
) -> Fitted:
    """Return a student whose variance includes its error in the teacher's mean, on new samples."""
    plan: Any = fitted.plan
    if plan.task.kind == "classifier":
        return fitted
    if predictions.predict is None:
        target = plan.target_of(predictions.of_X)
        return with_error_in(fitted, spec.X, target, spec.weight)
    X, weight = mirrored_samples(spec, _ROWS_FOR_ERROR)
    target = in_chunks(predictions.predict, X, lambda members, _: plan.target_of(members))
    return with_error_in(fitted, X, target, weight)


def mirrored_samples(spec: FitSpec, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return new samples, at most so many and about as far off as held-out ones, and weights."""
    every = -(-len(spec.X) // most)
    X, weight = spec.X[::every], spec.weight[::every]
    if X.ndim == 2:
        # For each sample the mirror image of its nearest neighbour, so that linear dependences of
        # columns stay, in the range of each column, so that flags stay flags; categories are the
        # neighbour's.
        columns = spec.schema.columns
        categories = [] if columns is None else list(columns.categories)
        complete = filled(torch.from_numpy(X.copy())).numpy()
        others = X[nearest_rows(complete, [(column,) for column in categories])]
        X = np.clip(X + (X - others), np.fmin.reduce(X), np.fmax.reduce(X))
        X[:, categories] = others[:, categories]
    return X, weight


def with_error_in(fitted: Fitted, X: np.ndarray, target: Any, weight: np.ndarray) -> Fitted:
    """Return a student whose variance includes its error in these targets of its mean."""
    plan: Any = fitted.plan
    student = read_in_chunks(fitted.module, X, lambda outputs, _: plan.read_mean(outputs))
    known = plan.read_mean(torch.as_tensor(target).unsqueeze(0)).numpy()
    squares = (known - student).astype(np.float64) ** 2
    error = np.average(squares, axis=0, weights=weight)
    return with_plan(replace(plan, calibration=ApproximationError(tuple(error.tolist()))), fitted)


def with_plan(plan: Plan, fitted: Fitted, **facts: object) -> Fitted:
    """Return a student whose outputs another plan reads as a distribution, with further facts."""
    trained = fitted.module
    module = plan.wrap(trained.network, dict(trained.named_buffers(recurse=False))).eval()
    module.inputs, module.functions = trained.inputs, trained.functions
    return replace(fitted, plan=plan, module=module, facts=fitted.facts | facts)


@stage("calibration")
def calibrated(fitted: Fitted, spec: FitSpec, pilot: BaseEstimator) -> Fitted:
    """Return a student with the calibration of a second, `pilot`, fitted without some samples."""
    X, y, sample_weight = spec.arguments
    y, share = np.asarray(y), spec.params["calibration_fraction"]
    weight = check_weights(sample_weight, len(y))
    given, labels = [X, y] if weight is None else [X, y, weight], None
    if spec.kind == "classifier":
        labels = y
    (seed,) = spec.draw_seeds(1)
    with errors_about("calibration_fraction"):
        parts = train_test_split(*given, test_size=share, random_state=seed, stratify=labels)
    kept, held_out = (FitArguments(*[*part, None][:3]) for part in (parts[::2], parts[1::2]))
    if labels is not None and (missing := {*spec.plan.task.labels.tolist()} - set(kept.y)):
        raise ValueError(
            f"calibration_fraction={share!r} leaves no sample of the classes {sorted(missing)} to "
            "fit on; hold out fewer."
        )
    check_weights(held_out.sample_weight, len(held_out.y), "sample_weight of the samples held out")
    runtime = replace(Runtime.of(pilot.runtime), checkpoint=None)
    pilot.set_params(calibration_fraction=None, runtime=runtime, warm_start=False)
    if spec.training.budget is not None:
        pilot.set_params(max_time=spec.params["max_time"] / 2)
    pilot.fit(*kept, X_transfer=spec.X_transfer if len(spec.X_transfer) else None)
    task, module = pilot._plan.task, pilot.module_
    X, y, _ = read_samples(pilot, held_out.X, held_out.y, pilot._input_schema)
    X, (y, _) = in_dtype_of(module, X), TASKS[spec.kind].check(y, task)
    weight = task.weights_of_rows(y, held_out.sample_weight)
    spec = replace(spec, scaling=scaling_of(module))
    networks, *_ = networks_and_functions(pilot.teacher_, spec)
    members = predictor_of(networks, spec)(X)
    outputs = read_in_chunks(module, X, rows_first)
    found = fit_calibration(
        module.read(torch.from_numpy(outputs).transpose(0, 1).double()),
        distribution_of(task, torch.from_numpy(members).double()),
        torch.from_numpy(task.encode(y, spec.scaling, np.float64)),
        torch.ones(len(X)).double() if weight is None else torch.from_numpy(weight),
    )
    if np.min(found.power) == 0:
        warn(
            "The student's epistemic uncertainty does not rise with its members' on the samples "
            "that calibration_fraction holds out, and is constant now."
        )
    plan: Any = fitted.plan
    return with_plan(replace(plan, calibration=found), fitted, calibration_=found)
