# SPDX-License-Identifier: BSD-3-Clause
"""What one must learn to change something does not grow: a fit's functions, files and lines."""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)
from skdistill.samplers import SGLD

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
NUMBERS, CLASSES = X[:, 0] - X[:, 1], (X[:, 0] > 0).astype(int)
SMALL = {"max_epochs": 2, "module__hidden_units": (4,)}
TEACHERS = {
    "regressor": BayesianEnsembleRegressor(3, **SMALL),
    "classifier": BayesianEnsembleClassifier(3, **SMALL),
}
CHAIN = BayesianEnsembleClassifier(inference=SGLD(1e-5), **SMALL)
FITS = [
    (TEACHERS["regressor"], NUMBERS),
    (TEACHERS["classifier"], CLASSES),
    (HydraPlusRegressor(TEACHERS["regressor"], **SMALL), NUMBERS),
    (HydraPlusClassifier(TEACHERS["classifier"], **SMALL), CLASSES),
    (DistributionDistiller(TEACHERS["regressor"], **SMALL), NUMBERS),
    (DistributionDistiller(TEACHERS["classifier"], **SMALL), CLASSES),
    (GPEDDistiller(TEACHERS["regressor"], **SMALL), NUMBERS),
    (GPEDDistiller(CHAIN, module__hidden_units=(4,)), CLASSES),
    (BDistilBooster(TEACHERS["regressor"], n_rounds=2, **SMALL), NUMBERS),
    (BDistilBooster(TEACHERS["classifier"], n_rounds=2, **SMALL), CLASSES),
]


def owners(cls):
    """The class that defines each function, by its code, for the methods of an estimator."""
    found = {}
    for base in cls.__mro__:
        for value in vars(base).values():
            functions = [value, *(getattr(value, at, None) for at in ("fget", "fn", "__func__"))]
            functions += [getattr(function, "__wrapped__", None) for function in functions]
            for function in functions:
                if hasattr(function, "__code__"):
                    found.setdefault(function.__code__, base)
    return found


# Functions that get the estimator for a reason: scikit-learn's validation notes in it what X is,
# and its callbacks ask for it.
WITH_REASON = {
    "_data": ("read_table", "feature_names_of"),
    "_method": ("read_samples",),
    "_utils": ("check_parameters",),
    "_engine": ("TaskPerEpoch", "listens_to_batches"),
    "_estimator": ("fit_task", "ObservedTask"),
}


def passes_on(value, estimator):
    """Whether a value is the estimator, or holds it: among others, bound, or as an attribute."""
    if type(value).__name__ == "ObservedTask":
        return False
    held = [value, getattr(value, "__self__", None)]
    if isinstance(value, functools.partial):
        held += value.args
    if isinstance(value, (list, tuple)):
        held += value
    if isinstance(value, dict):
        held += value.values()
    if type(value).__module__.startswith("skdistill") and hasattr(value, "__dict__"):
        held += vars(value).values()
    return any(one is estimator for one in held)


