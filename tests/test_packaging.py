# SPDX-License-Identifier: BSD-3-Clause
"""What is handed out is complete: every module in the wheel, and what tests and documents need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("skdistill", "tests", "doc", "examples", "requirements", "benchmarks", "recipe")
MADE = ("__pycache__", "_build", "auto_examples", "generated", "gen_modules")
BUILD = (
    "from setuptools import build_meta as backend; "
    "backend.build_sdist('dist'); backend.build_wheel('dist')"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the checkout, since setuptools writes beside what it builds."""
    copied = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copied / folder, ignore=shutil.ignore_patterns(*MADE))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copied)
    run = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=copied, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return copied


def files_in(source, *folders):
    found = (path for folder in folders for path in (source / folder).rglob("*"))
    return {path.relative_to(source).as_posix() for path in found if path.is_file()}


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(source):
    (wheel,) = (source / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == files_in(source, "skdistill")
    assert "skdistill/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_source_distribution_holds_tests_and_documents(source):
    (sdist,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = files_in(source, *FOLDERS) - names
    assert not missing
    assert {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "setup.cfg"} <= names
