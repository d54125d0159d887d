# SPDX-License-Identifier: BSD-3-Clause
"""Fits on tiny data, with nonsense among the parameters and the arguments."""

from __future__ import annotations

import copy
import warnings
from functools import cache
from numbers import Integral

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.families import LogitNormalFamily
from skdistill.samplers import SGHMC, SGLD, MCDropout
from skdistill.settings import WeakLearnerSearch

TINY = {"max_epochs": 1, "module__hidden_units": (3,), "random_state": 0}
CHAIN = {**TINY, "max_epochs": 4, "n_members": 2}
X = np.random.default_rng(0).normal(size=(12, 2))
NUMBERS = X.sum(1)
CLASSES = np.where(NUMBERS > 0, "yes", "no")


@cache
def frozen(cls):
    return FrozenEstimator(cls(2, **TINY).fit(X, CLASSES if is_classifier(cls()) else NUMBERS))


def student(cls, teacher, **params):
    return cls(frozen(teacher), **{**TINY, **params})


def runs_online(teacher, inference):
    params = {name: value for name, value in TINY.items() if name != "max_epochs"}
    return GPEDDistiller(teacher(inference=inference, **CHAIN), **params)


MAKERS = {
    "regressor": lambda: BayesianEnsembleRegressor(2, **TINY),
    "classifier": lambda: BayesianEnsembleClassifier(2, **TINY),
    "regressor-sghmc": lambda: BayesianEnsembleRegressor(**CHAIN, inference=SGHMC(1e-6)),
    "classifier-sgld": lambda: BayesianEnsembleClassifier(**CHAIN, inference=SGLD(1e-5)),
    "classifier-dropout": lambda: BayesianEnsembleClassifier(2, **TINY, inference=MCDropout()),
    "hydra_regressor": lambda: student(HydraPlusRegressor, BayesianEnsembleRegressor),
    "hydra_classifier": lambda: student(HydraPlusClassifier, BayesianEnsembleClassifier),
    "gaussian": lambda: student(DistributionDistiller, BayesianEnsembleRegressor),
    "dirichlet": lambda: student(DistributionDistiller, BayesianEnsembleClassifier),
    "logit_normal": lambda: student(
        DistributionDistiller, BayesianEnsembleClassifier, family=LogitNormalFamily(n_samples=5)
    ),
    "gped_regressor": lambda: student(GPEDDistiller, BayesianEnsembleRegressor),
    "gped_classifier": lambda: runs_online(BayesianEnsembleClassifier, SGLD(1e-5)),
    "b_distil_regressor": lambda: BDistilBooster(
        DecisionTreeRegressor(), n_rounds=2, search=WeakLearnerSearch(max_search=1), **TINY
    ),
    "b_distil_classifier": lambda: BDistilBooster(
        DecisionTreeClassifier(), n_rounds=2, search=WeakLearnerSearch(max_search=1), **TINY
    ),
}


