# SPDX-License-Identifier: BSD-3-Clause
"""Gradients on flat buffers, with forward and backward written out, without autograd.

The weights of a stack are in one buffer, their gradient in another, so that one call updates all.
Between epochs the weights are in the module: a callback that looks at them sees no difference, and
training may change from autograd to flat buffers and back at any epoch.

In stacked perceptrons a layer maps its inputs h to f(A W), a residual one to h + f(A W), with
A = [h 1]: the last row of W is the bias. The W of all layers lie one after the other in one flat
buffer, their gradients in another.

In a TabM, whose members share weights, rows of a minibatch stand in groups of k, one for each
member: memory for (n, w) is also (g, k, w). If they do not fill the last group, rows of zeros do,
of whose outputs the gradient is zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ..modules import (
    ELEMENTWISE,
    CategoricalStack,
    GaussianStack,
    MultiHead,
    ResidualLayer,
    SharedLinear,
    StackedActivation,
    StackedLinear,
    StackedSequential,
    TabM,
)

aten = torch.ops.aten

_NARROW = 8  # outputs from which on a layer is stored with its units last, see doc/design.rst


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


class Block(NamedTuple):
    """What a layer does: f(linear(h)), or h + f(linear(h))."""

    linear: StackedLinear
    activation: nn.Module
    is_residual: bool = False


def blocks_of(module: nn.Module) -> list[Block]:
    """Layers of a stack in their order; an empty list if one of them is not supported."""
    network = module.network if type(module) in (CategoricalStack, GaussianStack) else module
    parts: list[Any] = [network]
    if type(network) is MultiHead:
        parts = [network.core, network.heads]
    leads = [len(part.lead) for part in parts if type(part) is StackedSequential]
    if leads != [1, 2][: len(parts)]:
        return []
    blocks: list[Block] = []
    for part in chain.from_iterable(parts):
        if type(part) is StackedLinear:
            blocks.append(Block(part, nn.Identity()))
        elif type(part) is ResidualLayer and type(part.linear) is StackedLinear:
            blocks.append(Block(part.linear, part.activation, is_residual=True))
        elif type(part) not in (*ELEMENTWISE, StackedActivation) or not blocks:
            return []
        elif type(part) is not nn.Identity:
            linear, before, is_residual = blocks[-1]
            if is_residual or type(before) is not nn.Identity:
                return []
            blocks[-1] = Block(linear, part)
    return blocks


def activate(
    layer: nn.Module, z: Tensor, a: Tensor, da: Tensor, dz: Tensor
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Prepare two calls: one computes a = f(z), the other dz = da f'(z)."""
    match layer:
        case StackedActivation():  # members in a row have the same layer
            parts = zip(*(t.split_with_sizes(layer.sizes) for t in (z, a, da, dz)), strict=True)
            calls = [activate(one, *own) for one, own in zip(layer.layers, parts, strict=True)]
            forward, backward = zip(*calls, strict=True)
            return lambda: [call() for call in forward], lambda: [call() for call in backward]
        case nn.ReLU():  # max(z, 0), slope [z > 0]
            return (
                partial(torch.clamp_min, z, 0, out=a),
                partial(aten.threshold_backward.grad_input, da, z, 0, grad_input=dz),
            )
        case nn.Tanh():  # slope 1 - a^2
            less_one = z.new_tensor(-1.0)
            return (
                lambda: torch.add(less_one, z.add_(z).sigmoid_(), alpha=2, out=a),  # see Tanh
                partial(aten.tanh_backward.grad_input, da, a, grad_input=dz),
            )
        case nn.SiLU():  # z s with s = sigmoid(z), slope s (1 + z (1 - s))
            return (  # silu.out takes three times as long into memory with gaps, as a's
                lambda: torch.mul(z, torch.sigmoid(z, out=dz), out=a),
                partial(aten.silu_backward.grad_input, da, z, grad_input=dz),
            )
        case nn.GELU():  # z Phi(z), slope Phi(z) + z phi(z)
            form = {"approximate": layer.approximate}
            return (
                lambda: a.copy_(F.gelu(z, **form)),  # torch 2.13's gelu.out mixes up a's strides
                partial(aten.gelu_backward.grad_input, da, z, **form, grad_input=dz),
            )
    return partial(a.copy_, z), partial(dz.copy_, da)


