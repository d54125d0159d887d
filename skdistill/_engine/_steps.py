# SPDX-License-Identifier: BSD-3-Clause
"""How a training step runs: by autograd, compiled, as a CUDA graph, or on flat buffers.

A step takes a batch, computes the gradient and updates the weights. It returns a dict, as skorch's
steps do: "y_pred" are the outputs, and "losses", of shape (S, n), the weighted losses of the
samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from skorch.callbacks import Callback, LRScheduler
from torch import Tensor
from torch.nn.functional import hardshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from .._utils.warnings import warn
from ..modules import StackedModule
from ..samplers import SGHMCOptimizer, SGLDOptimizer
from ._closed_form import ClosedFormGradient, FlatGradient, SharedFormGradient, copy_each
from ._rows import Batch
from ._traced import TracedGradient

if TYPE_CHECKING:
    from ._net import StackNet

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

_FLOP_OF_SMALL_STEP = 15e6  # operations of a step up to which recording pays, see doc/design.rst

Step = Callable[..., dict[str, Any]]


class TrainingSteps:
    """Computes the training steps of a fit, in every epoch in the fastest way that applies.

    ``on_flat`` is the step on flat buffers, or None if they do not support the net; ``flat`` holds
    the weights while an epoch runs on these, and is None while the module holds them.
    """

    def __init__(self, net: StackNet):
        self.net = net
        self.on_module: Step = partial(module_step, net)
        if net.step == "captured":
            self.on_module = CapturedStep(net)
        gradient_class = flat_gradient_of(net)
        self.on_flat = None if gradient_class is None else FlatStep(net, gradient_class)
        self.flat: FlatGradient | None = None
        self.listens_to_batches = any(listens_to_batches(cb) for _, cb in net.callbacks_)

    @contextlib.contextmanager
    def epoch(
        self, skorchs_step: Step, training: bool
    ) -> Iterator[tuple[Step, list[Callable[[], None]]]]:
        """Give the step for one epoch, and what to call after each step.

        The step is skorch's own in validation, and if a callback listens to batches.
        """
        on_flat = self.on_flat
        if not training:
            yield skorchs_step, []
            return
        # A callback may freeze parameters for an epoch.
        if on_flat is None or not all(p.requires_grad for p in on_flat.gradient.parameters):
            step = skorchs_step if self.listens_to_batches else self.on_module
            yield step, self._after_step()
            flush_optimizer(self.net.optimizer_)
            return
        on_flat.begin_epoch()
        self.flat = on_flat.gradient
        try:
            yield on_flat, self._after_step()
        finally:
            self.flat = None
            on_flat.end_epoch()

    def _after_step(self) -> list[Callable[[], None]]:
        """Return what to call after each step of this epoch."""
        net, calls = self.net, []
        if net.proximal is not None:
            shrink = net.proximal.bind(self.weights())
            calls.append(lambda: shrink(net.optimizer_.param_groups[0]["lr"]))
        if net.after_step is not None:
            calls.append(partial(net.after_step, net))
        return calls

    def weights(self) -> dict[str, Tensor]:
        """Return the parameters of the module by name, from wherever they are; not copied."""
        named: dict[str, Tensor] = dict(self.net.module_.named_parameters())
        if self.flat is not None:
            named.update(zip(self.flat.names, self.flat.values, strict=True))
        return named

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Predict with the weights as they are now; valid until the next step or call of this."""
        if self.flat is not None:
            return self.flat.outputs(X)
        self.net._set_training(False)  # the next step sets it again
        return self.net.module_(X)


