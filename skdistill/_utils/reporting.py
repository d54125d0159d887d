# SPDX-License-Identifier: BSD-3-Clause
"""What a fit tells of itself while it runs: a line for each stage, and a progress bar.

A fit is told of by a :class:`Reporter`. Who works in a stage tells which :func:`part` of it is
running. A thread asks twice a second how much is done, so that a training step costs nothing. A fit
within another one, such as a teacher's, is a part of the other's stage.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from .messages import duration
from .process import ProcessLock, is_forked

_SECONDS_TO_BAR, _SECONDS_TO_ESTIMATE = 10.0, 2.0  # of a fit, until a bar; of a stage, until a line
_SECONDS_BETWEEN_LOOKS = 0.5

# Values of the environment's TERM for terminals on which nothing can be written over.
_DUMB_TERMINALS = ("dumb", "unknown")

# One line at a time, whichever thread prints it.
_LOCK = ProcessLock()

Item = TypeVar("Item")


def _nothing() -> float:
    return 0.0


class Stage:
    """A stage of a fit: its name, and how much of it is done.

    From `before` to `limit`, shares of the stage, lies the part that is running, of which `done`
    returns how much is done, from 0 to 1. If not `is_measured`, nobody can tell.
    """

    def __init__(self, name: str, is_measured: bool):
        self.name = name
        self.is_measured = is_measured
        self.begin = time.monotonic()
        self.before, self.limit, self.done = 0.0, 1.0, _nothing
        self.is_announced = False
        self.since, self.share_then = self.begin, 0.0  # where the pace is counted from

    @property
    def share(self) -> float:
        """How much of the stage is done, from 0 to 1."""
        return min(self.before + (self.limit - self.before) * self.done(), 1.0)

    @contextmanager
    def part(self, share: float, done: Callable[[], float]) -> Iterator[None]:
        """Run a part that is such a share of the rest: of the stage, or of the part around it."""
        end_of_rest = self.limit
        self.limit = self.before + (self.limit - self.before) * share
        self.done = done
        try:
            yield
        finally:
            self.done, self.before, self.limit = _nothing, self.limit, end_of_rest

    def count_from_now(self, is_restored: bool) -> None:
        """Leave preparations, or what is restored and not done now, out of the pace."""
        if is_restored or not self.share_then:
            self.since, self.share_then = time.monotonic(), self.share

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest takes at the pace so far; None while nobody can tell."""
        share = self.share
        if not self.is_measured or share <= self.share_then:
            return None
        return (time.monotonic() - self.since) * (1.0 - share) / (share - self.share_then)

    def announcement(self) -> str | None:
        """Return once, as soon as it takes long and can be estimated, how long it will take."""
        left = self.seconds_left
        is_known = left is not None or not self.is_measured
        is_counted = time.monotonic() - self.since >= _SECONDS_TO_ESTIMATE
        if self.is_announced or not (is_known and is_counted):
            return None
        self.is_announced = True
        about = "" if left is None else f": about {duration(self.seconds + left)}"
        return f"{self.name}{about} ..."

    def progress(self) -> str:
        """Return what is running, and how far it is."""
        left = self.seconds_left
        if left is None:
            return f"{self.name}, {duration(self.seconds)} so far"
        return f"{self.name}, {self.share:.0%}, about {duration(left)} left"


