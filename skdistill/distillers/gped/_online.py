# SPDX-License-Identifier: BSD-3-Clause
"""Distillation while the chains of the teacher run (GPED, Algorithm 1)."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ..._estimator.base import Fitted, ObservedTask, checked_training
from ..._estimator.unwrapping import seed_where_unset
from ..._method.plan import TrainingBudget, as_tensors, build_module
from ..._training.trainer import flop_per_step, on_device, own_dropout
from ..._utils.process import working_memory
from ...ensembles import EnsembleSpec, amount_of_training, fit_ensemble
from ...modules import DistributionStack
from ...settings import Estimate
from ...transfer import prepare_lacking
from .._fit._spec import FitSpec
from .._fit._student import Student, training_set
from .._fit._teacher import MemberPredictions, check_teacher, pass_on_verbose, unfitted_teacher
from .._fit._teacher_checks import warn_of_refit
from .._fit._validate import group_lasso
from ._estimates import Targets


def distil_online(
    spec: FitSpec, task: ObservedTask, checkpoint: Any, monitored: np.ndarray | None
) -> Iterator[Fitted]:
    """Run the chains of the teacher and the student together; give the student after each stage.

    `checkpoint` is the context of a Checkpoint or None. For the rows of `X_monitor`, if there are
    some, the last student tells what the chains' samples expect.
    """
    from ._loop import Monitor, OnlineDistillation, Stream, buffer_size, n_epochs

    settings, plan = spec.settings, spec.plan
    teacher = _chains(spec)
    with checkpoint as opened:
        module_seed, order_seed = spec.draw_seeds(2)
        due, epoch_length = _due_iterations(teacher, len(spec.X))
        rows = _transfer_rows(spec, order_seed)
        scaling = as_tensors(spec.scaling)
        module = build_module(plan, spec.recipe, [module_seed], rows.X.dtype, scaling)
        budget = TrainingBudget(n_epochs(due, epoch_length, buffer_size(rows)))
        how = spec.training, plan, spec.recipe, budget, budget.n_epochs
        student = Student(*how, X=spec.X)
        learnt, device = (plan.expectations, plan.n_values), rows.X.device
        monitor = None
        if monitored is not None:
            monitor = Monitor(on_device(monitored, device=device), rows.batch_size, *learnt)
        distillation = OnlineDistillation(
            _student_net(student, module, rows, group_lasso(settings, module)),
            Stream(rows),
            Targets(*learnt, plan.estimates, len(rows), device, working_memory()),
            partial(plan.members_of, module),
            due,
            epoch_length,
            Estimate.of(settings.estimate).n_asked if "online" in plan.estimates else 1,
            spec.training.n_threads,
            monitor,
            opened,
        )
        facts = _run_chains(teacher, spec, distillation, module_seed, task)
        student = replace(student, facts=facts)
        fitted = yield from student.trained(module, distillation.student, distillation.guard)
        if settings.pruning is not None:
            student, fitted = student.pruned(fitted, settings.pruning.threshold)
            yield fitted
            n_more = settings.pruning.finetune_epochs
            fitted = yield from _finetuned(student, fitted, n_more, distillation, len(due))
        if opened is not None:
            opened.remove()
    if monitor is not None:
        yield with_monitor(fitted, monitor.values())


def _chains(spec: FitSpec) -> BaseEstimator:
    """Return the teacher, whose chains are to be run."""
    teacher = unfitted_teacher(spec.settings)
    checked_training(teacher)
    # The chains may burn in for long before there is anything to tell of the student.
    pass_on_verbose(teacher, spec.settings.verbose)
    (seed,) = spec.draw_seeds(1)
    if spec.settings.is_repeatable:
        seed_where_unset(teacher, seed)
    return teacher


def with_monitor(fitted: Fitted, means: Tensor) -> Fitted:
    """Return a student with the teacher's expectations for the rows of `X_monitor`, in y's units.

    `means` are targets of the student for these rows, (n_monitor, n_outputs).
    """
    plan: Any = fitted.plan
    monitor = {
        label: plan.in_units(label, means[:, columns].cpu(), fitted.module).numpy()
        for label, columns in zip(plan.labels, plan.columns, strict=True)
    }
    return replace(fitted, facts=fitted.facts | {"monitor_": monitor})


def _student_net(student: Student, module: DistributionStack, rows: object, lasso: object) -> Any:
    from ..._engine import DivergenceGuard

    return student.training.net(
        module,
        student.plan.objective(module, student.training_budget),
        student.training_budget.n_epochs,
        phase="student",
        callbacks=[("guard", DivergenceGuard())],
        flop_per_step=flop_per_step(module, rows),
        proximal=lasso,
    ).initialize()


def _finetuned(
    student: Student, fitted: Fitted, n_more: object, distillation: Any, n_steps: int
) -> Generator[Fitted, None, Fitted]:
    """Train the pruned student on the running means, if all estimates are online."""
    from ..._engine import Rows

    shown = distillation.stream.rows
    n_batches = -(-len(shown) // shown.batch_size)
    if n_more == "auto":
        n_more = -(-n_steps // (2 * n_batches))  # half of the steps before
    if "stochastic" in student.plan.estimates or not n_more:
        return fitted
    met, targets = distillation.targets.met()
    weight = None if shown.weight is None else shown.weight[:, met]
    seeds = [shown.generators[0].initial_seed() + 1]
    rows = Rows(shown.X[met], (targets.to(shown.X),), weight, shown.batch_size, seeds)
    objective = student.plan.objective(fitted.module, student.training_budget)
    return (yield from student.train(fitted.module, objective, rows, n_more))


def _due_iterations(teacher: BaseEstimator, n_rows: int) -> tuple[np.ndarray, int]:
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


def _transfer_rows(spec: FitSpec, seed: int) -> Any:
    """The transfer set D': rows whose only target is their place in it."""
    from ..._engine import Rows

    X, _, weight, *_ = training_set(spec, MemberPredictions(None, None))
    device, dtype = spec.training.device, torch.from_numpy(X[:0]).dtype
    rows, weights = (torch.as_tensor(a, dtype=dtype, device=device) for a in (X, weight))
    is_weighted = not (weight == weight[0]).all()
    maker = spec.maker
    return Rows(
        rows,
        (torch.arange(len(rows), device=device),),
        weights[None] if is_weighted else None,
        spec.settings.batch_size,
        [seed],
        None if maker is None else prepare_lacking(maker, rows, weights if is_weighted else None),
    )


def _run_chains(
    teacher: Any, spec: FitSpec, distillation: Any, seed: int, task: ObservedTask
) -> dict[str, object]:
    """Fit the teacher with the student as an observer; only the chains' last states are kept.

    Returned are attributes of the student's estimator: the teacher, if the chains have ended.
    """
    from ._loop import StudentStopped

    warn_of_refit(spec.settings.teacher)
    net, shown = distillation.student, distillation.stream.rows
    X, y, sample_weight = spec.arguments
    net.notify("on_train_begin", X=shown, y=None)
    try:
        with own_dropout(net.module_, seed), task.subtask("teacher").fitting(teacher, X, y):
            fit_ensemble(teacher, X, y, sample_weight, observer=distillation)
        check_teacher(teacher, spec)
    except KeyboardInterrupt:  # while the chains took a step
        net.interrupt()
    except StudentStopped:
        pass  # `Student.trained` raises the reason
    except Exception as error:  # of any kind: a state that does not fit fails anywhere
        if distillation.is_loading:
            raise distillation.checkpoint.misfit(error) from error
        raise
    net.notify("on_train_end", X=shown, y=None)
    return {"teacher_": teacher} if teacher.__sklearn_is_fitted__() else {}
