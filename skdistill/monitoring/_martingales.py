# SPDX-License-Identifier: BSD-3-Clause
"""Conformal p-values of a stream, and test martingales: capital that bets against them."""

import math

import numpy as np
from scipy.signal import lfilter
from scipy.special import logsumexp, ndtri

AT_A_TIME = 256  # samples that are ranked at a time, all pairs of which are compared


class Bag:
    """The samples among which new ones are ranked: the reference, and new ones themselves.

    The smoothed rank of a new sample among all that came before (Vovk et al., 2005, eq. 2.20) is
    uniform on (0, 1) and independent of all other ranks, if the samples are exchangeable.
    """

    def __init__(self, reference: np.ndarray, random: np.random.RandomState):
        self.values = np.sort(reference, axis=1)  # (n_columns, n_samples)
        self.random = random

    def ranks(self, new: np.ndarray) -> np.ndarray:
        """Rank new samples (n_columns, n_new), one after the other, and put them into the bag.

        Ranks are in (0, 1), of a column whose values rise near 1; ties are broken at random.
        """
        n_new, n_old = new.shape[1], self.values.shape[1]
        is_before = np.tri(n_new, k=-1, dtype=bool)
        less, equal = np.empty(new.shape), np.empty(new.shape)
        for column, (old, values) in enumerate(zip(self.values, new, strict=True)):
            first, last = (np.searchsorted(old, values, side) for side in ("left", "right"))
            less[column] = first + ((values < values[:, None]) & is_before).sum(axis=1)
            equal[column] = last - first + ((values == values[:, None]) & is_before).sum(axis=1)
        # The sample itself is one of those equal to it. Draws are in [0, 1), but 0 is no rank.
        ties = 1 - self.random.random_sample(new.shape[::-1]).T
        self.values = np.sort(np.concatenate([self.values, new], axis=1), axis=1, kind="stable")
        return (less + ties * (equal + 1)) / (n_old + np.arange(1, n_new + 1))


# Alternatives that are bet on, of the ranks' normal scores z: their mean, or standard deviation.
_MEANS = np.array([-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0])
_STDS = np.array([0.5, 0.7, 1.4, 2.0])
# A histogram of the ranks before: its bins, the decay of counts by a rank, and the prior counts.
_N_BINS, _KEPT, _PRIOR_COUNT = 16, 0.995, 8.0

N_BETS = len(_MEANS) + len(_STDS) + 1


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
    """

    def __init__(self, n_columns: int):
        self.log_capital = np.full((n_columns, N_BETS), -np.inf)  # of what is held in each bet
        self.counts = np.zeros((n_columns, _N_BINS))  # of ranks in the bins, the older the less
        self.n_samples = 0  # number of ranks so far, t

    def update(self, ranks: np.ndarray) -> None:
        """Bet on further ranks, of shape (n_columns, n)."""
        # Normal scores; those of the largest rank that is not 1 are 8.2, so that all is finite.
        z = np.clip(ndtri(ranks)[..., None], -8.2, 8.2)
        shifted = _MEANS * z - _MEANS**2 / 2
        scaled = (1 - _STDS**-2.0) * z**2 / 2 - np.log(_STDS)
        log_f = np.concatenate([shifted, scaled, self._of_histogram(ranks)[..., None]], axis=2)
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
