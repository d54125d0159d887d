# SPDX-License-Identifier: BSD-3-Clause
"""Training of stacked perceptrons with forward and backward written out, without autograd.

A layer maps its inputs h to f(A W) with A = [h 1], the last row of W being the bias. All the W lie
one after the other in one flat buffer and their gradients in another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ._flat import FlatForm
from .modules import CategoricalStack, GaussianStack, MultiHead, StackedLinear, StackedSequential

aten = torch.ops.aten

# Layers with fewer outputs than this are stored with their units first: BLAS multiplies matrices of
# a few columns five times as slowly as those of a few rows.
_NARROW = 8

_ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.SiLU, nn.GELU, nn.Identity)


def layers_of(module: nn.Module) -> list[tuple[StackedLinear, nn.Module]]:
    """Linear layers of a stack in their order, each with its activation; none if not supported."""
    network = module.network if type(module) in (CategoricalStack, GaussianStack) else module
    parts: list[Any] = [network]
    if type(network) is MultiHead:
        parts = [network.core, network.heads]
    leads = [len(part.lead) for part in parts if type(part) is StackedSequential]
    if leads != [1, 2][: len(parts)]:
        return []
    layers: list[tuple[StackedLinear, nn.Module]] = []
    for part in chain.from_iterable(parts):
        if type(part) is StackedLinear:
            layers.append((part, nn.Identity()))
        elif type(part) not in _ACTIVATIONS or not layers:
            return []
        elif type(part) is not nn.Identity:
            linear, activation = layers[-1]
            if type(activation) is not nn.Identity:
                return []
            layers[-1] = linear, part
    return layers


def activate(
    layer: nn.Module, z: Tensor, a: Tensor, da: Tensor, dz: Tensor
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Calls that compute a = f(z), and dz = da f'(z)."""
    match layer:
        case nn.ReLU():  # max(z, 0), slope [z > 0]
            return (
                partial(torch.clamp_min, z, 0, out=a),
                partial(aten.threshold_backward.grad_input, da, z, 0, grad_input=dz),
            )
        case nn.Tanh():  # slope 1 - a^2
            return (
                partial(torch.tanh, z, out=a),
                partial(aten.tanh_backward.grad_input, da, a, grad_input=dz),
            )
        case nn.SiLU():  # z s with s = sigmoid(z), slope s (1 + z (1 - s))
            return (
                partial(aten.silu.out, z, out=a),
                partial(aten.silu_backward.grad_input, da, z, grad_input=dz),
            )
        case nn.GELU():  # z Phi(z), slope Phi(z) + z phi(z)
            form = {"approximate": layer.approximate}
            return (
                partial(aten.gelu.out, z, **form, out=a),
                partial(aten.gelu_backward.grad_input, da, z, **form, grad_input=dz),
            )
    return partial(a.copy_, z), partial(dz.copy_, da)


def product(a: Tensor, b: Tensor, out: Tensor) -> Callable[[], Any]:
    """Call that computes out = a b, of shapes (B, m, k), (B, k, n) and (B, m, n)."""
    if out.stride(-1) != 1:  # stored transposed: out^T = b^T a^T
        a, b, out = b.mT, a.mT, out.mT
    if len(out) == 1:
        return partial(torch.mm, a[0], b[0], out=out[0])
    return partial(torch.bmm, a, b, out=out)