def flat_gradient_of(net: StackNet) -> type[FlatGradient] | None:
    """Return what computes a net's gradient on flat buffers; None where only autograd can.

    CPU time of autograd over it, in training 20 members on 1,000 samples of 10 features in batches
    of 32: closed form 2.2, and 1.2 for a student; recorded autograd 1.8 with normalisation layers.
    """
    is_plain = net.step == "eager" and torch.device(net.device).type == "cpu"
    if not is_plain or any(listens_to_batches(callback) for _, callback in net.callbacks_):
        return None
    kinds: list[type[FlatGradient]] = [ClosedFormGradient, SharedFormGradient]
    if net.flop_per_step < _FLOP_OF_SMALL_STEP:
        kinds.append(TracedGradient)
    return next((kind for kind in kinds if kind.supports(net.module_)), None)


def listens_to_batches(callback: Callback) -> bool:
    """Tell whether a skorch callback has a method that is called for every batch."""
    if isinstance(callback, LRScheduler):
        return callback.step_every == "batch"
    hooks = ("on_batch_begin", "on_batch_end", "on_grad_computed")
    return any(getattr(type(callback), hook) is not getattr(Callback, hook) for hook in hooks)


def engine_of(net: StackNet) -> str:
    """Return what computes a net's steps, see :attr:`StackNet.engine_`."""
    if all(parameter.requires_grad for parameter in net.module_.parameters()):
        gradient_class = flat_gradient_of(net)
        if gradient_class is not None:
            return gradient_class.name
    stacks = [part for part in net.module_.modules() if isinstance(part, StackedModule)]
    if any(part.loops_ for part in stacks):
        return "loop"
    return "vmap" if stacks else "stacked"


class FlatStep:
    """Training step on flat buffers, which hold the weights for the time of an epoch.

    Its update replaces ``optimizer.step()``, whose wrappers cost more than its kernel. The first
    step, in which the optimizer makes its state, is ``optimizer.step()`` on the module's
    parameters, and so is every step of optimizers or settings that are not known here.
    """

    def __init__(self, net: StackNet, gradient_class: Any):
        self.net, self.optimizer, self.clip_norm = net, net.optimizer_, net.clip_norm
        how = net.weight_decay, net.max_epochs
        self.gradient: FlatGradient = gradient_class(net.module_, net.criterion_, *how)
        is_one_network = len(self.gradient.parameters[0]) == 1
        self.clipped = [self.gradient.d_flat[None]] if is_one_network else self.gradient.gradients
        group, *others = self.optimizer.param_groups
        is_plain = not others and set(group["params"]) == set(self.gradient.parameters)
        is_plain &= not any(group.get(setting) for setting in _UNUSUAL)
        is_plain &= bool(group.get("fused", True))  # samplers have no such setting
        self.fused = _FUSED.get(type(self.optimizer)) if is_plain else None
        self.step = torch.zeros(())
        self.buffers: dict[str, Tensor] = {}  # of the state, by its name
        self.views: dict[str, list[Tensor]] = {}
        self.is_first = True
        self.update: Callable[[], Any] | None = None  # None while the optimizer has the state

    def begin_epoch(self) -> None:
        """Take the weights from the module, and the state from an optimizer that we know."""
        self.gradient.load()
        self._take_state()

    def _take_state(self) -> None:
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
        """Give the state back to the optimizer, and the weights to the module."""
        flush(self.gradient.flat, *decaying([self.buffers]))
        if self.update is None:
            flush(*decaying(self.optimizer.state.values()))
        else:
            self.update = None
            states = [self.optimizer.state.get(p, {}) for p in self.gradient.parameters]
            for name, views in self.views.items():
                copy_each([state[name] for state in states], views)
            for state in states:
                if "step" in state:
                    state["step"].copy_(self.step)
        self.gradient.store()

    def __call__(self, batch: Batch) -> dict[str, object]:
        if not self.net.module_.training:
            self.net._set_training(True)
        X, (targets, weight) = batch
        outputs, losses = self.gradient(X, targets, weight)
        if self.clip_norm is not None:
            clip_each_member(self.clipped, self.clip_norm)
        if self.update is not None:
            self.update()
            return {"y_pred": outputs, "losses": losses}
        computed = self.gradient
        computed.store()
        for parameter, gradient in zip(computed.parameters, computed.gradients, strict=True):
            # Fused optimizers silently skip gradients with gaps in memory, which views may have.
            parameter.grad = gradient.contiguous()
        self.optimizer.step()
        computed.load()
        if self.is_first:
            self.is_first = False
            self._take_state()
        return {"y_pred": outputs, "losses": losses}


