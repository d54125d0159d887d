# SPDX-License-Identifier: BSD-3-Clause
"""How a student is trained on the predictions of its teacher's members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from .._plans import Extent, as_tensors, build_module
from .._training import decay_of_weights, n_epochs_for, on_device
from ..modules import count_flop, n_parameters
from ..pruning import prune, widths
from ._setup import Setup, group_lasso
from ._teacher import MemberPredictions

# For max_epochs="auto": how many rows the student is to see, and within how many epochs.
_ROWS_SEEN = 800_000
_EPOCHS_WITHIN = (50, 400)

# Rows, at most, that the teacher is asked about to begin with.
_ROWS_FOR_START = 256


class Rows(NamedTuple):
    """X and the transfer rows in one, with what belongs to them.

    Attributes
    ----------
    X, y, weight : ndarray of shape (n, ...)
    predictions : ndarray of shape (n, S, ...) or None
        Of the teacher's members; None where they are still to be asked for.
    labelled : ndarray of shape (n,)
        1 where a row has a label, else 0.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    predictions: np.ndarray | None
    labelled: np.ndarray


def rows_with_transfer(distiller: Any, setup: Setup, predictions: MemberPredictions) -> Rows:
    """Join the rows of X and of `X_transfer`, or take the latter alone."""
    X, y, transfer = setup.X, setup.y, setup.X_transfer
    n_transfer = len(transfer)
    known = predictions.of_X
    if known is not None and n_transfer and predictions.predict is not None:
        known = np.concatenate([known, predictions.predict(transfer)])
    rows = Rows(
        np.concatenate([X, transfer]),
        np.concatenate([y, np.zeros((n_transfer, *y.shape[1:]), dtype=y.dtype)]),
        np.concatenate([setup.weight, np.ones(n_transfer)]),
        known,
        np.repeat([1.0, 0.0], [len(X), n_transfer]),
    )
    if not (distiller.transfer_only and n_transfer):
        return rows
    kept = rows.labelled == 0
    X, y, weight, known, labelled = rows
    return Rows(
        X[kept], y[kept], weight[kept], None if known is None else known[kept], labelled[kept]
    )


def training_rows(distiller: Any, setup: Setup, predictions: MemberPredictions, seed: int) -> Any:
    """Return the rows to learn from, dealt with the predictions of the teacher's members."""
    from .._engine import DistillationRows

    maker = setup.maker
    X, y, weight, known, labelled = rows_with_transfer(distiller, setup, predictions)
    n_kept = 0
    stays = known is not None or not (maker is None or maker.keeps_labels)
    if maker is not None and stays and not distiller.transfer_only:
        n_kept = len(X)
        X, y, weight = (np.concatenate([array, array]) for array in (X, y, weight))
        labelled = np.concatenate([labelled, np.zeros(n_kept)])
    drawn_only = maker is not None and n_kept == 0
    device = setup.training.device
    rows, weights, targets, is_labelled = (
        on_device(array, device, X.dtype) for array in (X, weight, y, labelled)
    )
    is_weighted = not (weight == weight[0]).all()
    return DistillationRows(
        rows,
        (targets, is_labelled),
        weights[None] if is_weighted else None,
        distiller.batch_size,
        [seed],
        teacher=predictions.predict,
        predictions=None if known is None or drawn_only else on_device(known, device, X.dtype),
        draw=None if maker is None else maker.prepare(rows, weights if is_weighted else None),
        n_kept=n_kept,
    )


