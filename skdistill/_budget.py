# SPDX-License-Identifier: BSD-3-Clause
"""The time that a fit may take, for the parameter `max_time`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ._resume import clock

# A part of a budget has so many seconds at least, since it must be above 0.
_LEAST = 1e-6

# With less than this share of the time left nothing further is begun.
_NEXT_TO_NOTHING = 0.01


@dataclass(frozen=True)
class TimeBudget:
    """Seconds that a fit may take, counted from its beginning.

    Parameters
    ----------
    seconds : float
    after : float, default=0.0
        How many of them are kept for what follows training.
    begin : float, default=clock()
        When the fit began, by :func:`skdistill._resume.clock`.
    """

    seconds: float
    after: float = 0.0
    begin: float = field(default_factory=clock)

    @property
    def left(self) -> float:
        """Seconds that are left for training."""
        return max(0.0, self.seconds - self.after - (clock() - self.begin))

    @property
    def is_spent(self) -> bool:
        """Whether no time is left to begin a further training."""
        return self.left <= _NEXT_TO_NOTHING * self.seconds

    def keeping(self, after: float) -> TimeBudget:
        """Return the budget with so many seconds kept for what follows training."""
        return replace(self, after=after)

    def part(self, share: float) -> TimeBudget:
        """Return a budget of this share of the time that is left, which begins now."""
        return TimeBudget(max(self.left * share, _LEAST))

    def of_whole(self, share: float) -> float:
        """Return this share of all the time for training, the same however much is left."""
        return max((self.seconds - self.after) * share, _LEAST)

    def anew(self) -> TimeBudget:
        """Return as many seconds that begin now, on another machine perhaps."""
        return TimeBudget(self.seconds)