def product(a: Tensor, b: Tensor, out: Tensor) -> Callable[[], object]:
    """Prepare a call that computes out = a b, of shapes (B, m, k), (B, k, n) and (B, m, n)."""
    if out.stride(-1) != 1:  # stored transposed: out^T = b^T a^T
        a, b, out = b.mT, a.mT, out.mT
    if len(out) == 1:
        return partial(torch.mm, a[0], b[0], out=out[0])
    return partial(torch.bmm, a, b, out=out)


def add_sum(a: Tensor, b: Tensor) -> None:
    """Add b to a, after summing b over the axes along which a is broadcast."""
    a.add_(b.sum_to_size(a.shape))


class Layer:
    """Place of one layer's W, (B, fan_in + 1, width), of B networks in a flat buffer.

    Heads that share their rows are one network, as wide as the outputs of all.
    """

    def __init__(self, block: Block, start: int, is_shared: bool):
        linear, self.activation, self.is_residual = block
        *self.lead, self.fan_in, n_outputs = linear.weight.shape
        self.parameters = (linear.weight, linear.bias)
        self.heads = (self.lead[-1], n_outputs) if is_shared else None
        self.width = math.prod(self.heads or (n_outputs,))
        self.n_networks = math.prod(self.lead[:-1] if is_shared else self.lead)
        self.place = slice(start, start + self.n_networks * (self.fan_in + 1) * self.width)

    def block(self, flat: Tensor) -> Tensor:
        """W in a flat buffer, (B, fan_in + 1, width)."""
        return self.matrices(flat[self.place], self.fan_in + 1)

    def matrices(self, memory: Tensor, n_rows: int) -> Tensor:
        """View memory as (B, n_rows, width), in the storage order that multiplies fastest."""
        if self.width < _NARROW:
            return memory.view(self.n_networks, self.width, n_rows).mT
        return memory.view(self.n_networks, n_rows, self.width)

    def by_network(self, matrices: Tensor) -> Tensor:
        """View (B, n, width) as the module does, (*lead, n, n_outputs)."""
        if self.heads:
            return matrices.unflatten(-1, self.heads).movedim(-2, -3)
        return matrices.unflatten(0, self.lead)

    def rows(self, h: Tensor) -> Tensor:
        """View inputs (B, n, fan_in) as (*lead, n, fan_in), with M = 1 where heads share them."""
        return h.unsqueeze(-3) if self.heads else h.unflatten(0, self.lead)


class Pass:
    """Forward and backward of all layers for batches of one size, in memory allocated once.

    For every layer A = [h 1] is (B, n, fan_in + 1), whose column of ones is filled in once, and
    Z = A W is (B, n, width); z is the same memory in the module's shape, and a = f(z), or h + f(z),
    is the next layer's h. dX stands for the gradient with respect to X, except dA, which is that
    with respect to h.
    """

    def __init__(self, layers: Sequence[Layer], flat: Tensor, d_flat: Tensor, n_rows: int):
        self.forward: list[Callable[[], Any]] = []
        backward: list[list[Callable[[], Any]]] = []  # of each layer
        A = flat.new_ones(layers[0].n_networks, n_rows, layers[0].fan_in + 1)
        dA: Tensor | None = None
        self.input = A[..., :-1]
        self.share = flat.new_tensor([1 / n_rows])
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            W, dW = layer.block(flat), layer.block(d_flat)
            size = layer.n_networks * n_rows * layer.width
            Z, dZ = (layer.matrices(flat.new_empty(size), n_rows) for _ in range(2))
            z, dz = layer.by_network(Z), layer.by_network(dZ)
            h, dh = A[..., :-1], dA
            self.forward.append(product(A, W, out=Z))  # Z = A W
            calls = [product(A.mT, dZ, out=dW)]  # dW = A^T dZ
            if dh is not None:
                calls.append(product(dZ, W[:, :-1].mT, out=dh))  # dA = dZ W^T
            backward.append(calls)
            if following is not None:
                A = flat.new_ones(following.n_networks, n_rows, following.fan_in + 1)
                keeps_da = layer.heads or layer.is_residual  # else it shares memory with dZ
                dA = torch.empty_like(A[..., :-1]) if keeps_da else dZ
                a, da = (rows.unflatten(0, layer.lead) for rows in (A[..., :-1], dA))
            elif type(layer.activation) is nn.Identity and not layer.is_residual:
                self.outputs, self.d_outputs = z, dz
                break
            else:
                a, da = self.outputs, self.d_outputs = torch.empty_like(z), torch.empty_like(z)
            f = torch.empty_like(z) if layer.is_residual else a
            forward, d_activation = activate(layer.activation, z, f, da, dz)
            self.forward.append(forward)  # a = f(z)
            calls.insert(0, d_activation)  # dz = da f'(z)
            if layer.is_residual:
                self.forward.append(partial(torch.add, layer.rows(h), f, out=a))  # a = h + f(z)
                if dh is not None:
                    calls.append(partial(add_sum, layer.rows(dh), da))  # dA += da
        self.backward = list(chain.from_iterable(reversed(backward)))