def train_student(
    distiller: Any, setup: Setup, predictions: MemberPredictions, plan: Any, context: Any
) -> None:
    """Train a student, prune it if it is to be, and keep it as the fitted module.

    Parameters
    ----------
    distiller : estimator
        Whose parameters to use; it gets the fitted module.
    setup : Setup
    predictions : MemberPredictions
    plan : Plan
        That of `setup`, completed by what is known of the teacher.
    context : sklearn.callback.CallbackContext
        The task whose subtask the training is.

    Raises
    ------
    ValueError
        If the student diverged.
    KeyboardInterrupt
        On Ctrl-C, with what was trained kept.
    """
    from .._engine import TaskPerEpoch

    seeds = setup.draw_seeds(plan.n_networks + 1)
    rows = training_rows(distiller, setup, predictions, seeds.pop())
    module = build_module(plan, setup.recipe, seeds, rows.X.dtype, as_tensors(setup.scaling))
    if plan.has_start:
        plan.start(module, *map(torch.as_tensor, _first_predictions(setup, predictions)))
    distiller.n_epochs_ = n_epochs_for(distiller.max_epochs, len(rows), _ROWS_SEEN, *_EPOCHS_WITHIN)
    n_more = _n_finetuning_epochs(distiller)
    extent = Extent(distiller.n_epochs_, _sum_of_weights(distiller, setup))
    subtask = context.subcontext(task_name="student", max_subtasks=distiller.n_epochs_ + n_more)
    subtask.call_on_fit_task_begin(estimator=distiller)
    objective = plan.objective(module, extent)
    per_epoch = TaskPerEpoch(subtask, distiller)
    student = Student(distiller, setup, plan, setup.recipe, extent)
    student.train(
        module, objective, rows, extent.n_epochs, [per_epoch], group_lasso(distiller, module)
    )
    if getattr(distiller, "group_lasso", 0):
        student = student.pruned()
    if n_more:
        objective.first_epoch = extent.n_epochs  # what grows over the epochs has grown
        student.train(distiller.module_, objective, rows, n_more, [per_epoch])
    subtask.call_on_fit_task_end(estimator=distiller)


class Student(NamedTuple):
    """A student in training, kept by its distiller whenever a training has ended."""

    distiller: Any
    setup: Setup
    plan: Any
    recipe: Any
    extent: Extent

    def train(self, module, objective, rows, n_epochs, callbacks=(), proximal=None) -> None:
        """Train the module, and keep it."""
        from .._engine import DivergenceGuard

        guard = DivergenceGuard()
        net = self.setup.training.fit(
            module,
            objective,
            rows,
            n_epochs,
            callbacks=[*callbacks, guard],
            weight_decay=decay_of_weights(module, self.distiller.weight_decay),
            proximal=proximal,
        )
        self.keep(module, net, guard)

    def keep(self, module: Any, net: Any, guard: Any) -> None:
        """Make what a net has trained the fitted module; pass a Ctrl-C on."""
        training = self.setup.training
        training.refuse_diverged(net, guard)
        history = [*getattr(self.distiller, "history_", ()), *net.history]
        self._set(module, history)
        if net.interrupted_:
            raise KeyboardInterrupt
        if guard.worse_.any():
            training.warn_of_worse("The student is")

    def pruned(self) -> Student:
        """Remove the silent units of the fitted module."""
        distiller = self.distiller
        module = prune(distiller.module_, distiller.prune_threshold)
        smaller = self._replace(recipe=replace(self.recipe, widths=widths(module)))
        smaller._set(module, distiller.history_)
        return smaller

    def _set(self, module: Any, history: list) -> None:
        module.zero_grad()  # it keeps no gradients
        self.distiller._keep(self.plan, self.recipe, module, history, self.extent)
        self.distiller.n_parameters_ = n_parameters(module)
        self.distiller.flops_ = count_flop(module, self.recipe.row_shape)


def _first_predictions(setup: Setup, predictions: MemberPredictions) -> tuple[Any, Any]:
    """Predictions of members about some rows, and the weights of these."""
    if predictions.of_X is not None or predictions.predict is None:
        return predictions.of_X, setup.weight
    every = -(-len(setup.X) // _ROWS_FOR_START)
    return predictions.predict(setup.X[::every]), setup.weight[::every]


def _n_finetuning_epochs(distiller: Any) -> int:
    if not getattr(distiller, "group_lasso", 0):
        return 0
    more = distiller.finetune_epochs
    return distiller.n_epochs_ // 2 if more == "auto" else more


def _sum_of_weights(distiller: Any, setup: Setup) -> float:
    """Sum of the weights of the rows that are learnt from."""
    n_transfer = len(setup.X_transfer)
    leaves_out_X = distiller.transfer_only and n_transfer > 0
    return n_transfer + (0.0 if leaves_out_X else float(setup.weight.sum()))
