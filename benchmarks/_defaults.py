# SPDX-License-Identifier: BSD-3-Clause
"""With which defaults a results file was measured, and whether they are still those of today.

What estimators do by default is told by their constructors, by the reference predictions of the
tests, and by the mean scores of the suite, which is run with each change of a default: these change
with a rule or a constant, and not with a name or a place in the code. A script rests on the
estimators that it imports, or on the predictions whose names begin with one of its RESTS_ON.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
from collections.abc import Callable, Container
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import skdistill

FOLDER = Path(__file__).parent
REFERENCE = FOLDER.parent / "tests" / "reference.npz"
SUITE = FOLDER / "results" / "suite.json"
TOLERANCE = 1e-3  # of mean logarithms and of scores: other processors round otherwise
# First and last words of the names of what tells of an estimator; nothing does of sequences.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "BayesianEnsembleRegressor": (("ensemble", "teacher"), ("numbers", "nll")),
    "BayesianEnsembleClassifier": (("ensemble", "teacher"), ("classes", "log_loss")),
    "HydraPlusRegressor": (("hydra",), ("numbers", "nll")),
    "HydraPlusClassifier": (("hydra",), ("classes", "log_loss")),
    "DistributionDistiller": (("distribution",), ("",)),
    "GPEDDistiller": (("gped",), ("",)),
    "BDistilBooster": (("booster",), ("",)),
    "SequenceDistributionDistiller": (("sequences",), ("",)),
}


@cache
def behaviour() -> dict[str, float]:
    """Mean logarithms of the magnitudes of reference predictions, and mean scores of the suite."""
    with np.load(REFERENCE) as found:
        told = {name: np.log(np.abs(values) + 1e-6).mean() for name, values in found.items()}
    scores: dict[str, list[float]] = {}
    for row in json.loads(SUITE.read_text(encoding="utf-8"))["results"]:
        for score in {"nll", "log_loss"} & set(row):
            if row["protocol"] == "scores":
                scores.setdefault(f"{row['model']} {score}", []).append(row[score])
    told |= {name: mean(values) for name, values in scores.items()}
    return {name: round(float(value), 6) for name, value in told.items()}


def parameters(estimator: str) -> dict[str, str]:
    """Defaults of a constructor."""
    found = inspect.signature(getattr(skdistill, estimator)).parameters.values()
    return {p.name: repr(p.default) for p in found if p.default is not p.empty}


def defaults_of_script(script: str) -> dict[str, Any]:
    """What a script of this folder rests on; of another program all."""
    path = FOLDER / script
    names = _names_imported(path) if path.exists() else set(CASES)
    estimators = [name for name in CASES if name in names]
    found: dict[str, Any] = {}
    prefixes = _declared(path) if path.exists() else None
    for name in estimators:
        first, last = CASES[name]
        found[name] = parameters(name)
        found |= {
            case: value
            for case, value in behaviour().items()
            if case.startswith(first) and case.endswith(last)
            if prefixes is None or case.startswith(prefixes)
        }
    return found


def changed(found: dict[str, Any]) -> list[str]:
    """Which of its defaults a results file no longer has; that it does not say is one of them."""
    then = found.get("defaults")
    if then is None or any("older" in row for row in rows_of(found)):
        return ["all"]
    return [name for name, value in then.items() if not _is_todays(name, value)]


def _is_todays(name: str, value: Any) -> bool:
    """Whether a default is the same; what has no default any more, or none then, tells nothing."""
    if isinstance(value, dict):
        now = parameters(name) if hasattr(skdistill, name) else {}
        return all(now.get(parameter, text) == text for parameter, text in value.items())
    return math.isclose(behaviour().get(name, value), value, abs_tol=TOLERANCE)


def _declared(path: Path) -> tuple[str, ...] | None:
    """What a script says that it rests on."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RESTS_ON":
            return ast.literal_eval(node.value)
    return None


def _names_imported(path: Path) -> set[str]:
    """What a script imports, and what the scripts do that it imports."""
    names, paths, new = set[str](), set[Path](), {path}
    while new:
        paths |= new
        for file in new:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    names |= {getattr(node, "module", None) or "", *(a.name for a in node.names)}
        new = {file for name in names if (file := FOLDER / f"{name}.py").exists()} - paths
    return names


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a file that can be resumed."""
    return found["results"] if isinstance(found.get("results"), list) else []


def kept(found: dict[str, Any], ours: Container[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a file to be resumed; those of our models are marked where defaults have changed.

    All are of our models where it is not told which are.
    """
    if not changed({**found, "results": None}):
        return rows_of(found)  # some of which may have been older before
    return [
        row | {"older": True} if ours is None or row["model"] in ours else row
        for row in rows_of(found)
    ]


def replaced(rows: list[dict], new: list[dict], identity: Callable[[dict], Any]) -> list[dict]:
    """`rows` and `new` ones, which take the place of those of the same identity."""
    known = set(map(identity, new))
    return [row for row in rows if identity(row) not in known] + new
