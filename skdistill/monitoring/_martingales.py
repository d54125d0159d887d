# SPDX-License-Identifier: BSD-3-Clause
"""Test martingales: capital that bets against ranks being uniform, and grows if they are not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter
from scipy.special import logsumexp, ndtri

# Alternatives that are bet on, of the ranks' normal scores z: their mean, or standard deviation.
_MEANS = np.array([-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0])
_STDS = np.array([0.5, 0.7, 1.4, 2.0])

# And a histogram of the ranks before: its bins, the share of their counts that each new rank
# leaves, and what is added to each count.
_N_BINS, _KEPT, _PRIOR_COUNT = 16, 0.995, 8.0

N_BETS = len(_MEANS) + len(_STDS) + 1


@dataclass(eq=False)
class Martingales:
    r"""A test martingale of each column of independent, uniform ranks.

    Each is a mixture over bets and over the times :math:`\tau` from which they are held,

    .. math::

       M_t = \sum_{\tau \le t} \pi_\tau \frac1K \sum_k \prod_{i=\tau}^t f_k(p_i)
             + \sum_{\tau > t} \pi_\tau,
       \qquad \sum_{\tau > t} \pi_\tau = \frac{1}{\log_2 (t + 2)},

    with densities :math:`f_k` on (0, 1): those of the ranks where normal scores have another mean
    or standard deviation, and a histogram of the ranks before :math:`i`. So :math:`M_0 = 1`,
    :math:`M_t \ge 0` and :math:`E[M_t \mid p_1, \dots, p_{t-1}] = M_{t-1}`.

    Parameters
    ----------
    log_capital : ndarray of shape (n_columns, n_bets)
        Logarithm of what is held in each bet.
    counts : ndarray of shape (n_columns, n_bins)
        Of ranks in the bins, the older the less.
    n_samples : int
        Number of ranks so far, t.
    """

    log_capital: np.ndarray
    counts: np.ndarray
    n_samples: int = 0

    @classmethod
    def start(cls, n_columns: int) -> Martingales:
        """Return martingales of 1, for no ranks."""
        return cls(np.full((n_columns, N_BETS), -np.inf), np.zeros((n_columns, _N_BINS)))

    def update(self, ranks: np.ndarray) -> None:
        """Bet on further ranks, of shape (n_columns, n)."""
        log_f = np.concatenate([_of_scores(ranks), self._of_histogram(ranks)[..., None]], axis=2)
        total = np.cumsum(log_f, axis=1)  # (n_columns, n, N_BETS)
        # Capital put into a bet at sample i is multiplied by f of it and of all that follow.
        after = total[:, -1:] - np.concatenate([np.zeros_like(total[:, :1]), total[:, :-1]], axis=1)
        uninvested = 1 / np.log2(np.arange(self.n_samples, self.n_samples + ranks.shape[1] + 1) + 2)
        invested = np.log(-np.diff(uninvested) / N_BETS)
        grown = np.concatenate(
            [(self.log_capital + total[:, -1])[:, None], invested[:, None] + after], axis=1
        )
        self.log_capital = logsumexp(grown, axis=1)
        self.n_samples += ranks.shape[1]

    def _of_histogram(self, ranks: np.ndarray) -> np.ndarray:
        """Log density of each rank, by the histogram of those before it."""
        bins = np.minimum((ranks * _N_BINS).astype(int), _N_BINS - 1)
        is_in = np.eye(_N_BINS)[bins]  # (n_columns, n, n_bins)
        start = _KEPT * self.counts[:, None]
        counts, _ = lfilter([1.0], [1.0, -_KEPT], is_in, axis=1, zi=start)
        before = np.concatenate([self.counts[:, None], counts[:, :-1]], axis=1) + _PRIOR_COUNT
        self.counts = counts[:, -1]
        found = np.take_along_axis(before, bins[..., None], axis=2)[..., 0]
        return np.log(_N_BINS * found / before.sum(axis=2))

    def log_values(self) -> np.ndarray:
        """Logarithms of the martingales, of shape (n_columns,)."""
        uninvested = -math.log(math.log2(self.n_samples + 2))
        return np.logaddexp(logsumexp(self.log_capital, axis=1), uninvested)


def _of_scores(ranks: np.ndarray) -> np.ndarray:
    """Log densities of ranks whose normal scores have another mean, or standard deviation."""
    z = ndtri(ranks)[..., None]
    # Of the largest rank that is not 1, so that all is finite.
    z = np.clip(z, -8.2, 8.2)
    shifted = _MEANS * z - _MEANS**2 / 2
    scaled = (1 - _STDS**-2.0) * z**2 / 2 - np.log(_STDS)
    return np.concatenate([shifted, scaled], axis=2)


def log_adjusted(log_e: np.ndarray) -> np.ndarray:
    """Return the e-values of several hypotheses, adjusted for there being several.

    That of one is the smallest mean of it and of any others: the closed test by arithmetic means
    (Vovk and Wang, 2021, Algorithm 1). Rejecting where it is 1 / alpha has a family-wise error of
    at most alpha, whatever the dependence.

    Parameters
    ----------
    log_e : ndarray of shape (n,)
        Logarithms of e-values.

    Returns
    -------
    log_adjusted : ndarray of shape (n,)
    """
    order = np.argsort(log_e)
    ascending = log_e[order]
    sums = np.concatenate([[-np.inf], np.logaddexp.accumulate(ascending)[:-1]])  # of the i smallest
    means = np.logaddexp(ascending[:, None], sums) - np.log(np.arange(1, len(log_e) + 1))
    means[~np.tri(len(log_e), dtype=bool)] = np.inf  # only smaller ones are added
    adjusted = np.empty_like(ascending)
    adjusted[order] = means.min(axis=1)
    return adjusted
