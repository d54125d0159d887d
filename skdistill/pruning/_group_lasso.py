# SPDX-License-Identifier: BSD-3-Clause
"""The group lasso, which makes all weights that lead to a unit zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real

import torch
from torch import Tensor, nn

from .._utils.settings import Settings
from .._utils.validation import Number
from ._removal import places_of, unit_norms


def shrink(
    weights: Sequence[Tensor], amount: float | Tensor, n_lead: int = 0, *, inplace: bool = False
) -> list[Tensor]:
    """Shorten each unit's weights: the proximal step of the group lasso.

    It minimises :math:`\\tfrac12 \\lVert V - W \\rVert^2 + t \\sum_k \\lVert V_k \\rVert_2` over V.

    Parameters
    ----------
    weights : list of Tensor of shape (..., n_units, ...)
        The units' weights; several, where a unit has inputs in several layers.
    n_lead : int, default=0
        Number of leading axes, over members or heads.
    amount : float or Tensor
        By how much, t: the optimizer's step size times the strength of the penalty and, as in
        :class:`GroupLasso`, the square root of how many weights a unit has.
    inplace : bool, default=False
        Whether to change `weights` themselves.

    Returns
    -------
    weights : list of Tensor of shape (..., n_units, ...)
        Zero for units whose norm is at most `amount`.
    """
    norms = unit_norms(weights, n_lead)
    norms = norms.clamp_min(torch.finfo(norms.dtype).tiny)  # units that are zero stay zero
    factors = (norms - amount).clamp_min(0.0) / norms  # W max(0, 1 - t / ||W||)
    scale = Tensor.mul_ if inplace else torch.mul
    return [scale(w, factors.view(*factors.shape, *[1] * (w.ndim - n_lead - 1))) for w in weights]


@dataclass(eq=False, repr=False)
class GroupLasso(Settings):
    """How a student is made smaller: ``pruning=GroupLasso(...)`` of a distiller.

    Hidden units and filters that the group lasso has silenced while the student learnt are removed,
    and the student that is left trains on.

    Parameters
    ----------
    strength : float
        Weight of the group lasso, see :class:`ProximalStep`. With Adam try .01 to .3.
    threshold : float, default=1e-3
        Units whose weights have a smaller norm are removed. With a constant learning rate it has
        to be larger than the steps.
    finetune_epochs : int or "auto", default="auto"
        Number of epochs of training after pruning, without group lasso; "auto" is half of
        `max_epochs`.
    """

    _parameter_table = {
        "strength": Number(Real, 0, closed="neither"),
        "threshold": Number(Real, 0),
        "finetune_epochs": Number(Integral, 0, others=("auto",)),
    }

    strength: float
    _: KW_ONLY
    threshold: float = 1e-3
    finetune_epochs: int | str = "auto"

    @classmethod
    def of(cls, given: GroupLasso | None) -> GroupLasso | None:
        """Return what is given as ``pruning=``; None removes no units."""
        return given


class ProximalStep:
    """Proximal step of the group lasso, to be taken after each training step.

    Parameters
    ----------
    module : nn.Module
        What is trained: an ``nn.Sequential`` network, or a stack of such.
    strength : float
        Weight of the penalty, the sum over all units of the norm of their weights times the square
        root of their number [1]_.

    Raises
    ------
    ValueError
        If `strength` is not positive, or units of `module` cannot be removed, see :func:`prune`.

    Notes
    -----
    Each unit's weights are shortened by the learning rate times `strength` times the root of their
    number n. A step of Adam moves a unit by about the learning rate times the root of n, whatever
    the scale of the loss. So `strength` is the share of the steps that the penalty takes back, in
    all layers alike: try .01 to .3, and the less the more steps there are. Without the root, as
    GPED has it (Sec 3.3), units of few weights would go first, though they cost the least.

    References
    ----------
    .. [1] M. Yuan and Y. Lin, "Model selection and estimation in regression with grouped
       variables", Journal of the Royal Statistical Society B 68, 2006.
    """

    def __init__(self, module: nn.Module, strength: float):
        if not strength > 0:
            raise ValueError(f"strength must be a positive number, got {strength!r}.")
        self.strength = strength
        self._groups = places_of(module)
        self._names = {parameter: name for name, parameter in module.named_parameters()}

    @torch.no_grad()
    def bind(self, weights: Mapping[str, Tensor]) -> Callable[[float | Tensor], None]:
        """Return the proximal step for weights that lie in given tensors.

        Parameters
        ----------
        weights : dict of str to Tensor
            The module's parameters by name: ``dict(module.named_parameters())``, or tensors of the
            same shapes that hold the weights in training.

        Returns
        -------
        step : callable
            Takes the learning rate and shrinks the weights in place.
        """
        bound = [
            (group[0].n_lead, [place.of(weights[self._names[place.weight]]) for place in group])
            for group in self._groups
        ]

        @torch.no_grad()
        def step(lr: float | Tensor) -> None:
            for n_lead, units in bound:
                n_weights = sum(math.prod(w.shape[n_lead + 1 :]) for w in units)  # of a unit
                amount = self.strength * lr * n_weights**0.5
                shrink(units, amount, n_lead, inplace=True)

        return step
