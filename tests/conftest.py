# SPDX-License-Identifier: BSD-3-Clause
"""What every test shares: one thread, one seed, no window, and the folder of real data."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Read when numpy, scipy and matplotlib are first imported, hence before anything else; the same as
# in the Makefile, so that a bare `pytest` runs what `make test` runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")  # without it scikit-learn leaves out a few checks
os.environ["MPLBACKEND"] = "Agg"

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Give what draws from the global generators, such as ``random_state=None``, one seed."""
    np.random.seed(0)  # noqa: NPY002 -- what random_state=None stands for
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets, named by the environment variable SKDISTILL_DATA."""
    folder = os.environ.get("SKDISTILL_DATA")
    if not folder:
        pytest.skip("SKDISTILL_DATA does not name the folder of the real data sets")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"SKDISTILL_DATA names {folder!r}, which is no folder")
    return path


class CtrlC(torch.optim.SGD):
    """An optimizer during whose step number `at` the user presses Ctrl-C."""

    steps = 0

    def __init__(self, params, lr, at=0):
        super().__init__(params, lr)
        self.at = at

    def step(self, closure=None):
        super().step(closure)
        CtrlC.steps += 1
        if CtrlC.steps == self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def ctrl_c() -> type[CtrlC]:
    """The class :class:`CtrlC`, before its first step."""
    CtrlC.steps = 0
    return CtrlC