def fit_noting(note, estimator, arguments):
    """Fit an estimator, while Python tells `note` of every call."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        estimator.fit(*arguments)
    finally:
        sys.setprofile(before)


def receivers_of(estimator, *arguments):
    """Functions of ours, no methods of it, that get the estimator in a fit."""
    own, found = owners(type(estimator)), set()

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or code in own or not code.co_filename.startswith(str(ROOT)):
            return
        flags = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
        n_arguments = code.co_argcount + code.co_kwonlyargcount + sum(map(bool, flags))
        given = (frame.f_locals.get(name) for name in code.co_varnames[:n_arguments])
        if any(passes_on(value, estimator) for value in given):
            folder = Path(code.co_filename).relative_to(ROOT).parts[0]
            if code.co_qualname.split(".")[0] not in WITH_REASON.get(folder, ()):
                found.add(code)

    fit_noting(note, estimator, arguments)
    return sorted(code.co_qualname for code in found)


@pytest.mark.parametrize(("estimator", "y"), FITS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_functions_of_a_fit_get_the_estimator(estimator, y):
    found = receivers_of(estimator, X, y)
    assert len(found) <= 8, found


def test_a_function_that_gets_the_estimator_is_found():
    class Wrapped:
        __module__ = "skdistill"

        def __init__(self, value):
            self.value = value

    for held in (TEACHERS, [1], (TEACHERS,), {"a": TEACHERS}, Wrapped(TEACHERS)):
        assert passes_on(held, TEACHERS) is (held != [1])
    assert passes_on(functools.partial(print, TEACHERS), TEACHERS)
    assert "BayesianEnsembleRegressor" not in receivers_of(TEACHERS["regressor"], X, NUMBERS)
    assert "checked_training" in receivers_of(TEACHERS["regressor"], X, NUMBERS)


def first_calls(estimator, *arguments):
    """File of each function of ours that a fit calls, in the order of their first calls."""
    found = {}

    def note(frame, event, _):
        code = frame.f_code
        is_part = code.co_name.startswith("<")  # of a function: a lambda, or what it iterates over
        if event == "call" and not is_part and code.co_filename.startswith(str(ROOT)):
            found.setdefault(code, code.co_filename)

    fit_noting(note, estimator, arguments)
    return list(found.values())


# Distinct functions and files of a whole fit, its teacher's included. A change may lower them.
# With a seed: whether transfer samples are far from the table decides which functions are called.
TRACES = [
    (clone(TEACHERS["regressor"]).set_params(random_state=0), 271, 32),
    (HydraPlusRegressor(TEACHERS["regressor"], random_state=0, **SMALL), 427, 45),
    (GPEDDistiller(TEACHERS["regressor"], random_state=0, **SMALL), 426, 47),
    (BDistilBooster(TEACHERS["regressor"], n_rounds=2, random_state=0, **SMALL), 437, 50),
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
    **{"_data": 1510, "_engine": 2343, "_estimator": 2338, "_method": 1158, "_report": 731},
    **{"_serialization": 465, "_training": 935, "_utils": 1032, "active": 340, "datasets": 381},
    **{"decision": 625, "displays": 744, "distillers": 5435, "distributions": 2077},
    **{"ensembles": 2404, "export": 1733, "families": 1025, "integrations": 145, "losses": 1867},
    **{"metrics": 1370, "model_selection": 549, "modules": 2662, "monitoring": 286},
    **{"persistence": 359, "pruning": 608, "samplers": 699, "sequences": 728, "skdistill": 1237},
    **{"teachers": 2744, "transfer": 604},
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
    assert len(list(used_once(ROOT.rglob("*.py")))) <= 41
    (tmp_path / "a.py").write_text("def _f():\n    return 1\n\n\nx = _f()\n")
    assert len(list(used_once([tmp_path / "a.py"]))) == 1


# Writes on objects that a function was given, by file: the contracts of others demand them.
WRITES_WITH_REASON = {
    # scikit-learn's tags, which `__sklearn_tags__` changes and returns.
    **{"_estimator/predicting.py": 3, "teachers/_mixed.py": 4, "teachers/_teacher.py": 2},
    # Gradients of torch's parameters, which its optimizers read there.
    **{"_engine/_net.py": 1, "_engine/_steps.py": 2},
    # Of the copy of a network: forward of a layer of torch's, and sizes that go with its weights.
    **{"modules/_recurrent.py": 1, "pruning/_removal.py": 1},
    # Messages of protobuf, as which onnx has its graphs.
    **{"export/_graph.py": 3, "export/_pipelines.py": 1},
    # What decorators make: names, signatures and docstrings of functions, and a kept property.
    "losses/_loss.py": 4,
}


def written_objects(path):
    """Expressions on whose attributes a file writes, but for `self` and what the function made."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def own_names(node):
        while node in above:
            node = above[node]
            if not isinstance(node, ast.FunctionDef):
                continue
            if isinstance(above[node], ast.ClassDef) and node.args.args:
                yield node.args.args[0].arg
            for inside in ast.walk(node):
                is_bound = isinstance(inside, (ast.Assign, ast.AnnAssign))
                if is_bound and isinstance(inside.value, ast.Call):
                    targets = inside.targets if isinstance(inside, ast.Assign) else [inside.target]
                    yield from (ast.unparse(target) for target in targets)

    for node in ast.walk(tree):
        written = None
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            written = node.value
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.removeprefix("object.").strip("_") in ("setattr", "delattr"):
                written = node.args[0]
            elif match := re.fullmatch(r"(?:vars\((.+)\)|(.+)\.__dict__)\.(update|pop)", name):
                written = ast.parse(match[1] or match[2], mode="eval").body
        if written is not None and ast.unparse(written) not in own_names(node):
            yield f"{path}:{node.lineno}: {ast.unparse(written)}"


def test_objects_are_changed_by_themselves_alone():
    """What a fit has found is returned, and stored by its estimator."""
    for path in sorted(ROOT.rglob("*.py")):
        found = list(written_objects(path))
        assert len(found) <= WRITES_WITH_REASON.get(str(path.relative_to(ROOT)), 0), found


def test_writes_on_others_are_found(tmp_path):
    code = """
class A:
    def f(self, other):
        self.a = 1
        made = A()
        made.b: int = 2
        other.a = self.a.b = 1
        setattr(other, "a", 1)
        vars(other.a).update(b=1)
        def inner():
            self.a += 1
            del other.c
"""
    path = tmp_path / "file.py"
    path.write_text(code)
    found = [line.split(": ")[1] for line in written_objects(path)]
    assert sorted(found) == ["other", "other", "other", "other.a", "self.a"]


def test_few_attributes_are_asked_for_with_a_default():
    """What objects of ours have, their classes say; others are asked about what is optional."""
    found = [
        f"{path}:{node.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 2
    ]
    assert len(found) <= 25, found


def annotations(function):
    """Annotations of the arguments of a function, and of what it returns."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = [argument.annotation for argument in arguments if argument is not None]
    return [ast.unparse(one) for one in (*found, function.returns) if one is not None]


def test_few_annotations_are_any():
    found = [one for _, function in functions() for one in annotations(function)]
    with_any = [one for one in found if re.search(r"\bAny\b", one)]
    assert len(with_any) <= 0.10 * len(found), len(with_any) / len(found)


def functions():
    """Every function of the library, with its file."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path.relative_to(ROOT), node


def test_only_protocols_leave_methods_without_a_body():
    estimators = ("ensembles", "distillers", "teachers", "sequences")
    found = [
        f"{path}:{function.lineno}"
        for path, function in functions()
        if path.parts[0] in estimators or path.parts[0] == "_estimator"
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == "NotImplementedError"
    ]
    assert not found


def test_public_losses_are_those_that_a_training_loop_calls():
    assert len(skdistill.losses.__all__) <= 20
