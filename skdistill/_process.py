# SPDX-License-Identifier: BSD-3-Clause
"""What all threads of a process share, and how a forked child goes on with it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import torch


def _in_forked_children(act: Callable[[], None]) -> None:
    """Act at the start of every child that this process forks."""
    if hasattr(os, "register_at_fork"):  # Windows cannot fork
        os.register_at_fork(after_in_child=act)


class ProcessLock:
    """Reentrant lock that a forked child finds free, whichever thread held it."""

    def __init__(self) -> None:
        self._renew()
        _in_forked_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, also where the process forks meanwhile."""
        with self._lock:
            yield


# torch notes in one place for all threads whether a TorchDispatchMode is on, for torch.compile.
# Were modes of two threads on at once, the note could stay when both are off.
DISPATCH_MODE_LOCK = ProcessLock()


class _TorchThreads:
    """Number of threads that torch computes with; one in a forked child.

    A fork copies one thread. OpenMP believes in the others, and would wait for them for ever.
    """

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.n_users = 0
        self.usual = 0  # the number before the first of the users
        self.is_forked = False
        _in_forked_children(self._begin_child)

    def _begin_child(self) -> None:
        self.is_forked = True
        torch.set_num_threads(1)

    def set(self, n_threads: int) -> None:
        torch.set_num_threads(1 if self.is_forked else n_threads)


_TORCH_THREADS = _TorchThreads()


@contextlib.contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Compute with so many threads; with one in a forked child.

    The caller's number is restored. New threads begin with the number that was set last, wherever
    that was, so the last of several users restores the number before the first.
    """
    threads = _TORCH_THREADS
    with threads.lock.held():
        before = torch.get_num_threads()
        if not threads.n_users:
            threads.usual = before
        threads.n_users += 1
        threads.set(n_threads)
    try:
        yield
    finally:
        with threads.lock.held():
            threads.n_users -= 1
            threads.set(before if threads.n_users else threads.usual)


def is_forked() -> bool:
    """Tell whether this process is the forked child of one that had loaded skdistill."""
    return _TORCH_THREADS.is_forked
