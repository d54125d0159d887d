# SPDX-License-Identifier: BSD-3-Clause
"""The package's layers hold: who may import whom, and what `import skdistill` leaves unloaded."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the bottom up. A part may import its own layer and those before it, and nothing after it.
# What begins with an underscore inside a part is that part's own business.
LAYERS = {
    "foundations": {"_serialization", "_utils", "_version"},
    "pure torch": {
        "distributions",
        "expectations",
        "families",
        "losses",
        "modules",
        "pruning",
        "samplers",
        "settings",
        "transfer",
    },
    "data and methods": {"_data", "_method"},
    "engine": {"_engine"},
    "training": {"_training"},
    "estimator": {"_estimator"},
    "estimators": {"ensembles", "teachers", "sequences", "distillers"},
    "around": {
        "_report",
        "active",
        "estimator_checks",
        "metrics",
        "displays",
        "model_selection",
        "decision",
        "monitoring",
        "persistence",
        "streams",
        "export",
        "datasets",
        "integrations",
    },
}
LAYER_OF = {part: layer for layer, parts in LAYERS.items() for part in parts}
HEIGHT = {layer: height for height, layer in enumerate(LAYERS)}

# Libraries that only these parts may name.
IMPORTERS = {
    "skorch": {"_engine"},
    "sklearn": LAYERS["foundations"].union(
        {"transfer"},  # for the nearest neighbours of samples
        *(LAYERS[name] for name in LAYERS if name not in ("pure torch", "engine")),
    ),
    "matplotlib": {"displays"},
    "botorch": {"integrations"},
}


def imported_names(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of each import, those inside functions included."""
    parents = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level + 1] if node.level else []
            base = [*start, node.module] if node.module else start
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])


def complaint(part: str, name: str) -> str | None:
    """Why a part of skdistill may not import the dotted name; None where it may.

    `part` is the module or package right below skdistill, "" for skdistill/__init__.py.
    """
    library, *path = name.split(".")
    if library in IMPORTERS and part not in IMPORTERS[library]:
        return f"only {', '.join(sorted(IMPORTERS[library]))} may import {library}"
    if library != "skdistill" or part == "":
        return None
    target = path[0] if path else ""
    if target == part or target == "__version__":
        return None
    if target not in LAYER_OF:
        return "no part of skdistill; import what is public from the module that defines it"
    if HEIGHT[LAYER_OF[target]] > HEIGHT[LAYER_OF[part]]:
        return f"{LAYER_OF[part]} may not import {LAYER_OF[target]}"
    if any(step.startswith("_") and not step.startswith("__") for step in path[1:]):
        return f"an internal of {target}"
    return None


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """Imports in one module's source that cross the layers, each with its line and the reason."""
    part = (module.split(".") + [""])[1]
    if part and part not in LAYER_OF:
        return [f"{module}: has no place in LAYERS"]
    return [
        f"{module}:{line} imports {name}: {reason}"
        for line, name in imported_names(source, module, is_package)
        if (reason := complaint(part, name)) is not None
    ]


@pytest.mark.slow
def test_the_package_holds_its_layers():
    files = sorted((ROOT / "skdistill").rglob("*.py"))
    assert files
    found = []
    for file in files:
        is_package = file.name == "__init__.py"
        path = file.parent if is_package else file.with_suffix("")
        module = ".".join(path.relative_to(ROOT).parts)
        found += violations(file.read_text(encoding="utf-8"), module, is_package)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("skdistill.losses", "import sklearn.metrics", "may import sklearn"),
        ("skdistill.losses", "from skorch import NeuralNet", "only _engine may import skorch"),
        (
            "skdistill._training.trainer",
            "def f():\n    import skorch",
            "only _engine may import skorch",
        ),
        (
            "skdistill._training.trainer",
            "from .. import ensembles",
            "training may not import estimators",
        ),
        (
            "skdistill.distillers._hydra",
            "from ..ensembles._estimators import BayesianEnsembleRegressor",
            "an internal of ensembles",
        ),
        ("skdistill.teachers", "from .displays import X", "estimators may not import around"),
        ("skdistill.metrics", "import skdistill", "no part of skdistill"),
        ("skdistill.helpers", "x = 1", "has no place in LAYERS"),
    ],
)
def test_a_planted_violation_is_found(module, source, reason):
    (found,) = violations(source, module)
    assert reason in found


@pytest.mark.parametrize(
    ("module", "is_package", "source"),
    [
        ("skdistill.distributions", True, "from ._gaussian import EmpiricalGaussian"),
        (
            "skdistill.distillers._hydra",
            False,
            "from ..ensembles import BayesianEnsembleRegressor\nfrom .._engine import Engine",
        ),
        ("skdistill.displays", False, "def plot():\n    import matplotlib.pyplot"),
        ("skdistill", True, "from ._estimator.functions import predict_uncertainty"),
    ],
)
def test_an_allowed_import_passes(module, is_package, source):
    assert violations(source, module, is_package) == []


# A new process: what it has imported after each step, and what is found where nothing is.
STEPS = """
import json
import sys

def imported(*names):
    return sorted({*names} & {*sys.modules})

# scikit-learn imports pandas wherever it is installed, so here it is not.
sys.modules["pandas"] = None
import skdistill
lazy = skdistill._LAZY
found = {"early": imported(*("skdistill." + name for name in lazy))}

student = skdistill.load("tests/persistence/version_1.safetensors")[-1]
student.predict([[0.0] * student.n_features_in_])
found["loaded"] = imported("sympy", "skorch", "torch._dynamo")

import skdistill.persistence
found["heavy"] = imported("matplotlib", "skdistill.displays", "skorch", "torch._dynamo")

sys.modules["matplotlib"] = None
found["listed"] = set(lazy) < set(dir(skdistill))
found["same"] = all(getattr(skdistill, name) is sys.modules["skdistill." + name] for name in lazy)
found["errors"] = []
for name in ("datasets_", "metric"):
    try:
        getattr(skdistill, name)
    except AttributeError as error:
        found["errors"].append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    run = subprocess.run(
        [sys.executable, "-c", STEPS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
def test_importing_skdistill_loads_nothing_heavy(found):
    assert found["early"] == []
    assert found["heavy"] == []


@pytest.mark.slow
def test_loading_a_model_imports_no_compiler(found):
    # A second of a new process; torch imports it for some operations on tensors without values.
    assert found["loaded"] == []


@pytest.mark.slow
def test_submodules_are_there_when_they_are_asked_for(found):
    """Displays too, where there is no matplotlib."""
    assert found["listed"]
    assert found["same"]
    has_none = "module 'skdistill' has no attribute"
    assert found["errors"] == [
        f"{has_none} 'datasets_'. Did you mean 'datasets'?",
        f"{has_none} 'metric'. Did you mean 'metrics'?",
    ]
