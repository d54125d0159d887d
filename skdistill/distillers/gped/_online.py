# SPDX-License-Identifier: BSD-3-Clause
"""Distillation while the chains of the teacher run (GPED, Algorithm 1)."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._estimator.base import checked_training
from ..._estimator.unwrapping import seed_where_unset
from ..._method.plan import TrainingBudget, as_tensors, build_module
from ..._training.resume import NO_MATTER
from ..._training.trainer import decay_of_weights, flop_per_step, on_device, own_dropout
from ..._utils.memory import working_memory
from ..._utils.ranks import refuse_ranks
from ...ensembles import EnsembleSpec, amount_of_training, fit_ensemble
from ...settings import Checkpoint
from ...transfer import prepare_lacking
from .._fit._student import Student, training_set
from .._fit._teacher import (
    MemberPredictions,
    check_teacher,
    pass_on_verbose,
    task_of_teacher,
    unfitted_teacher,
)
from .._fit._teacher_checks import warn_of_refit
from .._fit._validate import Setup, group_lasso
from ._estimates import Targets


def distil_online(
    distiller: Any, setup: Setup, monitored: np.ndarray | None, context: Any
) -> Tensor | None:
    """Run the chains of the teacher and the student together; the student is kept.

    Returns
    -------
    means : Tensor of shape (n_monitor, n_outputs) or None
        Expectations over the chains' samples for the rows of `X_monitor`.
    """
    from ._loop import Monitor, OnlineDistillation, Stream, buffer_size, n_epochs

    refuse_ranks(distiller)
    distiller.teacher_ = teacher = unfitted_teacher(distiller)
    checked_training(teacher)
    # The chains may burn in for long before there is anything to tell of the student.
    pass_on_verbose(teacher, distiller)
    (seed,) = setup.draw_seeds(1)
    if distiller.random_state is not None or distiller.checkpoint is not None:
        seed_where_unset(teacher, seed)
    with _checkpoint_of(distiller, setup, monitored) as checkpoint:
        module_seed, order_seed = setup.draw_seeds(2)
        due, epoch_length = _due_iterations(teacher, len(setup.X))
        rows = _transfer_rows(distiller, setup, order_seed)
        plan, scaling = setup.plan, as_tensors(setup.scaling)
        module = build_module(plan, setup.recipe, [module_seed], rows.X.dtype, scaling)
        distiller.n_epochs_ = n_epochs(due, epoch_length, buffer_size(rows))
        training_budget = TrainingBudget(distiller.n_epochs_)
        student = Student(distiller, setup.training, plan, setup.recipe, training_budget, X=setup.X)
        device, limit = rows.X.device, working_memory()
        learnt = plan.expectations, plan.n_values
        distillation = OnlineDistillation(
            _student_net(student, module, rows),
            Stream(rows),
            Targets(*learnt, plan.estimates, len(rows), device, limit),
            partial(plan.members_of, module),
            due,
            epoch_length,
            distiller.n_asked if "online" in plan.estimates else 1,
            setup.training.n_threads,
        )
        if monitored is not None:
            shown = on_device(monitored, device=device)
            distillation.monitor = Monitor(shown, rows.batch_size, *learnt)
        distillation.checkpoint = checkpoint
        _run_chains(distiller, setup, distillation, module_seed, context)
        student.keep(module, distillation.student, distillation.guard)
        if distiller.pruning is not None:
            _finetune(student.pruned(), distillation, len(due))
        if checkpoint is not None:
            checkpoint.remove()
    return None if distillation.monitor is None else distillation.monitor.values()


def _student_net(student: Student, module: Any, rows: Any) -> Any:
    """The student's net, ready for training."""
    from ..._engine import DivergenceGuard

    distiller, training = student.distiller, student.training
    return training.net(
        module,
        student.plan.objective(module, student.training_budget),
        student.training_budget.n_epochs,
        phase="student",
        callbacks=[("guard", DivergenceGuard())],
        flop_per_step=flop_per_step(module, rows),
        weight_decay=decay_of_weights(module, distiller.weight_decay),
        proximal=group_lasso(distiller, module),
    ).initialize()


