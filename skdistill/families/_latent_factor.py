# SPDX-License-Identifier: BSD-3-Clause
"""Members as draws of one Gaussian process, with factors that are common to all samples.

S. Park, J. Lee, Y. Shin, I. Ohn and Y. Kim, "Knowledge Distillation of Uncertainty using Deep
Latent Factor Model" (2025), with a residual variance that depends on the sample.
"""

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import losses
from .._utils.ranks import current_ranks
from .._utils.validation import Number
from ..distributions import (
    EmpiricalCategorical,
    EmpiricalGaussian,
    FactorProcess,
    Gaussian,
    GaussianNormal,
    LogitNormal,
)
from ._family import Family, NumericFamily, without_zeros
from ._gaussian import GaussianFamily


class Factors(Family):
    """Outputs of the marginal at a sample, then the raw loadings of p values on each factor.

    `scores` (M, q) are those of the members on the factors, once these have predicted.
    """

    takes_functions: ClassVar[bool] = False  # draws of it span all samples
    n_of_marginal: ClassVar[int]  # outputs for each value
    n_factors: Any
    scores: np.ndarray | None = None

    def informed(self, members: Any, weight: Tensor) -> Family:
        scores = losses.factor_scores(self._values(members), weight, self.n_factors).numpy()
        ranks = current_ranks()
        return self._with_scores(scores if ranks is None else ranks.of_first(scores))

    def informed_as(self, fitted: Any) -> Family:
        n_fitted = fitted.scores.shape[1]
        if self.n_factors not in ("auto", fitted.n_factors, n_fitted):
            raise ValueError(
                f"LatentFactorFamily: n_factors must be 'auto' or {n_fitted}, as in the fit that "
                f"training goes on from; got {self.n_factors!r}."
            )
        return self._with_scores(fitted.scores)

    def _with_scores(self, scores: np.ndarray) -> Family:
        return type(self)(**{**self.get_params(deep=False), "scores": scores})

    @property
    def n_loadings(self) -> int:
        """Number of factors q; before members have predicted, some number."""
        return 1 if self.scores is None else self.scores.shape[1]

    def n_outputs(self, size: int) -> int:
        return (self.n_of_marginal + self.n_loadings) * size

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Split outputs (1, n, p) into those of the marginal and raw loadings (n, .)."""
        size = outputs.shape[-1] // (self.n_of_marginal + self.n_loadings)
        marginal, loadings = outputs.tensor_split([self.n_of_marginal * size], dim=-1)
        return marginal, loadings.squeeze(0)

    @abstractmethod
    def _values(self, members: Any) -> Tensor:
        """Return the values of members' functions, (..., M, n, p), p being the size."""

    @abstractmethod
    def process(self, outputs: Tensor) -> FactorProcess:
        """Return the distribution of these functions.

        Parameters
        ----------
        outputs : Tensor of shape (1, n, n_outputs)

        Returns
        -------
        process : FactorProcess
        """

    @abstractmethod
    def _term(self, members: Any) -> losses.Term:
        """Return the loss of the outputs for the marginal."""

    @abstractmethod
    def of_functions(self, values: Tensor, outputs: Tensor) -> Any:
        """Return drawn functions as members.

        Parameters
        ----------
        values : Tensor of shape (S, n, p)
        outputs : Tensor of shape (1, n, n_outputs)

        Returns
        -------
        members : EmpiricalGaussian or EmpiricalCategorical
        """

    def given(self, epoch: int, size: int) -> np.ndarray | None:
        # Return the members' scores (M, q), the same in every epoch.
        return self.scores

    def loss_and_gradient(
        self, outputs: Tensor, members: Any, *, temperature: Tensor, given: Any
    ) -> tuple[Tensor, Tensor]:
        target = losses.standardised_loadings(self._values(members), given)
        return losses.with_loadings.and_gradient(outputs, self._term(members), target)


