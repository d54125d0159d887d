# SPDX-License-Identifier: BSD-3-Clause
"""Training a student on the predictions of its teacher's members."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..._estimator.base import Fitted, ObservedTask
from ..._estimator.batched import as_rows, read_in_chunks
from ..._estimator.warm_start import load_weights
from ..._method.objective import Objective
from ..._method.plan import NetworkRecipe, Plan, TrainingBudget, as_tensors, build_module
from ..._method.random_functions import (
    LEAST_SAMPLES,
    Predict,
    RandomFunctions,
    UnknownColumns,
    find_functions,
    find_unknown,
)
from ..._method.task import Task
from ..._serialization.digest import digest
from ..._training.stream import Part, Stream, rows_of_stream
from ..._training.trainer import (
    Training,
    batch_size_for,
    draws_globally,
    n_epochs_in,
    on_device,
)
from ..._utils.process import rows_asked, rows_in_memory
from ..._utils.ranks import Ranks, current_ranks
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ...losses import moments
from ...modules import DistributionStack, count_flop, first_parameter, n_parameters
from ...pruning import prune, widths
from ...transfer import prepare_lacking
from ._disagreement import prepare_maker
from ._spec import FitSpec, StudentSettings
from ._suited import suited_to
from ._teacher import MemberPredictions, distribution_of, predictor_of
from ._validate import group_lasso

# For max_epochs="auto": samples that a student of n training samples is shown, over the root of n,
# and limits for the epochs. For batch_size="auto": samples of a minibatch, if they are at most a
# third of all; of large tables they are as many as an ensemble's. On validation samples of ten
# tables of 400 to 11,000, two thirds of the samples shown lowered the rank correlation with the
# teacher's epistemic part by up to .02; as many in batches of 256 raised the NLL by up to .02.
_SEEN_PER_ROOT = 9_000
_EPOCHS_WITHIN = (10, 400)
_BATCH_SIZE, _MOST_OF_TABLE = 128, 1 / 3

# Where members predict next to no noise, the errors of the student's mean that training leaves are
# large beside it: there epochs are more, and the learning rate is less, by the fourth root of this
# variance (on standardised targets) over theirs, and by at most so much. On 8,800 samples with a
# variance of 1e-5 four times lowered the NLL gap of three families from .15 to .30 to .02 to .05;
# twice the epochs alone, or half the rate, left .08 or more. Twice lowered it by up to .045 where
# the variance is 3e-4, .01 where it is 7e-4, and .002 where it is 2e-3, in twice the seconds.
# Beyond half of the finest, epochs are more by as much again: on the first of these tables twice
# as many raised the rank correlation of the epistemic part from .75 to .83, means of three seeds.
_ORDINARY_VARIANCE, _FINEST = 3e-3, 4.0

# Finds random functions for what predicts samples so, if their table has some.

# A transfer set is made of at most so many copies of the training set, of so many samples in all
# but two copies at least, and of so many bytes.
_MOST_COPIES, _POOL_SIZE, _POOL_BYTES = 20, 100_000, 2**28

# Samples, at most, whose predictions set where training begins.
_ROWS_FOR_START = 256

# Draws of what is added where columns are unknown, for students that have no members.
_N_DRAWS = 20


class TrainingSet(NamedTuple):
    """Rows of X and `X_transfer`, all of shape (n, ...)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    predictions: np.ndarray | None  # of the teacher's members, if they are known already
    labelled: np.ndarray  # 1 where a sample has a label, else 0


def training_set(spec: FitSpec, predictions: MemberPredictions) -> TrainingSet:
    """Join the rows of X and of `X_transfer`, or take the latter alone."""
    X, y, weight, transfer = spec.X, spec.y, spec.weight, spec.X_transfer
    n_transfer, members = len(transfer), predictions.of_X
    labelled = np.repeat([1.0, 0.0], [len(X), n_transfer])
    if not n_transfer:
        return TrainingSet(X, y, weight, members, labelled)
    if members is not None and predictions.predict is not None:
        members = np.concatenate([members, predictions.predict(transfer)])
    joined = (
        np.concatenate([X, transfer]),
        np.concatenate([y, np.zeros((n_transfer, *y.shape[1:]), dtype=y.dtype)]),
        np.concatenate([weight, np.ones(n_transfer)]),
        members,
        labelled,
    )
    first = len(X) if spec.settings.transfer_only else 0
    kept: list[Any] = [None if array is None else array[first:] for array in joined]
    return TrainingSet(*kept)


