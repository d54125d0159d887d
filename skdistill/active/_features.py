# SPDX-License-Identifier: BSD-3-Clause
"""Sketched gradients of what a network predicts, with respect to its weights."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from .._estimator.batched import as_rows, check_rows
from .._estimator.unwrapping import innermost
from ..modules import (
    DistributionStack,
    GaussianStack,
    MultiHead,
    ResidualLayer,
    StackedLinear,
    StackedModule,
    StackedSequential,
    is_plain_sequential,
    unstack,
)

_CHUNK = 1024  # samples at a time: their intermediate values stay in the cache


class GradientSketch:
    r"""Random projections of the gradients of a network's predictions [1]_.

    The predictions are the means, of standardised targets, or the class probabilities. Two samples
    have alike features if a step of training on one changes the prediction for the other. The same
    projections serve all calls. With `in_half` features are divided by a number, the same in all
    calls, so that float16 holds them.

    For a layer :math:`z = W h + b` with d inputs and the gradient :math:`\delta` of the prediction
    with respect to z, the gradient with respect to the weights, in units of their initial scale, is
    the Kronecker product of :math:`\delta` and :math:`\tilde h = (h / \sqrt d, 1)`. Its sketch is
    :math:`(P \delta) \odot (Q \tilde h) / \sqrt k` with Gaussian matrices P and Q, and the features
    are the sum of the sketches of all layers (Section 3 of [1]_). Their inner products estimate
    those of the gradients, without bias and with a relative error of about :math:`1 / \sqrt k`.
    Other layers (convolutions, periodic embeddings) have no part in them.

    References
    ----------
    .. [1] Holzmüller, Zaverkin, Kästner & Steinwart (2023), "A Framework and Benchmark for Deep
           Batch Active Learning for Regression", JMLR 24.
    """

    def __init__(self, model: BaseEstimator, n_features: int, seed: int, in_half: bool = False):
        self.model, self.n_features, self.in_half, self.scale = model, n_features, in_half, 0.0
        # For each prediction and each layer the matrices P, (m, out, k), and Q, (1 or m, in + 1,
        # k), for m networks side by side; the last row of Q is that of the bias.
        self.projections: list[tuple[Tensor, Tensor]] = []
        self._generator = torch.Generator().manual_seed(seed)
        self._networks: dict[nn.Module, list[nn.Module]] = {}

    def __call__(self, X: Any) -> np.ndarray:
        """Return features (n, n_features), in float32, of samples."""
        estimator, X, _ = innermost(self.model, X, "module_", "active.select_batch")
        rows = check_rows(estimator, X, estimator._recipe.row_shape)
        features = np.empty((len(rows), self.n_features), np.float32)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            found = self._sketch(estimator.module_, as_rows(estimator.module_, rows, part))
            features[part] = found.cpu().numpy()
        if self.in_half:
            self.scale = self.scale or float(np.abs(features).max()) or 1.0
            features /= self.scale
            limit = float(np.finfo(np.float16).max)
            np.clip(features, -limit, limit, out=features)
        return features

    def _sketch(self, module: DistributionStack, x: Tensor) -> Tensor:
        with torch.no_grad():
            encoded = module.encode(x).unsqueeze(0)
        tape: list[tuple[Tensor, Tensor]] = []
        with torch.enable_grad():
            outputs = self._run(module.network, encoded, tape).flatten(0, -3)
            if isinstance(module, GaussianStack):
                means = module.read_mean(outputs)
            else:
                means = module.predicted(outputs).mean
        if not tape:
            raise ValueError(
                "model must have a network with fully connected layers, whose gradients are the "
                f"features; got {type(module.network).__name__}, which has none that are known."
            )
        features, places = x.new_zeros(len(x), self.n_features, dtype=torch.float32), 0
        for column in means.unbind(-1):
            deltas = torch.autograd.grad(
                column.sum(), [z for _, z in tape], retain_graph=True, materialize_grads=True
            )
            for (h, _), delta in zip(tape, deltas, strict=True):
                self._add_layer(features, places, h.flatten(0, -3), delta.flatten(0, -3))
                places += 1
        return features / self.n_features**0.5

    def _run(self, module: nn.Module, h: Tensor, tape: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return a network's outputs, and note inputs and outputs of fully connected layers.

        These are of shape (*lead, n, width), where the lead of inputs that networks share is 1.
        """
        if isinstance(module, MultiHead):
            return self._run(module.heads, self._run(module.core, h, tape).unsqueeze(1), tape)
        if isinstance(module, StackedModule):
            if module not in self._networks:
                self._networks[module] = unstack(module)
            n_axes, networks = len(module.lead), self._networks[module]
            inputs = h.expand(*module.lead, *h.shape[n_axes:]).flatten(0, n_axes - 1)
            found = [self._run(one, x, tape) for one, x in zip(networks, inputs, strict=True)]
            return torch.stack(found).unflatten(0, module.lead)
        if isinstance(module, StackedSequential) or is_plain_sequential(module):
            for layer in module.children():
                h = self._run(layer, h, tape)
            return h
        if isinstance(module, ResidualLayer):
            return h + module.activation(self._run(module.linear, h, tape))
        outputs: Tensor = module(h)
        if isinstance(module, StackedLinear) or (isinstance(module, nn.Linear) and h.ndim == 2):
            outputs = outputs if outputs.requires_grad else outputs.requires_grad_()
            tape.append((h.detach(), outputs) if h.ndim > 2 else (h.detach()[None], outputs[None]))
            return tape[-1][1] if h.ndim > 2 else tape[-1][1][0]
        return outputs

    def _add_layer(self, features: Tensor, place: int, h: Tensor, delta: Tensor) -> None:
        """Add the sketch of one layer, of inputs (1 or m, n, in) and gradients (m, n, out)."""
        h, delta = h.float() / h.shape[-1] ** 0.5, delta.float()
        if place == len(self.projections):
            sizes = (*delta.shape[::2], self.n_features), (len(h), h.shape[-1] + 1, self.n_features)
            drawn = (torch.randn(size, generator=self._generator) for size in sizes)
            P, Q = (matrix.to(h.device) for matrix in drawn)
            self.projections.append((P, Q))
        P, Q = self.projections[place]
        if len(h) == 1:  # networks that share their inputs are one wide layer
            delta, P = delta.transpose(0, 1).flatten(1)[None], P.flatten(0, 1)[None]
        for d, x, of_d, of_x in zip(delta, h, P, Q, strict=True):
            features.addcmul_(d @ of_d, torch.addmm(of_x[-1], x, of_x[:-1]))
