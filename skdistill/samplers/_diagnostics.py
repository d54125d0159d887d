# SPDX-License-Identifier: BSD-3-Clause
"""Convergence of Markov chains: R-hat and the effective sample size."""

import numpy as np
from numpy.typing import ArrayLike


def split_r_hat(draws: ArrayLike) -> np.ndarray:
    """Potential scale reduction (...) of chains cut in halves (Vehtari et al., 2021, Eqs 1 to 4).

    Near 1 where the halves of all chains have the same mean and variance. There is no rank
    normalisation, which is for quantities of infinite variance: probabilities have a finite one. It
    is not a number where all draws are equal or one is not finite, and infinite where the halves
    are constants that differ. Draws are as for :func:`effective_sample_size`.
    """
    halves = _halves(draws)
    return r_hat_of_chains(halves.mean(1), halves.var(1, ddof=1), halves.shape[1])


def effective_sample_size(draws: ArrayLike) -> np.ndarray:
    """Number of independent draws whose mean is as precise (Vehtari et al., 2021, Sec 3.2).

    Autocorrelations, of chains cut in halves, are summed by Geyer's initial monotone sequence. The
    size is at most S log10(S) for S draws, more than S where they are anticorrelated.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws, ...)
        At least four of each chain; the middle one of an odd number is left out.

    Returns
    -------
    size : ndarray of shape (...)
        Not a number where all draws are equal or one is not finite.

    Raises
    ------
    ValueError
        If `draws` has another shape, or too few of them.
    """
    halves = _halves(draws)
    n_chains, n = halves.shape[:2]
    means = halves.mean(1, keepdims=True)
    within, total = _variances(means[:, 0], halves.var(1, ddof=1), n)
    spectrum = np.fft.rfft(halves - means, 2 * n, axis=1)
    power = (spectrum * spectrum.conj()).real.mean(0)  # a mean over chains
    covariance = np.fft.irfft(power, 2 * n, axis=0)[:n] / n  # at each lag
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[0] = 1
    n_pairs = max((n - 1) // 2, 1)
    even, odd = correlation[: 2 * n_pairs : 2], correlation[1 : 2 * n_pairs : 2]
    pairs = even + odd
    is_positive = np.logical_and.accumulate(pairs > 0)  # Geyer's initial positive sequence
    is_positive[-1] = False
    monotone = np.minimum.accumulate(pairs)
    time = -1 + 2 * np.where(is_positive, monotone, 0).sum(0)
    # As in Stan, the first term that is left out is added once if it is positive.
    after = np.take_along_axis(even, is_positive.sum(0)[None], axis=0)[0]
    n_draws = n_chains * n
    time = np.maximum(time + np.maximum(after, 0), 1 / np.log10(n_draws))
    return np.where(total > 0, n_draws / time, np.nan)


def _halves(draws: ArrayLike) -> np.ndarray:
    """Split each chain into halves, as chains, with NaN in place of infinities."""
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2 or draws.shape[0] < 1 or draws.shape[1] < 4:
        raise ValueError(
            "draws must be of shape (n_chains, n_draws, ...), with at least 4 draws of each "
            f"chain; got {draws.shape}."
        )
    half = draws.shape[1] // 2
    draws = np.where(np.isfinite(draws), draws, np.nan)
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def r_hat_of_chains(means: np.ndarray, variances: np.ndarray, n_draws: int) -> np.ndarray:
    """R-hat (...) of chains of which means and unbiased variances (n_chains, ...) are known."""
    within, total = _variances(means, variances, n_draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat: np.ndarray = np.sqrt(total / within)  # Eq 4
    return r_hat


def _variances(
    means: np.ndarray, variances: np.ndarray, n_draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Variance W within chains, and the estimate var+, too large until the chains have mixed."""
    between = means.var(0, ddof=1)  # Eq 1, B / N
    within = variances.mean(0)  # Eq 2
    return within, (n_draws - 1) / n_draws * within + between  # Eq 3
