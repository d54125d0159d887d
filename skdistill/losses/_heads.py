# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of members and heads, and how alike the weights of heads are."""

import torch
from torch import Tensor

Pairs = tuple[Tensor, Tensor]


def pairing(n_members: int, n_heads: int) -> tuple[Tensor, Tensor]:
    """Pairs of a member and the head that imitates it: member n goes to head n mod M.

    With more heads than members, head m imitates member m mod N. Returns the numbers of the members
    and those of their heads, each of shape (max(n_members, n_heads),).
    """
    pairs = torch.arange(max(n_members, n_heads))
    return pairs % n_members, pairs % n_heads


def at(values: Tensor, index: Tensor | None) -> Tensor:
    """Entries of the axis of members or heads; all of them for None."""
    return values if index is None else values.index_select(-3, index)


def diversity(weights: list[Tensor], reference: str = "mean", eps: float = 1e-8) -> Tensor:
    """L4 of Hydra+: how alike the heads' weights are (Hydra+, Eq 9).

    Summed over layers and heads as in Eq 9, but a mean over the units of a layer, so that its
    weight in the loss does not depend on their width: M for each layer of M identical heads.
    `weights` has a tensor (..., M, n_units, fan_in) for each layer of the heads.

    A unit's weights are compared with their "mean" over heads (Eq 9), or, "pairwise", with the same
    unit of every other head. Eq 9 has a degenerate minimiser, one long head against M - 1 equal
    ones; the pairwise form has not.
    """
    mean_cosine = _cosine_to_mean if reference == "mean" else _cosine_to_others
    n_heads = weights[0].shape[-3]
    layers = torch.stack([mean_cosine(weight, eps).mean(-1) for weight in weights])
    return (n_heads * (1.0 + layers) / 2.0).sum(0)  # Eq 9


def _cosine_to_mean(weight: Tensor, eps: float) -> Tensor:
    """Mean over heads of each unit's cosine with the heads' mean, of shape (..., n_units)."""
    mean = weight.mean(-3, keepdim=True)
    return torch.cosine_similarity(mean, weight, dim=-1, eps=eps).mean(-2)


def _cosine_to_others(weight: Tensor, eps: float) -> Tensor:
    """Mean of each unit's cosine over the M (M - 1) pairs of heads, of shape (..., n_units)."""
    n_heads = weight.shape[-3]
    unit = weight / weight.norm(dim=-1, keepdim=True).clamp_min(eps)
    # |sum of unit vectors|^2 = sum of their |.|^2 + sum of the cosines of the pairs.
    pairs: Tensor = unit.sum(-3).square().sum(-1) - unit.square().sum((-3, -1))
    return pairs / max(n_heads * (n_heads - 1), 1)
