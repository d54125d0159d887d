# SPDX-License-Identifier: BSD-3-Clause
"""Every example runs, small, and prints and draws what it is about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# What the table of each example has in one of its lines.
PRINTED = {
    "plot_distil_forest": "student (1 network)",
    "plot_distil_regression": "RMSE",
    "plot_spirals": "Hydra+",
    "plot_unseen_digits": "student, shown turned ones",
}


def test_every_example_is_known():
    assert sorted(PRINTED) == sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))


@pytest.mark.parametrize("example", sorted(PRINTED))
def test_example(example, tmp_path):
    picture = tmp_path / "picture.png"
    script = EXAMPLES / f"{example}.py"
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    environment.pop("SKDISTILL_DATA", None)  # the gallery is built without it
    finished = subprocess.run(
        [sys.executable, script, "--members", "3", "--epochs", "3", "--picture", picture],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert PRINTED[example] in finished.stdout
    assert picture.stat().st_size > 10_000
