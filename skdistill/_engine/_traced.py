# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of any stack, whose computation is recorded once for each shape of batch and replayed.

A step of a small network spends most of its time not on arithmetic but in Python, above all in
``vmap`` and autograd. Recording pays that once: it writes down torch's low-level calls, and a
replay makes just these. A module whose forward depends on more than its inputs, weights, buffers
and torch's random numbers cannot be recorded.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .._utils.process import DISPATCH_MODE_LOCK
from .._utils.recording import Recorder
from .._utils.warnings import warn
from ..modules import StackedModule
from ._closed_form import FlatGradient

_STEPS_WORTH_RECORDING = 500  # steps of a small network that save what recording takes

Step = Callable[..., Sequence[Tensor]]

_CANNOT_BE_RECORDED: weakref.WeakSet[nn.Module] = weakref.WeakSet()


class TracedGradient(FlatGradient):
    """Loss and gradient of a stack by autograd, recorded where that can be done."""

    name = "traced"

    def __init__(self, module: nn.Module, objective: object, weight_decay=(), n_epochs: int = 1):
        super().__init__(module, objective, weight_decay, n_epochs)
        self.seen: Counter[tuple] = Counter()
        self.records: dict[tuple, Step] = {}

    @staticmethod
    def supports(module: nn.Module) -> bool:
        loops = any(isinstance(part, StackedModule) and part.loops_ for part in module.modules())
        return not loops and module not in _CANNOT_BE_RECORDED

    def __call__(self, X, targets, weight):
        batch = [X, *targets] if weight is None else [X, *targets, weight]
        shapes = tuple(tensor.shape for tensor in batch)
        step = self.records.get(shapes) or self._step_for(shapes, batch, weight is not None)
        outputs, losses, *gradients = step(*self.values, *batch)
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=self.d_flat)
        self._add_penalties()
        return outputs, losses

    def _step_for(self, shapes: tuple, batch: list[Tensor], has_weight: bool) -> Step:
        """Return a record for batches of these shapes where it pays, else autograd's step."""
        step = partial(self._step, has_weight=has_weight)
        self.seen[shapes] += 1
        n_expected = self.seen[shapes] * self.n_epochs / self.n_loads
        # The first step shows whether vmap works at all.
        is_worth_it = self.seen[shapes] > 1 and n_expected >= _STEPS_WORTH_RECORDING
        if is_worth_it and self.supports(self.module):
            try:
                with _keeping(self.module.buffers()):
                    return self.records.setdefault(shapes, recorded(step, [*self.values, *batch]))
            # Users' modules may do what no record can hold; the step is then run as it is.
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                _CANNOT_BE_RECORDED.add(self.module)
                warn(
                    "The training step cannot be recorded and goes through autograd each time, "
                    f"which is slower: {str(error).strip().splitlines()[0]}"
                )
        return step

    @torch.enable_grad()
    def _step(self, *tensors: Tensor, has_weight: bool = False) -> tuple[Tensor, ...]:
        """Outputs, losses of the rows, and the gradient with respect to each parameter.

        `tensors` are the parameters, the inputs, the targets, and the weight if there is one.
        """
        n = len(self.names)
        values = [value.detach().requires_grad_() for value in tensors[:n]]
        X, *targets = tensors[n:]
        weight = targets.pop() if has_weight else None
        state = dict(zip(self.names, values, strict=True))
        outputs = functional_call(self.module, state, (X,))
        losses, d_outputs = self.objective.loss_and_gradient(outputs.detach(), tuple(targets))
        d_outputs = d_outputs / X.shape[1]  # the loss is the mean over rows
        if weight is not None:
            losses = losses * weight
            d_outputs = d_outputs * weight.view(-1, *[1] * (d_outputs.ndim - 3), X.shape[1], 1)
        gradients = torch.autograd.grad(outputs, values, d_outputs, materialize_grads=True)
        return outputs.detach(), losses, *gradients


def recorded(step: Step, tensors: list[Tensor]) -> Step:
    """Record a step's low-level calls; a RuntimeError if it gives something else than the step."""
    with DISPATCH_MODE_LOCK.held(), Recorder(tensors) as recorder:
        results = step(*tensors)
    record = torch.fx.GraphModule(recorder.constants, recorder.graph_of(results)).forward
    # Compared on other tensors: a number read off the first ones would be a constant of the record.
    others = [tensor.flip(int(tensor.ndim > 1)) for tensor in tensors]
    with torch.random.fork_rng(devices=[]):
        found = record(*others)
    with torch.random.fork_rng(devices=[]):
        expected = step(*others)
    for a, b in zip(found, expected, strict=True):
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise RuntimeError("its results depend on more than inputs, weights and buffers")
    return record


@contextlib.contextmanager
def _keeping(buffers: Iterable[Tensor]) -> Iterator[None]:
    """Restore buffers, such as running statistics, and the state of torch's random numbers."""
    before = [(buffer, buffer.clone()) for buffer in buffers]
    with torch.random.fork_rng(devices=[]):
        yield
    for buffer, value in before:
        buffer.copy_(value)
