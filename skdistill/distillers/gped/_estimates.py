# SPDX-License-Identifier: BSD-3-Clause
"""Estimates of posterior expectations for the rows of a transfer set (GPED, Sec 3.2)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import accumulate, compress, pairwise

import numpy as np
import torch
from torch import Tensor

from ...expectations import Expectation


class RunningMean:
    """Mean over all samples so far of the values of each row: U_o, Eq 10.

    It keeps sums in float32 and counts, ``4 (n_values + 1)`` bytes for each row; sums that would
    take more than `limit` bytes are in a temporary file that is mapped into memory. `variances`
    are pairs of columns, of values and of their variances over the samples, which are updated as in
    Chan, Golub and LeVeque (1979), numerically stable. `several` are columns whose means are
    unknown before a second sample.
    """

    def __init__(
        self,
        n_rows: int,
        n_values: int,
        device: torch.device,
        limit: float,
        variances: Sequence[tuple[slice, slice]] = (),
        several: Sequence[slice] = (),
    ):
        shape = n_rows, n_values
        if 4 * n_rows * n_values > limit:
            with tempfile.TemporaryFile() as file:  # on the disk as long as it is mapped
                self.sums = torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape))
        else:
            self.sums = torch.zeros(shape, device=device)
        self.counts = torch.zeros(n_rows, 1, device=self.sums.device)
        self.variances = variances
        self.several = several

    @classmethod
    def of(
        cls,
        expectations: Sequence[Expectation],
        n_values: Sequence[int],
        n_rows: int,
        device: torch.device,
        limit: float,
    ) -> RunningMean:
        """Return the running mean of the values of expectations."""
        variances, several = [], []
        ends = pairwise(accumulate(n_values, initial=0))
        for expectation, (start, stop) in zip(expectations, ends, strict=True):
            if expectation.is_variance:
                middle = (start + stop) // 2
                variances.append((slice(start, middle), slice(middle, stop)))
            if expectation.needs_several:
                several.append(slice(start, stop))
        return cls(n_rows, sum(n_values), device, limit, variances, several)

    def update(self, index: Tensor, values: Tensor, n_samples: int = 1) -> Tensor:
        """Add values of some rows, and return the means of those rows, (m, n_values).

        `index`, of shape (m,), has no row twice; values (m, n_values) are means over `n_samples`
        samples, or variances over them.
        """
        index = index.to(self.sums.device)
        new = values.to(self.sums)
        sums, before = self.sums.index_select(0, index), self.counts.index_select(0, index)
        counts = before + n_samples
        for mean, variance in self.variances:
            step = new[:, mean] - sums[:, mean] / before.clamp(min=1)
            sums[:, variance] += step.square() * (before * n_samples / counts)
        sums.add_(new, alpha=n_samples)
        self.sums.index_copy_(0, index, sums)
        self.counts.index_copy_(0, index, counts)
        return self._means(sums, counts).to(values)

    def means(self) -> Tensor:
        """Return the means of all rows, of shape (n_rows, n_values), NaN for those without any."""
        return self._means(self.sums, self.counts)

    def _means(self, sums: Tensor, counts: Tensor) -> Tensor:
        means = sums / counts  # Eq 10
        for columns in self.several:
            means[:, columns].masked_fill_(counts < 2, torch.nan)
        return means

    def state(self) -> dict[str, Tensor]:
        """Return the sums and counts, not copied."""
        return {"sums": self.sums, "counts": self.counts}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.sums.copy_(state["sums"])
        self.counts.copy_(state["counts"])


class Targets:
    """Targets of a student for rows of the transfer set, given the chains' last samples.

    `n_values` are the numbers of values of the expectations, and `estimates` are "online", for
    U_o, the mean over all samples so far (Eq 10), or "stochastic", for U_s, the last ones (Eq 9).
    `limit` is the number of bytes that U_o may take in memory, see :class:`RunningMean`.
    """

    def __init__(
        self,
        expectations: Sequence[Expectation],
        n_values: list[int],
        estimates: Sequence[str],
        n_rows: int,
        device: torch.device,
        limit: float,
    ):
        self.expectations = expectations
        self.n_values = n_values
        is_online = [estimate == "online" for estimate in estimates]
        columns = torch.tensor(is_online).repeat_interleave(torch.tensor(n_values))
        self.all_online = all(is_online)
        self.online = columns.nonzero().squeeze(1).to(device)
        self.running = None
        if any(is_online):
            kept = list(compress(expectations, is_online)), list(compress(n_values, is_online))
            self.running = RunningMean.of(*kept, n_rows, device, limit)

    def update(self, members: object, index: Tensor) -> Tensor:
        """Targets, of shape (m, n_outputs), for the rows at `index`, of shape (m,).

        Members are the chains' samples' predictions of these rows, see ``skdistill.expectations``.
        """
        values = [expectation.of_members(members) for expectation in self.expectations]
        mean, n_samples = pooled(self.expectations, values), len(values[0])  # U_s, Eq 9
        if self.running is not None and self.all_online:
            mean = self.running.update(index, mean, n_samples)
        elif self.running is not None:
            mean[:, self.online] = self.running.update(index, mean[:, self.online], n_samples)
        return targets_of(self.expectations, self.n_values, mean)

    def of_rows(self, index: Tensor | slice) -> Tensor:
        """Targets of rows by the means so far, if all estimates are online; NaN without a mean."""
        assert self.running is not None
        return targets_of(self.expectations, self.n_values, self.running.means()[index])

    def met(self) -> tuple[Tensor, Tensor]:
        """Rows (m,) that a sample has predicted, and their targets, if all estimates are online."""
        assert self.running is not None
        index = self.running.counts.squeeze(1).nonzero().squeeze(1)
        return index, self.of_rows(index)

    def state(self) -> dict[str, Tensor]:
        return {} if self.running is None else self.running.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        if self.running is not None:
            self.running.load_state(state)


def pooled(expectations: Sequence[Expectation], values: Sequence[Tensor]) -> Tensor:
    """Pool g over the members: tensors (S, ..., k) to one of shape (..., sum of k)."""
    pairs = zip(expectations, values, strict=True)
    return torch.cat([expectation.pooled(g) for expectation, g in pairs], dim=-1)


def targets_of(expectations: Sequence[Expectation], n_values: list[int], mean: Tensor) -> Tensor:
    """Turn mean values (..., sum of n_values) into a student's targets (..., n_outputs)."""
    parts = mean.split(n_values, dim=-1)
    return torch.cat([e.target(part) for e, part in zip(expectations, parts, strict=True)], dim=-1)
