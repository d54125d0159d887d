# SPDX-License-Identifier: BSD-3-Clause
"""Members as draws of one Gaussian process, with factors that are common to all rows.

S. Park, J. Lee, Y. Shin, I. Ohn and Y. Kim, "Knowledge Distillation of Uncertainty using Deep
Latent Factor Model" (2025), with a residual variance that depends on the row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ... import losses
from ..._method.task import Buffers, Task
from ..._utils.ranks import current_ranks
from ...distributions import (
    EmpiricalCategorical,
    EmpiricalGaussian,
    FactorProcess,
    Gaussian,
    GaussianNormal,
    LogitNormal,
)
from ._family import FamilyPlan, OfGaussians, OfProbabilities, Term
from ._gaussian import GaussianPlan
from ._zeros import without_zeros


@dataclass(frozen=True, eq=False)  # the == of arrays has no single truth value
class FactorPlan(FamilyPlan):
    """Outputs of the marginal at a row, then the raw loadings of p values on each factor.

    Parameters
    ----------
    n_factors : int or "auto", default="auto"
    scores : ndarray of shape (M, q), default=None
        Of the members on the factors, once these have predicted.
    """

    n_factors: Any = "auto"
    scores: np.ndarray | None = None

    can_be_displaced: ClassVar[bool] = False  # draws of it span all rows
    learns_from_members: ClassVar[bool] = True
    draws_functions: ClassVar[bool] = True

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        return super().of(parameters, task, n_factors=parameters.n_factors, **fields)

    def informed(self, predictions: Tensor, weight: Tensor) -> FamilyPlan:
        values = self.values(self.members(predictions))
        scores = losses.factor_scores(values, weight, self.n_factors).numpy()
        ranks = current_ranks()
        return replace(self, scores=scores if ranks is None else ranks.of_first(scores))

    def informed_as(self, fitted: Any) -> FamilyPlan:
        n_fitted = fitted.scores.shape[1]
        if self.n_factors not in ("auto", fitted.n_factors, n_fitted):
            raise ValueError(
                f"n_factors must be 'auto' or {n_fitted}, as in the fit that training goes on "
                f"from; got {self.n_factors!r}."
            )
        return replace(self, scores=fitted.scores)

    @property
    def n_loadings(self) -> int:
        """Number of factors q; before members have predicted, some number."""
        return 1 if self.scores is None else self.scores.shape[1]

    @property
    @abstractmethod
    def n_of_marginal(self) -> int:
        """Number of outputs for the marginal at a row."""

    @property
    def n_outputs(self) -> int:
        return self.n_of_marginal + self.n_loadings * self.size

    @abstractmethod
    def values(self, members: Any) -> Tensor:
        """Return the values of members' functions, (..., M, n, p), p being the size."""

    @abstractmethod
    def process(self, outputs: Tensor) -> FactorProcess:
        """Return the distribution of these functions, for outputs (1, n, n_outputs)."""

    @abstractmethod
    def marginal_term(self, members: Any) -> Term:
        """Return the loss of the outputs for the marginal."""

    @abstractmethod
    def of_functions(self, values: Tensor, outputs: Tensor) -> Any:
        """Return drawn functions, (S, n, p), as members."""

    def draw(
        self,
        outputs: Tensor,
        n_members: int,
        generator: torch.Generator,
        with_residual: bool,
        added: Tensor,
    ) -> Any:
        """Draw members for outputs (1, n, n_outputs), on the scale of the loss.

        To their functions are added values (n_members, n, p).
        """
        process = self.process(outputs)
        if self.members_agree:
            process = process._replace(
                loadings=torch.zeros_like(process.loadings),
                residual=torch.zeros_like(process.residual),
            )
        drawn = process.draw(n_members, generator, with_residual)
        return self.of_functions(drawn + added.to(drawn), outputs)

    def given(self, epoch: int) -> np.ndarray | None:
        """Return the members' scores (M, q), the same in every epoch."""
        return self.scores

    def term(self, members: Any, temperature: Tensor) -> Term:
        return self.term_given(torch.as_tensor(self.scores), members)

    def term_given(self, given: Tensor, members: Any) -> Term:
        target = losses.standardised_loadings(self.values(members), given)
        return Term(losses.with_loadings, (self.marginal_term(members), target))


