# SPDX-License-Identifier: BSD-3-Clause
"""Random functions that vanish at training samples and grow away from them, or where unknown."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ._inputs import InputEncoder, keep

# How these were chosen: see doc/design.rst.
_FARTHEST = 50.0  # deviations from the mean beyond which functions grow along rays
_LEAST = 1e-30  # variance that is divided by
_LEADING = 4  # of the features that tell how much is known, one in so many is computed first
_LARGEST = 1e9  # deviations from the mean beyond which functions grow no more
_FARTHEST_UNITS, _AT_EDGE = 5e8, 1e-5  # units from an edge: farthest; still at it


def _root(x: Tensor) -> Tensor:
    """Square root of numbers of at least 0, where it has the gradient 0, not infinity."""
    if not x.requires_grad:
        return x.sqrt()
    is_zero = x == 0
    return x.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)


class Gaps(nn.Module):
    """Tells how unknown a value is that is in an interval of a column without training samples.

    Its share is the variance of a Brownian bridge over the interval, 1 in the middle of one unit,
    or of a Wiener process, if one end is infinite. Arrays have one entry for each of G intervals.
    """

    def __init__(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray, unit: np.ndarray):
        super().__init__()
        slopes = np.stack([4 / unit, -4 / unit])  # distances from both ends, in quarters of a unit
        is_between = np.isfinite(lower) & np.isfinite(upper)
        keep(self, "columns", columns)
        keep(self, "slopes", slopes)
        keep(self, "offsets", -np.stack([lower, upper]) * slopes - _AT_EDGE)
        keep(self, "most", np.where(is_between, 1.0, _FARTHEST_UNITS))

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to the shares of the intervals, (n, G); 0 where one is NaN."""
        kept: dict[str, Any] = self._buffers  # as attributes they take as long as sums of a sample
        values = x.index_select(-1, kept["columns"]).unsqueeze(-2)
        distances = torch.addcmul(kept["offsets"], values, kept["slopes"]).relu()
        # b a / (b + a) for distances b and a, which may be 0, or infinite.
        if x.requires_grad:  # else the gradient of 1 / 0 would be NaN
            is_outside = (distances == 0).any(-2)
            distances = distances.masked_fill(is_outside.unsqueeze(-2), torch.nan)
        share = distances.reciprocal().sum(-2).reciprocal().minimum(kept["most"])
        return share.masked_fill(share.isnan(), 0.0)


