# SPDX-License-Identifier: BSD-3-Clause
"""A normal distribution over the logits of a member (Lindqvist et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from ... import losses
from ..._tasks import Buffers, Task
from ...distributions import EmpiricalCategorical, LogitNormal
from ._family import FamilyPlan, OfProbabilities, Term
from ._zeros import without_zeros


@dataclass(frozen=True)
class LogitNormalPlan(OfProbabilities):
    """A normal distribution over the logits less that of the last class (Eqs 9 and 10)."""

    rank: int = 0
    smoothing: Any = 0.0  # "auto": none but where members have zeros
    n_samples: int = 100
    seed: int = 0

    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"covariance", "smoothing", "n_samples"})

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        if parameters.covariance == "full":
            raise ValueError(
                "covariance must be 'diagonal' or the rank of its part of low rank with "
                "family='logit_normal', got 'full'."
            )
        rank = 0 if parameters.covariance == "diagonal" else int(parameters.covariance)
        own = {"rank": rank, "smoothing": parameters.smoothing, "n_samples": parameters.n_samples}
        return super().of(parameters, task, **own, **fields)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        if self.smoothing == "auto":
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
