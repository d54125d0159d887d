# SPDX-License-Identifier: BSD-3-Clause
"""The tables with classes: the real files against what is published of them, and downloads."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.datasets import TABULAR_CLASSIFICATION_SETS, _fetching, fetch_tabular_classification

# Class counts as UCI publishes them; of the 20,000 cover types those of the file that is known.
COUNTS = {
    "letter": dict(
        zip(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            [789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792]
            + [783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734],
            strict=True,
        )
    ),
    "adult": {"<=50K": 37155, ">50K": 11687},
    "pendigits": dict(
        enumerate([1143, 1143, 1144, 1055, 1144, 1055, 1056, 1142, 1055, 1055]),
    ),
    "satimage": {1: 1533, 2: 703, 3: 1358, 4: 626, 5: 707, 7: 1508},
    "spambase": {0: 2788, 1: 1813},
    "magic": {"g": 12332, "h": 6688},
    "covtype20k": {1: 2942, 2: 6022, 3: 2160, 4: 2160, 5: 2396, 6: 2160, 7: 2160},
}
N_FEATURES = {
    "letter": 16,
    "adult": 14,
    "pendigits": 16,
    "satimage": 36,
    "spambase": 57,
    "magic": 10,
    "covtype20k": 54,
}

OPENML_SETS = sorted(set(TABULAR_CLASSIFICATION_SETS) - {"covtype20k", "adult"})


def published_labels(name):
    return np.repeat(list(COUNTS[name]), list(COUNTS[name].values()))


# The real files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABULAR_CLASSIFICATION_SETS)
def test_real_sets_have_the_published_shape_and_class_counts(data_dir, openml, name):
    calls = openml(AssertionError("the files are at hand"))
    bunch = fetch_tabular_classification(name)
    assert calls == []
    assert bunch.data.shape == (sum(COUNTS[name].values()), N_FEATURES[name])
    assert bunch.data.dtype == np.float64
    assert np.isfinite(bunch.data).all()
    labels, counts = np.unique(bunch.target, return_counts=True)
    assert dict(zip(labels.tolist(), counts.tolist(), strict=True)) == COUNTS[name]
    assert "SKDISTILL_DATA" in bunch.DESCR
    if bunch.feature_names is not None:
        assert len(bunch.feature_names) == N_FEATURES[name]


def test_first_rows_are_those_that_are_published(data_dir):
    # The first lines of letter at OpenML, pendigits.tra, sat.trn, magic04.data and covtype.data.
    letter = fetch_tabular_classification("letter")
    assert_array_equal(letter.data[0], [2, 4, 4, 3, 2, 7, 8, 2, 9, 11, 7, 7, 1, 8, 5, 6])
    assert letter.target[0] == "Z"
    pendigits = fetch_tabular_classification("pendigits")
    assert_array_equal(pendigits.data[0, :8], [47, 100, 27, 81, 57, 37, 26, 0])
    assert_array_equal(pendigits.target[:5], [8, 2, 1, 4, 1])
    satimage = fetch_tabular_classification("satimage")
    assert_array_equal(satimage.data[0, :6], [92, 115, 120, 94, 84, 102])
    assert satimage.target[0] == 3
    magic = fetch_tabular_classification("magic")
    np.testing.assert_allclose(magic.data[0, :3], [28.7967, 16.0021, 2.6449], rtol=1e-6)
    assert magic.target[0] == "g"
    covtype = fetch_tabular_classification("covtype20k")
    assert_array_equal(covtype.data[0, :10], [2596, 51, 3, 258, 0, 510, 221, 232, 148, 6279])
    assert covtype.target[0] == 5
    assert_array_equal(np.unique(covtype.target[:15120], return_counts=True)[1], [2160] * 7)


def test_adult_has_numbers_first_and_codes_with_their_categories(data_dir):
    adult = fetch_tabular_classification("adult")
    assert_array_equal(adult.categorical, [False] * 6 + [True] * 8)
    assert adult.feature_names[:3] == ["age", "fnlwgt", "education-num"]
    row = dict(zip(adult.feature_names, adult.data[0], strict=True))
    # adult.data begins: 39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, ...
    assert (row["age"], row["fnlwgt"], row["education-num"]) == (39, 77516, 13)
    texts = {name: names[int(row[name])] for name, names in adult.categories.items()}
    assert texts == {
        "workclass": "State-gov",
        "education": "Bachelors",
        "marital-status": "Never-married",
        "occupation": "Adm-clerical",
        "relationship": "Not-in-family",
        "race": "White",
        "sex": "Male",
        "native-country": "United-States",
    }
    for j, name in enumerate(adult.feature_names[6:], start=6):
        assert_array_equal(np.unique(adult.data[:, j]), np.arange(len(adult.categories[name])))


def test_indicators_of_the_cover_types_are_categorical(data_dir):
    covtype = fetch_tabular_classification("covtype20k")
    assert_array_equal(covtype.categorical, [False] * 10 + [True] * 44)
    assert_array_equal(np.unique(covtype.data[:, covtype.categorical]), [0, 1])
    assert_array_equal(covtype.data[:, 10:14].sum(axis=1), 1)  # one wilderness area
    assert_array_equal(covtype.data[:, 14:].sum(axis=1), 1)  # one soil


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("adult", {"<=50K": 24720, ">50K": 7841}),
        ("satimage", {1: 1072, 2: 479, 3: 961, 4: 415, 5: 470, 7: 1038}),
    ],
)
def test_standard_training_sets(data_dir, name, counts):
    bunch = fetch_tabular_classification(name)
    labels, found = np.unique(bunch.target[bunch.is_train], return_counts=True)
    assert dict(zip(labels.tolist(), found.tolist(), strict=True)) == counts


def test_pendigits_are_split_by_writer(data_dir):
    bunch = fetch_tabular_classification("pendigits")
    assert (bunch.is_train.sum(), (~bunch.is_train).sum()) == (7494, 3498)
    assert bunch.is_train[:7494].all()


# Downloads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPENML_SETS)
def test_openml_is_asked_by_id(name, no_folder, openml, openml_bunch, tmp_path):
    labels = published_labels(name)
    data = np.arange(float(len(labels)))[:, None] + np.arange(N_FEATURES[name])
    names = [f"x{j}" for j in range(N_FEATURES[name])]
    written = [f"{label}." if name == "satimage" else f"{label}" for label in labels]
    calls = openml(openml_bunch(data, np.array(written, dtype=object), names))
    bunch = fetch_tabular_classification(name, data_home=tmp_path)
    (call,) = calls
    assert call["data_id"] == _fetching._CLASSIFICATION[name].origin
    assert call["data_home"] == tmp_path
    assert_array_equal(bunch.data, data)
    assert_array_equal(bunch.target, labels)
    assert bunch.target.dtype.kind == labels.dtype.kind
    assert not bunch.categorical.any()
    assert bunch.is_train is None  # samples sorted by class are not in the order that is known
    assert f"openml.org/d/{call['data_id']}" in bunch.DESCR


def adult_like_openml(n_test_positive):
    """Samples in OpenML's order; age and workclass tell, the other columns are zero."""
    numbers = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    names = ["age", "workclass", *numbers[1:], *(f"c{j}" for j in range(7))]
    data = np.zeros((48842, 14))
    data[:, 0] = 17 + np.arange(48842) % 70
    data[:4, 1] = [0, 1, np.nan, 1]
    target = np.full(48842, "<=50K", dtype=object)
    target[:n_test_positive] = ">50K"
    target[-(11687 - n_test_positive) :] = ">50K"
    levels = {"workclass": ["Private", "Federal-gov"], **{f"c{j}": ["a", "b"] for j in range(7)}}
    return data, target, names, levels


