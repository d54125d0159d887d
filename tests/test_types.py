# SPDX-License-Identifier: BSD-3-Clause
"""What a user's type checker sees: types on all that is public, and true ones."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from test_common import public_objects

import skdistill

SCRIPT = Path(__file__).with_name("typed_script.py")
PACKAGE = Path(skdistill.__file__).parent


def calls(name, obj):
    """A public function, or the public methods of a class and its constructor, by dotted names."""
    if inspect.isfunction(obj):
        yield name, obj
        return
    for base in obj.__mro__:
        for attribute, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fn", value))
            is_ours = inspect.isfunction(function) and base.__module__.startswith("skdistill")
            is_public = attribute == "__init__" or not attribute.startswith("_")
            if is_ours and is_public and function.__module__.startswith("skdistill"):
                yield f"{name}.{attribute}", inspect.unwrap(function)


def without_types(function):
    """What of a signature has no type: names of parameters, and "return"."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in parameters if p.annotation is p.empty]
    is_result_open = signature.return_annotation is signature.empty
    # The constructor's is known, unless it takes nothing: then mypy calls it untyped.
    is_constructor = function.__name__ == "__init__" and bool(parameters)
    return missing + ["return"] * (is_result_open and not is_constructor)


def test_public_calls_have_types():
    found = {
        what: without_types(function)
        for name, obj in public_objects().items()
        for what, function in calls(name, obj)
    }
    assert {what: missing for what, missing in found.items() if missing} == {}


@pytest.mark.filterwarnings("ignore")  # networks of two epochs have learnt nothing
def test_typed_script_runs():
    assert "loaded" in runpy.run_path(str(SCRIPT))


@pytest.mark.slow
def test_mypy_accepts_a_users_script(tmp_path, pytestconfig):
    """As strict as mypy gets, and without our configuration; `assert_type` holds the types.

    Of torch and pandas, whose types the script does not name, mypy would read for ten seconds.
    """
    pytest.importorskip("mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import skdistill\nskdistill.HydraPlusRegressor(max_time='one')\n")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\n[mypy-torch.*,pandas.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--no-color-output"]
    kept = getattr(pytestconfig, "cache", None)  # there is none with -p no:cacheprovider
    cache = tmp_path / "cache" if kept is None else kept.mkdir("mypy")
    done = subprocess.run(
        [*command, "--cache-dir", str(cache), str(SCRIPT), str(wrong)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},  # where py.typed counts, as installed
        capture_output=True,
        text=True,
        timeout=500,
    )
    errors = re.findall(r"^(\S+?):\d+: error: (.*)$", done.stdout, re.MULTILINE)
    assert [Path(file).name for file, _ in errors] == ["wrong.py"], done.stdout + done.stderr
    assert '"max_time"' in errors[0][1]
