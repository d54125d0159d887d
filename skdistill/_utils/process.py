# SPDX-License-Identifier: BSD-3-Clause
"""Threads of a process, made safe for forked children, and its memory."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from sklearn import get_config
from threadpoolctl import ThreadpoolController
from torch import Tensor

_ANSWER_BYTES = 2**24  # of a teacher's predictions at a time, see doc/design.rst
_ROWS_ASKED = 2**14  # samples that a teacher predicts at a time


def _in_forked_children(act: Callable[[], None]) -> None:
    """Call `act` at the start of every forked child of this process."""
    if hasattr(os, "register_at_fork"):  # Windows cannot fork
        os.register_at_fork(after_in_child=act)


class ProcessLock:
    """Reentrant lock that is free in a forked child, whichever thread held it before."""

    def __init__(self) -> None:
        self._renew()
        _in_forked_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, even if the process forks meanwhile."""
        with self._lock:
            yield


# For torch.compile, torch keeps one flag for all threads that a TorchDispatchMode is on, and one
# default device. With modes in two threads at once, they could stay set after both have ended.
DISPATCH_MODE_LOCK = ProcessLock()


class _TorchThreads:
    """Number of threads of torch; one in a forked child, where OpenMP waits for others forever."""

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.n_users = 0
        self.n_before = 0  # threads, before the first user
        self.is_forked = False
        _in_forked_children(self._begin_child)

    def _begin_child(self) -> None:
        self.is_forked = True
        torch.set_num_threads(1)

    @contextlib.contextmanager
    def limited(self, n_threads: int) -> Iterator[None]:
        """Let torch compute with `n_threads` threads, or one in a forked child.

        The number before is restored. New threads inherit the number that any thread set last, so
        the last of several concurrent users restores the number before the first.
        """
        with self.lock.held():
            before = torch.get_num_threads()
            if not self.n_users:
                self.n_before = before
            self.n_users += 1
            torch.set_num_threads(1 if self.is_forked else n_threads)
        try:
            yield
        finally:
            with self.lock.held():
                self.n_users -= 1
                n_threads = before if self.n_users else self.n_before
                torch.set_num_threads(1 if self.is_forked else n_threads)


class _BlasThreads:
    """Limit of the threads of numpy's and scipy's linear algebra, by how many want it."""

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.n_users = 0
        self.limits: Any = None

    @functools.cached_property
    def controller(self) -> ThreadpoolController:
        """Libraries of numpy and scipy, which skdistill imports; finding them takes time."""
        return ThreadpoolController()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Let numpy and scipy multiply and decompose matrices with one thread.

        On busy cores threads of BLAS wait for one another: decompositions of matrices of a few
        hundred rows took 30 times as long. The last concurrent user restores the number.
        """
        with self.lock.held():
            if not self.n_users:
                self.limits = self.controller.limit(limits=1, user_api="blas")
            self.n_users += 1
        try:
            yield
        finally:
            with self.lock.held():
                self.n_users -= 1
                if not self.n_users:
                    self.limits.restore_original_limits()


_TORCH_THREADS = _TorchThreads()
torch_threads, one_blas_thread = _TORCH_THREADS.limited, _BlasThreads().one


_MOST_THREADS = 256  # as many as torch may be set to; they are started as they are wanted


class _WaitingThreads:
    """Threads for work that is shared out, which wait for more of it when they are done.

    They are not ended: a process that forks in that moment could copy a lock of BLAS that the
    ending thread holds, and its child would wait for it forever. A child starts threads anew.
    """

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self._begin_child()
        _in_forked_children(self._begin_child)

    def _begin_child(self) -> None:
        self.executor = ThreadPoolExecutor(_MOST_THREADS, "skdistill")  # starts none as yet

    def call(self, act: Callable[[], None], n_threads: int) -> None:
        with self.lock.held():
            calls = [self.executor.submit(act) for _ in range(n_threads)]
        for call in calls:
            call.result()


_WAITING_THREADS = _WaitingThreads()


def on_threads(act: Callable[[Any], None], shares: Sequence[Any], n_threads: int) -> None:
    """Call `act` for each of the shares, in `n_threads` threads; the first error is raised."""
    numbers = iter(range(len(shares)))
    failures: dict[int, BaseException] = {}

    def work() -> None:
        while not failures and (number := next(numbers, None)) is not None:
            try:
                act(shares[number])
            except Exception as error:  # of any kind: it is raised again in the caller
                failures[number] = error

    try:
        _WAITING_THREADS.call(work, n_threads)
    except BaseException as error:  # such as Ctrl-C: the threads stop at their next share
        failures[-1] = error
    if failures:
        raise failures[min(failures)]


def is_forked() -> bool:
    """Tell whether this process is the forked child of one that had loaded skdistill."""
    return _TORCH_THREADS.is_forked


# --- memory -----------------------------------------------------------------------------------


def working_memory() -> int:
    """Return scikit-learn's ``working_memory`` in bytes."""
    return int(get_config()["working_memory"] * 2**20)


def rows_in_memory(prediction: np.ndarray | Tensor) -> int:
    """Return how many samples' predictions fit the memory, given that of one sample."""
    return max(1, working_memory() // prediction.nbytes)


def rows_asked(prediction: np.ndarray | Tensor) -> int:
    """Return for how many samples a teacher predicts at a time, given its prediction for one."""
    within_bytes = max(1, _ANSWER_BYTES // prediction.nbytes)
    return min(rows_in_memory(prediction), within_bytes, _ROWS_ASKED)


def fits_twice(n_bytes: int) -> bool:
    """Tell whether memory holds so many bytes twice; it does where its size is not known."""
    if not hasattr(os, "sysconf"):  # Windows
        return True
    return n_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