def test_adult_from_openml_is_like_the_file(no_folder, openml, openml_bunch):
    openml(openml_bunch(*adult_like_openml(n_test_positive=3846)))
    adult = fetch_tabular_classification("adult")
    assert adult.feature_names[:2] == ["age", "fnlwgt"]
    assert adult.feature_names[6:8] == ["workclass", "c0"]
    assert_array_equal(adult.data[:3, 0], [17, 18, 19])
    # In order "?" comes first, then Federal-gov and Private.
    assert adult.categories["workclass"] == ["?", "Federal-gov", "Private"]
    assert_array_equal(adult.data[:5, 6], [2, 1, 0, 1, 2])
    assert_array_equal(adult.categorical, [False] * 6 + [True] * 8)
    assert_array_equal(adult.is_train, np.arange(48842) >= 16281)


def test_rows_in_another_order_have_no_standard_split(no_folder, openml, openml_bunch):
    openml(openml_bunch(*adult_like_openml(n_test_positive=3845)))
    assert fetch_tabular_classification("adult").is_train is None


def test_cover_types_come_from_scikit_learn(no_folder, monkeypatch, tmp_path):
    labels = published_labels("covtype20k")
    data = np.random.default_rng(0).random((20005, 54))
    target = np.append(labels, [1] * 5).astype(np.int32)
    asked = []

    def fetch_covtype(data_home):
        asked.append(data_home)
        return SimpleNamespace(data=data, target=target, feature_names=[f"x{j}" for j in range(54)])

    monkeypatch.setattr(_fetching, "fetch_covtype", fetch_covtype)
    bunch = fetch_tabular_classification("covtype20k", data_home=tmp_path)
    assert asked == [tmp_path]
    assert_array_equal(bunch.data, data[:20000])
    assert_array_equal(bunch.target, labels)
    assert bunch.categorical.sum() == 44


# What goes wrong -----------------------------------------------------------------------------


def test_offline_error_says_what_was_tried_and_what_to_do(folder, openml):
    openml(URLError("no route"))
    with pytest.raises(OSError, match="'letter' is not available: there is no file") as caught:
        fetch_tabular_classification("letter")
    message = str(caught.value)
    assert str(folder / "tabular" / "letter.npz") in message
    assert "openml.org/d/6 (URLError: <urlopen error no route>)" in message
    assert "arrays X and y" in message


def test_unknown_name_is_rejected_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'adult'.*'spambase'.*got 'iris'"):
        fetch_tabular_classification("iris")


@pytest.mark.parametrize(
    ("n_rows", "n_features", "labels"),
    [(19019, 10, "gh"), (19020, 9, "gh"), (19020, 10, "gx"), (19020, 10, "g")],
)
def test_other_data_are_rejected(n_rows, n_features, labels, no_folder, openml, openml_bunch):
    target = np.array([labels[i % len(labels)] for i in range(n_rows)], dtype=object)
    names = [f"x{j}" for j in range(n_features)]
    openml(openml_bunch(np.ones((n_rows, n_features)), target, names))
    with pytest.raises(ValueError, match=r"'magic' should have inputs of shape \(19020, 10\)"):
        fetch_tabular_classification("magic")
