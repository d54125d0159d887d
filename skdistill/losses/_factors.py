# SPDX-License-Identifier: BSD-3-Clause
"""Factors of the members' disagreement, and losses of a student that predicts their loadings.

The model is that of :class:`skdistill.distributions.FactorProcess`. The paper estimates it by EM on
minibatches; here the members' scores z are found once, from the M x M matrix of their residuals,
before training, and with them the M-step is a loss of each sample by itself. Members stand on the
axis before the samples: (..., M, n, p). Residuals are a member's values less their mean over
members, in units of their standard deviation over members at that sample.
"""

import torch
from torch import Tensor

from ._loss import Term, loss_with_gradient

_AGREEMENT = 1e-12  # variance of members, on standardised targets or in nats^2, that is rounding
_LEAST_SHARE = 0.05  # of the members' spread, that a factor must explain to be one by "auto"


def standardised_residuals(values: Tensor) -> Tensor:
    """Residuals of the members' values, (..., M, n, p), with variance 1; 0 where members agree."""
    variance, mean = torch.var_mean(values, dim=-3, correction=0, keepdim=True)
    return (values - mean) / (variance + _AGREEMENT).sqrt()


def factor_scores(
    values: Tensor, weight: Tensor | None = None, n_factors: int | str = "auto"
) -> Tensor:
    """Scores z (M, q) of the members on the factors of their disagreement, in float64.

    They are eigenvectors of the members' M x M matrix of products of residuals, averaged over rows
    and values (M, n, p), those that explain most first: ``scores.T @ scores / M`` is the identity,
    but for zeros where there is no spread left to explain. "auto" keeps the factors that explain at
    least a twentieth of the spread each.
    """
    residuals = standardised_residuals(values.double())
    if weight is not None:
        residuals = residuals * (weight.to(residuals) / weight.sum()).sqrt().unsqueeze(-1)
    n_members = len(residuals)
    products = torch.einsum("inp,jnp->ij", residuals, residuals)
    explained, vectors = (part.flip(-1) for part in torch.linalg.eigh(products))
    # The signs are arbitrary, and may be others on another machine.
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    vectors = vectors * largest.sign()
    total = explained.sum()
    is_spread = explained > torch.finfo(explained.dtype).eps * n_members * total
    if n_factors == "auto":
        n_factors = int((is_spread & (explained >= _LEAST_SHARE * total)).sum())
    n_kept = max(1, min(int(n_factors), n_members - 1))
    factors: Tensor = n_members**0.5 * (vectors * is_spread)[:, :n_kept]
    return factors


def standardised_loadings(values: Tensor, scores: Tensor) -> Tensor:
    """Loadings (..., n, q, p) of the standardised residuals on scores (M, q), by least squares.

    Their sum of squares over factors is the share of the variance that these explain.
    """
    residuals = standardised_residuals(values)
    return torch.einsum("...inp,iq->...nqp", residuals, scores.to(residuals)) / len(scores)


@loss_with_gradient
def loadings_nll(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean negative log density of the standardised residuals, given the members' scores.

    With :math:`u = w / \sqrt{1 + |w|^2}` for outputs w (..., n, q p), residuals of variance 1 are
    normal with mean :math:`u^T z` and variance :math:`1 - |u|^2`: what the student cannot follow of
    the loadings is left to the residual variance, and none of the sample's variance is lost. The
    minimiser is where u equals the target (..., n, q, p), see ``standardised_loadings``.
    """
    raw = outputs.unflatten(-1, target.shape[-2:])
    square = raw.square().sum(-2, keepdim=True)
    product = (raw * target).sum(-2, keepdim=True)
    root = (1 + square).sqrt()
    # (1 - 2 u.target + |u|^2) / (1 - |u|^2) + log(1 - |u|^2), halved
    loss = 0.5 + square - root * product - 0.5 * square.log1p()
    gradient = (2 - product / root - 1 / (1 + square)) * raw - root * target
    return loss.sum((-2, -1)), gradient.flatten(-2)


@loss_with_gradient
def with_loadings(outputs: Tensor, marginal: Term, target: Tensor) -> tuple[Tensor, Tensor]:
    """A loss of the marginal at a sample, by the first outputs, plus ``loadings_nll``."""
    n_loadings = target.shape[-2] * target.shape[-1]
    first, loadings = outputs.split([outputs.shape[-1] - n_loadings, n_loadings], dim=-1)
    loss, gradient = marginal.loss.and_gradient(first, *marginal.arguments)
    more, slope = loadings_nll.and_gradient(loadings, target)
    return loss + more, torch.cat((gradient, slope), dim=-1)