@cache
def fitted(name):
    """An estimator of this name, fitted; copies of it are fitted again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = MAKERS[name]()
        return estimator.fit(X, CLASSES if is_classifier(estimator) else NUMBERS)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a word for `memory` or `checkpoint` is a path


# A fit says which of these to change when it diverges.
RATES = ["lr", "step_size", "clip_norm"]

# As large as can be, these are a fit that never ends, or asks for a terabyte; `compile` takes long.
COUNTS = {"n_members", "max_epochs", "n_rounds", "max_search", "n_samples", "expansions"}
COUNTS |= {"head_layers", "finetune_epochs", "covariance", "teacher_cv", "n_threads"}


def is_too_costly(name, value):
    if name.endswith("compile"):
        return isinstance(value, (int, np.integer)) and value == 1
    return name.split("__")[-1] in COUNTS and isinstance(value, Integral) and value > 100


def refitted(name, params, arguments, fuzz, *names):
    """Fit again with other parameters; hold what it says after that against what is documented."""
    before = fitted(name)
    estimator = copy.deepcopy(before)
    said = before.predict(X)
    with warnings.catch_warnings(), fuzz.refused_by_name(*names, *RATES):
        warnings.simplefilter("ignore")
        try:
            estimator.set_params(**params).fit(**arguments)
        except Exception:  # of any kind: what is asked is the state that it leaves
            if not name.endswith(
                ("sgld", "sghmc")
            ):  # of chains that diverge, what was sampled stays
                after_a_failure(estimator, said)
            raise
        rows = np.asarray(arguments["X"])[:4]
        fuzz.check_answers(estimator, rows, rows.dtype)


def after_a_failure(estimator, said):
    """It is as it was, or not fitted; without a teacher, it has no such method either."""
    try:
        again = estimator.predict(X)
    except (NotFittedError, AttributeError):
        assert not estimator.__sklearn_is_fitted__()
        return
    np.testing.assert_array_equal(again, said)


@pytest.mark.parametrize("name", MAKERS)
@given(data=st.data())
def test_tiny_data_of_any_kind_are_learnt(name, data, fuzz, tally):
    tally("fuzzed cases")
    rows = data.draw(fuzz.rows((2,), 10, st.integers(6, 12)), label="X")
    n, is_classes = len(rows), is_classifier(MAKERS[name]())
    if is_classes:
        labels = CLASSES if name != "b_distil_classifier" else np.array([False, True] * 6)
        y = np.resize(labels[[0, 1, 2, 3, *range(4, 12)]], n)
    else:
        y = np.array(data.draw(st.lists(st.floats(-1e3, 1e3), min_size=n, max_size=n), label="y"))
    weight = data.draw(
        st.one_of(
            st.none(),
            st.floats(1e-3, 1e3),
            st.lists(st.floats(0.5, 10), min_size=n, max_size=n),
        ),
        label="sample_weight",
    )
    handed = data.draw(fuzz.handed_over(rows))
    arguments = {"X": handed, "y": y, "sample_weight": weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = MAKERS[name]().fit(**arguments)
        dtype = np.float32 if rows.dtype == np.float32 else np.float64
        fuzz.check_answers(estimator, handed, dtype)


@pytest.mark.parametrize("name", MAKERS)
@given(data=st.data())
def test_nonsense_for_a_parameter_is_refused_by_name(name, data, fuzz, tally):
    tally("fuzzed cases")
    estimator = fitted(name)
    names = sorted({*estimator.get_params(), "module__activation", "optimizer__betas"})
    spoilt = data.draw(
        st.sampled_from([n for n in names if not n.startswith("teacher__")]), label="parameter"
    )
    value = data.draw(
        fuzz.nonsense().filter(lambda value: not is_too_costly(spoilt, value)), label="value"
    )
    arguments = {"X": X, "y": CLASSES if is_classifier(estimator) else NUMBERS}
    also = ["teacher"] if spoilt == "teacher_cv" else []  # a fitted one has no folds
    called = spoilt.split("__")[-1]
    refitted(name, {spoilt: value}, arguments, fuzz, called, *also)


@pytest.mark.parametrize("name", MAKERS)
@given(data=st.data())
def test_nonsense_for_data_is_refused(name, data, fuzz, tally):
    tally("fuzzed cases")
    arguments = {"X": X, "y": CLASSES if is_classifier(fitted(name)) else NUMBERS}
    names = ["X", "y", "sample_weight"]
    if hasattr(fitted(name), "teacher"):
        names += ["X_transfer", "member_predictions"]
    spoilt = data.draw(st.sampled_from(names), label="argument")
    good = arguments.get(spoilt, X[:, 0] if spoilt == "sample_weight" else X)
    arguments[spoilt] = data.draw(
        st.one_of(fuzz.no_rows(good), fuzz.rows(good.shape[1:], None, st.just(len(good))))
        if good.dtype.kind == "f"
        else fuzz.nonsense(),
        label="value",
    )
    refitted(name, {}, arguments, fuzz, spoilt)
