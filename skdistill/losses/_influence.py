# SPDX-License-Identifier: BSD-3-Clause
"""A bound on what one row can do to the training of all others."""

from __future__ import annotations

from torch import Tensor


def logarithmic_beyond(loss: Tensor, limit: float) -> Tensor:
    """Loss that grows as its logarithm from a limit on: ``limit (1 + ln(loss / limit))``.

    A network's outputs for a row far from all others move a long way with each step, and a
    likelihood grows with their square, or exponentially: one such row outweighs all others by many
    orders of magnitude until the network is led back. Below the limit nothing is changed.

    Parameters
    ----------
    loss : Tensor
    limit : float
        Positive.

    Returns
    -------
    loss : Tensor
    """
    return loss.clamp(max=limit) + limit * _excess(loss, limit).log()


def logarithmic_beyond_and_gradient(
    loss: Tensor, gradient: Tensor, limit: float
) -> tuple[Tensor, Tensor]:
    """:func:`logarithmic_beyond` with its gradient, given those of the loss.

    Parameters
    ----------
    loss : Tensor of shape (..., n)
    gradient : Tensor of shape (..., n, p)
    limit : float

    Returns
    -------
    loss : Tensor of shape (..., n)
    gradient : Tensor of shape (..., n, p)
    """
    excess = _excess(loss, limit)
    return loss.clamp(max=limit) + limit * excess.log(), gradient / excess.unsqueeze(-1)


def _excess(loss: Tensor, limit: float) -> Tensor:
    """The loss in units of the limit, 1 below it."""
    return (loss / limit).clamp(min=1.0)