class PassGradient(FlatGradient):
    """Loss and gradient by lists of calls, forward and backward, made once for a size of batch."""

    def __init__(self, *args, **kwargs):
        self.passes: dict[int, Any] = {}
        super().__init__(*args, **kwargs)

    @abstractmethod
    def new_pass(self, n_rows: int) -> Any:
        """Prepare the pass for batches of so many rows."""

    def forward(self, X: Tensor) -> Any:
        """Run the forward for rows (S, n, ...), and return the pass."""
        n_rows = X.shape[1]
        step = self.passes.get(n_rows)
        if step is None:
            step = self.passes[n_rows] = self.new_pass(n_rows)
        step.input.copy_(X)
        for call in step.forward:
            call()
        return step

    def __call__(self, X, targets, weight):
        n_rows = X.shape[1]
        step = self.forward(X)
        losses, d_outputs = self.objective.loss_and_gradient(step.outputs, targets)
        share = step.share  # of a row in the mean
        if weight is not None:
            losses = losses * weight
            share = (weight * share).view(-1, *[1] * (d_outputs.ndim - 3), n_rows, 1)
        torch.mul(d_outputs, share, out=step.d_outputs)
        for call in step.backward:
            call()
        self._add_penalties()
        return step.outputs, losses


class ClosedFormGradient(PassGradient):
    """Loss and gradient of a stack of perceptrons, see :func:`blocks_of`, without autograd."""

    name = "closed_form"

    def __init__(self, module: nn.Module, objective: object, weight_decay=(), n_epochs: int = 1):
        self.layers: list[Layer] = []
        n_axes = size = 0
        for block in blocks_of(module):
            # The heads' first layer reads the core's rows, shared; later layers have rows each.
            lead = block.linear.lead
            self.layers.append(Layer(block, size, is_shared=len(lead) == 2 and n_axes != 2))
            n_axes, size = len(lead), self.layers[-1].place.stop
        parameters = [p for layer in self.layers for p in layer.parameters]
        super().__init__(module, objective, weight_decay, n_epochs, parameters)

    @staticmethod
    def supports(module: nn.Module) -> bool:
        return bool(blocks_of(module))

    def views(self, flat: Tensor) -> list[Tensor]:
        blocks = [layer.by_network(layer.block(flat)) for layer in self.layers]
        return [view for W in blocks for view in (W[..., :-1, :], W[..., -1:, :])]

    def new_pass(self, n_rows: int) -> Pass:
        return Pass(self.layers, self.flat, self.d_flat, n_rows)

    @torch.no_grad()
    def outputs(self, X):
        return self.forward(X).outputs


def _network_of(module: nn.Module) -> TabM | None:
    """The members in a module, if they are those of a TabM without dropout."""
    network: Any = module.network if type(module) in (CategoricalStack, GaussianStack) else module
    if type(network) is not TabM or not all(
        type(layer) in (SharedLinear, *ELEMENTWISE) for layer in network.core
    ):
        return None
    return network


