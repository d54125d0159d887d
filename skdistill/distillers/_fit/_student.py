# SPDX-License-Identifier: BSD-3-Clause
"""Training a student on the predictions of its teacher's members."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._estimator.base import Fitted
from ..._estimator.batched import as_rows, read_in_chunks
from ..._estimator.warm_start import load_weights
from ..._method.plan import TrainingBudget, as_tensors, build_module
from ..._method.random_functions import (
    LEAST_SAMPLES,
    Predict,
    RandomFunctions,
    UnknownColumns,
    find_functions,
    find_unknown,
)
from ..._serialization.digest import digests
from ..._training.resume import NO_MATTER
from ..._training.stream import Part, Stream, rows_of_stream
from ..._training.trainer import (
    Training,
    batch_size_for,
    decay_of_weights,
    draws_globally,
    n_epochs_in,
    on_device,
)
from ..._utils.memory import rows_asked, rows_in_memory
from ..._utils.ranks import Ranks, current_ranks
from ...distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ...losses import moments
from ...modules import count_flop, n_parameters
from ...pruning import prune, widths
from ...transfer import prepare_lacking
from ._disagreement import prepare_maker
from ._fit_mode import FitMode
from ._teacher import MemberPredictions
from ._validate import Setup, group_lasso

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
_ORDINARY_VARIANCE, _FINEST = 3e-3, 4.0

# Finds random functions for what predicts samples so, if their table has some.
FindFunctions = Callable[[Predict], RandomFunctions | None]

# A transfer set is made of at most so many copies of the training set, of so many samples in all
# but two copies at least, and of so many bytes.
_MOST_COPIES, _POOL_SIZE, _POOL_BYTES = 20, 100_000, 2**28

# Rows, at most, whose predictions set where training begins.
_ROWS_FOR_START = 256

# Draws of what is added where columns are unknown, for students that have no members.
_N_DRAWS = 20

# Parameters that ranks may have each their own of; the seed of rank 0 counts. A fitted teacher is
# not read, as it may be of any library.
_MAY_DIFFER = ("callbacks", "device", "memory", "random_state", "teacher", *NO_MATTER)


class TrainingSet(NamedTuple):
    """Rows of X and `X_transfer`, all of shape (n, ...)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    predictions: np.ndarray | None  # of the teacher's members, if they are known already
    labelled: np.ndarray  # 1 where a row has a label, else 0


def training_set(distiller: Any, setup: Setup, predictions: MemberPredictions) -> TrainingSet:
    """Join the rows of X and of `X_transfer`, or take the latter alone."""
    X, y, weight, transfer = setup.X, setup.y, setup.weight, setup.X_transfer
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
    first = len(X) if distiller.transfer_only else 0
    kept: list[Any] = [None if array is None else array[first:] for array in joined]
    return TrainingSet(*kept)


