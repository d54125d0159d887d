# SPDX-License-Identifier: BSD-3-Clause
"""The one training loop: a stack of networks inside one skorch net.

skorch gives the shell (history, callbacks, schedulers, checkpoints, optimiser settings); inside an
epoch the net runs a loop of its own that slices tensors, unless a callback listens to batches.
The loss is the sum over members of each member's mean over rows, so that members do not influence
each other and training a stack equals training its members one by one.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, EpochTimer, LRScheduler, PrintLog
from torch import Tensor

from ._closed_form import ClosedForm
from ._flat import FlatForm
from ._flat_update import FlatUpdate
from ._memory import rows_in_memory
from ._process import is_forked, torch_threads
from ._traced import TracedForm
from ._warnings import warn
from .modules import StackedModule

# Rows are gathered for many batches at a time, up to about this many bytes: fewer calls, and the
# copy still fits the cache.
_GATHER_BYTES = 2**22

# Rows are drawn in the places of so many bytes of them at a time: a teacher had better be asked
# about many, and what is drawn must not depend on the memory for its answers.
_DRAW_BYTES = 2**26

# A step of less work is small: a second thread would cost more than it brings, and most of its time
# is not arithmetic but what leads there, so that recording it pays.
_FLOP_OF_SMALL_STEP = 15e6

# How far a member's loss may be above that of a constant prediction, in units of 1 + |the latter|:
# beyond the first it is worse than that, beyond the second it has exploded.
_WORSE = 0.5
_EXPLOSION = 1e3

# For so many epochs in a row a member may be exploded without a new lowest loss.
_EPOCHS_TO_RECOVER = 10

# Ways to compute a training step on flat buffers, the fastest first.
_NAMES: dict[type[FlatForm], str] = {ClosedForm: "closed_form", TracedForm: "traced"}

Batch = tuple[Tensor, tuple[tuple[Tensor, ...], Tensor | None]]


class Rows(torch.utils.data.Dataset):
    """Rows in memory, dealt to the members of a stack in minibatches.

    Iterating is one epoch. Every member sees the rows in an order of its own; when they all fit
    one batch, the members share them in the order given.

    Parameters
    ----------
    X : Tensor of shape (n, ...)
        Inputs.
    targets : tuple of Tensor of shape (n, ...)
        What the objective compares the outputs with.
    weight : Tensor of shape (S, n) or (1, n), default=None
        Weight of each row for each member (or all); used relative to its mean over rows.
    batch_size : int, default=None
        Rows of a minibatch; None is all of them.
    seeds : sequence of int, default=()
        One seed for each member, for the order of its rows; without seeds rows are not shuffled.
    """

    def __init__(
        self,
        X: Tensor,
        targets: tuple[Tensor, ...],
        weight: Tensor | None = None,
        batch_size: int | None = None,
        seeds: Sequence[int] = (),
    ):
        self.X = X
        self.targets = targets
        self.weight = None if weight is None else weight / weight.mean(-1, keepdim=True)
        self.batch_size = int(min(batch_size or len(X), len(X)))
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._order = torch.empty(len(seeds), len(X), dtype=torch.int32)

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], tuple(target[i] for target in self.targets)

    def state(self) -> list[Tensor]:
        """Return what the order of the rows in the next epoch is drawn from."""
        return [generator.get_state() for generator in self.generators]

    def load_state(self, state: list[Tensor]) -> None:
        """Deal the rows in the order in which they were dealt after :meth:`state`."""
        for generator, value in zip(self.generators, state, strict=True):
            generator.set_state(value)

    def __iter__(self) -> Iterator[Batch]:
        n, size = len(self), self.batch_size
        if size == n or not self.generators:
            yield from self._batches_in_order()
            return
        order = self._shuffled()
        n_full = n // size
        step = max(1, self.gather_limit() // (size * len(order)))
        for start in range(0, n_full, step):
            stop = min(start + step, n_full)
            # (S, k * size) -> (k, S, size): one batch after the other, each contiguous.
            index = order[:, start * size : stop * size].unflatten(1, (stop - start, size))
            yield from self.deal(index.transpose(0, 1).contiguous())
        if n % size:
            yield self.take(order[:, n_full * size :])

    def _batches_in_order(self) -> Iterator[Batch]:
        """Batches that all members share."""
        for index in torch.arange(len(self), device=self.X.device).split(self.batch_size):
            yield self.take(index.unsqueeze(0))

    def _shuffled(self) -> Tensor:
        """Order of the rows for every member in this epoch, of shape (S, n)."""
        for generator, row in zip(self.generators, self._order, strict=True):
            torch.randperm(len(self), generator=generator, dtype=row.dtype, out=row)
        return self._order.to(self.X.device)

    def gather_limit(self) -> int:
        """Largest number of rows to take at a time."""
        return _GATHER_BYTES // sum(t[:1].nbytes for t in (self.X, *self.targets))

    def take(self, index: Tensor) -> Batch:
        """Inputs, targets and weights of the rows at `index`, of shape (..., S or 1, size)."""
        targets = tuple(_rows_at(target, index) for target in self.targets)
        return _rows_at(self.X, index), (targets, self._weight_at(index))

    def deal(self, index: Tensor) -> Iterator[Batch]:
        """Batches of the rows at `index`, of shape (k, S or 1, size), one after the other."""
        yield from _one_by_one(self.take(index))

    def _weight_at(self, index: Tensor) -> Tensor | None:
        if self.weight is None:
            return None
        n_members, n = self.weight.shape
        first = torch.arange(0, n_members * n, n, device=index.device)
        return _rows_at(self.weight.reshape(-1), index + first.unsqueeze(1))


class TaughtRows(Rows):
    """Rows whose first target is what a teacher says about them.

    About rows that stay as they are the teacher is asked once, if its answers fit scikit-learn's
    ``working_memory``; else it is asked as the rows are dealt, as many at a time as fit.

    Parameters
    ----------
    X, targets, weight, batch_size, seeds
        As in :class:`Rows`; the answers are put before `targets`.
    teacher : callable or None
        Takes an array of shape (n, ...), gives one of shape (n, ...).
    answers : Tensor of shape (n_kept, ...), default=None
        What is to be learnt about the rows that stay, so that nobody is asked about them.
    draw : callable, default=None
        What a :class:`skdistill.transfer.TransferMaker` has prepared: draws new rows in the place
        of those that are dealt. None leaves them as they are.
    n_kept : int, default=0
        So many rows, the first, stay as they are nevertheless.
    """

    def __init__(
        self,
        X,
        targets,
        weight,
        batch_size,
        seeds,
        *,
        teacher,
        answers: Tensor | None = None,
        draw: Callable[..., Tensor] | None = None,
        n_kept: int = 0,
    ):
        super().__init__(X, targets, weight, batch_size, seeds)
        self.teacher = teacher
        self.draw = draw
        self.n_kept = len(X) if draw is None else n_kept
        self.draw_generator = torch.Generator(X.device).manual_seed(seeds[0] + 1)
        self.answers = answers
        self.limit = self._affordable_rows()
        if answers is None and 0 < self.n_kept <= self.limit:
            self.answers = self._ask(X[: self.n_kept])

    def _affordable_rows(self) -> int:
        answer = self._ask(self.X[:1]) if self.answers is None else self.answers[:1]
        return rows_in_memory(answer)

    def _ask(self, rows: Tensor) -> Tensor:
        return torch.as_tensor(self.teacher(rows.cpu().numpy())).to(rows)

    def gather_limit(self) -> int:
        if self.draw is not None:  # not by memory: what is drawn depends on it
            return _DRAW_BYTES // self.X[:1].nbytes
        return self.limit if self.answers is None else super().gather_limit()

    def take(self, index: Tensor) -> Batch:
        return self._answered(index, self._drawn(index))

    def deal(self, index: Tensor) -> Iterator[Batch]:
        size = max(1, self.limit // index[0].numel())
        for part, X in zip(index.split(size), self._drawn(index).split(size), strict=True):
            yield from _one_by_one(self._answered(part, X))

    def _drawn(self, index: Tensor) -> Tensor:
        """Rows to ask about, (..., *row): those at `index`, or new ones in their places."""
        X = _rows_at(self.X, index)
        if self.draw is None:
            return X
        drawn = self.draw(X, index, self.draw_generator)
        is_kept = (index < self.n_kept).view(*index.shape, *[1] * (X.ndim - index.ndim))
        return torch.where(is_kept, X, drawn)

    def _answered(self, index: Tensor, X: Tensor) -> Batch:
        """Batch of the rows X in the places of those at `index`."""
        targets = (_rows_at(target, index) for target in self.targets)
        return X, ((self._answers_to(X, index), *targets), self._weight_at(index))

    def _answers_to(self, X: Tensor, index: Tensor) -> Tensor:
        """Answers to rows (..., *row) of which those that are kept may be known already."""
        if self.answers is None:
            return self._ask(X.flatten(0, index.ndim - 1)).unflatten(0, index.shape)
        is_kept = index < self.n_kept
        if self.draw is None or is_kept.all():
            return _rows_at(self.answers, index)
        answers = self.answers.new_empty(*index.shape, *self.answers.shape[1:])
        answers[is_kept] = self.answers[index[is_kept]]
        answers[~is_kept] = self._ask(X[~is_kept])
        return answers


def _one_by_one(batches: Batch) -> Iterator[Batch]:
    """Batches of tensors whose first axis they are along."""
    X, (targets, weight) = batches
    weights = itertools.repeat(None) if weight is None else weight.unbind()
    dealt = zip(*(target.unbind() for target in targets), strict=True)
    yield from zip(X.unbind(), zip(dealt, weights, strict=False), strict=True)


def _rows_at(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``, in the form that torch gathers fastest."""
    return values.index_select(0, index.reshape(-1)).view(*index.shape, *values.shape[1:])


