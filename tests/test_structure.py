# SPDX-License-Identifier: BSD-3-Clause
"""What one must learn to change something does not grow: a fit's functions, files and lines."""

from __future__ import annotations

import ast
import collections
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import skdistill
from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    GPEDDistiller,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)

ROOT = Path(skdistill.__file__).parent
PUBLIC = [
    value
    for name, value in vars(skdistill).items()
    if name in skdistill.__all__ and inspect.isclass(value)
]


def test_constructors_have_few_parameters():
    counts = {
        cls.__name__: len(inspect.signature(cls).parameters) - 1  # kwargs
        for cls in PUBLIC
        if hasattr(cls, "get_params") and cls is not SequenceDistributionDistiller
    }
    assert len(counts) == 7
    assert max(counts.values()) <= 22, counts
    assert np.mean(list(counts.values())) <= 20.5, counts
    assert len(inspect.signature(SequenceDistributionDistiller).parameters) <= 22


X = np.random.default_rng(0).normal(size=(40, 3))
NUMBERS = X[:, 0] - X[:, 1]
SMALL = {"max_epochs": 2, "module__hidden_units": (4,)}
TEACHER = BayesianEnsembleRegressor(3, **SMALL)


def fit_noting(note, estimator, arguments):
    """Fit an estimator, while Python tells `note` of every call."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        estimator.fit(*arguments)
    finally:
        sys.setprofile(before)


def first_calls(estimator, *arguments):
    """File of each function of ours that a fit calls, in the order of their first calls."""
    found = {}

    def note(frame, event, _):
        code = frame.f_code
        is_part = code.co_name.startswith("<")  # of a function: a lambda, or what it iterates over
        if event == "call" and not is_part and code.co_filename.startswith(str(ROOT)):
            # not the code itself, whose hash changes as Python optimises it
            found.setdefault((code.co_filename, code.co_firstlineno), code.co_filename)

    fit_noting(note, estimator, arguments)
    return list(found.values())


# Distinct functions and files of a whole fit, its teacher's included. A change may lower them.
TRACES = [
    (TEACHER, 298, 35),
    (HydraPlusRegressor(TEACHER, **SMALL), 473, 48),
    (GPEDDistiller(TEACHER, **SMALL), 475, 50),
    (BDistilBooster(TEACHER, n_rounds=2, random_state=0, **SMALL), 471, 53),
]


@pytest.mark.parametrize(("estimator", "n_functions", "n_files"), TRACES)
def test_a_fit_is_no_longer_than_it_was(estimator, n_functions, n_files):
    estimator = clone(estimator)
    estimator.fit(X, NUMBERS)  # what is done once in a process is no part of it
    files = first_calls(estimator, X, NUMBERS)
    assert len(files) <= n_functions
    assert len(set(files)) <= n_files


# Lines of each package, and of the modules beside them. A change may lower them.
LINES = {
    **{"_data": 1608, "_engine": 2560, "_estimator": 2393, "_method": 1218, "_report": 731},
    **{"_serialization": 585, "_training": 1007, "_utils": 1300, "active": 393, "datasets": 381},
    **{"decision": 627, "displays": 929, "distillers": 5656, "distributions": 2174},
    **{"ensembles": 2567, "export": 1934, "families": 1026, "integrations": 145, "losses": 1904},
    **{"metrics": 1394, "model_selection": 555, "modules": 2711, "monitoring": 346},
    **{"persistence": 359, "pruning": 621, "samplers": 706, "sequences": 735, "skdistill": 1127},
    **{"teachers": 2662, "transfer": 907},
}


def test_the_library_does_not_grow():
    found = dict.fromkeys(LINES, 0)
    for path in ROOT.rglob("*.py"):
        folder, *inside = path.relative_to(ROOT).parts
        found[folder if inside else "skdistill"] += len(path.read_text().splitlines())
    grown = {name: n for name, n in found.items() if n > LINES[name]}
    assert not grown, grown


def used_once(paths):
    """Private functions of at most three statements whose name occurs at one other place."""
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    words = collections.Counter(re.findall(r"\w+", "\n".join(texts.values())))
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            is_private = isinstance(node, ast.FunctionDef) and re.match("_[^_]", node.name)
            if is_private and words[node.name] == 2:
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if len(body) <= 3:
                    yield f"{path}:{node.lineno}: {node.name}"


def test_small_functions_that_are_used_once_belong_into_their_caller(tmp_path):
    assert len(list(used_once(ROOT.rglob("*.py")))) <= 43
    (tmp_path / "a.py").write_text("def _f():\n    return 1\n\n\nx = _f()\n")
    assert len(list(used_once([tmp_path / "a.py"]))) == 1


def test_public_losses_are_those_that_a_training_loop_calls():
    assert len(skdistill.losses.__all__) <= 20