@dataclass(frozen=True, eq=False)
class GaussianFactorPlan(FactorPlan, OfGaussians):
    """A Gaussian process of which the members' means are draws.

    Its marginal at a row is that of the family "gaussian".
    """

    settings: ClassVar[frozenset[str]] = frozenset({"n_factors"})

    @property
    def marginal(self) -> GaussianPlan:
        """The family of the marginal, whose spread is not to hold errors of the mean."""
        return GaussianPlan(self.task, loss="moments")

    @property
    def n_of_marginal(self) -> int:
        return self.marginal.n_outputs

    @property
    def meaning_of_outputs(self) -> str:
        return f"{self.marginal.meaning_of_outputs}, and a loading on each factor"

    def distribution(self, outputs: Tensor) -> GaussianNormal:
        return self.marginal.distribution(outputs[..., : self.n_of_marginal])

    def values(self, members: Gaussian) -> Tensor:
        return members.mean

    def process(self, outputs: Tensor) -> FactorProcess:
        marginal = self.distribution(outputs)
        loadings = outputs[..., self.n_of_marginal :].squeeze(0)
        return FactorProcess.of_shares(marginal.mean, marginal.conditional_variance, loadings)

    def of_functions(self, values: Tensor, outputs: Tensor) -> EmpiricalGaussian:
        aleatoric = self.distribution(outputs).uncertainty().aleatoric
        return EmpiricalGaussian(values, aleatoric.expand_as(values))

    def marginal_term(self, members: Gaussian) -> Term:
        return self.marginal.term(members, members.mean.new_ones(()))


@dataclass(frozen=True, eq=False)
class CategoricalFactorPlan(FactorPlan, OfProbabilities):
    """A Gaussian process of which the members' logits, less their mean over classes, are draws.

    Its marginal at a row is a logit-normal distribution.
    """

    smoothing: Any = 0.0  # "auto": none but where members have zeros
    n_samples: int = 100
    seed: int = 0

    has_members: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset({"n_factors", "n_samples", "smoothing"})

    @classmethod
    def of(cls, parameters: Any, task: Task, **fields: Any) -> FamilyPlan:
        own = {"smoothing": parameters.smoothing, "n_samples": parameters.n_samples}
        return super().of(parameters, task, **own, **fields)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        if self.smoothing == "auto":
            members = without_zeros(members)
        return super().encode_members(members, scaling, dtype)

    @property
    def n_of_marginal(self) -> int:
        return 2 * self.size

    @property
    def meaning_of_outputs(self) -> str:
        return f"an expectation, a raw variance and loadings for the logits of {self.size} classes"

    def values(self, members: Tensor) -> Tensor:
        smoothing = 0.0 if self.smoothing == "auto" else self.smoothing
        return losses.centred(pad(losses.relative_logits(members, smoothing), (0, 1)))

    def process(self, outputs: Tensor) -> FactorProcess:
        outputs = outputs.squeeze(0)
        mean, variance = Gaussian.from_outputs(outputs[:, : self.n_of_marginal])
        return FactorProcess.of_shares(mean, variance, outputs[:, self.n_of_marginal :])

    def distribution(self, outputs: Tensor) -> LogitNormal:
        """Distribution of the logits less that of the last class, whose residual is a factor."""
        mean, loadings, residual = self.process(outputs)
        last = residual[:, None, -1:].sqrt().expand(-1, 1, self.size - 1)
        factor = torch.cat((loadings[..., :-1] - loadings[..., -1:], -last), dim=1).mT
        mean = mean[:, :-1] - mean[:, -1:]
        return LogitNormal(mean, residual[:, :-1], factor, self.n_samples, self.seed)

    def expected(self, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(outputs[..., : self.size])

    def of_functions(self, values: Tensor, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(values)

    def marginal_term(self, members: Tensor) -> Term:
        return Term(losses.logit_moments, (losses.logit_target(self.values(members)),))