class StopTraining(KeyboardInterrupt):
    """A callback asks to end training."""


class StackNet(NeuralNet):
    """skorch net around a stack of networks.

    ``fit(train, valid)`` takes :class:`Rows`. Callbacks, history and optimiser behave as in every
    skorch net; ``train_loss`` and ``valid_loss`` are means over members, and
    ``member_losses_["train"]`` and ``["valid"]`` hold the last epoch's loss of each member.
    ``constant_losses_`` has what outputs of zero would have lost in the first epoch.

    Parameters
    ----------
    module : nn.Module
        The stack, initialised.
    criterion : Objective
        What it minimises.
    weight_decay : list of (nn.Parameter, float), default=()
        L2 penalties ``decay / 2 * sum of squares``, part of the loss whatever the optimizer.
    clip_norm : float, default=None
        Largest norm of each member's gradient.
    step : {"eager", "compiled", "captured"}, default="eager"
        How a training step runs: as it is, through ``torch.compile``, or as a CUDA graph.
    flop_per_step : float, default=0.0
        Arithmetic of a training step.
    after_step : callable, default=None
        Called with the net after each training step.
    **kwargs
        See ``skorch.NeuralNet``.
    """

    def __init__(
        self,
        module,
        criterion,
        *,
        weight_decay=(),
        clip_norm=None,
        step="eager",
        flop_per_step=0.0,
        after_step=None,
        **kwargs,
    ):
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.step = step
        self.flop_per_step = flop_per_step
        self.after_step = after_step
        # What skorch's scoring callbacks would cache is one tensor for each batch, not our targets.
        super().__init__(module, criterion, train_split=None, use_caching=False, **kwargs)

    @property
    def _default_callbacks(self):
        return [("epoch_timer", EpochTimer()), ("print_log", QuietPrintLog())]

    @property
    def n_members(self) -> int:
        return next(self.module_.parameters()).shape[0]

    # What skorch asks for -------------------------------------------------------------------

    def get_split_datasets(self, X, y=None, **fit_params):
        return X, y

    def get_iterator(self, dataset, training=False):
        return dataset

    def infer(self, x, **fit_params):
        return self.module_(x)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Sum over members of the weighted mean over rows; each row's is kept in passing."""
        targets, weight = y_true
        losses = _weighted(self.criterion_(y_pred, targets), weight)  # (S, n)
        self.row_losses_ = losses.detach()
        # Weights have mean one over all rows: this is sum w l / sum w for a full batch, and an
        # unbiased estimate of it for a minibatch.
        return losses.mean(-1).sum()

    def _loss(self, X: Tensor, y) -> tuple[Tensor, Tensor]:
        """Outputs and the quantity that a training step differentiates."""
        outputs = self.infer(X)
        loss = self.get_loss(outputs, y, training=True)
        penalty = self.criterion_.penalty(self.module_)
        return outputs, loss if penalty is None else loss + penalty.sum()

    def train_step_single(self, batch, **fit_params):
        if not self.module_.training:
            self._set_training(True)
        if self.uses_form_:
            X, (targets, weight) = batch
            # Not through skorch's __setattr__, which takes as long as a layer of a small network.
            outputs, self.__dict__["row_losses_"] = self.form_(X, targets, weight)
            self.__dict__["output_shape_"] = outputs.shape
            if self.clip_norm is not None:
                gradients = [self.form_.d_flat] if self.n_members == 1 else self.form_.gradients
                _clip_each_member(gradients, self.n_members, self.clip_norm)
            return {"y_pred": outputs}
        outputs, loss = self.loss_(*batch)
        self.__dict__["output_shape_"] = outputs.shape
        loss.backward()
        for weight, decay in self.weight_decay:
            if weight.grad is not None:  # frozen by a callback
                weight.grad.add_(weight.detach(), alpha=decay)
        if self.clip_norm is not None:
            clip_each_member(self.module_.parameters(), self.n_members, self.clip_norm)
        return {"loss": loss, "y_pred": outputs}

    def quiet_step(self, batch: Batch) -> None:
        """A training step without a word to callbacks."""
        if self.uses_form_:
            step = self.update_
        else:
            step = self.optimizer_.step
            for group in self.optimizer_.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # zero_grad() does this too, within a wrapper of 16 us
        self.train_step_single(batch)
        step()

    @torch.no_grad()
    def outputs_now(self, X: Tensor) -> Tensor:
        """Outputs for rows (S or 1, n, ...) with the weights as they are now, as in prediction.

        Valid until the next step, or call of this.
        """
        if self.uses_form_:
            return self.form_.outputs(X)
        self._set_training(False)  # the next step sets it again
        return self.module_(X)

    def weights_now(self) -> dict[str, Tensor]:
        """Parameters of the module by name, wherever they are at the moment; not copied."""
        weights: dict[str, Tensor] = dict(self.module_.named_parameters())
        if self.uses_form_:
            at = dict(zip(self.form_.parameters, self.form_.values, strict=True))
            weights = {name: at[parameter] for name, parameter in weights.items()}
        return weights

    # Going on where a fit was left ----------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that training goes on from, between two epochs: tensors and plain Python.

        The tensors are those of the net, not copied. The order of the rows is not part of it, see
        :meth:`Rows.state`; neither is what callbacks remember that have no ``state_dict``.
        """
        return {
            "module": self.module_.state_dict(),
            "optimizer": self.optimizer_.state_dict(),
            "callbacks": {name: part.state_dict() for name, part in self._parts_with_state()},
            "history": list(self.history),
            "lowest_losses": dict(self.lowest_losses_),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave, after callbacks have heard that training begins."""
        self.module_.load_state_dict(state["module"])
        for name, part in self._parts_with_state():
            part.load_state_dict(state["callbacks"][name])
        self.optimizer_.load_state_dict(state["optimizer"])  # with the learning rate, hence last
        self.history.extend(state["history"])
        self.lowest_losses_.update(state["lowest_losses"])

    def _parts_with_state(self) -> list[tuple[str, Any]]:
        """Callbacks that can tell and take their state; of a schedule, what it schedules by."""
        parts = [(name, getattr(cb, "lr_scheduler_", cb)) for name, cb in self.callbacks_]
        return [(name, part) for name, part in parts if hasattr(part, "load_state_dict")]

    # How it is computed ---------------------------------------------------------------------

    @property
    def engine_(self) -> str:
        """What computed the last epoch's steps, or will compute the first's.

        "closed_form": forward and backward are written out; or autograd differentiates the stack,
        recorded once and replayed ("traced"), or at every step: a stack made by hand ("stacked"),
        one made by ``torch.vmap`` ("vmap"), or one that runs its members one by one ("loop").
        """
        last = [row["engine"] for row in self.history if "engine" in row][-1:]
        return last[0] if last else self._engine_now()

    def _engine_now(self) -> str:
        form_class = self._form_class() if self._trains_all_layers() else None
        if form_class is not None:
            return _NAMES[form_class]
        stacks = [part for part in self.module_.modules() if isinstance(part, StackedModule)]
        if any(part.loops_ for part in stacks):
            return "loop"
        return "vmap" if stacks else "stacked"

    def _form_class(self) -> type[FlatForm] | None:
        """How to compute steps on flat buffers; None where autograd does it on the module."""
        is_plain = self.step == "eager" and torch.device(self.device).type == "cpu"
        if not is_plain or any(listens_to_batches(callback) for _, callback in self.callbacks_):
            return None
        forms = _NAMES if self.flop_per_step < _FLOP_OF_SMALL_STEP else [ClosedForm]
        return next((form for form in forms if form.supports(self.module_)), None)

    def _trains_all_layers(self) -> bool:
        form = getattr(self, "form_", None)
        parameters = self.module_.parameters() if form is None else form.parameters
        return all(parameter.requires_grad for parameter in parameters)

    # The epoch ------------------------------------------------------------------------------

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.member_losses_: dict[str, Tensor] = {}
        self.lowest_losses_: dict[str, float] = {}
        self.interrupted_ = False
        self.ctrl_c_ = False
        self.state_to_load_: Any = None  # a callback may set what to go on from
        self.listens_to_batches_ = any(listens_to_batches(cb) for _, cb in self.callbacks_)
        self.loss_ = torch.compile(self._loss) if self.step == "compiled" else self._loss
        self.form_: Any = None
        self.uses_form_ = False
        form_class = self._form_class()
        if form_class is not None:
            self.form_ = form_class(self.module_, self.criterion_, self.weight_decay)
            self.form_.n_epochs = self.max_epochs
            self.update_ = FlatUpdate(self.optimizer_, self.form_)
        steps: dict[str, Any] = {"compiled": CompiledStep, "captured": CapturedStep}
        self.quiet_step_ = steps[self.step](self) if self.step in steps else self.quiet_step

    def on_epoch_begin(self, net, **kwargs):
        super().on_epoch_begin(net, **kwargs)
        self.criterion_.begin_epoch(self.criterion_.first_epoch + len(self.history) - 1)

    def notify(self, method_name, **cb_kwargs):
        # skorch's callbacks end training by raising KeyboardInterrupt, which must not be taken for
        # the user's Ctrl-C. Whoever asks to stop, all others hear of the epoch's end too.
        stop = None
        getattr(self, method_name)(self, **cb_kwargs)
        for _, callback in self.callbacks_:
            try:
                getattr(callback, method_name)(self, **cb_kwargs)
            except KeyboardInterrupt as error:
                if self.ctrl_c_:
                    raise
                stop = error
        if stop is not None:
            raise StopTraining from stop

    def initialize_callbacks(self):
        super().initialize_callbacks()
        known = {name for name, _ in self.callbacks_}
        given = {name for name, value in vars(self).items() if value is not None}  # None: left out
        unknown = sorted(
            name
            for name in given
            if name.startswith("callbacks__") and name.split("__")[1] not in known
        )
        if unknown:
            raise ValueError(f"{unknown} belong to no callback; there are {sorted(known)}.")
        return self

    def fit_loop(self, X, y=None, epochs=None, **kwargs):
        if self.state_to_load_ is not None:
            self.load_state(self.state_to_load_)
            self.state_to_load_ = None
        if epochs is None:
            epochs = self.max_epochs - len(self.history)
        try:
            with noting_ctrl_c(self):
                super().fit_loop(X, y, epochs, **kwargs)
        except StopTraining:
            pass
        except KeyboardInterrupt:
            self.interrupted_ = True  # the estimator raises it again when its state is in order
        finally:
            self._set_training(False)
        return self

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        """Run one epoch of training or validation and record its loss."""
        if iterator is None:
            return
        if self.listens_to_batches_:
            super().run_single_epoch(self._tallied(iterator, training), training, prefix, step_fn)
        else:
            self.history.new_batch()  # Checkpoint names its files by the epoch's last batch
            with self._on_flat_buffers() if training else contextlib.nullcontext():
                step = self.quiet_step_ if training else step_fn
                for batch in self._tallied(iterator, training):
                    step(batch)
        losses = torch.stack([s.sum(-1) for s in self._sums.values()]).sum(0) / len(iterator)
        self.member_losses_[prefix] = losses
        self._record(f"{prefix}_loss", losses.nanmean().item())  # members that have not diverged
        if training:
            self.history.record("engine", self._engine_now())
        if isinstance(self.quiet_step_, CompiledStep) and len(self.history) == 1:
            self.history.record("compile_seconds", self.quiet_step_.seconds)

    @contextlib.contextmanager
    def _on_flat_buffers(self) -> Iterator[None]:
        """Compute on flat buffers, unless a callback has frozen a layer for this epoch."""
        if self.form_ is None or not self._trains_all_layers():
            yield
            return
        form, update = self.form_, self.update_
        form.load()
        update.begin_epoch()
        self.uses_form_ = True
        try:
            yield
        finally:
            self.uses_form_ = False
            update.end_epoch()
            form.store()

    def _tallied(self, iterator: Rows, training: bool) -> Iterator[Batch]:
        """Pass the batches on and add up the losses that each step leaves behind."""
        after_step = self.after_step if training else None
        is_first = training and len(self.history) == 1
        of_constant: list[Tensor] = []
        sums: dict[int, Tensor] = {}  # by the number of rows
        for batch in iterator:
            yield batch
            if after_step is not None:
                after_step(self)
            losses = self.row_losses_
            n_rows = losses.shape[-1]
            if n_rows in sums:
                sums[n_rows] += losses
            else:
                sums[n_rows] = losses.clone()
            if is_first:
                of_constant.append(self._losses_of_constant(batch).sum(-1))
        self._sums = sums
        if is_first:
            self.constant_losses_ = torch.stack(of_constant).sum(0) / len(iterator)

    @torch.no_grad()
    def _losses_of_constant(self, batch: Batch) -> Tensor:
        """Losses (S, n) of outputs of zero, which say the same about every row."""
        X, (targets, weight) = batch
        *lead, _, n_outputs = self.output_shape_
        zeros = X.new_zeros(*lead, X.shape[1], n_outputs, dtype=self.row_losses_.dtype)
        return _weighted(self.criterion_(zeros, targets), weight)

    def _record(self, name: str, value: float) -> None:
        self.history.record(name, value)
        is_best = value < self.lowest_losses_.get(name, math.inf)
        self.history.record(f"{name}_best", is_best)
        if is_best:
            self.lowest_losses_[name] = value


