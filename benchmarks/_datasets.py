# SPDX-License-Identifier: BSD-3-Clause
"""Real data sets from files in the folder that SKDISTILL_DATA names, checked for what they hold.

None of them comes with the library: several licences allow research use only.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
from _common import arrays, stored
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch


class Table(NamedTuple):
    """What a table with classes holds."""

    n_rows: int
    n_features: int
    labels: tuple  # in the order of their codes
    n_categorical: int = 0  # the last columns
    n_train: int | None = None  # samples of the standard training set, the first ones


# Images of each class in the test set.
IMAGES = {
    "mnist": ("mnist", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "kmnist": ("kmnist_test", [1000] * 10),
}
# File, samples, features. Energy is the heating load, naval the compressor's decay.
UCI_REGRESSION = {
    "boston": ("bostonHousing", 506, 13),
    "concrete": ("concrete", 1030, 8),
    "energy": ("energy", 768, 8),
    "kin8nm": ("kin8nm", 8192, 8),
    "naval": ("naval-propulsion-plant", 11934, 16),
    "power-plant": ("power-plant", 9568, 4),
    "protein": ("protein-tertiary-structure", 45730, 9),
    "wine": ("wine-quality-red", 1599, 11),
    "yacht": ("yacht", 308, 6),
}
OF_UCI = ("boston", "concrete", "energy", "power-plant", "wine", "protein")  # that scripts share
# Tables of PMLB that judge defaults, of at most 4,500 samples.
SUITE = {
    "regression": (
        *("2dplanes", "auto_price", "bng_lowbwt", "bodyfat", "chscase_geyser1", "esl"),
        *("fri_c0_500_10", "houses", "machine_cpu", "pm10", "pol", "pollen", "pollution"),
        *("puma8nh", "tecator"),
    ),
    "classification": (
        *("analcatdata_authorship", "biomed", "breast_w", "car", "cmc", "crx", "dna", "german"),
        *("glass", "heart_c", "irish", "led7", "lymphography", "mfeat_zernike", "new_thyroid"),
        *("page_blocks", "parity5_5", "schizo", "soybean", "splice", "titanic", "twonorm"),
        *("vowel", "wdbc", "wine_quality_white"),
    ),
}
TABULAR_CLASSIFICATION = {
    "letter": Table(20000, 16, tuple(ascii_uppercase)),
    "adult": Table(48842, 14, ("<=50K", ">50K"), n_categorical=8),
    "pendigits": Table(10992, 16, tuple(range(10)), n_train=7494),
    "satimage": Table(6435, 36, (1, 2, 3, 4, 5, 7), n_train=4435),
    "spambase": Table(4601, 57, (0, 1)),
    "magic": Table(19020, 10, ("g", "h")),
    "covtype20k": Table(20000, 54, tuple(range(1, 8)), n_categorical=44),
}


class Fold(NamedTuple):
    """Samples to train on, and samples to be judged on."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def are_classes(self) -> bool:
        return self.y_train.dtype.kind != "f"


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All samples of a table."""
    if kinds := [kind for kind, names in SUITE.items() if name in names]:
        X, y = arrays(f"suite/{kinds[0]}_{name}", "X y")
        return X.astype(float), y
    if name == "california":
        X, y = arrays("uci/california_housing", "X y")
        return X.astype(float), y
    if name == "house":
        parts = arrays("tabular/house", "X_train X_val X_test y_train y_val y_test")
        return np.vstack(parts[:3]).astype(float), np.hstack(parts[3:])
    if name == "river-flow":
        X, Y = arrays("uci/rf1_multitarget", "X Y")
        known = np.isfinite(X).all(axis=1)
        return X[known], Y[known, 0]
    if name == "digits":
        return load_digits(return_X_y=True)
    load = load_uci_regression if name in UCI_REGRESSION else load_tabular_classification
    found = load(name)
    return found.data, found.target


def load_split(name: str, split: int) -> Fold:
    """Standardised float32 samples of one of the standard splits of a set of UCI."""
    data = load_uci_regression(name)
    train, test = data.train_indices[split], data.test_indices[split]
    scaler = StandardScaler().fit(data.data[train])
    X, X_test = (scaler.transform(data.data[i]).astype(np.float32) for i in (train, test))
    return Fold(X, data.target[train], X_test, data.target[test])


def load_images(name: str) -> Bunch:
    """Images (n, 28, 28) of uint8 as `data`, `target`, and `is_train`.

    MNIST's 60,000 training images come first; of KMNIST, its partner out of distribution, there
    are the test images.
    """
    file, counts = IMAGES[name]
    with stored(f"images/{file}") as content:
        parts = [part for part in ("train", "test") if f"X_{part}" in content]
        data, target = (np.concatenate([content[f"{a}_{part}"] for part in parts]) for a in "Xy")
    is_train = np.arange(len(target)) < len(target) - sum(counts)
    found = data.shape, np.bincount(target[~is_train]).tolist()
    check(f"images/{file}", found, ((len(target), 28, 28), counts))
    return Bunch(data=data, target=target.astype(int), is_train=is_train)


def load_uci_regression(name: str) -> Bunch:
    """`data`, `target`, and the standard splits, `train_indices` and `test_indices`.

    The sets are those of Hernandez-Lobato & Adams (2015), their splits those of Gal & Ghahramani
    (2016).
    """
    file, *shape = UCI_REGRESSION[name]
    X, y, train, test = arrays(f"uci/{file}", "X y train_idx test_idx")
    check(f"uci/{file}", (X.shape, y.shape), (tuple(shape), (shape[0],)))
    return Bunch(
        data=X.astype(float),
        target=y.astype(float),
        train_indices=train.astype(np.intp),
        test_indices=test.astype(np.intp),
    )


def load_tabular_classification(name: str) -> Bunch:
    """`data`, `target`, a mask `categorical`, `categories`, `feature_names` and `is_train`.

    Columns of categories come last: adult's as codes of its `categories`, the cover types' as 44
    indicators. Where there is no standard training set, `is_train` is None.
    """
    about = TABULAR_CLASSIFICATION[name]
    with stored(f"tabular/{name}") as file:
        content = dict(file)
    if name == "adult":
        content["X"] = np.hstack([content["X_num"], content["X_cat"]])
        content["feature_names"] = np.hstack([content["num_names"], content["cat_names"]])
    X, y, names = content["X"], content["y"], content.get("feature_names")
    found = X.shape, y.shape, np.unique(y).tolist()
    shape = about.n_rows, about.n_features
    check(f"tabular/{name}", found, (shape, shape[:1], list(range(len(about.labels)))))
    index, is_train = np.arange(about.n_rows), content.get("is_train")
    return Bunch(
        data=X.astype(float),
        target=np.array(about.labels)[y],
        categorical=np.arange(about.n_features) >= about.n_features - about.n_categorical,
        categories={k: content[f"cat_{k}"].tolist() for k in content.get("cat_names", ())},
        feature_names=None if names is None else names.tolist(),
        is_train=is_train if about.n_train is None else index < about.n_train,
    )


def check(file: str, found: Any, expected: Any) -> None:
    """Raise a ValueError if a file holds something else."""
    if found != expected:
        raise ValueError(f"{file}.npz in SKDISTILL_DATA should have {expected}, it has {found}.")
