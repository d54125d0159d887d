# SPDX-License-Identifier: BSD-3-Clause
"""Convergence diagnostics of Markov chains, by their predictions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtri
from sklearn.exceptions import ConvergenceWarning

from .._reading import read_in_chunks
from .._warnings import warn
from ..samplers import effective_sample_size, split_r_hat

# Diagnostics look at the predictions for at most so many rows, evenly spaced in the data.
_N_ROWS = 500

# An R-hat above this tells that chains disagree (Gelman & Rubin); a stricter limit is 1.01.
_LARGE_R_HAT = 1.1

# The R-hat of few draws is often above that by chance, so the limit is at least the quantile that
# one in so many predictions exceeds with independent draws; neighbouring rows exceed it together.
_ONE_IN = 100
_SHARE_BY_CHANCE = 0.05


class SamplerDiagnostics(NamedTuple):
    """Convergence of the predictions of Markov chains, row by row.

    Attributes
    ----------
    r_hat : ndarray of shape (n_rows, n_values)
        Split R-hat of each predicted probability, or mean and variance; not a number where there
        are fewer than four draws of a chain.
    effective_sample_size : ndarray of shape (n_rows, n_values)
        How many independent draws all chains together are worth.
    """

    r_hat: np.ndarray
    effective_sample_size: np.ndarray


def diagnose(ensemble: Any, X: np.ndarray) -> SamplerDiagnostics:
    """Diagnostics of an ensemble whose members are draws of chains, with a warning if need be."""
    rows = X[:: -(-len(X) // _N_ROWS)]
    members = read_in_chunks(ensemble.module_, rows, lambda d: d.members)
    members = np.moveaxis(members, 1, 0)  # (S, n, ...)
    n_chains = ensemble.inference.n_chains
    draws = members.reshape(n_chains, -1, len(rows), int(np.prod(members.shape[2:])))
    if draws.shape[1] < 4:
        nothing = np.full(draws.shape[2:], np.nan)
        return SamplerDiagnostics(nothing, nothing)
    found = SamplerDiagnostics(split_r_hat(draws), effective_sample_size(draws))
    large = large_r_hat(*draws.shape[:2])
    share = np.mean(found.r_hat > large)
    if share > _SHARE_BY_CHANCE:
        warn(
            f"R-hat is above {large:.3g} for {share:.0%} of the predictions, its median is "
            f"{np.nanmedian(found.r_hat):.2f}: the chains have not converged. Try a larger "
            "max_epochs, inference__burn_in or inference__step_size. See sampler_diagnostics_.",
            ConvergenceWarning,
        )
    return found


def large_r_hat(n_chains: int, n_draws: int) -> float:
    """Return the split R-hat above which chains disagree more than by chance.

    Of m halves of n independent normal draws each, ``n R-hat^2 - (n - 1)`` is the ratio of
    variances of a one-way analysis of variance, which has an F distribution with m - 1 and
    m (n - 1) degrees of freedom.
    """
    m, n = 2 * n_chains, n_draws // 2
    ratio = fdtri(m - 1, m * (n - 1), 1 - 1 / _ONE_IN)
    return max(_LARGE_R_HAT, float(np.sqrt((n - 1 + ratio) / n)))