def _weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    return losses if weight is None else weight * losses


@contextlib.contextmanager
def noting_ctrl_c(net: StackNet) -> Iterator[None]:
    """Note a Ctrl-C as ``net.ctrl_c_`` before it is raised; only the main thread gets any."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def note(number, frame):
        net.ctrl_c_ = True
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def clip_each_member(parameters, n_members: int, max_norm: float) -> None:
    """Scale each member's gradient so that its norm is at most `max_norm`."""
    _clip_each_member([p.grad for p in parameters if p.grad is not None], n_members, max_norm)


def _clip_each_member(gradients: list[Tensor], n_members: int, max_norm: float) -> None:
    squares = torch.stack([g.reshape(n_members, -1).square().sum(1) for g in gradients]).sum(0)
    factors = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factors.view(-1, *[1] * (g.ndim - 1)))


class CompiledStep:
    """Training step that tells how long the first one of each shape of batch took, compiling."""

    def __init__(self, net: StackNet):
        self.net = net
        self.seen: set[torch.Size] = set()
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> None:
        start = time.perf_counter()
        self.net.quiet_step(batch)
        if batch[0].shape not in self.seen:
            self.seen.add(batch[0].shape)
            self.seconds += time.perf_counter() - start


class CapturedStep:
    """Training step replayed as a CUDA graph, one for each shape of batch.

    The first steps of each shape run as usual on a side stream, as capture asks, and train; so the
    result is that of the eager step. If capture fails, all steps are eager, with a warning.
    """

    _N_WARM_UP = 3

    def __init__(self, net: StackNet):
        self.net = net
        self.seen: dict[tuple, int] = {}
        self.graphs: dict[tuple, tuple] = {}
        self.works = True

    def __call__(self, batch: Batch) -> None:
        X, (targets, weight) = batch
        tensors = [X, *targets] + ([] if weight is None else [weight])
        shapes = tuple(t.shape for t in tensors)
        if shapes in self.graphs:
            self._replay(shapes, tensors)
            return
        self.seen[shapes] = self.seen.get(shapes, 0) + 1
        if not self.works or self.seen[shapes] <= self._N_WARM_UP:
            self._on_side_stream(batch)
            return
        try:
            self._capture(shapes, tensors, has_weight=weight is not None)
        except RuntimeError as error:
            self.works = False
            warn(
                "The training step could not be captured as a CUDA graph and runs eagerly. torch "
                f"says: {str(error).splitlines()[0]}",
            )
            self.net.quiet_step(batch)
            return
        self._replay(shapes, tensors)

    def _on_side_stream(self, batch: Batch) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.net.quiet_step(batch)
        torch.cuda.current_stream().wait_stream(side)

    def _capture(self, shapes: tuple, tensors: list[Tensor], has_weight: bool) -> None:
        static = [t.clone() for t in tensors]
        weight = static[-1] if has_weight else None
        targets = tuple(static[1:-1] if has_weight else static[1:])
        graph = torch.cuda.CUDAGraph()
        self.net.optimizer_.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.net.train_step_single((static[0], (targets, weight)))
            self.net.optimizer_.step()
        self.graphs[shapes] = graph, static, self.net.row_losses_

    def _replay(self, shapes: tuple, tensors: list[Tensor]) -> None:
        graph, static, losses = self.graphs[shapes]
        for to, value in zip(static, tensors, strict=True):
            to.copy_(value)
        graph.replay()
        self.net.row_losses_ = losses