class Reporter:
    """Tells of a fit, called `name`, that runs within that of `outer`, if any.

    Only the outermost one has a bar, if it `has_terminal`. Of those that are asked to print lines
    only the outermost one `prints` them.
    """

    def __init__(self, name: str, is_asked: bool, has_terminal: bool, outer: Reporter | None):
        self.name = name
        self.outer = outer
        self.outermost: Reporter = self if outer is None else outer.outermost
        self.is_told: bool = outer is not None and (outer.is_told or outer.prints)
        self.prints: bool = is_asked and not self.is_told
        self.has_terminal = has_terminal
        self.begin = time.monotonic()
        self.stage: Stage | None = None
        self.bar: Any = None

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Let a thread look at the fit, if there is anything to tell; remove the bar at the end."""
        ended = threading.Event()

        def look_again() -> None:
            while not ended.wait(_SECONDS_BETWEEN_LOOKS):
                self.look()

        thread = threading.Thread(target=look_again, name="skdistill reporter", daemon=True)
        if self.prints or self.has_terminal:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            if self.bar is not None:
                self.bar.close()

    @contextmanager
    def run(self, stage: Stage) -> Iterator[None]:
        """Tell of a stage until it has ended, and then, unless it fails, how long it took."""
        around = None if self.outer is None else self.outer.stage
        self.stage = stage
        try:
            with nullcontext() if around is None else around.part(1.0, lambda: stage.share):
                yield
        finally:
            with _LOCK.held():
                self.stage = None
        if self.prints:
            print_line(f"{self.name}: {stage.name}: {duration(stage.seconds, 1)}")

    def look(self) -> None:
        """Tell how far the fit is, if it is time to."""
        with _LOCK.held():
            if (stage := self.stage) is None:
                return
            if self.prints and (text := stage.announcement()) is not None:
                with self.above_bar():  # in a thread, which knows no current reporter
                    print(f"{self.name}: {text}", flush=True)  # noqa: T201 -- see print_line
            if self.has_terminal and time.monotonic() - self.begin >= _SECONDS_TO_BAR:
                self.bar = self.bar or _new_bar()
                text = f"{self.name}: {stage.progress()} "
                self.bar.set_description_str(text, refresh=False)
                self.bar.update(stage.share - self.bar.n if stage.is_measured else -self.bar.n)

    @contextmanager
    def above_bar(self) -> Iterator[None]:
        """Let others write lines, which come above the bar, if there is one."""
        with _LOCK.held():
            bar = self.outermost.bar
            if bar is not None:
                bar.clear()
            yield
            if bar is not None:
                bar.refresh()


_CURRENT: ContextVar[Reporter | None] = ContextVar("reporter of the innermost fit", default=None)


@contextmanager
def reporting(name: str, verbose: int) -> Iterator[None]:
    """Tell of a fit: by lines for ``verbose=1``, and on a terminal by a bar if it takes long."""
    outer, is_asked = _CURRENT.get(), verbose >= 1
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in _DUMB_TERMINALS
    is_main = threading.current_thread() is threading.main_thread()
    is_child = is_forked() or multiprocessing.parent_process() is not None
    has_terminal = outer is None and is_terminal and not is_plain and is_main and not is_child
    if outer is None and not (is_asked or has_terminal):
        yield
        return
    reporter = Reporter(name, is_asked, has_terminal, outer)
    token = _CURRENT.set(reporter)
    try:
        with reporter.looking():
            yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def stage(name: str, is_measured: bool = True) -> Iterator[None]:
    """Run a stage of the fit; it is not measured if nobody can tell how much of it is done."""
    reporter = _CURRENT.get()
    with nullcontext() if reporter is None else reporter.run(Stage(name, is_measured)):
        yield


@contextmanager
def part(share: float, done: Callable[[], float] = _nothing) -> Iterator[None]:
    """Run a part of the stage, such a share of its rest, of which `done` tells how much is done."""
    reporter = _CURRENT.get()
    running = None if reporter is None else reporter.stage
    with nullcontext() if running is None else running.part(share, done):
        count_from_now()
        yield


def as_parts(items: Iterable[Item], n_items: int) -> Iterator[Item]:
    """Give items, the making and use of each of which is an equal part of the stage."""
    given = iter(items)
    for n_left in itertools.count(n_items, -1):
        with part(1 / max(n_left, 1)):
            try:
                item = next(given)
            except StopIteration:
                return
            yield item


def count_from_now(is_restored: bool = False) -> None:
    """Leave preparations, if nothing was counted yet, or what is restored out of the estimates."""
    reporter = _CURRENT.get()
    while reporter is not None:
        if reporter.stage is not None:
            reporter.stage.count_from_now(is_restored)
        reporter = reporter.outer


def above_bar() -> AbstractContextManager[None]:
    """Return the context in which lines may be written to a terminal that may have a bar."""
    reporter = _CURRENT.get()
    return nullcontext() if reporter is None else reporter.above_bar()


def print_line(text: str) -> None:
    """Print a line above the bar, at once: the log of a fit that runs elsewhere has it too."""
    with above_bar():
        print(text, flush=True)  # noqa: T201 -- the user asks for it by `verbose`


def _new_bar() -> Any:
    """Return a bar on stderr, which is drawn when it is updated, and removed when it is closed."""
    from tqdm import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # without a thread of its own

    Bar.set_lock(threading.RLock())  # tqdm's is one of processes, which Python starts one more for
    style: dict[str, Any] = {"bar_format": "{desc}{bar}", "leave": False, "dynamic_ncols": True}
    return Bar(total=1.0, file=sys.stderr, mininterval=0, miniters=0, **style)
