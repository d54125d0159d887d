# SPDX-License-Identifier: BSD-3-Clause
"""Digests tell values apart by what they are made of, in every process alike."""

from __future__ import annotations

import collections
import enum
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback

from skdistill import (
    BayesianEnsembleRegressor,
    DistributionDistiller,
)
from skdistill._serialization.digest import digest, digests
from skdistill.expectations import Expectation
from skdistill.modules import MLP
from skdistill.samplers import SGHMC, SGLD
from skdistill.teachers import as_teacher

SCALE = 3.0


def scaled(x):
    return SCALE * x


def uses_scaled(x):
    return scaled(x).sum(-1)


def is_even(n):
    return n == 0 or is_odd(n - 1)


def is_odd(n):
    return n != 0 and is_even(n - 1)


def times(factor):
    def product(x):
        return factor * x

    return product


@functools.lru_cache
def cached(x):
    return x


class Network(torch.nn.Module):
    slope = 0.1

    @functools.cached_property
    def width(self):
        return 3

    @property
    def depth(self):
        return 2

    def forward(self, x):
        return super().forward(x)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Unread:
    """An object with parameters that holds more than these, and is used as it is."""

    def __init__(self, secret):
        self._secret = secret

    def get_params(self, deep=True):
        return {}


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


class Listening(Callback):
    def __init__(self, hook):
        self.hook = hook


class Loop:
    def __init__(self, value):
        self.itself, self.value = self, value


def network(**changes):
    return type("Network", (torch.nn.Module,), {**vars(Network), **changes})


Pair = collections.namedtuple("Pair", "a b")

# Pairs of values of the same type and name that are not the same.
PAIRS = {
    "numbers": (1, 2),
    "types of scalars": (0.5, np.float32(0.5)),
    "truth": (1, True),
    "dicts": ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    "sets": ({1, 2}, {1, 3}),
    "arrays": (np.zeros(3), np.array([0, 0, 1e-300])),
    "dtypes": (np.zeros(2, "f4"), np.zeros(1, "f8")),
    "tensors": (torch.zeros(2), torch.tensor([0.0, 1.0])),
    "generators": (np.random.RandomState(0), np.random.RandomState(1)),
    "generators of torch": (torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)),
    "constants of code": (lambda x: x + 1, lambda x: x + 2),
    "operators": (lambda x, y: x + y, lambda x, y: x - y),
    "closures": (times(2), times(3)),
    "partials": (functools.partial(scaled, 1), functools.partial(scaled, 2)),
    "functions of libraries": (torch.sigmoid, torch.relu),
    "classes": (SGLD, SGHMC),
    "attributes of classes": (network(), network(slope=0.2)),
    "members": (Colour.RED, Colour.BLUE),
    "objects that hold themselves": (Loop(1), Loop(2)),
    "modules": (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)),
    "objects with private attributes": (Unread(1), Unread(2)),
    "losses of expectations": (Expectation(scaled), Expectation(scaled, loss="absolute")),
    "settings": (SGLD(1e-3), SGLD(2e-3)),
    "callbacks": (Listening(times(2)), Listening(times(3))),
    "devices": (torch.device("cpu"), torch.device("meta")),
}


@pytest.mark.parametrize("what", PAIRS)
def test_values_that_differ_are_told_apart(what):
    one, other = PAIRS[what]
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)
    assert digest([{"deep": (one,)}]) != digest([{"deep": (other,)}])


def test_values_that_are_made_alike_are_the_same():
    for make in (
        lambda: {"a": [1, np.arange(3), {3, 1, 2}]},
        lambda: times(2),
        lambda: functools.partial(scaled, x=[1]),
        lambda: Listening(lambda x: x + 1),
        lambda: Loop(Slots(1)),
        lambda: np.random.RandomState(0),
        lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        lambda: Expectation(uses_scaled, weight=2.0),
        network,
    ):
        assert digest(make()) == digest(make())
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(np.arange(6).reshape(2, 3)[:, ::-1]) == digest(np.array([[2, 1, 0], [5, 4, 3]]))


ROWS = np.random.default_rng(0).normal(size=(30, 2))
FITTED = {
    "an ensemble": lambda y: BayesianEnsembleRegressor(2, max_epochs=2, random_state=0).fit(
        ROWS, y
    ),
    "a forest": lambda y: RandomForestRegressor(2, random_state=0).fit(ROWS, y),
}


@pytest.mark.parametrize("what", FITTED)
@pytest.mark.parametrize(
    "kept",
    [
        FrozenEstimator,
        lambda model: as_teacher([model]),
        lambda model: as_teacher(FrozenEstimator(model)),
        lambda model: make_pipeline(StandardScaler(), FrozenEstimator(model)),
    ],
)
def test_what_a_teacher_has_learnt_counts_where_it_is_kept(what, kept):
    def of(y, around=kept):
        return digests(DistributionDistiller(around(FITTED[what](y))), {})

    one, same, other = of(ROWS[:, 0]), of(ROWS[:, 0]), of(ROWS[:, 1])
    assert one == same  # though fitting has taken another time
    (differs,) = (name for name in one if one[name] != other[name])
    assert differs.startswith("teacher")
    assert of(ROWS[:, 0], clone) == of(ROWS[:, 1], lambda model: model)  # it is fitted anew


def digests_of_many():
    """Of things whose order or address could show."""
    words = {f"word {i}" for i in range(20)}
    more = [uses_scaled, is_even, cached, Network, Colour, MLP, np, words, frozenset(words)]
    more += [lambda: "x" in {"a", "b", "c"}, Network().forward, Pair(words, Slots(3))]
    return [digest(value) for value in more]


@pytest.mark.slow
def test_digests_are_the_same_in_another_process():
    code = "from tests._serialization.test_digest import digests_of_many; print(*digests_of_many())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert found == digests_of_many()
    assert len(set(found)) == len(found) - 1  # the set and the frozen one
