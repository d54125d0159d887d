# SPDX-License-Identifier: BSD-3-Clause
"""Steps of torch's optimizers as one fused call for all parameters, on flat buffers.

The kernels are those that ``Optimizer.step`` calls. Around them it has wrappers that cost more than
the kernels do; here there are none. Between epochs the state is in the optimizer, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import hardshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from ..samplers import SGHMCOptimizer, SGLDOptimizer
from ._flat import FlatGradient, copy_each

# Settings under which the fused update would be a different one, or impossible.
_UNUSUAL = ("amsgrad", "maximize", "differentiable", "capturable")

# Weights of a unit that has died decay, and so do their running means of gradients, until they are
# denormal numbers, with which a processor takes up to a hundred times as long. Numbers below this
# are zeros to any sum.
_TINY = 1e-30
_DECAYING = ("exp_avg", "momentum_buffer")  # a mean of squares may be a divisor

# The kernels of Adam and AdamW are private in torch. Where they are missing, the public function
# that calls them takes their place, at four times the cost.
_KERNELS = {
    False: vars(torch).get("_fused_adam_"),
    True: vars(torch).get("_fused_adamw_"),  # decoupled weight decay
}


class FlatUpdate:
    """Replaces ``optimizer.step()`` where weights lie in a flat buffer.

    The first step, in which the optimizer makes its state, is ``optimizer.step()`` on the module's
    parameters. So is every step of optimizers that are not known here or have unusual settings.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, gradient: FlatGradient):
        self.optimizer = optimizer
        self.gradient = gradient
        self.group, *others = optimizer.param_groups
        is_plain = not others and set(self.group["params"]) == set(gradient.parameters)
        is_plain &= not any(self.group.get(setting) for setting in _UNUSUAL)
        is_plain &= bool(self.group.get("fused", True))  # samplers have no such setting
        self.fused = _FUSED.get(type(optimizer)) if is_plain else None
        self.step = torch.zeros(())
        self.buffers: dict[str, Tensor] = {}  # of the state, by its name
        self.views: dict[str, list[Tensor]] = {}
        self.is_first = True
        self.update: Callable[[], Any] | None = None  # None while the optimizer has the state

    def begin_epoch(self) -> None:
        """Take state and settings from the optimizer, if it is one that we know."""
        self.is_first &= not self.optimizer.state  # a state that was loaded is one after a step
        states = [self.optimizer.state.get(p, {}) for p in self.gradient.parameters]
        ages = {(*state, float(state.get("step", 0.0))) for state in states}
        if self.fused is None or self.is_first or len(ages) > 1:  # some were frozen for a while
            return
        self.step.fill_(ages.pop()[-1])
        for name, value in states[0].items():
            if name != "step" and value is not None:
                if name not in self.buffers:
                    self.buffers[name] = torch.zeros_like(self.gradient.flat)
                    self.views[name] = self.gradient.views(self.buffers[name])
                copy_each(self.views[name], [state[name] for state in states])
        flat, d_flat = self.gradient.flat, self.gradient.d_flat
        self.update = self.fused(flat, d_flat, self.step, self.buffers, self.optimizer)

    def end_epoch(self) -> None:
        """Give the state back to the optimizer."""
        flush(self.gradient.flat, *decaying([self.buffers]))
        if self.update is None:
            flush(*decaying(self.optimizer.state.values()))
            return
        self.update = None
        states = [self.optimizer.state.get(p, {}) for p in self.gradient.parameters]
        for name, views in self.views.items():
            copy_each([state[name] for state in states], views)
        for state in states:
            if "step" in state:
                state["step"].copy_(self.step)

    def __call__(self) -> None:
        """Update the weights."""
        if self.update is not None:
            self.update()
            return
        computed = self.gradient
        computed.store()
        for parameter, gradient in zip(computed.parameters, computed.gradients, strict=True):
            # Fused optimizers silently skip gradients with gaps in memory, which views may have.
            parameter.grad = gradient.contiguous()
        self.optimizer.step()
        computed.load()
        if self.is_first:
            self.is_first = False
            self.begin_epoch()


@torch.no_grad()
def flush(*tensors: Tensor) -> None:
    """Set numbers to 0 where they are tiny."""
    for values in tensors:
        values.copy_(hardshrink(values, _TINY))


def decaying(states: Iterable[dict[str, Any]]) -> list[Tensor]:
    """Running means of gradients in states of an optimizer."""
    return [state[name] for state in states for name in _DECAYING if state.get(name) is not None]


def flush_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Flush the weights and the state of an optimizer."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    flush(*weights, *decaying(optimizer.state.values()))


def _adam(
    flat: Tensor, grad: Tensor, step: Tensor, state: dict, optimizer: torch.optim.Optimizer
) -> Callable:
    (group,) = optimizer.param_groups
    no_amsgrad: list[Tensor] = []
    tensors = [flat], [grad], [state["exp_avg"]], [state["exp_avg_sq"]], no_amsgrad, [step]
    names = "weight_decay eps amsgrad maximize"
    settings = {name: group[name] for name in names.split()}
    settings["beta1"], settings["beta2"] = group["betas"]
    is_decoupled = group["decoupled_weight_decay"]
    kernel = _KERNELS[is_decoupled]
    if kernel is None:
        settings |= {"fused": True, "decoupled_weight_decay": is_decoupled}
        return lambda: adam(*tensors, lr=group["lr"], **settings)
    one = torch.ones_like(step)

    def update() -> None:
        step.add_(one)
        kernel(*tensors, lr=group["lr"], **settings)  # it may change within an epoch

    return update


def _sgd(
    flat: Tensor, grad: Tensor, step: Tensor, state: dict, optimizer: torch.optim.Optimizer
) -> Callable:
    (group,) = optimizer.param_groups
    names = "weight_decay momentum dampening nesterov maximize fused"
    settings = {name: group[name] for name in names.split()}
    tensors: Any = [flat], [grad], [state.get("momentum_buffer")]
    return lambda: sgd(*tensors, lr=group["lr"], **settings)


def _sampler(flat: Tensor, grad: Tensor, step: Tensor, state: dict, optimizer: Any) -> Callable:
    (group,) = optimizer.param_groups  # read at every step: the step size may change in between
    return partial(optimizer.update, flat, grad, state, group)


_FUSED = {
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adam,
    torch.optim.SGD: _sgd,
    SGLDOptimizer: _sampler,
    SGHMCOptimizer: _sampler,
}
