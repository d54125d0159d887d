# SPDX-License-Identifier: BSD-3-Clause
"""The weights of a stack in one flat buffer and their gradient in another.

One call then updates all weights. Between epochs the weights are in the module, as always: a
callback that looks at the module after an epoch sees no difference, and training may change from
autograd to flat buffers and back at any epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class FlatGradient(ABC):
    """Computes a stack's loss and gradient on flat buffers; subclasses say how.

    `parameters` are all those of the module, in their order in the buffers; None is the module's
    own order. `weight_decay` has L2 penalties on some, as pairs (nn.Parameter, float).
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
        """Copy the weights from the buffer into the module."""
        copy_each(self.parameters, self.values)

    @abstractmethod
    def __call__(
        self, X: Tensor, targets: tuple[Tensor, ...], weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Set ``d_flat`` to the gradient of the objective for a minibatch, with all penalties.

        The objective is the sum over members of each member's weighted mean over rows. Returned are
        the outputs, (*lead, n, n_outputs), valid until the next call, and the weighted losses of
        the rows, (S, n).
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
