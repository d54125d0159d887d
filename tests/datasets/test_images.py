# SPDX-License-Identifier: BSD-3-Clause
"""The images: the real files against what is published of them, and downloads."""

from __future__ import annotations

from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.datasets import IMAGE_SETS, fetch_images

MNIST_TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mnist(data_dir):
    mnist = fetch_images("mnist")
    assert mnist.data.shape == (70000, 28, 28)
    assert mnist.data.dtype == np.uint8
    assert_array_equal(mnist.is_train, np.arange(70000) < 60000)
    assert_array_equal(mnist.target[:5], [5, 0, 4, 1, 9])
    assert_array_equal(np.bincount(mnist.target[60000:]), MNIST_TEST_COUNTS)
    grey, share = np.arange(256) / 255, np.bincount(mnist.data[:60000].ravel()) / (60000 * 28 * 28)
    mean = grey @ share
    std = np.sqrt((grey - mean) ** 2 @ share)
    np.testing.assert_allclose([mean, std], [0.1307, 0.3081], atol=5e-5)  # as everybody normalises


def test_kmnist(data_dir):
    kmnist = fetch_images("kmnist")
    assert kmnist.data[~kmnist.is_train].shape == (10000, 28, 28)
    assert kmnist.data.dtype == np.uint8
    assert_array_equal(np.bincount(kmnist.target[~kmnist.is_train]), [1000] * 10)


@pytest.mark.parametrize(("name", "data_id"), [("mnist", 554), ("kmnist", 41982)])
def test_openml_is_asked_by_id(name, data_id, no_folder, openml, openml_bunch, tmp_path):
    counts = MNIST_TEST_COUNTS if name == "mnist" else [1000] * 10
    target = np.append(np.zeros(60000, int), np.repeat(np.arange(10), counts))
    data = np.zeros((70000, 784))
    data[7, 29] = 255  # second sample, second column
    calls = openml(openml_bunch(data, target.astype(str).astype(object), []))
    bunch = fetch_images(name, data_home=tmp_path)
    (call,) = calls
    assert (call["data_id"], call["data_home"]) == (data_id, tmp_path)
    assert bunch.data.shape == (70000, 28, 28)
    assert bunch.data.dtype == np.uint8
    assert bunch.data[7, 1, 1] == 255
    assert_array_equal(bunch.target, target)
    assert_array_equal(bunch.is_train, np.arange(70000) < 60000)
    assert f"openml.org/d/{data_id}" in bunch.DESCR


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_offline_error_says_what_was_tried_and_what_to_do(name, no_folder, openml):
    openml(URLError("no route"))
    with pytest.raises(
        OSError, match=f"'{name}' is not available: SKDISTILL_DATA is not"
    ) as caught:
        fetch_images(name)
    assert f"images/{name}" in str(caught.value)


def test_unknown_name_is_rejected_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'kmnist', 'mnist'.*got 'cifar'"):
        fetch_images("cifar")


@pytest.mark.parametrize(
    ("shape", "counts"), [((28, 27), [1000] * 10), ((28, 28), [1001, 999] + [1000] * 8)]
)
def test_other_images_are_rejected(shape, counts, folder):
    (folder / "images").mkdir()
    np.savez(
        folder / "images" / "kmnist_test.npz",
        X_test=np.zeros((10000, *shape), np.uint8),
        y_test=np.repeat(np.arange(10, dtype=np.uint8), counts),
    )
    with pytest.raises(ValueError, match="'kmnist' should have images of shape"):
        fetch_images("kmnist")
