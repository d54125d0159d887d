# SPDX-License-Identifier: BSD-3-Clause
"""Conformal p-values of a stream: the ranks of samples among those before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Samples that are ranked at a time, of which bytes can count those before the last.
AT_A_TIME = 256


@dataclass(eq=False)
class Bag:
    """The samples among which new ones are ranked: the reference, and new ones themselves.

    The smoothed rank of a new sample among all that came before (Vovk et al., 2005, eq. 2.20) is
    uniform on (0, 1) and independent of all other ranks, if the samples are exchangeable. Of a bag
    larger than `max_samples`, samples drawn at random leave, new ones as likely as old ones. Which
    sample of the bag was the last is then as unknown to later ranks as before, so that ranks are
    independent still, and memory is bounded.

    Parameters
    ----------
    values : ndarray of shape (n_columns, n_samples)
        Of each column in ascending order. Missing values are inf, tied with one another.
    samples : ndarray of int of shape (n_columns, n_samples)
        Numbers of the samples that have them.
    max_samples : int
    random : numpy.random.RandomState
    """

    values: np.ndarray
    samples: np.ndarray
    max_samples: int
    random: np.random.RandomState

    @classmethod
    def of(cls, X: np.ndarray, max_samples: int, random: np.random.RandomState) -> Bag:
        """Return the bag of a reference, of shape (n_columns, n_samples)."""
        samples = np.argsort(X, axis=1)
        bag = cls(np.take_along_axis(X, samples, axis=1), samples, max_samples, random)
        bag._shrink()
        return bag

    def ranks(self, new: np.ndarray) -> np.ndarray:
        """Rank new samples, one after the other, and put them into the bag.

        Parameters
        ----------
        new : ndarray of shape (n_columns, n_new)
            Of at most `AT_A_TIME` samples.

        Returns
        -------
        ranks : ndarray of shape (n_columns, n_new)
            In (0, 1); of a column whose values rise, near 1. Ties are broken at random.
        """
        n_new, n_old = new.shape[1], self.values.shape[1]
        less, equal = np.empty(new.shape), np.empty(new.shape)
        is_before = np.tri(n_new, k=-1, dtype=bool)
        grown, samples = [], []
        for column, values in enumerate(new):
            old = self.values[column]
            first = np.searchsorted(old, values, "left")
            order = np.argsort(values)
            ascending = values[order]
            less[column] = first + _count((values < values[:, None]) & is_before)
            equal[column] = np.searchsorted(old, values, "right") - first
            if (ascending[1:] == ascending[:-1]).any():
                equal[column] += _count((values == values[:, None]) & is_before)
            grown.append(np.insert(old, first[order], ascending))
            samples.append(np.insert(self.samples[column], first[order], n_old + order))
        # The sample itself is one of those equal to it. Draws are in [0, 1), but 0 is no rank.
        ties = 1 - self.random.random_sample(new.shape[::-1]).T
        ranks = (less + ties * (equal + 1)) / (n_old + np.arange(1, n_new + 1))
        self.values, self.samples = np.stack(grown), np.stack(samples)
        self._shrink()
        return ranks

    def _shrink(self) -> None:
        """Let samples leave, drawn at random."""
        shape = self.values.shape
        n_too_many = shape[1] - self.max_samples
        if n_too_many <= 0:
            return
        is_kept = np.ones(shape[1], dtype=bool)
        is_kept[self.random.permutation(shape[1])[:n_too_many]] = False
        where, numbers = is_kept[self.samples], np.cumsum(is_kept) - 1
        self.values = self.values[where].reshape(shape[0], -1)
        self.samples = numbers[self.samples[where]].reshape(shape[0], -1)


def _count(is_true: np.ndarray) -> np.ndarray:
    """Count along the second axis, in bytes: faster than in 64 bits."""
    return is_true.view(np.uint8).sum(axis=1, dtype=np.uint8)
