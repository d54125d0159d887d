# SPDX-License-Identifier: BSD-3-Clause
"""The time that a fit may take, for the parameter `max_time`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .resume import clock, work_clock

# A part of a budget has so many seconds at least, since it must be above 0.
_LEAST = 1e-6

# With less than this share of the time left nothing further is begun.
_NEXT_TO_NOTHING = 0.01

# Others that use the processor slow a fit down by at most this factor, it is taken, which is told
# from so many seconds on; and more than this share of a training's time is not kept for that.
_MOST_SLOWED, _SECONDS_TO_TELL, _MOST_FURTHER = 4.0, 0.1, 0.5


@dataclass(frozen=True)
class TimeBudget:
    """Seconds that a fit may take, counted from its beginning.

    Parameters
    ----------
    seconds : float
    after : float, default=0.0
        How many of them are kept for what follows training.
    work : float, default=0.0
        How many of these are work, which takes longer where others use the processor too.
    begin : float, default=clock()
        When the fit began, by :func:`skdistill._training.resume.clock`.
    """

    seconds: float
    after: float = 0.0
    work: float = 0.0
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
        return replace(self, after=after, work=0.0)

    def keeping_for_work(self, seconds: float, most: float) -> TimeBudget:
        """Return the budget with time kept for so many seconds of work, at most a share of all."""
        work = min(seconds, most * self.seconds)
        return replace(self, after=work, work=work)

    def further_for_work(self, share: float) -> Callable[[], float]:
        """Return what tells in a training how much more time to keep for a share of the work.

        A thread that waits for a processor in training waits for it in the work that follows. What
        is told begins at 0, and is for the thread that asks for it first.
        """
        begin, begin_of_work = clock(), work_clock()
        most = _MOST_FURTHER * share * self.left

        def further() -> float:
            passed = clock() - begin
            if passed < _SECONDS_TO_TELL:
                return 0.0
            worked = max(work_clock() - begin_of_work, passed / _MOST_SLOWED)
            return min(share * self.work * max(0.0, passed / worked - 1.0), most)

        return further

    def part(self, share: float) -> TimeBudget:
        """Return a budget of this share of the time that is left, which begins now."""
        return TimeBudget(max(self.left * share, _LEAST))

    def of_whole(self, share: float) -> float:
        """Return this share of all the time for training, the same however much is left."""
        return max((self.seconds - self.after) * share, _LEAST)

    def anew(self) -> TimeBudget:
        """Return as many seconds that begin now, on another machine perhaps."""
        return TimeBudget(self.seconds)
