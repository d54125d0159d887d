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

PACKAGE = Path(skdistill.__file__).parent
FOLDER = Path(__file__).parent
# Parts of the package whose constants do not change what a fit leads to.
WITHOUT_RULES = {"_engine", "_serialization", "_utils"}
SHARED = ("families", "modules", "samplers", "settings", "transfer")


@cache
def defaults() -> dict[str, str]:
    """Digests of all that a fit with default parameters depends on.

    That is the version, the defaults of the objects that are parameters, and for each estimator
    its defaults, those of its networks, and the numbers by which it resolves "auto": constants of
    the modules it uses.
    """
    found: dict[str, Any] = {"version": skdistill.__version__}
    for name in skdistill.__all__:
        if hasattr(public := getattr(skdistill, name), "get_params"):
            used = sorted(line for path in modules_used_by(public) for line in constants(path))
            rules = [getattr(public, rule, {}) for rule in ("_module_defaults", "_auto_transfer")]
            found[name] = defaults_of(public), used, *filter(None, rules)
    for name in SHARED:
        module = importlib.import_module(f"skdistill.{name}")
        kinds = [kind for kind in map(module.__dict__.get, module.__all__) if inspect.isclass(kind)]
        found[name] = {kind.__name__: defaults_of(kind) for kind in kinds}
    return {
        name: hashlib.sha256(repr(value).encode()).hexdigest()[:8] for name, value in found.items()
    }


def modules_used_by(public: type) -> set[Path]:
    """Files of the package that the module of a class imports, and that these import."""
    found: set[Path] = set()
    new = {_file_of(public.__module__)}
    while new:
        found |= new
        new = {used for path in new for used in _imported(path)} - found
    return {path for path in found if not WITHOUT_RULES & {*path.relative_to(PACKAGE).parts}}


@cache
def _imported(path: Path) -> set[Path]:
    """Files of the package that a file imports from; not what packages only pass on."""
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        module = importlib.import_module("." * node.level + (node.module or ""), package)
        for name in node.names:
            value = getattr(module, name.name)
            home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
            is_ours = str(home).startswith("skdistill.")
            found.add(_file_of(str(home) if is_ours else module.__name__))
    return found


def _file_of(module: str) -> Path:
    return Path(importlib.import_module(module).__file__ or "")


def defaults_of(kind: type) -> list[tuple[str, str]]:
    """Names and defaults of the parameters of a constructor."""
    parameters = inspect.signature(kind).parameters.values()
    return sorted((p.name, repr(p.default)) for p in parameters if p.default is not p.empty)


def constants(path: Path) -> Iterator[str]:
    """Names and values of a module's constants that are numbers, or hold some.

    Powers are sizes of memory, and tables of parameters say what is accepted: they are left out.
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
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


def defaults_of_script(script: str) -> dict[str, str]:
    """Digests of what a script of this folder depends on; of another program all."""
    needed = depends_on(script) if (FOLDER / script).exists() else defaults()
    return {name: value for name, value in defaults().items() if name in needed}


def changed(found: dict[str, Any]) -> list[str]:
    """Which of its defaults a results file no longer has: all where it does not say."""
    then, now = found.get("defaults", {}), defaults()
    if not then or any("older" in row for row in rows_of(found)):
        return list(now)
    return [name for name, value in then.items() if now.get(name) != value]


def depends_on(script: str) -> set[str]:
    """Which digests concern a script: of estimators those that it, or what it imports, names."""
    names, paths, new = {"version", *SHARED}, set[Path](), {FOLDER / script}
    while new:
        paths |= new
        imported = set[str]().union(*map(_names_imported, new))
        names |= imported
        new = {path for name in imported if (path := FOLDER / f"{name}.py").exists()} - paths
    return names & set(defaults())


def _names_imported(path: Path) -> set[str]:
    """Modules that a file imports, and names that it imports from modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {getattr(node, "module", None) or "", *(alias.name for alias in node.names)}
    return found


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
    """`rows` and `new` ones, which take the place of those with older defaults."""
    known = set(map(identity, new))
    return [row for row in rows if not ("older" in row and identity(row) in known)] + new
