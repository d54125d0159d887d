# SPDX-License-Identifier: BSD-3-Clause
"""The samples that a student learns from, and what "auto" stands for by the teacher's kind."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from ..._data.encoding import InputEncoding
from ..._estimator.calibration import Temperature
from ..._method.plan import NetworkRecipe
from ..._method.random_functions import Predict
from ..._method.task import Task
from ..._training.stream import Part, Stream, rows_of_stream
from ..._training.trainer import batch_size_for, on_device
from ..._utils.process import rows_in_memory
from ...distributions import EmpiricalCategorical, EmpiricalGaussian
from ...ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ...losses import Categories
from ...modules import GaussianStack, stack, unstack
from ...teachers import MixedModels, Splits, Teacher, splits_of
from ...transfer import Measure, Munge, prepare_with_missing
from ._spec import AUTO_NOISE, FitSpec, maker_that_changes
from ._teacher import MemberPredictions, distribution_of, inside_wrappers, predictor_of

# See doc/design.rst.
_BATCH_SIZE, _MOST_OF_TABLE = 128, 1 / 3  # samples of batch_size="auto", and their share at most
_MOST_COPIES, _POOL_SIZE, _POOL_BYTES = 20, 100_000, 2**28  # limits: copies of X, samples, bytes
_MOST_OF_FEATURE, _LEAST_OF_FEATURE, _MOST_STEPS = 64, 8, 256  # step inputs: a feature's, and all
_CELLS = 4  # of neighbouring thresholds, for each threshold that is taken
_MORE_EPOCHS = 2.0  # of students of trees, times those of others
_SHARE_OF_MUNGE = 0.5  # of the transfer samples, for students of trees
_N_ASKED = 2  # members whose gradients are asked for at a time


def adapted_to_teacher(spec: FitSpec, teacher: object) -> FitSpec:
    """Return the spec for the student of this fitted teacher, which is no ensemble of ours.

    Trees change at thresholds, so a student of theirs has inputs that do, with
    ``module__embeddings="auto"``. Of trees, and of models of several kinds, ``transfer="auto"``
    takes half of the transfer samples from between neighbours: their answers vary more along the
    samples than noise around these tells.
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
            spec = replace(spec, recipe=with_steps(spec.recipe, spec.X, splits))
        spec = replace(spec, more_epochs=_MORE_EPOCHS)
    has_usual_maker = spec.transfer == "auto" and spec.maker is not None and spec.stream is None
    if has_usual_maker and (has_trees or isinstance(model, MixedModels)):
        maker = Munge(base=AUTO_NOISE[spec.kind], share=_SHARE_OF_MUNGE)
        spec = replace(spec, maker=maker_that_changes(spec, maker))
    return spec


