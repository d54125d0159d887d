# SPDX-License-Identifier: BSD-3-Clause
"""Tables with classes."""

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import fetch_covtype
from sklearn.utils import Bunch

from ._fetching import from_openml, load_or_download, source_of

_MISSING = "?"  # category of missing values, as in the published files


class _Source(NamedTuple):
    """Source and contents of a set."""

    title: str
    n_rows: int
    n_features: int
    labels: tuple  # in the order of their codes in the file in SKDISTILL_DATA
    origin: int | str  # number at OpenML, or address of what fetch_covtype loads
    n_categorical: int = 0  # the last columns
    arrays: str = "X and y"  # in the file in SKDISTILL_DATA
    train: slice | None = None  # samples of the standard training set
    train_counts: tuple[int, ...] = ()  # samples of each class among them, to recognise them


_SETS = {
    "letter": _Source("Letter recognition", 20000, 16, tuple(ascii_uppercase), 6),
    "adult": _Source(
        "Adult (census income)",
        48842,
        14,
        ("<=50K", ">50K"),
        1590,
        n_categorical=8,
        arrays="X_num, X_cat, y and is_train",
        train=slice(16281, None),  # OpenML has the test samples first
        train_counts=(24720, 7841),
    ),
    "pendigits": _Source(
        "Pen-based digits",
        10992,
        16,
        tuple(range(10)),
        32,
        train=slice(7494),
        train_counts=(780, 779, 780, 719, 780, 720, 720, 778, 719, 719),
    ),
    "satimage": _Source(
        "Landsat satellite images",
        6435,
        36,
        (1, 2, 3, 4, 5, 7),
        182,
        train=slice(4435),
        train_counts=(1072, 479, 961, 415, 470, 1038),
    ),
    "spambase": _Source("Spambase", 4601, 57, (0, 1), 44),
    "magic": _Source("MAGIC gamma telescope", 19020, 10, ("g", "h"), 1120),
    "covtype20k": _Source(
        "Forest cover types, the first 20,000 samples",
        20000,
        54,
        tuple(range(1, 8)),
        "https://archive.ics.uci.edu/dataset/31/covertype",
        n_categorical=44,
    ),
}

TABULAR_CLASSIFICATION_SETS = tuple(_SETS)


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
    source = source_of(name, _SETS)
    download = _from_openml if isinstance(source.origin, int) else _from_covtype
    file = f"tabular/{name}.npz"
    bunch = load_or_download(name, source, file, source.arrays, _from_file, download, data_home)
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


def _from_file(source: _Source, content) -> Bunch:
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


def _from_openml(source: _Source, data_home) -> Bunch:
    found = from_openml(source.origin, data_home)
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


def _from_covtype(source: _Source, data_home) -> Bunch:
    found = fetch_covtype(data_home=data_home)
    return Bunch(
        data=found.data[: source.n_rows],
        target=found.target[: source.n_rows],
        categories={},
        feature_names=found.feature_names,
        is_train=None,
    )
