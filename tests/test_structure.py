# SPDX-License-Identifier: BSD-3-Clause
"""Estimators stay easy to follow: few base classes, few names, short functions, a fit to read."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import BaggingRegressor
from sklearn.neural_network import MLPRegressor

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
    assert np.mean(list(counts.values())) <= 20, counts
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


def own_classes(cls):
    return [base for base in cls.__mro__ if base.__module__.startswith("skdistill")]


@pytest.mark.parametrize("cls", PUBLIC)
def test_estimators_have_few_classes_and_names_of_ours(cls):
    classes = own_classes(cls)
    names = {name for base in classes for name in vars(base) if not name.startswith("__")}
    assert len(classes) <= 3, classes
    assert len(names) <= 45, sorted(names)


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


def changes_of_class(estimator, y):
    """How often consecutive calls on the estimator change the class, within one fit."""
    owner, called = owners(type(estimator)), []

    def note(frame, event, _):
        code = frame.f_code
        is_method = event == "call" and code in owner and code.co_varnames
        if is_method and frame.f_locals.get(code.co_varnames[0]) is estimator:
            called.append(owner[code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        estimator.fit(X, y)
    finally:
        sys.setprofile(before)
    assert called
    return sum(a is not b for a, b in itertools.pairwise(called))


@pytest.mark.parametrize(("estimator", "y"), FITS)
def test_a_fit_does_not_jump_between_classes(estimator, y):
    assert changes_of_class(estimator, y) <= 25


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_is_counted_for_scikit_learns_estimators():
    assert 5 < changes_of_class(BaggingRegressor(), NUMBERS) < 25
    assert 5 < changes_of_class(MLPRegressor(max_iter=3), NUMBERS) < 25


# Functions that get the estimator for a reason: scikit-learn's validation notes in it what X is,
# and its callbacks ask for it.
WITH_REASON = {
    "_data": ("read_rows", "read_table"),
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

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        estimator.fit(*arguments)
    finally:
        sys.setprofile(before)
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


def test_distillers_write_on_nobody_elses_attributes():
    """What a fit has found is stored by its estimator, not by functions below."""
    found = [
        f"{path}: {ast.unparse(node)}"
        for path, function in functions()
        if path.parts[0] == "distillers"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, (ast.Store, ast.Del))
        and ast.unparse(node.value) not in ("self", "cls")
    ]
    estimators = ("distiller", "hydra", "booster", "estimator")
    assert not [one for one in found if one.split(": ")[1].split(".")[0] in estimators]
    assert len(found) <= 14, found


def functions():
    """Every function of the library, with its file."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path.relative_to(ROOT), node


def lines_of_code(function):
    """Lines of the body that hold code: no docstring, comment, blank line or signature."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return len({line for node in body for part in ast.walk(node) if hasattr(part, "lineno")
                for line in range(part.lineno, part.end_lineno + 1)})  # fmt: skip


def test_functions_are_short():
    lengths = {(str(path), f.name, f.lineno): lines_of_code(f) for path, f in functions()}
    # Constructors of estimators assign their parameters, one to a line, as scikit-learn's do.
    long = {key: n for key, n in lengths.items() if n > 40 and key[1] != "__init__"}
    assert not long
    assert np.median(list(lengths.values())) <= 4


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