class QuietPrintLog(PrintLog):
    """skorch's log of epochs, which does no work where it would print nothing."""

    def on_epoch_end(self, net, **kwargs):
        if net.verbose:
            super().on_epoch_end(net, **kwargs)


def listens_to_batches(callback: Callback) -> bool:
    """Tell whether a skorch callback has anything to do between the batches of an epoch."""
    if isinstance(callback, LRScheduler):
        return callback.step_every == "batch"
    hooks = ("on_batch_begin", "on_batch_end", "on_grad_computed")
    return any(getattr(type(callback), hook) is not getattr(Callback, hook) for hook in hooks)


class MemberEarlyStopping(Callback):
    """Keep each member's best weights, and end training when no member improves any more.

    A member that has stopped keeps its best weights while the others go on.

    Parameters
    ----------
    patience : int
        Epochs in a row without improvement after which a member stops.
    tol : float
        Smallest decrease of the validation loss that counts as improvement.
    """

    def __init__(self, patience: int, tol: float):
        self.patience = patience
        self.tol = tol

    def on_train_begin(self, net, **kwargs):
        self.best_loss_ = torch.full((net.n_members,), math.inf)
        self.best_epoch_ = torch.zeros(net.n_members, dtype=torch.long)
        self.stopped_ = torch.zeros(net.n_members, dtype=torch.bool)
        self.best_ = {name: value.clone() for name, value in _member_state(net).items()}

    def on_epoch_end(self, net, **kwargs):
        epoch = len(net.history)
        loss = net.member_losses_["valid"].cpu()
        improved = (loss < self.best_loss_ - self.tol) & ~self.stopped_
        self.best_loss_ = torch.where(improved, loss, self.best_loss_)
        self.best_epoch_[improved] = epoch
        for name, value in _member_state(net).items():
            where = improved.to(value.device)
            self.best_[name][where] = value[where]
        self.stopped_ |= epoch - self.best_epoch_ >= self.patience
        if self.stopped_.all():
            raise KeyboardInterrupt

    def on_train_end(self, net, **kwargs):
        net.module_.load_state_dict(self.best_, strict=False)


