# SPDX-License-Identifier: BSD-3-Clause
"""Small grey images with ten classes."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch

from ._fetching import from_openml, load_or_download, source_of

_SIDE = 28
_N_TRAIN = 60000


class _Source(NamedTuple):
    """Source and contents of a set."""

    title: str
    file: str  # in SKDISTILL_DATA/images, without .npz
    origin: int  # number at OpenML
    test_counts: tuple[int, ...]  # images of each class in the test set, to recognise it


_SETS = {
    "mnist": _Source(
        "Handwritten digits (MNIST)",
        "mnist",
        554,
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    "kmnist": _Source(
        "Japanese characters in cursive (Kuzushiji-MNIST)", "kmnist_test", 41982, (1000,) * 10
    ),
}

IMAGE_SETS = tuple(_SETS)


def fetch_images(name: str, *, data_home: Any = None) -> Bunch:
    """Load MNIST [1]_, or KMNIST [2]_, which is often its partner out of distribution.

    The file ``images/mnist.npz`` or ``images/kmnist_test.npz`` in ``SKDISTILL_DATA`` comes first;
    it holds `X_test` and `y_test`, and may hold `X_train` and `y_train`. Else OpenML has the set.

    Parameters
    ----------
    name : {"mnist", "kmnist"}
        Which set.
    data_home : str or path-like, default=None
        Folder for downloads; None is scikit-learn's, ``~/scikit_learn_data``.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        With `DESCR`, the source of the data, and:

        data : ndarray of shape (n_samples, 28, 28), uint8
            Images, 0 the background.
        target : ndarray of shape (n_samples,), int
            Digits, or numbers of the characters, from 0 to 9.
        is_train : ndarray of shape (n_samples,), bool
            The 60,000 images of the training set come first, if they are there; the 10,000 others
            are the test set.

    Raises
    ------
    ValueError
        If the data are not what they should be.
    OSError
        If the set is not in ``SKDISTILL_DATA`` and cannot be downloaded; the message says how to
        go on without a connection.

    References
    ----------
    .. [1] Y. LeCun, C. Cortes and C. Burges, "The MNIST Database of Handwritten Digits".
    .. [2] T. Clanuwat et al. (2018), "Deep Learning for Classical Japanese Literature".
    """
    source = source_of(name, _SETS)
    file, arrays = f"images/{source.file}.npz", "X_test and y_test"
    bunch = load_or_download(name, source, file, arrays, _from_file, _from_openml, data_home)
    n_rows, counts = len(bunch.target), tuple(np.bincount(bunch.target[~bunch.is_train]).tolist())
    if bunch.data.shape != (n_rows, _SIDE, _SIDE) or counts != source.test_counts:
        raise ValueError(
            f"The set {name!r} should have images of shape ({_SIDE}, {_SIDE}), and in its test set "
            f"{source.test_counts} of the classes; loaded were images of shape {bunch.data.shape} "
            f"and {n_rows} labels, {counts} in the test set. {bunch.DESCR}"
        )
    return bunch


def _from_file(source: _Source, content) -> Bunch:
    parts = [part for part in ("train", "test") if f"X_{part}" in content]
    images = [content[f"X_{part}"] for part in parts]
    return Bunch(
        data=np.concatenate(images),
        target=np.concatenate([content[f"y_{part}"] for part in parts]).astype(int),
        is_train=np.repeat([part == "train" for part in parts], [len(part) for part in images]),
    )


def _from_openml(source: _Source, data_home) -> Bunch:
    found = from_openml(source.origin, data_home)
    return Bunch(
        data=found.data.astype(np.uint8).reshape(-1, _SIDE, _SIDE),
        target=found.target.astype(int),
        is_train=np.arange(len(found.target)) < _N_TRAIN,
    )
