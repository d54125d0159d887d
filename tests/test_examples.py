# SPDX-License-Identifier: BSD-3-Clause
"""Every example runs, small, and writes its picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    picture = tmp_path / "picture.png"
    finished = subprocess.run(
        [sys.executable, example, "--members", "3", "--epochs", "3", "--picture", picture],
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "RMSE" in finished.stdout
    assert picture.stat().st_size > 10_000
