# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the logits of a member (Lindqvist et al., 2020)."""

import copy
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from .. import losses
from .._utils.validation import AnyOf, Number, OneOf
from ..distributions import LogitNormal, latin_hypercube
from ._family import Family, without_zeros

_N_DRAWS = 32  # draws that stand for a student in an epoch of its training


@dataclass(eq=False, repr=False)
class LogitNormalFamily(Family):
    """A normal distribution over a member's logits less that of the last class.

    Equations are those of Lindqvist et al. (2020), of which it is Eqs 9 and 10.

    Parameters
    ----------
    covariance : "diagonal" or int, default="diagonal"
        Diagonal, or that plus a part of this rank.
    loss : {"auto", "moments", "nll"}, default="auto"
        ``"moments"``, what "auto" stands for with a diagonal covariance, matches mean and mutual
        information of draws (ours). ``"nll"`` is the likelihood of the members' logits (Eqs 7 and
        10), which alone can tell a covariance of low rank, and which does not train with many
        classes.
    smoothing : float, default="auto"
        As of :class:`DirichletFamily`; "auto" is 0, but ``loss="nll"`` mixes members with their
        mean where one of them gives a class a probability of exactly zero.
    n_samples : int, default=100
        How many draws stand for the distribution at prediction: the same for every sample, see
        :class:`skdistill.distributions.LogitNormal` for the error that is left.
    """

    kinds: ClassVar[tuple[str, ...]] = ("classifier",)
    name: ClassVar[str] = "logit_normal"
    has_members: ClassVar[bool] = True
    _parameter_table = {
        "covariance": AnyOf(OneOf(("diagonal",)), Number(Integral, 1)),
        "loss": OneOf(("auto", "moments", "nll")),
        "smoothing": Number(Real, 0, 1, closed="left", others=("auto",)),
        "n_samples": Number(Integral, 1),
    }

    covariance: str | int = "diagonal"
    loss: str = "auto"
    smoothing: float | str = "auto"
    n_samples: int = 100

    def for_task(self, task: Any) -> Family:
        super().for_task(task)
        if self.rank and self.loss == "moments":
            raise ValueError(
                "LogitNormalFamily: loss must be 'auto' or 'nll' with a covariance of low rank, "
                "which mean and mutual information do not tell; got 'moments'."
            )
        found = copy.copy(self)
        if self.loss == "auto":
            found.loss = "nll" if self.rank else "moments"
        return found

    @property
    def rank(self) -> int:
        """Rank of the part of the covariance that is not diagonal."""
        return 0 if self.covariance == "diagonal" else int(self.covariance)

    def prepare_members(self, members: np.ndarray) -> np.ndarray:
        mends_zeros = self.smoothing == "auto" and self.loss == "nll"
        return without_zeros(members) if mends_zeros else members

    def n_outputs(self, size: int) -> int:
        return (2 + self.rank) * (size - 1)

    def distribution(self, outputs: Tensor) -> LogitNormal:
        return LogitNormal.from_outputs(outputs, self.rank, self.n_samples, seed=0)

    def loss_and_gradient(
        self, outputs: Tensor, members: Tensor, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        smoothing = 0.0 if self.smoothing == "auto" else float(self.smoothing)
        if given is None:
            z = losses.relative_logits(members, smoothing)  # Eq 9
            if self.rank:
                return losses.low_rank_normal_nll.and_gradient(outputs, z)
            return losses.normal_nll.and_gradient(outputs, losses.normal_target(z))
        if smoothing:
            relative = losses.relative_logits(members, smoothing)
            members = pad(relative, (0, 1)).log_softmax(-1)
        known = losses.KnownCategories(members)
        return losses.logit_normal_moments.and_gradient(outputs, known, given)

    def given(self, epoch: int, size: int) -> np.ndarray | None:
        # Return standard normal draws (T, K - 1), others in every epoch.
        # To the same ones throughout the student would adapt itself, where members disagree widely.
        return None if self.loss == "nll" else latin_hypercube(_N_DRAWS, size - 1, epoch)
