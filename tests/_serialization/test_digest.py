# SPDX-License-Identifier: BSD-3-Clause
"""Digests tell values apart by what they are made of, in every process alike."""

from __future__ import annotations

import collections
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


def scaled(x, factor=3.0):
    return factor * x


class Loop:
    def __init__(self, value):
        self.itself, self.value = self, value


class Listening(Callback):
    def __init__(self, hook):
        self.hook = hook


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
    "dtypes of tensors": (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.half)),
    "generators": (np.random.RandomState(0), np.random.RandomState(1)),
    "partials": (functools.partial(scaled, factor=1), functools.partial(scaled, factor=2)),
    "functions of libraries": (torch.sigmoid, torch.relu),
    "classes": (SGLD, SGHMC),
    "objects that hold themselves": (Loop(1), Loop(2)),
    "modules": (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)),
    "losses of expectations": (Expectation(scaled), Expectation(scaled, loss="absolute")),
    "settings": (SGLD(1e-3), SGLD(2e-3)),
    "callbacks": (Listening(1), Listening(2)),
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
        lambda: functools.partial(scaled, x=[1]),
        lambda: Listening(scaled),
        lambda: Loop(Pair(1, "b")),
        lambda: np.random.RandomState(0),
        lambda: torch.nn.Linear(2, 2).requires_grad_(False).weight.fill_(1.0),
        lambda: Expectation(scaled, weight=2.0),
    ):
        assert digest(make()) == digest(make())
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_what_no_other_process_could_know_is_refused_by_its_name():
    model = DistributionDistiller(RandomForestRegressor(), callbacks=[Listening(lambda x: x)])
    with pytest.raises(ValueError, match=r"^callbacks must be comparable with that of"):
        digests(model, {})


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
    more = [MLP, Pair(words, Listening(scaled)), {"a": torch.ones(3), "b": np.arange(3)}]
    return [digest(value) for value in (words, frozenset(words), *more)]


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
