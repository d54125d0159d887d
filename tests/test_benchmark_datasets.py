# SPDX-License-Identifier: BSD-3-Clause
"""The real data sets of the benchmarks: what is published of them, and damaged files."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal


@pytest.fixture
def sets(monkeypatch):
    """The module that loads them."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("_datasets")


@pytest.fixture
def save(monkeypatch, tmp_path):
    """Function that saves arrays in a file of the folder of data."""
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))

    def save(file, **arrays):
        (tmp_path / file).parent.mkdir()
        np.savez(tmp_path / f"{file}.npz", **arrays)

    return save


@pytest.mark.parametrize(
    ("name", "values", "label"),
    [
        ("letter", [2, 4, 4, 3, 2, 7, 8, 2, 9, 11, 7, 7, 1, 8, 5, 6], "Z"),
        ("pendigits", [47, 100, 27, 81, 57, 37, 26, 0], 8),
        ("satimage", [92, 115, 120, 94, 84, 102], 3),
        ("magic", [28.7967, 16.0021, 2.6449], "g"),
        ("covtype20k", [2596, 51, 3, 258, 0, 510, 221, 232, 148, 6279], 5),
    ],
)
def test_first_samples_are_the_published_ones(data_dir, sets, name, values, label):
    table = sets.load_tabular_classification(name)
    assert_allclose(table.data[0, : len(values)], values, rtol=1e-6)
    assert table.target[0] == label


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("adult", [24720, 7841]),
        ("pendigits", [780, 779, 780, 719, 780, 720, 720, 778, 719, 719]),
        ("satimage", [1072, 479, 961, 415, 470, 1038]),
    ],
)
def test_standard_training_sets(data_dir, sets, name, counts):
    table = sets.load_tabular_classification(name)
    assert np.unique(table.target[table.is_train], return_counts=True)[1].tolist() == counts


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("boston", 24.0),
        ("concrete", 79.99),
        ("energy", 15.55),
        ("power-plant", 480.48),
        ("protein", 17.284),
        ("wine", 5.0),
    ],
)
def test_uci_sets_have_the_standard_splits(data_dir, sets, name, first):
    """By numpy.random.seed(1) and, for each split, all samples in a random order."""
    found = sets.load_uci_regression(name)
    assert found.data.dtype == found.target.dtype == np.float64
    assert found.target[0] == first
    n, state = len(found.target), np.random.RandomState(1)
    for train, test in zip(found.train_indices, found.test_indices, strict=True):
        order = state.permutation(n)
        assert_array_equal(np.split(order, [round(0.9 * n)])[0], train)
        assert_array_equal(np.split(order, [round(0.9 * n)])[1], test)
    assert len(found.train_indices) == (5 if name == "protein" else 20)


def test_images(data_dir, sets):
    mnist, kmnist = map(sets.load_images, ("mnist", "kmnist"))
    assert mnist.data.shape == (70000, 28, 28)
    assert mnist.data.dtype == kmnist.data.dtype == np.uint8
    assert_array_equal(mnist.is_train, np.arange(70000) < 60000)
    assert_array_equal(mnist.target[:5], [5, 0, 4, 1, 9])
    mean = np.arange(256) @ np.bincount(mnist.data[:60000].ravel()) / (255 * 60000 * 28 * 28)
    assert mean == pytest.approx(0.1307, abs=5e-5)  # as everybody normalises
    assert not kmnist.is_train.any()


def test_a_missing_folder_or_file_is_named(monkeypatch, tmp_path, sets):
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"letter\.npz"):
        sets.load_tabular_classification("letter")
    monkeypatch.delenv("SKDISTILL_DATA")
    with pytest.raises(SystemExit, match=r"SKDISTILL_DATA must name .*letter\.npz"):
        sets.load_tabular_classification("letter")
