# SPDX-License-Identifier: BSD-3-Clause
"""How much of an uncertainty a column explains, and where it is large."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import rankdata
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import OneHotEncoder

from skdistill.metrics import uncertainty_profile

rng = np.random.default_rng(0)
X = rng.normal(size=400)
AT_BOTH_ENDS = X**2 + 0.1 * rng.random(400)
CITIES = rng.choice(["Oslo", "Rome", "Bern"], p=[0.5, 0.3, 0.2], size=400)


def test_explained_is_the_adjusted_r2_of_the_groups_as_dummies():
    codes = OneHotEncoder(drop="first").fit_transform(CITIES[:, None]).toarray()
    uncertainty = AT_BOTH_ENDS + (CITIES == "Rome")
    ranks = rankdata(uncertainty)
    r2 = LinearRegression().fit(codes, ranks).score(codes, ranks)
    adjusted = 1 - (1 - r2) * (400 - 1) / (400 - 3)
    assert_allclose(uncertainty_profile(uncertainty, CITIES).explained, adjusted, rtol=1e-12)


def test_what_no_correlation_sees_is_seen():
    assert abs(np.corrcoef(X, AT_BOTH_ENDS)[0, 1]) < 0.2
    profile = uncertainty_profile(AT_BOTH_ENDS, X)
    assert profile.explained > 0.9
    assert profile.means.argmin() in (4, 5)


def test_a_column_without_influence_explains_next_to_nothing():
    columns = rng.normal(size=(400, 50))
    found = [uncertainty_profile(AT_BOTH_ENDS, column).explained for column in columns.T]
    assert min(found) == 0
    assert np.mean(found) < 0.02


def test_groups_are_of_equal_size_and_in_order():
    profile = uncertainty_profile(AT_BOTH_ENDS, X, n_bins=8)
    assert profile.counts.tolist() == [50] * 8
    ordered = X[np.argsort(X)].reshape(8, 50)
    assert_allclose(profile.values, np.median(ordered, axis=1))
    assert_allclose(profile.means, AT_BOTH_ENDS[np.argsort(X)].reshape(8, 50).mean(axis=1))


def test_monotone_functions_of_the_uncertainty_are_explained_alike():
    expected = uncertainty_profile(AT_BOTH_ENDS, X).explained
    assert uncertainty_profile(np.sqrt(AT_BOTH_ENDS), X).explained == expected


def test_equal_values_stay_together():
    column = np.repeat([0.0, 1.0], [390, 10])
    assert uncertainty_profile(AT_BOTH_ENDS, column).counts.tolist() == [390, 10]
    many = np.concatenate([np.zeros(300), np.arange(100)])
    assert uncertainty_profile(AT_BOTH_ENDS, many).counts[0] >= 300


def test_categories_come_with_the_most_frequent_first():
    profile = uncertainty_profile(AT_BOTH_ENDS, CITIES)
    assert profile.values.tolist() == ["Oslo", "Rome", "Bern"]
    of_rome = AT_BOTH_ENDS[CITIES == "Rome"]
    assert_allclose(profile.means[1], of_rome.mean())
    few = uncertainty_profile(AT_BOTH_ENDS, CITIES, n_bins=2)
    assert few.values.tolist() == ["Oslo", "other"]
    assert few.counts.sum() == 400


@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_missing_values_are_a_group_that_comes_last(kind):
    numbers, words = X.tolist(), CITIES.tolist()
    numbers[7] = words[7] = None
    if kind == "array":
        numbers = np.array(numbers, dtype=float)
    else:
        package = pytest.importorskip(kind)
        numbers, words = package.Series(numbers), package.Series(words)
    profile = uncertainty_profile(AT_BOTH_ENDS, numbers)
    assert np.isnan(profile.values[-1])
    assert profile.counts[-1] == 1
    assert_allclose(profile.means[-1], AT_BOTH_ENDS[7])
    profile = uncertainty_profile(AT_BOTH_ENDS, words)
    assert profile.values[-1] is None
    assert profile.counts[-1] == 1


def test_nothing_is_explained_of_what_is_constant():
    with pytest.warns(UndefinedMetricWarning, match="the uncertainty is constant"):
        assert np.isnan(uncertainty_profile(np.ones(400), X).explained)
    with pytest.warns(UndefinedMetricWarning, match="one sample of each group"):
        assert np.isnan(uncertainty_profile([1.0, 2.0], [1, 2]).explained)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": X[1:]}, "values must have as many samples as uncertainty, 400, got 399"),
        ({"values": X[:, None]}, r"values must have shape \(n_samples,\), got \(400, 1\)"),
        ({"uncertainty": np.full(400, np.nan)}, "uncertainty contains NaN"),
        ({"n_bins": 1}, "n_bins must be an integer >= 2, got 1"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        uncertainty_profile(**{"uncertainty": AT_BOTH_ENDS, "values": X, **change})
