# SPDX-License-Identifier: BSD-3-Clause
"""Losses of posterior expectations: outputs of shape (..., n, k) and targets of the same shape.

A link maps a network's outputs to the values that a loss compares with the target. Each has a name
and a derivative in closed form; the chain rule combines any two.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ._categorical import cross_entropy
from ._loss import loss_with_gradient

_FLOOR = 1e-6  # added to both values of a ratio
_LIMITS = (-20.0, 40.0)  # "exp" clips outputs to these; its gradient still leads them back


def _gamma(value: Tensor, target: Tensor) -> Tensor:
    ratio = (target + _FLOOR) / (value + _FLOOR)
    return ratio - ratio.log() - 1


# Loss of each value v and target t, and its derivative in v.
_LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "absolute": (lambda v, t: (v - t).abs(), lambda v, t: (v - t).sign()),
    "squared": (lambda v, t: (v - t).square(), lambda v, t: 2 * (v - t)),
    "gamma": (_gamma, lambda v, t: (v - t) / (v + _FLOOR).square()),
    "cross_entropy": (lambda v, t: -torch.xlogy(t, v), lambda v, t: -t / v),
    "binary_cross_entropy": (
        lambda v, t: -torch.xlogy(t, v) - torch.xlogy(1 - t, 1 - v),
        lambda v, t: (v - t) / (v * (1 - v)),
    ),
}

# Values v of outputs, and the gradient in the outputs, given that in the values, d.
_LINKS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "identity": (lambda z: z, lambda v, d: d),
    "exp": (lambda z: z.clamp(*_LIMITS).exp_(), lambda v, d: d * v),
    "softplus": (softplus, lambda v, d: d * -torch.expm1(-v)),
    "sigmoid": (torch.sigmoid, lambda v, d: d * v * (1 - v)),
    "softmax": (lambda z: z.softmax(-1), lambda v, d: v * (d - (v * d).sum(-1, keepdim=True))),
}

EXPECTATION_LOSSES = tuple(_LOSSES)
EXPECTATION_LINKS = tuple(_LINKS)


def linked(outputs: Tensor, link: str) -> Tensor:
    """Values that outputs stand for by a link, such as "exp", which clips outputs to [-20, 40]."""
    return _LINKS[link][0](outputs)


@loss_with_gradient
def expectation_loss(
    outputs: Tensor, target: Tensor, loss: str, link: str
) -> tuple[Tensor, Tensor]:
    """Loss (..., n) of estimates of a posterior expectation, by the names of a loss and a link.

    It is summed over the k values; :class:`skdistill.expectations.Expectation` describes both.
    """
    if (loss, link) == ("cross_entropy", "softmax"):  # whose logarithm must not underflow
        return cross_entropy.and_gradient(outputs, target)
    if (loss, link) == ("binary_cross_entropy", "sigmoid"):  # nor these
        loss_of_values = softplus(outputs) - target * outputs
        return loss_of_values.sum(-1), outputs.sigmoid() - target
    (value_of, back), (loss_of, slope_of) = _LINKS[link], _LOSSES[loss]
    values = value_of(outputs)
    return loss_of(values, target).sum(-1), back(values, slope_of(values, target))