def training_rows(
    distiller: Any, setup: Setup, predictions: MemberPredictions, rows: TrainingSet, seed: int
) -> Any:
    """Return the training set as the engine takes it, with the rows that `transfer` generates.

    They are generated, and the teacher is asked about them, once: there are several copies of the
    training set, the first of which has its own rows, unless they are kept beside generated ones.
    Where copies would take too much memory, rows are generated anew for each minibatch.
    """
    from ..._engine import AnswersOnFile, DistillationRows, PooledRows, drawn_rows

    maker, (X, y, weight, members, labelled) = setup.maker, rows
    n_repeats, n_kept = 1, 0
    is_kept = members is not None or not (maker is None or maker.keeps_labels)
    if maker is not None and is_kept and not distiller.transfer_only:
        n_repeats, n_kept = 2, len(X)
        labelled = np.concatenate([labelled, np.zeros(n_kept)])
    if maker is not None and n_kept == 0:
        members = None  # no row stays as it is
    put = partial(on_device, device=setup.training.device, dtype=X.dtype)
    weights = None if (weight == weight[0]).all() else put(weight, n_repeats)
    inputs, known = put(X, n_repeats), None if members is None else put(members)
    draw = prepare_maker(maker, inputs, weights, distiller, setup)
    dealt: dict[str, Any] = {
        "batch_size": _batch_size(distiller, len(X)),
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
        if number == 0 and n_kept == 0 and not distiller.transfer_only:
            return deal(inputs, answers=answers)
        drawn = drawn_rows(inputs[n_kept:], draw, seed + 1 + number)
        return deal(torch.cat([inputs[:n_kept], drawn]), known=known, answers=answers)

    return PooledRows(copy, n_copies, inputs, **dealt)


def _answer(predictions: MemberPredictions, X: np.ndarray) -> np.ndarray:
    """Return what the teacher predicts for one row."""
    predict: Any = predictions.predict  # not None where rows are generated
    answer: np.ndarray = predict(X[:1])
    return answer


def streamed_rows(
    distiller: Any, setup: Setup, stream: Stream, predictions: MemberPredictions, seed: int
) -> Any:
    """Return the rows of a stream as the engine takes them, with the noise that `transfer` adds."""
    from ..._engine import AnswersOnFile, DistillationRows

    put = partial(on_device, device=setup.training.device, dtype=stream.dtype)
    batch_size, ranks = _batch_size(distiller, stream.n_rows), current_ranks()
    mean_weight = stream.total_weight / stream.n_rows
    draw = None
    if setup.maker is not None:
        # The spread of the columns, and their correlations, are those of the examples.
        weight = put(setup.weight) if stream.is_weighted else None
        draw = prepare_lacking(setup.maker, put(setup.X), weight)

    # Memory is bounded, whatever fits it: a file in any case. Rows with noise are new ones.
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

    return rows_of_stream(stream, setup.scaling, batch_size, [seed], deal, ranks)


def _n_epochs(max_epochs: int | str, n_rows: int, refinement: float = 1.0) -> int:
    """Return `max_epochs`; "auto" shows samples in proportion to the root of their number."""
    if max_epochs != "auto":
        return int(max_epochs)
    low, high = _EPOCHS_WITHIN
    within = min(max(_SEEN_PER_ROOT / math.sqrt(n_rows), low), high)
    return round(within * refinement)


def _refinement(distiller: Any, setup: Setup, predictions: MemberPredictions) -> float:
    """Return by how much finer a student is trained where its teacher predicts little variance."""
    is_numeric = setup.plan.task.kind == "regressor"
    if setup.fit_mode.is_pass or not is_numeric or distiller.max_epochs != "auto":
        return 1.0  # without more epochs smaller steps would not arrive
    members, weight = first_predictions(setup, predictions)
    if np.ndim(members) < 4:  # expectations, of GPED
        return 1.0
    return _refinement_for(members, weight)


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


def _batch_size(distiller: Any, n_rows: int) -> int:
    """Rows of a minibatch of all ranks together."""
    ranks = current_ranks()
    size = batch_size_for(distiller.batch_size, n_rows)
    if distiller.batch_size == "auto":
        size = max(size, min(_BATCH_SIZE, int(n_rows * _MOST_OF_TABLE)))
    return size * (1 if ranks is None else ranks.size)


def _rows(
    distiller: Any, setup: Setup, predictions: MemberPredictions, seed: int
) -> tuple[Any, float]:
    """Return the rows that a student learns from, and the sum of their weights."""
    if setup.stream is not None:
        rows = streamed_rows(distiller, setup, setup.stream, predictions, seed)
        return rows, setup.stream.total_weight
    given = training_set(distiller, setup, predictions)
    rows = training_rows(distiller, setup, predictions, given, seed)
    return rows, float(given.weight.sum())


def train_student(
    distiller: Any,
    setup: Setup,
    predictions: MemberPredictions,
    plan: Any,
    context: Any,
    **facts: Any,
) -> None:
    """Train a student, prune it with `pruning`, and keep it as the fitted module.

    `plan` is that of `setup`, completed by what is known of the teacher; `context` is the callback
    context of the fit, whose subtask the training is. `facts` become attributes of the distiller
    with the student.

    Raises
    ------
    ValueError
        If the student diverged, or training cannot go on from the fitted one.
    KeyboardInterrupt
        On Ctrl-C; what was trained so far is kept.
    """
    seeds = setup.draw_seeds(plan.n_networks + 1)
    rows, total_weight = _rows(distiller, setup, predictions, seeds.pop())
    setup = setup._replace(recipe=_with_functions(setup.recipe, predictions, plan))
    module = build_module(plan, setup.recipe, seeds, rows.X.dtype, as_tensors(setup.scaling))
    refinement = _refinement(distiller, setup, predictions)
    setup = setup._replace(training=replace(setup.training, refinement=refinement))
    if setup.fit_mode.goes_on:
        load_weights(module, distiller.module_)
    elif plan.has_start:
        plan.start(module, *map(torch.as_tensor, first_predictions(setup, predictions)))
    n_planned = _n_epochs(distiller.max_epochs, len(rows), refinement)
    n_before, n_epochs, n_of_first = setup.fit_mode.epochs(distiller, n_planned)
    if n_epochs == 0:
        return
    if rows.ranks is not None:
        _check_ranks(rows.ranks, distiller, setup, rows, n_epochs)
    training_budget = TrainingBudget(n_of_first, total_weight, refinement)
    n_more = _n_finetuning(distiller, n_epochs)
    subtask = context.subcontext(task_name="student", max_subtasks=n_epochs + n_more)
    subtask.call_on_fit_task_begin(estimator=distiller)
    objective = plan.objective(module, training_budget)
    objective.first_epoch = n_before
    facts["n_epochs_"] = n_before + n_epochs
    continued = _continued(distiller, setup.fit_mode, rows, module)
    parts = distiller, setup.training, plan, setup.recipe, training_budget
    share = predictions.found_share
    find = partial(_find_functions, setup, share) if share > 0 else None
    student = Student(*parts, facts, continued, setup.fit_mode.is_pass, setup.X, find)
    per_epoch = student.task_per_epoch(subtask, setup.for_callbacks)
    training = {"proximal": group_lasso(distiller, module), "share": n_epochs / (n_epochs + n_more)}
    student.train(module, objective, rows, n_epochs, [per_epoch], **training)
    distiller.n_epochs_ = facts["n_epochs_"] = student.n_epochs_done(facts["n_epochs_"])
    if distiller.pruning is not None:
        student = student.pruned()
    if n_more:
        objective.first_epoch = n_epochs  # weights that grow over the epochs have grown
        module, phase = distiller.module_, "student after pruning"
        per_epoch = student.task_per_epoch(subtask, setup.for_callbacks)
        student.train(module, objective, rows, n_more, [per_epoch], phase=phase)
    subtask.call_on_fit_task_end(estimator=distiller)


def _n_finetuning(distiller: Any, n_epochs: int) -> int:
    """Return the number of epochs after pruning."""
    if distiller.pruning is None:
        return 0
    more = distiller.pruning.finetune_epochs
    return n_epochs // 2 if more == "auto" else int(more)


def _with_functions(recipe: Any, predictions: MemberPredictions, plan: Any) -> Any:
    """Return the recipe with the functions of the teacher, one for each head if there are some."""
    functions = predictions.functions
    if functions is None:
        return recipe
    n_heads = getattr(plan, "n_heads", 1)
    if n_heads > 1:
        known = functions.members
        functions = functions.of_members([known[head % len(known)] for head in range(n_heads)])
    return replace(recipe, functions=functions)


def _find_functions(setup: Setup, share: float, predict: Predict) -> RandomFunctions | None:
    """Find random functions, of a share of their variance, for a student that predicts so.

    There are none where its table has none.
    """
    y, scaling, columns = setup.y, setup.scaling, setup.columns
    are_classes = setup.plan.task.kind == "classifier"
    if not are_classes:
        y = y * scaling["y_scale"] + scaling["y_loc"]
    n_categories = None if columns is None else columns.n_categories
    rng = np.random.RandomState(0)
    found = find_functions(setup.X, y, n_categories, predict, None, are_classes, rng)
    return None if found is None else found.times(math.sqrt(share))


def _check_ranks(ranks: Ranks, distiller: Any, setup: Setup, rows: Any, n_epochs: int) -> None:
    """Raise a ValueError unless ranks train the same on the same rows, at least one each."""
    data = {
        "X": setup.X,
        "y": setup.y,
        "sample_weight": setup.weight,
        "X_transfer": setup.X_transfer,
        "member_predictions": setup.member_predictions,
        "the number of rows": len(rows),
        "the number of epochs": n_epochs,
    }
    ranks.check_same(digests(distiller, data, _MAY_DIFFER))
    if len(rows) < ranks.size:
        raise ValueError(
            f"X must have at least one row for each of the {ranks.size} ranks of data_parallel, "
            f"got {len(rows)}."
        )


def _continued(distiller: Any, fit_mode: FitMode, rows: Any, module: Any) -> Any:
    """Return the callback by which a training begins and ends in a state that is kept, if any."""
    from ..._engine import ContinuedTraining

    if not fit_mode.keeps_state:
        return None
    before = getattr(distiller, "_training_state", None)  # none where warm_start has come later
    return ContinuedTraining(rows, draws_globally(module), before)


class Student(NamedTuple):
    """A student in training, which its distiller keeps after each stage of it.

    `facts` become attributes of the distiller, and so does the state of `continued`, a
    ContinuedTraining. A student that is worse than a constant prediction is warned of, but not
    after one pass of several, `is_pass`. On samples of a table, `X`, is measured what the answer
    changes by without a column; `find` finds random functions for what predicts it, if not None.
    """

    distiller: Any
    training: Training
    plan: Any
    recipe: Any
    training_budget: TrainingBudget
    facts: dict[str, Any] = {}
    continued: Any = None
    is_pass: bool = False
    X: np.ndarray | None = None
    find: FindFunctions | None = None

    def task_per_epoch(self, context: Any, given: dict[str, Any]) -> Any:
        """Return the callback that reports epochs to scikit-learn's, as subtasks of `context`."""
        from ..._engine import TaskPerEpoch

        return TaskPerEpoch(context, self.distiller, given, self._attributes)

    def _attributes(self, net: Any) -> dict[str, Any]:
        """Attributes of the distiller with the student that a net trains, as it is now."""
        fitted = Fitted.in_training(self.plan, self.recipe, net, self.training_budget)
        return self.facts | fitted.attributes

    def n_epochs_done(self, n_planned: int) -> int:
        """Return how many epochs the student has been trained for; with `max_time` maybe fewer."""
        if self.training.budget is None:
            return n_planned
        return n_epochs_in(self.distiller.history_)

    def train(
        self, module, objective, rows, n_epochs, callbacks=(), phase="student", **settings
    ) -> None:
        """Train the module, and keep it; `settings` are those of :meth:`Training.fit`."""
        from ..._engine import DivergenceGuard

        guard = DivergenceGuard()
        net = self.training.fit(
            module,
            objective,
            rows,
            n_epochs,
            callbacks=[*callbacks, guard, *([self.continued] if self.continued else [])],
            weight_decay=decay_of_weights(module, self.distiller.weight_decay),
            phase=phase,
            **settings,
        )
        self.keep(module, net, guard)

    def keep(self, module: Any, net: Any, guard: Any) -> None:
        """Keep the module that a net has trained, and raise Ctrl-C again."""
        self.training.refuse_diverged(net, guard)
        before = getattr(self.distiller, "history_", [])
        history = [
            *before,
            *({**row, "epoch": len(before) + number} for number, row in enumerate(net.history, 1)),
        ]
        self._set(module, history)
        if net.interrupted_:
            raise KeyboardInterrupt
        if guard.worse_.any() and not self.is_pass:
            self.training.warn_of_worse("The student is", net.lr)

    def pruned(self) -> Student:
        """Remove the silent units of the fitted module."""
        distiller = self.distiller
        module = prune(distiller.module_, distiller.pruning.threshold)
        smaller = self._replace(recipe=replace(self.recipe, widths=widths(module)))
        smaller._set(module, distiller.history_)
        return smaller

    def _set(self, module: Any, history: list) -> None:
        module.zero_grad()  # it keeps no gradients
        recipe = self.recipe
        if self.X is not None:
            functions = widen_where_unknown(module, recipe, self.plan.task, self.X, self.find)
            recipe = replace(recipe, functions=functions)
        self.distiller._keep(Fitted(self.plan, recipe, module, history, self.training_budget))
        vars(self.distiller).update(self.facts)
        if self.continued is not None:
            self.distiller._training_state = self.continued.state_
        self.distiller.n_parameters_ = n_parameters(module)
        self.distiller.flops_ = count_flop(module, self.recipe.row_shape)


def widen_where_unknown(
    module: Any, recipe: Any, task: Any, X: np.ndarray, find: FindFunctions | None = None
) -> Any:
    """Let a trained module widen its answer where columns are unknown.

    Random functions of the teacher do that already, and nothing is added to models of images and
    series. What `find` finds for the module, if it is not None, are random functions. Further
    passes over few samples leave all as it was. Returned are the functions, as the recipe keeps
    them.
    """
    known: UnknownColumns | None = recipe.functions
    is_kept = isinstance(known, RandomFunctions) or (known and len(X) < LEAST_SAMPLES)
    if is_kept or len(recipe.row_shape) != 1:
        return known
    module.functions = None
    are_classes = task.kind == "classifier"

    def log_mean(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = module.of_outputs(outputs, rows).log_mean
        return found

    predict = partial(read_in_chunks, module, read=log_mean if are_classes else module.mean)
    found: UnknownColumns | None = None if find is None else find(predict)
    if found is None:
        found = find_unknown(X, predict, are_classes, np.random.RandomState(0))
    with torch.inference_mode():
        example = module.distribution(as_rows(module, X, slice(1)))
    is_empirical = isinstance(example, (EmpiricalCategorical, EmpiricalGaussian))
    n_members = example.members.shape[1] if is_empirical else 1
    found = found.of_members(range(n_members if n_members > 1 else _N_DRAWS))
    module.functions = found.module().to(next(module.parameters()).device)
    return found


def first_predictions(setup: Setup, predictions: MemberPredictions) -> tuple[Any, Any]:
    """Predictions of members for some rows, and the weights of these rows."""
    if predictions.of_X is not None or predictions.predict is None:
        return predictions.of_X, setup.weight
    every = -(-len(setup.X) // _ROWS_FOR_START)
    rows, size = setup.X[::every], rows_asked(_answer(predictions, setup.X))
    answers = [predictions.predict(rows[i : i + size]) for i in range(0, len(rows), size)]
    return np.concatenate(answers), setup.weight[::every]