def _member_state(net: StackNet) -> dict[str, Tensor]:
    """Weights and running statistics; not the scale of the targets, which has no member axis."""
    state = net.module_.state_dict()
    return {name: value for name, value in state.items() if value.shape[:1] == (net.n_members,)}


class DivergenceGuard(Callback):
    r"""Find the members that have diverged, and those that are worse than a constant prediction.

    The scale is the loss c of a constant prediction, outputs of zero, for the rows of the first
    epoch: neither the inputs nor the learning rate have a part in it. A member's loss has exploded
    where it is more than 1,000 (1 + \|c\|) above c. A member has diverged

    - as soon as its loss is not finite;
    - when its loss has been exploded for ten epochs in a row without a new lowest value (a spike,
      or a bad start, may recover);
    - when training has ended, if its weights are not finite or its last loss is exploded.

    It is worse than a constant when its last loss is more than (1 + \|c\|) / 2 above c. A member's
    numbers never touch another's, so the rest of the stack trains on undisturbed.

    Parameters
    ----------
    stopping : MemberEarlyStopping, default=None
        Comes before this callback; what becomes of a member after it has stopped is no matter, and
        its last loss is that of its best epoch.
    ends_with : {torch.all, torch.any}, default=torch.all
        Whether training ends when all members have diverged, or when one has.

    Attributes
    ----------
    diverged_, worse_ : Tensor of shape (S,)
        Which members have diverged, and which others are worse than a constant; the latter is known
        when training has ended.
    """

    _STATE = ("diverged_", "constant_", "last_", "lowest_", "n_exploded_")

    def __init__(self, stopping: MemberEarlyStopping | None = None, ends_with=torch.all):
        self.stopping = stopping
        self.ends_with = ends_with

    def on_train_begin(self, net, **kwargs):
        self.diverged_ = torch.zeros(net.n_members, dtype=torch.bool)
        self.worse_ = torch.zeros_like(self.diverged_)
        self.constant_: Any = None
        self.last_ = torch.full((net.n_members,), math.inf)
        self.lowest_ = self.last_
        self.n_exploded_ = torch.zeros(net.n_members, dtype=torch.long)

    def on_epoch_end(self, net, **kwargs):
        loss = net.member_losses_["train"].cpu()
        if self.constant_ is None:
            self.constant_ = net.constant_losses_.cpu()
        is_stuck = self._is_above(_EXPLOSION, loss) & ~(loss < self.lowest_)
        self.n_exploded_ = torch.where(is_stuck, self.n_exploded_ + 1, 0)
        self.lowest_ = torch.fmin(self.lowest_, loss)
        diverged = ~loss.isfinite() | (self.n_exploded_ >= _EPOCHS_TO_RECOVER)
        is_kept = torch.ones_like(diverged)
        if self.stopping is not None:
            diverged &= ~self.stopping.stopped_
            is_kept = self.stopping.best_epoch_ == len(net.history)
        self.last_ = torch.where(is_kept, loss, self.last_)
        self.diverged_ |= diverged
        if self.ends_with(self.diverged_):
            raise KeyboardInterrupt

    def _is_above(self, factor: float, loss: Tensor) -> Tensor:
        """Whether losses are more than so many times 1 + |c| above c."""
        return loss > self.constant_ + factor * (1.0 + self.constant_.abs())

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name])

    def on_train_end(self, net, **kwargs):
        for parameter in net.module_.parameters():
            finite = parameter.detach().isfinite().reshape(net.n_members, -1).all(1)
            self.diverged_ |= ~finite.cpu()
        if self.constant_ is not None:  # else not one epoch was ended
            self.diverged_ |= self._is_above(_EXPLOSION, self.last_)
            self.worse_ = self._is_above(_WORSE, self.last_) & ~self.diverged_