def with_steps(recipe: NetworkRecipe, X: np.ndarray, splits: Splits) -> NetworkRecipe:
    """Return the recipe of networks whose inputs also step at the splits of the largest gain."""
    n_split = len(np.unique(splits.features))
    size = min(_MOST_OF_FEATURE, max(_LEAST_OF_FEATURE, _MOST_STEPS // n_split))
    thresholds = [
        best_thresholds(splits.thresholds[own], splits.gains[own], size)
        for own in (splits.features == column for column in range(X.shape[1]))
    ]
    inputs = InputEncoding.with_steps(recipe.inputs, X, thresholds)
    settings = recipe.settings | {"in_features": inputs.n_inputs}
    return replace(recipe, inputs=inputs, settings=settings)


def best_thresholds(thresholds: np.ndarray, gains: np.ndarray, size: int) -> np.ndarray:
    """Return at most `size` of the thresholds of a feature, those of the largest gain.

    Trees of a forest split at as many values as there are samples. Where these are many, they are
    first put in cells of as many each, which have the gain of all of them and the best threshold.
    """
    values, which = np.unique(thresholds, return_inverse=True)
    totals = np.bincount(which, weights=gains)
    n_cells = min(len(values), _CELLS * size)
    cell = np.arange(len(values)) * n_cells // max(len(values), 1)
    order = np.lexsort((-totals, cell))
    _, first = np.unique(cell[order], return_index=True)
    of_cells = np.bincount(cell, weights=totals)
    return values[order[first]][np.argsort(-of_cells, kind="stable")[:size]]


def student_rows(spec: FitSpec, predictions: MemberPredictions, seed: int) -> tuple[Any, float]:
    """Return the samples that a student learns from, and the sum of their weights."""
    if spec.stream is not None:
        rows = streamed_rows(spec, spec.stream, predictions, seed)
        return rows, spec.stream.total_weight
    given = training_set(spec, predictions)
    return training_rows(spec, predictions, given, seed), float(given.weight.sum())


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
    first = len(X) if spec.transfer_only else 0
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
    transfer_only = spec.transfer_only
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
        "batch_size": _batch_size(spec.params["batch_size"], len(X)),
        "seeds": [seed],
    }
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


def streamed_rows(spec: FitSpec, stream: Stream, predictions: MemberPredictions, seed: int) -> Any:
    """Return the rows of a stream as the engine takes them, with the noise that `transfer` adds."""
    from ..._engine import AnswersOnFile, DistillationRows

    put = partial(on_device, device=spec.training.device, dtype=stream.dtype)
    batch_size = _batch_size(spec.params["batch_size"], stream.n_rows)
    mean_weight = stream.total_weight / stream.n_rows
    # The spread of the columns, and their correlations, are those of the examples.
    weight = put(spec.weight) if stream.is_weighted else None
    draw = prepare_maker(spec, put(spec.X), weight, predictions.teacher)
    # Memory is bounded, whatever fits it: a file in any case. Samples with noise are new ones.
    answers = AnswersOnFile(stream.n_rows) if draw is None else None

    def deal(part: Part, number: int) -> Any:
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


def prepare_maker(spec: FitSpec, X: Tensor, weight: Tensor | None, teacher: BaseEstimator) -> Any:
    """Return what draws samples, by a maker that is told of the fitted teacher if it asks."""
    maker, task = spec.maker, spec.plan.task
    if maker is None:
        return None
    if not maker.asks_teacher:
        return prepare_with_missing(maker, X, weight)
    # Not what the student learns from, such as expectations, but what the members predict.
    predict = predictor_of(teacher, spec, task)
    if (count := predict(spec.X[:1]).shape[1]) < 2:  # one disagrees with nobody
        name = type(inside_wrappers(teacher, FrozenEstimator, Teacher)).__name__
        raise ValueError(
            f"transfer={spec.transfer!r} needs a teacher of at least two members; "
            f"{name} has {count}."
        )
    model = inside_wrappers(teacher, FrozenEstimator)
    is_ensemble = isinstance(model, (BayesianEnsembleClassifier, BayesianEnsembleRegressor))
    # Of categories its networks may know other codes.
    asks_networks = is_ensemble and spec.schema.columns is None
    networks = NetworksThatDisagree(model.module_, X) if asks_networks else None
    return prepare_with_missing(maker, X, weight, networks or AnswersThatDisagree(task, predict))


class NetworksThatDisagree:
    """Disagreement of the networks of an ensemble, a random pair of which is asked, with gradients.

    The samples have the dtype and the device of `like`.
    """

    has_gradient = True

    def __init__(self, module: Any, like: Tensor):
        networks = unstack(module.network)
        self.networks = [network.to(like).requires_grad_(False) for network in networks]
        self.encode = copy.deepcopy(module).to(like).encode
        self.is_numeric = isinstance(module, GaussianStack)
        self.calibration = module.calibration or Temperature()

    def of_some(self, generator: torch.Generator) -> Measure:
        n_networks, device = len(self.networks), generator.device
        asked = torch.randperm(n_networks, generator=generator, device=device)[:_N_ASKED]
        network = stack([self.networks[k] for k in asked.tolist()]).eval().requires_grad_(False)

        def measure(rows: Tensor) -> Tensor:
            outputs = network(self.encode(rows).unsqueeze(0))
            if self.is_numeric:
                return EmpiricalGaussian.from_outputs(outputs).uncertainty().epistemic.sum(-1)
            members = self.calibration(EmpiricalCategorical.from_logits(outputs))
            members = Categories(members.log_probs)  # uncertainty() passes no gradient
            return (members.probs * members.log_ratio).sum(-2).mean(0)

        return measure


class AnswersThatDisagree:
    """Disagreement of all members of any teacher, by what they `predict`."""

    has_gradient = False

    def __init__(self, task: Task, predict: Predict):
        self.task, self.predict = task, predict

    def of_some(self, generator: torch.Generator) -> Measure:
        return self._measure

    def _measure(self, rows: Tensor) -> Tensor:
        members = torch.from_numpy(self.predict(rows.cpu().numpy()))
        epistemic = distribution_of(self.task, members).uncertainty().epistemic
        return epistemic.reshape(len(rows), -1).sum(-1).to(rows)
