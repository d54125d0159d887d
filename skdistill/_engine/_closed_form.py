# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of stacked perceptrons with forward and backward written out, without autograd.

A layer maps its inputs h to f(A W), a residual one to h + f(A W), with A = [h 1]: the last row of W
is the bias. The W of all layers lie one after the other in one flat buffer, their gradients in
another.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..modules import (
    ELEMENTWISE,
    CategoricalStack,
    GaussianStack,
    MultiHead,
    ResidualLayer,
    StackedLinear,
    StackedSequential,
)
from ._flat import FlatGradient

aten = torch.ops.aten

# Layers with fewer outputs than this are stored with their units first: BLAS multiplies matrices of
# a few columns five times as slowly as those of a few rows.
_NARROW = 8


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
        elif type(part) not in ELEMENTWISE or not blocks:
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
    """Place of one layer's W, of shape (B, fan_in + 1, width), in a flat buffer.

    B is the number of networks. Heads that share their rows count as one network, whose width is
    the number of heads times the outputs of each.
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

    def empty(self, like: Tensor, n_rows: int) -> Tensor:
        """Allocate memory for (B, n_rows, width)."""
        return self.matrices(like.new_empty(self.n_networks * n_rows * self.width), n_rows)

    def by_network(self, matrices: Tensor) -> Tensor:
        """View (B, n, width) as the module does, (*lead, n, n_outputs)."""
        if self.heads:
            return matrices.unflatten(-1, self.heads).movedim(-2, -3)
        return matrices.unflatten(0, self.lead)

    def rows(self, h: Tensor) -> Tensor:
        """View inputs (B, n, fan_in) as (*lead, n, fan_in), with M = 1 where heads share them."""
        return h.unsqueeze(-3) if self.heads else h.unflatten(0, self.lead)

    def views(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and biases in a flat buffer, shaped as the module's."""
        block = self.by_network(self.block(flat))
        return block[..., :-1, :], block[..., -1:, :]


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
            Z, dZ = layer.empty(flat, n_rows), layer.empty(flat, n_rows)
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
    """Loss and gradient by a forward and a backward that are prepared for each size of batch.

    A pass has lists of calls, ``forward`` and ``backward``, and where these find and leave what
    they compute: ``input``, ``outputs`` and ``d_outputs``; ``share`` is 1 / n for n rows.
    """

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
        return [view for layer in self.layers for view in layer.views(flat)]

    def new_pass(self, n_rows: int) -> Pass:
        return Pass(self.layers, self.flat, self.d_flat, n_rows)

    @torch.no_grad()
    def outputs(self, X):
        return self.forward(X).outputs