class SharedPass:
    """Forward and backward of all layers for batches of one size, in memory allocated once.

    A layer computes u = h r, y = u W, z = y s + b and a = f(z), the next layer's h; dX stands for
    the gradient with respect to X. All are (n, w), but r, s and b of a member (k, w). `values` and
    `gradients` are the places of each parameter, and of its gradient, in the flat buffers.
    """

    def __init__(self, network: TabM, values: dict, gradients: dict, n_rows: int):
        self.values, self.gradients = values, gradients
        self.k = network.n_members
        self.n_rows = n_rows + -n_rows % self.k
        layers: list[Any] = list(network.core)
        weight = values[layers[0].weight]
        self.share = weight.new_tensor([1 / n_rows])
        h, dh = weight.new_zeros(self.n_rows, weight.shape[1]), None
        self.input = h[None, :n_rows]
        self.forward: list[Callable[[], Any]] = []
        backward: list[list[Callable[[], Any]]] = []  # of each layer
        for layer, activation in zip(layers[::2], layers[1::2], strict=True):
            z, dz, linear_backward = self._linear(layer, h, dh)
            a, da = torch.empty_like(z), torch.empty_like(z)
            forward, d_activation = activate(activation, z, a, da, dz)
            self.forward.append(forward)  # a = f(z)
            backward.append([d_activation, *linear_backward])  # dz = da f'(z)
            h, dh = a, da
        backward.append(self._heads(network.heads, h, dh, n_rows))
        self.backward = list(chain.from_iterable(reversed(backward)))

    def _empty(self, width: int) -> Tensor:
        return self.share.new_empty(self.n_rows, width)

    def _by_member(self, rows: Tensor) -> Tensor:
        """View (n, w) as (g, k, w)."""
        return rows.unflatten(0, (-1, self.k))

    def _linear(self, layer: SharedLinear, h: Tensor, dh: Tensor | None) -> tuple:
        """Prepare a layer; return z, dz, and the calls that compute what follows from dz."""
        of, d_of, groups = self.values, self.gradients, self._by_member
        W, dW, b, db = of[layer.weight][0], d_of[layer.weight][0], of[layer.bias], d_of[layer.bias]
        y, dz = self._empty(W.shape[1]), self._empty(W.shape[1])
        u, z, dy = h, y, dz
        du: Any = dh
        calls: list[Callable[[], Any]] = []
        if layer.r is not None:
            u, du = torch.empty_like(h), torch.empty_like(h)
            self.forward.append(partial(torch.mul, groups(h), of[layer.r], out=groups(u)))
        if layer.s is None:
            self.forward.append(partial(torch.addmm, b[0], u, W, out=z))  # z = u W + b
            calls.append(partial(torch.sum, dz, 0, keepdim=True, out=db[0]))
        else:
            s, ds, z, dy = of[layer.s], d_of[layer.s], torch.empty_like(y), torch.empty_like(y)
            self.forward += [
                partial(torch.mm, u, W, out=y),
                partial(torch.addcmul, b, groups(y), s, out=groups(z)),  # z = y s + b
            ]
            calls += [
                partial(torch.sum, groups(dz), 0, keepdim=True, out=db),
                partial(torch.mul, dz, y, out=dy),
                partial(torch.sum, groups(dy), 0, keepdim=True, out=ds),  # ds = sum dz y
                partial(torch.mul, groups(dz), s, out=groups(dy)),  # dy = dz s
            ]
        calls.append(partial(torch.mm, u.T, dy, out=dW))  # dW = u^T dy
        if du is not None:
            calls.append(partial(torch.mm, dy, W.T, out=du))  # du = dy W^T
        if layer.r is not None:
            r, dr = of[layer.r], d_of[layer.r]
            # u has served its purpose in dW, and its memory is free.
            calls += [
                partial(torch.mul, du, h, out=u),
                partial(torch.sum, groups(u), 0, keepdim=True, out=dr),  # dr = sum du h
            ]
            if dh is not None:
                calls.append(partial(torch.mul, groups(du), r, out=groups(dh)))  # dh = du r
        return z, dz, calls

    def _heads(self, heads: Any, h: Tensor, dh: Any, n_rows: int) -> list[Callable[[], Any]]:
        """Prepare the members' output layers, (k, w, p); return the calls of the backward."""
        W, b = (self.values[p][0] for p in (heads.weight, heads.bias))
        dW, db = (self.gradients[p][0] for p in (heads.weight, heads.bias))
        outputs = self._empty(W.shape[-1])
        d_outputs = torch.zeros_like(outputs)
        self.outputs, self.d_outputs = outputs[None, :n_rows], d_outputs[None, :n_rows]
        rows = (h, dh, outputs, d_outputs)
        h, dh, o, do = (self._by_member(found).transpose(0, 1) for found in rows)
        self.forward.append(partial(torch.baddbmm, b, h, W, out=o))
        return [
            partial(torch.bmm, h.mT, do, out=dW),
            partial(torch.sum, do, 1, keepdim=True, out=db),
            partial(torch.bmm, do, W.mT, out=dh),
        ]


class SharedFormGradient(PassGradient):
    """Loss and gradient of a :class:`~skdistill.modules.TabM`, without autograd."""

    name = "closed_form"

    @staticmethod
    def supports(module: nn.Module) -> bool:
        return _network_of(module) is not None

    def new_pass(self, n_rows: int) -> SharedPass:
        network: Any = _network_of(self.module)
        values = dict(zip(self.parameters, self.values, strict=True))
        gradients = dict(zip(self.parameters, self.gradients, strict=True))
        return SharedPass(network, values, gradients, n_rows)
