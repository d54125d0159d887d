# SPDX-License-Identifier: BSD-3-Clause
"""Random functions that vanish at training samples and grow away from them, or where unknown."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ._inputs import InputEncoder

# Deviations from the mean up to which a sample's place matters; farther out functions grow along
# rays. Arguments of sines stay small.
_FARTHEST = 50.0

# Least variance that is divided by.
_LEAST = 1e-30

# Distance from the mean beyond which functions grow no more.
_LARGEST = 1e9


class UnknownDraws(nn.Module):
    """S draws of what is added to predictions where columns are NaN, which is not known.

    A draw has a value for each column, drawn once.

    Parameters
    ----------
    of_unknown : ndarray of shape (n_columns, S, k)
        What is added where a column is NaN, which is a value or a category that is not known.
    unknown : ndarray of shape (n_columns, k)
        Standard deviation of what is added: the draws have exactly its square as variance.
    """

    weights_of_unknown: Tensor
    unknown_variance: Tensor

    def __init__(self, of_unknown: np.ndarray, unknown: np.ndarray):
        super().__init__()
        self.n_draws, self.n_values = of_unknown.shape[1:]
        self._keep("weights_of_unknown", of_unknown.reshape(len(of_unknown), -1))
        self._keep("unknown_variance", np.square(unknown))

    def _keep(self, name: str, values: np.ndarray) -> None:
        """Register an array, which is no weight, as a buffer."""
        tensor = torch.tensor(values, device="cpu")  # also where networks are built without memory
        self.register_buffer(name, tensor, persistent=False)

    def vanish(self, x: Tensor) -> bool:
        """Whether all values are zero: nothing is unknown. A graph computes them all the same."""
        return not (torch.compiler.is_compiling() or bool(x.isnan().any()))

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to values of the draws, (S, n, k)."""
        return self._flat(x).unflatten(-1, (self.n_draws, self.n_values)).transpose(0, 1)

    def _flat(self, x: Tensor) -> Tensor:
        """Values of the draws, (n, S k)."""
        is_unknown = x.isnan().to(self.unknown_variance)
        values = is_unknown @ self.weights_of_unknown
        return self._with_variance(values, is_unknown @ self.unknown_variance)

    def _with_variance(self, values: Tensor, variance: Tensor) -> Tensor:
        """Multiply values (n, S k) of mean 0 by what gives them this variance, (n, k).

        Few draws have it but roughly. (A graph would drop a tiny number that is added.)
        """
        values = values.unflatten(-1, (self.n_draws, self.n_values))
        drawn = values.square().mean(-2).clamp(min=_LEAST)
        return (values * (variance / drawn).sqrt().unsqueeze(-2)).flatten(-2)

    def appended(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Return outputs (L, n, p) of L networks with the values as further outputs."""
        values, n_networks = self._flat(x).to(outputs.dtype), len(outputs)
        n_missing = -values.shape[-1] % n_networks
        values = nn.functional.pad(values, (0, n_missing)).unflatten(-1, (n_networks, -1))
        return torch.cat([outputs, values.transpose(0, 1)], dim=-1)

    def parted(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Undo :meth:`appended`: return the networks' outputs, and values of shape (S, n, k)."""
        n_values = self.n_draws * self.n_values
        n_each = -(-n_values // len(outputs))
        outputs, values = outputs.tensor_split([outputs.shape[-1] - n_each], dim=-1)
        values = values.transpose(0, 1).flatten(1)[:, :n_values]
        return outputs, values.unflatten(1, (self.n_draws, self.n_values)).transpose(0, 1)


class FunctionDraws(UnknownDraws):
    """S draws of a Gaussian process that is conditioned to be zero at some samples.

    A draw is a sum of random Fourier features [1]_ and of kernel functions at inducing points,
    whose weights follow from Matheron's rule [2]_. All draws share these features. Beyond a radius
    around the mean of the training samples, draws grow in proportion to the distance from it.
    Where a column is NaN a draw has a further value of that column, drawn once.
    They are computed in float64: near the samples, large terms cancel.

    Parameters
    ----------
    encoder : InputEncoder
        Standardises samples; it neither bins nor bounds them.
    relevance : ndarray of shape (d,)
        Factors of its d outputs in distances.
    length_scale : float
        Of the squared exponential kernel.
    radius : float
        Distance from the mean, in standard deviations, beyond which draws grow.
    growth : float
        Their growth with each further deviation, as a share of what they are within.
    inducing : ndarray of shape (m, d)
        Inducing points, multiplied by the relevance.
    frequencies, phases : ndarray of shape (D, d) and (D,)
        Of the sines.
    weights : ndarray of shape (D + m, S, k)
        Of the features, for S draws of k values each.
    of_unknown : ndarray of shape (n_columns, S, k)
        As of :class:`UnknownDraws`.
    whitening : ndarray of shape (m, m)
        Takes the kernel functions to features whose squares sum to the share of the prior variance
        that is known: the inverse of the transposed Cholesky factor of the kernel matrix.
    scale : ndarray of shape (k,)
        Standard deviation of the process far from all samples.
    usual : float
        Variance of the process at samples like those of training, as a share of the prior one. It
        is taken off the variance everywhere; what is left is exactly the variance of the draws.
    unknown : ndarray of shape (n_columns, k)
        As of :class:`UnknownDraws`.

    References
    ----------
    .. [1] Rahimi & Recht (2007), "Random Features for Large-Scale Kernel Machines".
    .. [2] Wilson et al. (2020), "Efficiently Sampling Functions from Gaussian Process Posteriors".
    """

    squared_relevance: Tensor
    frequencies: Tensor
    phases: Tensor
    inducing: Tensor
    minus_half_squares: Tensor
    weights_of_waves: Tensor
    weights_of_kernel: Tensor
    whitening: Tensor
    squared_scale: Tensor

    def __init__(
        self,
        encoder: InputEncoder,
        relevance: np.ndarray,
        length_scale: float,
        radius: float,
        growth: float,
        inducing: np.ndarray,
        frequencies: np.ndarray,
        phases: np.ndarray,
        weights: np.ndarray,
        of_unknown: np.ndarray,
        whitening: np.ndarray,
        scale: np.ndarray,
        usual: float,
        unknown: np.ndarray,
    ):
        super().__init__(of_unknown, unknown)
        self.encoder = encoder
        self.radius, self.growth, self.usual = radius, growth, usual
        factor = relevance / length_scale
        self._keep("squared_relevance", 0.5 * np.square(factor)[:, None])
        self._keep("frequencies", (relevance * frequencies).T)
        self._keep("phases", phases)
        self._keep("inducing", (factor * inducing / length_scale).T)
        self._keep("minus_half_squares", -0.5 * np.square(inducing / length_scale).sum(1))
        of_waves, of_kernel = np.split(weights.reshape(len(weights), -1), [len(phases)])
        self._keep("weights_of_waves", of_waves)
        self._keep("weights_of_kernel", of_kernel)
        self._keep("whitening", whitening)
        self._keep("squared_scale", np.square(scale))

    @property
    def flop(self) -> int:
        """Operations of the matrix products for one sample."""
        return 2 * sum(matrix.numel() for matrix in self.buffers(False) if matrix.ndim == 2)

    def vanish(self, x: Tensor) -> bool:
        """Whether all values are zero, which is seldom."""
        return False

    def _flat(self, x: Tensor) -> Tensor:
        """Values of the draws, (n, S k)."""
        z = self.encoder(x.double())
        distance = torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp(self.radius, _LARGEST)
        growth = self.growth * distance + (1 - self.growth * self.radius)
        z = z.clamp(-_FARTHEST, _FARTHEST)
        # Sines, since ONNX Runtime has no cosine in float64.
        waves = torch.addmm(self.phases, z, self.frequencies).sin()
        products = torch.addmm(self.minus_half_squares, z, self.inducing)
        kernel = (products - z.square() @ self.squared_relevance).exp()
        is_unknown = x.isnan().to(kernel)
        values = torch.addmm(waves @ self.weights_of_waves, kernel, self.weights_of_kernel)
        values = torch.addmm(values, is_unknown, self.weights_of_unknown)
        known = (kernel @ self.whitening).square().sum(-1, keepdim=True)
        of_process = growth.square() * (1 - self.usual - known).relu() * self.squared_scale
        variance = torch.maximum(of_process, is_unknown @ self.unknown_variance)
        return self._with_variance(values, variance)
