# SPDX-License-Identifier: BSD-3-Clause
"""Columns that makers treat as categorical may be given by the names of a frame's columns."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.transfer import GaussianNoise, Mixup, Munge, numbered

pd = pytest.importorskip("pandas")

rng = np.random.default_rng(0)
NAMES = ["size", "red", "blue", "level"]
X = pd.DataFrame(
    np.column_stack([rng.normal(size=60), *np.eye(2)[rng.integers(2, size=60)].T, range(60)]),
    columns=NAMES,
)
Y = X["size"].to_numpy() + X["red"].to_numpy()
SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
TEACHER = BayesianEnsembleRegressor(2, **SMALL)


def student(maker):
    return HydraPlusRegressor(TEACHER, transfer=maker, **SMALL)


@pytest.mark.parametrize("make", [GaussianNoise, Mixup, Munge])
@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_names_stand_for_numbers(make, frame):
    given = X if frame == "pandas" else pytest.importorskip("polars").from_pandas(X)
    named = make(categorical=[("red", "blue"), "level"])
    by_name = student(named).fit(given, Y)
    by_number = student(make(categorical=[(1, 2), 3])).fit(given, Y)
    np.testing.assert_array_equal(by_name.predict(given), by_number.predict(given))
    assert named.categorical == [("red", "blue"), "level"]  # as the user has given it
    assert clone(by_name).transfer.categorical == named.categorical


def test_names_of_the_base_count_too():
    maker = Munge(base=Munge(categorical=["red"]), share=0.5, categorical=["level", 0])
    found = numbered(maker, NAMES)
    assert found.categorical == [3, 0]
    assert found.base.categorical == [1]
    assert maker.base.categorical == ["red"]
    assert numbered(found, None) is found
    student(maker).fit(X, Y)


@pytest.mark.parametrize("given", [["rad"], [("blue", "rad")]])
def test_names_that_are_not_there_are_asked_about(given):
    with pytest.raises(ValueError, match=r"Munge: categorical .* got 'rad', .* mean 'red'\?"):
        student(Munge(categorical=given)).fit(X, Y)


def test_rows_without_names_say_so():
    with pytest.raises(ValueError, match="got 'red', but X has no names: give a frame to fit"):
        student(Munge(categorical=["red"])).fit(X.to_numpy(), Y)


def test_noise_that_finds_categories_itself_has_no_names():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert numbered(GaussianNoise(categorical="auto"), NAMES).categorical == "auto"
