# SPDX-License-Identifier: BSD-3-Clause
"""The weights of a stack in one flat buffer, their gradient in another, and their update.

One call then updates all weights. Between epochs the weights are in the module and the state in the
optimizer, as always: a callback that looks at them after an epoch sees no difference, and training
may change from autograd to flat buffers and back at any epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import hardshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from ..samplers import SGHMCOptimizer, SGLDOptimizer

# Settings under which the fused update would be a different one, or impossible.
_UNUSUAL = ("amsgrad", "maximize", "differentiable", "capturable")

_TINY = 1e-30  # smaller numbers become 0 before they are denormal, see doc/design.rst
_DECAYING = ("exp_avg", "momentum_buffer")  # a mean of squares may be a divisor

# The kernels of Adam and AdamW are private in torch. Where they are missing, the public function
# that calls them takes their place, at four times the cost.
_KERNELS = {
    False: vars(torch).get("_fused_adam_"),
    True: vars(torch).get("_fused_adamw_"),  # decoupled weight decay
}


class FlatGradient(ABC):
    """Computes a stack's loss and gradient on flat buffers; subclasses say how.

    `parameters` are all those of the module, in their order in the buffers. `weight_decay` has L2
    penalties on some, as pairs (nn.Parameter, float).
    """

    name: str  # what the history of training calls it

    def __init__(
        self,
        module: nn.Module,
        objective: Any,
        weight_decay: Sequence[tuple[nn.Parameter, float]] = (),
        n_epochs: int = 1,
        parameters: Sequence[nn.Parameter] | None = None,
    ):
        self.module = module
        self.objective = objective
        names = {parameter: name for name, parameter in module.named_parameters()}
        self.parameters = list(names if parameters is None else parameters)
        self.names = [names[parameter] for parameter in self.parameters]
        self.n_epochs = n_epochs  # that are planned
        self.n_loads = 0  # how often the weights have been taken from the module
        size = sum(p.numel() for p in self.parameters)
        self.flat = nn.Parameter(self.parameters[0].new_zeros(size), requires_grad=False)
        self.flat.grad = self.d_flat = torch.zeros_like(self.flat)
        # Views of the two, in the shapes of the parameters.
        self.values, self.gradients = self.views(self.flat), self.views(self.d_flat)
        found = dict(weight_decay)
        decays = [found.get(p, 0.0) for p in self.parameters]
        self.decay: Tensor | float = decays[0]
        if len(set(decays)) > 1:
            self.decay = torch.zeros_like(self.flat)
            copy_each(self.views(self.decay), decays)

    @staticmethod
    @abstractmethod
    def supports(module: nn.Module) -> bool:
        """Tell whether the gradient of `module` can be computed in this way."""

    def views(self, flat: Tensor) -> list[Tensor]:
        """View a flat buffer as the module's parameters, in their shapes."""
        pieces = flat.split([p.numel() for p in self.parameters])
        return [piece.view_as(p) for piece, p in zip(pieces, self.parameters, strict=True)]

    @torch.no_grad()
    def load(self) -> None:
        """Copy the weights from the module into the buffer."""
        self.n_loads += 1
        copy_each(self.values, self.parameters)
        self.has_penalty = self.objective.penalty(self.module) is not None

    @torch.no_grad()
    def store(self) -> None:
        copy_each(self.parameters, self.values)

    @abstractmethod
    def __call__(
        self, X: Tensor, targets: tuple[Tensor, ...], weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Set ``d_flat`` to the gradient of the objective for a minibatch, with all penalties.

        Return outputs (*lead, n, n_outputs), valid until the next call, and weighted losses (S, n).
        """

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Outputs for rows (S or 1, n, ...), valid until the next call of this or of the object."""
        state = dict(zip(self.names, self.values, strict=True))
        return functional_call(self.module.eval(), state, (X,))

    def _add_penalties(self) -> None:
        # The gradient of decay / 2 * sum of squares; one decay for all takes half the time.
        if isinstance(self.decay, Tensor):
            self.d_flat.addcmul_(self.decay, self.flat)
        elif self.decay:
            self.d_flat.add_(self.flat, alpha=self.decay)
        if self.has_penalty:
            self.store()
            penalty = self.objective.penalty(self.module).sum()
            found = torch.autograd.grad(penalty, self.parameters, allow_unused=True)
            for gradient, more in zip(self.gradients, found, strict=True):
                if more is not None:
                    gradient.add_(more)


def copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor | float]) -> None:
    """Copy each source, a tensor or a number, into its target."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source) if isinstance(source, Tensor) else target.fill_(source)


class FlatUpdate:
    """Replaces ``optimizer.step()``, whose wrappers cost more than its kernel, on a flat buffer.

    The first step, in which the optimizer makes its state, is ``optimizer.step()`` on the module's
    parameters, and so is every step of optimizers or settings that are not known here.
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