class UnknownDraws(nn.Module):
    """S draws of what is added to predictions where columns are NaN, which is not known.

    A draw has k values for each column: `of_unknown`, (n_columns, S, k). Where a column is NaN, the
    draws have exactly the square of `unknown`, (n_columns, k), as variance.
    """

    def __init__(self, of_unknown: np.ndarray, unknown: np.ndarray):
        super().__init__()
        self.n_draws, self.n_values = of_unknown.shape[1:]
        keep(self, "weights_of_unknown", of_unknown.reshape(len(of_unknown), -1))
        keep(self, "unknown_variance", np.square(unknown))

    @property
    def flop(self) -> int:
        """Operations of the matrix products for one sample's variance, of which all is known."""
        return 0

    def vanish(self, x: Tensor) -> bool:
        """Whether all values are zero: nothing is unknown. A graph computes them all the same."""
        return not (torch.compiler.is_compiling() or bool(x.isnan().any()))

    def variance(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to the variance of the draws, (n, k)."""
        kept: dict[str, Any] = self._buffers
        found: Tensor = x.isnan().double() @ kept["unknown_variance"]
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to values of the draws, (S, n, k)."""
        kept: dict[str, Any] = self._buffers
        values = x.isnan().double() @ kept["weights_of_unknown"]
        return self._with_variance(values, self.variance(x))

    def _with_variance(self, values: Tensor, variance: Tensor) -> Tensor:
        """Multiply values (n, S k) of mean 0 by what gives them this variance, (n, k)."""
        values = values.unflatten(-1, (self.n_draws, self.n_values))
        drawn = (values * values).mean(-2).clamp(min=_LEAST)
        return (values * _root(variance / drawn).unsqueeze(-2)).transpose(0, 1)


class FunctionDraws(UnknownDraws):
    """A Gaussian process that is conditioned to be zero at some samples, and S draws of it.

    Its variance has a closed form; it is all that predicted numbers take. A draw is a sum of random
    Fourier features (Rahimi & Recht, 2007) and of kernel functions at inducing points, whose
    weights follow from Matheron's rule (Wilson et al., 2020). Beyond a radius around the mean of
    the training samples, in standard deviations, draws grow with each further deviation by the
    share `growth`. A NaN, or a value in a gap, adds a value of its column, or a part of it. The
    exponents of kernel functions, in which large terms cancel, are computed in float64. The
    functions themselves are in float32, which is right to about 1e-6 of the prior variance.

    The encoder standardises samples; relevances (d,) are factors of its outputs in distances, and
    of the m inducing points (m, d). The sines have frequencies (D, d) and phases (D,); all features
    have weights (D + m, S, k), for S draws of k values. `of_unknown` and `unknown` are as of
    :class:`UnknownDraws`, for columns and then for G gaps. `whitening` (m, m) takes the kernel
    functions to features whose squares sum to the share of the prior variance that is known, those
    first that tell most: for all but a few samples a part of them tells that none is left. `scale`
    (k,) is the standard deviation far from all samples. The in-distribution posterior variance, as
    a share of the prior one, is the `baseline` that is subtracted everywhere.
    """

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
        baseline: float,
        unknown: np.ndarray,
        gaps: Gaps,
    ):
        super().__init__(of_unknown, unknown)
        self.encoder, self.gaps = encoder, gaps
        self.radius = radius
        # -|a x - p|^2 / 2 = -p^2 / 2 + (a p) x - (a^2 / 2) x^2, of relevance a and points p.
        factor, points = relevance / length_scale, inducing / length_scale
        minus_half_squares = -0.5 * np.square(factor)[:, None].repeat(len(points), 1)
        keep(self, "inducing", np.concatenate([(factor * points).T, minus_half_squares]))
        keep(self, "minus_half_squares", -0.5 * np.square(points).sum(1))
        leading, others = np.split(whitening.astype(np.float32), [len(whitening) // _LEADING], 1)
        keep(self, "leading", leading)
        keep(self, "others", others)
        keep(self, "most", np.array(1.0 - baseline))
        keep(self, "within", scale * (1 - growth * radius))
        keep(self, "slope", scale * growth)
        keep(self, "frequencies", (relevance * frequencies).T)
        keep(self, "phases", phases)
        of_waves, of_kernel = np.split(weights.reshape(len(weights), -1), [len(phases)])
        keep(self, "weights_of_waves", of_waves)
        keep(self, "weights_of_kernel", of_kernel)

    @property
    def flop(self) -> int:
        kept: dict[str, Any] = self._buffers
        names = "inducing", "leading", "others", "unknown_variance"
        return 2 * sum(kept[name].numel() for name in names)

    def vanish(self, x: Tensor) -> bool:
        """Whether all values are zero, which is seldom."""
        return False

    def variance(self, x: Tensor) -> Tensor:
        return self._features(x)[-1]

    def forward(self, x: Tensor) -> Tensor:
        features = self._features(x)
        are_added = features[-1].any(-1)  # most samples have a variance of 0, and so no values
        if torch.compiler.is_compiling() or are_added.all():
            return self._values(*features)
        values = features[-1].new_zeros((self.n_draws, *features[-1].shape))
        if not are_added.any():
            return values
        rows = are_added.nonzero().squeeze(-1)
        return values.index_copy(1, rows, self._values(*(part[rows] for part in features)))

    def _values(self, z: Tensor, kernel: Tensor, unknown: Tensor, variance: Tensor) -> Tensor:
        """Return values of the draws, (S, n, k), of what :meth:`_features` returns."""
        kept: dict[str, Any] = self._buffers
        # Sines, since ONNX Runtime has no cosine in float64.
        waves = torch.addmm(kept["phases"], z, kept["frequencies"]).sin()
        values = waves @ kept["weights_of_waves"]
        values = torch.addmm(values, kernel.double(), kept["weights_of_kernel"])
        values = torch.addmm(values, _root(unknown), kept["weights_of_unknown"])
        return self._with_variance(values, variance)

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return inputs, kernel functions, how unknown columns and gaps are, and the variance."""
        kept: dict[str, Any] = self._buffers  # as attributes they take as long as sums of a sample
        x = x.double()
        z = self.encoder.forward(x)
        distance = torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp(self.radius, _LARGEST)
        deviation = torch.addcmul(kept["within"], distance, kept["slope"])
        z = z.clamp(-_FARTHEST, _FARTHEST)
        kernel, left = self._kernel(torch.cat([z, z * z], dim=-1))
        of_process = left * (deviation * deviation)
        unknown = torch.cat([x.isnan().to(x), self.gaps.forward(x)], dim=-1)
        variance = torch.addmm(of_process, unknown, kept["unknown_variance"])
        return z, kernel, unknown, variance

    def _kernel(self, inputs_and_squares: Tensor) -> tuple[Tensor, Tensor]:
        """Return kernel functions (n, m), and the share of the variance that they leave, (n, 1)."""
        kept: dict[str, Any] = self._buffers
        offsets = kept["minus_half_squares"]
        kernel = torch.addmm(offsets, inputs_and_squares, kept["inducing"])
        kernel = kernel.to(kept["leading"].dtype).exp()
        left = kept["most"] - _squares(kernel @ kept["leading"])
        is_open = left.squeeze(-1) > 0
        if torch.compiler.is_compiling() or is_open.all():
            left = left - _squares(kernel @ kept["others"])
        elif is_open.any():
            rows = is_open.nonzero().squeeze(-1)
            known = _squares(kernel[rows] @ kept["others"])
            left = left.index_add(0, rows, known, alpha=-1)
        return kernel, left.relu()


def _squares(x: Tensor) -> Tensor:
    """Sums over the last axis of squares of float32, in float64."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).double()
    return norm * norm