class TaskPerEpoch(Callback):
    """Report every epoch to scikit-learn's callbacks as one task.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        The task whose subtasks the epochs are.
    estimator : estimator
        The estimator that is being fitted.
    """

    def __init__(self, context, estimator):
        self.context = context
        self.estimator = estimator

    def on_epoch_begin(self, net, **kwargs):
        self.task_ = self.context.subcontext(task_name="epoch")
        self.task_.call_on_fit_task_begin(estimator=self.estimator)

    def on_epoch_end(self, net, **kwargs):
        if self.task_.call_on_fit_task_end(estimator=self.estimator):
            raise KeyboardInterrupt


def cosine_schedule(max_epochs: int) -> LRScheduler:
    """Learning rate that falls from its start to zero along half a cosine over the epochs."""
    return LRScheduler("CosineAnnealingLR", T_max=max_epochs)


def optimizer_defaults(optimizer: type[torch.optim.Optimizer], lr: float, step: str) -> dict:
    """Settings that make an optimizer fast, of those that it has."""
    accepted = inspect.signature(optimizer).parameters
    if step == "captured":
        # A graph reads the learning rate anew at each replay only if it is a tensor.
        return {"capturable": True, "lr": torch.tensor(float(lr), device="cuda")}
    return {"fused": True} if "fused" in accepted else {}


@contextlib.contextmanager
def suited_threads(flop_per_step: float, n_threads: int | str = "auto") -> Iterator[None]:
    """Use `n_threads` threads; "auto" is one where a training step is too small for more.

    The caller's setting is restored. A forked child always uses one, see :mod:`._process`.
    """
    is_small = flop_per_step < _FLOP_OF_SMALL_STEP
    automatic = 1 if is_small else torch.get_num_threads()
    number = automatic if n_threads == "auto" else int(n_threads)
    if number > 1 and is_forked():
        warn(
            f"n_threads={number} has no effect in a forked process, which goes on with one "
            "thread. Start processes by 'spawn' or 'forkserver' for more."
        )
    with torch_threads(number):
        yield
