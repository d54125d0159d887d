# SPDX-License-Identifier: BSD-3-Clause
"""A student of Markov chains whose samples are not stored (GPED, Algorithm 1).

The chains' samples predict minibatches of the transfer set, of which running means are kept. A
student whose targets are all such means learns from the final ones when the chains have ended, by
as many steps as beside them: there its first steps would be towards means over few samples.

A student of last samples, or of means with `beside_chains`, is trained while the chains run, both
by the engine's loop. After at most a hundred minibatches, and at the end of each of the chains'
epochs, it trains for one epoch on those it has not seen yet. It has no influence on the chains, so
the result is the same as with alternating single steps.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from .._engine import Batch, Callback, CheckpointFile, Rows, StackNet, drawn_rows
from .._estimator.base import Fitted, ObservedTask, checked_training
from .._method.plan import TrainingBudget, as_tensors, build_module
from .._training.trainer import (
    draws_globally,
    flop_per_step,
    on_device,
    own_dropout,
    suited_threads,
)
from .._utils.process import working_memory
from .._utils.reporting import stage
from .._utils.warnings import warn
from ..ensembles import (
    EnsembleSpec,
    RunningRHat,
    amount_of_training,
    diagnosed_rows,
    fit_ensemble,
)
from ..pruning import ProximalStep
from ..settings import Estimate
from ..transfer import Mixup, Munge, prepare_with_missing
from ._gped import ExpectationsPlan
from ._spec import FitSpec, maker_that_changes
from ._student import Student, mirrored_samples, training_set, with_error_in
from ._teacher import (
    MemberPredictions,
    check_teacher,
    unfitted_teacher,
    warn_of_refit,
)

# See doc/design.rst.
_MANY_ROWS = 50_000  # samples above which transfer="auto" is None
_N_BUFFERED = 100  # minibatches buffered for the student, at most
_BUFFER_BYTES = 2**25  # of their rows, at most
_ITERATIONS_TOGETHER = 20  # of the chains, for an epoch of the student
_MOST_COPIES, _PREDICTED_AT_LEAST = 9, 30  # copies at most; predictions of a sample by each chain
_FEW_STEPS = 1_000  # of a student, for which a thinning above 1 leaves too few
_ROWS_FOR_ERROR = 512  # samples, at most, that measure a regressor's error in the chains' mean
_NOTED_EVERY = 100  # samples of a chain's epoch, of which one counts for R-hat and `X_monitor`


def distil_online(spec: FitSpec, task: ObservedTask, checkpoint) -> Iterator[Fitted]:
    """Run the teacher's chains and train the student; `checkpoint` gives a file or None."""
    params, plan, pruning = spec.params, spec.plan, spec.params["pruning"]
    is_numeric = plan.task.kind == "regressor"
    is_small = len(spec.X) + len(spec.X_transfer) <= _MANY_ROWS
    if spec.transfer == "auto" and plan.all_online and is_small and len(spec.recipe.row_shape) == 1:
        maker = maker_that_changes(spec, Munge(base=Mixup(), share=0.5))
        spec = replace(spec, maker=maker)
    teacher: Any = unfitted_teacher(spec, *spec.draw_seeds(1))
    checked_training(teacher)
    # The chains may burn in for long before there is anything to tell of the student.
    teacher.set_params(verbose=max(teacher.verbose, params["verbose"]))
    with checkpoint as opened:
        seed, order_seed = spec.draw_seeds(2)
        due, epoch_length = _due_iterations(teacher, len(spec.X))
        estimate = Estimate.of(params["estimate"])
        waits = plan.all_online and not estimate.beside_chains  # for the final means
        n_asked = estimate.n_asked if "online" in plan.estimates else 1
        n_predicted = len(due) * n_asked * params["batch_size"]
        rows = _transfer_rows(spec, order_seed, n_predicted if plan.all_online else None)
        device, dtype = rows.X.device, rows.X.dtype
        scaling = as_tensors(spec.scaling)
        module = build_module(plan, spec.recipe, [seed], dtype, scaling)
        if waits:
            n_epochs = -(-len(due) // -(-len(rows) // rows.batch_size))
        else:  # beside chains, with epochs of that length
            n_steps = np.bincount(due // (epoch_length * _epochs_together(epoch_length)))
            n_epochs = int((-(-n_steps // _buffer_size(rows))).sum())
        budget = TrainingBudget(n_epochs)
        student = Student(spec.training, plan, spec.recipe, budget, n_epochs, X=spec.X)
        proximal = None
        if pruning is not None:
            proximal = ProximalStep(module, pruning.strength, pruning.weighted)
        net: Any = None
        if not waits:
            net = spec.training.net(
                module,
                plan.objective(module, budget),
                n_epochs,
                phase="student",
                flop_per_step=flop_per_step(module, rows),
                proximal=proximal,
            ).initialize()
        monitor, asked = None, [] if spec.X_monitor is None else [spec.X_monitor]
        if is_numeric:  # by new samples the student's own error is known
            new, weight = mirrored_samples(spec, _ROWS_FOR_ERROR)
            asked.append(new)
        if asked:  # of which all expectations are means over the samples so far
            all_online = replace(plan, estimates=("online",) * len(plan.expectations))
            monitored = on_device(np.concatenate(asked), device=device, dtype=spec.X.dtype)
            means = Targets(all_online, len(monitored), device, math.inf)
            monitor = monitored.split(rows.batch_size), means
        distillation = OnlineDistillation(
            net,
            Stream(rows),
            Targets(plan, len(rows), device, working_memory()),
            partial(plan.members_of, module),
            due,
            epoch_length,
            n_asked,
            spec.training.n_threads,
            monitor,
            opened,
        )
        with stage("Markov chains" if waits else "Markov chains and student"):
            _run_chains(teacher, spec, distillation, seed, task)
        facts = {"teacher_": teacher} if teacher.__sklearn_is_fitted__() else {}
        student = replace(student, facts=facts)

        def trained_on_means(student: Student, module: Any, n_epochs: int, proximal: Any = None):
            """Train the student on the running means of all rows that a sample has predicted."""
            met, targets = distillation.targets.met()
            weight = None if rows.weight is None else rows.weight[:, met]
            seeds = [rows.generators[0].initial_seed() + 1]
            known = Rows(rows.X[met], (targets.to(rows.X),), weight, rows.batch_size, seeds)
            objective = plan.objective(module, budget)
            return student.train(module, objective, known, n_epochs, proximal=proximal)

        if net is not None:
            fitted = yield from student.trained(module, net)
        else:
            with stage(f"student, {n_epochs} epochs"):
                fitted = yield from trained_on_means(student, module, n_epochs, proximal)
        if pruning is not None:
            student, fitted = student.pruned(fitted, pruning.threshold)
            yield fitted
            chosen = pruning.finetune_epochs
            n_more = n_epochs if chosen == "auto" else int(chosen)
            if plan.all_online and n_more:
                module = fitted.module
                with stage("student after pruning"):
                    if pruning.restart:
                        module = build_module(plan, student.recipe, [seed], dtype, scaling)
                    fitted = yield from trained_on_means(student, module, n_more)
        if opened is not None:
            opened.remove()
    if monitor is not None:
        expected, n_monitored = monitor[1].of_rows(slice(None)).cpu(), sum(map(len, asked))
        if is_numeric:
            n_monitored -= len(new)
            yield (fitted := with_error_in(fitted, new, expected[n_monitored:], weight))
        if n_monitored:
            yield plan.monitored(fitted, expected[:n_monitored])


def _due_iterations(teacher: BaseEstimator, n_rows: int) -> tuple[np.ndarray, int]:
    """Iterations of the chains whose samples predict, and length of an epoch."""
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
    if len(due) < _FEW_STEPS and every > 1:
        warn(
            f"The student takes a step for every {every}-th iteration after burn-in, {len(due)} in "
            f"all: it may learn little. Lower teacher__inference__thinning={inference.thinning!r}, "
            "or raise teacher__max_epochs."
        )
    return due, epoch_length


def _transfer_rows(spec: FitSpec, seed: int, n_predicted: int | None) -> Rows:
    """The transfer set D': rows whose only target is their place in it.

    With a running mean for each row, generated samples are a part of it, as many as `n_predicted`
    predictions suffice for; else, with None, they are new ones in each minibatch.
    """
    X, _, weight, *_ = training_set(spec, MemberPredictions(None, None))
    device, dtype = spec.training.device, torch.from_numpy(X[:0]).dtype
    rows, weights = (torch.as_tensor(a, dtype=dtype, device=device) for a in (X, weight))
    is_weighted = not (weight == weight[0]).all()
    draw = None
    if spec.maker is not None:
        draw = prepare_with_missing(spec.maker, rows, weights if is_weighted else None)
    if draw is not None and n_predicted is not None:
        n_copies = n_predicted // (_PREDICTED_AT_LEAST * len(rows)) - 1
        n_copies = min(max(n_copies, 1), _MOST_COPIES)
        drawn = [drawn_rows(rows, draw, seed + 1 + number) for number in range(n_copies)]
        kept = [] if spec.transfer_only else [rows]
        rows, draw = torch.cat([*kept, *drawn]), None
        weights = weights.repeat(len(kept) + n_copies)
    return Rows(
        rows,
        (torch.arange(len(rows), device=device),),
        weights[None] if is_weighted else None,
        spec.params["batch_size"],
        [seed],
        draw,
    )


def _epochs_together(epoch_length: int) -> int:
    """Return after how many epochs of the chains, of that length, the student is trained."""
    return max(1, _ITERATIONS_TOGETHER // epoch_length)


def _buffer_size(rows: Rows) -> int:
    """Return how many minibatches of these rows are buffered at most."""
    return max(1, min(_N_BUFFERED, _BUFFER_BYTES // (rows.batch_size * rows.X[:1].nbytes)))


def _run_chains(
    teacher: Any, spec: FitSpec, distillation: OnlineDistillation, seed: int, task: ObservedTask
) -> None:
    """Fit the teacher with the student as an observer; only the chains' last states are kept."""
    warn_of_refit(spec.teacher)
    net, shown = distillation.student, distillation.stream.rows
    X, y, sample_weight = spec.arguments
    if net is not None:
        net.notify("on_train_begin", X=shown, y=None)
    dropout = nullcontext() if net is None else own_dropout(net.module_, seed)
    try:
        with dropout, task.subtask("teacher").fitting(teacher, X, y):
            fit_ensemble(teacher, X, y, sample_weight, observer=distillation)
        check_teacher(teacher, spec)
    except KeyboardInterrupt:  # while the chains took a step
        if net is None:
            raise
        net.interrupt()
    except StudentStopped:
        pass  # `Student.trained` raises the reason
    except Exception as error:  # of any kind: a state that does not fit fails anywhere
        if distillation.is_loading and distillation.checkpoint is not None:
            raise distillation.checkpoint.misfit(error) from error
        raise
    if net is not None:
        net.notify("on_train_end", X=shown, y=None)


class StudentStopped(Exception):
    """The student has diverged, or Ctrl-C was pressed while it was trained."""


@dataclass(eq=False, repr=False)
class OnlineDistillation(Callback):
    """Callback of the net that runs the chains, which updates means and trains the student."""

    student: StackNet | None  # initialised; None if it waits
    stream: Stream  # of the transfer set D', whose only target is the place of each row in it
    targets: Targets
    members_of: Callable[[Any, Tensor], Any]  # of the chains' module and its outputs (S, m, p)
    due: np.ndarray  # iterations of the chains, from 0, whose samples predict
    epoch_length: int  # iterations of an epoch of the chains
    n_asked: int  # minibatches that the chains predict for each step of the student
    n_threads: int | str  # of torch for the student, see `suited_threads`
    # Rows of `X_monitor`, and those for the student's error, in chunks, and what the teacher
    # expects there so far.
    monitor: tuple[Sequence[Tensor], Targets] | None = None
    checkpoint: CheckpointFile | None = None  # of the state of both nets

    def __post_init__(self) -> None:
        self.is_loading = False  # whether a state was read that has not been trained on yet

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.chain_rows = X
        self.diagnosed = net.module_.encode(diagnosed_rows(X.X)).unsqueeze(0)
        self.is_due = frozenset(self.due.tolist())
        # The last iteration of each of the chains' epochs that is due, and some before it.
        epoch = self.due // self.epoch_length
        is_last = np.append(np.diff(epoch) > 0, True)
        number_in_epoch = np.arange(1, len(epoch) + 1) - np.searchsorted(epoch, epoch)
        noted = self.due[is_last | (number_in_epoch % _NOTED_EVERY == 0)]
        self.is_noted = frozenset(noted.tolist())
        self.r_hat = RunningRHat(len(noted))  # which the fit of the chains reads
        self.buffer = Buffer()
        saved = None if self.checkpoint is None else self.checkpoint.read()
        if saved is not None:
            self.is_loading = True
            net.go_on_from(saved["chains"])
            for name, part in self._stateful().items():
                part.load_state(saved[name])
            if self._draws(net):
                torch.set_rng_state(saved["random"])

    def after_step(self, net: StackNet, iteration: int) -> None:
        """Predict a minibatch by the chains' samples if they are due, and train the student."""
        if iteration in self.is_due:
            self._predict_next_batch(net)
        if iteration in self.is_noted:
            self._note(net)
        if len(self.buffer.batches) >= _buffer_size(self.stream.rows):
            self._train_student()

    def _predict_next_batch(self, net: StackNet) -> None:
        """Predict the next minibatches of D' and update their running means (lines 7 to 11)."""
        for k, (X, ((index,), weight)) in enumerate(self.stream.take(self.n_asked)):
            outputs = net.steps_.outputs(net.module_.encode(X))
            if not outputs.isfinite().all():
                return  # a chain has diverged; its guard ends training after the epoch
            targets = self.targets.update(self.members_of(net.module_, outputs), index.squeeze(0))
            if k == 0 and self.student is not None:
                # Copies, as the next minibatch overwrites inputs and weight.
                weight = None if weight is None else weight.clone()
                inputs = self.student.module_.encode(X).clone()
                self.buffer.batches.append((inputs, ((targets.unsqueeze(0),), weight)))

    def _note(self, net: StackNet) -> None:
        """Add what the chains' last samples predict for X to R-hat, and for `X_monitor`."""

        def predict(inputs: Tensor) -> Any:
            return self.members_of(net.module_, net.steps_.outputs(inputs))

        members = predict(self.diagnosed)  # probabilities, or means and variances: (S, n, k)
        members = members if isinstance(members, Tensor) else torch.cat(members, dim=-1)
        self.r_hat.update(members.cpu().numpy())
        if self.monitor is not None:
            chunks, targets = self.monitor
            start = 0
            for rows in chunks:
                index = torch.arange(start, start + len(rows), device=rows.device)
                targets.update(predict(net.module_.encode(rows.unsqueeze(0))), index)
                start += len(rows)

    def _train_student(self) -> None:
        """Train the student on the minibatches in the buffer (line 12)."""
        net: Any = self.student
        with suited_threads(net.flop_per_step, self.n_threads):
            net.fit_loop(self.buffer, epochs=1)
        self.buffer.batches.clear()
        if net.interrupted_ or net.guard.diverged_.any():
            raise StudentStopped  # no KeyboardInterrupt, which would end the chains quietly

    def on_epoch_end(self, net, **kwargs):
        is_last = len(net.history) == net.max_epochs  # then the chains' last states are kept
        if len(net.history) % _epochs_together(self.epoch_length) and not is_last:
            return
        if self.buffer.batches:
            self._train_student()
        self.is_loading = False
        if self.checkpoint is not None and self.checkpoint.is_due() and not is_last:
            self.checkpoint.write(self._state(net))

    def _stateful(self) -> dict[str, Any]:
        """Parts whose state is saved between two epochs of the chains, beside that of their net."""
        parts = {
            "chain_rows": self.chain_rows,
            "student": self.student,
            "stream": self.stream,
            "targets": self.targets,
            "r_hat": self.r_hat,
            "monitor": None if self.monitor is None else self.monitor[1],
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _state(self, net: StackNet) -> dict[str, object]:
        states = {name: part.state() for name, part in self._stateful().items()}
        random = torch.get_rng_state() if self._draws(net) else None
        return {"chains": net.state(), **states, "random": random}

    def _draws(self, net: StackNet) -> bool:
        """Whether a net draws from torch's global generator, which has a seed then."""
        student = self.student
        learns_so = student is not None and draws_globally(student.module_)
        return draws_globally(net.module_) or learns_so


class Stream:
    """Minibatches of rows without end, pass after pass."""

    def __init__(self, rows: Rows):
        self.rows = rows
        self.n_batches = -(-len(rows) // rows.batch_size)
        self._begin_pass()

    def _begin_pass(self) -> None:
        self.at_begin = self.rows.state()
        self.n_taken = 0
        self.batches: Iterator[Batch] = iter(self.rows)

    def __next__(self) -> Batch:
        batch = next(self.batches, None)
        if batch is None:
            self._begin_pass()
            batch = next(self.batches)
        self.n_taken += 1
        return batch

    def take(self, n: int) -> Iterator[Batch]:
        """Yield the next `n` minibatches, but fewer at the end of a pass: no row comes twice."""
        yield next(self)
        for _ in range(min(n - 1, self.n_batches - self.n_taken)):
            yield next(self)

    def state(self) -> dict[str, object]:
        return {"at_begin": self.at_begin, "n_taken": self.n_taken}

    def load_state(self, state: dict[str, Any]) -> None:
        self.rows.load_state(state["at_begin"])
        self._begin_pass()
        for _ in range(state["n_taken"]):
            next(self)


class Buffer:
    """Minibatches that the student has not seen yet; iterating is one epoch of its training."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def __len__(self) -> int:
        return sum(X.shape[1] for X, _ in self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


class RunningMean:
    """Mean over all samples so far of the values of each row: U_o, Eq 10.

    It keeps sums in float32 and counts, ``4 (n_values + 1)`` bytes for each row; sums that would
    take more than `limit` bytes are in a temporary file that is mapped into memory. `variances`
    are pairs of columns, of values and of their variances over the samples, which are updated as in
    Chan, Golub and LeVeque (1979), numerically stable. `several` are columns whose means are
    unknown before a second sample.
    """

    def __init__(
        self,
        n_rows: int,
        n_values: int,
        device: torch.device,
        limit: float,
        variances: Sequence[tuple[slice, slice]] = (),
        several: Sequence[slice] = (),
    ):
        shape = n_rows, n_values
        if 4 * n_rows * n_values > limit:
            with tempfile.TemporaryFile() as file:  # on the disk as long as it is mapped
                self.sums = torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape))
        else:
            self.sums = torch.zeros(shape, device=device)
        self.counts = torch.zeros(n_rows, 1, device=self.sums.device)
        self.variances = variances
        self.several = several

    def update(self, index: Tensor, values: Tensor, n_samples: int = 1) -> Tensor:
        """Add means over `n_samples` of some rows, none twice, and return their means."""
        index = index.to(self.sums.device)
        new = values.to(self.sums)
        sums, before = self.sums.index_select(0, index), self.counts.index_select(0, index)
        counts = before + n_samples
        for mean, variance in self.variances:
            step = new[:, mean] - sums[:, mean] / before.clamp(min=1)
            sums[:, variance] += step.square() * (before * n_samples / counts)
        sums.add_(new, alpha=n_samples)
        self.sums.index_copy_(0, index, sums)
        self.counts.index_copy_(0, index, counts)
        return self._means(sums, counts).to(values)

    def means(self) -> Tensor:
        """Return the means of all rows, of shape (n_rows, n_values), NaN for those without any."""
        return self._means(self.sums, self.counts)

    def _means(self, sums: Tensor, counts: Tensor) -> Tensor:
        means = sums / counts  # Eq 10
        for columns in self.several:
            means[:, columns].masked_fill_(counts < 2, torch.nan)
        return means

    def state(self) -> dict[str, Tensor]:
        """Return the sums and counts, not copied."""
        return {"sums": self.sums, "counts": self.counts}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.sums.copy_(state["sums"])
        self.counts.copy_(state["counts"])


class Targets:
    """Targets of a student for rows of the transfer set, given the chains' last samples.

    "online" estimates are U_o, the mean over all samples so far (Eq 10), and "stochastic" ones U_s,
    the last (Eq 9). `limit` is the number of bytes that U_o may take in memory.
    """

    def __init__(self, plan: ExpectationsPlan, n_rows: int, device: torch.device, limit: float):
        self.plan = plan
        is_online = [estimate == "online" for estimate in plan.estimates]
        columns = torch.tensor(is_online).repeat_interleave(torch.tensor(plan.n_values))
        self.online = columns.nonzero().squeeze(1).to(device)
        self.running = None
        if any(is_online):
            variances, several, start = [], [], 0
            pairs = zip(plan.expectations, plan.n_values, strict=True)
            for expectation, width in compress(pairs, is_online):
                stop, middle = start + width, start + width // 2
                if expectation.is_variance:
                    variances.append((slice(start, middle), slice(middle, stop)))
                if expectation.needs_several:
                    several.append(slice(start, stop))
                start = stop
            self.running = RunningMean(n_rows, start, device, limit, variances, several)

    def update(self, members: object, index: Tensor) -> Tensor:
        """Return targets (m, n_outputs) for rows at `index`, which the last samples predict so."""
        values = [expectation.of_members(members) for expectation in self.plan.expectations]
        mean, n_samples = self.plan.pooled(values), len(values[0])  # U_s, Eq 9
        if self.running is not None and self.plan.all_online:
            mean = self.running.update(index, mean, n_samples)
        elif self.running is not None:
            mean[:, self.online] = self.running.update(index, mean[:, self.online], n_samples)
        return self.plan.targets_of(mean)

    def of_rows(self, index: Tensor | slice) -> Tensor:
        """Targets of rows by the means so far, if all estimates are online; NaN without a mean."""
        assert self.running is not None
        return self.plan.targets_of(self.running.means()[index])

    def met(self) -> tuple[Tensor, Tensor]:
        """Rows (m,) that a sample has predicted, and their targets, if all estimates are online."""
        assert self.running is not None
        index = self.running.counts.squeeze(1).nonzero().squeeze(1)
        return index, self.of_rows(index)

    def state(self) -> dict[str, Tensor]:
        return {} if self.running is None else self.running.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        if self.running is not None:
            self.running.load_state(state)
