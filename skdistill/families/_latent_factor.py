# SPDX-License-Identifier: BSD-3-Clause
"""Members as draws of one Gaussian process, with factors that are common to all samples.

S. Park, J. Lee, Y. Shin, I. Ohn and Y. Kim, "Knowledge Distillation of Uncertainty using Deep
Latent Factor Model" (2025), with a residual variance that depends on the sample.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from .. import losses
from .._utils.validation import Number
from ..distributions import EmpiricalGaussian, FactorProcess, Gaussian, GaussianNormal
from ._family import Family, NumericFamily
from ._gaussian import GaussianFamily


class LatentFactorFamily(NumericFamily):
    """A Gaussian process of which the members' means are draws (Park et al., 2025).

    At a sample it is as :class:`GaussianFamily` with ``loss="moments"``; with the covariance
    between samples, see :meth:`skdistill.DistributionDistiller.sample_members`. It is for
    regression.

    Parameters
    ----------
    n_factors : int or "auto", default="auto"
        Number of factors of the members' disagreement that all samples share, less than there are
        members. "auto" is how many explain at least a twentieth of it each, on 256 samples of X, or
        all whose predictions are known, in units of the spread at each sample. The rest is a
        residual variance of the sample, so that the epistemic part does not depend on it.
    """

    name: ClassVar[str] = "latent_factor"
    takes_functions: ClassVar[bool] = False  # draws of it span all samples
    _n_of_marginal: ClassVar[int] = GaussianNormal.outputs_per_target["diagonal"]
    _marginal = GaussianFamily(loss="moments")  # whose spread is not to hold errors of the mean
    _parameter_table = {"n_factors": Number(Integral, 1, others=("auto",))}

    scores: np.ndarray | None = None

    def __init__(self, n_factors: int | str = "auto"):
        self.n_factors = n_factors

    def for_task(self, task: Any) -> Family:
        super().for_task(task)
        return self._as(GaussianFactors, task)

    def n_outputs(self, size: int) -> int:
        return (self._n_of_marginal + self._n_loadings) * size

    def distribution(self, outputs: Tensor) -> GaussianNormal:
        return self._marginal.distribution(self._split(outputs)[0])

    def process(self, outputs: Tensor) -> FactorProcess:
        """Return the distribution of the members' means as functions.

        Parameters
        ----------
        outputs : Tensor of shape (1, n, n_outputs)

        Returns
        -------
        process : FactorProcess
        """
        marginal, (_, loadings) = self.distribution(outputs), self._split(outputs)
        return FactorProcess.of_shares(marginal.mean, marginal.conditional_variance, loadings)

    def of_functions(self, values: Tensor, outputs: Tensor) -> EmpiricalGaussian:
        """Return drawn functions as members.

        Parameters
        ----------
        values : Tensor of shape (S, n, t)
        outputs : Tensor of shape (1, n, n_outputs)

        Returns
        -------
        members : EmpiricalGaussian
        """
        aleatoric = self.distribution(outputs).uncertainty().aleatoric
        return EmpiricalGaussian(values, aleatoric.expand_as(values))

    @property
    def _n_loadings(self) -> int:
        """Number of factors q; before members have predicted, some number."""
        return 1 if self.scores is None else self.scores.shape[1]

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Split outputs (1, n, .) into those of the marginal and raw loadings (n, q t)."""
        size = outputs.shape[-1] // (self._n_of_marginal + self._n_loadings)
        marginal, loadings = outputs.tensor_split([self._n_of_marginal * size], dim=-1)
        return marginal, loadings.squeeze(0)


@dataclass(eq=False, repr=False)
class GaussianFactors(LatentFactorFamily):
    """The family once members have predicted, whose `scores` on the factors (M, q) are known."""

    n_factors: int | str = "auto"
    scores: np.ndarray | None = None

    def informed(self, members: Gaussian, weight: Tensor) -> Family:
        scores = losses.factor_scores(members.mean, weight, self.n_factors).numpy()
        return replace(self, scores=scores)

    def informed_as(self, fitted: Any) -> Family:
        n_fitted = fitted.scores.shape[1]
        if self.n_factors not in ("auto", fitted.n_factors, n_fitted):
            raise ValueError(
                f"LatentFactorFamily: n_factors must be 'auto' or {n_fitted}, as in the fit that "
                f"training goes on from; got {self.n_factors!r}."
            )
        return replace(self, scores=fitted.scores)

    def given(self, epoch: int, size: int) -> np.ndarray | None:
        # Return the members' scores (M, q), the same in every epoch.
        return self.scores

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Any
    ) -> tuple[Tensor, Tensor]:
        target = losses.standardised_loadings(members.mean, given)
        return losses.with_loadings.and_gradient(outputs, self._marginal._term(members), target)
