# SPDX-License-Identifier: BSD-3-Clause
"""The one training loop: a stack of networks inside one skorch net."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import EpochTimer, LRScheduler
from torch import Tensor

from .._method.plan import Objective
from .._utils.validation import did_you_mean
from ._callbacks import DivergenceGuard, EpochLog, StopTraining, TimeLimit, asks_to_stop, print_row
from ._rows import Batch
from ._steps import TrainingSteps, clip_each_member, engine_of


class StackNet(NeuralNet):
    """skorch net around a stack of networks, initialised, whose parameters have members first.

    ``fit(train, valid)`` takes :class:`Rows`. ``train_loss`` and ``valid_loss`` are means over
    members, ``member_losses_["train"]`` and ``["valid"]`` the last epoch's loss of each, and
    ``constant_losses_`` those of outputs of zero in the first epoch. `weight_decay` has L2
    penalties ``decay / 2 * sum of squares`` of parameters, pairs (nn.Parameter, float);
    `clip_norm` is the largest norm of each member's gradient. A `step` runs as it is ("eager"),
    through ``torch.compile`` ("compiled") or as a CUDA graph ("captured"). After each step are
    called `proximal`, a ProximalStep, and `after_step` with the net, whose ``state_dict()``, if it
    has one, is part of the net's state.
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
        proximal=None,
        after_step=None,
        time_limit: TimeLimit | None = None,
        guard: DivergenceGuard | None = None,
        phase="training",
        **kwargs,
    ):
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.step = step
        self.flop_per_step = flop_per_step
        self.proximal = proximal
        self.after_step = after_step
        self.time_limit = time_limit
        self.guard = guard
        self.phase = phase
        # skorch would cache one tensor of targets a batch for its scores; ours are tuples.
        super().__init__(module, criterion, train_split=None, use_caching=False, **kwargs)

    @property
    def _default_callbacks(self):
        return [("epoch_timer", EpochTimer()), ("print_log", EpochLog(sink=print_row))]

    @property
    def n_members(self) -> int:
        return len(next(self.module_.parameters()))

    @property
    def engine_(self) -> str:
        """What computed the last epoch's steps, or will compute the first's.

        "closed_form", or autograd: recorded and replayed ("traced"), or through a stack made by
        hand ("stacked"), by ``torch.vmap`` ("vmap") or by a loop over members ("loop").
        """
        last = [row["engine"] for row in self.history if "engine" in row][-1:]
        return last[0] if last else engine_of(self)

    # What skorch asks for -------------------------------------------------------------------

    def get_split_datasets(self, X, y=None, **fit_params):
        return X, y

    def get_iterator(self, dataset, training=False):
        return dataset

    def infer(self, x, **fit_params):
        return self.module_(x)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Sum over members of the weighted mean over samples."""
        return self._losses(y_pred, y_true).mean(-1).sum()

    def _losses(self, outputs: Tensor, y) -> Tensor:
        """Weighted losses of samples, (S, n), by weights of mean one over all samples."""
        targets, weight = y
        losses = self.criterion_(outputs, targets)
        return losses if weight is None else weight * losses

    def _forward(self, X: Tensor, y) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs, losses of samples, and the sum that a training step differentiates."""
        outputs = self.infer(X)
        losses = self._losses(outputs, y)
        loss = losses.mean(-1).sum()
        penalty = self.criterion_.penalty(self.module_)
        return outputs, losses.detach(), loss if penalty is None else loss + penalty.sum()

    def train_step_single(self, batch, **fit_params):
        if not self.module_.training:
            self._set_training(True)
        outputs, losses, loss = self.forward_(*batch)
        loss.backward()
        for weight, decay in self.weight_decay:
            if weight.grad is not None:  # frozen by a callback
                weight.grad.add_(weight.detach(), alpha=decay)
        if self.clip_norm is not None:
            gradients = [p.grad for p in self.module_.parameters() if p.grad is not None]
            clip_each_member(gradients, self.clip_norm)
        return {"loss": loss, "y_pred": outputs, "losses": losses}

    def validation_step(self, batch, **fit_params):
        self._set_training(False)
        X, y = batch
        with torch.no_grad():
            outputs = self.infer(X)
            losses = self._losses(outputs, y)
        return {"loss": losses.mean(-1).sum(), "y_pred": outputs, "losses": losses}

    def initialize_callbacks(self):
        super().initialize_callbacks()
        kinds = {name: type(callback) for name, callback in self.callbacks_}
        given = (name for name, value in vars(self).items() if value is not None)  # None: left out
        settings = (name for name in given if name.startswith("callbacks__"))
        unknown = sorted(name for name in settings if name.split("__")[1] not in kinds)
        if unknown:
            shown = sorted(  # all but the inner ones, which have their classes for names
                name
                for name, kind in kinds.items()
                if name != kind.__name__ or not kind.__module__.startswith("skdistill.")
            )
            hint = did_you_mean(unknown[0].split("__")[1], shown)
            raise ValueError(f"{unknown} belong to no callback; there are {shown}.{hint}")
        return self

    # Saving and restoring the state of a fit ------------------------------------------------

    def state(self) -> dict[str, object]:
        """Return what training goes on from, but the order of the samples: tensors, not copied."""
        return {
            "module": self.module_.state_dict(),
            "optimizer": self.optimizer_.state_dict(),
            "callbacks": {name: part.state_dict() for name, part in self._parts_with_state()},
            "history": list(self.history),
            "lowest_losses": dict(self.lowest_losses_),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned; call it after ``on_train_begin``."""
        self.module_.load_state_dict(state["module"])
        for name, part in self._parts_with_state():
            part.load_state_dict(state["callbacks"][name])
        self.optimizer_.load_state_dict(state["optimizer"])  # with the learning rate, hence last
        self.history.extend({**row} for row in state["history"])
        self.lowest_losses_.update(state["lowest_losses"])

    def _parts_with_state(self) -> list[tuple[str, Any]]:
        """Callbacks and hooks with a ``state_dict``; for an LRScheduler, torch's scheduler."""
        parts = [*self.callbacks_, ("after_step", self.after_step)]
        parts = [(n, p.lr_scheduler_ if isinstance(p, LRScheduler) else p) for n, p in parts]
        return [(name, part) for name, part in parts if hasattr(part, "load_state_dict")]

    # The loop -------------------------------------------------------------------------------

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.member_losses_: dict[str, Tensor] = {}
        self.lowest_losses_: dict[str, float] = {}
        self.interrupted_ = False
        self.asked_to_stop_ = False
        self.state_to_load_: Any = None
        self.forward_ = torch.compile(self._forward) if self.step == "compiled" else self._forward
        self.steps_ = TrainingSteps(self)

    def on_epoch_begin(self, net, **kwargs):
        super().on_epoch_begin(net, **kwargs)
        self.criterion_.begin_epoch(self.criterion_.first_epoch + len(self.history) - 1)

    def notify(self, method_name, **cb_kwargs):
        """Call all callbacks; only then end training, if one of them asks for it."""
        stop = None
        getattr(self, method_name)(self, **cb_kwargs)
        for _, callback in self.callbacks_:
            try:
                getattr(callback, method_name)(self, **cb_kwargs)
            except KeyboardInterrupt as error:
                if not asks_to_stop(error):
                    raise
                stop, self.asked_to_stop_ = error, True
        if method_name == "on_epoch_end":
            # Tensors in the row of this epoch, such as a schedule's learning rate, become numbers.
            for name, value in self.history[-1].items():
                if isinstance(value, Tensor) and value.numel() == 1:
                    self.history.record(name, value.item())
        if stop is not None:
            raise StopTraining from stop

    def go_on_from(self, state: Mapping[str, object]) -> None:
        """Let the training that has begun go on from a state, as a callback may want."""
        self.state_to_load_ = state

    def interrupt(self) -> None:
        """Note an interrupt, which the estimator raises again when its state is in order."""
        self.interrupted_ = True

    def fit_loop(self, X, y=None, epochs=None, **kwargs):
        has_ended = False
        if self.state_to_load_ is not None:
            self.load_state(self.state_to_load_)
            has_ended = self.state_to_load_.get("has_ended", False)
            self.state_to_load_ = None
        if epochs is None:
            epochs = 0 if has_ended else self.max_epochs - len(self.history)
        try:
            with current_device(torch.device(self.device)):
                super().fit_loop(X, y, epochs, **kwargs)
        except StopTraining:
            pass
        except KeyboardInterrupt:
            self.interrupt()
        finally:
            self._set_training(False)
        return self

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        """Run one epoch of training or validation and record its loss."""
        if iterator is None:
            return
        is_first = training and len(self.history) == 1
        running_loss = RunningLoss(self.criterion_ if is_first else None)
        if training and self.time_limit is not None:
            iterator = self.time_limit.batches(self, iterator)
        with self.steps_.epoch(step_fn, training) as (step, after_step):

            def tallied(batch: Batch, **fit_params) -> dict[str, object]:
                result = step(batch, **fit_params)
                for call in after_step:
                    call()
                running_loss.add(result, batch)
                return result

            if self.steps_.listens_to_batches:
                super().run_single_epoch(iterator, training, prefix, tallied)
            else:
                self.history.new_batch()  # its number is in the names of skorch's Checkpoint
                for batch in iterator:
                    tallied(batch)
        means = running_loss.means()
        self.member_losses_[prefix] = means[0]
        if is_first:
            self.constant_losses_ = means[1]
        name, value = f"{prefix}_loss", means[0].nanmean().item()  # diverged members are left out
        is_best = value < self.lowest_losses_.get(name, math.inf)
        self.history.record(name, value)
        self.history.record(f"{name}_best", is_best)
        if is_best:
            self.lowest_losses_[name] = value
        if training:
            self.history.record("engine", engine_of(self))


def current_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make a GPU the one on which streams and graphs are made; nothing to do for others."""
    is_numbered = device.type == "cuda" and device.index is not None
    return torch.cuda.device(device) if is_numbered else contextlib.nullcontext()


@dataclass
class RunningLoss:
    """Adds up the losses of an epoch's samples, each under the weights before its own step.

    With an objective, the losses of a constant prediction, outputs of zero, are added up too.
    """

    objective: Objective | None
    n_rows: int = 0
    sums: dict[int, Tensor] = field(default_factory=dict)  # by size of batch, (S, size)
    constant_sums: list[Tensor] = field(default_factory=list)  # of each batch, (S,)

    def add(self, step: dict[str, Tensor], batch: Batch) -> None:
        """Add what a step has returned for a batch."""
        losses = step["losses"]
        size = losses.shape[-1]
        self.n_rows += size
        if size in self.sums:
            self.sums[size] += losses
        else:
            self.sums[size] = losses.clone()
        if self.objective is not None:
            _, (targets, weight) = batch
            zeros = torch.zeros_like(
                step["y_pred"], dtype=losses.dtype, memory_format=torch.contiguous_format
            )
            with torch.no_grad():
                of_zeros = self.objective(zeros, targets)
            of_zeros = of_zeros if weight is None else weight * of_zeros
            self.constant_sums.append(of_zeros.sum(-1))

    def means(self) -> list[Tensor]:
        """Return the mean loss of each member, (S,), and with an objective that of a constant."""
        sums = [torch.stack([total.sum(-1) for total in self.sums.values()])]
        if self.objective is not None:
            sums.append(torch.stack(self.constant_sums))
        return [found.sum(0) / self.n_rows for found in sums]