def module_step(net: StackNet, batch: Batch) -> dict[str, object]:
    """Training step by autograd on the module."""
    optimizer = net.optimizer_
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None  # as zero_grad() does, whose wrapper takes 16 us
    result = net.train_step_single(batch)
    optimizer.step()
    return result


class CapturedStep:
    """Training step replayed as a CUDA graph, one for each shape of batch.

    The first steps of each shape run as usual on a side stream, as capture asks, and train; so the
    result is that of the eager step, but that the learning rate is rounded to float32. If capture
    fails, all steps are eager, with a warning.
    """

    _N_WARM_UP = 3

    def __init__(self, net: StackNet):
        self.net = net
        self.step = partial(module_step, net)
        self.seen: dict[tuple, int] = {}
        self.graphs: dict[tuple, tuple] = {}
        self.works = True
        # One for all steps: autograd keeps the nodes of the weights on the first that it meets.
        self.side = torch.cuda.Stream(net.device)

    def __call__(self, batch: Batch) -> dict[str, object]:
        X, (targets, weight) = batch
        tensors = [X, *targets] + ([] if weight is None else [weight])
        shapes = tuple(t.shape for t in tensors)
        if shapes in self.graphs:
            return self._replay(shapes, tensors)
        self.seen[shapes] = self.seen.get(shapes, 0) + 1
        if not self.works or self.seen[shapes] <= self._N_WARM_UP:
            return self._on_side_stream(batch)
        drawn = torch.cuda.get_rng_state(X.device)
        try:
            self._capture(shapes, tensors, has_weight=weight is not None)
        except RuntimeError as error:
            self.works = False
            _renew_generator(X.device, drawn)
            warn(
                "The training step could not be captured as a CUDA graph and runs eagerly. torch "
                f"says: {str(error).splitlines()[0]}"
            )
            return self._on_side_stream(batch)
        return self._replay(shapes, tensors)

    def _on_side_stream(self, batch: Batch) -> dict[str, object]:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            result = self.step(batch)
        torch.cuda.current_stream().wait_stream(self.side)
        return result

    def _capture(self, shapes: tuple, tensors: list[Tensor], has_weight: bool) -> None:
        static = [t.clone() for t in tensors]
        weight = static[-1] if has_weight else None
        targets = tuple(static[1:-1] if has_weight else static[1:])
        graph = torch.cuda.CUDAGraph()
        self.net.optimizer_.zero_grad(set_to_none=True)
        # Other threads may use the GPU, and after a failure the caller's stream is current again.
        capture = torch.cuda.graph(graph, stream=self.side, capture_error_mode="thread_local")
        with torch.cuda.stream(self.side), capture:
            result = self.net.train_step_single((static[0], (targets, weight)))
            self.net.optimizer_.step()
        self.graphs[shapes] = graph, static, result

    def _replay(self, shapes: tuple, tensors: list[Tensor]) -> dict[str, object]:
        graph, static, result = self.graphs[shapes]
        for to, value in zip(static, tensors, strict=True):
            to.copy_(value)
        graph.replay()
        return result


def _renew_generator(device: torch.device, state: Tensor) -> None:
    """Let a GPU's global generator draw again after a capture that failed.

    torch leaves it waiting for the end of the capture: dropout would raise an error.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(torch.Generator(device))
    generator.set_state(state)


def clip_each_member(gradients: list[Tensor], max_norm: float) -> None:
    """Scale each member's gradient, along the first axis, to a norm of at most `max_norm`."""
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients]).sum(0)
    factors = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factors.view(-1, *[1] * (g.ndim - 1)))


# --- the update of all weights in one buffer


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