class Layer:
    """Place of one layer's W, of shape (B, fan_in + 1, width), in a flat buffer.

    B is the number of networks; heads that share their rows are one network, width their number
    times their outputs.
    """

    def __init__(self, linear: StackedLinear, activation: nn.Module, start: int, is_shared: bool):
        *self.lead, self.fan_in, n_outputs = linear.weight.shape
        self.parameters = (linear.weight, linear.bias)
        self.activation = activation
        self.heads = (self.lead[-1], n_outputs) if is_shared else None
        self.width = math.prod(self.heads or (n_outputs,))
        self.n_networks = math.prod(self.lead[:-1] if is_shared else self.lead)
        self.place = slice(start, start + self.n_networks * (self.fan_in + 1) * self.width)

    def block(self, flat: Tensor) -> Tensor:
        """W in a flat buffer, (B, fan_in + 1, width)."""
        return self.matrices(flat[self.place], self.fan_in + 1)

    def matrices(self, memory: Tensor, n_rows: int) -> Tensor:
        """View memory as (B, n_rows, width), in the order in which it is multiplied fast."""
        if self.width < _NARROW:
            return memory.view(self.n_networks, self.width, n_rows).mT
        return memory.view(self.n_networks, n_rows, self.width)

    def by_network(self, matrices: Tensor) -> Tensor:
        """View (B, n, width) as the module does, (*lead, n, n_outputs)."""
        if self.heads:
            return matrices.unflatten(-1, self.heads).movedim(-2, -3)
        return matrices.unflatten(0, self.lead)

    def views(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and biases in a flat buffer, shaped as the module's."""
        block = self.by_network(self.block(flat))
        return block[..., :-1, :], block[..., -1:, :]


class Pass:
    """Forward and backward of all layers for batches of one size, in memory of its own.

    For every layer A = [h 1] is (B, n, fan_in + 1), with the column of ones filled in for good, and
    Z = A W is (B, n, width); z, a = f(z) are the same memory in the module's shapes. dX stands for
    the gradient with respect to X, and dA is that of h alone.
    """

    def __init__(self, layers: Sequence[Layer], flat: Tensor, d_flat: Tensor, n_rows: int):
        self.forward: list[Callable[[], Any]] = []
        self.backward: list[Callable[[], Any]] = []  # in the order of the layers

        def empty(layer: Layer) -> Tensor:
            return layer.matrices(flat.new_empty(layer.n_networks * n_rows * layer.width), n_rows)

        A = flat.new_ones(layers[0].n_networks, n_rows, layers[0].fan_in + 1)
        dA = None
        self.input = A[..., :-1]
        self.share = flat.new_tensor([1 / n_rows])
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            W, dW = layer.block(flat), layer.block(d_flat)
            Z, dZ = empty(layer), empty(layer)
            self.forward.append(product(A, W, out=Z))  # Z = A W
            if dA is not None:
                self.backward.append(product(dZ, W[:, :-1].mT, out=dA))  # dA = dZ W^T
            self.backward.append(product(A.mT, dZ, out=dW))  # dW = A^T dZ
            z, dz = layer.by_network(Z), layer.by_network(dZ)
            if following is not None:
                A = flat.new_ones(following.n_networks, n_rows, following.fan_in + 1)
                dA = torch.empty_like(A[..., :-1]) if layer.heads else dZ
                a, da = (rows.unflatten(0, layer.lead) for rows in (A[..., :-1], dA))
            elif type(layer.activation) is nn.Identity:
                self.outputs, self.d_outputs = z, dz
                break
            else:
                a, da = self.outputs, self.d_outputs = torch.empty_like(z), torch.empty_like(z)
            forward, backward = activate(layer.activation, z, a, da, dz)
            self.forward.append(forward)  # a = f(z)
            self.backward.append(backward)  # dz = da f'(z)
        self.backward.reverse()


class ClosedForm(FlatForm):
    """Loss and gradient of a stack of perceptrons, without autograd.

    Parameters
    ----------
    module, objective, weight_decay
        See :class:`FlatForm`; `module` is a stack for which :func:`layers_of` finds layers.
    """

    def __init__(self, module: nn.Module, objective: Any, weight_decay=()):
        self.layers: list[Layer] = []
        n_axes = size = 0
        for linear, activation in layers_of(module):
            # Heads share the rows that come from the core; what is above has rows of its own.
            is_shared = len(linear.lead) == 2 and n_axes != 2
            self.layers.append(Layer(linear, activation, size, is_shared))
            n_axes, size = len(linear.lead), self.layers[-1].place.stop
        self.passes: dict[int, Pass] = {}
        parameters = [p for layer in self.layers for p in layer.parameters]
        super().__init__(module, objective, parameters, weight_decay)

    @staticmethod
    def supports(module: nn.Module) -> bool:
        return bool(layers_of(module))

    def views(self, flat: Tensor) -> list[Tensor]:
        return [view for layer in self.layers for view in layer.views(flat)]

    def __call__(self, X, targets, weight):
        n_rows = X.shape[1]
        step = self.passes.get(n_rows)
        if step is None:
            step = self.passes[n_rows] = Pass(self.layers, self.flat, self.d_flat, n_rows)
        step.input.copy_(X)
        for call in step.forward:
            call()
        losses, d_outputs = self.objective.loss_and_gradient(step.outputs, targets)
        share = step.share  # of the mean over rows
        if weight is not None:
            losses = losses * weight
            share = (weight * share).view(-1, *[1] * (d_outputs.ndim - 3), n_rows, 1)
        torch.mul(d_outputs, share, out=step.d_outputs)
        for call in step.backward:
            call()
        self._add_penalties()
        return step.outputs, losses
