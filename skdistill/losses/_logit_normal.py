# SPDX-License-Identifier: BSD-3-Clause
"""Loss of a logit-normal student by the probabilities of its draws; no closed form is known."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..distributions import Gaussian
from ._categorical import Categories, Members, categorical_aggregation, information_mismatch
from ._gaussian import gradient_of_outputs
from ._loss import Term, loss_with_gradient, weighted_sum


@loss_with_gradient
def logit_normal_moments(
    outputs: Tensor,
    members: Members,
    draws: Tensor,
    weight: float = 0.05,
    floor: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    r"""Mean and mutual information of the members, each matched by a term of its own.

    Draws :math:`z_s = \mu + \sigma \varepsilon_s` of the logits less that of the last class (Eqs 9
    and 10 of Lindqvist et al., 2020) are heads: it is the cross-entropy of their mean relative to
    the members' mean, plus w times the squared difference of the log mutual informations. Ours, not
    the paper's: the likelihood of the logits weighs those of impossible classes, which are many and
    of which members differ most, as it does those that matter.

    Outputs (..., n, 2 (K - 1)) are means and raw variances, members log probabilities (..., M, n,
    K), the draws (T, K - 1) standard normal and the same for every row.
    """
    mean, variance = (part.unsqueeze(-3) for part in Gaussian.from_outputs(outputs))
    noise, std = draws.unsqueeze(-2), variance.sqrt()
    heads = Categories(pad(torch.addcmul(mean, std, noise), (0, 1)))
    terms = (
        Term(categorical_aggregation, (members,)),
        Term(information_mismatch, (members, floor), weight),
    )
    loss, gradient = weighted_sum(terms, heads)
    d_logits = gradient[..., :-1]
    d_variance = (d_logits * noise).sum(-3) / (2 * std.squeeze(-3))
    return loss, gradient_of_outputs(outputs, Gaussian(d_logits.sum(-3), d_variance))
