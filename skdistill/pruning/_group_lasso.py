# SPDX-License-Identifier: BSD-3-Clause
"""The group lasso, which makes all weights that lead to a unit zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real

import torch
from torch import Tensor, nn

from .._utils.validation import Number, OneOf, Settings
from ._removal import unit_norms, units_of


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
        :class:`ProximalStep`, the square roots of how many weights a unit has and what it costs.
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

    Hidden units and filters that the group lasso has silenced while the student learnt are removed.
    Into the student that is left the teacher is distilled again, with the learning rate and the
    schedule of any fit.

    Parameters
    ----------
    strength : float
        Weight of the group lasso, see :class:`ProximalStep`. With Adam try .01 to .3.
    threshold : float, default=1e-3
        Units whose weights have a smaller norm are removed. With a constant learning rate it has
        to be larger than the steps.
    finetune_epochs : int or "auto", default="auto"
        Number of epochs of training after pruning, without group lasso; "auto" is as many as
        before.
    restart : bool, default=False
        Whether this training begins with new weights. Few epochs with a strong penalty leave
        weights from which a student learns less than from new ones; many leave better ones.
    weighted : bool, default=True
        Whether the norm of a unit's weights counts by their number and the unit's cost, see
        :class:`ProximalStep`. False is the penalty of GPED, R in Sec 3.3.
    """

    _parameter_table = {
        "strength": Number(Real, 0, closed="neither"),
        "threshold": Number(Real, 0),
        "finetune_epochs": Number(Integral, 0, others=("auto",)),
        "restart": OneOf((False, True)),
        "weighted": OneOf((True, False)),
    }

    strength: float
    _: KW_ONLY
    threshold: float = 1e-3
    finetune_epochs: int | str = "auto"
    restart: bool = False
    weighted: bool = True

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
        roots of their number [1]_ and of what the unit costs.
    weighted : bool, default=True
        Whether these roots are factors.

    Raises
    ------
    ValueError
        If `strength` is not positive, or units of `module` cannot be removed, see :func:`prune`.

    Notes
    -----
    Each unit's weights are shortened by the learning rate times `strength` times
    :math:`\\sqrt{n c}`, where n is their number and c the unit's cost: the number of weights that
    go with it, its own and those of the next layer that read it, over the mean of this number over
    all units. A step of Adam moves a unit by about the learning rate times the root of n, whatever
    the scale of the loss. So `strength` is the share of the steps that the penalty takes back, of
    units of mean cost: try .01 to .3, and the less the more steps there are. Without n, as GPED has
    it (Sec 3.3, ``weighted=False``), units of few weights go first, though they cost the least.
    With c those go first that cost the most, as with the penalties of MorphNet [2]_, which are
    proportional to it.

    References
    ----------
    .. [1] M. Yuan and Y. Lin, "Model selection and estimation in regression with grouped
       variables", Journal of the Royal Statistical Society B 68, 2006.
    .. [2] A. Gordon, E. Eban, O. Nachum, B. Chen, H. Wu, T.-J. Yang and E. Choi, "MorphNet: Fast &
       simple resource-constrained structure learning of deep networks", CVPR 2018.
    """

    def __init__(self, module: nn.Module, strength: float, weighted: bool = True):
        if not strength > 0:
            raise ValueError(f"strength must be a positive number, got {strength!r}.")
        self.strength = strength
        self.weighted = weighted
        self._units = units_of(module)
        n_units = [units.shape.numel() for units in self._units]
        n_weights = [units.n_weights for units in self._units]
        mean_cost = sum(n_weights) / max(sum(n_units), 1)
        self._costs = [
            n / units / mean_cost for n, units in zip(n_weights, n_units, strict=True)
        ]  # c of a unit
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
        bound = []
        for units, cost in zip(self._units, self._costs, strict=True):
            n_lead = units.own[0].n_lead
            own = [place.of(weights[self._names[place.weight]]) for place in units.own]
            n_weights = sum(math.prod(w.shape[n_lead + 1 :]) for w in own)  # of a unit
            factor = self.strength * (math.sqrt(n_weights * cost) if self.weighted else 1.0)
            bound.append((own, factor, n_lead))

        @torch.no_grad()
        def step(lr: float | Tensor) -> None:
            for own, factor, n_lead in bound:
                shrink(own, factor * lr, n_lead, inplace=True)

        return step
