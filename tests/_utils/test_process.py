# SPDX-License-Identifier: BSD-3-Clause
"""Forked children predict and fit, and threads leave torch's setting as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skdistill._utils.process import one_blas_thread

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# Two threads for torch whatever the machine has, and a child that hangs is killed.
PREAMBLE = """
import os, pickle, sys, time, warnings
import numpy as np, torch
from skdistill import BayesianEnsembleRegressor
from skdistill.settings import Runtime
warnings.simplefilter("ignore")
torch.set_num_threads(2)
rng = np.random.RandomState(0)
X = rng.normal(size=(2000, 20)).astype(np.float32)
y = X[:, 0] + rng.normal(size=len(X))

def wide(n_threads="auto", **params):
    settings = {"module__hidden_units": (100, 100), "max_epochs": 1, "batch_size": 1000}
    runtime = Runtime(device="cpu", n_threads=n_threads)
    return BayesianEnsembleRegressor(2, runtime=runtime, random_state=0, **settings, **params)

def count_threads():
    path = "/proc/self/task"  # of Linux
    return len(os.listdir(path)) if os.path.isdir(path) else 0

def check_fit(model, expected):
    np.testing.assert_allclose(model.predict(X), expected[:2000], rtol=1e-2, atol=1e-2)

def in_child(act, seconds=25):
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, "the child failed"
            return
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    sys.exit("the child hangs")
"""


def run(script: str) -> None:
    """Run a script in a fresh process; one that hangs or fails fails the test."""
    code = PREAMBLE + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@needs_fork
def test_children_predict_and_fit(tally):
    """From a process that has used no thread, and from one that has used two."""
    run(
        """
        # Loading a model starts no thread, and a child predicts.
        torch.set_num_threads(1)
        data = pickle.dumps(wide(n_threads=1).fit(X, y))
        torch.set_num_threads(2)
        before = count_threads()
        model = pickle.loads(data)
        assert count_threads() == before, "loading has started threads"
        assert torch.get_num_threads() == 2
        in_child(lambda: model.predict(X[:1]))

        many = np.resize(X, (20_000, 20))

        # A child of a process that used two threads, and its own child, predict and fit.
        model = wide(n_threads=2).fit(X, y)  # as many threads as torch has: two
        expected = model.predict(many)
        assert torch.get_num_threads() == 2

        def act():
            np.testing.assert_allclose(model.predict(many), expected, rtol=1e-4, atol=1e-5)
            check_fit(wide().fit(X, y), expected)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                wide(n_threads=2).fit(X, y)  # of no effect, and says so
            assert any("n_threads=2 has no effect" in str(w.message) for w in caught)
            assert torch.get_num_threads() == 1
            torch.randn(800, 800) @ torch.randn(800, 800)

        in_child(act)
        in_child(lambda: in_child(act))
        assert torch.get_num_threads() == 2
        """
    )
    tally("forks", 4)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_last_user_of_one_blas_thread_restores_the_number_before():
    with threadpool_limits(2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}
