# SPDX-License-Identifier: BSD-3-Clause
"""The logit-normal distribution over class probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ._categorical import EmpiricalCategorical
from ._gaussian import Gaussian
from ._protocol import Calibratable, ClassDistribution, ReadFromOutputs
from ._shared import Uncertainty, of_one_network, row_chunks

_CHUNK = 2**18  # elements of the draws for some samples: 1 MiB of float32
_EDGE = 1e-9  # keeps the quantiles of draws finite


@dataclass(frozen=True, eq=False)  # the == of tensors has no single truth value
class LogitNormal(ClassDistribution, Calibratable, ReadFromOutputs):
    """Class probabilities whose logits, less that of the last class, are normally distributed.

    It is what a student of ensemble distribution distillation predicts for classes (Lindqvist et
    al., 2020, Eqs 9 and 10): the softmax of ``(z, 0)``, where z is normal with a covariance that is
    diagonal, or diagonal plus low rank. Predictions are means over a fixed set of draws, the same
    for every sample; hence they are deterministic and do not depend on the samples around them.
    With 100 draws and ten classes, probabilities err by about .001 and the epistemic part by about
    three per cent; these errors fall at least as ``1 / sqrt(n_samples)``.

    Parameters
    ----------
    logit_mean, logit_variance : Tensor of shape (n, K - 1)
        Expectation of the relative logits z, and the diagonal part of their covariance.
    factor : Tensor of shape (n, K - 1, r) or None, default=None
        V, where ``V V^T`` is the part of low rank.
    n_samples : int, default=100
        Number of draws that predictions are means over.
    seed : int, default=0
        Of these draws.
    """

    logit_mean: Tensor
    logit_variance: Tensor
    factor: Tensor | None = None
    n_samples: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        shapes = [tuple(value.shape) for value in (self.logit_mean, self.logit_variance)]
        if self.factor is not None:
            shapes.append(tuple(self.factor.shape[:2]))
        if any(shape != shapes[0] for shape in shapes) or len(shapes[0]) != 2:
            raise ValueError(
                "logit_mean and logit_variance must have one shape (n, K - 1), and factor, if any, "
                f"(n, K - 1, r); their first axes are {shapes}."
            )

    @classmethod
    def from_outputs(
        cls, outputs: Tensor, rank: int = 0, n_samples: int = 100, seed: int = 0
    ) -> LogitNormal:
        """Read outputs (n, (K - 1) (2 + rank)) of a network, with a part of low `rank`, or none.

        K - 1 columns each are expectations, raw variances, which are read as
        ``softplus(raw) + 1e-6``, and the columns of the factor.
        """
        what = f"{2 + rank} (K - 1) for K classes and rank {rank}"
        outputs = of_one_network(outputs, 2 + rank, what)
        size = outputs.shape[1] // (2 + rank)
        logits = Gaussian.from_outputs(outputs[:, : 2 * size])
        factor = outputs[:, 2 * size :].unflatten(1, (rank, size)).mT if rank else None
        return cls(*logits, factor, n_samples, seed)

    def tempered(self, temperature: float) -> LogitNormal:
        mean, variance = self.logit_mean / temperature, self.logit_variance / temperature**2
        shared = None if self.factor is None else self.factor / temperature
        return replace(self, logit_mean=mean, logit_variance=variance, factor=shared)

    def widened(self, factor: Tensor) -> LogitNormal:
        factor = factor.unsqueeze(-1)
        shared = None if self.factor is None else factor.sqrt().unsqueeze(-1) * self.factor
        return replace(self, logit_variance=factor * self.logit_variance, factor=shared)

    def displaced(self, values: Tensor) -> LogitNormal:
        # Adds the covariance of equally likely functions to that of the logits.
        added = (values[..., :-1] - values[..., -1:]).permute(1, 2, 0) / len(values) ** 0.5
        added = added.to(self.logit_mean)
        known = [] if self.factor is None else [self.factor]
        return replace(self, factor=torch.cat([*known, added], dim=-1))

    def empirical(self) -> EmpiricalCategorical:
        """The draws as an ensemble of `n_samples` members.

        Returns
        -------
        EmpiricalCategorical
        """
        return self._drawn(self.logit_mean, self.logit_variance, self.factor)

    @property
    def mean(self) -> Tensor:
        """Expected class probabilities, of shape (n, K); the predictive distribution (Eq. 14)."""
        return self.log_mean.exp()

    @property
    def log_mean(self) -> Tensor:
        """Log of :attr:`mean`, of shape (n, K)."""
        return torch.cat([members.log_mean for members in self._chunks()])

    @property
    def members(self) -> Tensor:
        """Class probabilities of the draws: a tensor of shape (n, n_samples, K)."""
        return self.empirical().members

    @torch.no_grad()
    def uncertainty(self) -> Uncertainty:
        """Parts of :meth:`EmpiricalCategorical.uncertainty`, over the draws (Eqs. 15)."""
        parts = [tuple(members.uncertainty()) for members in self._chunks()]
        total, aleatoric, epistemic = map(torch.cat, zip(*parts, strict=True))
        return Uncertainty(total, aleatoric, epistemic, measure="entropy")

    def _drawn(
        self, mean: Tensor, variance: Tensor, factor: Tensor | None = None
    ) -> EmpiricalCategorical:
        """Members for some of the samples, one for each draw; all samples have the same draws."""
        n_logits, rank = mean.shape[1], 0 if factor is None else factor.shape[2]
        draws = latin_hypercube(self.n_samples, n_logits + rank, self.seed)
        own, shared = torch.tensor(draws).to(mean).split((n_logits, rank), dim=1)
        logits = mean + variance.sqrt() * own.unsqueeze(1)
        if factor is not None:
            logits = logits + torch.einsum("npr,tr->tnp", factor, shared)
        last = logits.new_zeros(*logits.shape[:2], 1)
        return EmpiricalCategorical.from_logits(torch.cat((logits, last), dim=-1))  # Eq 9

    def _chunks(self) -> Iterator[EmpiricalCategorical]:
        """Members for a few samples at a time, so that the draws (T, samples, K) stay small."""
        n_logits = self.logit_mean.shape[1]
        size = _CHUNK // (self.n_samples * (n_logits + 1))
        fields = (self.logit_mean, self.logit_variance, self.factor)
        chunks = (row_chunks(part, size) for part in fields if part is not None)
        for chunk in zip(*chunks, strict=True):
            yield self._drawn(*chunk)


@lru_cache(maxsize=8)
def latin_hypercube(n_draws: int, n_coordinates: int, seed: int) -> np.ndarray:
    """Standard normal draws (n_draws, n_coordinates), one in each `n_draws`-th of a coordinate."""
    order, place = torch.rand(
        (n_coordinates, 2, n_draws),
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    ).permute(1, 2, 0)
    levels = (order.argsort(dim=0) + place.clamp(_EDGE, 1 - _EDGE)) / n_draws
    draws: np.ndarray = torch.special.ndtri(levels).numpy()
    return draws
