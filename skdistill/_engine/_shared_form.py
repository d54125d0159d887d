# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of members that share weights, with forward and backward written out.

Rows of a minibatch stand in groups of k, one for each member: memory for (n, w) is also (g, k, w).
If they do not fill the last group, rows of zeros do, of whose outputs the gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..modules import ELEMENTWISE, CategoricalStack, GaussianStack, SharedLinear, TabM
from ._closed_form import PassGradient, activate


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
        (W, b), (dW, db) = (
            (found[heads.weight][0], found[heads.bias][0])
            for found in (self.values, self.gradients)
        )
        outputs = self._empty(W.shape[-1])
        d_outputs = torch.zeros_like(outputs)
        self.outputs, self.d_outputs = outputs[None, :n_rows], d_outputs[None, :n_rows]
        h, dh, o, do = (
            self._by_member(rows).transpose(0, 1) for rows in (h, dh, outputs, d_outputs)
        )
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
