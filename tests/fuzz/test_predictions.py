# SPDX-License-Identifier: BSD-3-Clause
"""Predictions for any samples in any form, by threads and by copies, and for nonsense."""

from __future__ import annotations

import inspect
import pickle
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st


def refused_for_its_size(error: ValueError, X) -> bool:
    """Whether samples were refused since the arithmetic cannot hold them, which is said of X."""
    return "X" in str(error) and np.abs(np.asarray(X, dtype=np.float64)).max() > 1e6


@pytest.mark.parametrize("limit", [1e3, None], ids=["ordinary", "extreme"])
@given(data=st.data())
def test_answers_keep_to_what_is_documented(fitted, limit, data, fuzz, tally):
    tally("fuzzed cases")
    X = data.draw(fuzz.rows(fitted.X.shape[1:], limit), label="X")
    given_as = data.draw(fuzz.handed_over(X))
    if X.dtype != np.float32:
        X = np.asarray(X, dtype=np.float64)
    try:
        said = fuzz.check_answers(fitted.estimator, given_as, fitted.dtype)
    except ValueError as error:
        if refused_for_its_size(error, X):
            return
        raise
    plain = fuzz.answers(fitted.estimator, np.ascontiguousarray(X))
    fuzz.assert_alike(said, plain, fitted.dtype)
    row = data.draw(st.integers(0, len(X) - 1), label="row")
    alone = fuzz.answers(fitted.estimator, X[row : row + 1])
    among = {name: array[row : row + 1] for name, array in said.items()}
    fuzz.assert_alike(alone, among, fitted.dtype)


@given(data=st.data())
def test_copies_and_threads_say_the_same(fitted, data, fuzz, tally):
    tally("fuzzed cases")
    X, other = (
        data.draw(fuzz.rows(fitted.X.shape[1:], 1e3, n), label="X").astype(np.float64)
        for n in (st.integers(1, 3), st.integers(1, 40))
    )
    copied = pickle.loads(pickle.dumps(fitted.estimator))
    expected = [fuzz.answers(fitted.estimator, rows) for rows in (X, other)]
    # To rounding: on another machine a copy differed in the last bit of a total, which could not be
    # reproduced. Weights and buffers of copies have the same alignment and strides.
    for rows, answer in zip((X, other), expected, strict=True):
        fuzz.assert_alike(fuzz.answers(copied, rows), answer, fitted.dtype)
    for said, answer in zip(at_once(fitted.estimator, (X, other), fuzz), expected, strict=True):
        fuzz.assert_alike(said, answer, fitted.dtype)


def at_once(estimator, parts, fuzz):
    """What is said about some samples in one thread each, which take turns as often as can be."""
    found: dict[int, object] = {}
    barrier = threading.Barrier(len(parts))

    def ask(number, X):
        try:
            barrier.wait()
            found[number] = fuzz.answers(estimator, X)
        except Exception as error:  # raised again, or compared, outside of the thread
            found[number] = error

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for answer in found.values():
        if isinstance(answer, Exception):
            raise answer
    return [found[number] for number in range(len(parts))]


# --- Nonsense ---------------------------------------------------------------------------------


def taken(X, y):
    """What a method may be called with, by the names of its arguments."""
    return {
        "X": X,
        "y": y,
        "quantiles": [0.1, 0.9],
        "coverage": 0.8,
        "name": "mean",
        "threshold": 0.5,
        "max_rounds": 1,
        "max_flops": 1e9,
        "deadline": 60.0,
        "early_exit": 0.5,
        "exit_on": "auto",
        "return_exits": True,
        "method": "predict",
    }


LIMITS = ["max_rounds", "max_flops", "deadline", "early_exit", "exit_on", "return_exits", "unknown"]


def methods_of(estimator) -> dict[str, list[str]]:
    """Public methods that answer about samples, with the names of their arguments."""
    found = {}
    for name in dir(estimator):
        if name.startswith(("predict", "sample_y", "staged", "anytime", "score")):
            parameters = inspect.signature(getattr(estimator, name)).parameters
            named = [p.name for p in parameters.values() if p.kind is not p.VAR_KEYWORD]
            has_limits = (
                "limits" in parameters and parameters["limits"].kind is inspect._VAR_KEYWORD
            )
            found[name] = named + (LIMITS if has_limits else [])
    return found


# What says yes or no may be whatever Python takes for one; y of a score is scikit-learn's business.
NOT_OURS = {"return_std", "return_exits", "y", "sample_weight"}


@given(data=st.data())
def test_nonsense_is_refused_by_name_and_changes_nothing(fitted, data, fuzz, tally):
    tally("fuzzed cases")
    estimator = fitted.estimator
    methods = methods_of(estimator)
    method = data.draw(st.sampled_from(sorted(methods)), label="method")
    spoilt = data.draw(st.sampled_from(sorted(set(methods[method]) - NOT_OURS)), label="argument")
    fitted.at_first  # noqa: B018 -- asked before the nonsense
    good = taken(fitted.X[:4], fitted.y[:4])
    required = {
        name: good[name]
        for name, parameter in inspect.signature(getattr(estimator, method)).parameters.items()
        if parameter.default is parameter.empty and name in good
    }
    strategy = fuzz.no_rows(fitted.X[:4]) if spoilt == "X" else fuzz.nonsense()
    value = data.draw(strategy, label="value")
    called = "exit_on" if spoilt == "early_exit" else spoilt
    with fuzz.refused_by_name(spoilt, called):
        answer = getattr(estimator, method)(**{**required, spoilt: value})
        if method.startswith(("staged", "anytime")) and method != "staged_score":
            answer = list(answer)
        assert_finite(answer, method)
    fitted.assert_unchanged()


def assert_finite(answer, what):
    if isinstance(answer, (tuple, list)):
        for part in answer:
            assert_finite(part, what)
    elif isinstance(answer, (float, np.ndarray)) and np.asarray(answer).dtype.kind == "f":
        assert np.isfinite(answer).all() or what == "predict_log_proba", f"{what} gives {answer}"
