# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the logits of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from ... import losses
from ..._method.task import Buffers, Task
from ...distributions import EmpiricalCategorical, LogitNormal, latin_hypercube
from ._family import FamilyPlan, OfProbabilities, Term
from ._zeros import without_zeros

# Draws that stand for a student in an epoch of its training.
_N_DRAWS = 32


@dataclass(frozen=True)
class LogitNormalPlan(OfProbabilities):
    """A normal distribution over the logits less that of the last class (Eqs 9 and 10)."""

    rank: int = 0
    smoothing: Any = 0.0  # "auto": none but where members have zeros
    n_samples: int = 100
    seed: int = 0
    loss: str = "nll"

    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"covariance", "loss", "n_samples", "smoothing"})
    known_losses: ClassVar[tuple[str, ...]] = ("moments", "nll")

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        if parameters.covariance == "full":
            raise ValueError(
                "covariance must be 'diagonal' or the rank of its part of low rank with "
                "family='logit_normal', got 'full'."
            )
        rank = 0 if parameters.covariance == "diagonal" else int(parameters.covariance)
        loss = cls.loss_of(parameters)
        if rank and parameters.loss == "moments":
            raise ValueError(
                "loss must be 'auto' or 'nll' with family='logit_normal' and a covariance of low "
                "rank, which mean and mutual information do not tell; got 'moments'."
            )
        own = {
            "rank": rank,
            "loss": "nll" if rank else loss,
            "smoothing": parameters.smoothing,
            "n_samples": parameters.n_samples,
        }
        return super().of(parameters, task, **own, **fields)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        if self.smoothing == "auto" and self.loss == "nll":
            members = without_zeros(members)
        return super().encode_members(members, scaling, dtype)

    @property
    def n_outputs(self) -> int:
        return (2 + self.rank) * (self.size - 1)

    @property
    def meaning_of_outputs(self) -> str:
        factor = f" and {self.rank} column(s) of the covariance's factor" if self.rank else ""
        return f"expectations, raw variances{factor} of {self.size} - 1 relative logits"

    def distribution(self, outputs: Tensor) -> LogitNormal:
        return LogitNormal.from_outputs(outputs, self.rank, self.n_samples, self.seed)

    def expected(self, outputs: Tensor) -> EmpiricalCategorical:
        logits = outputs[..., : self.size - 1]
        return EmpiricalCategorical.from_logits(pad(logits, (0, 1)))  # Eq 9

    def term(self, members: Tensor, temperature: Tensor) -> Term:
        smoothing = 0.0 if self.smoothing == "auto" else self.smoothing
        z = losses.relative_logits(members, smoothing)  # Eq 9
        if self.rank:
            return Term(losses.low_rank_normal_nll, (z,))
        return Term(losses.normal_nll, (losses.normal_target(z),))

    def given(self, epoch: int) -> np.ndarray | None:
        """Return standard normal draws (T, K - 1), others in every epoch.

        To the same ones throughout the student would adapt itself, where members disagree widely.
        """
        if self.loss == "nll":
            return None
        return latin_hypercube(_N_DRAWS, self.size - 1, self.seed + epoch)

    def term_given(self, given: Tensor, members: Tensor) -> Term:
        if self.smoothing not in ("auto", 0):
            relative = losses.relative_logits(members, self.smoothing)
            members = pad(relative, (0, 1)).log_softmax(-1)
        return Term(losses.logit_normal_moments, (losses.KnownCategories(members), given))
