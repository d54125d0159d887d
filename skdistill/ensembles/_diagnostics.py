# SPDX-License-Identifier: BSD-3-Clause
"""Convergence diagnostics of Markov chains, by their predictions."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtri
from sklearn.exceptions import ConvergenceWarning

from .._estimator.batched import read_in_chunks
from .._utils.warnings import warn
from ..modules import DistributionStack
from ..samplers import effective_sample_size, r_hat_of_chains, split_r_hat

# How these were chosen: see doc/design.rst.
_N_ROWS = 500  # samples at most, evenly spaced in the data
_LARGE_R_HAT = 1.1  # R-hat above which chains disagree (Gelman & Rubin)
_ONE_IN = 100  # predictions, one of which exceeds the limit by chance if draws are independent
_SHARE_BY_CHANCE = 0.05  # of all predictions, up to which no warning is given


class SamplerDiagnostics(NamedTuple):
    """Convergence of the predictions of Markov chains, arrays of shape (n_rows, n_values).

    The `r_hat` is the split R-hat of each predicted probability, or mean and variance; NaN with
    fewer than four draws of a chain. The `effective_sample_size` is how many independent draws all
    chains together are worth; NaN if they have taught a student, as none of their draws is kept.
    """

    r_hat: np.ndarray
    effective_sample_size: np.ndarray


class RunningRHat:
    """Split R-hat of draws that are not kept, from the moments of each half of each chain.

    These are updated as in Welford (1962), in float64, so that a variance that is small beside its
    mean is not lost to rounding. The middle one of an odd number of draws is left out.
    """

    def __init__(self, n_draws: int):
        self.n_draws = n_draws
        self.n_seen = 0
        self.moments: np.ndarray | None = None

    def update(self, draw: np.ndarray) -> None:
        """Add a draw of each chain, of shape (n_chains, ...)."""
        if self.moments is None:  # of each half, the means and the sums of squares around them
            self.moments = np.zeros((2, 2, *draw.shape))
        length, k = self.n_draws // 2, self.n_seen
        self.n_seen += 1
        half, place = (0, k) if k < length else (1, k - (self.n_draws - length))
        if place < 0:
            return
        mean, squares = self.moments[half]
        step = draw - mean
        mean += step / (place + 1)
        squares += step * (draw - mean)

    def diagnostics(self) -> SamplerDiagnostics:
        """Return R-hat, with a warning if need be; not a number if the run was ended early.

        The draws are of shape (n_chains, n_rows, n_values).
        """
        assert self.moments is not None
        n_chains, *shape = self.moments.shape[2:]
        unknown = np.full(shape, np.nan)
        if self.n_draws < 4 or self.n_seen < self.n_draws:
            return SamplerDiagnostics(unknown, unknown)
        length = self.n_draws // 2
        means, squares = self.moments.swapaxes(0, 1).reshape(2, 2 * n_chains, *shape)
        r_hat = r_hat_of_chains(means, squares / (length - 1), length)
        warn_if_large(r_hat, n_chains, self.n_draws)
        return SamplerDiagnostics(r_hat, unknown)

    def state(self) -> dict[str, object]:  # not copied
        return {"n_seen": self.n_seen, "moments": self.moments}

    def load_state(self, state: dict[str, Any]) -> None:
        self.n_seen, moments = state["n_seen"], state["moments"]
        self.moments = None if moments is None else np.array(moments)  # none yet in burn-in


def diagnosed_rows(X: Any) -> np.ndarray:
    """Return the samples of an array or a tensor that diagnostics look at."""
    return X[:: -(-len(X) // _N_ROWS)]


def diagnose(module: DistributionStack, spec: Any) -> SamplerDiagnostics:
    """Diagnostics of a stack of draws of chains, with a warning if need be."""
    rows = diagnosed_rows(spec.train.X)
    # What networks predict, without random functions, whose draws are independent in any case.
    members = read_in_chunks(module, rows, lambda outputs, _: module.of_parts(outputs).members)
    members = np.moveaxis(members, 1, 0)  # (S, n, ...)
    n_chains = spec.inference.resolved(spec.n_members).n_chains
    draws = members.reshape(n_chains, -1, len(rows), int(np.prod(members.shape[2:])))
    if draws.shape[1] < 4:
        nothing = np.full(draws.shape[2:], np.nan)
        return SamplerDiagnostics(nothing, nothing)
    found = SamplerDiagnostics(split_r_hat(draws), effective_sample_size(draws))
    warn_if_large(found.r_hat, *draws.shape[:2])
    return found


def warn_if_large(r_hat: np.ndarray, n_chains: int, n_draws: int) -> None:
    """Warn if R-hat is large for more predictions than it is by chance."""
    large = large_r_hat(n_chains, n_draws)
    share = np.mean(r_hat > large)
    if share > _SHARE_BY_CHANCE:
        warn(
            f"R-hat is above {large:.3g} for {share:.0%} of the predictions, its median is "
            f"{np.nanmedian(r_hat):.2f}: the chains have not converged. Try a larger "
            "max_epochs, inference__burn_in or inference__step_size. See sampler_diagnostics_.",
            ConvergenceWarning,
        )


def large_r_hat(n_chains: int, n_draws: int) -> float:
    """Return the split R-hat above which chains disagree more than by chance.

    Of m halves of n independent normal draws each, ``n R-hat^2 - (n - 1)`` is the ratio of
    variances of a one-way analysis of variance, which has an F distribution with m - 1 and
    m (n - 1) degrees of freedom.
    """
    m, n = 2 * n_chains, n_draws // 2
    ratio = fdtri(m - 1, m * (n - 1), 1 - 1 / _ONE_IN)
    return max(_LARGE_R_HAT, float(np.sqrt((n - 1 + ratio) / n)))
