# SPDX-License-Identifier: BSD-3-Clause
"""Mixup: convex combinations of pairs of samples (Zhang et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import torch
from scipy.special import betaincinv
from torch import Tensor

from .._utils.validation import Number
from ._maker import Draw, TransferMaker, per_row


@dataclass(eq=False, repr=False)
class Mixup(TransferMaker):
    """Draw samples between two samples, with a random partner for each sample ([1]_, Eq 1).

    A new sample is ``lambda * x_i + (1 - lambda) * x_j`` with lambda from Beta(alpha, alpha) and j
    from all samples, in proportion to their weights. The teacher predicts for the new sample, so no
    labels are mixed.

    Parameters
    ----------
    alpha : float, default=1.0
        Both parameters of the Beta distribution: 1 is uniform on the line between two samples,
        smaller ones stay closer to its ends.
    categorical : None, mask or list of columns, default=None
        Columns, see :class:`TransferMaker`, that are not mixed: they come from that sample of the
        two whose share is the larger, all of them from the same.

    References
    ----------
    .. [1] Zhang, Cisse, Dauphin & Lopez-Paz (2018), "mixup: Beyond Empirical Risk Minimization".

    Examples
    --------
    >>> import torch
    >>> from skdistill.transfer import Mixup
    >>> X = torch.tensor([[0.0, 1.0], [1.0, 2.0]])
    >>> draw = Mixup(alpha=0.4).prepare(X)
    >>> new = draw(X, torch.arange(2), torch.Generator().manual_seed(0))
    >>> torch.allclose(new[:, 1] - new[:, 0], torch.ones(2))
    True
    """

    _parameter_table = {"alpha": Number(Real, 0, closed="neither")}

    alpha: float = 1.0
    categorical: object = None

    def prepare(self, X: Tensor, weight: Tensor | None = None) -> Draw:
        self.check(X.shape)
        alpha, is_categorical = self.alpha, self._is_categorical(X)

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Mix each sample with a random one of X."""
            n = index.numel()
            if weight is None:
                partner = torch.randint(len(X), (n,), generator=generator, device=X.device)
            else:
                partner = torch.multinomial(weight, n, replacement=True, generator=generator)
            others = X.index_select(0, partner).view_as(rows)
            # torch's Beta takes no generator: invert the distribution function.
            uniform = rows.new_empty(per_row(index, rows)).uniform_(generator=generator)
            lam = torch.from_numpy(betaincinv(alpha, alpha, uniform.double().cpu().numpy()))
            lam = lam.to(rows)
            mixed = torch.lerp(others, rows, lam)  # Eq 1
            if is_categorical is None:
                return mixed
            return torch.where(is_categorical, torch.where(lam >= 0.5, rows, others), mixed)

        return draw
