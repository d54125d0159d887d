# SPDX-License-Identifier: BSD-3-Clause
"""Weights of a stack in one flat buffer and their gradient in another.

One call then updates all weights. Between epochs the weights are where they always are, in the
module: whoever listens to epochs sees nothing of this, and training may change from autograd to
this and back at any epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class FlatForm:
    """How a stack's loss and gradient are computed on flat buffers; subclasses do it.

    Parameters
    ----------
    module : nn.Module
        The stack.
    objective : Objective
        What is minimised.
    parameters : list of nn.Parameter
        All parameters of the module, in the order in which they lie in the buffers.
    weight_decay : list of (nn.Parameter, float), default=()
        L2 penalties on parameters of the module.

    Attributes
    ----------
    flat : nn.Parameter of shape (n_parameters,)
        All parameters of the module.
    d_flat : Tensor of shape (n_parameters,)
        Their gradient, also ``flat.grad``.
    values, gradients : list of Tensor
        Views of the two, in the shapes of the parameters.
    n_epochs : int
        How many there will be, as far as anybody knows.
    n_loads : int
        How many have begun.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Any,
        parameters: Sequence[nn.Parameter],
        weight_decay: Sequence[tuple[nn.Parameter, float]] = (),
    ):
        self.module = module
        self.objective = objective
        self.parameters = list(parameters)
        self.n_epochs = 1
        self.n_loads = 0
        size = sum(p.numel() for p in parameters)
        self.flat = nn.Parameter(parameters[0].new_zeros(size), requires_grad=False)
        self.flat.grad = self.d_flat = torch.zeros_like(self.flat)
        self.values, self.gradients = self.views(self.flat), self.views(self.d_flat)
        found = dict(weight_decay)
        decays = [found.get(p, 0.0) for p in self.parameters]
        self.decay: Tensor | float = decays[0]
        if len(set(decays)) > 1:
            self.decay = torch.zeros_like(self.flat)
            copy_each(self.views(self.decay), decays)

    @staticmethod
    def supports(module: nn.Module) -> bool:
        """Tell whether steps of `module` can be computed so."""
        raise NotImplementedError  # each form says

    def views(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat buffer at the places, and in the shapes, of the module's parameters."""
        pieces = flat.split([p.numel() for p in self.parameters])
        return [piece.view_as(p) for piece, p in zip(pieces, self.parameters, strict=True)]

    @torch.no_grad()
    def load(self) -> None:
        """Take the weights from the module."""
        self.n_loads += 1
        copy_each(self.values, self.parameters)
        self.has_penalty = self.objective.penalty(self.module) is not None

    @torch.no_grad()
    def store(self) -> None:
        """Put the weights into the module."""
        copy_each(self.parameters, self.values)

    def __call__(
        self, X: Tensor, targets: tuple[Tensor, ...], weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Set the gradient of the sum over members of the weighted mean over rows, and penalties.

        Returns
        -------
        outputs : Tensor of shape (*lead, n, n_outputs)
            Valid until the next call.
        losses : Tensor of shape (S, n)
            Weighted loss of each row.
        """
        raise NotImplementedError  # each form says

    @torch.no_grad()
    def outputs(self, X: Tensor) -> Tensor:
        """Outputs for rows (S or 1, n, ...) with the weights of the buffers, no gradient.

        Valid until the next call of this, or of the form itself.
        """
        raise NotImplementedError  # each form says

    def _add_penalties(self) -> None:
        # Of decay / 2 * sum of squares; one number for all weights takes half the time.
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


def copy_each(targets: Sequence[Tensor], sources: Sequence[Any]) -> None:
    """Copy each source, a tensor or a number, into its target."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source) if isinstance(source, Tensor) else target.fill_(source)