def training_rows(
    spec: FitSpec, predictions: MemberPredictions, rows: TrainingSet, seed: int
) -> Any:
    """Return the training set as the engine takes it, with the samples that `transfer` generates.

    They are generated, and the teacher is asked about them, once: there are several copies of the
    training set, the first of which has its own samples, unless they are kept beside generated
    ones. Where copies would take too much memory, samples are generated anew for each minibatch.
    """
    from ..._engine import AnswersOnFile, DistillationRows, PooledRows, drawn_rows

    maker, (X, y, weight, members, labelled) = spec.maker, rows
    transfer_only = spec.settings.transfer_only
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
    draw = prepare_maker(spec, inputs, weights, predictions.teacher)
    dealt: dict[str, Any] = {
        "batch_size": _batch_size(spec.settings.batch_size, len(X)),
        "seeds": [seed],
        "ranks": current_ranks(),
    }
    deal: Callable[..., Any] = partial(
        DistillationRows,
        targets=(put(y, n_repeats), put(labelled)),
        weight=None if weights is None else weights[None],
        teacher=predictions.predict,
        **dealt,
    )
    n_copies = min(_MOST_COPIES, max(2, _POOL_SIZE // len(X)), _POOL_BYTES // inputs.nbytes)
    fits = draw is None or n_copies * len(inputs) <= rows_in_memory(_answer(predictions, X))
    if draw is None or n_copies < 2:
        return deal(inputs, predictions=known, draw=draw, n_kept=n_kept)
    answers = None if fits else AnswersOnFile(n_copies * len(inputs))
    if n_kept and known is None and fits:
        known = deal(inputs[:n_kept]).predictions

    def copy(number: int) -> Any:
        if number == 0 and n_kept == 0 and not transfer_only:
            return deal(inputs, answers=answers)
        drawn = drawn_rows(inputs[n_kept:], draw, seed + 1 + number)
        return deal(torch.cat([inputs[:n_kept], drawn]), known=known, answers=answers)

    return PooledRows(copy, n_copies, inputs, **dealt)


def _answer(predictions: MemberPredictions, X: np.ndarray) -> np.ndarray:
    """Return what the teacher predicts for one sample."""
    predict: Any = predictions.predict  # not None where samples are generated
    answer: np.ndarray = predict(X[:1])
    return answer


def streamed_rows(spec: FitSpec, stream: Stream, predictions: MemberPredictions, seed: int) -> Any:
    """Return the rows of a stream as the engine takes them, with the noise that `transfer` adds."""
    from ..._engine import AnswersOnFile, DistillationRows

    put = partial(on_device, device=spec.training.device, dtype=stream.dtype)
    batch_size, ranks = _batch_size(spec.settings.batch_size, stream.n_rows), current_ranks()
    mean_weight = stream.total_weight / stream.n_rows
    draw = None
    if spec.maker is not None:
        # The spread of the columns, and their correlations, are those of the examples.
        weight = put(spec.weight) if stream.is_weighted else None
        draw = prepare_lacking(spec.maker, put(spec.X), weight)

    # Memory is bounded, whatever fits it: a file in any case. Samples with noise are new ones.
    answers = AnswersOnFile(stream.n_rows) if draw is None else None

    def deal(part: Part) -> Any:
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
            ranks=ranks,
        )

    return rows_of_stream(stream, spec.scaling, batch_size, [seed], deal, ranks)


def _n_epochs(max_epochs: int | str, n_rows: int, more: float = 1.0) -> int:
    """Return `max_epochs`; "auto" shows samples in proportion to the root of their number."""
    if max_epochs != "auto":
        return int(max_epochs)
    low, high = _EPOCHS_WITHIN
    within = min(max(_SEEN_PER_ROOT / math.sqrt(n_rows), low), high)
    return round(within * more)


def _refinement(spec: FitSpec, predictions: MemberPredictions, n_rows: int) -> float:
    """Return by how much finer a student is trained where its teacher predicts little variance.

    Smaller steps need more epochs: they are smaller by no more than `max_epochs` exceeds "auto".
    """
    max_epochs = spec.settings.max_epochs
    most = math.inf if max_epochs == "auto" else int(max_epochs) / _n_epochs("auto", n_rows)
    if spec.mode.is_pass or spec.plan.task.kind != "regressor" or most <= 1:
        return 1.0
    members, weight = first_predictions(spec, predictions)
    if np.ndim(members) < 4:  # expectations, of GPED
        return 1.0
    return min(_refinement_for(members, weight), most)


def _refinement_for(predictions: np.ndarray, weight: np.ndarray) -> float:
    """Return the refinement for predictions of members, (n, M, t, 2), on standardised targets."""
    every = -(-len(predictions) // _ROWS_FOR_START)
    members = torch.as_tensor(predictions[::every]).double().transpose(0, 1)
    total, _ = moments(Gaussian(*members.unbind(-1)))
    least = _ORDINARY_VARIANCE / _FINEST**4
    log_variance = total.variance.clamp(min=least).log().mean(-1).numpy()
    variance = math.exp(np.average(log_variance, weights=weight[::every]))
    # Rounded, as answers to portions of other sizes are, so that these do not matter.
    return max(1.0, round((_ORDINARY_VARIANCE / variance) ** 0.25, 2))


def _batch_size(batch_size: int | str, n_rows: int) -> int:
    """Rows of a minibatch of all ranks together."""
    ranks = current_ranks()
    size = batch_size_for(batch_size, n_rows)
    if batch_size == "auto":
        size = max(size, min(_BATCH_SIZE, int(n_rows * _MOST_OF_TABLE)))
    return size * (1 if ranks is None else ranks.size)


def _rows(spec: FitSpec, predictions: MemberPredictions, seed: int) -> tuple[Any, float]:
    """Return the samples that a student learns from, and the sum of their weights."""
    if spec.stream is not None:
        rows = streamed_rows(spec, spec.stream, predictions, seed)
        return rows, spec.stream.total_weight
    given = training_set(spec, predictions)
    return training_rows(spec, predictions, given, seed), float(given.weight.sum())


def train_student(
    spec: FitSpec, plan: Plan, predictions: MemberPredictions, task: ObservedTask, **facts: object
) -> Iterator[Fitted]:
    """Train a student, and prune it with `pruning`; give it after each of these stages.

    So its estimator can keep what has been reached if a later stage fails. Nothing is given where
    all epochs are trained already. `plan` is that of `spec`, completed by what is known of the
    teacher; the training is a part of `task`; `facts` become attributes of the estimator.

    Raises
    ------
    ValueError
        If the student diverged, or training cannot go on from the fitted one.
    KeyboardInterrupt
        On Ctrl-C, after what was trained so far has been given.
    """
    if predictions.is_of_others:
        spec = suited_to(spec, predictions.teacher)
    settings, before = spec.settings, spec.mode.before
    seeds = spec.draw_seeds(plan.n_networks + 1)
    rows, total_weight = _rows(spec, predictions, seeds.pop())
    recipe = _with_functions(spec.recipe, predictions, plan)
    module = build_module(plan, recipe, seeds, rows.X.dtype, as_tensors(spec.scaling))
    refinement = _refinement(spec, predictions, len(rows))
    if before is not None:
        load_weights(module, before.module)
    elif plan.has_start:
        plan.start(module, *map(torch.as_tensor, first_predictions(spec, predictions)))
    more_epochs = refinement * max(1.0, 2 * refinement / _FINEST) * spec.more_epochs
    n_planned = _n_epochs(settings.max_epochs, len(rows), more_epochs)
    n_before, n_epochs, n_of_first = spec.mode.epochs(settings.max_epochs, n_planned)
    if n_epochs == 0:
        return
    if rows.ranks is not None:
        _check_ranks(rows.ranks, spec, rows, n_epochs)
    more = 0 if settings.pruning is None else settings.pruning.finetune_epochs
    n_more = n_epochs // 2 if more == "auto" else int(more)
    share = predictions.found_share
    budget = TrainingBudget(n_of_first, total_weight, refinement)
    objective = plan.objective(module, budget)
    objective.start_at(n_before)
    student = Student(
        replace(spec.training, refinement=refinement),
        plan,
        recipe,
        budget,
        n_before + n_epochs,
        facts,
        [] if before is None else before.history,
        _continued(spec, rows, module),
        spec.mode.is_pass,
        spec.X,
        OwnFunctions(spec, share, predictions.teacher) if share > 0 else None,
    )
    yield from _stages(student, settings, module, rows, objective, (n_epochs, n_more), task)


def _stages(
    student: Student,
    settings: StudentSettings,
    module: DistributionStack,
    rows: object,
    objective: Objective,
    n_epochs: tuple[int, int],
    task: ObservedTask,
) -> Iterator[Fitted]:
    """Train a student for so many epochs, prune it, and train it for so many more."""
    n_first, n_more = n_epochs
    task, lasso = task.subtask("student", max_subtasks=sum(n_epochs)), group_lasso(settings, module)
    with task.running():
        how: dict[str, Any] = {"proximal": lasso, "share": n_first / sum(n_epochs)}
        per_epoch = task.per_epoch(student.in_training)
        fitted = yield from student.train(module, objective, rows, n_first, [per_epoch], **how)
        if settings.pruning is not None:
            student, fitted = student.pruned(fitted, settings.pruning.threshold)
            yield fitted
        if n_more:
            objective.start_at(n_first)  # weights that grow over the epochs have grown
            how, per_epoch = {"phase": "student after pruning"}, task.per_epoch(student.in_training)
            yield from student.train(fitted.module, objective, rows, n_more, [per_epoch], **how)


def _with_functions(recipe: NetworkRecipe, predictions: MemberPredictions, plan: Plan) -> Any:
    """Return the recipe with the functions of the teacher, one for each head if there are some."""
    functions = predictions.functions
    if functions is None:
        return recipe
    if plan.n_heads > 1:
        known = functions.members
        functions = functions.of_members([known[head % len(known)] for head in range(plan.n_heads)])
    return replace(recipe, functions=functions)


class OwnFunctions(NamedTuple):
    """How a student finds random functions of its own, which its teacher has in another form.

    `share` is that of their variance, see :func:`networks_and_functions`.
    """

    spec: FitSpec
    share: float
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


def _check_ranks(ranks: Ranks, spec: FitSpec, rows: Any, n_epochs: int) -> None:
    """Raise a ValueError unless ranks train on the same samples, at least one each."""
    data = {
        "X": spec.X,
        "y": spec.y,
        "sample_weight": spec.weight,
        "X_transfer": spec.X_transfer,
        "member_predictions": spec.member_predictions,
        "the number of samples": len(rows),
        "the number of epochs": n_epochs,
    }
    ranks.check_same({name: digest(value) for name, value in data.items()})
    if len(rows) < ranks.size:
        raise ValueError(
            f"X must have at least one sample for each of the {ranks.size} ranks of data_parallel, "
            f"got {len(rows)}."
        )


def _continued(spec: FitSpec, rows: object, module: DistributionStack) -> Any:
    """Return the callback by which a training begins and ends in a state that is kept, if any."""
    from ..._engine import ContinuedTraining

    mode = spec.mode
    if not mode.keeps_state:
        return None
    # There is none where warm_start has come later.
    state = None if mode.before is None else mode.before.facts.get("_training_state")
    return ContinuedTraining(rows, draws_globally(module), state)


@dataclass(frozen=True, eq=False)
class Student:
    """How a student is trained, and what is told of it then.

    It is trained for `n_epochs`, those of fits before included, of which `history` tells, or with
    `max_time` fewer. `facts` become attributes of its estimator, as does the state of `continued`,
    a ContinuedTraining. After one pass of several, `is_pass`, nobody is warned that it is worse
    than a constant prediction. On samples of a table, `X`, is measured what the answer changes by
    without a feature; `own_functions` finds random functions for what predicts so.
    """

    training: Training
    plan: Any
    recipe: Any
    training_budget: TrainingBudget
    n_epochs: int
    facts: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    continued: Any = None
    is_pass: bool = False
    X: np.ndarray | None = None
    own_functions: OwnFunctions | None = None

    def in_training(self, net: object) -> Fitted:
        """Return the student that a net trains, as it is now."""
        fitted = Fitted.in_training(self.plan, self.recipe, net, self.training_budget)
        return replace(fitted, facts=self.facts | {"n_epochs_": self.n_epochs})

    def train(
        self, module, objective, rows, n_epochs, callbacks=(), phase="student", **settings
    ) -> Generator[Fitted, None, Fitted]:
        """Train the module, and give it; `settings` are those of :meth:`Training.fit`."""
        from ..._engine import DivergenceGuard

        guard = DivergenceGuard()
        net = self.training.fit(
            module,
            objective,
            rows,
            n_epochs,
            callbacks=[*callbacks, guard, *([self.continued] if self.continued else [])],
            phase=phase,
            **settings,
        )
        return (yield from self.trained(module, net, guard))

    def trained(
        self, module: DistributionStack, net: Any, guard: Any
    ) -> Generator[Fitted, None, Fitted]:
        """Give the module that a net has trained, and raise Ctrl-C again."""
        self.training.refuse_diverged(net, guard)
        n_before = len(self.history)
        new = ({**row, "epoch": n_before + number} for number, row in enumerate(net.history, 1))
        fitted = self._fitted(module, [*self.history, *new])
        yield fitted
        if net.interrupted_:
            raise KeyboardInterrupt
        if guard.worse_.any() and not self.is_pass:
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
            functions = widen_where_unknown(
                module, recipe, self.plan.task, self.X, self.own_functions
            )
            recipe = replace(recipe, functions=functions)
        facts = self.facts | {
            "n_epochs_": min(self.n_epochs, n_epochs_in(history)),
            "n_parameters_": n_parameters(module),
            "flops_": count_flop(module, recipe.row_shape),
        }
        if self.continued is not None:
            facts["_training_state"] = self.continued.state_
        return Fitted(self.plan, recipe, module, history, self.training_budget, facts)


def read_by(plan: Plan, fitted: Fitted, **facts: object) -> Fitted:
    """Return a student whose outputs another plan reads as a distribution, with further facts."""
    trained = fitted.module
    module = plan.wrap(trained.network, dict(trained.named_buffers(recurse=False))).eval()
    module.inputs, module.functions = trained.inputs, trained.functions
    return replace(fitted, plan=plan, module=module, facts=fitted.facts | facts)


def widen_where_unknown(
    module: Any,
    recipe: NetworkRecipe,
    task: Task,
    X: np.ndarray,
    own: OwnFunctions | None = None,
) -> Any:
    """Let a trained module widen its answer where columns are unknown.

    Random functions of the teacher do that already, and nothing is added to models of images and
    series. What `own` finds for the module, if it is not None, are random functions. Further
    passes over few samples leave all as it was. Returned are the functions, as the recipe keeps
    them.
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


def first_predictions(spec: FitSpec, predictions: MemberPredictions) -> tuple[Any, Any]:
    """Predictions of members for some samples, and the weights of these samples."""
    if predictions.of_X is not None or predictions.predict is None:
        return predictions.of_X, spec.weight
    every = -(-len(spec.X) // _ROWS_FOR_START)
    rows, size = spec.X[::every], rows_asked(_answer(predictions, spec.X))
    answers = [predictions.predict(rows[i : i + size]) for i in range(0, len(rows), size)]
    return np.concatenate(answers), spec.weight[::every]
