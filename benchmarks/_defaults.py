# SPDX-License-Identifier: BSD-3-Clause
"""With which defaults a results file was measured, and whether they are still those of today."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
from collections.abc import Callable, Container, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import skdistill

# Parts of the package whose constants do not change what a fit leads to.
WITHOUT_RULES = {
    *("_engine", "_report", "_serialization", "_utils", "active", "datasets", "decision"),
    *("displays", "distributed", "export", "integrations", "metrics", "model_selection"),
    *("monitoring", "persistence", "streams"),
}


@cache
def defaults() -> dict[str, str]:
    """Digests of all that a fit with default parameters depends on.

    That is the version, the defaults of each estimator and of the objects that are parameters, and
    "rules": the numbers by which "auto" is resolved, which are the constants of the package.
    """
    found: dict[str, Any] = {"version": skdistill.__version__}
    for name in skdistill.__all__:
        if hasattr(public := getattr(skdistill, name), "get_params"):
            found[name] = defaults_of(public)
    for name in ("families", "modules", "samplers", "settings", "transfer"):
        module = importlib.import_module(f"skdistill.{name}")
        kinds = [kind for kind in map(module.__dict__.get, module.__all__) if inspect.isclass(kind)]
        found[name] = {kind.__name__: defaults_of(kind) for kind in kinds}
    package = Path(skdistill.__file__).parent
    paths = [path.relative_to(package) for path in sorted(package.rglob("*.py"))]
    used = [path for path in paths if not WITHOUT_RULES & {*path.parts, path.stem}]
    texts = ((package / path).read_text(encoding="utf-8") for path in used)
    found["rules"] = sorted(line for text in texts for line in constants(text))
    return {
        name: hashlib.sha256(repr(value).encode()).hexdigest()[:8] for name, value in found.items()
    }


def defaults_of(kind: type) -> list[tuple[str, str]]:
    """Names and defaults of the parameters of a constructor."""
    parameters = inspect.signature(kind).parameters.values()
    return sorted((p.name, repr(p.default)) for p in parameters if p.default is not p.empty)


def constants(text: str) -> Iterator[str]:
    """Names and values of a module's constants that are numbers, or hold some.

    Powers are sizes of memory, and tables of parameters say what is accepted: they are left out.
    """
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not (isinstance(target, ast.Name) and target.id.isupper()):
            continue
        parts = list(ast.walk(node.value))
        holds_numbers = any(
            isinstance(part, ast.Constant) and isinstance(part.value, (int, float))
            for part in parts
        )
        is_size = any(isinstance(part, ast.Pow) for part in parts)
        if holds_numbers and not is_size and not target.id.endswith(("PARAMETERS", "TABLE")):
            yield f"{target.id} = {ast.unparse(node.value)}"


def changed(found: dict[str, Any]) -> list[str]:
    """Which defaults are no longer those of a results file: all where it does not say."""
    then = found.get("defaults", {})
    are_older = any("older" in row for row in rows_of(found))
    return [name for name, now in defaults().items() if are_older or then.get(name) != now]


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a file that can be resumed."""
    return found["results"] if isinstance(found.get("results"), list) else []


def kept(found: dict[str, Any], ours: Container[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a file to be resumed; those of our models are marked where defaults have changed.

    All are of our models where it is not told which are.
    """
    if found.get("defaults") == defaults():
        return rows_of(found)  # some of which may have been older before
    return [
        row | {"older": True} if ours is None or row["model"] in ours else row
        for row in rows_of(found)
    ]


def replaced(rows: list[dict], new: list[dict], identity: Callable[[dict], Any]) -> list[dict]:
    """`rows` and `new` ones, which take the place of those with older defaults."""
    known = set(map(identity, new))
    return [row for row in rows if not ("older" in row and identity(row) in known)] + new
