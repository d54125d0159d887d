# SPDX-License-Identifier: BSD-3-Clause
"""Every example runs, small, and prints and draws what it is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# What the table of each example has in one of its lines.
PRINTED = {
    "plot_anytime": "of the teacher's operations",
    "plot_decompose_boosting": "ms for a row",
    "plot_distil_forest": "student (1 network)",
    "plot_distil_regression": "RMSE",
    "plot_early_prediction": "share of the time",
    "plot_gped": "the student",
    "plot_gradient_ratio": "reverse KL, with the one",
    "plot_imagenet_logits": "rank correlation",
    "plot_report": "interval score, 90 %",
    "plot_spirals": "Hydra+",
    "plot_translation": "edits per word",
    "plot_two_decompositions": "student of the distribution",
    "plot_unseen_digits": "student, shown turned ones",
}


def test_every_example_is_known():
    assert sorted(PRINTED) == sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))


@pytest.mark.parametrize("example", sorted(PRINTED))
def test_example(example, run_script, monkeypatch, tmp_path):
    picture = tmp_path / "picture.png"
    monkeypatch.delenv("SKDISTILL_DATA", raising=False)  # the gallery is built without it
    printed = run_script(
        EXAMPLES / f"{example}.py", "--members", 2, "--epochs", 2, "--picture", picture
    )
    assert PRINTED[example] in printed
    assert picture.stat().st_size > 10_000


def test_the_demo_needs_nothing_that_others_have_imported(tmp_path):
    few = ["--members", "2", "--epochs", "1", "--picture", tmp_path / "picture.png"]
    subprocess.run([sys.executable, EXAMPLES / "plot_distil_regression.py", *few], check=True)