def _finetune(student: Student, distillation: Any, n_steps: int) -> None:
    """Train the pruned student on the running means, if all estimates are online."""
    from ..._engine import Rows

    distiller, shown = student.distiller, distillation.stream.rows
    n_batches = -(-len(shown) // shown.batch_size)
    n_more = distiller.pruning.finetune_epochs
    if n_more == "auto":
        n_more = -(-n_steps // (2 * n_batches))  # half of the steps before
    if "stochastic" in student.plan.estimates or not n_more:
        return
    met, targets = distillation.targets.met()
    weight = None if shown.weight is None else shown.weight[:, met]
    seeds = [shown.generators[0].initial_seed() + 1]
    rows = Rows(shown.X[met], (targets.to(shown.X),), weight, shown.batch_size, seeds)
    module = distiller.module_
    student.train(module, student.plan.objective(module, student.training_budget), rows, n_more)


def _due_iterations(teacher: Any, n_rows: int) -> tuple[np.ndarray, int]:
    """Iterations of the chains after which the student takes a step, and length of an epoch."""
    inference = teacher.inference
    n_epochs, batch_size = amount_of_training(EnsembleSpec.of(teacher), n_rows)
    epoch_length = -(-n_rows // min(batch_size, n_rows))
    n_iterations = n_epochs * epoch_length
    every = 1 if inference.thinning == "auto" else inference.thinning
    due = inference.sampling_iterations(n_iterations)[every - 1 :: every]  # line 6
    if not len(due):
        raise ValueError(
            f"teacher__inference__burn_in={inference.burn_in!r} and thinning="
            f"{inference.thinning!r} leave the student none of the chains' {n_iterations} "
            f"iterations, teacher__max_epochs={n_epochs} times {epoch_length}."
        )
    return due, epoch_length


def _transfer_rows(distiller: Any, setup: Setup, seed: int) -> Any:
    """The transfer set D': rows whose only target is their place in it."""
    from ..._engine import Rows

    X, _, weight, *_ = training_set(distiller, setup, MemberPredictions(None, None))
    device, dtype = setup.training.device, torch.from_numpy(X[:0]).dtype
    rows, weights = (torch.as_tensor(a, dtype=dtype, device=device) for a in (X, weight))
    is_weighted = not (weight == weight[0]).all()
    maker = setup.maker
    return Rows(
        rows,
        (torch.arange(len(rows), device=device),),
        weights[None] if is_weighted else None,
        distiller.batch_size,
        [seed],
        None if maker is None else prepare_lacking(maker, rows, weights if is_weighted else None),
    )


def _checkpoint_of(distiller: Any, setup: Setup, monitored: np.ndarray | None) -> Any:
    """Return the context of a checkpoint, or of None."""
    wanted = Checkpoint.of(distiller.checkpoint)
    if wanted is None:
        return contextlib.nullcontext()
    from ..._engine import CheckpointFile
    from ..._serialization.digest import digests

    data = {
        "X": setup.X,
        "y": (setup.y, setup.scaling, getattr(setup.plan.task, "labels", None)),
        "sample_weight": setup.weight,
        "X_transfer": setup.X_transfer,
        "X_monitor": monitored,
    }
    belongs_to = digests(distiller, data, NO_MATTER)
    return CheckpointFile(wanted.path, wanted.every, belongs_to)


def _run_chains(distiller: Any, setup: Setup, distillation: Any, seed: int, context: Any) -> None:
    """Fit the teacher with the student as an observer; only the chains' last states are kept."""
    from ._loop import StudentStopped

    warn_of_refit(distiller.teacher)
    teacher, net = distiller.teacher_, distillation.student
    X, y, sample_weight = setup.arguments
    subtask = context.subcontext(task_name="teacher")
    net.notify("on_train_begin", X=distillation.stream.rows, y=None)
    try:
        with (
            own_dropout(net.module_, seed),
            task_of_teacher(teacher, X, y, subtask, distiller),
        ):
            fit_ensemble(teacher, X, y, sample_weight, observer=distillation)
        check_teacher(distiller)
    except KeyboardInterrupt:  # while the chains took a step
        net.interrupted_ = True
    except StudentStopped:
        pass  # `student.keep` raises the reason
    except Exception as error:  # of any kind: a state that does not fit fails anywhere
        if distillation.is_loading:
            raise distillation.checkpoint.misfit(error) from error
        raise
    finally:
        if not teacher.__sklearn_is_fitted__():
            del distiller.teacher_
    net.notify("on_train_end", X=distillation.stream.rows, y=None)
