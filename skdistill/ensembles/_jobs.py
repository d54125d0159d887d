# SPDX-License-Identifier: BSD-3-Clause
"""Tasks side by side, by whichever backend joblib is set to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from joblib.parallel import get_active_backend
from sklearn.utils.parallel import Parallel


def shares_memory() -> bool:
    """Tell whether tasks would run in threads of this process."""
    backend, _ = get_active_backend()
    return getattr(backend, "supports_sharedmem", False)


def on_workers(array: object) -> object:
    """Return what stands for an array among the arguments of tasks.

    dask gets a copy to every worker, once: joblib would send it to one, and if that one died, the
    array would be lost for all. Other backends share arrays by themselves.
    """
    backend, _ = get_active_backend()
    if array is None or not hasattr(backend, "client"):
        return array
    return backend.client.scatter(array, broadcast=True, hash=False)


def has_lost_rows(error: Exception) -> bool:
    """Tell whether dask has given up a task because no worker holds its rows any more.

    It frees memory by keeping one copy of what it holds several of, and a worker with the last one
    may die.
    """
    return any(kind.__name__ == "FutureCancelledError" for kind in type(error).__mro__)


class Threads:
    """Tasks that run as threads: asked to stop, and waited for.

    joblib ends its processes, but leaves its threads running; Python aborts if it ends before them.
    """

    def __init__(self):
        self.stopping = threading.Event()
        self._n_running = 0
        self._changed = threading.Condition()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Stand around a task, which is to end soon when ``stopping`` is set.

        Raises
        ------
        RuntimeError
            If the task begins too late.
        """
        with self._changed:
            if self.stopping.is_set():
                raise RuntimeError("No task may begin after the fit has ended.")
            self._n_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify()

    def stop(self) -> None:
        """Ask the tasks to stop, and return when the last one has; Ctrl-C ends the waiting."""
        with self._changed:
            self.stopping.set()
            self._changed.wait_for(lambda: not self._n_running)


def as_they_end(tasks: Sequence[object], n_jobs: int) -> Iterator[Any]:
    """Run tasks of :func:`sklearn.utils.parallel.delayed`, and yield what they return.

    A result comes as soon as its task has ended, whatever the order. From backends that cannot do
    so, such as ray's, results come together for every `n_jobs` tasks.

    Parameters
    ----------
    tasks : sequence
    n_jobs : int
    """
    backend, _ = get_active_backend()
    settings = {"n_jobs": n_jobs, "batch_size": 1}
    if backend.supports_return_generator:
        run = Parallel(**settings, return_as="generator_unordered")
        with closing(run(tasks)) as results:
            yield from results
        return
    with Parallel(**settings) as run:
        for start in range(0, len(tasks), n_jobs):
            yield from run(tasks[start : start + n_jobs])
