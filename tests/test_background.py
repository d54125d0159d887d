# SPDX-License-Identifier: BSD-3-Clause
"""Tests pass where a shell ignores Ctrl-C: in its background, and under nohup."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_ctrl_c_interrupts_where_a_shell_ignores_it():
    chosen = ["tests/ensembles/test_regressor.py", "-k", "test_ctrl_c_keeps_the_members and False"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    done = subprocess.run([*shell, *command], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "1 passed" in done.stdout