@dataclass(eq=False, repr=False)
class GaussianFactors(Factors, NumericFamily):
    """A Gaussian process of which the members' means are draws."""

    n_of_marginal: ClassVar[int] = GaussianNormal.outputs_per_target["diagonal"]
    _marginal = GaussianFamily(loss="moments")  # whose spread is not to hold errors of the mean

    n_factors: int | str = "auto"
    scores: np.ndarray | None = None

    def distribution(self, outputs: Tensor) -> GaussianNormal:
        return self._marginal.distribution(self._split(outputs)[0])

    def _values(self, members: Gaussian) -> Tensor:
        return members.mean

    def process(self, outputs: Tensor) -> FactorProcess:
        marginal = self.distribution(outputs)
        _, loadings = self._split(outputs)
        return FactorProcess.of_shares(marginal.mean, marginal.conditional_variance, loadings)

    def of_functions(self, values: Tensor, outputs: Tensor) -> EmpiricalGaussian:
        aleatoric = self.distribution(outputs).uncertainty().aleatoric
        return EmpiricalGaussian(values, aleatoric.expand_as(values))

    def _term(self, members: Gaussian) -> losses.Term:
        return self._marginal._term(members)


@dataclass(eq=False, repr=False)
class LatentFactorFamily(Factors):
    """A Gaussian process of which the members' means, or logits, are draws (Park et al., 2025).

    At a sample it is as :class:`GaussianFamily` with ``loss="moments"``, or logit-normal; with the
    covariance between samples, see :meth:`skdistill.DistributionDistiller.sample_members`. Take
    that of a classifier for its draws: the epistemic part is many times too large on samples of
    which the teacher is sure.

    Parameters
    ----------
    n_factors : int or "auto", default="auto"
        Number of factors of the members' disagreement that all samples share, less than there are
        members. "auto" is how many explain at least a twentieth of it each, on 256 samples of X, or
        all whose predictions are known, in units of the spread at each sample. The rest is a
        residual variance of the sample, so that the epistemic part does not depend on it.
    smoothing : float, default="auto"
        Of a classifier: as of :class:`DirichletFamily`; "auto" is 0, and mixes members with their
        mean where one of them gives a class a probability of exactly zero.
    n_samples : int, default=100
        Of a classifier: how many draws stand for the distribution at prediction.
    """

    name: ClassVar[str] = "latent_factor"
    has_members: ClassVar[bool] = True  # of a classifier, which the methods below are for
    n_of_marginal: ClassVar[int] = 2
    _parameter_table = {
        "n_factors": Number(Integral, 1, others=("auto",)),
        "smoothing": Number(Real, 0, 1, closed="left", others=("auto",)),
        "n_samples": Number(Integral, 1),
    }

    n_factors: int | str = "auto"
    smoothing: float | str = "auto"
    n_samples: int = 100

    def for_task(self, task: Any) -> Family:
        # Return the family for means, or for logits less their mean over classes.
        super().for_task(task)
        return self._as(GaussianFactors if task.kind == "regressor" else LogitFactors, task)

    def prepare_members(self, members: np.ndarray) -> np.ndarray:
        return without_zeros(members) if self.smoothing == "auto" else members

    def _values(self, members: Tensor) -> Tensor:
        smoothing = 0.0 if self.smoothing == "auto" else float(self.smoothing)
        return losses.centred(pad(losses.relative_logits(members, smoothing), (0, 1)))

    def process(self, outputs: Tensor) -> FactorProcess:
        marginal, loadings = self._split(outputs)
        return FactorProcess.of_shares(*Gaussian.from_outputs(marginal.squeeze(0)), loadings)

    def distribution(self, outputs: Tensor) -> LogitNormal:
        # Distribution of the logits less that of the last class, whose residual is a factor.
        mean, loadings, residual = self.process(outputs)
        last = residual[:, None, -1:].sqrt().expand(-1, 1, mean.shape[-1] - 1)
        factor = torch.cat((loadings[..., :-1] - loadings[..., -1:], -last), dim=1).mT
        mean = mean[:, :-1] - mean[:, -1:]
        return LogitNormal(mean, residual[:, :-1], factor, self.n_samples, 0)

    def of_functions(self, values: Tensor, outputs: Tensor) -> EmpiricalCategorical:
        return EmpiricalCategorical.from_logits(values)

    def _term(self, members: Tensor) -> losses.Term:
        return losses.Term(losses.logit_moments, (losses.logit_target(self._values(members)),))


@dataclass(eq=False, repr=False)
class LogitFactors(LatentFactorFamily):
    """A Gaussian process of which the members' logits are draws, whose scores are known."""

    scores: np.ndarray | None = None
